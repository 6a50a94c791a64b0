// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

/// @title Counting bitmaps seat by seat: bit i of plane p is bit p of the count of seat i.
library Tally {
    uint256 internal constant PLANES = 6; // counts up to 63

    /// @dev Adds one word to the counts, at most 63 of them: a ripple of half adders.
    function add(uint256[6] memory planes, uint256 word) internal pure {
        for (uint256 p = 0; word != 0 && p < PLANES; p++) {
            uint256 plane = planes[p];
            planes[p] = plane ^ word;
            word &= plane;
        }
    }

    /// @return the seats whose count is at least `least`, which is at most 64: those where adding 64 − least carries over
    function reaching(uint256[6] memory planes, uint256 least) internal pure returns (uint256) {
        if (least == 0) return type(uint256).max;
        uint256 constant_ = 64 - least;
        uint256 carry;
        for (uint256 p = 0; p < PLANES; p++) {
            carry = (constant_ >> p) & 1 == 1 ? planes[p] | carry : planes[p] & carry;
        }
        return carry;
    }
}
