// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {Elementary} from "./Elementary.sol";
import {Formulas} from "./Formulas.sol";
import {IOneStep, Need} from "./IOneStep.sol";
import {Lanes} from "./Lanes.sol";
import {Op} from "./Op.sol";
import {Operands} from "./Operands.sol";
import {SoftFloat} from "./SoftFloat.sol";

/// @title Family 1: structure, reductions, grids, int8 products, embedding.
/// @notice sdk/atoll/numerics/trace/integers.py has the same operations on whole tensors, and
/// opcodes.py their words and inputs.
contract IntegerSteps is IOneStep {
    /// The sort key of no token.
    uint256 private constant PADDING = 0x7fffffffffffffff;
    /// Keys of a leaf: LOWER_BOUND's levels.
    uint256 private constant KEYS = 128;
    uint256 private constant POWER_BITS = 39; // of POWER_GRID
    uint256 private constant LEAST_FIELD = 47; // the exponent's field of 2^-80, below which no grid's largest number counts
    uint256 private constant SPLIT_INVERSE = 0x3b810204; // of chapter 2: the binary32 number nearest to 1 / 254

    // ---- what is opened
    // -------------------------------------------------------------------------------------------

    /// @inheritdoc IOneStep
    function need(uint16 op, bytes calldata attributes, uint256 element, bytes[] calldata opened)
        external
        pure
        returns (Need memory)
    {
        uint256 k = opened.length;
        uint256 first = attributes.length > 8 ? Operands.word(attributes, 0) : 0;
        if (op == Op.VIEW || op == Op.CONCAT || op == Op.COPY) {
            return k == 0 ? _copied(op, attributes, element) : _nothing();
        }
        if (op == Op.DOT_I8) return _dotNeed(attributes, element, k);
        if (op == Op.MAX_ABS || op == Op.MAX || op >= Op.SUM_I32 && op <= Op.SUM_ROUND || op == Op.COUNT_TARGETS) {
            return _blockNeed(op, attributes, element, k);
        }
        if (op == Op.PREFIX) return k == 0 ? _prefixNeed(attributes, element) : _nothing();
        if (op == Op.ADD_BEFORE) return _addBeforeNeed(attributes, element, k);
        uint256 reads = Formulas.integerReads(op, attributes);
        if (reads != 0) return Operands.position(reads, k, element, first);
        return _embeddingNeed(op, attributes, element, opened);
    }

    function _nothing() private pure returns (Need memory) {}

    /// The element that a VIEW, CONCAT or COPY has in its position.
    function _copied(uint256 op, bytes calldata attributes, uint256 element) private pure returns (Need memory) {
        uint256 width = Operands.word(attributes, 0);
        if (op == Op.COPY) return Need(0, width * element, width);
        if (op == Op.VIEW) {
            uint256 position = Operands.word(attributes, 5);
            for (uint256 i = 4; i > 0; --i) {
                uint256 size = Operands.word(attributes, i);
                position += (element % size) * Operands.word(attributes, i + 5);
                element /= size;
            }
            return Need(0, width * position, width);
        }
        uint256 inputs = attributes.length / 8 - 2;
        uint256 all;
        for (uint256 i = 1; i <= inputs; ++i) {
            all += Operands.word(attributes, i);
        }
        uint256 column = element % all;
        uint256 input;
        uint256 columns = Operands.word(attributes, 1);
        while (column >= columns) {
            column -= columns;
            columns = Operands.word(attributes, ++input + 1);
        }
        return Need(input, width * ((element / all) * columns + column), width);
    }

    /// A block of B of a row's C columns; of sums on a grid, the row's multiplier, too.
    function _blockNeed(uint256 op, bytes calldata attributes, uint256 element, uint256 k)
        private
        pure
        returns (Need memory)
    {
        uint256 columns = Operands.word(attributes, 0);
        uint256 block_ = Operands.word(attributes, 1);
        uint256 blocks = (columns + block_ - 1) / block_;
        uint256 row = element / blocks;
        if (k == 1 && (op == Op.SUM_GRID || op == Op.SUM_SQUARES)) return Need(1, 4 * row, 4);
        if (k > 0) return _nothing();
        uint256 width = op == Op.SUM_I64 ? 8 : 4;
        uint256 start = (element % blocks) * block_;
        uint256 count = columns - start < block_ ? columns - start : block_;
        return Need(0, width * (row * columns + start), width * count);
    }

    /// B terms of a row of each operand.
    function _dotNeed(bytes calldata attributes, uint256 element, uint256 k) private pure returns (Need memory) {
        if (k > 1) return _nothing();
        uint256 others = Operands.word(attributes, 0);
        uint256 inner = Operands.word(attributes, 1);
        uint256 block_ = Operands.word(attributes, 2);
        uint256 blocks = (inner + block_ - 1) / block_;
        uint256 start = (element % blocks) * block_;
        element /= blocks;
        uint256 row = k == 0 ? element / others : element % others;
        return Need(k, row * inner + start, inner - start < block_ ? inner - start : block_);
    }

    /// The block's columns up to this.
    function _prefixNeed(bytes calldata attributes, uint256 element) private pure returns (Need memory) {
        uint256 before = (element % Operands.word(attributes, 0)) % Operands.word(attributes, 1);
        return Need(0, 8 * (element - before), 8 * (before + 1));
    }

    /// The element, and the sum up to the block before.
    function _addBeforeNeed(bytes calldata attributes, uint256 element, uint256 k) private pure returns (Need memory) {
        if (k == 0) return Need(0, 8 * element, 8);
        uint256 columns = Operands.word(attributes, 0);
        uint256 block_ = Operands.word(attributes, 1);
        uint256 position = (element % columns) / block_;
        if (k > 1 || position == 0) return _nothing();
        return Need(1, 8 * ((element / columns) * ((columns + block_ - 1) / block_) + position - 1), 8);
    }

    function _embeddingNeed(uint256 op, bytes calldata attributes, uint256 element, bytes[] calldata opened)
        private
        pure
        returns (Need memory)
    {
        uint256 k = opened.length;
        uint256 first = Operands.word(attributes, 0);
        if (op == Op.SORT_KEYS) return k == 0 && element < first ? Need(0, 4 * element, 4) : _nothing();
        if (op == Op.SORT_STAGE) {
            if (k > 1) return _nothing();
            return Need(0, 8 * (k == 0 ? element : element ^ Operands.word(attributes, 1)), 8);
        }
        if (op == Op.LOWER_BOUND) return _lowerBoundNeed(attributes, element, opened);
        if (op == Op.GATHER_GRID) {
            if (k == 0) return Need(2, 8 * (element % first), 8);
            uint256 row = element / first;
            if (k == 1) return Need(0, 4 * (row * first + uint32(Operands.load(opened[0]))), 4);
            return k == 2 ? Need(1, 4 * row, 4) : _nothing();
        }
        if (op == Op.SUM_BY_ID) return _sumByIdNeed(attributes, element, opened);
        if (op != Op.EMBED) revert NoSuchOperation(op);
        if (k == 0) return Need(0, 4 * (element / first), 4);
        return k == 1 ? Need(1, 4 * (Operands.load(opened[0]) * first + element % first), 4) : _nothing();
    }

    /// The level of at most 128 keys whole; then, of each level below, the 128 keys among which the
    /// id begins.
    function _lowerBoundNeed(bytes calldata attributes, uint256 id, bytes[] calldata opened)
        private
        pure
        returns (Need memory)
    {
        uint256 count = Operands.word(attributes, 1);
        uint256 top;
        for (; count > KEYS; count /= KEYS) {
            ++top;
        }
        if (opened.length == 0) return Need(top, 0, 8 * count);
        if (opened.length > top) return _nothing();
        uint256 below = _below(id, opened);
        return below == 0 ? _nothing() : Need(top - opened.length, 8 * KEYS * (below - 1), 8 * KEYS);
    }

    /// @return below how many keys of the level that was opened last have an id below this
    function _below(uint256 id, bytes[] calldata opened) private pure returns (uint256 below) {
        for (uint256 k; k < opened.length; ++k) {
            if (k > 0) below = KEYS * (below - 1);
            below += Lanes.countBelow(opened[k], id);
            if (below == 0) break;
        }
    }

    /// Where the id begins and ends; the sums up to there; the column's step.
    function _sumByIdNeed(bytes calldata attributes, uint256 element, bytes[] calldata opened)
        private
        pure
        returns (Need memory)
    {
        uint256 k = opened.length;
        uint256 width = Operands.word(attributes, 0);
        if (k == 0) return Need(0, 4 * (element / width), 8);
        uint256 range = Operands.load(opened[0]);
        uint256 sums = _sums(range);
        element %= width;
        if (k > sums) return k == sums + 1 ? Need(2, 4 * element, 4) : _nothing();
        uint256 last = uint32(k == 1 ? range >> 32 : range) - 1;
        return Need(1, 8 * (element * Operands.word(attributes, 1) + last), 8);
    }

    /// @param range the first position of an id in the order of keys, and 2^32 times the position
    /// after its last
    /// @return how many sums its Σ is made of: none, the one up to its end, and the one up to its
    /// start
    function _sums(uint256 range) private pure returns (uint256) {
        uint256 start = uint32(range);
        return range >> 32 <= start ? 0 : start == 0 ? 1 : 2;
    }

    // ---- what is worked out
    // ---------------------------------------------------------------------------------------

    /// @inheritdoc IOneStep
    function run(uint16 op, bytes calldata attributes, uint256 element, bytes[] calldata opened)
        external
        pure
        returns (bytes memory)
    {
        if (op == Op.VIEW || op == Op.CONCAT || op == Op.COPY) return opened[0];
        if (op == Op.QUANTISE_I8 || op == Op.SPLIT_HIGH || op == Op.SPLIT_LOW) {
            return Operands.store(uint8(uint256(_slice(op, Operands.loadAll(opened)))), 1);
        }
        if (op == Op.DOT_I8) return Operands.store(uint32(uint256(Lanes.dotI8(opened[0], opened[1]))), 4);
        if (op >= Op.SUM_I32 && op <= Op.SUM_ROUND || op == Op.PREFIX) {
            return Operands.store(uint64(uint256(_sum(op, attributes, opened))), 8);
        }
        if (op == Op.COUNT_TARGETS) return Operands.store(Lanes.countI32(opened[0]), 8);
        if (op == Op.LOWER_BOUND) return Operands.store(_below(element, opened), 4);
        if (
            op == Op.SORT_KEYS || op == Op.SORT_STAGE || op == Op.GATHER_GRID || op == Op.COMBINE_SPLIT
                || op == Op.ADD_BEFORE
        ) {
            return Operands.store(uint64(_long(op, attributes, element, Operands.loadAll(opened))), 8);
        }
        return Operands.store(_number(op, attributes, opened), 4);
    }

    /// @param x number and multiplier
    /// @return the integer on the grid, or one of its slices
    function _slice(uint256 op, uint256[] memory x) private pure returns (int256) {
        uint256 whole = Elementary.quantise(x[0], x[1]);
        if (op == Op.QUANTISE_I8) return SoftFloat.rint32ToInt(whole);
        int256 high = SoftFloat.rint32ToInt(SoftFloat.mul32(whole, SPLIT_INVERSE));
        unchecked {
            return op == Op.SPLIT_HIGH ? high : SoftFloat.rint32ToInt(whole) - 254 * high;
        }
    }

    function _sum(uint256 op, bytes calldata attributes, bytes[] calldata opened) private pure returns (int256) {
        if (op == Op.SUM_I32) return Lanes.sumI32(opened[0]);
        if (op == Op.SUM_I64 || op == Op.PREFIX) return Lanes.sumI64(opened[0]);
        uint256 up = op == Op.SUM_ROUND ? Operands.word(attributes, 2) : Operands.load(opened[1]);
        return Lanes.sumRounded(opened[0], up, op == Op.SUM_SQUARES);
    }

    /// @param x what was opened
    /// @return an i64
    function _long(uint256 op, bytes calldata attributes, uint256 element, uint256[] memory x)
        private
        pure
        returns (uint256)
    {
        if (op == Op.SORT_KEYS) return x.length == 0 ? PADDING : (x[0] << 32) | element;
        unchecked {
            if (op == Op.SORT_STAGE) {
                uint256 size = Operands.word(attributes, 0);
                bool lower = (element & size == 0) == (element & Operands.word(attributes, 1) == 0);
                return (Operands.int64Of(x[0]) < Operands.int64Of(x[1])) == lower ? x[0] : x[1];
            }
            if (op == Op.GATHER_GRID) return uint256(Elementary.quantiseToInt(x[1], x[2]));
            if (op == Op.ADD_BEFORE) return x.length == 1 ? x[0] : x[0] + x[1];
            uint256 wide = Operands.word(attributes, 0);
            int256 both = Operands.signedOf(x[1], wide) + Operands.signedOf(x[2], wide);
            return uint256(64516 * Operands.signedOf(x[0], wide) + 254 * both);
        }
    }

    /// @return an f32
    function _number(uint256 op, bytes calldata attributes, bytes[] calldata opened) private pure returns (uint256) {
        if (op == Op.MAX_ABS) return Lanes.maxAbs(opened[0]);
        if (op == Op.MAX) return Lanes.max(opened[0]);
        uint256[] memory x = Operands.loadAll(opened);
        if (op == Op.EMBED) return x[1];
        if (op == Op.QUANTISE_F32) return Elementary.quantise(x[0], x[1]);
        if (op == Op.SUM_BY_ID) return _byId(x);
        if (op == Op.RESCALE || op == Op.RESCALE_STACKED) return Formulas.integerValue(op, attributes, x);
        if (op == Op.POWER_GRID) return _powerOfTwo(x[0], Operands.word(attributes, 0));
        if (op != Op.GRID_UP && op != Op.GRID_STEP) revert NoSuchOperation(op);
        (uint256 up, uint256 step) = Elementary.steps(x[0], Operands.word(attributes, 0));
        return op == Op.GRID_UP ? up : step;
    }

    /// @param most a magnitude f · 2^E with 1 ≤ f < 2; a smaller one than 2^-80 counts as that
    /// @return 2^(39 − E) up, 2^(E − 39) back; 0 where it is not finite
    function _powerOfTwo(uint256 most, uint256 up) private pure returns (uint256) {
        uint256 field = most >> 23 & 0xff; // E + 127
        if (field == 0xff) return 0;
        if (field < LEAST_FIELD) field = LEAST_FIELD;
        return (up == 1 ? 2 * 127 + POWER_BITS - field : field - POWER_BITS) << 23;
    }

    /// @param x the range; as many sums as it says; the step
    function _byId(uint256[] memory x) private pure returns (uint256) {
        uint256 sums = _sums(x[0]);
        int256 sum = sums == 0 ? int256(0) : Operands.int64Of(x[1]);
        unchecked {
            if (sums == 2) sum -= Operands.int64Of(x[2]);
        }
        uint256 wide = SoftFloat.mul64(SoftFloat.fromIntTo64(sum), SoftFloat.widen(x[sums + 1]));
        return SoftFloat.narrow(wide);
    }
}
