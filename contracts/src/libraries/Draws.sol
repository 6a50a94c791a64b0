// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {Bits} from "./Bits.sol";

/// @title Lots: who says which updates arrived, what is audited, and by whom. The smallest hashes win.
library Draws {
    using Bits for uint256;

    uint256 internal constant COMMITTEE = 32;
    uint256 private constant BPS = 10_000;

    /// @return drawn the (at most 32) places of the pool with the smallest hashes under the lot's seed
    function committee(bytes32 lotSeed, uint256 pool) internal pure returns (uint256 drawn) {
        if (pool.popcount() <= COMMITTEE) return pool;
        uint256[32] memory best; // ascending
        uint256[32] memory places;
        uint256 count;
        for (uint256 left = pool; left != 0; left &= left - 1) {
            uint256 place = left.lowest();
            uint256 value = uint256(ticket(lotSeed, place));
            if (count == COMMITTEE && value >= best[COMMITTEE - 1]) continue;
            uint256 rank = count < COMMITTEE ? count++ : COMMITTEE - 1;
            for (; rank > 0 && best[rank - 1] > value; rank--) {
                (best[rank], places[rank]) = (best[rank - 1], places[rank - 1]);
            }
            (best[rank], places[rank]) = (value, place);
        }
        for (uint256 i = 0; i < COMMITTEE; i++) {
            drawn |= Bits.bit(places[i]);
        }
    }

    /// @return how many of the revealed seats the seed draws
    function sampled(uint256 revealed, uint256 ready, uint256 shareBps) internal pure returns (uint256) {
        uint256 shareUp = (shareBps * revealed + BPS - 1) / BPS;
        uint256 halfUp = (ready + 1) / 2;
        uint256 count = shareUp < halfUp ? shareUp : halfUp;
        return count == 0 ? 1 : count;
    }

    /// @return whether fewer than `count` of the revealed seats come before this one
    function isDrawn(bytes32 auditSeed, uint256 revealed, uint256 count, uint256 seat) internal pure returns (bool) {
        if (!revealed.has(seat)) return false;
        bytes32 own = ticket(auditSeed, seat);
        uint256 before;
        unchecked {
            for (uint256 other = 0; revealed != 0; (revealed >>= 1, other++)) {
                if (revealed & 1 == 0) continue;
                bytes32 value = ticket(auditSeed, other);
                if (value < own || (value == own && other < seat)) before++;
            }
        }
        return before < count;
    }

    /// @return whether fewer than `count` places of the pool come before this one for the seat
    function isAuditor(bytes32 auditSeed, uint256 ready, uint256 count, uint256 seat, uint256 place)
        internal
        pure
        returns (bool)
    {
        if (!ready.has(place)) return false;
        bytes32 own = ticket(auditSeed, seat, place);
        uint256 before;
        unchecked {
            for (uint256 other = 0; ready != 0; (ready >>= 1, other++)) {
                if (ready & 1 == 0) continue;
                bytes32 value = ticket(auditSeed, seat, other);
                if (value < own || (value == own && other < place)) before++;
            }
        }
        return before < count;
    }

    function ticket(bytes32 seed, uint256 index) internal pure returns (bytes32 value) {
        assembly ("memory-safe") {
            mstore(0, seed)
            mstore(32, index)
            value := keccak256(0, 64)
        }
    }

    function ticket(bytes32 seed, uint256 seat, uint256 place) internal pure returns (bytes32 value) {
        assembly ("memory-safe") {
            let free := mload(64)
            mstore(free, seed)
            mstore(add(free, 32), seat)
            mstore(add(free, 64), place)
            value := keccak256(free, 96)
        }
    }
}
