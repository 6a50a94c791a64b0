/* The chains between integer products, fused: the same bits as reference.py, in one pass or two.
 *
 * Rules of this file: no -ffast-math and no contraction (see compiled.py for the flags), so every
 * operator is one IEEE operation and vectorising changes no bit. Sums are of integers. Maxima are
 * taken on the words of magnitudes, which order as the magnitudes do, with NaN above them all.
 * NaN is written as one word (`one_nan`), since processors differ in its sign and payload. Names and
 * arguments follow `Kernels` in kernels.py; arrays are row-major and contiguous unless a stride is
 * given.
 */
#include <math.h>
#include <stdint.h>
#include <string.h>

#define FLOOR 0x1p-80f
#define SPLIT_BASE 254.0f
#define SPLIT_LEVELS 32384.0f
#define SUM_LEVELS 4194304.0f
#define NORM_LEVELS 262144.0f
#define SQUARE_LEVELS 65536.0f
#define FLUSH 0x1p-100f
#define LANES 16
#define BLOCK 128
#define TILE 128

static inline uint32_t word_of(float x) { uint32_t w; memcpy(&w, &x, 4); return w; }
static inline float float_of(uint32_t w) { float x; memcpy(&x, &w, 4); return x; }
static inline uint32_t magnitude(float x) { return word_of(x) & 0x7fffffffu; }
static inline uint32_t larger(uint32_t a, uint32_t b) { return a > b ? a : b; }
static inline float one_nan(float x) { return x == x ? x : float_of(0x7fc00000u); }
/* The nearest integer, half to even, without -0; 0 for NaN, whose conversion differs by processor. */
static inline float whole(float x) { return x == x ? rintf(x) + 0.0f : 0.0f; }

/* grid.steps */
static inline float multiplier(float peak, float levels) {
    double wide = peak < FLOOR ? FLOOR : peak;
    return one_nan((float)((1.0 / wide) * (double)levels));
}
static inline float step_of(float peak, float levels) {
    double wide = peak < FLOOR ? FLOOR : peak;
    return one_nan((float)(wide * (1.0 / (double)levels)));
}

/* elementary.exp */
static inline float exact_exp(float x) {
    float inside = x < -86.0f ? -86.0f : (x > 89.0f ? 89.0f : x);
    float power = whole(inside * 1.44269504f);
    float rest = inside - power * 0.693359375f;
    rest = rest - power * -2.12194440e-4f;
    float y = 1.9875691500e-4f;
    y = y * rest + 1.3981999507e-3f;
    y = y * rest + 8.3334519073e-3f;
    y = y * rest + 4.1665795894e-2f;
    y = y * rest + 1.6666665459e-1f;
    y = y * rest + 5.0000001201e-1f;
    y = y * (rest * rest) + rest + 1.0f;
    float half_scale = float_of((uint32_t)((int32_t)power + 126) << 23);
    return x < -86.0f ? 0.0f : y * half_scale * 2.0f;
}
static inline float exact_sigmoid(float x) { return 1.0f / (exact_exp(-x) + 1.0f); }

static float row_peak(const float *x, int64_t n) {
    uint32_t peak = 0;
    for (int64_t j = 0; j < n; j++) peak = larger(peak, magnitude(x[j]));
    return float_of(peak);
}
/* Sum of integers of at most 2^23: a block of them is at most 2^30. */
static int64_t sum_rounded(const float *x, float by, int64_t n) {
    int64_t sum = 0;
    for (int64_t start = 0; start < n; start += BLOCK) {
        int64_t stop = start + BLOCK < n ? start + BLOCK : n;
        int32_t part = 0;
        for (int64_t j = start; j < stop; j++) part += (int32_t)whole(x[j] * by);
        sum += part;
    }
    return sum;
}
static void raise_peaks(uint32_t *peaks, const float *x, int64_t n) {
    for (int64_t j = 0; j < n; j++) peaks[j] = larger(peaks[j], magnitude(x[j]));
}
static void to_int8(const float *restrict x, float by, int8_t *restrict out, int64_t n) {
    for (int64_t j = 0; j < n; j++) out[j] = (int8_t)(int32_t)whole(x[j] * by);
}
static void to_split(const float *restrict x, const float *restrict by, float same,
                     int8_t *restrict high, int8_t *restrict low, int64_t n) {
    for (int64_t j = 0; j < n; j++) {
        float integer = whole(x[j] * (by ? by[j] : same));
        float top = rintf(integer * (float)(1.0 / 254.0)); /* of an integer: never NaN */
        high[j] = (int8_t)(int32_t)top;
        low[j] = (int8_t)(int32_t)(integer - top * SPLIT_BASE);
    }
}

/* ---- linear ------------------------------------------------------------------------------- */

void quantise_rows(const float *x, int64_t rows, int64_t n, int8_t *out, float *step) {
    for (int64_t i = 0; i < rows; i++) {
        float peak = row_peak(x + i * n, n);
        step[i] = step_of(peak, 127.0f);
        to_int8(x + i * n, multiplier(peak, 127.0f), out + i * n, n);
    }
}

void split_rows(const float *x, int64_t rows, int64_t n, int8_t *high, int8_t *low, float *step) {
    for (int64_t i = 0; i < rows; i++) {
        float peak = row_peak(x + i * n, n);
        step[i] = step_of(peak, SPLIT_LEVELS);
        to_split(x + i * n, 0, multiplier(peak, SPLIT_LEVELS), high + i * n, low + i * n, n);
    }
}

/* One row of a gradient that is given in ranges of its columns. */
typedef struct { const float *const *parts; const int64_t *widths; int64_t count; } Ranges;

static void row_of(Ranges g, int64_t i, float *line) {
    for (int64_t k = 0; k < g.count; line += g.widths[k++])
        memcpy(line, g.parts[k] + i * g.widths[k], g.widths[k] * 4);
}

/* Slices go to [2 * rows, n] and [rows, 2 * n], high ones first. scratch: 2n floats */
void quantise_gradient(const float *const *parts, const int64_t *widths, int64_t count,
                       const float *row, const float *column, int64_t rows, int64_t n,
                       float *scratch, int8_t *by_row, float *row_step, int8_t *by_column,
                       float *column_step) {
    Ranges g = {parts, widths, count};
    float *line = scratch, *by = scratch + n;
    uint32_t *peaks = (uint32_t *)column_step;
    memset(peaks, 0, n * 4);
    for (int64_t i = 0; i < rows; i++) {
        row_of(g, i, line);
        for (int64_t j = 0; j < n; j++) peaks[j] = larger(peaks[j], magnitude(line[j] * row[i]));
        for (int64_t j = 0; j < n; j++) line[j] = line[j] * column[j];
        float peak = row_peak(line, n);
        row_step[i] = step_of(peak, SPLIT_LEVELS);
        to_split(line, 0, multiplier(peak, SPLIT_LEVELS), by_row + i * n, by_row + (rows + i) * n,
                 n);
    }
    for (int64_t j = 0; j < n; j++) {
        float peak = float_of(peaks[j]);
        by[j] = multiplier(peak, SPLIT_LEVELS);
        column_step[j] = step_of(peak, SPLIT_LEVELS);
    }
    for (int64_t i = 0; i < rows; i++) {
        row_of(g, i, line);
        for (int64_t j = 0; j < n; j++) line[j] = line[j] * row[i];
        to_split(line, by, 0.0f, by_column + 2 * i * n, by_column + (2 * i + 1) * n, n);
    }
}

/* In place: an int32 becomes the fp32 in the same word. */
void rescale(int32_t *sums, const float *restrict row, const float *restrict column, int64_t rows,
             int64_t n) {
    for (int64_t i = 0; i < rows; i++) {
        int32_t *line = sums + i * n;
        for (int64_t j = 0; j < n; j++)
            line[j] = word_of(one_nan((float)line[j] * (row[i] * column[j])));
    }
}

void rescale_stacked(const int32_t *sums, const float *row, int64_t rows, int64_t n, float *out) {
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < n; j++) {
            float high = (float)sums[i * n + j], low = (float)sums[(rows + i) * n + j];
            out[i * n + j] = one_nan((high * SPLIT_BASE + low) * row[i]);
        }
}

/* Of integer sums; every number here is an integer below 2^53. */
static inline float joined(double high, double middle, double middle2, float step) {
    double both = middle + middle2; /* may exceed 32 bits */
    return one_nan((float)(high * 64516.0 + both * 254.0) * step);
}

void rescale_split(const int32_t *high, const int32_t *middle, const int32_t *middle2,
                   const float *row, const float *column, int64_t rows, int64_t n, float *out) {
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < n; j++) {
            int64_t at = i * n + j;
            out[at] = joined((double)high[at], (double)middle[at], (double)middle2[at],
                             row[i] * column[j]);
        }
}

/* The same of sums over more terms than an int32 holds. */
void rescale_split_long(const int64_t *high, const int64_t *middle, const int64_t *middle2,
                        const float *row, const float *column, int64_t rows, int64_t n,
                        float *out) {
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < n; j++) {
            int64_t at = i * n + j;
            out[at] = joined((double)high[at], (double)middle[at], (double)middle2[at],
                             row[i] * column[j]);
        }
}

/* ---- norm, rotation, gate, embedding, loss ------------------------------------------------- */

void rms_norm(const float *x, const float *gain, double eps, int64_t rows, int64_t n, float *out,
              float *inverse) {
    for (int64_t i = 0; i < rows; i++) {
        const float *in = x + i * n;
        float peak = row_peak(in, n), by = multiplier(peak, NORM_LEVELS);
        double step = step_of(peak, NORM_LEVELS);
        int64_t sum = 0;
        for (int64_t j = 0; j < n; j++) {
            int64_t integer = (int32_t)whole(in[j] * by);
            sum += integer * integer; /* 2^36 each: the reference's fp64 sum is exact, too */
        }
        double square = (double)sum * (step * step);
        float mean = (float)(square * (1.0 / (double)n)) + (float)eps;
        float r = (float)(1.0 / (double)(float)sqrt((double)mean));
        inverse[i] = one_nan(r);
        for (int64_t j = 0; j < n; j++) out[i * n + j] = one_nan(in[j] * r * gain[j]);
    }
}

static double exact_sum(const float *x, int64_t n) {
    float peak = row_peak(x, n), by = multiplier(peak, SUM_LEVELS);
    return (double)sum_rounded(x, by, n) * (double)step_of(peak, SUM_LEVELS);
}

/* scratch: n floats and n int64 */
void rms_norm_gradient(const float *g, const float *x, const float *inverse, const float *gain,
                       int64_t rows, int64_t n, float *dx, float *dgain, float *line,
                       int64_t *sums) {
    uint32_t *peaks = (uint32_t *)dgain;
    memset(peaks, 0, n * 4);
    memset(sums, 0, n * 8);
    for (int64_t i = 0; i < rows; i++) {
        const float *gi = g + i * n, *xi = x + i * n;
        float r = inverse[i], *out = dx + i * n;
        for (int64_t j = 0; j < n; j++) line[j] = (gi[j] * gain[j]) * (xi[j] * r);
        float mean = (float)(exact_sum(line, n) * (1.0 / (double)n));
        for (int64_t j = 0; j < n; j++) {
            float unit = xi[j] * r, gained = gi[j] * gain[j];
            peaks[j] = larger(peaks[j], magnitude(gi[j] * unit));
            out[j] = one_nan((gained - unit * mean) * r);
        }
    }
    for (int64_t j = 0; j < n; j++) line[j] = multiplier(float_of(peaks[j]), SUM_LEVELS);
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < n; j++) {
            float unit = x[i * n + j] * inverse[i];
            sums[j] += (int32_t)whole((g[i * n + j] * unit) * line[j]);
        }
    for (int64_t j = 0; j < n; j++)
        dgain[j] =
            one_nan((float)((double)sums[j] * (double)step_of(float_of(peaks[j]), SUM_LEVELS)));
}

/* x [outer, inner, positions, 2h] by strides, angles [positions, h]; out is contiguous. */
void rotate(const float *x, const int64_t *shape, const int64_t *strides, const float *cosines,
            const float *sines, float sign, float *out) {
    int64_t positions = shape[2], h = shape[3] / 2;
    for (int64_t b = 0; b < shape[0]; b++)
        for (int64_t k = 0; k < shape[1]; k++)
            for (int64_t t = 0; t < positions; t++, out += 2 * h) {
                const float *in = x + b * strides[0] + k * strides[1] + t * strides[2];
                const float *cs = cosines + t * h, *sn = sines + t * h;
                for (int64_t i = 0; i < h; i++) {
                    float u = in[i], v = in[i + h], c = cs[i], s = sn[i] * sign;
                    out[i] = one_nan(u * c - v * s);
                    out[i + h] = one_nan(v * c + u * s);
                }
            }
}

void swiglu(const float *gate, int64_t gate_stride, const float *up, int64_t up_stride,
            int64_t rows, int64_t n, float *out) {
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < n; j++) {
            float a = gate[i * gate_stride + j];
            out[i * n + j] = one_nan(a * exact_sigmoid(a) * up[i * up_stride + j]);
        }
}

void swiglu_gradient(const float *g, const float *gate, int64_t gate_stride, const float *up,
                     int64_t up_stride, int64_t rows, int64_t n, float *dgate, float *dup) {
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < n; j++) {
            float a = gate[i * gate_stride + j], gi = g[i * n + j];
            float s = exact_sigmoid(a), silu = a * s;
            float slope = s + silu * (1.0f - s);
            dgate[i * n + j] = one_nan(gi * up[i * up_stride + j] * slope);
            dup[i * n + j] = one_nan(gi * silu);
        }
}

void squared_relu(const float *x, int64_t n, float *out) {
    for (int64_t j = 0; j < n; j++) {
        float positive = x[j] < 0.0f ? 0.0f : x[j]; /* NaN stays */
        out[j] = one_nan(positive * positive);
    }
}

void squared_relu_gradient(const float *g, const float *x, int64_t n, float *out) {
    for (int64_t j = 0; j < n; j++)
        out[j] = one_nan(g[j] * ((x[j] < 0.0f ? 0.0f : x[j]) * 2.0f));
}

/* philox.philox4x32 on the counter (block low, block high, step, site) */
static void philox(uint64_t block, const uint32_t *words, uint32_t out[4]) {
    uint32_t c0 = (uint32_t)block, c1 = (uint32_t)(block >> 32), c2 = words[2], c3 = words[3];
    uint32_t k0 = words[0], k1 = words[1];
    for (int round = 0; round < 10; round++, k0 += 0x9E3779B9u, k1 += 0xBB67AE85u) {
        uint64_t left = (uint64_t)c0 * 0xD2511F53u, right = (uint64_t)c2 * 0xCD9E8D57u;
        c0 = (uint32_t)(right >> 32) ^ c1 ^ k0;
        c1 = (uint32_t)right;
        c2 = (uint32_t)(left >> 32) ^ c3 ^ k1;
        c3 = (uint32_t)left;
    }
    out[0] = c0; out[1] = c1; out[2] = c2; out[3] = c3;
}

/* words: the key's two, step and site */
void drop(const float *x, int64_t n, int64_t first, const uint32_t *words, uint32_t threshold,
          float scale, float *out) {
    uint32_t drawn[4];
    for (int64_t j = 0; j < n; j++) {
        int64_t element = first + j;
        if (j == 0 || element % 4 == 0) philox((uint64_t)element / 4, words, drawn);
        out[j] = drawn[element % 4] >= threshold ? one_nan(x[j] * scale) : 0.0f;
    }
}

/* scratch: n floats; sums: vocabulary * n int64, zero */
void embedding_gradient(const float *g, const int64_t *ids, int64_t rows, int64_t n,
                        int64_t vocabulary, float *by, int64_t *sums, float *out) {
    uint32_t *peaks = (uint32_t *)by;
    memset(peaks, 0, n * 4);
    for (int64_t i = 0; i < rows; i++) raise_peaks(peaks, g + i * n, n);
    float *steps = out; /* the first row holds the steps until it is written, last */
    for (int64_t j = 0; j < n; j++) {
        float peak = float_of(peaks[j]);
        steps[j] = step_of(peak, SUM_LEVELS);
        by[j] = multiplier(peak, SUM_LEVELS);
    }
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < n; j++)
            sums[ids[i] * n + j] += (int32_t)whole(g[i * n + j] * by[j]);
    for (int64_t v = vocabulary - 1; v >= 0; v--)
        for (int64_t j = 0; j < n; j++)
            out[v * n + j] = one_nan((float)((double)sums[v * n + j] * (double)steps[j]));
}

/* The largest, NaN if any is, and +0 for a zero of either sign. */
static float top_of(const float *x, int64_t n) {
    float lane[LANES], top = x[0];
    uint32_t odd = 0;
    int64_t j = 0;
    for (int l = 0; l < LANES; l++) lane[l] = top;
    for (; j + LANES <= n; j += LANES)
        for (int l = 0; l < LANES; l++) {
            lane[l] = x[j + l] > lane[l] ? x[j + l] : lane[l];
            odd |= x[j + l] != x[j + l];
        }
    for (int l = 0; l < LANES; l++) top = lane[l] > top ? lane[l] : top;
    for (; j < n; j++) {
        top = x[j] > top ? x[j] : top;
        odd |= x[j] != x[j];
    }
    return odd ? float_of(0x7fc00000u) : top + 0.0f;
}

/* shares − one-hot, each row's total weight, and the target's shifted logit; of a row whose target
 * is negative 0, 1 and 0, whatever its logits are */
void softmax_loss(const float *logits, const int64_t *targets, int64_t rows, int64_t n,
                  float *slope, double *total, float *picked) {
    for (int64_t i = 0; i < rows; i++) {
        const float *in = logits + i * n;
        float *out = slope + i * n, top = top_of(in, n);
        int64_t sum = 0;
        if (targets[i] < 0) {
            memset(out, 0, n * 4);
            total[i] = 1.0;
            picked[i] = 0.0f;
            continue;
        }
        for (int64_t j = 0; j < n; j++) {
            out[j] = exact_exp(in[j] - top);
            sum += (int32_t)whole(out[j] * 0x1p30f); /* exp of 0 and below: at most 2^30 */
        }
        total[i] = (double)sum * 0x1p-30;
        float inverse = (float)(1.0 / total[i]);
        for (int64_t j = 0; j < n; j++) out[j] = one_nan(out[j] * inverse);
        out[targets[i]] = one_nan(out[targets[i]] - 1.0f);
        picked[i] = one_nan(in[targets[i]] - top);
    }
}

/* ---- attention ----------------------------------------------------------------------------- */

void quantise_levels(const float *x, int64_t rows, int64_t n, float levels, float *out,
                     float *step) {
    for (int64_t i = 0; i < rows; i++) {
        float peak = row_peak(x + i * n, n), by = multiplier(peak, levels);
        step[i] = step_of(peak, levels);
        for (int64_t j = 0; j < n; j++) out[i * n + j] = whole(x[i * n + j] * by);
    }
}

void row_dot(const float *x, const float *y, int64_t rows, int64_t n, float *line, float *out) {
    for (int64_t i = 0; i < rows; i++) {
        for (int64_t j = 0; j < n; j++) line[j] = x[i * n + j] * y[i * n + j];
        out[i] = one_nan((float)exact_sum(line, n));
    }
}

/* scores [groups, queries, keys] become weights; query i sees keys up to first + i. A product of
 * integers may give a zero of either sign: adding +0 makes it +0. */
void attention_weights(float *scores, const float *q_step, const float *k_step, int64_t groups,
                       int64_t queries, int64_t keys, int64_t first, float *peak,
                       float *inverse) {
    for (int64_t g = 0; g < groups; g++)
        for (int64_t i = 0; i < queries; i++) {
            int64_t row = g * queries + i, seen = first + i + 1 < keys ? first + i + 1 : keys;
            float *w = scores + row * keys;
            const float *ks = k_step + g * keys;
            for (int64_t j = 0; j < seen; j++) w[j] = (w[j] + 0.0f) * q_step[row] * ks[j];
            float top = peak[row] = top_of(w, seen);
            for (int64_t j = 0; j < seen; j++) w[j] = one_nan(exact_exp(w[j] - top));
            memset(w + seen, 0, (keys - seen) * 4);
            inverse[row] = (float)(1.0 / ((double)sum_rounded(w, 0x1p23f, seen) * 0x1p-23));
        }
}

/* weights [groups, queries, stride] from column `start`, `keys` of them, times v_step */
void quantise_mixture(const float *weights, const float *v_step, int64_t groups, int64_t queries,
                      int64_t stride, int64_t start, int64_t keys, float levels, float *out,
                      float *step) {
    for (int64_t g = 0; g < groups; g++)
        for (int64_t i = 0; i < queries; i++) {
            int64_t row = g * queries + i;
            const float *w = weights + row * stride + start, *vs = v_step + g * keys;
            float *to = out + row * keys;
            for (int64_t j = 0; j < keys; j++) to[j] = w[j] * vs[j];
            quantise_levels(to, 1, keys, levels, to, step + row);
        }
}

typedef struct {
    const float *scores, *shares, *q_step, *k_step, *peak, *inverse, *g_step, *v_step, *delta;
    int64_t groups, queries, keys, first;
    float levels;
    float *mixed, *mixed_step, *row, *row_step, *column, *column_step;
} AttentionGradient;

/* One query's share of attention and the slope of its scores, over one tile of keys. */
static void slopes(const AttentionGradient *a, int64_t g, int64_t i, float *restrict share,
                   float *restrict slope) {
    int64_t row = g * a->queries + i, seen = a->first + i + 1;
    if (seen > a->keys) seen = a->keys;
    if (seen < 0) seen = 0;
    const float *s = a->scores + row * a->keys, *d = a->shares + row * a->keys;
    const float *ks = a->k_step + g * a->keys, *vs = a->v_step + g * a->keys;
    float qs = a->q_step[row], top = a->peak[row], r = a->inverse[row], gs = a->g_step[row];
    float delta = a->delta[row];
    for (int64_t j = 0; j < seen; j++) {
        share[j] = exact_exp((s[j] + 0.0f) * qs * ks[j] - top) * r;
        slope[j] = share[j] * ((d[j] + 0.0f) * (gs * vs[j]) - delta);
    }
    for (int64_t j = seen; j < a->keys; j++) share[j] = slope[j] = 0.0f;
}

static void finish_columns(float *x, float *step, int64_t rows, int64_t n, float levels) {
    const uint32_t *peaks = (const uint32_t *)step;
    float by[TILE];
    for (int64_t j = 0; j < n; j++) {
        float peak = float_of(peaks[j]);
        by[j] = multiplier(peak, levels);
        step[j] = step_of(peak, levels);
    }
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < n; j++) x[i * n + j] = whole(x[i * n + j] * by[j]);
}

void attention_gradient(const AttentionGradient *a) {
    float share[TILE], slope[TILE];
    for (int64_t g = 0; g < a->groups; g++) {
        int64_t at = g * a->queries * a->keys;
        const float *ks = a->k_step + g * a->keys;
        float *mixed_step = a->mixed_step + g * a->keys;
        float *column_step = a->column_step + g * a->keys;
        memset(mixed_step, 0, a->keys * 4);
        memset(column_step, 0, a->keys * 4);
        for (int64_t i = 0; i < a->queries; i++) {
            int64_t row = g * a->queries + i, line = row * a->keys;
            slopes(a, g, i, share, slope);
            float *restrict by_row = a->row + line, *restrict by_query = a->column + line;
            float *restrict mixed = a->mixed + line, gs = a->g_step[row], qs = a->q_step[row];
            for (int64_t j = 0; j < a->keys; j++) {
                by_row[j] = slope[j] * ks[j];
                mixed[j] = share[j] * gs;
                by_query[j] = slope[j] * qs;
            }
            quantise_levels(by_row, 1, a->keys, a->levels, by_row, a->row_step + row);
            raise_peaks((uint32_t *)mixed_step, mixed, a->keys);
            raise_peaks((uint32_t *)column_step, by_query, a->keys);
        }
        finish_columns(a->mixed + at, mixed_step, a->queries, a->keys, a->levels);
        finish_columns(a->column + at, column_step, a->queries, a->keys, a->levels);
    }
}

/* ---- optimiser ----------------------------------------------------------------------------- */

/* Two results: the sum of squared integers, and in `step` the grid's step. */
int64_t square_sum(const float *x, int64_t n, float *step) {
    float peak = row_peak(x, n), by = multiplier(peak, SQUARE_LEVELS);
    int64_t sum = 0;
    for (int64_t j = 0; j < n; j++) {
        int64_t integer = (int32_t)whole(x[j] * by);
        sum += integer * integer;
    }
    *step = step_of(peak, SQUARE_LEVELS);
    return sum;
}

static inline float flushed(float x) { return fabsf(x) < FLUSH ? 0.0f : one_nan(x); }

void momentum(const float *m, const float *g, float keep, float add, int64_t n, float *out) {
    for (int64_t j = 0; j < n; j++) out[j] = flushed(m[j] * keep + g[j] * add);
}

void gram(const int32_t *sums, const float *step, int64_t n, float *diagonal, float *rest) {
    for (int64_t i = 0; i < n; i++) {
        float *out = rest + i * n;
        for (int64_t j = 0; j < n; j++)
            out[j] = one_nan((float)sums[i * n + j] * (step[i] * step[j]));
        diagonal[i] = out[i];
        out[i] = 0.0f;
    }
}

/* line: n floats */
void quintic(const float *d, const float *rest, const int32_t *square, const float *step,
             const float *x_step, int64_t n, float *line, float *along, int8_t *across,
             float *across_step) {
    const float a = (float)3.4445, b = (float)-4.7750, c = (float)2.0315;
    for (int64_t i = 0; i < n; i++) {
        const float *r = rest + i * n;
        const int32_t *s = square + i * n;
        float own = (float)s[i] * (step[i] * step[i]);
        along[i] = one_nan((d[i] * d[i] + own) * c + d[i] * b + a);
        for (int64_t j = 0; j < n; j++)
            line[j] = r[j] * ((d[i] + d[j]) * c + b) + (float)s[j] * (step[i] * step[j]) * c;
        line[i] = 0.0f;
        for (int64_t j = 0; j < n; j++) line[j] = line[j] * x_step[j];
        float peak = row_peak(line, n);
        across_step[i] = step_of(peak, 127.0f);
        to_int8(line, multiplier(peak, 127.0f), across + i * n, n);
    }
}

void advance(const float *x, const float *along, const int32_t *sums, const float *step,
             int64_t rows, int64_t n, float *out) {
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < n; j++)
            out[i * n + j] = one_nan(x[i * n + j] * along[i] + (float)sums[i * n + j] * step[i]);
}

/* factors: scale, beta1, 1 − beta1, beta2, 1 − beta2, correct1, correct2, eps, decay, rate */
void adamw(const float *restrict p, const float *restrict m, const float *restrict v,
           const float *restrict g, const double *factors, int64_t n, float *restrict p_out,
           float *restrict m_out, float *restrict v_out) {
    float scale = (float)factors[0], b1 = (float)factors[1], a1 = (float)factors[2];
    float b2 = (float)factors[3], a2 = (float)factors[4], c1 = (float)factors[5];
    float c2 = (float)factors[6], decay = (float)factors[8], rate = (float)factors[9];
    float eps = (float)factors[7];
    for (int64_t j = 0; j < n; j++) {
        float gj = g[j] * scale;
        float mj = flushed(m[j] * b1 + gj * a1), vj = flushed(v[j] * b2 + (gj * gj) * a2);
        float u = (mj * c1) / (sqrtf(vj * c2) + eps) + p[j] * decay;
        p_out[j] = one_nan(p[j] - u * rate);
        m_out[j] = mj;
        v_out[j] = vj;
    }
}
