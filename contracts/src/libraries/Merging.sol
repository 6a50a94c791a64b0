// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {Bits} from "./Bits.sol";
import {MergeShape, MergeShapes} from "./MergeShapes.sol";

/// Whose row is read, as its codes need it.
struct Row {
    bytes32 dataSeed;
    uint256 seat;
    uint256 section;
}

/// @title One coordinate of a merge: SPEC-MERGE.md, 3 and 4.
library Merging {
    using Bits for uint256;

    int256 internal constant NONE = type(int256).min; // what no canonical byte says
    int256 private constant LIMIT = 127;
    uint256 private constant MEDIAN = 2; // rules
    uint256 private constant TRIMMED_MEAN = 3;
    bytes32 private constant STEPS = hex"01020405070a0e141c";
    uint256 private constant STEP_COUNT = 9;
    uint256 private constant NOISE = 32; // values whose noise is one hash
    uint256 private constant CHUNK = 1 << 16; // values with one key of noise
    uint256 private constant FINE_BITS = 4; // of a merged coordinate of grid4
    uint256 private constant INFINITY = 0x7f800000;
    uint256 private constant MOST = 0x5f800000; // 2^64
    uint256 private constant TIMES_16 = 4 << 23;

    // --- what an update says ---

    /// @return value of a coordinate, an integer; NONE where it is not canonical
    function valueOf(uint256 codec, uint256 index, uint8 step, uint8 code, Row memory row)
        internal
        pure
        returns (int256 value)
    {
        if (codec == MergeShapes.GRID8) return int8(code) == -128 ? NONE : int256(int8(code));
        if (codec == MergeShapes.GRID4) {
            uint256 four = code >> (4 * (index & 1)) & 15;
            return four == 15 ? NONE : int256(four) - 7;
        }
        uint256 number = step >> (4 * (index / 32 & 1)) & 15;
        if (number >= STEP_COUNT) return NONE;
        int256 s = int256(uint256(uint8(STEPS[number])));
        if (codec != MergeShapes.TWO_BIT) return (2 * int256(uint256(code >> (index & 7) & 1)) - 1) * s;
        return (2 * int256(uint256(code >> (2 * (index & 3)) & 3)) - 3) * s - _dither(index, s, row);
    }

    function _dither(uint256 index, int256 step, Row memory row) private pure returns (int256) {
        bytes32 key =
            keccak256(abi.encodePacked(row.dataSeed, uint16(row.seat), uint8(row.section), uint32(index / CHUNK)));
        bytes32 noise = keccak256(abi.encodePacked(key, uint32(index % CHUNK / NOISE)));
        int256 drawn = int256(uint256(uint8(noise[index % NOISE])));
        return (((2 * drawn + 1) * step + 128) >> 8) - step;
    }

    // --- the rule ---

    /// @param rows values, in ascending order of seat
    /// @param seats whose they are
    /// @param groups of each row the seats that are mixed in its place, a word each
    /// @return merged the rounded value; NONE where the groups are none
    function merge(
        MergeShape memory shape,
        uint256 section,
        int256[] memory rows,
        uint256 seats,
        uint256 f,
        bytes calldata groups
    ) internal pure returns (int256 merged) {
        uint256 n = rows.length;
        uint256 size = shape.mixes && n > 2 ? n - f : 1;
        int256[] memory mixes = _mixed(rows, seats, size, groups);
        if (mixes.length != n) return NONE;
        uint256 cut = 0;
        if (n > 2 && shape.rule == MEDIAN) cut = (n - 1) / 2;
        if (n > 2 && shape.rule == TRIMMED_MEAN) cut = f;
        if (cut != 0) _sort(mixes);
        int256 sum = 0;
        for (uint256 i = cut; i < n - cut; i++) {
            sum += mixes[i];
        }
        uint256 fine = section == 0 && shape.codec == MergeShapes.GRID4 ? FINE_BITS : 0;
        return _rounded(sum << fine, int256(size * (n - 2 * cut)));
    }

    /// @param size of each group
    /// @return mixes nothing where a group is of another size, of other seats, or without mixing
    /// another's
    function _mixed(int256[] memory rows, uint256 seats, uint256 size, bytes calldata groups)
        private
        pure
        returns (int256[] memory mixes)
    {
        uint256 n = rows.length;
        uint256[] memory marks = new uint256[](n);
        for (uint256 i = 0; i < n; (i++, seats &= seats - 1)) {
            marks[i] = seats & (~seats + 1);
        }
        uint256 all;
        for (uint256 i = 0; i < n; i++) {
            all |= marks[i];
        }
        mixes = new int256[](n);
        for (uint256 i = 0; i < n; i++) {
            uint256 group = uint256(bytes32(groups[32 * i:]));
            bool isOne = size == 1 ? group == marks[i] : group & ~all == 0 && group.popcount() == size;
            if (!isOne) return new int256[](0);
            mixes[i] = size == 1 ? rows[i] : _sumOf(rows, marks, group);
        }
    }

    function _sumOf(int256[] memory rows, uint256[] memory marks, uint256 group) private pure returns (int256 sum) {
        assembly ("memory-safe") {
            let end := add(rows, shl(5, add(mload(rows), 1)))
            let mark := add(marks, 32)
            for { let row := add(rows, 32) } lt(row, end) { row := add(row, 32) } {
                if and(group, mload(mark)) { sum := add(sum, mload(row)) }
                mark := add(mark, 32)
            }
        }
    }

    function _sort(int256[] memory values) private pure {
        unchecked {
            for (uint256 i = 1; i < values.length; i++) {
                int256 value = values[i];
                uint256 j = i;
                for (; j > 0 && values[j - 1] > value; j--) {
                    values[j] = values[j - 1];
                }
                values[j] = value;
            }
        }
    }

    /// @return quotient half to even, within ±127
    function _rounded(int256 a, int256 b) private pure returns (int256 quotient) {
        int256 magnitude = a < 0 ? -a : a;
        quotient = (2 * magnitude + b) / (2 * b);
        if ((2 * magnitude + b) % (2 * b) == 0 && quotient & 1 == 1) quotient--;
        if (quotient > LIMIT) quotient = LIMIT;
        if (a < 0) quotient = -quotient;
    }

    // --- factored second moments ---

    /// @return whether a word is a number that such a moment can be
    function isMoment(int256 word) internal pure returns (bool) {
        return word >= 0 && word < int256(INFINITY);
    }

    /// @notice Whether a merged number may be what the rule gives of these.
    /// @dev Words of binary32 that are not negative have the order of their numbers. What it is cut
    /// off at follows from seats' largest numbers, which are not here: at least 16 times the lower
    /// median of these.
    function isMomentOf(int256[] memory words, int256 merged, uint256 f) internal pure returns (bool) {
        _sort(words);
        uint256 n = words.length;
        uint256 dropped = n >= 3 && f == 0 ? 1 : f;
        int256 most = words[n - 1 - dropped];
        int256 least = words[(n - 1) / 2];
        if (least >> 23 != 0) least += int256(TIMES_16); // of a subnormal number itself is little enough
        if (least > int256(MOST)) least = int256(MOST);
        if (most > int256(MOST)) most = int256(MOST);
        if (least > most) least = most;
        return least <= merged && merged <= most;
    }
}
