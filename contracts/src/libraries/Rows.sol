// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {Bits} from "./Bits.sol";

/// @title One narrow bitmap a round, several rounds to a word: where there are few seats, a word is
/// written once for many rounds.
library Rows {
    /// @param count seats or slots, at most 256
    /// @return width of a row: 4, 8, 16, 32, 64, 128 or 256 bits
    function width(uint256 count) internal pure returns (uint256) {
        uint256 bits = 4;
        while (bits < count) bits *= 2;
        return bits;
    }

    function get(mapping(uint256 => uint256) storage words, uint256 bits, uint256 round)
        internal
        view
        returns (uint256)
    {
        (uint256 word, uint256 shift) = locate(bits, round);
        return part(words[word], bits, shift);
    }

    function set(mapping(uint256 => uint256) storage words, uint256 bits, uint256 round, uint256 row) internal {
        (uint256 word, uint256 shift) = locate(bits, round);
        words[word] = (words[word] & ~(ones(bits) << shift)) | row << shift;
    }

    /// @return word which one holds the round's row
    /// @return shift and from which bit on
    function locate(uint256 bits, uint256 round) internal pure returns (uint256 word, uint256 shift) {
        unchecked {
            uint256 each = 256 / bits;
            return (round / each, (round % each) * bits);
        }
    }

    function part(uint256 word, uint256 bits, uint256 shift) internal pure returns (uint256) {
        return (word >> shift) & ones(bits);
    }

    /// @return in how many of a word's rows the bit is set
    function countOf(uint256 word, uint256 bits, uint256 index) internal pure returns (uint256) {
        word >>= index;
        if (bits == 256) return word & 1;
        return Bits.popcount(word & (type(uint256).max / ones(bits)));
    }

    function ones(uint256 bits) internal pure returns (uint256) {
        unchecked {
            return type(uint256).max >> (256 - bits);
        }
    }
}
