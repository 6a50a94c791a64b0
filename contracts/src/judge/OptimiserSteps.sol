// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {IOneStep, Need} from "./IOneStep.sol";
import {Op} from "./Op.sol";
import {Operands} from "./Operands.sol";
import {SoftFloat} from "./SoftFloat.sol";

/// @title Family 4: the optimisers, chapter 15 of SPEC-STEP.md.
/// @notice sdk/atoll/numerics/trace/optimisers.py has the same operations on whole tensors, and opcodes.py their words and
/// inputs. g = g · k is SCALE_BY of family 3.
contract OptimiserSteps is IOneStep {
    uint256 private constant FLUSH = 0x0d800000; // 2^-100
    uint256 private constant LEAST_NORM = 0x3c30000000000000; // 2^-60 in binary64
    // Muon's a, b, c: 3.4445, -4.7750, 2.0315.
    uint256 private constant MUON_A = 0x405c72b0;
    uint256 private constant MUON_B = 0xc098cccd;
    uint256 private constant MUON_C = 0x40020419;

    /// @inheritdoc IOneStep
    function need(uint16 op, bytes calldata attributes, uint256 element, bytes[] calldata opened)
        external
        pure
        returns (Need memory next)
    {
        uint256 kinds = op == Op.ADVANCE && Operands.word(attributes, 1) == 8 ? 0x2521 : _kinds(op);
        next = Operands.place(kinds, opened.length, element, Operands.word(attributes, 0));
        // The diagonal is opened twice, for row and column.
        if (op == Op.MUON_ACROSS && next.input > 1) --next.input;
    }

    /// @return digits of `Operands.place`, the first input's the lowest
    function _kinds(uint256 op) private pure returns (uint256) {
        if (op == Op.ADAMW_M || op == Op.ADAMW_V || op == Op.MOMENTUM) return 0x11;
        if (op == Op.ADAMW_P) return 0x78111;
        if (op == Op.DESCEND) return 0x711;
        if (op == Op.MUON_SCALE) return 0x15;
        if (op == Op.ZERO_DIAGONAL) return 0x1;
        if (op == Op.MUON_ALONG) return 0x91;
        if (op == Op.MUON_ACROSS) return 0x1321;
        if (op == Op.ADVANCE) return 0x2121;
        revert NoSuchOperation(op);
    }

    /// @inheritdoc IOneStep
    function run(uint16 op, bytes calldata attributes, uint256 element, bytes[] calldata opened)
        external
        pure
        returns (bytes memory)
    {
        uint256[] memory x = Operands.loadAll(opened);
        if (op < Op.MUON_SCALE) return Operands.store(_descent(op, attributes, x), 4);
        return Operands.store(_muon(op, attributes, element, x), 4);
    }

    /// ADAMW_M, ADAMW_V, ADAMW_P, MOMENTUM and DESCEND.
    function _descent(uint256 op, bytes calldata attributes, uint256[] memory x) private pure returns (uint256) {
        uint256 first = Operands.word(attributes, 0);
        if (op == Op.DESCEND) {
            uint256 pull = SoftFloat.add32(x[1], SoftFloat.mul32(x[0], first));
            return SoftFloat.sub32(x[0], SoftFloat.mul32(pull, SoftFloat.narrow(x[2])));
        }
        uint256 second = Operands.word(attributes, 1);
        if (op == Op.ADAMW_P) return _adamw(x, first, second);
        if (op == Op.ADAMW_V) x[1] = SoftFloat.mul32(x[1], x[1]);
        return _flushed(SoftFloat.add32(SoftFloat.mul32(x[0], first), SoftFloat.mul32(x[1], second)));
    }

    /// x: parameter, both moments after the step, both corrections, rate.
    function _adamw(uint256[] memory x, uint256 epsilon, uint256 decay) private pure returns (uint256) {
        uint256 correction1 = SoftFloat.narrow(x[3] & 0xffffffffffffffff);
        uint256 correction2 = SoftFloat.narrow(x[3] >> 64);
        uint256 root = SoftFloat.add32(SoftFloat.sqrt32(SoftFloat.mul32(x[2], correction2)), epsilon);
        uint256 u = SoftFloat.div32(SoftFloat.mul32(x[1], correction1), root);
        u = SoftFloat.add32(u, SoftFloat.mul32(x[0], decay));
        return SoftFloat.sub32(x[0], SoftFloat.mul32(u, SoftFloat.narrow(x[4])));
    }

    /// The operations of Q1 to Q7.
    function _muon(uint256 op, bytes calldata attributes, uint256 element, uint256[] memory x)
        private
        pure
        returns (uint256)
    {
        if (op == Op.MUON_SCALE) return _muonScale(x[0], x[1]);
        if (op == Op.MUON_ALONG) return _muonAlong(x[0], x[1]);
        uint256 columns = Operands.word(attributes, 0);
        if (op == Op.ADVANCE) {
            int256 sum = Operands.word(attributes, 1) == 8 ? Operands.int64Of(x[2]) : Operands.int32Of(x[2]);
            uint256 moved = SoftFloat.mul32(SoftFloat.fromInt32(sum), x[3]);
            return SoftFloat.add32(SoftFloat.mul32(x[0], x[1]), moved);
        }
        bool diagonal = element % (columns + 1) == 0;
        if (op != Op.ZERO_DIAGONAL && op != Op.MUON_ACROSS) revert NoSuchOperation(op);
        if (diagonal) return 0;
        if (op == Op.MUON_ACROSS) return _across(x);
        return SoftFloat.isNan32(x[0]) ? SoftFloat.NAN32 : x[0];
    }

    /// @return 32(1 / t), t = √64(Σ n²) · 64(s), or 2^-60 where it is less
    function _muonScale(uint256 squares, uint256 step) private pure returns (uint256) {
        uint256 root = SoftFloat.sqrt64(SoftFloat.fromIntTo64(Operands.int64Of(squares)));
        uint256 t = SoftFloat.mul64(root, SoftFloat.widen(step));
        if (SoftFloat.less64(t, LEAST_NORM)) t = LEAST_NORM;
        return SoftFloat.narrow(SoftFloat.div64(SoftFloat.ONE64, t));
    }

    /// @return (D · D + E) · c + D · b + a
    function _muonAlong(uint256 d, uint256 e) private pure returns (uint256) {
        uint256 squares = SoftFloat.mul32(SoftFloat.add32(SoftFloat.mul32(d, d), e), MUON_C);
        return SoftFloat.add32(SoftFloat.add32(squares, SoftFloat.mul32(d, MUON_B)), MUON_A);
    }

    /// x: R, D of the row, D of the column, E. @return R · ((D + D′) · c + b) + E · c
    function _across(uint256[] memory x) private pure returns (uint256) {
        uint256 factor = SoftFloat.mul32(SoftFloat.add32(x[1], x[2]), MUON_C);
        factor = SoftFloat.add32(factor, MUON_B);
        return SoftFloat.add32(SoftFloat.mul32(x[0], factor), SoftFloat.mul32(x[3], MUON_C));
    }

    /// @return +0 where |x| < 2^-100, else x
    function _flushed(uint256 x) private pure returns (uint256) {
        return x & 0x7fffffff < FLUSH ? 0 : x;
    }
}
