// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {Elementary} from "./Elementary.sol";
import {IOneStep, Need} from "./IOneStep.sol";
import {Op} from "./Op.sol";
import {Operands} from "./Operands.sol";
import {SoftFloat} from "./SoftFloat.sol";

/// @title Family 3: what SPEC-STEP.md does to numbers one by one.
/// @notice sdk/atoll/numerics/trace/floats.py has the same operations on whole tensors, and opcodes.py their words and
/// inputs.
contract FloatSteps is IOneStep {
    uint256 private constant MINUS_ONE = 0xbf800000;
    uint256 private constant TWO = 0x40000000;

    // ---- what is opened -------------------------------------------------------------------------------------------

    /// @inheritdoc IOneStep
    function need(uint16 op, bytes calldata attributes, uint256 element, bytes[] calldata opened)
        external
        pure
        returns (Need memory)
    {
        if (op == Op.ROTATE) return _rotateNeed(attributes, element, opened.length);
        if (op == Op.TOKEN_LOSS) return _tokenLossNeed(attributes, element, opened);
        uint256 kinds = op == Op.NORM_TERM && Operands.word(attributes, 0) != 0 ? 0x155 : _kinds(op);
        return Operands.place(kinds, opened.length, element, Operands.word(attributes, 0));
    }

    /// @return digits of `Operands.place`, the first input's the lowest
    function _kinds(uint256 op) private pure returns (uint256) {
        if (op == Op.SCALE || op == Op.RELU2) return 0x1;
        if (op == Op.ADD || op == Op.MUL || op == Op.SWIGLU || op == Op.SWIGLU_DUP || op == Op.RELU2_GRADIENT) {
            return 0x11;
        }
        if (op == Op.SWIGLU_DGATE) return 0x111;
        if (op == Op.ADD_ROW || op == Op.MUL_COLUMNS) return 0x31;
        if (op == Op.MUL_ROWS || op == Op.SOFT_WEIGHT) return 0x21;
        if (op == Op.SCALE_BY) return 0x71;
        if (op == Op.NORMED) return 0x321;
        if (op == Op.NORM_DX) return 0x2211;
        if (op == Op.DROPOUT) return 0x771;
        if (op == Op.TOTAL || op == Op.NORM || op == Op.CLIP) return 0x5;
        if (op == Op.RSTD || op == Op.EXACT_SUM || op == Op.NORM_TERM) return 0x15;
        if (op == Op.LOSS) return 0x515;
        if (op == Op.LOSS_SCALE) return 0x55;
        if (op == Op.DLOGITS) return 0x4261;
        revert NoSuchOperation(op);
    }

    /// The pair's two numbers, which lie half a head apart; the cosine; the sine.
    function _rotateNeed(bytes calldata attributes, uint256 element, uint256 k) private pure returns (Need memory) {
        uint256 width = Operands.word(attributes, 1);
        uint256 half = width / 2;
        uint256 pair = (element % width) % half;
        if (k < 2) return Need(0, 4 * (element - element % width + pair + k * half), 4);
        if (k > 3) return Need(0, 0, 0);
        uint256 position = (element / width) % Operands.word(attributes, 0);
        return Need(k - 1, 4 * (position * half + pair), 4);
    }

    /// The target; where it is one, maximum and total, and the target's logit.
    function _tokenLossNeed(bytes calldata attributes, uint256 token, bytes[] calldata opened)
        private
        pure
        returns (Need memory)
    {
        if (opened.length == 0) return Need(3, 4 * token, 4);
        int256 target = Operands.int32Of(Operands.load(opened[0]));
        if (target < 0 || opened.length > 3) return Need(0, 0, 0);
        if (opened.length == 1) return Need(1, 4 * token, 4);
        if (opened.length == 2) return Need(2, 8 * token, 8);
        return Need(0, 4 * (token * Operands.word(attributes, 0) + uint256(target)), 4);
    }

    // ---- what is worked out ---------------------------------------------------------------------------------------

    /// @inheritdoc IOneStep
    function run(uint16 op, bytes calldata attributes, uint256 element, bytes[] calldata opened)
        external
        pure
        returns (bytes memory)
    {
        if (op == Op.ROTATE) return Operands.store(_rotate(attributes, element, opened), 4);
        uint256[] memory x = Operands.loadAll(opened);
        if (op == Op.TOTAL || op > Op.DLOGITS) return Operands.store(_wide(op, attributes, x), 8);
        if (op == Op.DROPOUT) return Operands.store(_dropout(attributes, element, x), 4);
        if (op == Op.DLOGITS) return Operands.store(_dlogits(attributes, element, x), 4);
        if (op < Op.RSTD) return Operands.store(_single(op, attributes, x), 4);
        if (op < Op.SWIGLU) return Operands.store(_norm(op, attributes, x), 4);
        if (op < Op.DROPOUT) return Operands.store(_gate(op, x), 4);
        return Operands.store(_loss(op, x), 4);
    }

    /// Operations of one line.
    function _single(uint256 op, bytes calldata attributes, uint256[] memory x) private pure returns (uint256) {
        if (op == Op.ADD || op == Op.ADD_ROW) return SoftFloat.add32(x[0], x[1]);
        if (op == Op.SCALE) return SoftFloat.mul32(x[0], Operands.word(attributes, 0));
        if (op == Op.SCALE_BY) return SoftFloat.mul32(x[0], SoftFloat.narrow(x[1]));
        return SoftFloat.mul32(x[0], x[1]);
    }

    /// RSTD, NORMED, NORM_DX and EXACT_SUM.
    function _norm(uint256 op, bytes calldata attributes, uint256[] memory x) private pure returns (uint256) {
        if (op == Op.NORMED) return SoftFloat.mul32(SoftFloat.mul32(x[0], x[1]), x[2]);
        if (op == Op.NORM_DX) {
            return SoftFloat.mul32(SoftFloat.sub32(x[0], SoftFloat.mul32(x[1], x[2])), x[3]);
        }
        uint256 factor = Operands.word(attributes, 0);
        if (op == Op.EXACT_SUM) return SoftFloat.narrow(SoftFloat.mul64(_exactSum(x[0], x[1]), factor));
        uint256 mean = SoftFloat.narrow(SoftFloat.mul64(_squares(x[0], x[1]), factor));
        return Elementary.rsqrt32(SoftFloat.add32(mean, Operands.word(attributes, 1)));
    }

    /// SWIGLU and RELU2 with their gradients.
    function _gate(uint256 op, uint256[] memory x) private pure returns (uint256) {
        if (op == Op.RELU2) {
            uint256 a = _positive(x[0]);
            return SoftFloat.mul32(a, a);
        }
        if (op == Op.RELU2_GRADIENT) return SoftFloat.mul32(x[0], SoftFloat.mul32(_positive(x[1]), TWO));
        uint256 gate = op == Op.SWIGLU ? x[0] : x[1];
        uint256 s = Elementary.sigmoid32(gate);
        uint256 u = SoftFloat.mul32(gate, s);
        if (op == Op.SWIGLU) return SoftFloat.mul32(u, x[1]);
        if (op == Op.SWIGLU_DUP) return SoftFloat.mul32(x[0], u);
        uint256 slope = SoftFloat.add32(s, SoftFloat.mul32(u, SoftFloat.sub32(SoftFloat.ONE32, s)));
        return SoftFloat.mul32(SoftFloat.mul32(x[0], x[2]), slope);
    }

    /// SOFT_WEIGHT, TOKEN_LOSS, LOSS and LOSS_SCALE.
    function _loss(uint256 op, uint256[] memory x) private pure returns (uint256) {
        if (op == Op.SOFT_WEIGHT) return Elementary.exp32(SoftFloat.sub32(x[0], x[1]));
        if (op == Op.LOSS) return SoftFloat.narrow(SoftFloat.mul64(_exactSum(x[0], x[1]), _inverse(x[2])));
        if (op == Op.LOSS_SCALE) {
            uint256 share = x[1] == 0 ? 0 : SoftFloat.div64(_count(x[0]), _count(x[1]));
            share = SoftFloat.widen(SoftFloat.narrow(share));
            return SoftFloat.narrow(SoftFloat.mul64(share, _inverse(x[0])));
        }
        if (Operands.int32Of(x[0]) < 0) return 0; // TOKEN_LOSS of a token that does not count
        return SoftFloat.sub32(Elementary.log32(SoftFloat.narrow(x[2])), SoftFloat.sub32(x[3], x[1]));
    }

    /// What gives binary64: TOTAL, NORM_TERM, NORM, CLIP.
    function _wide(uint256 op, bytes calldata attributes, uint256[] memory x) private pure returns (uint256) {
        if (op == Op.NORM) return SoftFloat.sqrt64(x[0]);
        uint256 first = Operands.word(attributes, 0);
        if (op == Op.TOTAL) return SoftFloat.mul64(_count(x[0]), first);
        if (op == Op.CLIP) {
            uint256 k = SoftFloat.div64(first, x[0]);
            return SoftFloat.less64(0, x[0]) && SoftFloat.less64(k, SoftFloat.ONE64) ? k : SoftFloat.ONE64;
        }
        if (op != Op.NORM_TERM) revert NoSuchOperation(op);
        if (first == 0) return SoftFloat.add64(0, _squares(x[0], x[1]));
        return SoftFloat.add64(x[0], _squares(x[1], x[2]));
    }

    function _rotate(bytes calldata attributes, uint256 element, bytes[] calldata opened)
        private
        pure
        returns (uint256)
    {
        uint256 width = Operands.word(attributes, 1);
        uint256 a = Operands.load(opened[0]);
        uint256 b = Operands.load(opened[1]);
        uint256 c = Operands.load(opened[2]);
        uint256 s = SoftFloat.mul32(Operands.load(opened[3]), Operands.word(attributes, 2));
        if (element % width < width / 2) return SoftFloat.sub32(SoftFloat.mul32(a, c), SoftFloat.mul32(b, s));
        return SoftFloat.add32(SoftFloat.mul32(b, c), SoftFloat.mul32(a, s));
    }

    /// x: number, the two words of the key as one of 64 bits, global step.
    function _dropout(bytes calldata attributes, uint256 element, uint256[] memory x) private pure returns (uint256) {
        uint256 number =
            Operands.word(attributes, 3) + Operands.iteration(attributes) * Operands.word(attributes, 4) + element;
        uint256 site = Operands.word(attributes, 2) & 0xffffffff;
        uint256 counter = (number / 4) & 0xffffffffffffffff;
        counter |= ((x[2] & 0xffffffff) << 64) | (site << 96);
        uint256 drawn = (Elementary.philox4x32(counter, x[1]) >> (32 * (number % 4))) & 0xffffffff;
        if (drawn < Operands.word(attributes, 0)) return 0;
        return SoftFloat.mul32(x[0], Operands.word(attributes, 1));
    }

    /// x: weight, total, target, scale.
    function _dlogits(bytes calldata attributes, uint256 element, uint256[] memory x) private pure returns (uint256) {
        int256 target = Operands.int32Of(x[2]);
        if (target < 0) return SoftFloat.mul32(0, x[3]);
        uint256 dz = SoftFloat.mul32(x[0], SoftFloat.narrow(SoftFloat.div64(SoftFloat.ONE64, x[1])));
        if (uint256(target) == element % Operands.word(attributes, 0)) dz = SoftFloat.add32(dz, MINUS_ONE);
        return SoftFloat.mul32(dz, x[3]);
    }

    // ---- parts of lines -------------------------------------------------------------------------------------------

    /// @return 64(n) of i64
    function _count(uint256 n) private pure returns (uint256) {
        return SoftFloat.fromIntTo64(Operands.int64Of(n));
    }

    /// @return 1 / n in binary64, or 0 where n = 0
    function _inverse(uint256 n) private pure returns (uint256) {
        return n == 0 ? 0 : SoftFloat.div64(SoftFloat.ONE64, _count(n));
    }

    /// @return S of chapter 2: 64(Σ n) · 64(s)
    function _exactSum(uint256 sum, uint256 step) private pure returns (uint256) {
        return SoftFloat.mul64(_count(sum), SoftFloat.widen(step));
    }

    /// @return 64(Σ n²) · (64(s) · 64(s))
    function _squares(uint256 sum, uint256 step) private pure returns (uint256) {
        uint256 wide = SoftFloat.widen(step);
        return SoftFloat.mul64(_count(sum), SoftFloat.mul64(wide, wide));
    }

    /// @return 0 where x < 0, else x
    function _positive(uint256 x) private pure returns (uint256) {
        return SoftFloat.less32(x, 0) ? 0 : x;
    }
}
