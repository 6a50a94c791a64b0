/* replay FILE: makes again the calls that record.py wrote down, and compares every byte.
 *
 * Built with kernels.c for a machine that has neither Python nor PyTorch. Prints how many calls were
 * made, the kernels that differ, and ends with 1 if any does. The machine has to be little-endian.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../sdk/atoll/numerics/kernels/kernels.c"

#define ARGUMENTS 32

union argument { void *p; int64_t i; uint32_t u; float f; double d; };
struct kernel { const char *name; int64_t (*call)(const union argument *); };
struct buffer { void *data; unsigned char *after; uint64_t size; int counts; };

#include "calls.h"

static FILE *file;
static struct buffer buffers[4 * ARGUMENTS];
static int used;

static void *wanted(uint64_t size) {
    void *data = aligned_alloc(64, (size + 64) / 64 * 64);
    if (!data) abort();
    return data;
}

static void get(void *to, uint64_t size) {
    if (size && fread(to, size, 1, file) != 1) {
        fprintf(stderr, "replay: the recording ends early\n");
        exit(2);
    }
}

static void *read_buffer(int counts) {
    struct buffer *b = &buffers[used++];
    get(&b->size, 8);
    b->data = wanted(b->size);
    b->after = wanted(b->size);
    b->counts = counts;
    get(b->data, b->size);
    get(b->after, b->size);
    return b->data;
}

static union argument read_argument(void) {
    union argument a = {0}, *slots;
    uint32_t count;
    int tag = getc(file);
    switch (tag) {
    case 'i': get(&a.i, 8); break;
    case 'u': get(&a.u, 4); break;
    case 'f': get(&a.f, 4); break;
    case 'd': get(&a.d, 8); break;
    case 'b': case 's': a.p = read_buffer(tag == 'b'); break;
    case 'a':
        get(&count, 4);
        slots = wanted(count * sizeof *slots);
        for (uint32_t i = 0; i < count; i++) slots[i] = read_argument();
        buffers[used++] = (struct buffer){slots, 0, 0, 0};
        a.p = slots;
        break;
    default: fprintf(stderr, "replay: no argument starts with %d\n", tag); exit(2);
    }
    return a;
}

/* Whether the call of that kernel gives what was recorded. */
static int replayed(const struct kernel *kernel, uint32_t count) {
    union argument arguments[ARGUMENTS];
    int64_t expected;
    int same = 1;
    used = 0;
    for (uint32_t i = 0; i < count; i++) arguments[i] = read_argument();
    get(&expected, 8);
    same &= kernel->call(arguments) == expected;
    for (int i = 0; i < used; i++) {
        if (buffers[i].counts) same &= !memcmp(buffers[i].data, buffers[i].after, buffers[i].size);
        free(buffers[i].data);
        free(buffers[i].after);
    }
    return same;
}

int main(int argc, char **argv) {
    uint32_t head[2], calls = 0, wrong = 0;
    if (argc != 2 || !(file = fopen(argv[1], "rb"))) {
        fprintf(stderr, "usage: replay FILE\n");
        return 2;
    }
    while (fread(head, sizeof head, 1, file) == 1) {
        if (head[0] >= sizeof KERNELS / sizeof *KERNELS || head[1] > ARGUMENTS) return 2;
        calls++;
        if (!replayed(&KERNELS[head[0]], head[1])) {
            wrong++;
            printf("call %u: %s differs\n", calls, KERNELS[head[0]].name);
        }
    }
    printf("%u calls, %u differ\n", calls, wrong);
    return wrong != 0 || calls == 0;
}
