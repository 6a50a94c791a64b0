// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {IMembersHooks} from "../interfaces/IHooks.sol";
import {IRounds} from "../interfaces/IRounds.sol";
import {Hashing} from "./Hashing.sol";
import "../types/Types.sol";

/// A reveal that came after the seat's, as the reveal accumulator takes it in.
struct Later {
    uint16 seat;
    bytes32 commitment;
}

/// What shows that the holder of a seat revealed something in a settled round.
struct Shown {
    uint256 jobId;
    uint32 round;
    uint16 seat;
    uint32 id; // of the holder
    RoundRecord record;
    bytes32 before; // the reveal accumulator before the seat's reveal
    Later[] later; // the reveals after it, in the chain's order
    Reveal reveal;
}

/// @title Proving what was revealed from the one hash that is kept of a round.
library Reveals {
    uint256 internal constant CHECKPOINT_COMMITMENT_BYTES = 64;

    error WrongRecord(bytes32 given, bytes32 kept);
    error NotTheHolder(uint32 id, uint16 seat, uint32 round);
    error NotRevealed(bytes32 given, bytes32 accumulator);
    error WrongKey(bytes32 given, bytes32 committed);

    /// @return m the holder, whose reveal it is
    function requireShown(IRounds rounds, IMembersHooks members, Shown calldata s)
        internal
        view
        returns (Holder memory m)
    {
        requireRecord(rounds, s.jobId, s.round, s.record);
        m = members.holderOf(s.jobId, Role.PROVIDER, s.id);
        bool isIts = m.index == s.seat && m.from <= s.round && s.round < m.to;
        if (!isIts) revert NotTheHolder(s.id, s.seat, s.round);
        Hashing.RoundId memory roundId = Hashing.RoundId(address(rounds), s.jobId, s.round);
        bytes32 commitment = Hashing.commitment(roundId, s.record.seed, s.seat, m.account, s.record.model, s.reveal);
        bytes32 reveals = Hashing.accumulateReveal(s.before, s.seat, commitment);
        for (uint256 i = 0; i < s.later.length; i++) {
            reveals = Hashing.accumulateReveal(reveals, s.later[i].seat, s.later[i].commitment);
        }
        if (reveals != s.record.reveals) revert NotRevealed(reveals, s.record.reveals);
    }

    function requireRecord(IRounds rounds, uint256 jobId, uint32 round, RoundRecord calldata record) internal view {
        (bytes32 given, bytes32 kept) = (Hashing.keptOf(Hashing.shownRecordHash(record)), rounds.recordOf(jobId, round));
        if (given != kept) revert WrongRecord(given, kept);
    }

    /// @dev A key of zero is none: evidence says so that no key shows its work tags.
    function requireKey(Reveal calldata reveal, bytes32 key) internal pure {
        bytes32 given = keccak256(abi.encode(key));
        if (key == 0 || given != reveal.keyHash) revert WrongKey(given, reveal.keyHash);
    }

    function segments(Reveal calldata reveal) internal pure returns (uint256) {
        return reveal.checkpointCommitments.length / CHECKPOINT_COMMITMENT_BYTES;
    }

    /// @return digest of the state that the segment closes with
    function digestAt(Reveal calldata reveal, uint256 segment) internal pure returns (bytes32) {
        return bytes32(reveal.checkpointCommitments[segment * CHECKPOINT_COMMITMENT_BYTES:]);
    }

    /// @return the segment's work tag, without its mask
    function workTagAt(Reveal calldata reveal, uint256 segment, bytes32 key) internal pure returns (bytes32) {
        return
            bytes32(reveal.checkpointCommitments[segment * CHECKPOINT_COMMITMENT_BYTES + 32:])
                ^ Hashing.mask(key, segment);
    }

    /// @return what an auditor whose work tags all match says of the seat
    function validDigest(Reveal calldata reveal, bytes32 key, address auditor) internal pure returns (bytes32) {
        uint256 count = segments(reveal);
        bytes32[] memory tags = new bytes32[](count);
        for (uint256 i = 0; i < count; i++) {
            tags[i] = workTagAt(reveal, i, key);
        }
        return keccak256(abi.encodePacked(auditor, tags));
    }
}
