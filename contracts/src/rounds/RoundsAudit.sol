// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {Bits} from "../libraries/Bits.sol";
import {Hashing} from "../libraries/Hashing.sol";
import "../types/Types.sol";
import {RoundsBase} from "./RoundsBase.sol";
import {RoundsReports} from "./RoundsReports.sol";

/// @title From the audit seed to the evidence: ballots, reports, votes, and what the contract itself derives from them.
/// @dev Runs by delegate call from `Rounds`; called directly it knows no job.
contract RoundsAudit is RoundsReports {
    using Bits for uint256;

    uint256 private constant BREAKER_SEATS = 3;

    error EmptyFinding(uint16 seat);
    error TooManyFindings(uint256 count, uint256 highest);
    error AlreadyBalloted(uint16 verifier);
    error SupplementTooEarly(uint64 halfTime, uint256 now_);
    error AlreadyVoted(uint16 verifier);
    error MapsOverlap(uint256 agree, uint256 disagree, uint256 cannotFetch);
    error UnknownReports(uint256 maps, uint256 open);
    error OwnReport(uint16 index);
    error OnlyOwner(address caller);

    constructor(address config_, address stakes_, address jobs_, address roster_)
        RoundsBase(config_, stakes_, jobs_, roster_)
    {}

    function poke(uint256 jobId) external {
        Job storage j = _job(jobId);
        Phase phase = j.state.phase;
        if (phase == Phase.DRAW) return _pokeDraw(jobId, j);
        if (phase == Phase.HALTED) return _pokeHalted(jobId, j);
        _requireDeadlinePassed(j.state);
        if (phase == Phase.REPORT) _endReport(jobId, j);
        else _resolve(jobId, j);
    }

    function reaudit(uint256 jobId) external {
        Job storage j = _job(jobId);
        RoundState storage s = j.state;
        if (msg.sender != config.owner()) revert OnlyOwner(msg.sender);
        if (s.phase != Phase.HALTED) revert WrongPhase(s.phase, Phase.HALTED);
        if (block.timestamp >= j.terms.expiry) revert WindowClosed(j.terms.expiry, block.timestamp);
        _annul(jobId, j);
        (s.rejected, s.caught) = (0, 0);
        s.attempt++;
        s.status = JobStatus.ACTIVE;
        jobs.setStatus(jobId, JobStatus.ACTIVE, "Reaudit");
        _armDraw(jobId, j, s.revealed);
    }

    function ballot(
        uint256 jobId,
        uint32 round,
        uint16 attempt,
        Finding[] calldata findings,
        Report[] calldata reports,
        bytes32 replayRoot
    ) external {
        Job storage j = _job(jobId);
        RoundState storage s = j.state;
        _requireWindow(s, round, attempt, Phase.REPORT);
        uint16 verifier = _requireVerifier(jobId, s.verifiers);
        _markBalloted(j.work, verifier);
        _storeFindings(jobId, j, verifier, findings);
        emit Balloted(jobId, round, attempt, verifier, msg.sender, findings, replayRoot);
        for (uint256 i = 0; i < reports.length; i++) {
            _requireReport(reports[i]);
            _file(jobId, j, verifier, reports[i]);
        }
        _endReportIfDone(jobId, j);
    }

    function vote(uint256 jobId, uint32 round, uint16 attempt, uint256 agree, uint256 disagree, uint256 cannotFetch)
        external
    {
        Job storage j = _job(jobId);
        _requireWindow(j.state, round, attempt, Phase.CONFIRM);
        uint16 verifier = _requireVerifier(jobId, j.state.verifiers);
        if (uint256(j.work.voted).has(verifier)) revert AlreadyVoted(verifier);
        bool overlap = (agree & disagree) | (agree & cannotFetch) | (disagree & cannotFetch) != 0;
        if (overlap) revert MapsOverlap(agree, disagree, cannotFetch);
        uint256 open = _openReports(jobId, j);
        uint256 maps = agree | disagree | cannotFetch;
        if (maps & ~open != 0) revert UnknownReports(maps, open);

        j.work.voted |= uint32(1) << verifier;
        for (uint256 rest = maps; rest != 0; rest &= rest - 1) {
            uint16 index = rest.lowest();
            ReportEntry storage e = _reports[jobId][round][index];
            uint32 mark = uint32(1) << verifier;
            if (e.agree & mark != 0) revert OwnReport(index);
            if (agree.has(index)) e.agree |= mark;
            else if (disagree.has(index)) e.disagree |= mark;
            else e.cannotFetch |= mark;
        }
        emit Voted(jobId, round, attempt, verifier, msg.sender, agree, disagree, cannotFetch);
        if ((j.work.voted | j.work.excused) == j.state.verifiers) _resolve(jobId, j);
    }

    // --- draw ---

    function _pokeDraw(uint256 jobId, Job storage j) private {
        RoundState storage s = j.state;
        if (block.number <= s.beaconBlock) revert NothingToDo(s.phase, 0, s.beaconBlock);
        bytes32 beacon = blockhash(s.beaconBlock);
        if (beacon == 0) {
            s.beaconBlock = uint64(block.number) + j.terms.beaconDelay;
            emit BeaconRearmed(jobId, s.round, s.attempt, s.beaconBlock);
            return;
        }
        s.auditSeed = Hashing.auditSeed(_slot(jobId, s), s.commitAccumulator, s.revealAccumulator, beacon);
        _startReport(jobId, j);
    }

    function _startReport(uint256 jobId, Job storage j) private {
        RoundState storage s = j.state;
        Work storage w = j.work;
        if (w.firstAuditSeed == 0) w.firstAuditSeed = s.auditSeed;
        uint256 auditors = uint256(j.terms.auditors) + s.attempt;
        uint256 all = s.verifiers.popcount();
        w.auditors = uint16(auditors < all ? auditors : all);
        w.halfTime = uint64(block.timestamp) + j.terms.reportSeconds / 2;
        w.attemptFrom = _records[jobId][s.round].reportCount;
        (w.balloted, w.supplemented, w.voted, w.excused) = (0, 0, 0, 0);
        (w.challenged, w.answered, w.withdrawn) = (0, 0, 0);
        s.phase = Phase.REPORT;
        s.beaconBlock = 0;
        s.deadline = uint64(block.timestamp) + j.terms.reportSeconds;
        emit AuditStarted(jobId, s.round, s.attempt, s.auditSeed, w.auditors, s.auditSet, w.halfTime, s.deadline);
    }

    // --- ballots ---

    function _markBalloted(Work storage w, uint16 verifier) private {
        uint32 mark = uint32(1) << verifier;
        if (w.balloted & mark == 0) {
            w.balloted |= mark;
            return;
        }
        if (w.supplemented & mark != 0) revert AlreadyBalloted(verifier);
        if (block.timestamp < w.halfTime) revert SupplementTooEarly(w.halfTime, block.timestamp);
        w.supplemented |= mark;
    }

    function _storeFindings(uint256 jobId, Job storage j, uint16 verifier, Finding[] calldata findings) private {
        uint256 auditSet = j.state.auditSet;
        uint32 epoch = j.work.epoch;
        if (findings.length > j.terms.seats) revert TooManyFindings(findings.length, j.terms.seats);
        uint256 replayed;
        for (uint256 i = 0; i < findings.length; i++) {
            Finding calldata f = findings[i];
            if (f.seat > type(uint8).max || !auditSet.has(f.seat)) revert SeatNotAudited(f.seat, auditSet);
            if (f.segments == 0) revert EmptyFinding(f.seat);
            replayed |= Bits.bit(f.seat);
            _segments[_segmentsKey(jobId, epoch, verifier, f.seat)] |= uint256(f.segments) << _lane(f.seat);
        }
        if (replayed == 0) return;
        _replayed[jobId][epoch][verifier] |= replayed;
        j.work.replayedSeats |= replayed;
    }

    /// @dev Withheld data has to be challenged, so that there is time to answer.
    function _requireReport(Report calldata report) private pure {
        bool faultKnown = report.fault > Fault.WITHHELD;
        bool needsSegment = report.fault == Fault.WRONG_REPLAY || report.fault == Fault.OUT_OF_TOLERANCE;
        bool about = report.segment < MAX_SEGMENTS || (report.segment == NO_SEGMENT && !needsSegment);
        if (!faultKnown || !about) revert BadReport(report.seat, report.segment, report.fault);
    }

    function _endReport(uint256 jobId, Job storage j) internal override {
        RoundState storage s = j.state;
        uint256 open = _openReports(jobId, j);
        uint256 excused = open == 0 ? s.verifiers : type(uint32).max;
        for (; open != 0; open &= open - 1) {
            excused &= _reports[jobId][s.round][open.lowest()].agree;
        }
        j.work.excused = uint32(excused);
        if (excused == s.verifiers) return _resolve(jobId, j);
        s.phase = Phase.CONFIRM;
        s.deadline = uint64(block.timestamp) + j.terms.confirmSeconds;
        emit ConfirmStarted(jobId, s.round, s.attempt, s.deadline);
    }

    // --- evidence ---

    function _resolve(uint256 jobId, Job storage j) private {
        RoundState storage s = j.state;
        Work storage w = j.work;
        w.absent |= uint32(s.verifiers) & ~(w.balloted & (w.voted | w.excused));
        _decideReports(jobId, j);
        uint256 caught = s.caught.popcount();
        if (caught >= BREAKER_SEATS && 2 * caught > s.revealed.popcount()) return _halt(jobId, j);
        uint256 unresolved = s.revealed & ~s.rejected & (w.disputedSeats | ~_countedReplays(jobId, j));
        uint256 accepted = s.revealed & ~s.rejected & ~unresolved;
        if (unresolved != 0 && s.attempt + 1 < j.terms.attempts) {
            _void(jobId, s, "Unresolved");
            _armDraw(jobId, j, unresolved);
        } else if (accepted == 0) {
            _recordAuditFaults(jobId, j);
            _retrain(jobId, j, "NoneAccepted");
        } else {
            _startAttest(jobId, j, accepted, unresolved);
        }
    }

    function _decideReports(uint256 jobId, Job storage j) private {
        RoundState storage s = j.state;
        uint256 disputed;
        for (uint256 rest = _openReports(jobId, j); rest != 0; rest &= rest - 1) {
            uint16 index = rest.lowest();
            ReportEntry storage e = _reports[jobId][s.round][index];
            Outcome outcome = j.work.answered.has(index) ? _answeredOutcome(j, e) : _outcome(j, e);
            e.outcome = outcome;
            if (outcome == Outcome.UNRESOLVED) disputed |= Bits.bit(e.seat);
            else if (outcome == Outcome.REFUTED) j.work.contradicted |= _standingBy(e);
            else if (outcome != Outcome.ANSWERED) _reject(jobId, j, e);
            emit ReportResolved(jobId, s.round, s.attempt, index, outcome);
        }
        j.work.disputedSeats = disputed;
    }

    function _outcome(Job storage j, ReportEntry storage e) private view returns (Outcome) {
        uint256 all = j.state.verifiers;
        if (e.fault == Fault.OUT_OF_TOLERANCE) {
            return _isQuorum(j, e.disagree, all) ? Outcome.REFUTED : Outcome.UNRESOLVED;
        }
        uint256 agree = e.fault == Fault.WITHHELD ? e.agree | e.cannotFetch : e.agree;
        if (_isQuorum(j, agree, all)) return Outcome.CONFIRMED;
        if (_isQuorum(j, e.disagree, all)) return Outcome.REFUTED;
        if (e.cannotFetch != 0 && _isQuorum(j, agree | e.cannotFetch, all)) return Outcome.UNFETCHABLE;
        return Outcome.UNRESOLVED;
    }

    /// @dev The block is on the chain, so only replays decide: wrong ones or still impossible ones against the seat,
    /// sound ones for it. It was a false challenge if a quorum did not need the chain.
    function _answeredOutcome(Job storage j, ReportEntry storage e) private view returns (Outcome) {
        uint256 all = j.state.verifiers;
        if (_isQuorum(j, e.agree, all)) return Outcome.CONFIRMED;
        if (_isQuorum(j, e.disagree, all)) return Outcome.REFUTED;
        return _isQuorum(j, e.disagree | e.cannotFetch, all) ? Outcome.ANSWERED : Outcome.UNRESOLVED;
    }

    /// @return verifiers that agree with a report, its reporter included even where an answer took its mark away
    function _standingBy(ReportEntry storage e) private view returns (uint32) {
        return e.isWithdrawn ? e.agree : e.agree | uint32(1) << e.verifier;
    }

    function _reject(uint256 jobId, Job storage j, ReportEntry storage e) private {
        RoundState storage s = j.state;
        e.carriesBond = !s.rejected.has(e.seat);
        s.rejected |= Bits.bit(e.seat);
        if (e.outcome != Outcome.CONFIRMED) return;
        j.work.contradicted |= e.disagree;
        if (e.fault != Fault.WITHHELD) s.caught |= Bits.bit(e.seat);
        if (e.fault == Fault.WRONG_REPLAY) j.work.contradicted |= _vouchers(jobId, j, e.seat, e.segment);
    }

    /// @return found verifiers whose findings say that this segment replayed well
    function _vouchers(uint256 jobId, Job storage j, uint16 seat, uint16 segment) private view returns (uint32 found) {
        for (uint256 rest = j.state.verifiers; rest != 0; rest &= rest - 1) {
            uint16 verifier = rest.lowest();
            uint256 segments = _segments[_segmentsKey(jobId, j.work.epoch, verifier, seat)] >> _lane(seat);
            if (segments.has(segment)) found |= uint32(1) << verifier;
        }
    }

    /// @return replayed seats in findings of verifiers that were not contradicted
    function _countedReplays(uint256 jobId, Job storage j) private view returns (uint256 replayed) {
        for (uint256 rest = j.state.verifiers & ~uint256(j.work.contradicted); rest != 0; rest &= rest - 1) {
            replayed |= _replayed[jobId][j.work.epoch][rest.lowest()];
        }
    }

    function _startAttest(uint256 jobId, Job storage j, uint256 accepted, uint256 unresolved) private {
        RoundState storage s = j.state;
        s.phase = Phase.ATTEST;
        s.deadline = uint64(block.timestamp) + j.terms.attestSeconds;
        (s.accepted, s.unresolved) = (accepted, unresolved);
        s.dutiful = s.verifiers & ~uint256(j.work.absent | j.work.contradicted);
        s.cutBlock = uint64(block.number);
        s.cutBlockHash = 0;
        j.work.quorumVerdict = 0;
        s.evidenceRoot = Hashing.evidenceRoot(_slot(jobId, s), s);
        _emitAttestStarted(jobId, s);
    }

    function _emitAttestStarted(uint256 jobId, RoundState storage s) private {
        emit AttestStarted(
            jobId,
            s.round,
            s.attempt,
            s.accepted,
            s.rejected,
            s.unresolved,
            s.caught,
            s.dutiful,
            s.evidenceRoot,
            s.cutBlock,
            s.deadline
        );
    }

    // --- circuit breaker ---

    function _halt(uint256 jobId, Job storage j) private {
        RoundState storage s = j.state;
        (s.status, s.phase, s.deadline) = (JobStatus.HALTED, Phase.HALTED, 0);
        emit CircuitBroken(jobId, s.round, s.attempt, s.rejected);
        jobs.setStatus(jobId, JobStatus.HALTED, "Halted");
    }

    function _pokeHalted(uint256 jobId, Job storage j) private {
        if (block.timestamp < j.terms.expiry) revert NothingToDo(Phase.HALTED, j.terms.expiry, 0);
        _annul(jobId, j);
        _records[jobId][j.state.round].isForgiven = true;
        _close(jobId, j, JobStatus.EXPIRED, "Expired");
    }

    /// @dev Nothing that this round's audits said stands any more.
    function _annul(uint256 jobId, Job storage j) private {
        RoundRecord storage r = _records[jobId][j.state.round];
        r.annulledBelow = r.reportCount;
        Work storage w = j.work;
        w.epoch++;
        (w.absent, w.contradicted, w.disputedSeats, w.replayedSeats) = (0, 0, 0, 0);
    }

    function _segmentsKey(uint256 jobId, uint32 epoch, uint16 verifier, uint16 seat) private pure returns (bytes32) {
        return keccak256(abi.encode(jobId, epoch, verifier, seat / 4));
    }

    function _lane(uint16 seat) private pure returns (uint256) {
        return (seat % 4) * MAX_SEGMENTS;
    }
}
