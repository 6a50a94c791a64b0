/* The two passes over the updates, on integers only: every function equals the numpy path of the
 * module beside it to the bit, because no operation here can overflow or round.
 *
 * All work on coordinates [start, stop) of n rows of int8 in [-127, 127], n <= 256, a block that
 * stays in the first-level cache at a time. Plain loops: the compiler makes vectors of them.
 */
#include <stdint.h>

#define BLOCK 256
#define MAX_ROWS 256

typedef int16_t lane_t[BLOCK];

static inline void widen(const int8_t *restrict from, int16_t *restrict to, int width)
{
    for (int k = 0; k < width; k++)
        to[k] = from[k];
    for (int k = width; k < BLOCK; k++)
        to[k] = 0;
}

static inline int32_t dot(const int16_t *restrict a, const int16_t *restrict b)
{
    int32_t sum = 0; /* 256 * 127^2 < 2^31 */
    for (int k = 0; k < BLOCK; k++)
        sum += a[k] * b[k];
    return sum;
}

/* Adds to out (n x n, upper triangle) the inner products of all pairs. */
void atoll_gram(const int8_t *const *rows, int n, int64_t start, int64_t stop, int64_t *out)
{
    static _Thread_local lane_t lanes[MAX_ROWS];
    for (int64_t at = start; at < stop; at += BLOCK) {
        int width = stop - at < BLOCK ? (int)(stop - at) : BLOCK;
        for (int i = 0; i < n; i++)
            widen(rows[i] + at, lanes[i], width);
        for (int i = 0; i < n; i++)
            for (int j = i; j < n; j++)
                out[i * n + j] += dot(lanes[i], lanes[j]);
    }
}

static inline void exchange(int16_t *restrict low, int16_t *restrict high)
{
    for (int k = 0; k < BLOCK; k++) {
        int16_t a = low[k], b = high[k];
        low[k] = a < b ? a : b;
        high[k] = a < b ? b : a;
    }
}

static inline void add(int16_t *restrict to, const int16_t *restrict from)
{
    for (int k = 0; k < BLOCK; k++)
        to[k] += from[k];
}

static inline void subtract(int16_t *restrict to, const int16_t *restrict from)
{
    for (int k = 0; k < BLOCK; k++)
        to[k] -= from[k];
}

static inline void copy(int16_t *restrict to, const int16_t *restrict from)
{
    for (int k = 0; k < BLOCK; k++)
        to[k] = from[k];
}

/* mixed[i] = sum of all lanes less those that excluded[ends[i] .. ends[i + 1]) names. The sum of all
 * is at most 256 * 127, so int16 holds it, and few are excluded: subtracting them costs least. */
static inline void mix(lane_t *lanes, lane_t *mixed, int n, const int32_t *ends,
                       const int32_t *excluded)
{
    lane_t total = {0};
    for (int i = 0; i < n; i++)
        add(total, lanes[i]);
    for (int i = 0; i < n; i++) {
        copy(mixed[i], total);
        for (int32_t at = ends[i]; at < ends[i + 1]; at++)
            subtract(mixed[i], lanes[excluded[at]]);
    }
}

struct network {
    const int32_t *pairs; /* low, high, low, high, ... */
    int32_t length;       /* pairs */
    int32_t first, last;  /* lanes first .. last - 1 are added */
};

/* out[k] = sum of the middle lanes after the network; ends == 0 skips the mixing. */
void atoll_trimmed(const int8_t *const *rows, int n, int64_t start, int64_t stop,
                           const int32_t *ends, const int32_t *excluded,
                           const struct network *network, int32_t *out)
{
    /* A quarter of a megabyte: more than the stack of some threads takes. */
    static _Thread_local lane_t plain[MAX_ROWS], mixed[MAX_ROWS];
    for (int64_t at = start; at < stop; at += BLOCK) {
        int width = stop - at < BLOCK ? (int)(stop - at) : BLOCK;
        lane_t *lanes = plain;
        for (int i = 0; i < n; i++)
            widen(rows[i] + at, plain[i], width);
        if (ends) {
            mix(plain, mixed, n, ends, excluded);
            lanes = mixed;
        }
        for (int32_t p = 0; p < network->length; p++)
            exchange(lanes[network->pairs[2 * p]], lanes[network->pairs[2 * p + 1]]);
        int32_t sums[BLOCK] = {0};
        for (int i = network->first; i < network->last; i++)
            for (int k = 0; k < BLOCK; k++)
                sums[k] += lanes[i][k];
        for (int k = 0; k < width; k++)
            out[at + k] = sums[k];
    }
}

/* out[k] = sum of weights[i] * rows[i][k]; the weights' magnitudes add to at most 2^24. */
void atoll_weighted(const int8_t *const *rows, int n, int64_t start, int64_t stop,
                            const int32_t *weights, int32_t *out)
{
    for (int64_t at = start; at < stop; at += BLOCK) {
        int width = stop - at < BLOCK ? (int)(stop - at) : BLOCK;
        int32_t sums[BLOCK] = {0};
        for (int i = 0; i < n; i++)
            for (int k = 0; k < width; k++)
                sums[k] += weights[i] * rows[i][at + k];
        for (int k = 0; k < width; k++)
            out[at + k] = sums[k];
    }
}
