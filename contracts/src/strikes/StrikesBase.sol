// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {IMembersHooks, IRoundsHooks} from "../interfaces/IHooks.sol";
import {IJobs} from "../interfaces/IJobs.sol";
import {IRounds} from "../interfaces/IRounds.sol";
import {Case} from "../interfaces/IStrikes.sol";
import {ProgramReader} from "../judge/ProgramReader.sol";
import {Bits} from "../libraries/Bits.sol";
import {Hashing} from "../libraries/Hashing.sol";
import {MergeShape, MergeShapes} from "../libraries/MergeShapes.sol";
import {Reveals} from "../libraries/Reveals.sol";
import {Stated, Statements} from "../libraries/Statements.sol";
import "../types/Types.sol";

/// @title What every strike begins and ends with, in the storage of `Strikes`.
abstract contract StrikesBase {
    using Bits for uint256;

    IRounds public immutable rounds;
    IMembersHooks public immutable members;
    IJobs public immutable jobs;

    /// Blocks from an announcement to its strike. So long whoever copies a strike at a coordinate comes behind it: of
    /// so many places it can announce this one no earlier than it has seen the first row. The few others (a statement, a
    /// seat, what is derived, nothing merged) anybody may announce for every round beforehand, and copy a strike there.
    uint256 public constant AHEAD = 16;

    mapping(bytes32 commitment => uint256 block_) internal _announcedIn;

    error NotNow(uint256 windowEnd, uint256 now_);
    error NotAnnounced(bytes32 commitment);
    error WrongCertificate(bytes32 given, bytes32 kept);
    error WrongStatement(bytes32 given, bytes32 certified);
    error NothingWrong();
    error NotAMember(uint32 id, uint256 committee);
    error NotAllSigners(uint256 left);

    constructor(address rounds_, address members_, address jobs_) {
        (rounds, members, jobs) = (IRounds(rounds_), IMembersHooks(members_), IJobs(jobs_));
    }

    /// @return what is announced of a strike by that account
    function _commitmentOf(address by, uint256 jobId, uint32 round, uint256 what, bytes32 salt)
        internal
        view
        returns (bytes32)
    {
        return keccak256(abi.encode("atoll.strike.v1", block.chainid, address(this), by, jobId, round, what, salt));
    }

    /// @return shape of the job's merges in the round
    /// @return f that the rule bears
    function _begin(Case calldata c, uint256 what) internal view returns (MergeShape memory shape, uint256 f) {
        uint256 windowEnd = rounds.timesOf(c.jobId, c.round).windowEnd;
        if (block.timestamp >= windowEnd) revert NotNow(windowEnd, block.timestamp);
        bytes32 commitment = _commitmentOf(msg.sender, c.jobId, c.round, what, c.salt);
        uint256 announced = _announcedIn[commitment];
        if (announced == 0 || announced + AHEAD > block.number) revert NotAnnounced(commitment);
        (shape, f) = _shapeOf(c.jobId, c.round, c.record, c.shape, c.leaves, c.path);
        bytes32 digest = Hashing.certificate(_roundId(c), c.record.seed, c.record.votes, c.verdict);
        if (digest != c.record.certificate) revert WrongCertificate(digest, c.record.certificate);
    }

    /// @return shape of the job's merges in a round with this record
    /// @return f that the rule bears
    function _shapeOf(
        uint256 jobId,
        uint32 round,
        RoundRecord calldata record,
        bytes calldata data,
        uint256 leaves,
        bytes32[] calldata path
    ) internal view returns (MergeShape memory shape, uint256 f) {
        Reveals.requireRecord(rounds, jobId, round, record);
        Terms memory terms = jobs.termsOf(jobId);
        ProgramReader.requirePart(terms.program, data, leaves - 1, leaves, path);
        shape = MergeShapes.read(data, round);
        if (shape.rule == 0) revert NothingWrong();
        f = terms.f;
    }

    function _stated(Case calldata c, MergeShape memory shape, uint256 f) internal pure returns (Stated memory) {
        bytes32 digest = sha256(c.statement);
        if (digest != c.verdict.statement) revert WrongStatement(digest, c.verdict.statement);
        return Statements.read(c.statement, shape, c.round, f, c.record, c.verdict);
    }

    /// @dev Each signer by its id, which it keeps when it leaves. Named may be who has not signed: else one of those signs
    /// just before a strike, which is refused then, and an accomplice that has seen it comes first.
    function _strike(Case calldata c) internal {
        uint256 signers = IRoundsHooks(address(rounds)).strike(c.jobId, c.round, msg.sender);
        for (uint256 i = 0; i < c.signers.length; i++) {
            uint32 id = c.signers[i];
            Holder memory m = members.holderOf(c.jobId, Role.VERIFIER, id);
            bool isIts = m.from <= c.round && c.round < m.to && c.record.committee.has(m.index);
            if (!isIts) revert NotAMember(id, c.record.committee);
            if (!signers.has(m.index)) continue;
            signers ^= Bits.bit(m.index);
            members.slashMismerged(c.jobId, id, c.round, msg.sender);
        }
        if (signers != 0) revert NotAllSigners(signers);
    }

    function _roundId(Case calldata c) internal view returns (Hashing.RoundId memory) {
        return Hashing.RoundId(address(rounds), c.jobId, c.round);
    }
}
