// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {Need} from "./IOneStep.sol";

/// @title What the operations read: words of their attributes, elements of their inputs.
library Operands {
    // Where an opening stands in its input, for element e of an output with C columns; and what it
    // has.
    uint256 internal constant SAME4 = 1; // element e, 4 bytes
    uint256 internal constant ROW4 = 2; // element e / C
    uint256 internal constant COLUMN4 = 3; // element e mod C
    uint256 internal constant FIRST4 = 4; // element 0
    uint256 internal constant SAME8 = 5;
    uint256 internal constant ROW8 = 6;
    uint256 internal constant FIRST8 = 7;
    uint256 internal constant FIRST16 = 8;
    uint256 internal constant DIAGONAL4 = 9; // element e of the diagonal of a square of C columns

    /// @return the micro-batch
    function iteration(bytes calldata attributes) internal pure returns (uint256) {
        return uint64(bytes8(attributes));
    }

    /// @param i which of the template's words, of which the operation has one
    function word(bytes calldata attributes, uint256 i) internal pure returns (uint256) {
        return uint64(bytes8(attributes[8 + 8 * i:]));
    }

    /// @param kinds one of the constants for each opening, a digit of 4 bits each, the first
    /// lowest; 0 ends it
    /// @param k the opening, which is of input k
    function position(uint256 kinds, uint256 k, uint256 element, uint256 columns) internal pure returns (Need memory) {
        uint256 kind = (kinds >> (4 * k)) & 0xf;
        if (kind == 0) return Need(0, 0, 0);
        if (kind == SAME4) return Need(k, 4 * element, 4);
        if (kind == SAME8) return Need(k, 8 * element, 8);
        if (kind == FIRST4) return Need(k, 0, 4);
        if (kind == FIRST8) return Need(k, 0, 8);
        if (kind == FIRST16) return Need(k, 0, 16);
        if (kind == ROW4) return Need(k, 4 * (element / columns), 4);
        if (kind == ROW8) return Need(k, 8 * (element / columns), 8);
        if (kind == COLUMN4) return Need(k, 4 * (element % columns), 4);
        return Need(k, 4 * (element * columns + element), 4);
    }

    /// @param data little-endian; 0 where it is not of 1 to 32 bytes
    function load(bytes calldata data) internal pure returns (uint256) {
        // The highest bytes, the first one last: reversed, the number with zeros above it.
        return data.length > 32 ? 0 : _reversed(uint256(bytes32(data)));
    }

    /// @return numbers each opening, where it is one
    function loadAll(bytes[] calldata opened) internal pure returns (uint256[] memory numbers) {
        numbers = new uint256[](opened.length);
        for (uint256 i; i < opened.length; ++i) {
            numbers[i] = load(opened[i]);
        }
    }

    /// @return data the value, little-endian in so many bytes: 1 to 32
    function store(uint256 value, uint256 width) internal pure returns (bytes memory data) {
        data = new bytes(width);
        value = _reversed(value);
        assembly ("memory-safe") {
            mstore(add(data, 32), value)
        }
    }

    /// @param value i64
    function int64Of(uint256 value) internal pure returns (int256) {
        return int64(uint64(value));
    }

    /// @param value i32
    function int32Of(uint256 value) internal pure returns (int256) {
        return int32(uint32(value));
    }

    /// @param width 4 of an i32, 8 of an i64
    function signedOf(uint256 value, uint256 width) internal pure returns (int256) {
        return width == 4 ? int32Of(value) : int64Of(value);
    }

    /// @return x with its 32 bytes in the opposite order
    function _reversed(uint256 x) private pure returns (uint256) {
        uint256 mask = 0x00ff00ff00ff00ff00ff00ff00ff00ff00ff00ff00ff00ff00ff00ff00ff00ff;
        x = ((x & mask) << 8) | ((x >> 8) & mask);
        mask = 0x0000ffff0000ffff0000ffff0000ffff0000ffff0000ffff0000ffff0000ffff;
        x = ((x & mask) << 16) | ((x >> 16) & mask);
        mask = 0x00000000ffffffff00000000ffffffff00000000ffffffff00000000ffffffff;
        x = ((x & mask) << 32) | ((x >> 32) & mask);
        mask = 0x0000000000000000ffffffffffffffff0000000000000000ffffffffffffffff;
        x = ((x & mask) << 64) | ((x >> 64) & mask);
        return (x << 128) | (x >> 128);
    }
}
