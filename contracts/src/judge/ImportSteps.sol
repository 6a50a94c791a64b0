// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {BatchDraws} from "./BatchDraws.sol";
import {IOneStep, Need} from "./IOneStep.sol";
import {Op} from "./Op.sol";
import {Operands} from "./Operands.sol";

/// @title Family 0: what a step takes from elsewhere.
/// @notice sdk/atoll/numerics/trace/imports.py has the same operations on whole tensors, and
/// opcodes.py their words and inputs. Whatever vouches for the bytes, this only says which they are
/// and turns them into the trace's.
contract ImportSteps is IOneStep {
    // Bytes of the context: data seed, seat, round, step and global step are its first five words.
    uint256 private constant SEED_AND_SEAT = 64;
    uint256 private constant SEED_TO_STEP = 128;
    uint256 private constant GLOBAL_STEP_AT = 128;

    // ---- what is opened
    // -------------------------------------------------------------------------------------------

    /// @inheritdoc IOneStep
    function need(uint16 op, bytes calldata attributes, uint256 element, bytes[] calldata opened)
        external
        pure
        returns (Need memory)
    {
        uint256 k = opened.length;
        if (op == Op.STATE || op == Op.BASE || op == Op.MODEL) return _once(k, Need(0, 4 * element, 4));
        if (op == Op.COUNT) return _once(k, Need(0, 0, 8));
        if (op == Op.EXPONENTS) return _once(k, Need(0, 2 * (Operands.word(attributes, 0) + element), 2));
        if (op == Op.IDS || op == Op.TARGETS) return _once(k, _tokenNeed(op, Operands.word(attributes, 0), element));
        if (op == Op.COSINES || op == Op.SINES) {
            uint256 pair = Operands.word(attributes, 0) + 8 * element;
            return _once(k, Need(0, op == Op.SINES ? pair + 4 : pair, 4));
        }
        if (op == Op.DROPOUT_KEY) return _once(k, Need(0, 0, SEED_AND_SEAT));
        if (op == Op.GLOBAL_STEP) return _once(k, Need(0, GLOBAL_STEP_AT, 32));
        if (k > 1) return Need(0, 0, 0);
        if (op == Op.TOKENS) return k == 0 ? Need(1, 0, SEED_TO_STEP) : _drawnNeed(attributes, element, opened[0]);
        if (op == Op.RATE) return k == 0 ? Need(1, GLOBAL_STEP_AT, 32) : Need(0, 8 * _big(opened[0]), 8);
        if (op == Op.CORRECTIONS) {
            return k == 0 ? Need(1, 0, 8) : Need(0, _correction(attributes, opened[0]) + 8 * element, 8);
        }
        revert NoSuchOperation(op);
    }

    function _once(uint256 k, Need memory only) private pure returns (Need memory) {
        return k == 0 ? only : Need(0, 0, 0);
    }

    /// The token of an input, or the one after it: a sequence has one token more than inputs.
    function _tokenNeed(uint256 op, uint256 length, uint256 element) private pure returns (Need memory) {
        uint256 position = element + element / length;
        return Need(0, 4 * (op == Op.TARGETS ? position + 1 : position), 4);
    }

    /// The token word of an element [b, T + 1] of the micro-batch.
    function _drawnNeed(bytes calldata attributes, uint256 element, bytes calldata context)
        private
        pure
        returns (Need memory)
    {
        uint256 row = Operands.word(attributes, 1) + 1;
        uint256 width = Operands.word(attributes, 2);
        uint256 sequence = Operands.iteration(attributes) * Operands.word(attributes, 0) + element / row;
        uint256 start = Operands.word(attributes, 5) * BatchDraws.draw(context, sequence, Operands.word(attributes, 4));
        return Need(0, width * (start + element % row), width);
    }

    /// Where the row of a count stands in the tables: of one beyond the last, the last.
    function _correction(bytes calldata attributes, bytes calldata count) private pure returns (uint256) {
        int256 row = Operands.int64Of(Operands.load(count));
        int256 rows = int256(Operands.word(attributes, 1));
        if (row > rows) row = rows;
        if (row < 1) row = 1;
        return Operands.word(attributes, 0) + 16 * uint256(row - 1);
    }

    // ---- what it gives
    // --------------------------------------------------------------------------------------------

    /// @inheritdoc IOneStep
    function run(uint16 op, bytes calldata attributes, uint256 element, bytes[] calldata opened)
        external
        pure
        returns (bytes memory)
    {
        if (op == Op.STATE || op == Op.BASE || op == Op.MODEL || op == Op.TARGETS) return opened[0];
        if (op == Op.IDS) {
            int256 id = Operands.int32Of(Operands.load(opened[0]));
            return Operands.store(uint32(uint256(id < 0 ? ~id : id)), 4);
        }
        if (op == Op.TOKENS) return Operands.store(_token(attributes, Operands.load(opened[1])), 4);
        if (op == Op.COUNT) return Operands.store(uint64(Operands.load(opened[0]) + 1), 8);
        if (op == Op.COSINES || op == Op.SINES) return Operands.store(_big(opened[0]), 4);
        if (op == Op.EXPONENTS) return Operands.store(uint32(int32(int16(uint16(_big(opened[0]))))), 4);
        if (op == Op.RATE || op == Op.CORRECTIONS) return Operands.store(_big(opened[1]), 8);
        if (op == Op.GLOBAL_STEP) return Operands.store(uint64(_big(opened[0])), 8);
        if (op == Op.DROPOUT_KEY) {
            return Operands.store(uint32(BatchDraws.philoxKey("atoll.dropout.v1", opened[0]) >> (32 * element)), 4);
        }
        revert NoSuchOperation(op);
    }

    /// @return i32: the id, or −1 − id where the highest bit of a word says that it is no
    /// target
    function _token(bytes calldata attributes, uint256 word) private pure returns (uint256) {
        uint256 bit = 1 << (8 * Operands.word(attributes, 2) - 1);
        bool isNone = Operands.word(attributes, 3) == 1 && word & bit != 0;
        return uint32(isNone ? ~(word ^ bit) : word);
    }

    /// @return the number of 32 bytes or fewer, big-endian
    function _big(bytes calldata data) private pure returns (uint256) {
        return uint256(bytes32(data)) >> (256 - 8 * data.length);
    }
}
