/* Attention's products: integers that fp32 holds, multiplied as int16 in pairs, whose sums int32
 * holds. Three times as fast as fp32 where a processor has an instruction for it.
 */
#include <stdint.h>
#include <string.h>

#if defined(__AVX512VNNI__) && defined(__AVX512BW__)
#include <immintrin.h>
#define LANES 16
#define NEAR 4
typedef __m512i words;
static inline words add_pairs(words sum, words x, words y) { return _mm512_dpwssd_epi32(sum, x, y); }
#elif defined(__AVX2__)
#include <immintrin.h>
#define LANES 8
#define NEAR 2
typedef __m256i words;
static inline words add_pairs(words sum, words x, words y) {
    return _mm256_add_epi32(sum, _mm256_madd_epi16(x, y));
}
#else
#define LANES 0
#endif

#if LANES
#define ROWS 6 /* by NEAR vectors of columns: as many sums as there are registers */
#define BYTES (LANES * 4)
typedef int32_t integers __attribute__((vector_size(BYTES)));
typedef float floats __attribute__((vector_size(BYTES)));

static inline uint32_t pair_of(float a, float b) {
    return (uint32_t)(uint16_t)(int32_t)a | (uint32_t)(uint16_t)(int32_t)b << 16;
}

/* x [n, inner] by strides as pairs of inner terms, [(inner + 1) / 2, wide] with zeros behind n. */
static void pack(const float *restrict x, int64_t n, int64_t inner, int64_t by_n, int64_t by_inner,
                 int64_t wide, uint32_t *restrict out) {
    int64_t pairs = inner / 2;
    memset(out, 0, (inner + 1) / 2 * wide * 4);
    if (by_n == 1)
        for (int64_t p = 0; p < pairs; p++) {
            const float *a = x + 2 * p * by_inner, *b = a + by_inner;
            for (int64_t i = 0; i < n; i++) out[p * wide + i] = pair_of(a[i], b[i]);
        }
    else /* some at a time, whose lines a cache holds until all their pairs are read */
        for (int64_t first = 0; first < n; first += LANES) {
            int64_t stop = first + LANES < n ? first + LANES : n;
            for (int64_t p = 0; p < pairs; p++)
                for (int64_t i = first; i < stop; i++) {
                    const float *at = x + i * by_n + 2 * p * by_inner;
                    out[p * wide + i] = pair_of(at[0], at[by_inner]);
                }
        }
    if (inner % 2)
        for (int64_t i = 0; i < n; i++)
            out[pairs * wide + i] = pair_of(x[i * by_n + (inner - 1) * by_inner], 0.0f);
}

/* `rows` rows by `near` vectors of columns, of which `left` columns are written. Both counts are
 * constants where it is inlined, so that sums stay in registers. */
static inline __attribute__((always_inline)) void block(
    const uint32_t *x, int64_t x_wide, const uint32_t *y, int64_t y_wide, int64_t pairs, int rows,
    int near, float *out, int64_t columns, int64_t left) {
    integers sum[ROWS][NEAR];
    for (int r = 0; r < rows; r++)
        for (int k = 0; k < near; k++) sum[r][k] = (integers){0};
    for (int64_t p = 0; p < pairs; p++) {
        words of_y[NEAR];
        for (int k = 0; k < near; k++) memcpy(of_y + k, y + p * y_wide + k * LANES, BYTES);
        for (int r = 0; r < rows; r++) {
            integers same = (integers){0} + (int32_t)x[p * x_wide + r];
            for (int k = 0; k < near; k++)
                sum[r][k] = (integers)add_pairs((words)sum[r][k], (words)same, of_y[k]);
        }
    }
    for (int r = 0; r < rows; r++)
        for (int k = 0; k < near; k++) {
            floats line = __builtin_convertvector(sum[r][k], floats);
            int64_t rest = left - k * LANES;
            memcpy(out + r * columns + k * LANES, &line, (rest < LANES ? rest : LANES) * 4);
        }
}

static inline __attribute__((always_inline)) void strip(
    const uint32_t *x, int64_t x_wide, const uint32_t *y, int64_t y_wide, int64_t pairs, int rows,
    float *out, int64_t columns) {
    int64_t j = 0, most = NEAR * LANES;
    for (; j + most <= columns; j += most)
        block(x, x_wide, y + j, y_wide, pairs, rows, NEAR, out + j, columns, NEAR * LANES);
    for (; j < columns; j += LANES)
        block(x, x_wide, y + j, y_wide, pairs, rows, 1, out + j, columns, columns - j);
}
#endif

/* How many sums an instruction adds to; 0 where the processor has none for pairs. */
int64_t lanes(void) { return LANES; }

/* x [groups, rows, inner] · y [groups, inner, columns], integers below 2^15 whose sums are at most
 * 2^24. shape: these four; strides: x's three, then y's; scratch: words for a group's pairs. */
void products(const float *x, const float *y, const int64_t *shape, const int64_t *strides,
              uint32_t *scratch, float *out) {
#if LANES
    int64_t rows = shape[1], inner = shape[2], columns = shape[3], pairs = (inner + 1) / 2;
    int64_t wide = (columns + LANES - 1) / LANES * LANES, i;
    uint32_t *of_x = scratch + pairs * wide;
    for (int64_t g = 0; g < shape[0]; g++, out += rows * columns) {
        pack(y + g * strides[3], columns, inner, strides[5], strides[4], wide, scratch);
        pack(x + g * strides[0], rows, inner, strides[1], strides[2], rows, of_x);
        for (i = 0; i + ROWS <= rows; i += ROWS)
            strip(of_x + i, rows, scratch, wide, pairs, ROWS, out + i * columns, columns);
        for (; i < rows; i++)
            strip(of_x + i, rows, scratch, wide, pairs, 1, out + i * columns, columns);
    }
#endif
}
