// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {Elementary} from "./Elementary.sol";
import {IOneStep} from "./IOneStep.sol";
import {Op} from "./Op.sol";
import {Operands} from "./Operands.sol";
import {SoftFloat} from "./SoftFloat.sol";

/// @title What elementwise operations read and give. contracts/tools/operations.py writes it.
/// @notice Above an operation stands its formula, as in chapter 3 of SPEC-JUDGE.md. Reads are
/// digits of `Operands.place`, the first input's the lowest, and 0 where an operation has rules of
/// its own; x is what was opened.
library Formulas {
    using Operands for bytes;

    // ---- family 1 ------------------------------------------------------------------------------------------------

    function integerReads(uint256 op, bytes calldata attributes) internal pure returns (uint256) {
        if (op == Op.GRID_UP || op == Op.GRID_STEP || op == Op.POWER_GRID) return 0x1;
        if (op == Op.QUANTISE_I8 || op == Op.QUANTISE_F32 || op == Op.SPLIT_HIGH || op == Op.SPLIT_LOW) return 0x21;
        if (op == Op.RESCALE) {
            if (attributes.word(2) != 0) return attributes.word(1) == 8 ? 0x325 : 0x321;
            return attributes.word(1) == 8 ? 0x25 : 0x21;
        }
        if (op == Op.RESCALE_STACKED) return attributes.word(1) == 8 ? 0x255 : 0x211;
        if (op == Op.COMBINE_SPLIT) return attributes.word(0) == 8 ? 0x555 : 0x111;
        return 0;
    }

    function integerValue(uint256 op, bytes calldata attributes, uint256[] memory x) internal pure returns (uint256) {
        // 32(Σ) · (row · column)
        if (op == Op.RESCALE) {
            if (attributes.word(2) != 0) {
                uint256 a = SoftFloat.fromInt32(Operands.signedOf(x[0], attributes.word(1)));
                return SoftFloat.mul32(a, SoftFloat.mul32(x[1], x[2]));
            }
            return SoftFloat.mul32(SoftFloat.fromInt32(Operands.signedOf(x[0], attributes.word(1))), x[1]);
        }
        // ((32(high) · 254) + 32(low)) · row
        if (op == Op.RESCALE_STACKED) {
            uint256 a = SoftFloat.mul32(SoftFloat.fromInt32(Operands.signedOf(x[0], attributes.word(1))), 0x437e0000);
            uint256 b = SoftFloat.add32(a, SoftFloat.fromInt32(Operands.signedOf(x[1], attributes.word(1))));
            return SoftFloat.mul32(b, x[2]);
        }
        revert IOneStep.NoSuchOperation(op);
    }

    // ---- family 2 ------------------------------------------------------------------------------------------------

    function attentionReads(uint256 op, bytes calldata attributes) internal pure returns (uint256) {
        if (op == Op.INVERSE_TOTAL) return 0x5;
        if (op == Op.ADD_SCALED) {
            if (attributes.word(1) == 0) return 0x211;
            return 0x21;
        }
        return 0;
    }

    function attentionValue(uint256 op, bytes calldata attributes, uint256[] memory x) internal pure returns (uint256) {
        // 32(1 / (64(Σ) · factor))
        if (op == Op.INVERSE_TOTAL) {
            uint256 a = SoftFloat.mul64(SoftFloat.fromIntTo64(Operands.int64Of(x[0])), attributes.word(0));
            return SoftFloat.narrow(SoftFloat.div64(SoftFloat.ONE64, a));
        }
        // prev + (ints · s)
        if (op == Op.ADD_SCALED) {
            if (attributes.word(1) == 0) return SoftFloat.add32(x[0], SoftFloat.mul32(x[1], x[2]));
            return SoftFloat.add32(0, SoftFloat.mul32(x[0], x[1]));
        }
        revert IOneStep.NoSuchOperation(op);
    }

    // ---- family 3 ------------------------------------------------------------------------------------------------

    function floatReads(uint256 op, bytes calldata attributes) internal pure returns (uint256) {
        if (op == Op.ADD || op == Op.MUL || op == Op.SWIGLU || op == Op.SWIGLU_DUP || op == Op.RELU2_GRADIENT) {
            return 0x11;
        }
        if (op == Op.ADD_ROW || op == Op.MUL_COLUMNS) return 0x31;
        if (op == Op.SCALE || op == Op.RELU2) return 0x1;
        if (op == Op.MUL_ROWS || op == Op.SOFT_WEIGHT) return 0x21;
        if (op == Op.SCALE_BY) return 0x71;
        if (op == Op.RSTD || op == Op.EXACT_SUM) return 0x15;
        if (op == Op.NORMED) return 0x321;
        if (op == Op.NORM_DX) return 0x2211;
        if (op == Op.SWIGLU_DGATE) return 0x111;
        if (op == Op.DROPOUT) return 0x771;
        if (op == Op.TOTAL || op == Op.NORM || op == Op.CLIP) return 0x5;
        if (op == Op.LOSS) return 0x515;
        if (op == Op.LOSS_SCALE) return 0x55;
        if (op == Op.DLOGITS) return 0x4261;
        if (op == Op.NORM_TERM) {
            if (attributes.word(0) != 0) return 0x155;
            return 0x15;
        }
        if (op == Op.POLICY_DLOGITS) return 0x2261;
        return 0;
    }

    function floatValue(uint256 op, bytes calldata attributes, uint256 element, uint256[] memory x)
        internal
        pure
        returns (uint256)
    {
        if (op < Op.SOFT_WEIGHT) {
            if (op < Op.NORMED) {
                if (op < Op.MUL_ROWS) return _float1(op, attributes, x);
                return _float2(op, attributes, x);
            }
            if (op < Op.SWIGLU_DGATE) return _float3(op, attributes, x);
            return _float4(op, x);
        }
        if (op < Op.POLICY_DLOGITS) {
            if (op < Op.DLOGITS) return _float5(op, attributes, x);
            return _float6(op, attributes, element, x);
        }
        return _float7(op, attributes, element, x);
    }

    function _float1(uint256 op, bytes calldata attributes, uint256[] memory x) private pure returns (uint256) {
        // a + b
        if (op == Op.ADD) return SoftFloat.add32(x[0], x[1]);
        // x + b
        if (op == Op.ADD_ROW) return SoftFloat.add32(x[0], x[1]);
        // x · factor
        if (op == Op.SCALE) return SoftFloat.mul32(x[0], attributes.word(0));
        // a · b
        if (op == Op.MUL) return SoftFloat.mul32(x[0], x[1]);
        revert IOneStep.NoSuchOperation(op);
    }

    function _float2(uint256 op, bytes calldata attributes, uint256[] memory x) private pure returns (uint256) {
        // x · v
        if (op == Op.MUL_ROWS) return SoftFloat.mul32(x[0], x[1]);
        // x · v
        if (op == Op.MUL_COLUMNS) return SoftFloat.mul32(x[0], x[1]);
        // x · 32(k)
        if (op == Op.SCALE_BY) return SoftFloat.mul32(x[0], SoftFloat.narrow(x[1]));
        // rsqrt(32((64(Σ) · (64(s) · 64(s))) · factor) + ε)
        if (op == Op.RSTD) {
            uint256 a = SoftFloat.widen(x[1]);
            uint256 b = SoftFloat.mul64(SoftFloat.fromIntTo64(Operands.int64Of(x[0])), SoftFloat.mul64(a, a));
            uint256 c = SoftFloat.add32(SoftFloat.narrow(SoftFloat.mul64(b, attributes.word(0))), attributes.word(1));
            return Elementary.rsqrt32(c);
        }
        revert IOneStep.NoSuchOperation(op);
    }

    function _float3(uint256 op, bytes calldata attributes, uint256[] memory x) private pure returns (uint256) {
        // (x · r) · gain
        if (op == Op.NORMED) return SoftFloat.mul32(SoftFloat.mul32(x[0], x[1]), x[2]);
        // (h − (u · a)) · r
        if (op == Op.NORM_DX) return SoftFloat.mul32(SoftFloat.sub32(x[0], SoftFloat.mul32(x[1], x[2])), x[3]);
        // 32((64(Σ) · 64(s)) · factor)
        if (op == Op.EXACT_SUM) {
            uint256 a = SoftFloat.mul64(SoftFloat.fromIntTo64(Operands.int64Of(x[0])), SoftFloat.widen(x[1]));
            return SoftFloat.narrow(SoftFloat.mul64(a, attributes.word(0)));
        }
        // (gate · σ(gate)) · up
        if (op == Op.SWIGLU) {
            uint256 a = x[0];
            return SoftFloat.mul32(SoftFloat.mul32(a, Elementary.sigmoid32(a)), x[1]);
        }
        revert IOneStep.NoSuchOperation(op);
    }

    function _float4(uint256 op, uint256[] memory x) private pure returns (uint256) {
        // (g · up) · (σ(gate) + ((gate · σ(gate)) · (1 − σ(gate))))
        if (op == Op.SWIGLU_DGATE) {
            uint256 a = x[1];
            uint256 b = Elementary.sigmoid32(a);
            uint256 c = SoftFloat.add32(b, SoftFloat.mul32(SoftFloat.mul32(a, b), SoftFloat.sub32(SoftFloat.ONE32, b)));
            return SoftFloat.mul32(SoftFloat.mul32(x[0], x[2]), c);
        }
        // g · (gate · σ(gate))
        if (op == Op.SWIGLU_DUP) {
            uint256 a = x[1];
            return SoftFloat.mul32(x[0], SoftFloat.mul32(a, Elementary.sigmoid32(a)));
        }
        // (0 where x < 0, else x) · (0 where x < 0, else x)
        if (op == Op.RELU2) {
            uint256 a = x[0];
            uint256 b = SoftFloat.less32(a, 0) ? 0 : a;
            return SoftFloat.mul32(b, b);
        }
        // g · ((0 where x < 0, else x) · 2)
        if (op == Op.RELU2_GRADIENT) {
            uint256 a = x[1];
            return SoftFloat.mul32(x[0], SoftFloat.mul32((SoftFloat.less32(a, 0) ? 0 : a), 0x40000000));
        }
        revert IOneStep.NoSuchOperation(op);
    }

    function _float5(uint256 op, bytes calldata attributes, uint256[] memory x) private pure returns (uint256) {
        // exp(logits − m)
        if (op == Op.SOFT_WEIGHT) return Elementary.exp32(SoftFloat.sub32(x[0], x[1]));
        // 64(Σ) · factor
        if (op == Op.TOTAL) {
            return SoftFloat.mul64(SoftFloat.fromIntTo64(Operands.int64Of(x[0])), attributes.word(0));
        }
        // 32((64(Σ) · 64(s)) · (0 where n = 0, else (1 / 64(n))))
        if (op == Op.LOSS) {
            int256 a = Operands.int64Of(x[2]);
            uint256 b = SoftFloat.mul64(SoftFloat.fromIntTo64(Operands.int64Of(x[0])), SoftFloat.widen(x[1]));
            uint256 c = SoftFloat.mul64(b, (a == 0 ? 0 : SoftFloat.div64(SoftFloat.ONE64, SoftFloat.fromIntTo64(a))));
            return SoftFloat.narrow(c);
        }
        // 32(64(32(0 where all = 0, else (64(n) / 64(all)))) · (0 where n = 0, else (1 / 64(n))))
        if (op == Op.LOSS_SCALE) {
            int256 a = Operands.int64Of(x[1]);
            int256 b = Operands.int64Of(x[0]);
            uint256 c = a == 0 ? 0 : SoftFloat.div64(SoftFloat.fromIntTo64(b), SoftFloat.fromIntTo64(a));
            uint256 d = b == 0 ? 0 : SoftFloat.div64(SoftFloat.ONE64, SoftFloat.fromIntTo64(b));
            return SoftFloat.narrow(SoftFloat.mul64(SoftFloat.widen(SoftFloat.narrow(c)), d));
        }
        revert IOneStep.NoSuchOperation(op);
    }

    function _float6(uint256 op, bytes calldata attributes, uint256 element, uint256[] memory x)
        private
        pure
        returns (uint256)
    {
        // (0 where target < 0, else (((w · 32(1 / W)) − 1) where target is the column, else (w · 32(1 / W)))) · scale
        if (op == Op.DLOGITS) {
            int256 a = Operands.int32Of(x[2]);
            uint256 b = SoftFloat.mul32(x[0], SoftFloat.narrow(SoftFloat.div64(SoftFloat.ONE64, x[1])));
            uint256 c = a == int256(element % attributes.word(0)) ? SoftFloat.sub32(b, SoftFloat.ONE32) : b;
            return SoftFloat.mul32((a < 0 ? 0 : c), x[3]);
        }
        // t + (64(Σ) · (64(s) · 64(s)))
        if (op == Op.NORM_TERM) {
            if (attributes.word(0) != 0) {
                uint256 a = SoftFloat.widen(x[2]);
                uint256 b = SoftFloat.mul64(SoftFloat.fromIntTo64(Operands.int64Of(x[1])), SoftFloat.mul64(a, a));
                return SoftFloat.add64(x[0], b);
            }
            uint256 c = SoftFloat.widen(x[1]);
            uint256 d = SoftFloat.mul64(SoftFloat.fromIntTo64(Operands.int64Of(x[0])), SoftFloat.mul64(c, c));
            return SoftFloat.add64(0, d);
        }
        // √(t)
        if (op == Op.NORM) return SoftFloat.sqrt64(x[0]);
        // ((clip / norm) where (clip / norm) < 1, else 1) where 0 < norm, else 1
        if (op == Op.CLIP) {
            uint256 a = x[0];
            uint256 b = SoftFloat.div64(attributes.word(0), a);
            uint256 c = SoftFloat.less64(b, SoftFloat.ONE64) ? b : SoftFloat.ONE64;
            return SoftFloat.less64(0, a) ? c : SoftFloat.ONE64;
        }
        revert IOneStep.NoSuchOperation(op);
    }

    function _float7(uint256 op, bytes calldata attributes, uint256 element, uint256[] memory x)
        private
        pure
        returns (uint256)
    {
        // 0 where target < 0, else ((((w · 32(1 / W)) − 1) where target is the column, else (w · 32(1 / W))) · a)
        if (op == Op.POLICY_DLOGITS) {
            int256 a = Operands.int32Of(x[2]);
            uint256 b = SoftFloat.mul32(x[0], SoftFloat.narrow(SoftFloat.div64(SoftFloat.ONE64, x[1])));
            uint256 c = a == int256(element % attributes.word(0)) ? SoftFloat.sub32(b, SoftFloat.ONE32) : b;
            return a < 0 ? 0 : SoftFloat.mul32(c, x[3]);
        }
        revert IOneStep.NoSuchOperation(op);
    }

    // ---- family 4 ------------------------------------------------------------------------------------------------

    function optimiserReads(uint256 op, bytes calldata attributes) internal pure returns (uint256) {
        if (op == Op.ADAMW_M || op == Op.ADAMW_V || op == Op.MOMENTUM) return 0x11;
        if (op == Op.ADAMW_P) return 0x78111;
        if (op == Op.DESCEND) return 0x711;
        if (op == Op.MUON_SCALE) return 0x15;
        if (op == Op.ZERO_DIAGONAL) return 0x1;
        if (op == Op.MUON_ALONG) return 0x91;
        if (op == Op.MUON_ACROSS) return 0x1321;
        if (op == Op.ADVANCE) return attributes.word(1) == 8 ? 0x2521 : 0x2121;
        return 0;
    }

    function optimiserValue(uint256 op, bytes calldata attributes, uint256 element, uint256[] memory x)
        internal
        pure
        returns (uint256)
    {
        if (op < Op.MUON_ACROSS) {
            if (op < Op.DESCEND) return _optimiser1(op, attributes, x);
            return _optimiser2(op, attributes, element, x);
        }
        return _optimiser3(op, attributes, element, x);
    }

    function _optimiser1(uint256 op, bytes calldata attributes, uint256[] memory x) private pure returns (uint256) {
        // flush((m · β₁) + (g · (1−β₁)))
        if (op == Op.ADAMW_M) {
            uint256 a = SoftFloat.mul32(x[0], attributes.word(0));
            return Elementary.flush32(SoftFloat.add32(a, SoftFloat.mul32(x[1], attributes.word(1))));
        }
        // flush((v · β₂) + ((g · g) · (1−β₂)))
        if (op == Op.ADAMW_V) {
            uint256 a = x[1];
            uint256 b = SoftFloat.mul32(SoftFloat.mul32(a, a), attributes.word(1));
            return Elementary.flush32(SoftFloat.add32(SoftFloat.mul32(x[0], attributes.word(0)), b));
        }
        // p − ((((m′ · 32(CORRECTIONS[0])) / (√(v′ · 32(CORRECTIONS[1])) + ε)) + (p · λ)) · 32(RATE))
        if (op == Op.ADAMW_P) {
            uint256 a = x[0];
            uint256 b = SoftFloat.sqrt32(SoftFloat.mul32(x[2], SoftFloat.narrow(x[3] >> 64)));
            uint256 c = SoftFloat.mul32(x[1], SoftFloat.narrow(uint64(x[3])));
            uint256 d = SoftFloat.div32(c, SoftFloat.add32(b, attributes.word(0)));
            uint256 e = SoftFloat.add32(d, SoftFloat.mul32(a, attributes.word(1)));
            return SoftFloat.sub32(a, SoftFloat.mul32(e, SoftFloat.narrow(x[4])));
        }
        // flush((m · keep) + (g · add))
        if (op == Op.MOMENTUM) {
            uint256 a = SoftFloat.mul32(x[0], attributes.word(0));
            return Elementary.flush32(SoftFloat.add32(a, SoftFloat.mul32(x[1], attributes.word(1))));
        }
        revert IOneStep.NoSuchOperation(op);
    }

    function _optimiser2(uint256 op, bytes calldata attributes, uint256 element, uint256[] memory x)
        private
        pure
        returns (uint256)
    {
        // p − ((g + (p · λ)) · 32(RATE))
        if (op == Op.DESCEND) {
            uint256 a = x[0];
            uint256 b = SoftFloat.add32(x[1], SoftFloat.mul32(a, attributes.word(0)));
            return SoftFloat.sub32(a, SoftFloat.mul32(b, SoftFloat.narrow(x[2])));
        }
        // 32(1 / (2^−60 where (√(64(Σ)) · 64(s)) < 2^−60, else (√(64(Σ)) · 64(s))))
        if (op == Op.MUON_SCALE) {
            uint256 a = SoftFloat.sqrt64(SoftFloat.fromIntTo64(Operands.int64Of(x[0])));
            uint256 b = SoftFloat.mul64(a, SoftFloat.widen(x[1]));
            uint256 c = SoftFloat.less64(b, 0x3c30000000000000) ? 0x3c30000000000000 : b;
            return SoftFloat.narrow(SoftFloat.div64(SoftFloat.ONE64, c));
        }
        // x, +0 on the diagonal
        if (op == Op.ZERO_DIAGONAL) {
            uint256 a = x[0];
            return element % (attributes.word(0) + 1) == 0 ? 0 : (SoftFloat.isNan32(a) ? SoftFloat.NAN32 : a);
        }
        // ((((D · D) + E) · 2.0315) + (D · −4.775)) + 3.4445
        if (op == Op.MUON_ALONG) {
            uint256 a = x[0];
            uint256 b = SoftFloat.mul32(SoftFloat.add32(SoftFloat.mul32(a, a), x[1]), 0x40020419);
            return SoftFloat.add32(SoftFloat.add32(b, SoftFloat.mul32(a, 0xc098cccd)), 0x405c72b0);
        }
        revert IOneStep.NoSuchOperation(op);
    }

    function _optimiser3(uint256 op, bytes calldata attributes, uint256 element, uint256[] memory x)
        private
        pure
        returns (uint256)
    {
        // (R · (((D[r] + D[c]) · 2.0315) + −4.775)) + (E · 2.0315), +0 on the diagonal
        if (op == Op.MUON_ACROSS) {
            uint256 a = SoftFloat.add32(SoftFloat.mul32(SoftFloat.add32(x[1], x[2]), 0x40020419), 0xc098cccd);
            uint256 b = SoftFloat.add32(SoftFloat.mul32(x[0], a), SoftFloat.mul32(x[3], 0x40020419));
            return element % (attributes.word(0) + 1) == 0 ? 0 : b;
        }
        // (X · y) + (32(Σ) · q)
        if (op == Op.ADVANCE) {
            uint256 a = SoftFloat.mul32(SoftFloat.fromInt32(Operands.signedOf(x[2], attributes.word(1))), x[3]);
            return SoftFloat.add32(SoftFloat.mul32(x[0], x[1]), a);
        }
        revert IOneStep.NoSuchOperation(op);
    }

    // ---- family 6 ------------------------------------------------------------------------------------------------

    function linkReads(uint256 op) internal pure returns (uint256) {
        if (op == Op.DIFFERENCE) return 0x11;
        if (op == Op.FP32) return 0x1;
        return 0;
    }

    function linkValue(uint256 op, uint256[] memory x) internal pure returns (uint256) {
        // model − last
        if (op == Op.DIFFERENCE) return SoftFloat.sub32(x[0], x[1]);
        // x + 0
        if (op == Op.FP32) return SoftFloat.add32(x[0], 0);
        revert IOneStep.NoSuchOperation(op);
    }
}
