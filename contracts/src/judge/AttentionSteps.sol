// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {Elementary} from "./Elementary.sol";
import {Formulas} from "./Formulas.sol";
import {IOneStep, Need} from "./IOneStep.sol";
import {Lanes} from "./Lanes.sol";
import {Op} from "./Op.sol";
import {Operands} from "./Operands.sol";
import {SoftFloat} from "./SoftFloat.sol";

/// @title Family 2: attention, forward and backward.
/// @notice sdk/atoll/numerics/trace/attention_operations.py has the same operations on whole
/// tensors, and opcodes.py their words and inputs. A key after its query is hidden: nothing is
/// opened for it.
contract AttentionSteps is IOneStep {
    uint256 private constant MINUS_INFINITY = 0xff800000;

    /// Where an element of a tile stands: slice, query and key within the tile.
    struct Tile {
        uint256 g;
        uint256 i;
        uint256 j;
    }

    /// @dev words 0 and 1 are the sizes of a tile, in every operation that has tiles.
    function _place(bytes calldata attributes, uint256 element) private pure returns (Tile memory) {
        uint256 rows = Operands.word(attributes, 0);
        uint256 columns = Operands.word(attributes, 1);
        uint256 row = element / columns;
        return Tile(row / rows, row % rows, element % columns);
    }

    /// Whether key k0 + j is after query q0 + i; q0 and k0 are the last two words.
    function _hidden(uint256 op, bytes calldata attributes, uint256 element) private pure returns (bool) {
        if (op != Op.SCORE && op != Op.ATTENTION_WEIGHT && op != Op.SHARE && op != Op.SLOPE) return false;
        Tile memory tile = _place(attributes, element);
        uint256 last = attributes.length / 8 - 2;
        return Operands.word(attributes, last) + tile.j > Operands.word(attributes, last - 1) + tile.i;
    }

    // ---- what is opened
    // -------------------------------------------------------------------------------------------

    /// @inheritdoc IOneStep
    function need(uint16 op, bytes calldata attributes, uint256 element, bytes[] calldata opened)
        external
        pure
        returns (Need memory)
    {
        uint256 k = opened.length;
        if (_hidden(op, attributes, element)) return Need(0, 0, 0);
        if (op == Op.DOT_F32) return _dotNeed(attributes, element, k);
        if (op == Op.ATTENTION_WEIGHT) return Operands.position(0x21, k, element, Operands.word(attributes, 1));
        if (op == Op.WEIGHTED) return _weightedNeed(attributes, element, k);
        if (op == Op.SHARE) return _shareNeed(attributes, element, k);
        if (op == Op.SLOPE) return _slopeNeed(attributes, element, k);
        if (op == Op.SCORE || op == Op.SHARE_GRADIENT) return _stepsNeed(attributes, element, k);
        uint256 reads = Formulas.attentionReads(op, attributes);
        if (reads == 0) revert NoSuchOperation(op);
        return Operands.position(reads, k, element, Operands.word(attributes, 0));
    }

    /// [t s K group a0 ag ai b0 bg bj]: K numbers of each operand.
    function _dotNeed(bytes calldata attributes, uint256 element, uint256 k) private pure returns (Need memory) {
        if (k > 1) return Need(0, 0, 0);
        Tile memory tile = _place(attributes, element);
        (uint256 slice, uint256 row) = k == 0 ? (tile.g, tile.i) : (tile.g / Operands.word(attributes, 3), tile.j);
        return Need(k, 4 * _strided(attributes, 4 + 3 * k, slice, row), 4 * Operands.word(attributes, 2));
    }

    /// [m n group x0 xg xi xj v0 vg vi vj]: a number of each operand.
    function _weightedNeed(bytes calldata attributes, uint256 element, uint256 k) private pure returns (Need memory) {
        if (k > 1) return Need(0, 0, 0);
        Tile memory tile = _place(attributes, element);
        uint256 slice = k == 0 ? tile.g : tile.g / Operands.word(attributes, 2);
        uint256 first = 3 + 4 * k;
        return
            Need(k, 4 * (_strided(attributes, first, slice, tile.i) + tile.j * Operands.word(attributes, first + 3)), 4);
    }

    /// [t s S q0 k0]: the weight in its row of S, and the row's inverse total.
    function _shareNeed(bytes calldata attributes, uint256 element, uint256 k) private pure returns (Need memory) {
        Tile memory tile = _place(attributes, element);
        uint256 row = tile.g * Operands.word(attributes, 0) + tile.i;
        if (k == 0) {
            return Need(0, 4 * (row * Operands.word(attributes, 2) + Operands.word(attributes, 4) + tile.j), 4);
        }
        return k == 1 ? Need(1, 4 * row, 4) : Need(0, 0, 0);
    }

    /// [t s T group q0 k0]: the sum, the query's step and the key's.
    function _stepsNeed(bytes calldata attributes, uint256 element, uint256 k) private pure returns (Need memory) {
        if (k == 0) return Need(0, 4 * element, 4);
        if (k > 2) return Need(0, 0, 0);
        Tile memory tile = _place(attributes, element);
        uint256 length = Operands.word(attributes, 2);
        if (k == 1) return Need(1, 4 * (tile.g * length + Operands.word(attributes, 4) + tile.i), 4);
        uint256 slice = tile.g / Operands.word(attributes, 3);
        return Need(2, 4 * (slice * length + Operands.word(attributes, 5) + tile.j), 4);
    }

    /// [t s T q0 k0]: the share, its gradient, and the query's e.
    function _slopeNeed(bytes calldata attributes, uint256 element, uint256 k) private pure returns (Need memory) {
        if (k < 2) return Need(k, 4 * element, 4);
        if (k > 2) return Need(0, 0, 0);
        Tile memory tile = _place(attributes, element);
        return Need(2, 4 * (tile.g * Operands.word(attributes, 2) + Operands.word(attributes, 3) + tile.i), 4);
    }

    /// @return words first, first + 1, first + 2: offset + slice · stride + row · stride
    function _strided(bytes calldata attributes, uint256 first, uint256 slice, uint256 row)
        private
        pure
        returns (uint256)
    {
        return Operands.word(attributes, first) + slice * Operands.word(attributes, first + 1) + row
            * Operands.word(attributes, first + 2);
    }

    // ---- what is worked out
    // ---------------------------------------------------------------------------------------

    /// @inheritdoc IOneStep
    function run(uint16 op, bytes calldata attributes, uint256 element, bytes[] calldata opened)
        external
        pure
        returns (bytes memory)
    {
        if (_hidden(op, attributes, element)) return Operands.store(op == Op.SCORE ? MINUS_INFINITY : 0, 4);
        if (op == Op.DOT_F32) return Operands.store(SoftFloat.fromInt32(Lanes.dotF32(opened[0], opened[1])), 4);
        return Operands.store(_number(op, attributes, Operands.loadAll(opened)), 4);
    }

    /// @param x what was opened
    function _number(uint256 op, bytes calldata attributes, uint256[] memory x) private pure returns (uint256) {
        if (op == Op.SCORE) return SoftFloat.mul32(SoftFloat.mul32(x[0], x[1]), x[2]);
        if (op == Op.ATTENTION_WEIGHT) return Elementary.exp32(SoftFloat.sub32(x[0], x[1]));
        if (op == Op.WEIGHTED || op == Op.SHARE) return SoftFloat.mul32(x[0], x[1]);
        if (op == Op.SHARE_GRADIENT) return SoftFloat.mul32(x[0], SoftFloat.mul32(x[1], x[2]));
        if (op == Op.SLOPE) return SoftFloat.mul32(x[0], SoftFloat.sub32(x[1], x[2]));
        return Formulas.attentionValue(op, attributes, x);
    }
}
