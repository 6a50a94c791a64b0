// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {Elementary} from "./Elementary.sol";
import {Formulas} from "./Formulas.sol";
import {IOneStep, Need} from "./IOneStep.sol";
import {Op} from "./Op.sol";
import {Operands} from "./Operands.sol";
import {SoftFloat} from "./SoftFloat.sol";

/// @title Family 3: what SPEC-STEP.md does to numbers one by one.
/// @notice Nearly all of its operations have formulas, which sdk/atoll/numerics/trace/opcodes.py
/// says; floats.py beside it has the others on whole tensors.
contract FloatSteps is IOneStep {
    // ---- what is opened
    // -------------------------------------------------------------------------------------------

    /// @inheritdoc IOneStep
    function need(uint16 op, bytes calldata attributes, uint256 element, bytes[] calldata opened)
        external
        pure
        returns (Need memory)
    {
        if (op == Op.ROTATE) return _rotateNeed(attributes, element, opened.length);
        if (op == Op.TOKEN_LOSS) return _tokenLossNeed(attributes, element, opened);
        uint256 reads = Formulas.floatReads(op, attributes);
        if (reads == 0) revert NoSuchOperation(op);
        return Operands.position(reads, opened.length, element, Operands.word(attributes, 0));
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

    // ---- what is worked out
    // ---------------------------------------------------------------------------------------

    /// @inheritdoc IOneStep
    function run(uint16 op, bytes calldata attributes, uint256 element, bytes[] calldata opened)
        external
        pure
        returns (bytes memory)
    {
        if (op == Op.ROTATE) return Operands.store(_rotate(attributes, element, opened), 4);
        uint256[] memory x = Operands.loadAll(opened);
        if (op == Op.DROPOUT) return Operands.store(_dropout(attributes, element, x), 4);
        if (op == Op.TOKEN_LOSS) return Operands.store(_tokenLoss(x), 4);
        bool isWide = op == Op.TOTAL || op >= Op.NORM_TERM && op <= Op.CLIP;
        return Operands.store(Formulas.floatValue(op, attributes, element, x), isWide ? 8 : 4);
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

    /// x: target, and where it is one maximum, total, and the target's logit.
    function _tokenLoss(uint256[] memory x) private pure returns (uint256) {
        if (Operands.int32Of(x[0]) < 0) return 0;
        return SoftFloat.sub32(Elementary.log32(SoftFloat.narrow(x[2])), SoftFloat.sub32(x[3], x[1]));
    }
}
