// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

/// @title By how much seats are drawn more rarely, 28 of them in a word, so that a settlement reads little.
/// @dev From the low bits on: 28 times 4 bits that hold from a round on, 28 times 4 bits of rounds before it, its number.
/// That is the word's, and not a seat's: a change counts from no round before one that a seat beside it waits for.
library SeatSteps {
    uint256 private constant SEATS = 28;
    uint256 private constant HALF = 112; // bits
    uint256 private constant MASK = 2 ** HALF - 1;

    function wordOf(uint256 seat) internal pure returns (uint256) {
        return seat / SEATS;
    }

    /// @param word the seat's
    /// @return steps in a round
    function stepsIn(uint256 word, uint256 seat, uint32 round) internal pure returns (uint256) {
        uint256 shift = 4 * (seat % SEATS);
        return word >> (word >> 2 * HALF > round ? shift + HALF : shift) & 15;
    }

    /// @param round from which on it is to count
    /// @return from the round from which on it does
    function set(mapping(uint256 => uint256) storage words, uint256 seat, uint256 steps, uint32 round)
        internal
        returns (uint32 from)
    {
        uint256 word = words[wordOf(seat)];
        from = uint32(word >> 2 * HALF);
        (uint256 now_, uint256 before) = (word & MASK, word >> HALF & MASK);
        if (round > from) (before, from) = (now_, round);
        uint256 shift = 4 * (seat % SEATS);
        now_ = (now_ & ~(15 << shift)) | steps << shift;
        words[wordOf(seat)] = uint256(from) << 2 * HALF | before << HALF | now_;
    }

    /// @dev Of a seat that is in no round that runs.
    function clear(mapping(uint256 => uint256) storage words, uint256 seat) internal {
        uint256 word = words[wordOf(seat)];
        uint256 shift = 4 * (seat % SEATS);
        uint256 kept = word & ~(15 << shift | 15 << shift + HALF);
        if (kept != word) words[wordOf(seat)] = kept;
    }
}
