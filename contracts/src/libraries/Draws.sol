// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {Bits} from "./Bits.sol";

/// @title Committee draws: who says which updates arrived, what is audited, and by whom. The
/// smallest hashes win.
library Draws {
    using Bits for uint256;

    uint256 internal constant COMMITTEE = 32;
    uint256 private constant BPS = 10_000;
    uint256 private constant NO_SEAT = 256; // in tickets of slots that audit

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

    /// @return how many of the revealed seats the seed draws
    function sampled(uint256 revealed, uint256 ready, uint256 shareBps) internal pure returns (uint256) {
        uint256 shareUp = (shareBps * revealed + BPS - 1) / BPS;
        uint256 halfUp = (ready + 1) / 2;
        uint256 count = shareUp < halfUp ? shareUp : halfUp;
        return count == 0 ? 1 : count;
    }

    /// @return before how many of the revealed seats have a smaller ticket
    function rankOfSeat(bytes32 auditSeed, uint256 revealed, uint256 seat) internal pure returns (uint256 before) {
        bytes32 own = ticket(auditSeed, seat);
        unchecked {
            for (uint256 other = 0; revealed != 0; (revealed >>= 1, other++)) {
                if (revealed & 1 == 0) continue;
                bytes32 value = ticket(auditSeed, other);
                if (value < own || (value == own && other < seat)) before++;
            }
        }
    }

    /// @dev `rankOfSeat` of each would say it, too, and hash every ticket once for each: a seat in
    /// three may be excluded.
    /// @param count of the revealed seats that the seed draws
    /// @return others of those that were excluded, which it does not draw
    function beside(bytes32 auditSeed, uint256 revealed, uint256 excluded, uint256 count)
        internal
        pure
        returns (uint256 others)
    {
        unchecked {
            uint256 length = 0;
            bytes32[] memory tickets = new bytes32[](revealed.popcount());
            for (uint256 seat = 0; revealed >> seat != 0; seat++) {
                if (revealed.has(seat)) tickets[length++] = ticket(auditSeed, seat);
            }
            for (; excluded != 0; excluded &= excluded - 1) {
                bytes32 own = ticket(auditSeed, excluded.lowest());
                uint256 before = 0;
                for (uint256 i = 0; i < length && before < count; i++) {
                    if (tickets[i] < own) before++;
                }
                if (before == count) others++;
            }
        }
    }

    /// @return before how many slots of the pool have a smaller ticket
    function rankOfSlot(bytes32 auditSeed, uint256 ready, uint256 slot) internal pure returns (uint256 before) {
        bytes32 own = ticket(auditSeed, NO_SEAT, slot);
        unchecked {
            for (uint256 other = 0; ready != 0; (ready >>= 1, other++)) {
                if (ready & 1 == 0) continue;
                bytes32 value = ticket(auditSeed, NO_SEAT, other);
                if (value < own || (value == own && other < slot)) before++;
            }
        }
    }

    /// @notice Drawn seats go round the pool, so that nobody has two before everybody has one.
    /// @param ordinal of the seat among the drawn
    /// @param rank of the slot in a pool of so many
    /// @param auditors of each seat
    function isAuditor(uint256 ordinal, uint256 rank, uint256 slots, uint256 auditors) internal pure returns (bool) {
        return ordinal % slots == rank || (auditors == 2 && (ordinal + 1) % slots == rank);
    }

    function ticket(bytes32 seed, uint256 index) internal pure returns (bytes32 value) {
        assembly ("memory-safe") {
            mstore(0, seed)
            mstore(32, index)
            value := keccak256(0, 64)
        }
    }

    function ticket(bytes32 seed, uint256 seat, uint256 slot) internal pure returns (bytes32 value) {
        assembly ("memory-safe") {
            let free := mload(64)
            mstore(free, seed)
            mstore(add(free, 32), seat)
            mstore(add(free, 64), slot)
            value := keccak256(free, 96)
        }
    }
}
