// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

/// @title Bitmaps of one word: seats, verifiers, reports.
library Bits {
    uint256 private constant LANES = 0x00ff00ff00ff00ff00ff00ff00ff00ff00ff00ff00ff00ff00ff00ff00ff00ff;
    uint256 private constant LANE_ONES = 0x0001000100010001000100010001000100010001000100010001000100010001;

    function has(uint256 bitmap, uint256 index) internal pure returns (bool) {
        return (bitmap >> index) & 1 == 1;
    }

    /// @param index below 256
    function bit(uint256 index) internal pure returns (uint256) {
        return 1 << index;
    }

    /// @return total how many bits are set
    /// @dev Parallel addition of neighbouring fields (Hacker's Delight, 5-2).
    function popcount(uint256 bitmap) internal pure returns (uint256 total) {
        unchecked {
            uint256 m1 = type(uint256).max / 3;
            uint256 m2 = type(uint256).max / 5;
            uint256 m4 = type(uint256).max / 17;
            bitmap -= (bitmap >> 1) & m1;
            bitmap = (bitmap & m2) + ((bitmap >> 2) & m2);
            bitmap = (bitmap + (bitmap >> 4)) & m4;
            // Byte sums can reach 256, which a byte cannot hold: add 16-bit lanes instead.
            uint256 lanes = (bitmap & LANES) + ((bitmap >> 8) & LANES);
            total = (lanes * LANE_ONES) >> 240;
        }
    }

    /// @param bitmap not zero
    /// @return index of the lowest set bit
    function lowest(uint256 bitmap) internal pure returns (uint16 index) {
        unchecked {
            return uint16(popcount((bitmap & (~bitmap + 1)) - 1));
        }
    }

    /// @return the bitmap whose lowest `count` bits are set
    /// @param count at most 256
    function firstBits(uint256 count) internal pure returns (uint256) {
        return count >= 256 ? type(uint256).max : (1 << count) - 1;
    }
}
