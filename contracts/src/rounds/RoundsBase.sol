// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {IConfig} from "../interfaces/IConfig.sol";
import {ICustody} from "../interfaces/ICustody.sol";
import {Boundary, IJobsHooks, IRosterHooks} from "../interfaces/IHooks.sol";
import {IRoster} from "../interfaces/IRoster.sol";
import {IRoundsEvents} from "../interfaces/IRoundsEvents.sol";
import {Bits} from "../libraries/Bits.sol";
import {Hashing} from "../libraries/Hashing.sol";
import "../types/Types.sol";

/// @title Storage of the round state machine, and the transitions that more than one of its modules makes.
/// @dev The storage layout is shared by delegate call: only this contract declares state variables.
abstract contract RoundsBase is IRoundsEvents {
    using Bits for uint256;

    /// What a round needs beside the state that everyone reads. Verifier bitmaps are 32 bits wide.
    struct Work {
        uint64 halfTime;
        uint64 armedBlock; // when this training's first audit beacon was fixed: later joiners wait a round more
        uint32 epoch; // of the evidence: counted findings belong to one
        uint16 auditors;
        uint16 attemptFrom; // index of the first report of this attempt
        uint32 balloted;
        uint32 supplemented;
        uint32 voted;
        uint32 excused; // reporters or seconders of every open report have nothing to vote on
        uint32 absent; // in any audit of this round
        uint32 absentBefore; // in the round before
        uint32 contradicted; // in any audit of this round
        bytes32 firstAuditSeed;
        bytes32 quorumVerdict;
        uint256 shortSeats; // revealed fewer steps than asked: diverged
        uint256 missedBefore; // in the training before
        uint256 missedTwice;
        uint256 disputedSeats; // with a report that the last audit left unresolved
        uint256 replayedSeats; // by anyone, in this training
        uint256 challenged; // this attempt's challenges, by report
        uint256 answered; // of these, those whose block is on the chain
        uint256 withdrawn; // and those that everyone took back
    }

    struct Job {
        RoundState state;
        Work work;
        Terms terms;
        uint16 missCutBps;
        uint16 verifierCutBps;
        uint16 finderShareBps;
        uint16 accusedShareBps;
        bool cancelRequested;
        uint32 settledRounds;
        uint32 finalRounds;
        uint64 closedAt;
        address policy;
        uint256 creditableSeats;
        uint256 creditableVerifiers;
    }

    struct SeatRecord {
        bytes32 commitment;
        bytes32 optimiserRoot; // last accepted
        bytes32 pendingRoot; // becomes the root if its round settles with the seat accepted
        uint32 tenure;
        uint32 steps;
        uint32 pendingRound;
        uint16 pendingAttempt;
        bool hasPending;
    }

    struct RoundRecord {
        uint64 disputeUntil; // 0 while the round runs
        uint16 trainAttempt;
        uint16 reportCount;
        uint16 annulledBelow; // reports before this index count as unresolved
        bool isSettled;
        bool isForgiven; // halted by the circuit breaker and never re-audited: no cuts
        uint256 accepted;
        bytes32 claimsRoot;
        uint256 cumulativeTotal;
        bytes32 facts; // Hashing.roundFacts: what a claim about the round is proved against
    }

    struct ReportEntry {
        address reporter;
        uint16 seat;
        uint16 segment;
        uint16 verifier;
        Fault fault;
        Outcome outcome;
        bool assigned;
        bool carriesBond; // the first confirmed report on its seat: the one that slashes the seat's bond
        bool isWithdrawn; // by its reporter; seconders may still stand by it
        address accused;
        uint32 agree; // verifiers, the reporter and seconders included
        uint32 disagree;
        uint32 cannotFetch;
        bytes32 blockDigest; // of a challenge: SHA-256 of the block that is missing
    }

    struct FaultRecord {
        address account;
        bool isPunished;
    }

    uint256 internal constant MAX_CID_BYTES = 128;
    uint256 internal constant BPS = 10_000;
    uint16 internal constant NO_SEGMENT = 0xffff;

    IConfig public immutable config;
    ICustody public immutable stakes;
    IJobsHooks public immutable jobs;
    IRosterHooks public immutable roster;

    mapping(uint256 jobId => Job) internal _jobs;
    mapping(uint256 jobId => mapping(uint16 seat => SeatRecord)) internal _seats;
    mapping(uint256 jobId => mapping(uint32 round => RoundRecord)) internal _records;
    mapping(uint256 jobId => mapping(uint32 round => mapping(uint16 index => ReportEntry))) internal _reports;
    /// Seats that a verifier replayed, and which segments: four seats a word.
    mapping(uint256 jobId => mapping(uint32 epoch => mapping(uint16 verifier => uint256))) internal _replayed;
    mapping(bytes32 epochVerifierQuad => uint256) internal _segments;
    mapping(bytes32 attemptAndContent => uint16 indexPlusOne) internal _reportIndex;
    mapping(bytes32 attemptAndVerifier => uint16) internal _reportsFiled;
    mapping(bytes32 faultId => FaultRecord) internal _faults;

    error UnknownJob(uint256 jobId);
    error WrongPhase(Phase phase, Phase needed);
    error StaleSlot(uint32 round, uint16 attempt, uint32 currentRound, uint16 currentAttempt);
    error WindowClosed(uint64 deadline, uint256 now_);
    error NothingToDo(Phase phase, uint64 deadline, uint64 beaconBlock);
    error NotSeated(address account);
    error NotVerifier(address account);

    constructor(address config_, address stakes_, address jobs_, address roster_) {
        config = IConfig(config_);
        stakes = ICustody(stakes_);
        jobs = IJobsHooks(jobs_);
        roster = IRosterHooks(roster_);
    }

    /// @return hash of the addresses this contract works with; the entry contract and its modules agree on it
    function links() public view returns (bytes32) {
        return keccak256(abi.encode(config, stakes, jobs, roster));
    }

    // --- checks ---

    function _job(uint256 jobId) internal view returns (Job storage j) {
        j = _jobs[jobId];
        if (j.state.status == JobStatus.NONE) revert UnknownJob(jobId);
    }

    /// @dev An action belongs to one slot and one window; the window is half-open.
    function _requireWindow(RoundState storage s, uint32 round, uint16 attempt, Phase needed) internal view {
        if (s.phase != needed) revert WrongPhase(s.phase, needed);
        if (s.round != round || s.attempt != attempt) revert StaleSlot(round, attempt, s.round, s.attempt);
        if (block.timestamp >= s.deadline) revert WindowClosed(s.deadline, block.timestamp);
    }

    function _requireDeadlinePassed(RoundState storage s) internal view {
        if (block.timestamp < s.deadline) revert NothingToDo(s.phase, s.deadline, s.beaconBlock);
    }

    function _requireSeat(uint256 jobId, uint256 snapshot) internal view returns (uint16 seat) {
        bool seated;
        (seated, seat) = IRoster(address(roster)).seatOf(jobId, msg.sender);
        if (!seated || !snapshot.has(seat)) revert NotSeated(msg.sender);
    }

    function _requireVerifier(uint256 jobId, uint256 snapshot) internal view returns (uint16 verifier) {
        bool joined;
        (joined, verifier) = IRoster(address(roster)).verifierOf(jobId, msg.sender);
        if (!joined || !snapshot.has(verifier)) revert NotVerifier(msg.sender);
    }

    function _slot(uint256 jobId, RoundState storage s) internal view returns (Hashing.Slot memory) {
        return Hashing.Slot(address(this), jobId, s.round, s.attempt);
    }

    /// @dev All verifiers of a job lock the same bond, so weight is a count times the bond.
    function _isQuorum(Job storage j, uint256 agreeing, uint256 all) internal view returns (bool) {
        return agreeing.popcount() * j.terms.quorumDenominator >= all.popcount() * j.terms.quorumNumerator;
    }

    // --- opening ---

    /// @dev Seats and verifiers freeze here, before the block that fixes the data seed.
    function _openRound(uint256 jobId, Job storage j, uint64 beaconBlock) internal {
        RoundState storage s = j.state;
        (uint256 seated, uint256 verifiers,) = roster.membersOf(jobId);
        (uint256 freshSeats, uint256 freshVerifiers) = roster.takeFresh(jobId);
        RoundState memory fresh;
        fresh.status = s.status;
        fresh.phase = Phase.SEEDING;
        (fresh.round, fresh.attempt, fresh.trainAttempt) = (s.round, s.attempt, s.attempt);
        (fresh.seated, fresh.verifiers, fresh.beaconBlock) = (seated, verifiers, beaconBlock);
        fresh.totalWeight = verifiers.popcount() * j.terms.verifierBond;
        (fresh.parent, fresh.cumulativeTotal) = (s.parent, s.cumulativeTotal);
        j.state = fresh;

        Work storage w = j.work;
        w.epoch++;
        w.armedBlock = 0;
        w.absent &= ~uint32(freshVerifiers);
        w.absentBefore &= ~uint32(freshVerifiers);
        w.contradicted &= ~uint32(freshVerifiers);
        w.firstAuditSeed = 0;
        w.shortSeats = 0;
        w.missedBefore &= ~freshSeats;
        w.missedTwice = 0;
        w.disputedSeats = 0;
        w.replayedSeats = 0;
        emit RoundOpened(jobId, s.round, s.attempt, seated, verifiers, fresh.totalWeight, beaconBlock);
    }

    function _openSeeding(uint256 jobId, Job storage j) internal {
        _openRound(jobId, j, uint64(block.number) + j.terms.beaconDelay);
    }

    function _startTrain(uint256 jobId, Job storage j, bytes32 seedSource, uint16 seedAttempt) internal {
        RoundState storage s = j.state;
        s.dataSeed = Hashing.dataSeed(Hashing.Slot(address(this), jobId, s.round, seedAttempt), seedSource);
        s.phase = Phase.TRAIN;
        s.beaconBlock = 0;
        s.deadline = uint64(block.timestamp) + j.terms.trainSeconds;
        emit TrainStarted(jobId, s.round, s.attempt, s.seated, s.verifiers, s.totalWeight, s.dataSeed, s.deadline);
    }

    /// @return whether the roster holds the members that a round needs
    function _hasEnough(uint256 jobId, Job storage j) internal view returns (bool) {
        (uint256 seated, uint256 verifiers,) = roster.membersOf(jobId);
        return seated.popcount() >= j.terms.minProviders && verifiers.popcount() >= j.terms.minVerifiers;
    }

    // --- a phase that failed ---

    function _void(uint256 jobId, RoundState storage s, string memory reason) internal {
        emit RoundVoided(jobId, s.round, s.attempt, reason);
        s.attempt++;
        s.phase = Phase.WAITING;
        s.deadline = 0;
        s.beaconBlock = 0;
    }

    /// @dev Trains the round again with those that remain, or ends the job when its attempts are used up.
    function _retrain(uint256 jobId, Job storage j, string memory reason) internal {
        RoundState storage s = j.state;
        _void(jobId, s, reason);
        if (s.attempt >= j.terms.attempts) return _exhaust(jobId, j);
        if (block.timestamp >= j.terms.expiry) return _close(jobId, j, JobStatus.EXPIRED, "Expired");
        _applyBoundary(jobId, j, 0, type(uint256).max);
        if (_hasEnough(jobId, j)) _openSeeding(jobId, j);
    }

    /// @param queuedBefore block; joiners from then on may know the next data seed and wait
    function _applyBoundary(uint256 jobId, Job storage j, uint256 missedVerifiers, uint256 queuedBefore) internal {
        RoundState storage s = j.state;
        uint256 missed = j.work.missedTwice;
        if (missed | missedVerifiers != 0) emit MembershipDropped(jobId, s.round, missed, missedVerifiers);
        roster.applyBoundary(jobId, Boundary(s.rejected, missed, missedVerifiers, queuedBefore));
    }

    /// @dev The block that fixes the audit seed comes after everything that could still be chosen.
    function _armDraw(uint256 jobId, Job storage j, uint256 auditSet) internal {
        RoundState storage s = j.state;
        s.phase = Phase.DRAW;
        s.deadline = 0;
        s.auditSet = auditSet;
        s.beaconBlock = uint64(block.number) + j.terms.beaconDelay;
        if (j.work.armedBlock == 0) j.work.armedBlock = uint64(block.number);
        emit AuditArmed(jobId, s.round, s.attempt, s.revealed, auditSet, s.beaconBlock);
    }

    // --- faults ---

    /// @dev One loop over absent seats; nothing where everyone was there.
    function _recordMisses(uint256 jobId, Job storage j, uint256 missed) internal {
        j.work.missedTwice = missed & j.work.missedBefore;
        j.work.missedBefore = missed;
        for (uint256 rest = missed; rest != 0; rest &= rest - 1) {
            uint16 seat = rest.lowest();
            _recordFault(jobId, j.state.round, Offence.SEAT_MISSED, seat, _seatHolder(jobId, seat));
        }
    }

    /// @dev When the audits of a training are over: holds the bonds of rejected seats and of verifiers at fault.
    function _recordAuditFaults(uint256 jobId, Job storage j) internal {
        for (uint256 rest = j.state.rejected; rest != 0; rest &= rest - 1) {
            roster.markFault(jobId, Role.PROVIDER, _seatHolder(jobId, rest.lowest()));
        }
        _recordVerifierFaults(jobId, j, Offence.VERIFIER_MISSED, j.work.absent & j.state.verifiers);
        _recordVerifierFaults(jobId, j, Offence.VERIFIER_CONTRADICTED, j.work.contradicted & j.state.verifiers);
    }

    function _recordVerifierFaults(uint256 jobId, Job storage j, Offence offence, uint256 verifiers) private {
        for (; verifiers != 0; verifiers &= verifiers - 1) {
            uint16 verifier = verifiers.lowest();
            (address account,) = IRoster(address(roster)).verifierHolder(jobId, verifier);
            _recordFault(jobId, j.state.round, offence, verifier, account);
        }
    }

    /// @dev A second offence of the same kind, round and index is the same fault.
    function _recordFault(uint256 jobId, uint32 round, Offence offence, uint16 index, address account) private {
        FaultRecord storage fault = _faults[Hashing.faultId(address(this), jobId, round, offence, index)];
        if (fault.account != address(0)) return;
        fault.account = account;
        roster.markFault(jobId, offence == Offence.SEAT_MISSED ? Role.PROVIDER : Role.VERIFIER, account);
    }

    function _seatHolder(uint256 jobId, uint16 seat) internal view returns (address) {
        return IRoster(address(roster)).seatHolder(jobId, seat);
    }

    // --- closing ---

    /// @dev Out of attempts: what the evidence alone supports is still paid, the rest goes back.
    function _exhaust(uint256 jobId, Job storage j) internal {
        RoundState storage s = j.state;
        if (s.revealed != 0) {
            j.creditableSeats = s.revealed & ~s.rejected & j.work.replayedSeats & ~j.work.disputedSeats;
            j.creditableVerifiers = s.verifiers & ~uint256(j.work.absent | j.work.contradicted);
            uint256 reserve = j.creditableVerifiers.popcount() * j.terms.verifierFee;
            for (uint256 rest = j.creditableSeats; rest != 0; rest &= rest - 1) {
                reserve += _seatPay(jobId, j, rest.lowest());
            }
            jobs.reserveCredits(jobId, reserve);
        }
        _close(jobId, j, JobStatus.EXPIRED, "OutOfAttempts");
    }

    /// @return wei for the steps that the seat revealed last
    function _seatPay(uint256 jobId, Job storage j, uint16 seat) internal view returns (uint256) {
        uint256 tokens = uint256(_seats[jobId][seat].steps) * j.terms.tokensPerStep;
        return tokens * j.terms.pricePerToken;
    }

    function _close(uint256 jobId, Job storage j, JobStatus status, string memory reason) internal {
        RoundState storage s = j.state;
        RoundRecord storage r = _records[jobId][s.round];
        if (r.disputeUntil == 0) r.disputeUntil = uint64(block.timestamp) + j.terms.disputeSeconds;
        (s.status, s.phase, s.deadline, s.beaconBlock) = (status, Phase.CLOSED, 0, 0);
        j.closedAt = uint64(block.timestamp);
        jobs.setStatus(jobId, status, reason);
    }
}
