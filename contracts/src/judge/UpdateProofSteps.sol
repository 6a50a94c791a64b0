// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {Formulas} from "./Formulas.sol";
import {IOneStep, Need} from "./IOneStep.sol";
import {Lanes} from "./Lanes.sol";
import {Op} from "./Op.sol";
import {Operands} from "./Operands.sol";
import {SoftFloat} from "./SoftFloat.sol";

/// @title Family 6: an update's bytes from the round's model and the last state (SPEC-MERGE.md, 2).
/// @notice sdk/atoll/numerics/trace/update_proofs.py has the same operations on whole tensors, and
/// opcodes.py their words and inputs. An element of what is bytes is a byte, so one of GRID4,
/// PACK_STEPS and CODES has several codes, and one of KEPT eight flags.
contract UpdateProofSteps is IOneStep {
    uint256 private constant CHUNK = 4096; // values of which so many are kept
    uint256 private constant KEPT_OF_A_CHUNK = 224;
    uint256 private constant COUNT_BYTES = 60; // of a whole chunk: 224 ones and 256 zeros
    uint256 private constant QUARTERS = 4; // of a chunk
    uint256 private constant QUARTER = 1024;
    uint256 private constant NOISE = 32; // values whose noise is one hash
    uint256 private constant PIECE = 1 << 16; // values with one key of noise
    uint256 private constant SEED_AND_SEAT = 64; // bytes of the context
    uint256 private constant MAGNITUDE = 0x7fffffff;
    uint256 private constant HALF = 0x3f000000;
    uint256 private constant ONE = 0x3f800000;
    bytes private constant STEPS = hex"01020405070a0e141c";

    uint256 private constant BLOCK = 64; // values that are transformed together
    uint256 private constant FINE_BITS = 8; // of a grid step's parts
    int256 private constant FINE_LIMIT = 2047 * 256;
    uint256 private constant FINE_LIMIT32 = 0x44ffe000; // 2047
    uint256 private constant FROM_PRODUCT = (127 - 14 - FINE_BITS) << 23; // 2^-22
    // Of 0 to 63 of a turn's 256 parts the cosine in units of 2^-14, times √(1/32), 2 bytes each;
    // the first, which the matrix has in row 0 alone, is what that row consists of, 2^14 · √(1/64).
    bytes private constant COSINES = hex"08000b4f0b4d0b480b420b3b0b310b260b190b0a0afa0ae70ad40abe0aa70a8e"
        hex"0a740a580a3a0a1b09fa09d809b4098f09680940091608eb08bf089108620832"
        hex"080007cd07990764072d06f606bd06840649060e05d105940555051604d60496"
        hex"0454041203d0038d0349030402c0027b023501ef01a90163011c00d5008e0047";

    // ---- what is opened
    // -------------------------------------------------------------------------------------------

    /// @inheritdoc IOneStep
    function need(uint16 op, bytes calldata attributes, uint256 element, bytes[] calldata opened)
        external
        pure
        returns (Need memory)
    {
        uint256 k = opened.length;
        if (op == Op.SCALED && k == 1) return Need(1, 4 * Operands.word(attributes, 0), 4);
        if (op == Op.DIFFERENCE || op == Op.FP32) return Operands.position(Formulas.linkReads(op), k, element, 0);
        if (op == Op.RESIDUAL) return _residualNeed(attributes, element, k, 1);
        if (op == Op.RESIDUAL_FINE) return _residualNeed(attributes, element, k, 4);
        if (op == Op.SAID) return _saidNeed(attributes, element, k);
        if (op == Op.CODES && k > 0) return _codeNeed(attributes, element, k);
        if (op == Op.CHOSEN && k == 1) return _chosenNeed(attributes, element, opened[0]);
        if (op == Op.SPREAD && k == 1) return _spreadNeed(attributes, element, opened[0]);
        if (op == Op.COUNT_BEFORE) return _quarterNeed(attributes, element, k);
        if (k > 0) return Need(0, 0, 0);
        if (op == Op.SCALED || op == Op.GRID8) return Need(0, 4 * element, 4);
        if (op == Op.GRID4) return _some(8, element, 4 * Operands.word(attributes, 0));
        if (op == Op.BLOCK_STEPS) {
            return _some(4 * Operands.word(attributes, 3), element, 4 * Operands.word(attributes, 0));
        }
        if (op == Op.PACK_STEPS) return _some(2, element, Operands.word(attributes, 0));
        if (op == Op.CODES) return _some(4 * _perByte(attributes), element, 4 * Operands.word(attributes, 0));
        if (op == Op.UPDATE_HEADER) {
            uint256 fixed_ = attributes.length - 8;
            return element < fixed_ ? Need(0, 0, 0) : Need(0, (element - fixed_) / 2 * 4, 4);
        }
        if (op == Op.UPDATE) return _partNeed(attributes, element);
        if (op == Op.DCT) return _some(4 * BLOCK, element / BLOCK, 4 * Operands.word(attributes, 0));
        if (op == Op.INVERSE_DCT) return Need(0, element - element % BLOCK, BLOCK);
        if (op == Op.KEPT) return _some(64, element, 8 * Operands.word(attributes, 0));
        return _some(CHUNK / 8, _chunkOf(op, element), (Operands.word(attributes, 0) + 7) / 8);
    }

    /// A value, and then the quarter of its chunk in which those before it are counted; nothing
    /// where that has no values.
    function _quarterNeed(bytes calldata attributes, uint256 element, uint256 k) private pure returns (Need memory) {
        uint256 value = element / QUARTERS;
        uint256 first = value - value % CHUNK + element % QUARTERS * QUARTER;
        uint256 count = Operands.word(attributes, 0);
        if (k == 2 || first >= count) return Need(0, 0, 0);
        if (k == 0) return Need(0, 4 * value, 4);
        return Need(0, 4 * first, 4 * (count - first < QUARTER ? count - first : QUARTER));
    }

    /// @return length values of a chunk
    /// @return most how many of them are kept: 7/128, rounded up
    function _chunk(bytes calldata attributes, uint256 chunk) private pure returns (uint256 length, uint256 most) {
        length = Operands.word(attributes, 0) - chunk * CHUNK;
        if (length > CHUNK) length = CHUNK;
        most = (length * KEPT_OF_A_CHUNK + CHUNK - 1) / CHUNK;
    }

    /// The chunk whose flags an element is of.
    function _chunkOf(uint256 op, uint256 element) private pure returns (uint256) {
        if (op == Op.CHOSEN) return element / KEPT_OF_A_CHUNK;
        if (op == Op.LOWER_BITS) return 2 * element / KEPT_OF_A_CHUNK;
        if (op == Op.COUNTS) return element / COUNT_BYTES;
        if (op == Op.SPREAD) return element / CHUNK;
        revert NoSuchOperation(op);
    }

    /// The value that is kept; nothing where that many are not.
    function _chosenNeed(bytes calldata attributes, uint256 element, bytes calldata flags)
        private
        pure
        returns (Need memory)
    {
        uint256 chunk = element / KEPT_OF_A_CHUNK;
        (uint256 length,) = _chunk(attributes, chunk);
        uint256 position = Lanes.positionOf(flags, length, element % KEPT_OF_A_CHUNK);
        return position == length ? Need(0, 0, 0) : Need(1, 4 * (chunk * CHUNK + position), 4);
    }

    /// What is said of a value that is kept.
    function _spreadNeed(bytes calldata attributes, uint256 element, bytes calldata flags)
        private
        pure
        returns (Need memory)
    {
        (, uint256 most) = _chunk(attributes, element / CHUNK);
        uint256 position = element % CHUNK;
        uint256 before = Lanes.countSet(flags, position);
        if (uint8(flags[position / 8]) >> (position % 8) & 1 == 0 || before >= most) return Need(0, 0, 0);
        return Need(1, element / CHUNK * KEPT_OF_A_CHUNK + before, 1);
    }

    /// What element number `element` has of an input that elements share out, `each` bytes apiece.
    function _some(uint256 each, uint256 element, uint256 size) private pure returns (Need memory) {
        uint256 left = size - each * element;
        return Need(0, each * element, left < each ? left : each);
    }

    /// Behind the values of a byte: the index of their block's step, and whose noise it is.
    function _codeNeed(bytes calldata attributes, uint256 element, uint256 k) private pure returns (Need memory) {
        if (k == 1) return Need(1, element * _perByte(attributes) / Operands.word(attributes, 4), 1);
        bool isDithered = Operands.word(attributes, 2) != 0;
        return k == 2 && isDithered ? Need(2, 0, SEED_AND_SEAT) : Need(0, 0, 0);
    }

    /// The byte that has the value's code; then as of a byte of codes.
    function _saidNeed(bytes calldata attributes, uint256 element, uint256 k) private pure returns (Need memory) {
        uint256 levels = Operands.word(attributes, 1);
        if (k == 0) return Need(0, element / _codesPerByte(levels), 1);
        if (levels == 0) return Need(0, 0, 0);
        if (k == 1) return Need(1, element / Operands.word(attributes, 4), 1);
        return k == 2 && Operands.word(attributes, 2) != 0 ? Need(2, 0, SEED_AND_SEAT) : Need(0, 0, 0);
    }

    /// @param width bytes of a number that was said
    function _residualNeed(bytes calldata attributes, uint256 element, uint256 k, uint256 width)
        private
        pure
        returns (Need memory)
    {
        if (k == 0) return Need(0, 4 * element, 4);
        if (k == 1) return Need(1, width * (Operands.word(attributes, 1) + element), width);
        return k == 2 ? Need(2, 4 * Operands.word(attributes, 0), 4) : Need(0, 0, 0);
    }

    function _codesPerByte(uint256 levels) private pure returns (uint256) {
        if (levels == 0) return 2; // of GRID4
        return levels == 1 ? 8 : 4;
    }

    /// Of an update's byte the input's; nothing of a zero behind one.
    function _partNeed(bytes calldata attributes, uint256 element) private pure returns (Need memory) {
        for (uint256 input;; ++input) {
            uint256 size = Operands.word(attributes, 2 * input);
            if (element < size) return Need(input, element, 1);
            uint256 filled = size + Operands.word(attributes, 2 * input + 1);
            if (element < filled) return Need(0, 0, 0);
            element -= filled;
        }
        revert();
    }

    function _perByte(bytes calldata attributes) private pure returns (uint256) {
        return _codesPerByte(Operands.word(attributes, 1));
    }

    // ---- what it gives
    // --------------------------------------------------------------------------------------------

    /// @inheritdoc IOneStep
    function run(uint16 op, bytes calldata attributes, uint256 element, bytes[] calldata opened)
        external
        pure
        returns (bytes memory)
    {
        if (op == Op.SCALED) return Operands.store(_inSteps(Operands.load(opened[0]), opened[1]), 4);
        if (op == Op.DIFFERENCE || op == Op.FP32) {
            return Operands.store(Formulas.linkValue(op, Operands.loadAll(opened)), 4);
        }
        if (op == Op.GRID8) return Operands.store(uint8(int8(_onGrid(Operands.load(opened[0]), 127))), 1);
        if (op == Op.GRID4) return Operands.store(_pair(opened[0]), 1);
        if (op == Op.BLOCK_STEPS) return Operands.store(_blockStep(attributes, opened[0]), 1);
        if (op == Op.PACK_STEPS) {
            uint256 second = opened[0].length > 1 ? uint8(opened[0][1]) : 0;
            return Operands.store(uint8(opened[0][0]) | second << 4, 1);
        }
        if (op == Op.SAID) return Operands.store(uint8(int8(_said(attributes, element, opened))), 1);
        if (op == Op.RESIDUAL) return Operands.store(_residual(opened, int8(uint8(opened[1][0])), 0), 4);
        if (op == Op.RESIDUAL_FINE) {
            return Operands.store(_residual(opened, Operands.int32Of(Operands.load(opened[1])), FINE_BITS), 4);
        }
        if (op == Op.DCT) return Operands.store(_coefficient(element % BLOCK, opened[0]), 4);
        if (op == Op.INVERSE_DCT) return Operands.store(_coordinate(element % BLOCK, opened[0]), 4);
        if (op == Op.CODES) return Operands.store(_codes(attributes, element, opened), 1);
        if (op == Op.UPDATE_HEADER) return Operands.store(_headerByte(attributes, element, opened), 1);
        if (op == Op.UPDATE) return opened.length == 0 ? new bytes(1) : bytes(opened[0]);
        if (op == Op.COUNT_BEFORE) return Operands.store(_countBefore(element, opened), 2);
        if (op == Op.KEPT) return Operands.store(_kept(attributes, element, opened[0]), 1);
        if (op == Op.CHOSEN) return opened.length == 2 ? bytes(opened[1]) : new bytes(4);
        if (op == Op.SPREAD) return opened.length == 2 ? bytes(opened[1]) : new bytes(1);
        if (op == Op.LOWER_BITS) return Operands.store(_lowerBits(attributes, element, opened[0]), 1);
        if (op == Op.COUNTS) return Operands.store(_counts(attributes, element, opened[0]), 1);
        revert NoSuchOperation(op);
    }

    /// @param exponent of a grid, −64 to 64: its power of two is normal
    function _inSteps(uint256 x, bytes calldata exponent) private pure returns (uint256) {
        int256 e = Operands.int32Of(Operands.load(exponent));
        return SoftFloat.mul32(x, uint256(127 - e) << 23);
    }

    function _onGrid(uint256 x, int256 limit) private pure returns (int256 rounded) {
        rounded = SoftFloat.rint32ToInt(x);
        if (rounded > limit) return limit;
        if (rounded < -limit) return -limit;
    }

    function _pair(bytes calldata values) private pure returns (uint256 codes) {
        for (uint256 i = 0; i < values.length; i += 4) {
            codes |= uint256(_onGrid(Operands.load(values[i:i + 4]), 7) + 7) << i;
        }
    }

    /// @dev Magnitudes are compared as integers: those of numbers of binary32 have their order.
    function _blockStep(bytes calldata attributes, bytes calldata values) private pure returns (uint256 index) {
        uint256 reach = Operands.word(attributes, 1);
        uint256 exceptions = values.length / 4 / Operands.word(attributes, 2);
        uint256 most = Lanes.maxAbs(values);
        for (; index < STEPS.length - 1; ++index) {
            int256 steps = int256(reach * uint8(STEPS[index]));
            if (most > SoftFloat.fromInt32(2 * steps)) continue;
            if (Lanes.countFrom(values, SoftFloat.fromInt32(steps) + 1) <= exceptions) return index;
        }
    }

    function _codes(bytes calldata attributes, uint256 element, bytes[] calldata opened)
        private
        pure
        returns (uint256 codes)
    {
        uint256 levels = Operands.word(attributes, 1);
        uint256 step = uint8(STEPS[uint8(opened[1][0])]);
        uint256 divisor = SoftFloat.fromInt32(int256(step));
        bytes32 noise;
        if (opened.length > 2) noise = _noise(opened[2], uint8(Operands.word(attributes, 3)), element * 4);
        for (uint256 i = 0; i < opened[0].length / 4; ++i) {
            uint256 x = Operands.load(opened[0][4 * i:4 * i + 4]);
            if (opened.length > 2) {
                uint256 drawn = uint8(noise[(4 * element + i) % NOISE]);
                x = SoftFloat.add32(x, SoftFloat.fromInt32(_dither(drawn, step)));
            }
            codes |= _code(SoftFloat.div32(x, divisor), levels) << (i * levels);
        }
    }

    /// @return value in steps of the grid, less the dither
    function _said(bytes calldata attributes, uint256 element, bytes[] calldata opened)
        private
        pure
        returns (int256 value)
    {
        uint256 levels = Operands.word(attributes, 1);
        uint256 perByte = _codesPerByte(levels);
        uint256 width = 8 / perByte;
        uint256 code = uint8(opened[0][0]) >> (element % perByte * width) & ((1 << width) - 1);
        if (levels == 0) return int256(code) - 7;
        uint256 step = uint8(STEPS[uint8(opened[1][0])]);
        value = (2 * int256(code) - int256(2 * levels - 1)) * int256(step);
        if (opened.length == 2) return value;
        bytes32 noise = _noise(opened[2], uint8(Operands.word(attributes, 3)), element);
        value -= _dither(uint8(noise[element % NOISE]), step);
    }

    /// @param told in steps of the grid divided by 2^bits
    /// @return what the codes lack of a value: the exponents are a grid's, −64 to 64
    function _residual(bytes[] calldata opened, int256 told, uint256 bits) private pure returns (uint256) {
        int256 e = Operands.int32Of(Operands.load(opened[2])) - int256(bits);
        uint256 said = SoftFloat.mul32(SoftFloat.fromInt32(told), uint256(127 + e) << 23);
        return SoftFloat.sub32(Operands.load(opened[0]), said);
    }

    /// @return coefficient number k of a block, whose values behind the last are 0
    function _coefficient(uint256 k, bytes calldata values) private pure returns (uint256) {
        bytes memory cosines = COSINES;
        int256 sum = 0; // below 2^37
        unchecked {
            for (uint256 i = 0; i < values.length / 4; ++i) {
                sum += _cosine(cosines, (2 * i + 1) * k) * _fine(Operands.load(values[4 * i:4 * i + 4]));
            }
        }
        return SoftFloat.mul32(SoftFloat.fromInt32(sum), FROM_PRODUCT);
    }

    /// @return rounded 256ths of a grid step, half to even, at most 2047 steps of them
    function _fine(uint256 x) private pure returns (int256 rounded) {
        uint256 magnitude = x & MAGNITUDE;
        // A subnormal number becomes another one that is far below a half.
        if (magnitude < FINE_LIMIT32) return SoftFloat.rint32ToInt(x + (FINE_BITS << 23));
        if (magnitude <= SoftFloat.INF32) rounded = x == magnitude ? FINE_LIMIT : -FINE_LIMIT;
    }

    /// @return value number i of a block in 256ths of a grid step, an i32, from its coefficients in
    /// steps; halves up
    function _coordinate(uint256 i, bytes calldata coefficients) private pure returns (uint256) {
        bytes memory cosines = COSINES;
        int256 sum = 0; // in units of 2^-14 of a step
        unchecked {
            for (uint256 k = 0; k < BLOCK; ++k) {
                sum += _cosine(cosines, (2 * i + 1) * k) * int8(uint8(coefficients[k]));
            }
        }
        return uint32(int32((sum + 32) >> 6));
    }

    /// @param parts of a turn's 256: not a quarter, a half or three, which no entry of the matrix
    /// has
    /// @return entry of the matrix
    function _cosine(bytes memory cosines, uint256 parts) private pure returns (int256 entry) {
        unchecked {
            parts &= 255;
            if (parts > 128) parts = 256 - parts;
            uint256 position = parts < 64 ? parts : 128 - parts;
            entry = int256(uint256(uint8(cosines[2 * position])) << 8 | uint8(cosines[2 * position + 1]));
            if (parts > 64) entry = -entry;
        }
    }

    /// The noise of the 32 values about one, of a section of a seat's update (SPEC-MERGE.md, 2).
    function _noise(bytes calldata context, uint8 section, uint256 value) private pure returns (bytes32) {
        bytes32 key = keccak256(abi.encodePacked(context[0:32], context[62:64], section, uint32(value / PIECE)));
        return keccak256(abi.encodePacked(key, uint32(value % PIECE / NOISE)));
    }

    /// @return round(step · ((2b + 1)/256 − 1)), halves up
    function _dither(uint256 drawn, uint256 step) private pure returns (int256) {
        return int256(((2 * drawn + 1) * step + 128) >> 8) - int256(step);
    }

    /// @return code how many of the borders between the levels are not above x, in steps: of one
    /// level 0, of two −2, 0, 2
    function _code(uint256 x, uint256 levels) private pure returns (uint256 code) {
        uint256 half = SoftFloat.mul32(x, HALF); // which may round, so the borders are those of the half
        if (SoftFloat.lessEqual32(0, half)) ++code;
        if (levels == 1) return code;
        if (SoftFloat.lessEqual32(ONE | 1 << 31, half)) ++code;
        if (SoftFloat.lessEqual32(ONE, half)) ++code;
    }

    /// @return how many values of a quarter come before one: those of larger magnitude, and of the
    /// same those to its left
    function _countBefore(uint256 element, bytes[] calldata opened) private pure returns (uint256) {
        if (opened.length == 0) return 0;
        uint256 magnitude = Operands.load(opened[0]) & MAGNITUDE;
        uint256 position = element / QUARTERS % CHUNK;
        uint256 first = element % QUARTERS * QUARTER;
        uint256 left = position < first ? 0 : 4 * (position - first);
        if (left > opened[1].length) left = opened[1].length;
        return Lanes.countFrom(opened[1][:left], magnitude) + Lanes.countFrom(opened[1][left:], magnitude + 1);
    }

    /// @param numbers for each of up to eight values how many of every quarter come before it
    /// @return flags 1 where these are fewer than are kept of the chunk
    function _kept(bytes calldata attributes, uint256 element, bytes calldata numbers)
        private
        pure
        returns (uint256 flags)
    {
        (, uint256 most) = _chunk(attributes, 8 * element / CHUNK);
        for (uint256 i = 0; i < numbers.length; i += 8) {
            uint256 four = Operands.load(numbers[i:i + 8]);
            uint256 rank = uint16(four) + (four >> 16 & 0xffff) + (four >> 32 & 0xffff) + (four >> 48);
            if (rank < most) flags |= 1 << (i / 8);
        }
    }

    /// @return bits the positions of two kept values modulo 16; of an odd number the last has none
    /// behind it
    function _lowerBits(bytes calldata attributes, uint256 element, bytes calldata flags)
        private
        pure
        returns (uint256 bits)
    {
        (uint256 length, uint256 most) = _chunk(attributes, _chunkOf(Op.LOWER_BITS, element));
        uint256 number = 2 * element % KEPT_OF_A_CHUNK;
        for (uint256 i = 0; i < 2 && number + i < most; ++i) {
            uint256 position = Lanes.positionOf(flags, length, number + i);
            if (position < length) bits |= position % 16 << 4 * i;
        }
    }

    /// @return eight bits of a chunk's counts: for every 16 positions a 1 for each that is kept,
    /// then a 0
    function _counts(bytes calldata attributes, uint256 element, bytes calldata flags) private pure returns (uint256) {
        (uint256 length, uint256 most) = _chunk(attributes, _chunkOf(Op.COUNTS, element));
        return Lanes.unary(flags, length, most, 8 * (element % COUNT_BYTES));
    }

    function _headerByte(bytes calldata attributes, uint256 element, bytes[] calldata opened)
        private
        pure
        returns (uint256)
    {
        uint256 fixed_ = attributes.length - 8;
        if (element < fixed_) return uint8(attributes[8 + element]);
        uint256 exponent = uint16(Operands.load(opened[0]));
        return (element - fixed_) % 2 == 0 ? exponent >> 8 : exponent & 0xff;
    }
}
