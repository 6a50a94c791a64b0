/* keccak-256 (Ethereum's padding) of many messages of one length, LANES of them side by side.
 *
 * Rule of this file: integers only, so any compiler and width give the same bytes. A vector type
 * instead of a loop over lanes: compilers do not make vectors of rotations they find in loops.
 */
#include <stdint.h>
#include <string.h>

#define LANES 8
#define WORDS 25
#define RATE 136

typedef uint64_t lanes_t __attribute__((vector_size(8 * LANES)));

static const uint64_t ROUNDS[24] = {
    0x0000000000000001, 0x0000000000008082, 0x800000000000808a, 0x8000000080008000,
    0x000000000000808b, 0x0000000080000001, 0x8000000080008081, 0x8000000000008009,
    0x000000000000008a, 0x0000000000000088, 0x0000000080008009, 0x000000008000000a,
    0x000000008000808b, 0x800000000000008b, 0x8000000000008089, 0x8000000000008003,
    0x8000000000008002, 0x8000000000000080, 0x000000000000800a, 0x800000008000000a,
    0x8000000080008081, 0x8000000000008080, 0x0000000080000001, 0x8000000080008008,
};

#define ROTATE(x, n) (((x) << (n)) | ((x) >> (64 - (n))))

/* rho and pi of one word: word `from` turned by n is word `to` of the next state. */
#define MOVE(to, from, n) b[to] = ROTATE(s[from] ^ d[(from) % 5], n)

static void permute(lanes_t *s)
{
    lanes_t b[WORDS], c[5], d[5];
    for (int round = 0; round < 24; round++) {
        for (int x = 0; x < 5; x++)
            c[x] = s[x] ^ s[x + 5] ^ s[x + 10] ^ s[x + 15] ^ s[x + 20];
        for (int x = 0; x < 5; x++)
            d[x] = c[(x + 4) % 5] ^ ROTATE(c[(x + 1) % 5], 1);
        b[0] = s[0] ^ d[0];
        MOVE(10, 1, 1), MOVE(20, 2, 62), MOVE(5, 3, 28), MOVE(15, 4, 27);
        MOVE(16, 5, 36), MOVE(1, 6, 44), MOVE(11, 7, 6), MOVE(21, 8, 55), MOVE(6, 9, 20);
        MOVE(7, 10, 3), MOVE(17, 11, 10), MOVE(2, 12, 43), MOVE(12, 13, 25), MOVE(22, 14, 39);
        MOVE(23, 15, 41), MOVE(8, 16, 45), MOVE(18, 17, 15), MOVE(3, 18, 21), MOVE(13, 19, 8);
        MOVE(14, 20, 18), MOVE(24, 21, 2), MOVE(9, 22, 61), MOVE(19, 23, 56), MOVE(4, 24, 14);
        for (int y = 0; y < WORDS; y += 5)
            for (int x = 0; x < 5; x++)
                s[y + x] = b[y + x] ^ (~b[y + (x + 1) % 5] & b[y + (x + 2) % 5]);
        s[0] ^= ROUNDS[round];
    }
}

static inline void absorb(lanes_t *s, const uint8_t *const *blocks)
{
    for (int word = 0; word < RATE / 8; word++) {
        lanes_t taken;
        for (int lane = 0; lane < LANES; lane++) {
            uint64_t value;
            memcpy(&value, blocks[lane] + 8 * word, 8);
            taken[lane] = value;
        }
        s[word] ^= taken;
    }
    permute(s);
}

/* out[i] = keccak-256 of the `length` bytes at data + i * length, 32 bytes each. */
void keccak_rows(const uint8_t *data, int64_t count, int64_t length, uint8_t *out)
{
    int64_t whole = length / RATE, rest = length % RATE;
    for (int64_t at = 0; at < count; at += LANES) {
        const uint8_t *blocks[LANES], *ends[LANES];
        uint8_t last[LANES][RATE];
        lanes_t s[WORDS] = {{0}};
        for (int lane = 0; lane < LANES; lane++) { /* lanes beyond the last message repeat it */
            int64_t row = at + lane < count ? at + lane : count - 1;
            blocks[lane] = data + row * length;
            memset(last[lane], 0, RATE);
            memcpy(last[lane], blocks[lane] + whole * RATE, (size_t)rest);
            last[lane][rest] = 0x01;
            last[lane][RATE - 1] |= 0x80;
            ends[lane] = last[lane];
        }
        for (int64_t block = 0; block < whole; block++) {
            absorb(s, blocks);
            for (int lane = 0; lane < LANES; lane++)
                blocks[lane] += RATE;
        }
        absorb(s, ends);
        for (int lane = 0; lane < LANES && at + lane < count; lane++)
            for (int word = 0; word < 4; word++) {
                uint64_t value = s[word][lane];
                memcpy(out + 32 * (at + lane) + 8 * word, &value, 8);
            }
    }
}
