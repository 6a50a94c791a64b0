// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {TypedData} from "./TypedData.sol";
import "../types/Types.sol";

/// @title Every hash that binds what someone says to a chain, a contract and a round.
/// SPEC-ROUNDS.md, 2 and 3.
/// @dev All fields are single words, which are laid out by hand: the same bytes as one
/// `abi.encode`, for a third of its gas.
library Hashing {
    bytes32 internal constant COMMIT = keccak256("atoll.commit.v2");
    bytes32 internal constant DATA = keccak256("atoll.data.v2");
    bytes32 internal constant AUDIT = keccak256("atoll.audit.v3");
    bytes32 internal constant CERTIFICATE = keccak256(
        "Certificate(uint256 job,uint32 round,bytes32 seed,bytes32 votes,uint256 excluded,uint16 merged,bytes32 state,bytes cid,bytes8 loss,bytes32 statement)"
    );
    bytes32 internal constant ROUND_RECORD = keccak256("atoll.round-record.v1");
    bytes32 internal constant AUDIT_REPORT = keccak256("atoll.audit-report.v1");
    bytes32 internal constant FAULT = keccak256("atoll.fault.v3");
    uint256 private constant CUT = ~uint256(type(uint32).max);

    struct RoundId {
        address rounds;
        uint256 jobId;
        uint32 round;
    }

    function roundIdHash(RoundId memory roundId) internal view returns (bytes32) {
        return keccak256(_roundId(roundId));
    }

    function dataSeed(RoundId memory roundId, bytes32 source, bytes32 beacon) internal view returns (bytes32 value) {
        bytes32[12] memory said;
        _into(said, DATA, roundId);
        (said[5], said[6]) = (source, beacon);
        assembly ("memory-safe") {
            value := keccak256(said, 224)
        }
    }

    function auditSeed(RoundId memory roundId, bytes32 reveals, bytes32 beacon) internal view returns (bytes32 value) {
        bytes32[12] memory said;
        _into(said, AUDIT, roundId);
        (said[5], said[6]) = (reveals, beacon);
        assembly ("memory-safe") {
            value := keccak256(said, 224)
        }
    }

    function committeeSeed(bytes32 previous, uint256 committeeDraw) internal pure returns (bytes32) {
        return keccak256(abi.encode(previous, committeeDraw));
    }

    /// @param model digest of the state that the round opened from
    function commitment(
        RoundId memory roundId,
        bytes32 seed,
        uint256 seat,
        address account,
        bytes32 model,
        Reveal calldata reveal
    ) internal view returns (bytes32 value) {
        bytes32[13] memory words; // laid out by hand: this is in every reveal
        (words[0], words[1]) = (COMMIT, bytes32(block.chainid));
        (words[2], words[3]) = (bytes32(uint256(uint160(roundId.rounds))), bytes32(roundId.jobId));
        (words[4], words[5], words[6]) = (bytes32(uint256(roundId.round)), seed, bytes32(seat));
        (words[7], words[8]) = (bytes32(uint256(uint160(account))), keccak256(reveal.checkpointCommitments));
        (words[9], words[10]) = (reveal.updateRoot, model);
        (words[11], words[12]) = (reveal.keyHash, reveal.salt);
        assembly ("memory-safe") {
            value := keccak256(words, 416)
        }
    }

    function accumulateReveal(bytes32 accumulator, uint256 seat, bytes32 commitment_)
        internal
        pure
        returns (bytes32 value)
    {
        assembly ("memory-safe") {
            let free := mload(64)
            mstore(free, accumulator)
            mstore(add(free, 32), seat)
            mstore(add(free, 64), commitment_)
            value := keccak256(free, 96)
        }
    }

    /// @return the accumulator that a committee draw's votes begin with
    function noVotes(bytes32 committeeSeed_) internal pure returns (bytes32) {
        return cut(committeeSeed_);
    }

    /// @param accumulator with its last 4 bytes zero
    function accumulateVote(bytes32 accumulator, uint256 slot, uint256 has) internal pure returns (bytes32 value) {
        assembly ("memory-safe") {
            let free := mload(64)
            mstore(free, accumulator)
            mstore(add(free, 32), slot)
            mstore(add(free, 64), has)
            value := keccak256(free, 96)
        }
        return cut(value);
    }

    /// @return the word with its last 4 bytes zero
    function cut(bytes32 word) internal pure returns (bytes32) {
        return bytes32(uint256(word) & CUT);
    }

    /// @return value what a committee signs: typed data of the contract that settles
    function certificate(RoundId memory roundId, bytes32 seed, bytes32 votes, Verdict calldata v)
        internal
        view
        returns (bytes32 value)
    {
        bytes32[11] memory said;
        (said[0], said[1], said[2]) = (CERTIFICATE, bytes32(roundId.jobId), bytes32(uint256(roundId.round)));
        (said[3], said[4]) = (seed, votes);
        (said[5], said[6]) = (bytes32(v.excluded), bytes32(uint256(v.merged)));
        (said[7], said[8], said[9]) = (v.state, keccak256(v.cid), bytes32(v.loss));
        said[10] = v.statement;
        assembly ("memory-safe") {
            value := keccak256(said, 352)
        }
        return TypedData.hash(roundId.rounds, value);
    }

    /// @dev The struct's words follow one another in memory.
    function recordHash(RoundRecord memory f) internal pure returns (bytes32 value) {
        bytes32 tag = ROUND_RECORD;
        assembly ("memory-safe") {
            let free := mload(64)
            mstore(free, tag)
            for { let i := 0 } lt(i, 352) { i := add(i, 32) } { mstore(add(add(free, 32), i), mload(add(f, i))) }
            value := keccak256(free, 384)
        }
    }

    /// @return what the contract keeps of it: 26 bytes, which share their storage word with two
    /// times
    function keptOf(bytes32 whole) internal pure returns (bytes32) {
        return bytes32(bytes26(whole));
    }

    /// @dev The same of what somebody shows.
    function shownRecordHash(RoundRecord calldata f) internal pure returns (bytes32 value) {
        bytes32 tag = ROUND_RECORD;
        assembly ("memory-safe") {
            let free := mload(64)
            mstore(free, tag)
            calldatacopy(add(free, 32), f, 352)
            value := keccak256(free, 384)
        }
    }

    function auditReport(
        RoundId memory roundId,
        bytes32 auditSeed_,
        uint32 id,
        address account,
        bytes32 bodyHash,
        bytes32 salt
    ) internal view returns (bytes32 value) {
        bytes32[12] memory said;
        _into(said, AUDIT_REPORT, roundId);
        (said[5], said[6], said[7]) = (auditSeed_, bytes32(uint256(id)), bytes32(uint256(uint160(account))));
        (said[8], said[9]) = (bodyHash, salt);
        assembly ("memory-safe") {
            value := keccak256(said, 320)
        }
    }

    /// @return value keccak256 of a committee's accounts, a word each
    function accounts(address[] memory list) internal pure returns (bytes32 value) {
        assembly ("memory-safe") {
            value := keccak256(add(list, 32), shl(5, mload(list)))
        }
    }

    /// @return what the mask of a segment's work tag is
    function mask(bytes32 key, uint256 segment) internal pure returns (bytes32) {
        return keccak256(abi.encode(key, segment));
    }

    /// @dev Without the chain's number: it names one thing of one contract, and where a chain splits in two a missed duty
    /// that was punished before would have another name on the other side, and be punished there again.
    /// @param seat that an accusation was about; zero of other kinds
    function fault(address members, uint256 jobId, Role role, uint32 id, uint32 round, MissedDuty kind, uint16 seat)
        internal
        pure
        returns (bytes32)
    {
        uint256 what = uint256(seat) << 8 | uint256(kind);
        return keccak256(abi.encode(FAULT, members, jobId, role, id, round, what));
    }

    /// @return the fault of who has lost a game, once
    function slash(address members, bytes32 set) internal pure returns (bytes32) {
        return keccak256(abi.encode("atoll.slash.v2", members, set));
    }

    /// @return id of the lock that holds a seat's or a slot's bond
    function bondLock(uint256 jobId, Role role, uint32 id) internal pure returns (bytes32) {
        return keccak256(abi.encode("atoll.bond.v2", jobId, role, id));
    }

    /// @return the bond that claims of a holder stand on
    function setOf(uint256 jobId, Role role, uint32 id) internal pure returns (bytes32) {
        return bytes32(jobId << 40 | uint256(role) << 32 | id);
    }

    /// @return the pay of a holder's round: of one set, positions are in the order of rounds
    function positionOf(bytes32 set, uint32 round) internal pure returns (bytes32) {
        return bytes32(uint256(set) << 32 | round);
    }

    /// @dev Tag and round id, the first five words of what is hashed.
    function _into(bytes32[12] memory said, bytes32 tag, RoundId memory roundId) private view {
        (said[0], said[1]) = (tag, bytes32(block.chainid));
        (said[2], said[3]) = (bytes32(uint256(uint160(roundId.rounds))), bytes32(roundId.jobId));
        said[4] = bytes32(uint256(roundId.round));
    }

    function _roundId(RoundId memory roundId) private view returns (bytes memory) {
        return abi.encode(block.chainid, roundId.rounds, roundId.jobId, roundId.round);
    }
}
