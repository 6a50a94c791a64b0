// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {Bits} from "../libraries/Bits.sol";
import {Hashing} from "../libraries/Hashing.sol";
import {Sampling} from "../libraries/Sampling.sol";
import "../types/Types.sol";
import {RoundsBase} from "./RoundsBase.sol";

/// @title What verifiers say against seats: reports in ballots, and challenges of data that they cannot fetch.
/// @dev A challenge is a report of WITHHELD that comes before the ballot and names the missing block, so that it can be
/// answered while there is time. Bonds, seconds, votes and punishments are those of every report.
abstract contract RoundsReports is RoundsBase {
    using Bits for uint256;

    uint256 internal constant MAX_REPORTS = 256; // of a round: votes are one word
    uint256 internal constant CHALLENGES_BELOW = 128; // the word's upper half is for reports, which are never free
    uint256 internal constant MAX_SEGMENTS = 64; // findings are half a word
    uint256 internal constant SPARE_CHALLENGES = 3; // by a verifier, beyond one for each seat
    uint256 internal constant ANSWER_SHARE = 4; // the last 1/4 of the report window is for answers alone
    uint256 internal constant MAX_BLOCK_BYTES = 65_536; // as large as a trace document may be

    error SeatNotAudited(uint16 seat, uint256 auditSet);
    error BadReport(uint16 seat, uint16 segment, Fault fault);
    error DuplicateReport(uint16 index);
    error TooManyReports(uint256 count, uint256 highest);
    error ChallengeTooLate(uint256 until, uint256 now_);
    error NotChallenged(uint16 index, uint256 challenges);
    error NotChallenger(uint16 index, uint16 verifier);
    error AlreadyAnswered(uint16 index);
    error BlockTooLarge(uint256 length, uint256 highest);
    error WrongBlock(bytes32 given, bytes32 challenged);

    function challenge(uint256 jobId, uint32 round, uint16 attempt, uint16 seat, uint16 segment, bytes32 blockDigest)
        external
    {
        Job storage j = _job(jobId);
        RoundState storage s = j.state;
        _requireWindow(s, round, attempt, Phase.REPORT);
        uint256 until = s.deadline - j.terms.reportSeconds / ANSWER_SHARE;
        if (block.timestamp >= until) revert ChallengeTooLate(until, block.timestamp);
        uint16 verifier = _requireVerifier(jobId, s.verifiers);
        if (segment >= MAX_SEGMENTS && segment != NO_SEGMENT) revert BadReport(seat, segment, Fault.WITHHELD);
        _file(jobId, j, verifier, Report(seat, segment, Fault.WITHHELD, blockDigest));
    }

    function withdrawChallenge(uint256 jobId, uint32 round, uint16 attempt, uint16 index) external {
        Job storage j = _job(jobId);
        RoundState storage s = j.state;
        _requireWindow(s, round, attempt, Phase.REPORT);
        uint16 verifier = _requireVerifier(jobId, s.verifiers);
        ReportEntry storage e = _openChallenge(jobId, j, index);
        uint32 mark = uint32(1) << verifier;
        if (e.agree & mark == 0) revert NotChallenger(index, verifier);
        e.agree &= ~mark;
        if (verifier == e.verifier) e.isWithdrawn = true;
        emit ChallengeWithdrawn(jobId, round, attempt, index, verifier);
        if (e.agree != 0) return;
        e.outcome = Outcome.WITHDRAWN;
        j.work.withdrawn |= Bits.bit(index);
        stakes.unlock(e.reporter, Role.VERIFIER, Hashing.reportLock(jobId, round, index));
        _endReportIfDone(jobId, j);
    }

    /// @dev The block refutes what its challengers could not do; what they can do now, they say in a vote.
    function answerChallenge(uint256 jobId, uint32 round, uint16 attempt, uint16 index, bytes calldata block_)
        external
    {
        Job storage j = _job(jobId);
        _requireWindow(j.state, round, attempt, Phase.REPORT);
        ReportEntry storage e = _openChallenge(jobId, j, index);
        if (block_.length > MAX_BLOCK_BYTES) revert BlockTooLarge(block_.length, MAX_BLOCK_BYTES);
        bytes32 given = sha256(block_);
        if (given != e.blockDigest) revert WrongBlock(given, e.blockDigest);
        j.work.answered |= Bits.bit(index);
        e.agree = 0;
        emit ChallengeAnswered(jobId, round, attempt, index, msg.sender, block_);
        _endReportIfDone(jobId, j);
    }

    function _endReport(uint256 jobId, Job storage j) internal virtual;

    /// @dev Everyone has balloted, and no challenge waits for its answer.
    function _endReportIfDone(uint256 jobId, Job storage j) internal {
        Work storage w = j.work;
        if (w.balloted == j.state.verifiers && w.challenged & ~(w.answered | w.withdrawn) == 0) _endReport(jobId, j);
    }

    /// @return bitmap of the reports that this attempt votes on
    function _openReports(uint256 jobId, Job storage j) internal view returns (uint256) {
        uint256 count = _records[jobId][j.state.round].reportCount;
        return Bits.firstBits(count) & ~Bits.firstBits(j.work.attemptFrom) & ~j.work.withdrawn;
    }

    function _file(uint256 jobId, Job storage j, uint16 verifier, Report memory report) internal {
        RoundState storage s = j.state;
        if (report.seat > type(uint8).max || !s.auditSet.has(report.seat)) {
            revert SeatNotAudited(report.seat, s.auditSet);
        }
        bytes32 key = _contentKey(jobId, s, report);
        uint16 known = _reportIndex[key];
        if (known != 0 && !j.work.withdrawn.has(known - 1)) return _second(jobId, j, verifier, known - 1);
        uint16 index = _records[jobId][s.round].reportCount;
        _requireRoom(jobId, j, verifier, index, report.fault == Fault.WITHHELD);
        bool assigned = block.timestamp >= j.work.halfTime
            || Sampling.isAssigned(s.auditSeed, report.seat, s.verifiers, j.work.auditors, verifier);
        _records[jobId][s.round].reportCount = index + 1;
        _reportIndex[key] = index + 1;
        ReportEntry storage e = _reports[jobId][s.round][index];
        (e.reporter, e.seat, e.segment, e.verifier) = (msg.sender, report.seat, report.segment, verifier);
        (e.fault, e.assigned, e.agree) = (report.fault, assigned, uint32(1) << verifier);
        e.accused = _seatHolder(jobId, report.seat);
        if (report.fault == Fault.WITHHELD) {
            e.blockDigest = report.evidence;
            j.work.challenged |= Bits.bit(index);
        }
        emit Reported(jobId, s.round, s.attempt, index, verifier, report, assigned);
        stakes.lock(msg.sender, Role.VERIFIER, Hashing.reportLock(jobId, s.round, index), j.terms.reportBond);
    }

    function _second(uint256 jobId, Job storage j, uint16 verifier, uint16 index) private {
        RoundState storage s = j.state;
        ReportEntry storage e = _reports[jobId][s.round][index];
        uint32 mark = uint32(1) << verifier;
        if (e.agree & mark != 0) revert DuplicateReport(index);
        if (j.work.answered.has(index)) revert AlreadyAnswered(index);
        e.agree |= mark;
        if (verifier == e.verifier) e.isWithdrawn = false;
        emit ReportSeconded(jobId, s.round, s.attempt, index, verifier);
    }

    /// @return key of what is reported; challenges of different blocks are different reports
    function _contentKey(uint256 jobId, RoundState storage s, Report memory report) private view returns (bytes32) {
        bytes32 what = report.fault == Fault.WITHHELD ? report.evidence : bytes32(0);
        return keccak256(abi.encode(jobId, s.round, s.attempt, report.seat, report.segment, report.fault, what));
    }

    function _openChallenge(uint256 jobId, Job storage j, uint16 index) private view returns (ReportEntry storage) {
        Work storage w = j.work;
        uint256 open = w.challenged & ~w.withdrawn;
        if (index >= MAX_REPORTS || !open.has(index)) revert NotChallenged(index, open);
        if (w.answered.has(index)) revert AlreadyAnswered(index);
        return _reports[jobId][j.state.round][index];
    }

    /// @dev One verifier files as many reports as there are seats, and a few challenges more; all of them together twice
    /// that. Challenges, which can be taken back, never take the room of reports.
    function _requireRoom(uint256 jobId, Job storage j, uint16 verifier, uint16 index, bool isChallenge) private {
        uint256 each = uint256(j.terms.seats) + (isChallenge ? SPARE_CHALLENGES : 0);
        uint256 challenges = j.work.challenged.popcount();
        uint256 open = isChallenge ? challenges : index - j.work.attemptFrom - challenges;
        if (open >= 2 * each) revert TooManyReports(open + 1, 2 * each);
        uint256 room = isChallenge ? CHALLENGES_BELOW : MAX_REPORTS;
        if (index >= room) revert TooManyReports(uint256(index) + 1, room);
        bytes32 key = keccak256(abi.encode(jobId, j.state.round, j.state.attempt, verifier, isChallenge));
        uint16 filed = ++_reportsFiled[key];
        if (filed > each) revert TooManyReports(filed, each);
    }
}
