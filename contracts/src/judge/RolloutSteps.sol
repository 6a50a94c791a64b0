// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {BatchDraws} from "./BatchDraws.sol";
import {Elementary} from "./Elementary.sol";
import {IOneStep, Need} from "./IOneStep.sol";
import {Op} from "./Op.sol";
import {Operands} from "./Operands.sol";
import {SoftFloat} from "./SoftFloat.sol";

/// @title Family 7: what a step samples, what that is worth, and how much it is learned.
/// @notice sdk/atoll/numerics/trace/rollout_operations.py has the same operations on whole tensors,
/// and opcodes.py their words and inputs. GENERATED is not here: it has no formula, and the game
/// goes on about one of its tokens in a trace that ends with TOKEN.
contract RolloutSteps is IOneStep {
    uint256 private constant TOKEN_BYTES = 16; // of a token: four words
    uint256 private constant CELL = 65; // bytes of a window: how many it has, and they
    uint256 private constant TEXT = 33; // words of a token's text in the data: how many bytes it has, and they
    uint256 private constant SUMS = 128; // of a piece: SAMPLE's levels
    uint256 private constant CONTEXT = 416; // bytes: of a token's trace its number stands behind
    uint256 private constant NUMBER_AT = 384;
    uint256 private constant SEED_TO_STEP = 128;
    uint256 private constant STEP_AT = 96;
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
        if (op == Op.PROMPT || op == Op.ANSWERS) return _rowNeed(op, attributes, element, opened);
        if (op == Op.SEQUENCE || op == Op.ROW || op == Op.DRAWN) {
            if (k == 0) return Need(1, 0, CONTEXT);
            return k == 1 ? _placeNeed(op, attributes, element, _number(opened[0])) : _nothing();
        }
        if (op == Op.SAMPLE) return _sampleNeed(attributes, opened);
        if (op == Op.TOKEN) return _tokenNeed(attributes, element, opened);
        if (op == Op.SUM_BELOW || op == Op.COUNT_INFINITE) {
            return k == 0 ? _blockNeed(attributes, element) : _nothing();
        }
        if (op == Op.CELLS) return _cellNeed(attributes, element, opened);
        if (op == Op.WINDOW) return _windowNeed(attributes, element, opened);
        if (op == Op.MATCH) {
            uint256 answer = 1 + Operands.word(attributes, 1);
            if (k == 0) return Need(0, CELL * element, CELL);
            return k == 1 ? Need(1, answer * (element / Operands.word(attributes, 0)), answer) : _nothing();
        }
        if (op == Op.REWARD) {
            return k == 0 || k == 1 && Operands.word(attributes, 3) == 1 ? Need(k, 8 * element, 8) : _nothing();
        }
        if (op == Op.SAMPLED_IDS) {
            if (k == 0) return Need(1, STEP_AT, 32);
            uint256 step = 4 * element / Operands.word(attributes, 0);
            return k == 1 && step < uint256(bytes32(opened[0])) ? Need(0, 4 * element, 4) : _nothing();
        }
        if (op != Op.ADVANTAGE) revert NoSuchOperation(op);
        uint256 sequence = Operands.iteration(attributes) * Operands.word(attributes, 0) + element;
        if (k == 0) return Need(0, 8 * sequence, 8);
        return k == 1 ? Need(1, 8 * (sequence / Operands.word(attributes, 1)), 8) : _nothing();
    }

    function _nothing() private pure returns (Need memory) {}

    /// @return n the token that the trace is about, of the step's batch
    function _number(bytes calldata context) private pure returns (uint256 n) {
        return uint256(bytes32(context[NUMBER_AT:CONTEXT]));
    }

    /// A word of the row that a sequence's prompt and answer have.
    function _rowNeed(uint256 op, bytes calldata attributes, uint256 element, bytes[] calldata opened)
        private
        pure
        returns (Need memory)
    {
        if (opened.length > 1) return _nothing();
        if (opened.length == 0) return Need(1, 0, op == Op.PROMPT ? CONTEXT : SEED_TO_STEP);
        (uint256 sequence, uint256 column) = op == Op.PROMPT
            ? (_number(opened[0]) / (Operands.word(attributes, 0) + 1), element)
            : _answerOf(attributes, element);
        uint256 row = BatchDraws.draw(opened[0], sequence / Operands.word(attributes, 1), Operands.word(attributes, 5));
        return _inRow(attributes, row, column);
    }

    /// @return sequence of a byte [b, 1 + A] of the micro-batch
    /// @return column of its row
    function _answerOf(bytes calldata attributes, uint256 element)
        private
        pure
        returns (uint256 sequence, uint256 column)
    {
        uint256 answer = 1 + Operands.word(attributes, 3);
        sequence = Operands.iteration(attributes) * Operands.word(attributes, 0) + element / answer;
        column = 1 + Operands.word(attributes, 2) + element % answer;
    }

    function _inRow(bytes calldata attributes, uint256 row, uint256 column) private pure returns (Need memory) {
        uint256 words = 2 + Operands.word(attributes, 2) + Operands.word(attributes, 3);
        uint256 width = Operands.word(attributes, 4);
        return Need(0, width * (row * words + column), width);
    }

    /// An element that the token's place says.
    function _placeNeed(uint256 op, bytes calldata attributes, uint256 element, uint256 n)
        private
        pure
        returns (Need memory)
    {
        uint256 first = Operands.word(attributes, 0);
        uint256 length = Operands.word(attributes, 1) + 1;
        uint256 place = n % length;
        if (op == Op.DRAWN) return Need(0, 8 * (first - 1), 8);
        if (op == Op.ROW) return Need(0, 4 * ((place == 0 ? 0 : place - 1) * first + element), 4);
        if (element >= place) return _nothing();
        return Need(0, TOKEN_BYTES * ((n - place + element) % (first * length)), 4);
    }

    /// The maximum; where it is finite u, the level of at most 128 sums whole, and of each level below
    /// the 128 sums among which u is.
    function _sampleNeed(bytes calldata attributes, bytes[] calldata opened) private pure returns (Need memory) {
        uint256 k = opened.length;
        if (k == 0) return Need(1, 0, 4);
        if (!_isFinite(opened[0])) return _nothing();
        if (k == 1) return Need(0, 0, 8);
        uint256 count = Operands.word(attributes, 0);
        uint256 top;
        for (uint256 above = count; above > SUMS; above = (above + SUMS - 1) / SUMS) {
            ++top;
        }
        if (k > top + 2) return _nothing();
        uint256 level = top + 2 - k;
        for (uint256 i; i < level; ++i) {
            count = (count + SUMS - 1) / SUMS;
        }
        uint256 start;
        if (k > 2) {
            (start,) = _sampled(opened);
            if (start == 0) return _nothing();
            start = SUMS * (start - 1);
        }
        return Need(2 + level, 8 * start, 8 * (count - start < SUMS ? count - start : SUMS));
    }

    function _isFinite(bytes calldata number) private pure returns (bool) {
        return (Operands.load(number) >> 23) & 0xff != 0xff;
    }

    /// @param opened maximum, u, and levels of sums from the top
    /// @return count how many sums of the level that was opened last are at most u
    /// @return largest the last of them; 0 where there is none
    function _sampled(bytes[] calldata opened) private pure returns (uint256 count, uint256 largest) {
        uint256 drawn = Operands.load(opened[1]);
        for (uint256 k = 2; k < opened.length; ++k) {
            if (k > 2) count = SUMS * (count - 1);
            (uint256 atMost, uint256 last) = _atMost(opened[k], drawn);
            (count, largest) = (count + atMost, last);
            if (count == 0) break;
        }
    }

    /// @return count of the i64, which ascend, that are at most this
    /// @return last the largest of them
    function _atMost(bytes calldata sums, uint256 most) private pure returns (uint256 count, uint256 last) {
        uint256 above = sums.length / 8;
        while (count < above) {
            uint256 middle = (count + above) / 2;
            if (_sum(sums, middle) <= most) count = middle + 1;
            else above = middle;
        }
        if (count != 0) last = _sum(sums, count - 1);
    }

    function _sum(bytes calldata sums, uint256 i) private pure returns (uint256) {
        return Operands.load(sums[8 * i:8 * i + 8]);
    }

    /// How long the prompt is, and then what the token follows from.
    function _tokenNeed(bytes calldata attributes, uint256 element, bytes[] calldata opened)
        private
        pure
        returns (Need memory)
    {
        uint256 k = opened.length;
        if (k == 0) return Need(3, 0, CONTEXT);
        if (k == 1) return Need(0, 0, 4);
        (uint256 n, uint256 place, uint256 length) = _placeOf(attributes, opened);
        if (place < length) return k == 2 ? Need(0, 4 * (1 + place), 4) : _nothing();
        if (place >= length + Operands.word(attributes, 3)) return _nothing();
        uint256 spot = 2;
        if (place > length) {
            uint256 tokens = Operands.word(attributes, 0) * (Operands.word(attributes, 1) + 1);
            if (k == 2) return Need(2, TOKEN_BYTES * ((n - 1) % tokens), 4);
            if (_isOver(attributes, opened[2])) return _nothing();
            spot = 3;
        }
        return k == spot ? Need(1, element == 0 ? 0 : 8, 8) : _nothing();
    }

    /// @return n the token; place in its sequence
    /// @return place of it
    /// @return length of the prompt
    function _placeOf(bytes calldata attributes, bytes[] calldata opened)
        private
        pure
        returns (uint256 n, uint256 place, uint256 length)
    {
        n = _number(opened[0]);
        return (n, n % (Operands.word(attributes, 1) + 1), Operands.load(opened[1]));
    }

    /// @param before the token before, i32
    /// @return whether it is none that was generated, or ends its sequence
    function _isOver(bytes calldata attributes, bytes calldata before) private pure returns (bool) {
        uint256 id = Operands.load(before);
        if (Operands.int32Of(id) < 0) return true;
        for (uint256 i = 4; 8 * (i + 1) < attributes.length; ++i) {
            if (Operands.word(attributes, i) == id) return true;
        }
        return false;
    }

    /// A block of B of a row's C tokens.
    function _blockNeed(bytes calldata attributes, uint256 element) private pure returns (Need memory) {
        uint256 columns = Operands.word(attributes, 0);
        uint256 block_ = Operands.word(attributes, 1);
        uint256 blocks = (columns + block_ - 1) / block_;
        uint256 start = (element % blocks) * block_;
        uint256 count = columns - start < block_ ? columns - start : block_;
        return Need(0, TOKEN_BYTES * ((element / blocks) * columns + start), TOKEN_BYTES * count);
    }

    /// The id; where it was generated the byte of its text.
    function _cellNeed(bytes calldata attributes, uint256 element, bytes[] calldata opened)
        private
        pure
        returns (Need memory)
    {
        if (opened.length == 0) return Need(0, 4 * (element / CELL), 4);
        uint256 id = Operands.load(opened[0]);
        if (opened.length > 1 || Operands.int32Of(id) < 0 || element % CELL >= TEXT) return _nothing();
        uint256 width = Operands.word(attributes, 1);
        return Need(1, width * (Operands.word(attributes, 0) + TEXT * id + element % CELL), width);
    }

    /// How many bytes the window has; where the byte is behind them, the same of the window d tokens
    /// later; the byte.
    function _windowNeed(bytes calldata attributes, uint256 element, bytes[] calldata opened)
        private
        pure
        returns (Need memory)
    {
        uint256 k = opened.length;
        uint256 spot = element % CELL;
        uint256 near = element - spot;
        if (k == 0) return Need(0, near, 1);
        uint256 own = uint8(opened[0][0]);
        uint256 columns = Operands.word(attributes, 0);
        bool isAlone = (element / CELL) % columns + Operands.word(attributes, 1) >= columns;
        if (spot == 0 ? isAlone : spot <= own || isAlone) {
            return k == 1 && spot != 0 ? Need(0, element, 1) : _nothing();
        }
        uint256 far = near + CELL * Operands.word(attributes, 1);
        if (k == 1) return Need(0, far, 1);
        if (k > 2 || spot == 0 || spot - own > uint8(opened[1][0])) return _nothing();
        return Need(0, far + spot - own, 1);
    }

    // ---- what is worked out
    // ---------------------------------------------------------------------------------------

    /// @inheritdoc IOneStep
    function run(uint16 op, bytes calldata attributes, uint256 element, bytes[] calldata opened)
        external
        pure
        returns (bytes memory)
    {
        if (op == Op.PROMPT) return Operands.store(uint32(Operands.load(opened[1])), 4);
        if (op == Op.ANSWERS) return Operands.store(uint8(Operands.load(opened[1])), 1);
        if (op == Op.CELLS) return Operands.store(opened.length == 1 ? 0 : uint8(Operands.load(opened[1])), 1);
        if (op == Op.WINDOW) return Operands.store(_window(element, opened), 1);
        if (op == Op.SAMPLED_IDS) return opened.length == 1 ? new bytes(4) : opened[1];
        if (op == Op.SEQUENCE) return Operands.store(opened.length == 1 ? 0 : _id(Operands.load(opened[1])), 4);
        if (op == Op.ROW) return opened[1];
        if (op == Op.TOKEN) return Operands.store(_token(attributes, element, opened), 4);
        if (op == Op.MATCH) return Operands.store(_isMatch(attributes, opened) ? 0 : type(uint32).max, 4);
        if (op == Op.ADVANTAGE) return Operands.store(_advantage(attributes, opened), 4);
        return Operands.store(uint64(_long(op, attributes, element, opened)), 8);
    }

    /// @return an i64
    function _long(uint256 op, bytes calldata attributes, uint256 element, bytes[] calldata opened)
        private
        pure
        returns (uint256)
    {
        if (op == Op.DRAWN) return _drawn(attributes, opened);
        if (op == Op.SAMPLE) {
            if (opened.length == 1) return element == 0 ? 0 : type(uint64).max;
            (uint256 id, uint256 below) = _sampled(opened);
            return element == 0 ? id : below;
        }
        if (op == Op.SUM_BELOW || op == Op.COUNT_INFINITE) return _summed(opened[0], op == Op.SUM_BELOW);
        if (op != Op.REWARD) revert NoSuchOperation(op);
        int256 count = Operands.int64Of(Operands.load(opened[0]));
        bool isFulfilled =
            count >= int256(Operands.word(attributes, 1)) && count <= int256(Operands.word(attributes, 2));
        unchecked {
            uint256 before = opened.length == 1 ? 0 : Operands.load(opened[1]);
            return before + (isFulfilled ? Operands.word(attributes, 0) : 0);
        }
    }

    /// @param signed −1 − id where none was generated
    function _id(uint256 signed) private pure returns (uint256) {
        return uint32(Operands.int32Of(signed) < 0 ? ~signed : signed);
    }

    /// @return a word of the token: of a prompt's or none the id alone
    function _token(bytes calldata attributes, uint256 element, bytes[] calldata opened)
        private
        pure
        returns (uint256)
    {
        (, uint256 place, uint256 length) = _placeOf(attributes, opened);
        uint256 last = opened.length - 1;
        if (place < length) return element == 0 ? uint32(~Operands.load(opened[2])) : 0;
        bool isSampled = opened[last].length == 8;
        if (!isSampled) return element == 0 ? type(uint32).max : 0;
        uint256 number = Operands.load(opened[last]);
        if (element == 1) return 0;
        return uint32(element == 3 ? number >> 32 : number);
    }

    /// @param opened the context; the sum of all weights, below 2^64
    /// @return ⌊word · sum / 2^64⌋
    function _drawn(bytes calldata attributes, bytes[] calldata opened) private pure returns (uint256) {
        uint256 n = _number(opened[0]);
        uint256 length = Operands.word(attributes, 1) + 1;
        uint256 row = n % length == 0 ? 0 : n % length - 1;
        uint256 step = uint32(uint256(bytes32(opened[0][GLOBAL_STEP_AT:GLOBAL_STEP_AT + 32])));
        uint256 counter = row | (n / length) << 32 | step << 64 | 1 << 96;
        uint256 words = Elementary.philox4x32(counter, BatchDraws.philoxKey("atoll.sample.v1", opened[0]));
        uint256 word = uint256(uint32(words)) << 32 | uint32(words >> 32);
        return (word * Operands.load(opened[1])) >> 64;
    }

    /// @return total of the weights below of tokens, or how many are not finite
    function _summed(bytes calldata tokens, bool isSum) private pure returns (uint256 total) {
        unchecked {
            for (uint256 spot = 8; spot < tokens.length; spot += TOKEN_BYTES) {
                uint256 below = Operands.load(tokens[spot:spot + 8]);
                bool isNotFinite = below == type(uint64).max;
                if (isSum == !isNotFinite) total += isSum ? below : 1;
            }
        }
    }

    function _window(uint256 element, bytes[] calldata opened) private pure returns (uint256) {
        uint256 last = uint8(opened[opened.length - 1][0]);
        if (element % CELL != 0) return opened.length == 2 && _isBehind(element, opened) ? 0 : last;
        if (opened.length == 1) return last;
        uint256 both = uint8(opened[0][0]) + last;
        return both < CELL - 1 ? both : CELL - 1;
    }

    /// @return whether what was opened second is the number of the later window's bytes, which end
    /// before
    function _isBehind(uint256 element, bytes[] calldata opened) private pure returns (bool) {
        return element % CELL > uint8(opened[0][0]);
    }

    function _isMatch(bytes calldata attributes, bytes[] calldata opened) private pure returns (bool) {
        bytes calldata tail = attributes[32:];
        uint256 opening = Operands.word(attributes, 2);
        bytes memory wanted = abi.encodePacked(tail[:opening], opened[1][1:1 + uint8(opened[1][0])], tail[opening:]);
        if (wanted.length > uint8(opened[0][0])) return false;
        return keccak256(wanted) == keccak256(opened[0][1:1 + wanted.length]);
    }

    /// @param opened a sequence's reward, and the sum of its group's
    function _advantage(bytes calldata attributes, bytes[] calldata opened) private pure returns (uint256) {
        uint256 group = SoftFloat.fromIntTo64(int256(Operands.word(attributes, 1)));
        uint256 reward = SoftFloat.fromIntTo64(Operands.int64Of(Operands.load(opened[0])));
        uint256 sum = SoftFloat.fromIntTo64(Operands.int64Of(Operands.load(opened[1])));
        uint256 wide = SoftFloat.sub64(SoftFloat.mul64(reward, group), sum);
        uint256 advantage = SoftFloat.narrow(SoftFloat.mul64(wide, Operands.word(attributes, 2)));
        return SoftFloat.narrow(SoftFloat.mul64(SoftFloat.widen(advantage), Operands.word(attributes, 3)));
    }
}
