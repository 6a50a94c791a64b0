// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {Terms} from "../types/Types.sol";
import {Bits} from "./Bits.sol";

/// @title Draws: who says which updates arrived, what is audited, and by whom.
library Draws {
    using Bits for uint256;

    uint256 internal constant COMMITTEE = 32;
    uint256 private constant ALWAYS = 1 << 32;
    uint256 private constant ROOT = 0xB504F333; // 2^32 / √2, rounded down
    bytes32 private constant AUDIT_RATE = keccak256("atoll.audit-rate.v1");
    bytes32 private constant AUDITORS = keccak256("atoll.auditors.v1");

    /// @return drawn the (at most 32) slots of the pool with the smallest hashes under the
    /// committee draw's seed
    function committee(bytes32 committeeSeed, uint256 pool) internal pure returns (uint256 drawn) {
        if (pool.popcount() <= COMMITTEE) return pool;
        uint256[32] memory best; // ascending
        uint256[32] memory slots;
        uint256 count;
        for (uint256 left = pool; left != 0; left &= left - 1) {
            uint256 slot = left.lowest();
            uint256 value = uint256(ticket(committeeSeed, slot));
            if (count == COMMITTEE && value >= best[COMMITTEE - 1]) continue;
            uint256 rank = count < COMMITTEE ? count++ : COMMITTEE - 1;
            for (; rank > 0 && best[rank - 1] > value; rank--) {
                (best[rank], slots[rank]) = (best[rank - 1], slots[rank - 1]);
            }
            (best[rank], slots[rank]) = (value, slot);
        }
        for (uint256 i = 0; i < COMMITTEE; i++) {
            drawn |= Bits.bit(slots[i]);
        }
    }

    /// @param rate of the table
    /// @return chance of an audit in 2^-32: from always on, each √2 smaller than the one before it,
    /// rounded up
    function chance(uint256 rate) internal pure returns (uint256) {
        return rate & 1 == 0 ? ALWAYS >> rate / 2 : (ROOT >> rate / 2) + 1;
    }

    /// @notice Each seat is drawn by itself, so a round may have nobody drawn, and no seat's chance
    /// depends on how many others there are.
    /// @dev A hash is the tickets of eight seats, 32 bits each.
    /// @return drawn those of the revealed whose tickets are below the rate's chance
    function seats(bytes32 auditSeed, uint256 revealed, uint256 rate) internal pure returns (uint256 drawn) {
        if (rate == 0) return revealed;
        uint256 below = chance(rate);
        unchecked {
            uint256 mark = 1; // of a seat; behind the last one zero
            for (uint256 eight = 0; mark - 1 < revealed; eight++) {
                uint256 tickets = uint256(ticket(AUDIT_RATE, uint256(auditSeed), eight));
                for (uint256 end = mark << 8; mark != end; (mark <<= 1, tickets <<= 32)) {
                    if (tickets >> 224 < below) drawn |= mark;
                }
            }
        }
        drawn &= revealed;
    }

    /// @return whether a seat's ticket is below a rate's chance
    function isDrawn(bytes32 auditSeed, uint256 seat, uint256 rate) internal pure returns (bool) {
        uint256 tickets = uint256(ticket(AUDIT_RATE, uint256(auditSeed), seat / 8));
        return uint32(tickets >> 224 - 32 * (seat % 8)) < chance(rate);
    }

    /// @param from seats, not none
    /// @return the bit of one of them, by the seed
    function oneOf(bytes32 auditSeed, uint256 from) internal pure returns (uint256) {
        for (uint256 skipped = uint256(auditSeed) % from.popcount(); skipped > 0; skipped--) {
            from &= from - 1;
        }
        return from & (~from + 1);
    }

    /// @return the last so many of these
    function atMost(uint256 from, uint256 count) internal pure returns (uint256) {
        for (uint256 surplus = from.popcount(); surplus > count; surplus--) {
            from &= from - 1;
        }
        return from;
    }

    /// @notice Drawn seats go round the pool from a slot on that the seed draws, so that nobody has
    /// two before everybody has one.
    function isAuditor(bytes32 auditSeed, uint256 drawn, uint256 ready, uint256 seat, uint256 slot)
        internal
        pure
        returns (bool)
    {
        uint256 slots = ready.popcount();
        uint256 first = uint256(keccak256(abi.encode(AUDITORS, auditSeed))) % slots;
        uint256 ordinal = (drawn & (Bits.bit(seat) - 1)).popcount();
        return (first + ordinal) % slots == (ready & (Bits.bit(slot) - 1)).popcount();
    }

    /// @return duties that a job's escrow holds fees for: what is expected of the draws, and six
    /// times its root and one more. Where they were all drawn, nobody is any more.
    function mostDuties(Terms memory t) internal pure returns (uint256) {
        if (t.f == 0) return uint256(t.rounds) * t.seats;
        uint256 chances = (t.rounds - 1) * chance(t.auditRate) + chance(t.lastRate);
        uint256 mean = (chances * t.seats + ALWAYS - 1) / ALWAYS;
        uint256 most = mean + 6 * (_root(mean) + 1);
        return most < uint256(t.rounds) * t.seats ? most : uint256(t.rounds) * t.seats;
    }

    /// @dev Newton's method, from above.
    /// @return root of a number, rounded down
    function _root(uint256 number) private pure returns (uint256 root) {
        root = number;
        for (uint256 next = (number + 1) / 2; next < root;) {
            (root, next) = (next, (next + number / next) / 2);
        }
    }

    function ticket(bytes32 seed, uint256 index) internal pure returns (bytes32) {
        return keccak256(abi.encode(seed, index));
    }

    function ticket(bytes32 seed, uint256 index, uint256 part) internal pure returns (bytes32) {
        return keccak256(abi.encode(seed, index, part));
    }
}
