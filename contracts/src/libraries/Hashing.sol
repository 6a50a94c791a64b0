// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {TypedData} from "./TypedData.sol";
import "../types/Types.sol";

/// @title Every hash that binds what someone says to a chain, a contract and a round.
/// SPEC-ROUNDS.md, 2 and 3.
/// @dev All fields are single words. Where there are more than the stack holds they stand in an array,
/// whose `abi.encode` are the same bytes.
library Hashing {
    bytes32 internal constant COMMIT = keccak256("atoll.commit.v2");
    bytes32 internal constant DATA = keccak256("atoll.data.v2");
    bytes32 internal constant AUDIT = keccak256("atoll.audit.v3");
    bytes32 internal constant CERTIFICATE = keccak256(
        "Certificate(uint256 job,uint32 round,bytes32 seed,bytes32 votes,uint256 excluded,uint16 merged,bytes32 state,bytes cid,bytes8 loss,bytes32 statement)"
    );
    bytes32 internal constant ROUND_RECORD = keccak256("atoll.round-record.v2");
    bytes32 internal constant AUDIT_REPORT = keccak256("atoll.audit-report.v1");
    bytes32 internal constant FAULT = keccak256("atoll.fault.v3");
    bytes32 internal constant UPDATE = keccak256("atoll.update.v1");
    uint256 private constant CUT = ~uint256(type(uint32).max);

    struct RoundId {
        address rounds;
        uint256 jobId;
        uint32 round;
    }

    function roundIdHash(RoundId memory roundId) internal view returns (bytes32) {
        return keccak256(_roundId(roundId));
    }

    function dataSeed(RoundId memory roundId, bytes32 source, bytes32 beacon) internal view returns (bytes32) {
        return keccak256(abi.encode(DATA, block.chainid, roundId.rounds, roundId.jobId, roundId.round, source, beacon));
    }

    function auditSeed(RoundId memory roundId, bytes32 reveals, bytes32 beacon) internal view returns (bytes32) {
        return
            keccak256(abi.encode(AUDIT, block.chainid, roundId.rounds, roundId.jobId, roundId.round, reveals, beacon));
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
    ) internal view returns (bytes32) {
        bytes32[13] memory words;
        (words[0], words[1]) = (COMMIT, bytes32(block.chainid));
        (words[2], words[3]) = (bytes32(uint256(uint160(roundId.rounds))), bytes32(roundId.jobId));
        (words[4], words[5], words[6]) = (bytes32(uint256(roundId.round)), seed, bytes32(seat));
        (words[7], words[8]) = (bytes32(uint256(uint160(account))), keccak256(reveal.checkpointCommitments));
        (words[9], words[10]) = (reveal.updateRoot, model);
        (words[11], words[12]) = (reveal.keyHash, reveal.salt);
        return keccak256(abi.encode(words));
    }

    /// @dev The same of who shows the hash of the checkpoint commitments alone.
    function commitment(RoundId memory roundId, bytes32 seed, uint256 seat, bytes32 model, Commitment calldata shown)
        internal
        view
        returns (bytes32)
    {
        bytes32[13] memory words;
        (words[0], words[1]) = (COMMIT, bytes32(block.chainid));
        (words[2], words[3]) = (bytes32(uint256(uint160(roundId.rounds))), bytes32(roundId.jobId));
        (words[4], words[5], words[6]) = (bytes32(uint256(roundId.round)), seed, bytes32(seat));
        (words[7], words[8]) = (bytes32(uint256(uint160(shown.account))), shown.checkpoints);
        (words[9], words[10]) = (shown.updateRoot, model);
        (words[11], words[12]) = (shown.keyHash, shown.salt);
        return keccak256(abi.encode(words));
    }

    function accumulateReveal(bytes32 accumulator, uint256 seat, bytes32 commitment_) internal pure returns (bytes32) {
        return keccak256(abi.encode(accumulator, seat, commitment_));
    }

    /// @return the accumulator that a committee draw's votes begin with
    function noVotes(bytes32 committeeSeed_) internal pure returns (bytes32) {
        return cut(committeeSeed_);
    }

    /// @param accumulator with its last 4 bytes zero
    function accumulateVote(bytes32 accumulator, uint256 slot, uint256 has) internal pure returns (bytes32) {
        return cut(keccak256(abi.encode(accumulator, slot, has)));
    }

    /// @return the word with its last 4 bytes zero
    function cut(bytes32 word) internal pure returns (bytes32) {
        return bytes32(uint256(word) & CUT);
    }

    /// @return what a committee signs: typed data of the contract that settles
    function certificate(RoundId memory roundId, bytes32 seed, bytes32 votes, Verdict calldata v)
        internal
        view
        returns (bytes32)
    {
        bytes32[11] memory said;
        (said[0], said[1], said[2]) = (CERTIFICATE, bytes32(roundId.jobId), bytes32(uint256(roundId.round)));
        (said[3], said[4]) = (seed, votes);
        (said[5], said[6]) = (bytes32(v.excluded), bytes32(uint256(v.merged)));
        (said[7], said[8], said[9]) = (v.state, keccak256(v.cid), bytes32(v.loss));
        said[10] = v.statement;
        return TypedData.hash(roundId.rounds, keccak256(abi.encode(said)));
    }

    function recordHash(RoundRecord memory f) internal pure returns (bytes32) {
        return keccak256(abi.encode(ROUND_RECORD, f));
    }

    /// @return what the contract keeps of it: 26 bytes, which share their storage word with two
    /// times
    function keptOf(bytes32 whole) internal pure returns (bytes32) {
        return bytes32(bytes26(whole));
    }

    /// @dev The same of what somebody shows.
    function shownRecordHash(RoundRecord calldata f) internal pure returns (bytes32) {
        return keccak256(abi.encode(ROUND_RECORD, f));
    }

    function auditReport(
        RoundId memory roundId,
        bytes32 auditSeed_,
        uint32 id,
        address account,
        bytes32 bodyHash,
        bytes32 salt
    ) internal view returns (bytes32) {
        bytes32[10] memory said;
        (said[0], said[1]) = (AUDIT_REPORT, bytes32(block.chainid));
        (said[2], said[3]) = (bytes32(uint256(uint160(roundId.rounds))), bytes32(roundId.jobId));
        (said[4], said[5]) = (bytes32(uint256(roundId.round)), auditSeed_);
        (said[6], said[7]) = (bytes32(uint256(id)), bytes32(uint256(uint160(account))));
        (said[8], said[9]) = (bodyHash, salt);
        return keccak256(abi.encode(said));
    }

    /// @return keccak256 of a committee's accounts, a word each
    function accounts(address[] memory list) internal pure returns (bytes32) {
        return keccak256(abi.encodePacked(list));
    }

    /// @return what is committed of an update of so many bytes, over whose pieces that is the root
    function updateRoot(uint256 size, bytes32 pieces) internal pure returns (bytes32) {
        return keccak256(abi.encode(UPDATE, size, pieces));
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

    function _roundId(RoundId memory roundId) private view returns (bytes memory) {
        return abi.encode(block.chainid, roundId.rounds, roundId.jobId, roundId.round);
    }
}
