"""The operations of the judge: what a node of the trace may be (SPEC-JUDGE.md, 3).

Rule of this file: an operation's number is its family (high byte) and its place in it; families are
contracts (`IOneStep`). A docstring has the words in brackets, in their order, then the inputs, then
the result. Tensors are flat and row-major. i8, i32, i64, u16, f32, f64 are their types, h is 32
bytes; words that are floats hold their bits, in the low half where they are f32. R is what the
sizes say.
Inputs in capitals are sources beside the trace (`law.program.Source`).
L2, A8 … are lines of SPEC-STEP.md. Every NaN of a result is the one NaN.
"""

from __future__ import annotations

from enum import IntEnum


class Op(IntEnum):
    """An operation; see the rule of this file."""

    # Imports. Of what reads a SHA-256 tree: `first` is the tensor's first leaf, `leaves` are the
    # tree's, `root` is 0 for params and 1 for the optimiser, and the tail is what the tensor's
    # chunks are hashed behind. Where the optimiser root is 0 all under it reads as zeros.
    STATE = 0x0001
    """[first leaves root; prefix] STATE → f32."""
    TOKENS = 0x0002
    """[b T token_bytes masked limit] TOKENS, CONTEXT → i32 [b, T + 1] of the micro-batch: token
    ids, −1 − id where one is no target; sequence j of it is draw iteration · b + j below limit."""
    IDS = 0x0003
    """[T] TOKENS' node → i32 [b, T]: what the model reads."""
    TARGETS = 0x0004
    """[T] TOKENS' node → i32 [b, T]: the token after each; negative where it is no target."""
    RATE = 0x0005
    """[] TABLES, CONTEXT → f64 [1]: the rate of the global step."""
    CORRECTIONS = 0x0006
    """[offset count] TABLES, COUNT's node c → f64 [2]: row min(c, count) − 1 from that byte."""
    COSINES = 0x0007
    """[offset count] TABLES → f32 [T, d/2]: cosines of pairs of cosine and sine from that byte."""
    SINES = 0x0008
    """[offset count] TABLES → f32 [T, d/2]: the sines of the same."""
    DROPOUT_KEY = 0x0009
    """[] CONTEXT → two u32: the Philox key of the seat's round."""
    GLOBAL_STEP = 0x000A
    """[] CONTEXT → u64 [1]."""
    BASE = 0x000B
    """[first leaves 0; prefix] BASE → f32."""
    MODEL = 0x000C
    """[first leaves 0; prefix] MODEL → f32."""
    COUNT = 0x000D
    """[first leaves 1; prefix] STATE → i64 [1]: the optimiser's count after this step."""
    EXPONENTS = 0x000E
    """[first n] EXPONENTS → i32 [n]: n exponents from that one on."""

    # Structure and integers. `width` is the bytes of an element, `wide` those of a sum (4 or 8).
    VIEW = 0x0101
    """[width d0 d1 d2 d3 offset s0 s1 s2 s3] x → out[i0, i1, i2, i3] = x[offset + Σ i · s]; strides
    and offset count elements, a stride of 0 repeats."""
    CONCAT = 0x0102
    """[width c1 … cm] x1 [R, c1] … xm [R, cm] → their columns side by side."""
    MAX_ABS = 0x0103
    """[C B] f32 [R, C] → f32 [R, ⌈C/B⌉]: the largest |x| of each block of B columns."""
    MAX = 0x0104
    """[C B] f32 [R, C] → f32 [R, ⌈C/B⌉]: the largest of each block, as chapter 1 says."""
    GRID_UP = 0x0105
    """[levels] M f32 → up f32 (lines 1 and 2 of chapter 2)."""
    GRID_STEP = 0x0106
    """[levels] M f32 → s f32 (lines 1 and 3)."""
    QUANTISE_I8 = 0x0107
    """[C] x f32 [R, C], up [R] → i8 (line 4)."""
    QUANTISE_F32 = 0x0108
    """[C] x f32 [R, C], up [R] → the integers of line 4, held in f32."""
    SPLIT_HIGH = 0x0109
    """[C] x f32 [R, C], up [R] of 32384 levels → i8, the high slice."""
    SPLIT_LOW = 0x010A
    """[C] as SPLIT_HIGH → i8, the low slice."""
    DOT_I8 = 0x010B
    """[S K B] a i8 [R, K], b i8 [S, K] → i32 [R, S, ⌈K/B⌉]: Σ a · b of each block of B terms."""
    SUM_I32 = 0x010C
    """[C B] i32 [R, C] → i64 [R, ⌈C/B⌉]."""
    SUM_I64 = 0x010D
    """[C B] i64 [R, C] → i64 [R, ⌈C/B⌉]."""
    SUM_GRID = 0x010E
    """[C B] x f32 [R, C], up [R] → i64 [R, ⌈C/B⌉]: Σ rint(x · up)."""
    SUM_SQUARES = 0x010F
    """[C B] x f32 [R, C], up [R] → i64 [R, ⌈C/B⌉]: Σ rint(x · up)²."""
    SUM_ROUND = 0x0110
    """[C B factor] x f32 [R, C] → i64 [R, ⌈C/B⌉]: Σ rint(x · factor)."""
    SORT_KEYS = 0x0111
    """[N n] ids i32 [N] → i64 [n]: id · 2³² + index, then 2⁶³ − 1; n is a power of two ≥ N."""
    SORT_STAGE = 0x0112
    """[k j] i64 [n] → i64 [n]: one compare-exchange stage of the bitonic network."""
    LOWER_BOUND = 0x0113
    """[V n] sorted keys i64 [n], every 128th of them, every 16384th … while the last has more than
    128 → i32 [V + 1]: how many keys have an id below v."""
    GATHER_GRID = 0x0114
    """[N] g f32 [D, N], up [D], sorted keys i64 [n] → i64 [D, N]: rint(g[j, index] · up[j]), with
    the index that key r has."""
    PREFIX = 0x0115
    """[C B] i64 [R, C] → i64 [R, C]: inclusive prefix sums within each block of B columns."""
    SUM_BY_ID = 0x0116
    """[D N] start i32 [V + 1], prefix i64 [D, N], s f32 [D] → f32 [V, D] (E3)."""
    EMBED = 0x0117
    """[D] ids i32 [N], table f32 [V, D] → f32 [N, D] (E1)."""
    COUNT_TARGETS = 0x0118
    """[C B] targets i32 [R, C] → i64 [R, ⌈C/B⌉]: how many are not negative."""
    RESCALE = 0x011A
    """[C wide has_column] Σ [R, C], row f32 [R] (, column f32 [C]) → f32: 32(Σ) · (row · column),
    without a column 32(Σ) · row (L2, H2, H4, H5, Q3, Q4)."""
    RESCALE_STACKED = 0x011B
    """[C wide] high, low [R, C], row f32 [R] → f32: (32(high) · 254 + 32(low)) · row (L4, L5)."""
    COMBINE_SPLIT = 0x011C
    """[wide] high, middle, middle′ → i64: 254² · high + 254 · (middle + middle′) (chapter 6)."""
    COPY = 0x011E
    """[width] x → x."""
    ADD_BEFORE = 0x011F
    """[C B] a i64 [R, C], t i64 [R, ⌈C/B⌉] → i64 [R, C]: a[r, c], from c = B on plus
    t[r, ⌊c/B⌋ − 1]."""
    POWER_GRID = 0x0120
    """[up] M f32 → f32: with 2^E ≤ max(M, 2⁻⁸⁰) < 2^(E + 1) it is 2^(39 − E) where `up` is 1, else
    2^(E − 39); 0 where M is not finite."""

    # Attention. `group` is the query heads of a key head where an operand has key heads, else 1:
    # slice g reads its slice g // group. q0 and k0 are the first query and key of a tile.
    DOT_F32 = 0x0201
    """[t s K group a0 ag ai b0 bg bj] a, b integers in f32 → f32 [G, t, s]:
    Σ a[a0 + g · ag + i · ai + k] · b[b0 + (g // group) · bg + j · bj + k] over k < K ≤ 512."""
    SCORE = 0x0202
    """[t s T group q0 k0] ints f32 [G, t, s], sq f32 [G, T], sk f32 [G/group, T] → f32 z (A2), −∞
    where k0 + j > q0 + i."""
    ATTENTION_WEIGHT = 0x0203
    """[t s q0 k0] z f32 [G, t, s], p f32 [G, t] → f32: exp(z − p), 0 where k0 + j > q0 + i (A3)."""
    INVERSE_TOTAL = 0x0204
    """[factor f64] Σ i64 → f32: 32(1 / (64(Σ) · factor)) (A4)."""
    WEIGHTED = 0x0205
    """[m n group x0 xg xi xj v0 vg vi vj] x, v f32 → f32 [G, m, n]:
    x[x0 + g · xg + i · xi + j · xj] · v[v0 + (g // group) · vg + i · vi + j · vj] (A5, A9 …)."""
    ADD_SCALED = 0x0206
    """[C first] (prev f32 [R, C],) ints f32 [R, C], s f32 [R] → prev + ints · s; the first has no
    prev, and +0 in its place."""
    SHARE = 0x0207
    """[t s S q0 k0] w f32 [G, t, S], r f32 [G, t] → P of A8: w[g, i, k0 + j] · r[g, i], 0 where
    k0 + j > q0 + i."""
    SHARE_GRADIENT = 0x0208
    """[t s T group q0 k0] ints f32 [G, t, s], sg f32 [G, T], sv f32 [G/group, T] → f32:
    ints · (sg · sv) (A8)."""
    SLOPE = 0x0209
    """[t s T q0 k0] P f32 [G, t, s], SHARE_GRADIENT's x, e f32 [G, T] → Z of A8: P · (x − e), 0
    where k0 + j > q0 + i."""

    # Numbers one by one.
    ADD = 0x0301
    """[] a, b f32 → a + b."""
    ADD_ROW = 0x0302
    """[C] x f32 [R, C], b [C] → x + b (L6)."""
    SCALE = 0x0303
    """[factor] x f32 → x · factor."""
    MUL = 0x0304
    """[] a, b f32 → a · b."""
    MUL_ROWS = 0x0305
    """[C] x f32 [R, C], v [R] → x[r, c] · v[r]."""
    MUL_COLUMNS = 0x0306
    """[C] x f32 [R, C], v [C] → x[r, c] · v[c]."""
    SCALE_BY = 0x0307
    """[] x f32, k f64 [1] → x · 32(k)."""
    RSTD = 0x0308
    """[1/I f64, ε] Σ i64 [N], s f32 [N] → r f32 [N] (N1, N2)."""
    NORMED = 0x0309
    """[I] x f32 [N, I], r [N], gain [I] → (x · r) · gain (N3)."""
    NORM_DX = 0x030A
    """[I] h, u f32 [N, I], a, r f32 [N] → (h − u · a) · r (N5)."""
    EXACT_SUM = 0x030B
    """[factor f64] Σ i64, s f32 → f32: 32((64(Σ) · 64(s)) · factor)."""
    ROTATE = 0x030C
    """[T d sign] x f32 [G, T, d], c, s f32 [T, d/2] → f32 (R1, and R2 with the sign −1)."""
    SWIGLU = 0x030D
    """[] gate, up f32 → f32 (G1)."""
    SWIGLU_DGATE = 0x030E
    """[] g, gate, up f32 → dgate (G2)."""
    SWIGLU_DUP = 0x030F
    """[] g, gate f32 → dup (G2)."""
    RELU2 = 0x0310
    """[] x f32 → f32 (G3)."""
    RELU2_GRADIENT = 0x0311
    """[] g, x f32 → f32 (G4)."""
    DROPOUT = 0x0312
    """[threshold scale site first per_iteration] x f32, DROPOUT_KEY, GLOBAL_STEP → f32 (D1, D2);
    element e of x is number first + iteration · per_iteration + e of its site."""
    SOFT_WEIGHT = 0x0313
    """[V] logits f32 [N, V], m f32 [N] → f32: exp(logits − m) (C1)."""
    TOTAL = 0x0314
    """[factor f64] Σ i64 → f64: 64(Σ) · factor (C2)."""
    TOKEN_LOSS = 0x0315
    """[V] logits f32 [N, V], m f32 [N], W f64 [N], targets i32 [N] → f32 [N] (C3)."""
    LOSS = 0x0316
    """[] Σ i64 [1], s f32 [1], n i64 [1] → f32 [1] (C4)."""
    LOSS_SCALE = 0x0317
    """[] n i64 [1], Σ n i64 [1] → f32 [1]: 32(64(32(c)) · (1 / n)), c = n / Σ n (S1, C6)."""
    DLOGITS = 0x0318
    """[V] w f32 [N, V], W f64 [N], targets i32 [N], scale f32 [1] → f32 [N, V] (C5, C6)."""
    NORM_TERM = 0x0319
    """[chained] (t f64 [1],) Σ i64 [1], s f32 [1] → f64 [1] (S4); the first is not chained."""
    NORM = 0x031A
    """[] t f64 [1] → f64 [1]: the fp64 root of t (S4)."""
    CLIP = 0x031B
    """[clip f64] norm f64 [1] → f64 [1]: k of S6."""

    # Optimisers: g is clipped, m′ and v′ are the moments after the step.
    ADAMW_M = 0x0401
    """[β₁, 1 − β₁] m, g f32 → m′ (O1)."""
    ADAMW_V = 0x0402
    """[β₂, 1 − β₂] v, g f32 → v′ (O1)."""
    ADAMW_P = 0x0403
    """[ε, λ] p, m′, v′ f32, CORRECTIONS f64 [2], RATE f64 [1] → p (O2, O3)."""
    MOMENTUM = 0x0404
    """[keep, add] m, g f32 → flush(m · keep + g · add) (O4, O6)."""
    DESCEND = 0x0405
    """[λ] p, g f32, RATE f64 [1] → p (O5, O8)."""
    MUON_SCALE = 0x0406
    """[] Σ i64 [1], s f32 [1] → f32 [1]: 32(1 / t) (Q1)."""
    ZERO_DIAGONAL = 0x0407
    """[S] x f32 [S, S] → x, +0 on its diagonal (Q3)."""
    MUON_ALONG = 0x0408
    """[S] D f32 [S], E f32 [S, S] → y f32 [S] (Q5)."""
    MUON_ACROSS = 0x0409
    """[S] R f32 [S, S], D f32 [S], E f32 [S, S] → W f32 [S, S], +0 on its diagonal (Q6)."""
    ADVANCE = 0x040A
    """[L wide] X f32 [S, L], y f32 [S], Σ [S, L], q f32 [S] → f32: X · y + 32(Σ) · q (Q7)."""

    # The state after the step.
    CHUNKS = 0x0501
    """[size bounded; prefix] a tensor of that many bytes → h for each 4 KiB of it, by SHA-256;
    where it is bounded, 0 for those with an f32 that is not between −2⁶⁴ and 2⁶⁴ (S8)."""
    TREE_LEAVES = 0x0502
    """[] h → h: the leaf nodes of a SHA-256 tree; 0 stays 0, here and up to RESULT."""
    TREE_LEVEL = 0x0503
    """[count] h [count] → h [⌈count/2⌉]: the level above; the last of an odd count is carried."""
    TREE_ROOT = 0x0504
    """[count] h [1] → h [1]: the root of a tree of so many leaves."""
    STATE_DIGEST = 0x0505
    """[] params root h, optimiser root h, CONTEXT → h: the digest of the state after the step."""
    RESULT = 0x0506
    """[] digest h, norm f64 [1], losses f32 [M], the largest of their magnitudes f32 [1] → digest ‖
    norm, big-endian ‖ losses, big-endian; the digest is 0 where the step is not finite (S5, S8).
    Elements are of 4 bytes."""

    # The link. C are the values of all tensors of a section, in ascending order of name. With
    # dither B is 32. Of a chunk of 4096 values 224 are kept, of the last, of v, k = ⌈v · 224/4096⌉;
    # K in all. One comes before another if its magnitude is larger, by its bits, or the same and to
    # the left. Flags are eight a byte from the low bits. M is the matrix of the codec dct
    # (SPEC-MERGE.md, 2).
    SCALED = 0x0601
    """[tensor] x f32, EXPONENTS' node e → f32: x · 2^−e[tensor]."""
    DIFFERENCE = 0x0602
    """[] model, last f32 → f32: model − last."""
    GRID8 = 0x0603
    """[] x f32 → i8: rint(x), clamped to ±127."""
    GRID4 = 0x0604
    """[C] x f32 [C] → u8 [⌈C/2⌉]: rint(x), clamped to ±7, plus 7, two a byte from the low bits."""
    BLOCK_STEPS = 0x0605
    """[C reach share B] x f32 [C] → u8 [⌈C/B⌉]: the index of the step of each block of B values:
    the first at which at most one value in `share` exceeds `reach` steps, and none twice that."""
    PACK_STEPS = 0x0606
    """[blocks] u8 → u8 [⌈blocks/2⌉]: two indices a byte from the low bits."""
    CODES = 0x0607
    """[C levels dithered section B] x f32 [C], indices u8 (, CONTEXT) → u8: the codes of the
    values, 1 bit each where there is one level, 2 where there are two, from the low bits; with the
    dither of that section."""
    UPDATE_HEADER = 0x0608
    """[; the header but for its exponents] (EXPONENTS' node) → the header of a section of the
    update; without exponents the tail alone."""
    UPDATE = 0x0609
    """[c1 z1 … cm zm] m inputs of c bytes → one after another, each with z zeros behind it: the
    update."""
    FP32 = 0x060A
    """[] x f32 → x + 0."""
    SAID = 0x060B
    """[C levels dithered section B] codes u8 (, indices u8 (, CONTEXT)) → i8 [C]: what the codes of
    CODES, or of GRID4 where levels are 0, say in grid steps, less the dither of that section."""
    LEFT = 0x060C
    """[tensor first] w f32, said i8, EXPONENTS' node e → f32: w − said[first + …] · 2^e[tensor]."""
    KEPT = 0x060D
    """[C] n u16 [C, 4] → flags u8 [⌈C/8⌉]: 1 where a value's four numbers add up to less than k,
    else 0."""
    CHOSEN = 0x060E
    """[C] flags, x f32 [C] → f32 [K]: the values that are kept, in their order."""
    LOWER_BITS = 0x060F
    """[C] flags → u8 [⌈K/2⌉]: the places of the kept values modulo 16, two a byte from the low
    bits."""
    COUNTS = 0x0610
    """[C] flags → u8 [⌈(K + ⌈C/16⌉)/8⌉]: of every 16 values a 1 for each kept one and then a 0, a
    bit each from the low bits."""
    SPREAD = 0x0611
    """[C] flags, x i8 [K] → i8 [C]: the numbers of x, in their order, where values are kept, else
    0."""
    COUNT_BEFORE = 0x0612
    """[C] x f32 [C] → u16 [C, 4]: of each quarter of its chunk, 1024 values, how many come before a
    value; 0 of what is behind the last value."""
    DCT = 0x0613
    """[C] x f32 [C] → f32 [64 · ⌈C/64⌉]: element 64b + k is Σ M[k, i] · u[64b + i] / 2²² over i;
    u is 256 · x, half to even, clamped to ±524032, 0 behind the last value."""
    INVERSE_DCT = 0x0614
    """[C] x i8 [64 · ⌈C/64⌉] → i32 [C]: element 64b + i is Σ M[k, i] · x[64b + k] / 2⁶ over k,
    halves up."""
    LEFT_FINE = 0x0615
    """[tensor first] w f32, said i32, EXPONENTS' node e → f32: w − said[first + …] ·
    2^(e[tensor] − 8)."""

    @property
    def family(self) -> int:
        """Which contract runs it."""
        return self.value >> 8
