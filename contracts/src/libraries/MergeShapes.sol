// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

/// How a job's updates are merged in a round, and how many numbers they have.
struct MergeShape {
    uint256 rule; // 0: a merge has no statement; else 1 mean, 2 median, 3 trimmed mean
    bool mixes; // nearest neighbours before the rule
    uint256 codec; // its number in an update's header
    uint256 tensors; // that are sent
    uint256 values; // of theirs
    uint256 momentTensors; // with a first moment; 0 where updates tell none
    uint256 momentValues;
    uint256 factoredBytes; // of factored second moments; 0 where updates tell none
    uint256 sampledBytes; // of ids
    int256 low; // bounds of exponents
    int256 high;
}

/// Where in an update the number at a coordinate lies.
struct Place {
    uint256 step; // byte of the step of its block; of other codecs as `code`
    uint256 code; // byte of its code, or the first of its value
    uint256 size; // bytes of the whole update
}

/// @title The last leaf of a program (`protocol/merge_shape.py`), and what SPEC-MERGE.md, 2 and 9, says
/// of the lengths of updates and of merged updates.
library MergeShapes {
    uint256 internal constant GRID8 = 0;
    uint256 internal constant GRID4 = 1;
    uint256 internal constant TWO_BIT = 2;
    uint256 internal constant FACTORED = 2; // the section
    uint256 internal constant PIECE = 1024;
    uint256 private constant FIXED = 36; // bytes, before those of each fragment
    uint256 private constant FRAGMENT = 10;
    uint256 private constant HEADER = 40; // of a section, before its exponents
    uint256 private constant BLOCK = 32; // values with one step
    uint256 private constant CHUNK = 1 << 20; // values with inner products of their own

    error NotAShape(uint256 length);

    function read(bytes calldata data, uint256 round) internal pure returns (MergeShape memory s) {
        if (data.length < FIXED || data[0] != 0xff) revert NotAShape(data.length);
        uint256 word = uint256(bytes32(data));
        uint256 fragments = uint16(word);
        uint256 length = FIXED + FRAGMENT * fragments;
        if (fragments == 0 || data.length < length) revert NotAShape(data.length);
        for (uint256 i = 0; i < fragments; i++) {
            length += uint16(bytes2(data[FIXED + FRAGMENT * i:])); // tensors, each with a byte
        }
        if (data.length != length) revert NotAShape(data.length);
        (s.low, s.high) = (int16(uint16(bytes2(data[32:]))), int16(uint16(bytes2(data[34:]))));
        (s.rule, s.mixes, s.codec) = (uint8(word >> 240), uint8(word >> 232) != 0, uint8(word >> 224));
        (s.momentTensors, s.momentValues) = (uint16(word >> 208), uint64(word >> 144));
        (s.factoredBytes, s.sampledBytes) = (uint64(word >> 80), uint64(word >> 16));
        uint256 sent = uint80(bytes10(data[FIXED + FRAGMENT * (round % fragments):]));
        (s.tensors, s.values) = (sent >> 64, uint64(sent));
    }

    /// @param data of a shape that was read
    /// @return fragment that a round's updates send
    /// @return of_ the fragment of each tensor, a byte, in the order of all names
    function fragmentsOf(bytes calldata data, uint256 round)
        internal
        pure
        returns (uint256 fragment, bytes calldata of_)
    {
        uint256 fragments = uint16(uint256(bytes32(data)));
        return (round % fragments, data[FIXED + FRAGMENT * fragments:]);
    }

    function filled(uint256 length) internal pure returns (uint256) {
        return (length + PIECE - 1) / PIECE * PIECE;
    }

    // --- an update ---

    /// @param section that has the coordinate
    function placeOf(MergeShape memory s, uint256 section, uint256 index) internal pure returns (Place memory p) {
        (uint256 from, uint256 last) = (0, _sectionBytes(s, s.tensors, s.values));
        uint256 start = 0;
        uint256 tensors = s.tensors;
        uint256 values = s.values;
        if (s.momentTensors != 0) {
            from += filled(last);
            last = _sectionBytes(s, s.momentTensors, s.momentValues);
            if (section == 1) (start, tensors, values) = (from, s.momentTensors, s.momentValues);
        }
        if (s.factoredBytes != 0) {
            from += filled(last);
            last = HEADER + s.factoredBytes;
            if (section == FACTORED) start = from;
        }
        if (s.sampledBytes != 0) {
            from += filled(last);
            last = s.sampledBytes;
        }
        p.size = from + last;
        if (section == FACTORED) {
            p.step = p.code = start + HEADER + 4 * index;
            return p;
        }
        start += HEADER + 2 * tensors;
        if (s.codec == GRID8 || s.codec == GRID4) {
            p.step = p.code = start + (s.codec == GRID8 ? index : index / 2);
            return p;
        }
        p.step = start + index / BLOCK / 2;
        p.code = start + _stepBytes(values) + index / (s.codec == TWO_BIT ? 4 : 8);
    }

    function _sectionBytes(MergeShape memory s, uint256 tensors, uint256 values) private pure returns (uint256) {
        uint256 before = HEADER + 2 * tensors;
        if (s.codec == GRID8) return before + values;
        if (s.codec == GRID4) return before + (values + 1) / 2;
        uint256 perByte = s.codec == TWO_BIT ? 4 : 8;
        return before + _stepBytes(values) + (values + perByte - 1) / perByte;
    }

    function _stepBytes(uint256 values) private pure returns (uint256) {
        return ((values + BLOCK - 1) / BLOCK + 1) / 2;
    }

    // --- the merged update ---

    /// @param rows whose inner products it has
    /// @return place the byte of the coordinate, or the first of its number
    /// @return size of the whole
    function mergedPlaceOf(MergeShape memory s, uint256 rows, uint256 section, uint256 index)
        internal
        pure
        returns (uint256 place, uint256 size)
    {
        place = section == FACTORED ? 4 * index : index;
        uint256 chunks = (s.values + CHUNK - 1) / CHUNK;
        size = filled(s.values);
        if (s.momentTensors != 0) {
            if (section == 1) place += size;
            size += filled(s.momentValues);
            chunks += (s.momentValues + CHUNK - 1) / CHUNK;
        }
        if (s.factoredBytes != 0) {
            if (section == FACTORED) place += size;
            size += filled(s.factoredBytes);
        }
        size += chunks * 4 * rows * (rows + 1);
    }

    /// @return how many coordinates a section has
    function valuesOf(MergeShape memory s, uint256 section) internal pure returns (uint256) {
        if (section == 0) return s.values;
        if (section == 1) return s.momentTensors == 0 ? 0 : s.momentValues;
        return section == FACTORED ? s.factoredBytes / 4 : 0;
    }
}
