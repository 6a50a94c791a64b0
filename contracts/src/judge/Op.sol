// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

/// @title Numbers of the operations: family, place in it. contracts/tools/operations.py writes it.
/// @notice Chapter 3 of SPEC-JUDGE.md says what each is; here stand the lines of SPEC-STEP.md.
library Op {
    uint256 internal constant STATE = 0x0001;
    uint256 internal constant TOKENS = 0x0002;
    uint256 internal constant IDS = 0x0003;
    uint256 internal constant TARGETS = 0x0004;
    uint256 internal constant RATE = 0x0005; // chapter 17
    uint256 internal constant CORRECTIONS = 0x0006; // C₁, C₂ of O2
    uint256 internal constant COSINES = 0x0007; // c of chapter 17
    uint256 internal constant SINES = 0x0008; // s of chapter 17
    uint256 internal constant DROPOUT_KEY = 0x0009;
    uint256 internal constant GLOBAL_STEP = 0x000a;
    uint256 internal constant BASE = 0x000b;
    uint256 internal constant MODEL = 0x000c;
    uint256 internal constant COUNT = 0x000d; // c of O2
    uint256 internal constant EXPONENTS = 0x000e;

    uint256 internal constant VIEW = 0x0101; // A12, Q2, parts of L, M2, M6
    uint256 internal constant CONCAT = 0x0102; // L, L7, M2, M6
    uint256 internal constant MAX_ABS = 0x0103; // line 1 of chapter 2
    uint256 internal constant MAX = 0x0104; // A3, C1
    uint256 internal constant GRID_UP = 0x0105; // lines 1 and 2 of chapter 2
    uint256 internal constant GRID_STEP = 0x0106; // lines 1 and 3 of chapter 2
    uint256 internal constant QUANTISE_I8 = 0x0107; // L1, Q3, Q4, Q6
    uint256 internal constant QUANTISE_F32 = 0x0108; // A1, A5, A7, A9 to A11
    uint256 internal constant SPLIT_HIGH = 0x0109; // L3, H1, H3
    uint256 internal constant SPLIT_LOW = 0x010a; // L3, H1, H3
    uint256 internal constant DOT_I8 = 0x010b; // Σ of L, H, Q
    uint256 internal constant SUM_I32 = 0x010c; // Σ of L, H, Q
    uint256 internal constant SUM_I64 = 0x010d; // every Σ
    uint256 internal constant SUM_GRID = 0x010e; // Σ n of S(x) of chapter 2
    uint256 internal constant SUM_SQUARES = 0x010f; // N1, S4, Q1
    uint256 internal constant SUM_ROUND = 0x0110; // A4, C2
    uint256 internal constant SORT_KEYS = 0x0111; // E3
    uint256 internal constant SORT_STAGE = 0x0112; // E3
    uint256 internal constant LOWER_BOUND = 0x0113; // E3
    uint256 internal constant GATHER_GRID = 0x0114; // E2
    uint256 internal constant PREFIX = 0x0115; // E3
    uint256 internal constant SUM_BY_ID = 0x0116; // E3
    uint256 internal constant EMBED = 0x0117; // E1
    uint256 internal constant COUNT_TARGETS = 0x0118; // n of chapter 12
    uint256 internal constant RESCALE = 0x011a; // L2, H2, H4, H5, Q3, Q4
    uint256 internal constant RESCALE_STACKED = 0x011b; // L4, L5
    uint256 internal constant COMBINE_SPLIT = 0x011c; // P of chapter 6
    uint256 internal constant COPY = 0x011e; // S2
    uint256 internal constant ADD_BEFORE = 0x011f; // E3
    uint256 internal constant POWER_GRID = 0x0120; // sums of SPEC-MERGE.md, 2

    uint256 internal constant DOT_F32 = 0x0201; // Σ of A2, A5, A8 to A11
    uint256 internal constant SCORE = 0x0202; // A2
    uint256 internal constant ATTENTION_WEIGHT = 0x0203; // A3
    uint256 internal constant INVERSE_TOTAL = 0x0204; // A4
    uint256 internal constant WEIGHTED = 0x0205; // A5, A9, A10, A11
    uint256 internal constant ADD_SCALED = 0x0206; // A5, A9, A10, A11
    uint256 internal constant SHARE = 0x0207; // A8
    uint256 internal constant SHARE_GRADIENT = 0x0208; // A8
    uint256 internal constant SLOPE = 0x0209; // A8

    uint256 internal constant ADD = 0x0301; // L8, L10, A12, M4, M7, S2
    uint256 internal constant ADD_ROW = 0x0302; // L6
    uint256 internal constant SCALE = 0x0303; // L8, L9, A1, A12, O7
    uint256 internal constant MUL = 0x0304; // N4, N6, A7
    uint256 internal constant MUL_ROWS = 0x0305; // sx of L3, u of N4, A6, Q1
    uint256 internal constant MUL_COLUMNS = 0x0306; // sw of L3, h of N4, Q6
    uint256 internal constant SCALE_BY = 0x0307; // g · k of chapter 15
    uint256 internal constant RSTD = 0x0308; // N1, N2
    uint256 internal constant NORMED = 0x0309; // N3
    uint256 internal constant NORM_DX = 0x030a; // N5
    uint256 internal constant EXACT_SUM = 0x030b; // L6, N4, N6, A7
    uint256 internal constant ROTATE = 0x030c; // R1, R2
    uint256 internal constant SWIGLU = 0x030d; // G1
    uint256 internal constant SWIGLU_DGATE = 0x030e; // G2
    uint256 internal constant SWIGLU_DUP = 0x030f; // G2
    uint256 internal constant RELU2 = 0x0310; // G3
    uint256 internal constant RELU2_GRADIENT = 0x0311; // G4
    uint256 internal constant DROPOUT = 0x0312; // D1, D2, P1 to P3
    uint256 internal constant SOFT_WEIGHT = 0x0313; // C1
    uint256 internal constant TOTAL = 0x0314; // C2
    uint256 internal constant TOKEN_LOSS = 0x0315; // C3
    uint256 internal constant LOSS = 0x0316; // C4
    uint256 internal constant LOSS_SCALE = 0x0317; // S1, C6
    uint256 internal constant DLOGITS = 0x0318; // C5, C6
    uint256 internal constant NORM_TERM = 0x0319; // S4
    uint256 internal constant NORM = 0x031a; // S4
    uint256 internal constant CLIP = 0x031b; // S6

    uint256 internal constant ADAMW_M = 0x0401; // O1
    uint256 internal constant ADAMW_V = 0x0402; // O1
    uint256 internal constant ADAMW_P = 0x0403; // O2, O3
    uint256 internal constant MOMENTUM = 0x0404; // O4, O6
    uint256 internal constant DESCEND = 0x0405; // O5, O8
    uint256 internal constant MUON_SCALE = 0x0406; // Q1
    uint256 internal constant ZERO_DIAGONAL = 0x0407; // Q3
    uint256 internal constant MUON_ALONG = 0x0408; // Q5
    uint256 internal constant MUON_ACROSS = 0x0409; // Q6
    uint256 internal constant ADVANCE = 0x040a; // Q7

    uint256 internal constant CHUNKS = 0x0501; // S8
    uint256 internal constant TREE_LEAVES = 0x0502;
    uint256 internal constant TREE_LEVEL = 0x0503;
    uint256 internal constant TREE_ROOT = 0x0504;
    uint256 internal constant STATE_DIGEST = 0x0505;
    uint256 internal constant RESULT = 0x0506; // S5, S8

    uint256 internal constant SCALED = 0x0601;
    uint256 internal constant DIFFERENCE = 0x0602;
    uint256 internal constant GRID8 = 0x0603;
    uint256 internal constant GRID4 = 0x0604;
    uint256 internal constant BLOCK_STEPS = 0x0605;
    uint256 internal constant PACK_STEPS = 0x0606;
    uint256 internal constant CODES = 0x0607;
    uint256 internal constant UPDATE_HEADER = 0x0608;
    uint256 internal constant UPDATE = 0x0609;
    uint256 internal constant FP32 = 0x060a;
    uint256 internal constant SAID = 0x060b;
    uint256 internal constant RESIDUAL = 0x060c;
    uint256 internal constant KEPT = 0x060d;
    uint256 internal constant CHOSEN = 0x060e;
    uint256 internal constant LOWER_BITS = 0x060f;
    uint256 internal constant COUNTS = 0x0610;
    uint256 internal constant SPREAD = 0x0611;
    uint256 internal constant COUNT_BEFORE = 0x0612;
    uint256 internal constant DCT = 0x0613;
    uint256 internal constant INVERSE_DCT = 0x0614;
    uint256 internal constant RESIDUAL_FINE = 0x0615;
}
