"""The table of the judge's operations: what a node of the trace may be (SPEC-JUDGE.md, 3).

Rule of this file: an operation's number is its family (high byte) and its position in it; families
are contracts (`IOneStep`). A row has the template's words, the inputs, the result and the lines of
SPEC-STEP.md that it is of; where it has a formula, that is what both languages compute. What the
law and the contracts have of it is made by `contracts/tools/operations.py`.

Tensors are flat and row-major; R is what the sizes say. i8, i32, i64, u16, f32, f64 are their
types, h is 32 bytes; words that are floats hold their bits, in the low half where they are f32.
Inputs in capitals are sources beside the trace (`protocol.program.Source`), or what an operation of
that name gave. Every NaN of a result is the one NaN.
"""

from __future__ import annotations

from enum import IntEnum

from atoll.numerics.trace import formulas
from atoll.numerics.trace.rows import Each, Row


class Op(IntEnum):
    """An operation; see the rule of this file."""

    row: Row

    def __new__(cls, row: Row) -> Op:
        op = int.__new__(cls, row.number)
        op._value_ = row.number
        op.row = row
        return op

    @property
    def family(self) -> int:
        """Which contract runs it."""
        return self >> 8

    # One argument a line would hide that it is a table.
    # fmt: off
    # Imports. Of what reads a SHA-256 tree: `first` is the tensor's first leaf, `leaves` are the
    # tree's, `root` is 0 for params and 1 for the optimiser, and the tail is what the tensor's
    # chunks are hashed behind. Where the optimiser root is 0 all under it reads as zeros.
    STATE = Row(0x0001, "first leaves root; prefix", "STATE", "f32")
    TOKENS = Row(0x0002, "b T token_bytes masked limit stride", "TOKENS, CONTEXT",
        "i32 [b, T + 1] of the micro-batch: token ids, −1 − id where one is no target; sequence j "
        "of it begins at stride times draw iteration · b + j below limit")
    IDS = Row(0x0003, "T", "TOKENS' node", "i32 [b, T]: what the model reads")
    TARGETS = Row(0x0004, "T", "TOKENS' node",
        "i32 [b, T]: the token after each; negative where it is no target")
    RATE = Row(0x0005, "", "TABLES, CONTEXT", "f64 [1]: the rate of the global step", "chapter 17")
    CORRECTIONS = Row(0x0006, "offset count", "TABLES, COUNT's node c",
        "f64 [2]: row min(c, count) − 1 from that byte", "C₁, C₂ of O2")
    COSINES = Row(0x0007, "offset count", "TABLES",
        "f32 [T, d/2]: cosines of pairs of cosine and sine from that byte", "c of chapter 17")
    SINES = Row(0x0008, "offset count", "TABLES", "f32 [T, d/2]: the sines of the same",
        "s of chapter 17")
    DROPOUT_KEY = Row(0x0009, "", "CONTEXT", "u32 [2]: the Philox key of the seat's round")
    GLOBAL_STEP = Row(0x000A, "", "CONTEXT", "u64 [1]")
    BASE = Row(0x000B, "first leaves 0; prefix", "BASE", "f32")
    MODEL = Row(0x000C, "first leaves 0; prefix", "MODEL", "f32")
    COUNT = Row(0x000D, "first leaves 1; prefix", "STATE",
        "i64 [1]: the optimiser's count after this step", "c of O2")
    EXPONENTS = Row(0x000E, "first n", "EXPONENTS", "i32 [n]: n exponents from that one on")

    # Structure and integers. `width` is the bytes of an element, `wide` those of a sum (4 or 8).
    VIEW = Row(0x0101, "width d0 d1 d2 d3 offset s0 s1 s2 s3", "x",
        "as x: out[i0, i1, i2, i3] = x[offset + Σ i · s]; strides and offset count elements, a "
        "stride of 0 repeats", "A12, Q2, parts of L, M2, M6")
    CONCAT = Row(0x0102, "width c1 … cm", "x1 [R, c1] … xm [R, cm]",
        "as x1: their columns side by side", "L, L7, M2, M6")
    MAX_ABS = Row(0x0103, "C B", "f32 [R, C]",
        "f32 [R, ⌈C/B⌉]: the largest magnitude of each block of B columns", "line 1 of chapter 2")
    MAX = Row(0x0104, "C B", "f32 [R, C]",
        "f32 [R, ⌈C/B⌉]: the largest of each block, as chapter 1 says", "A3, C1")
    GRID_UP = Each(0x0105, "levels", "M f32", "f32: up", "lines 1 and 2 of chapter 2")
    GRID_STEP = Each(0x0106, "levels", "M f32", "f32: s", "lines 1 and 3 of chapter 2")
    QUANTISE_I8 = Each(0x0107, "C", "x f32, up f32 [R]", "i8: the integers of line 4 of chapter 2",
        "L1, Q3, Q4, Q6")
    QUANTISE_F32 = Each(0x0108, "C", "x f32, up f32 [R]", "f32: the same, held in f32",
        "A1, A5, A7, A9 to A11")
    SPLIT_HIGH = Each(0x0109, "C", "x f32, up f32 [R]", "i8: the high slice; up is of 32384 levels",
        "L3, H1, H3")
    SPLIT_LOW = Each(0x010A, "C", "x f32, up f32 [R]", "i8: the low slice; up is of 32384 levels",
        "L3, H1, H3")
    DOT_I8 = Row(0x010B, "S K B", "a i8 [R, K], b i8 [S, K]",
        "i32 [R, S, ⌈K/B⌉]: Σ a · b of each block of B terms", "Σ of L, H, Q")
    SUM_I32 = Row(0x010C, "C B", "i32 [R, C]", "i64 [R, ⌈C/B⌉]: Σ of each block", "Σ of L, H, Q")
    SUM_I64 = Row(0x010D, "C B", "i64 [R, C]", "i64 [R, ⌈C/B⌉]: Σ of each block", "every Σ")
    SUM_GRID = Row(0x010E, "C B", "x f32 [R, C], up [R]", "i64 [R, ⌈C/B⌉]: Σ rint(x · up)",
        "Σ n of S(x) of chapter 2")
    SUM_SQUARES = Row(0x010F, "C B", "x f32 [R, C], up [R]", "i64 [R, ⌈C/B⌉]: Σ rint(x · up)²",
        "N1, S4, Q1")
    SUM_ROUND = Row(0x0110, "C B factor", "x f32 [R, C]", "i64 [R, ⌈C/B⌉]: Σ rint(x · factor)",
        "A4, C2")
    SORT_KEYS = Row(0x0111, "N n", "ids i32 [N]",
        "i64 [n]: id · 2³² + index, then 2⁶³ − 1; n is a power of two ≥ N", "E3")
    SORT_STAGE = Row(0x0112, "k j", "i64 [n]",
        "i64 [n]: one compare-exchange stage of the bitonic network", "E3")
    LOWER_BOUND = Row(0x0113, "V n", "sorted keys i64 [n], every 128th of them, every 16384th … "
        "while the last has more than 128", "i32 [V + 1]: how many keys have an id below v", "E3")
    GATHER_GRID = Row(0x0114, "N", "g f32 [D, N], up [D], sorted keys i64 [n]",
        "i64 [D, N]: rint(g[j, index] · up[j]), with the index that key r has", "E2")
    PREFIX = Row(0x0115, "C B", "i64 [R, C]",
        "i64 [R, C]: inclusive prefix sums within each block of B columns", "E3")
    SUM_BY_ID = Row(0x0116, "D N", "start i32 [V + 1], prefix i64 [D, N], s f32 [D]",
        "f32 [V, D]: S of each id's Σ", "E3")
    EMBED = Row(0x0117, "D", "ids i32 [N], table f32 [V, D]",
        "f32 [N, D]: the ids' rows of the table", "E1")
    COUNT_TARGETS = Row(0x0118, "C B", "targets i32 [R, C]",
        "i64 [R, ⌈C/B⌉]: how many are not negative", "n of chapter 12")
    RESCALE = Each(0x011A, "C, wide, has_column",
        "Σ wide, row f32 [R], column f32 [C] if has_column", "f32", "L2, H2, H4, H5, Q3, Q4",
        lambda m, n, row, column: m.f32(n) * (row if column is None else row * column))
    RESCALE_STACKED = Each(0x011B, "C, wide", "high wide, low wide, row f32 [R]", "f32", "L4, L5",
        lambda m, high, low, row: (m.f32(high) * 254.0 + m.f32(low)) * row)
    COMBINE_SPLIT = Each(0x011C, "wide", "high wide, middle wide, middle′ wide",
        "i64: 254² · high + 254 · (middle + middle′)", "P of chapter 6")
    COPY = Row(0x011E, "width", "x", "as x: x", "S2")
    ADD_BEFORE = Row(0x011F, "C B", "a i64 [R, C], t i64 [R, ⌈C/B⌉]",
        "i64 [R, C]: a[r, c], from c = B on plus t[r, ⌊c/B⌋ − 1]", "E3")
    POWER_GRID = Each(0x0120, "up", "M f32", "f32: with 2^E ≤ max(M, 2⁻⁸⁰) < 2^(E + 1) it is 2^(39 "
        "− E) where `up` is 1, else 2^(E − 39); 0 where M is not finite",
        "sums of SPEC-MERGE.md, 2")

    # Attention. `group` is the query heads of a key head where an operand has key heads, else 1:
    # slice g reads its slice g // group. q0 and k0 are the first query and key of a tile.
    DOT_F32 = Row(0x0201, "t s K group a0 ag ai b0 bg bj", "a, b integers in f32",
        "f32 [G, t, s]: Σ a[a0 + g · ag + i · ai + k] · b[b0 + (g // group) · bg + j · bj + k] "
        "over k < K ≤ 512", "Σ of A2, A5, A8 to A11")
    SCORE = Row(0x0202, "t s T group q0 k0",
        "ints f32 [G, t, s], sq f32 [G, T], sk f32 [G/group, T]",
        "f32 [G, t, s]: z, −∞ where k0 + j > q0 + i", "A2")
    ATTENTION_WEIGHT = Row(0x0203, "t s q0 k0", "z f32 [G, t, s], p f32 [G, t]",
        "f32 [G, t, s]: exp(z − p), 0 where k0 + j > q0 + i", "A3")
    INVERSE_TOTAL = Each(0x0204, "factor f64", "Σ i64", "f32", "A4", formulas.inverse_total)
    WEIGHTED = Row(0x0205, "m n group x0 xg xi xj v0 vg vi vj", "x, v f32",
        "f32 [G, m, n]: x[x0 + g · xg + i · xi + j · xj] · v[v0 + (g // group) · vg + i · vi + j · "
        "vj]", "A5, A9, A10, A11")
    ADD_SCALED = Each(0x0206, "C, first", "prev f32 unless first, ints f32, s f32 [R]", "f32",
        "A5, A9, A10, A11", lambda m, prev, n, s: (0.0 if prev is None else prev) + n * s)
    SHARE = Row(0x0207, "t s S q0 k0", "w f32 [G, t, S], r f32 [G, t]",
        "f32 [G, t, s]: P, w[g, i, k0 + j] · r[g, i], 0 where k0 + j > q0 + i", "A8")
    SHARE_GRADIENT = Row(0x0208, "t s T group q0 k0",
        "ints f32 [G, t, s], sg f32 [G, T], sv f32 [G/group, T]", "f32 [G, t, s]: ints · (sg · sv)",
        "A8")
    SLOPE = Row(0x0209, "t s T q0 k0", "P f32 [G, t, s], SHARE_GRADIENT's x, e f32 [G, T]",
        "f32 [G, t, s]: Z, P · (x − e), 0 where k0 + j > q0 + i", "A8")

    # Numbers one by one.
    ADD = Each(0x0301, "", "a f32, b f32", "f32", "L8, L10, A12, M4, M7, S2", lambda m, a, b: a + b)
    ADD_ROW = Each(0x0302, "C", "x f32, b f32 [C]", "f32", "L6", lambda m, x, b: x + b)
    SCALE = Each(0x0303, "factor f32", "x f32", "f32", "L8, L9, A1, A12, O7",
        lambda m, factor, x: x * factor)
    MUL = Each(0x0304, "", "a f32, b f32", "f32", "N4, N6, A7", lambda m, a, b: a * b)
    MUL_ROWS = Each(0x0305, "C", "x f32, v f32 [R]", "f32", "sx of L3, u of N4, A6, Q1",
        lambda m, x, v: x * v)
    MUL_COLUMNS = Each(0x0306, "C", "x f32, v f32 [C]", "f32", "sw of L3, h of N4, Q6",
        lambda m, x, v: x * v)
    SCALE_BY = Each(0x0307, "", "x f32, k f64 [1]", "f32", "g · k of chapter 15",
        lambda m, x, k: x * m.f32(k))
    RSTD = Each(0x0308, "factor f64, ε f32", "Σ i64, s f32", "f32", "N1, N2", formulas.rstd)
    NORMED = Each(0x0309, "C", "x f32, r f32 [R], gain f32 [C]", "f32", "N3",
        lambda m, x, r, gain: x * r * gain)
    NORM_DX = Each(0x030A, "C", "h f32, u f32, a f32 [R], r f32 [R]", "f32", "N5",
        lambda m, h, u, a, r: (h - u * a) * r)
    EXACT_SUM = Each(0x030B, "factor f64", "Σ i64, s f32", "f32", "L6, N4, N6, A7",
        lambda m, factor, n, s: m.f32(m.f64(n) * m.f64(s) * factor))
    ROTATE = Row(0x030C, "T d sign", "x f32 [G, T, d], c f32 [T, d/2], s f32 [T, d/2]",
        "f32 [G, T, d]: the pairs turned; back with the sign −1", "R1, R2")
    SWIGLU = Each(0x030D, "", "gate f32, up f32", "f32", "G1",
        lambda m, gate, up: gate * m.sigmoid(gate) * up)
    SWIGLU_DGATE = Each(0x030E, "", "g f32, gate f32, up f32", "f32", "G2", formulas.swiglu_dgate)
    SWIGLU_DUP = Each(0x030F, "", "g f32, gate f32", "f32", "G2",
        lambda m, g, gate: g * (gate * m.sigmoid(gate)))
    RELU2 = Each(0x0310, "", "x f32", "f32", "G3", formulas.relu2)
    RELU2_GRADIENT = Each(0x0311, "", "g f32, x f32", "f32", "G4", formulas.relu2_gradient)
    DROPOUT = Each(0x0312, "threshold, scale f32, site, first, per_iteration",
        "x f32, DROPOUT_KEY u64 [1], GLOBAL_STEP u64 [1]",
        "f32: element e of x is number first + iteration · per_iteration + e of its site",
        "D1, D2, P1 to P3")
    SOFT_WEIGHT = Each(0x0313, "C", "logits f32, m f32 [R]", "f32", "C1",
        lambda m, z, most: m.exp(z - most))
    TOTAL = Each(0x0314, "factor f64", "Σ i64", "f64", "C2", lambda m, factor, n: m.f64(n) * factor)
    TOKEN_LOSS = Row(0x0315, "V", "logits f32 [N, V], m f32 [N], W f64 [N], targets i32 [N]",
        "f32 [N]: log(32(W)) − (logits[target] − m), 0 where the target is negative", "C3")
    LOSS = Each(0x0316, "", "Σ i64, s f32, n i64", "f32", "C4", formulas.loss)
    LOSS_SCALE = Each(0x0317, "", "n i64, all i64", "f32", "S1, C6", formulas.loss_scale)
    DLOGITS = Each(0x0318, "C", "w f32, W f64 [R], target i32 [R], scale f32 [1]", "f32", "C5, C6",
        formulas.dlogits)
    NORM_TERM = Each(0x0319, "chained", "t f64 if chained, Σ i64, s f32", "f64", "S4",
        formulas.norm_term)
    NORM = Each(0x031A, "", "t f64", "f64", "S4", lambda m, t: m.sqrt(t))
    CLIP = Each(0x031B, "clip f64", "norm f64", "f64", "S6", formulas.clip)
    POLICY_DLOGITS = Each(0x031C, "C", "w f32, W f64 [R], target i32 [R], a f32 [R]", "f32",
        "R5 of SPEC.md", formulas.policy_dlogits)

    # Optimisers: g is clipped, m′ and v′ are the moments after the step.
    ADAMW_M = Each(0x0401, "β₁ f32, 1−β₁ f32", "m f32, g f32", "f32", "O1", formulas.moment)
    ADAMW_V = Each(0x0402, "β₂ f32, 1−β₂ f32", "v f32, g f32", "f32", "O1", formulas.adamw_v)
    ADAMW_P = Each(0x0403, "ε f32, λ f32",
        "p f32, m′ f32, v′ f32, CORRECTIONS f64 [2], RATE f64 [1]", "f32", "O2, O3",
        formulas.adamw_p)
    MOMENTUM = Each(0x0404, "keep f32, add f32", "m f32, g f32", "f32", "O4, O6", formulas.moment)
    DESCEND = Each(0x0405, "λ f32", "p f32, g f32, RATE f64 [1]", "f32", "O5, O8", formulas.descend)
    MUON_SCALE = Each(0x0406, "", "Σ i64, s f32", "f32", "Q1", formulas.muon_scale)
    ZERO_DIAGONAL = Each(0x0407, "C", "x f32", "f32", "Q3", lambda m, x: m.off_diagonal(x))
    MUON_ALONG = Each(0x0408, "C", "D f32, E f32 [diagonal]", "f32", "Q5", formulas.muon_along)
    MUON_ACROSS = Each(0x0409, "C", "R f32, D f32 [R], D f32 [C], E f32", "f32", "Q6",
        formulas.muon_across)
    ADVANCE = Each(0x040A, "C, wide", "X f32, y f32 [R], Σ wide, q f32 [R]", "f32", "Q7",
        lambda m, x, y, n, q: x * y + m.f32(n) * q)

    # The state after the step.
    CHUNKS = Row(0x0501, "size bounded; prefix", "a tensor of that many bytes",
        "h for each 4 KiB of it, by SHA-256; where it is bounded, 0 for those with an f32 that is "
        "not between −2⁶⁴ and 2⁶⁴", "S8")
    TREE_LEAVES = Row(0x0502, "", "h",
        "h: the leaf nodes of a SHA-256 tree; 0 stays 0, here and up to RESULT")
    TREE_LEVEL = Row(0x0503, "count", "h [count]",
        "h [⌈count/2⌉]: the level above; the last of an odd count is carried")
    TREE_ROOT = Row(0x0504, "count", "h [1]", "h [1]: the root of a tree of so many leaves")
    STATE_DIGEST = Row(0x0505, "", "params root h, optimiser root h, CONTEXT",
        "h: the digest of the state after the step")
    RESULT = Row(0x0506, "M",
        "digest h, norm f64 [1], losses f32 [M], the largest of their magnitudes f32 [1]",
        "u32: digest ‖ norm, big-endian ‖ losses, big-endian; the digest is 0 where the step is "
        "not finite", "S5, S8")
    SAMPLED_DIGEST = Row(0x0507, "", "params root h, optimiser root h, root of the ids h, CONTEXT",
        "h: the digest of the state after a step that sampled", "SPEC.md, 25")
    SAMPLED_RESULT = Row(0x0508, "M", "as RESULT's, drawn i64 [M], how many are not finite i64 [1]",
        "u32: as RESULT's, but behind each loss drawn, big-endian", "SPEC.md, 25")

    # The update proof. C are the values of all tensors of a section, in ascending order of name.
    # With dither B is 32. Of a chunk of 4096 values 224 are kept, of the last, of v, k = ⌈v ·
    # 224/4096⌉; K in all. One comes before another if its magnitude is larger, by its bits, or the
    # same and to the left. Flags are eight a byte from the low bits. M is the matrix of the codec
    # dct (SPEC-MERGE.md, 2).
    SCALED = Row(0x0601, "tensor", "x f32, EXPONENTS' node e", "f32: x · 2^−e[tensor]")
    DIFFERENCE = Each(0x0602, "", "model f32, last f32", "f32",
        formula=lambda m, model, last: model - last)
    GRID8 = Row(0x0603, "", "x f32", "i8: rint(x), clamped to ±127")
    GRID4 = Row(0x0604, "C", "x f32 [C]",
        "u8 [⌈C/2⌉]: rint(x), clamped to ±7, plus 7, two a byte from the low bits")
    BLOCK_STEPS = Row(0x0605, "C reach share B", "x f32 [C]",
        "u8 [⌈C/B⌉]: the index of the step of each block of B values: the first at which at most "
        "one value in `share` exceeds `reach` steps, and none twice that")
    PACK_STEPS = Row(0x0606, "blocks", "u8",
        "u8 [⌈blocks/2⌉]: two indices a byte from the low bits")
    CODES = Row(0x0607, "C levels dithered section B", "x f32 [C], indices u8 (, CONTEXT)",
        "u8: the codes of the values, 1 bit each where there is one level, 2 where there are two, "
        "from the low bits; with the dither of that section")
    UPDATE_HEADER = Row(0x0608, "; the header but for its exponents", "(EXPONENTS' node)",
        "u8: the header of a section of the update; without exponents the tail alone")
    UPDATE = Row(0x0609, "c1 z1 … cm zm", "m inputs of c bytes",
        "u8: one after another, each with z zeros behind it: the update")
    FP32 = Each(0x060A, "", "x f32", "f32", formula=lambda m, x: x + 0.0)
    SAID = Row(0x060B, "C levels dithered section B", "codes u8 (, indices u8 (, CONTEXT))",
        "i8 [C]: what the codes of CODES, or of GRID4 where levels are 0, say in grid steps, less "
        "the dither of that section")
    RESIDUAL = Row(0x060C, "tensor first", "w f32, said i8, EXPONENTS' node e",
        "f32: w − said[first + …] · 2^e[tensor]")
    KEPT = Row(0x060D, "C", "n u16 [C, 4]",
        "u8 [⌈C/8⌉]: flags, 1 where a value's four numbers add up to less than k, else 0")
    CHOSEN = Row(0x060E, "C", "flags, x f32 [C]",
        "f32 [K]: the values that are kept, in their order")
    LOWER_BITS = Row(0x060F, "C", "flags",
        "u8 [⌈K/2⌉]: the positions of the kept values modulo 16, two a byte from the low bits")
    COUNTS = Row(0x0610, "C", "flags", "u8 [⌈(K + ⌈C/16⌉)/8⌉]: of every 16 values a 1 for each "
        "kept one and then a 0, a bit each from the low bits")
    SPREAD = Row(0x0611, "C", "flags, x i8 [K]",
        "i8 [C]: the numbers of x, in their order, where values are kept, else 0")
    COUNT_BEFORE = Row(0x0612, "C", "x f32 [C]", "u16 [C, 4]: of each quarter of its chunk, 1024 "
        "values, how many come before a value; 0 of what is behind the last value")
    DCT = Row(0x0613, "C", "x f32 [C]", "f32 [64 · ⌈C/64⌉]: element 64b + k is Σ M[k, i] · u[64b + "
        "i] / 2²² over i; u is 256 · x, half to even, clamped to ±524032, 0 behind the last value")
    INVERSE_DCT = Row(0x0614, "C", "x i8 [64 · ⌈C/64⌉]",
        "i32 [C]: element 64b + i is Σ M[k, i] · x[64b + k] / 2⁶ over k, halves up")
    RESIDUAL_FINE = Row(0x0615, "tensor first", "w f32, said i32, EXPONENTS' node e",
        "f32: w − said[first + …] · 2^(e[tensor] − 8)")

    # Rollouts (SPEC.md, 24 and 25). A token's four words are the id, or −1 − id where none was
    # generated; 0; and its weight below, low word first, or −1 in both where its row is not finite.
    # n is the number of a token in the step's batch, T + 1 of a sequence, and t its place there; a
    # window is the number of its bytes and 64 bytes. Of the data, a row is of P ids and A bytes.
    GENERATED = Row(0x0701, "b T", "",
        "i32 [b, T + 1, 4]: tokens; no formula but each token's own trace",
        "G2 to G6, R2")
    PROMPT = Row(0x0702, "T G P A width rows", "TOKENS, CONTEXT",
        "i32 [1 + P]: the size of token n's prompt, and its ids", "R1")
    SEQUENCE = Row(0x0703, "b T", "GENERATED, CONTEXT",
        "i32 [T]: the ids before token n, and 0 from it on", "G2")
    ROW = Row(0x0704, "C T", "x f32 [T, C], CONTEXT", "f32 [C]: row t − 1; where t is 0, row 0",
        "G2")
    DRAWN = Row(0x0705, "V T", "prefix i64 [V], CONTEXT", "i64 [1]: u", "G4")
    SAMPLE = Row(0x0706, "V", "u i64 [1], m f32 [1], prefix i64 [V], every 128th of it, every "
        "16384th … while the last has more than 128",
        "i64 [2]: the id and its weight below; 0 and −1 where m is not finite", "G3, G4")
    TOKEN = Row(0x0707, "b T P new e1 … em",
        "prompt i32 [1 + P], SAMPLE's i64 [2], GENERATED, CONTEXT",
        "i32 [4]: the words of token n, e being the end tokens", "G1, G6")
    SUM_BELOW = Row(0x0708, "C B", "GENERATED's node of C tokens",
        "i64 [⌈C/B⌉]: Σ of the weights below of each block, −1 counting as 0", "SPEC.md, 25")
    COUNT_INFINITE = Row(0x0709, "C B", "GENERATED's node of C tokens",
        "i64 [⌈C/B⌉]: how many are not finite", "SPEC.md, 25")
    ANSWERS = Row(0x070A, "b G P A width rows", "TOKENS, CONTEXT",
        "u8 [b, 1 + A]: the size of each sequence's answer, and its bytes", "R1")
    CELLS = Row(0x070B, "first width", "ids i32 [N], TOKENS",
        "u8 [N, 65]: the window of each token's text, at word first + 33 · id; empty of a negative "
        "id", "R3")
    WINDOW = Row(0x070C, "C d", "windows u8 [R, C, 65]",
        "u8 [R, C, 65]: each with that of d tokens later behind it, as far as both have room", "R3")
    MATCH = Row(0x070D, "C A n; n bytes and what follows the answer",
        "windows u8 [R, C, 65], answers u8 [R, 1 + A]",
        "i32 [R, C]: 0 where a window begins with the n bytes, the answer and the other bytes; "
        "else −1", "R3")
    REWARD = Row(0x070E, "weight least most chained", "n i64, before i64 if chained",
        "i64: before, or 0, and where least ≤ n ≤ most the weight", "R3")
    ADVANTAGE = Row(0x070F, "b G, factor f64, share f64", "r i64 [B], Σ i64 [B/G]",
        "f32 [b]: 32(64(32((64(r) · 64(G) − 64(Σ)) · factor)) · share) of the micro-batch", "R4")
    SAMPLED_IDS = Row(0x0710, "bytes of a step's, steps; prefix", "SAMPLED, CONTEXT",
        "i32: the ids of the round's steps; 0 behind the last one", "SPEC.md, 25")
