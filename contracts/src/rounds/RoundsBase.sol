// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {IBeacon} from "../interfaces/IBeacon.sol";
import {IConfig} from "../interfaces/IConfig.sol";
import {Earned} from "../interfaces/IHooks.sol";
import {IJobs} from "../interfaces/IJobs.sol";
import {IRoundsEvents} from "../interfaces/IRoundsEvents.sol";
import {Bits} from "../libraries/Bits.sol";
import {Draws} from "../libraries/Draws.sol";
import {EventLog, IEventLog} from "../libraries/EventLog.sol";
import {Hashing} from "../libraries/Hashing.sol";
import {Rows} from "../libraries/Rows.sol";
import {Wired} from "../libraries/Wired.sol";
import "../types/Types.sol";
import {Head, Packed, Settlement, Shape, Windows} from "./Packed.sol";

/// @title What a round is made of, how one opens, and how a job waits or ends.
/// @dev All storage of the rounds contract and of the modules that run in it by delegate call is
/// declared here, and nowhere else.
abstract contract RoundsBase is IRoundsEvents, EventLog, Wired {
    using Bits for uint256;
    using Packed for Head;
    using Packed for Shape;
    using Packed for Windows;

    /// Who is in a round.
    struct Crew {
        uint256 seated;
        uint256 ready;
        uint256 committee;
    }

    struct Occupant {
        address account;
        uint32 id;
        uint32 from;
    }

    struct Job {
        Head head;
        Windows windows;
        Shape shape;
        address policy;
        bytes32[2] seeds; // of even and of odd rounds, so that the next one's is not written twice
        bytes32 auditSeed;
        uint256 held;
        uint256 seated;
        uint256 waiting;
        uint256 owing;
        uint256 short; // revealed less than three quarters of the round that runs
        uint256 shortLast; // of the round before it
        uint256 shortBefore; // of the one before that, and not since
        bytes32 reveals;
        bytes32 votes; // 28 bytes of the accumulator, then who of the committee has spoken, by rank
        uint256 ready;
        uint256 noted; // the pool as of the noted block, while the job waits, less who left since
        uint256 poolIn;
        uint256 poolOut;
        uint256 committee;
        bytes32 committeeSeed; // of committee draws after the first, whose seed is the round's
        bytes32 model;
        bytes32 digest;
        bytes32 accounts; // hash of the committee's; zero or `NONE` where it is not that of a whole pool that has not changed
        Earned earned;
        mapping(uint256 round => Settlement) settled;
        mapping(uint256 word => uint256) pay; // rows of seats
        mapping(uint256 word => uint256) lost; // rows of seats
        mapping(uint256 word => uint256) signed; // rows of slots
        mapping(uint256 round => uint256) absent; // slots
        mapping(uint256 roundAndSeat => uint256) partials; // segments + 1, where fewer than all
        mapping(uint256 seat => Occupant) seats;
        mapping(uint256 seat => bytes32) commitments;
        mapping(uint256 slot => Occupant) pool;
        mapping(uint256 slot => Occupant) poolBefore;
        mapping(uint256 word => uint256) steps; // SeatSteps
    }

    uint256 internal constant MAX_CID_BYTES = 128;
    uint256 internal constant CHECKPOINT_COMMITMENT_BYTES = 64;
    uint256 internal constant MAX_AUDITS = 16;
    uint256 internal constant MAX_STREAK = 3;
    uint256 internal constant MAX_REPEATS = 3; // of phases of a round, and committee draws whose silence counts for nobody
    uint256 internal constant MOST_DRAWS = 60_000; // fewer than their number has room for
    bytes32 internal constant NONE = bytes32(uint256(1)); // not zero, since a word that was zero is dearer to write

    address public immutable jobs;
    IBeacon public immutable beacon;
    address public members;
    address public audits;
    address public lateVotes;
    address public strikes;
    mapping(uint256 jobId => Job) internal _jobs;

    error UnknownJob(uint256 jobId);
    error WrongPhase(Phase phase, Phase needed);
    error NothingToDo(Phase phase, uint256 deadline);
    error DeadlinePassed(uint256 deadline, uint256 now_);
    error WrongSeed(bytes32 given, bytes32 current);
    error NotYourSeat(uint16 seat, address holder, address caller);
    error NotYourSlot(uint16 slot, address member, address caller);
    error NotWaitedFor(uint16 seat, uint256 waiting);
    error Unseeded(uint256 noted, uint256 block_);

    constructor(address jobs_) {
        jobs = jobs_;
        beacon = IBeacon(IConfig(IJobs(jobs_).config()).beacon());
    }

    function _job(uint256 jobId) internal view returns (Job storage j) {
        j = _jobs[jobId];
        if (j.head.status == JobStatus.NONE) revert UnknownJob(jobId);
    }

    function _roundId(uint256 jobId, uint32 round) internal view returns (Hashing.RoundId memory) {
        return Hashing.RoundId(address(this), jobId, round);
    }

    function _seed(Job storage j, uint32 round) internal view returns (bytes32) {
        return j.seeds[round & 1];
    }

    /// @return the round that members who change now first count in
    function _nextRound(Head memory h) internal pure returns (uint32) {
        return h.phase == Phase.WAITING || h.phase == Phase.CLOSED ? h.round : h.round + 1;
    }

    /// @return unix seconds from which on a committee draw's votes are fixed, so that there is time
    /// to sign over them, and to settle
    function _votesEnd(Head memory h) internal pure returns (uint256) {
        return h.deadline - h.signing;
    }

    /// @return unix seconds from which on nothing of a round is settled any more, and what is said
    /// counts nothing
    /// @dev One mergeSeconds is for the last committee draw, another for `settleLate` behind it.
    function _lastMoment(Job storage j) internal view returns (uint256) {
        Windows memory w = j.windows.load();
        return uint256(j.shape.expiry) + w.train + w.reveal + 2 * uint256(w.merge);
    }

    /// @dev Members that vote and never sign would else hold the bonds of all others until the expiry. It is the end of the
    /// job, and not of who leaves alone: that one would get out of a round that has drawn it for an audit.
    /// @return whether, at a committee draw's deadline, no other one follows it
    function _isOverdue(Job storage j, Head memory h) internal view returns (bool) {
        if (block.timestamp >= j.shape.expiry) return true;
        if (!h.isCancelled && (j.seated & ~j.held) | (j.ready & j.poolOut) == 0) return false;
        uint256 merge = j.windows.merge;
        uint256 draws = 2 + (j.shape.finalAfter + merge - 1) / merge;
        if (draws > MOST_DRAWS) draws = MOST_DRAWS;
        uint256 over = uint256(h.committeeDraw) + 1;
        if (over < draws) return false;
        // Where most were silent, the chain may have stood still: they say what is to be paid.
        return over >= draws + MAX_REPEATS || 2 * uint256(uint32(uint256(j.votes))).popcount() > j.committee.popcount();
    }

    function _member(Job storage j, uint256 slot, uint32 round) internal view returns (Occupant memory o) {
        o = j.pool[slot];
        return o.from <= round ? o : j.poolBefore[slot];
    }

    function _accountAt(Job storage j, uint256 slot, uint32 round) internal view returns (address) {
        Occupant storage o = j.pool[slot];
        return o.from <= round ? o.account : j.poolBefore[slot].account;
    }

    // --- opening, waiting, ending ---

    function _isEnough(Shape memory s, Crew memory c) internal pure returns (bool) {
        uint256 least = 2 * uint256(s.f) + 1;
        if (least < s.minProviders) least = s.minProviders;
        return c.seated.popcount() >= least && c.ready.popcount() >= s.minVerifiers;
    }

    /// @param seed of the round, which is stored
    function _openRound(uint256 jobId, Job storage j, Head memory h, bytes32 seed, Crew memory c) internal {
        (j.reveals, j.votes, j.committee) = (seed, Hashing.noVotes(seed), c.committee);
        // No round opens where the two are not the same: in MERGE all have revealed, and while the
        // job waits nobody is seated.
        if (j.seated != c.seated) (j.seated, j.waiting) = (c.seated, c.seated);
        (h.phase, h.committeeDraw, h.isSeeded) = (Phase.TRAIN, 0, false);
        h.deadline = uint40(block.timestamp) + h.train;
        j.head.store(h);
        _logBehind(
            jobId,
            abi.encode(RoundOpened.selector, jobId, h.round),
            abi.encode(seed, c.seated, c.ready, c.committee, j.model, h.deadline)
        );
    }

    /// @dev Who is outbid or leaves goes before who is ready comes: a slot may do both.
    /// @return isChanged whether somebody did
    function _changePool(Job storage j) internal returns (bool isChanged) {
        (uint256 in_, uint256 out) = (j.poolIn, j.poolOut);
        if (in_ | out == 0) return false;
        j.ready = (j.ready & ~out) | in_;
        (j.poolIn, j.poolOut) = (0, 0);
        return true;
    }

    /// @dev What is kept of a committee's accounts is not the next one's. Later committee draws of
    /// a round change nothing: what is kept is of the whole pool, which is then in each of them.
    function _forgetAccounts(Job storage j) internal {
        if (j.accounts != 0) j.accounts = NONE;
    }

    function _void(uint256 jobId, Job storage j, Head memory h, uint256 missed) internal {
        if (h.isCancelled) return _close(jobId, j, h, JobStatus.CANCELLED);
        if (block.timestamp >= j.shape.expiry) return _close(jobId, j, h, JobStatus.EXPIRED);
        _keepPool(j, h.round);
        _wait(jobId, j, h, missed);
    }

    /// @dev Of the next pool only those are ready at once who are members of the round that opens
    /// again.
    function _keepPool(Job storage j, uint32 round) private {
        uint256 in_ = j.poolIn;
        uint256 kept;
        for (uint256 left = in_; left != 0; left &= left - 1) {
            uint256 slot = left.lowest();
            if (j.pool[slot].from <= round) kept |= Bits.bit(slot);
        }
        if (kept == 0) return;
        j.ready |= kept;
        j.poolIn = in_ ^ kept;
    }

    function _wait(uint256 jobId, Job storage j, Head memory h, uint256 missed) internal {
        (h.phase, h.deadline, h.noted) = (Phase.WAITING, 0, 0);
        (j.seated, j.waiting) = (0, 0);
        j.head.store(h);
        _logBehind(jobId, abi.encode(Waiting.selector, jobId, h.round), abi.encode(missed));
    }

    function _close(uint256 jobId, Job storage j, Head memory h, JobStatus status) internal {
        (h.phase, h.status, h.deadline) = (Phase.CLOSED, status, 0);
        j.head.store(h);
        j.earned.closedAt = uint64(block.timestamp);
        _logBehind(jobId, abi.encode(Closed.selector, jobId), abi.encode(status, h.round, uint64(block.timestamp)));
    }

    /// @dev An event that another one of the members contract, in the same block, would mean
    /// something else behind than before.
    function _logBehind(uint256 jobId, bytes memory topics, bytes memory data) internal {
        _logAfter(jobId, IEventLog(members).logHead(jobId), topics, data);
    }

    // --- what more than one part does ---

    /// @param missed seats that have not committed
    function _endTrain(uint256 jobId, Job storage j, Head memory h, uint256 missed) internal {
        uint256 committed = j.seated & ~missed;
        _free(j, missed);
        if (committed == 0) return _void(jobId, j, h, missed);
        if (missed != 0) j.seated = committed;
        j.waiting = committed;
        (h.phase, h.deadline) = (Phase.REVEAL, uint40(block.timestamp) + j.windows.reveal);
        j.head.store(h);
        _logBehind(jobId, abi.encode(RevealOpened.selector, jobId, h.round), abi.encode(committed, h.deadline));
    }

    /// @dev By the beacon's seed of the block in which MERGE opened: what was done up to it could not
    /// suit it, and nothing done later changes it. Where that is lost, it is this block's.
    /// @return whether it is fixed
    function _seedAudit(uint256 jobId, Job storage j, Head memory h) internal returns (bool) {
        if (h.isSeeded) return true;
        (bytes32 drawn, bool isLost) = beacon.seedOf(h.noted);
        if (isLost) _note(h);
        else if (drawn == 0) return false;
        else h.isSeeded = true;
        j.head.store(h);
        if (isLost) return false;
        bytes32 seed = Hashing.auditSeed(_roundId(jobId, h.round), j.reveals, drawn);
        j.auditSeed = seed;
        _log(jobId, abi.encode(AuditSeeded.selector, jobId, h.round), abi.encode(seed));
        return true;
    }

    /// @dev What is fixed in this block will be drawn by its seed.
    function _note(Head memory h) internal {
        h.noted = uint40(block.number);
        beacon.note();
    }

    /// @return whether so many of a committee were silent that nobody's silence counts
    function _isStandstill(uint256 committee, uint256 silent, uint256 committeeDraw) internal pure returns (bool) {
        return committeeDraw < MAX_REPEATS && 2 * silent.popcount() > committee.popcount();
    }

    /// @dev Who missed owes a penalty, and its seat is nobody's.
    function _free(Job storage j, uint256 missed) internal {
        if (missed == 0) return;
        j.held &= ~missed;
        j.owing |= missed;
    }

    /// @return total segments that these seats revealed
    function _segmentsOf(Job storage j, Shape memory s, uint32 round, uint256 seats)
        internal
        view
        returns (uint256 total)
    {
        total = seats.popcount() * s.segments;
        if (!s.hasPartials) return total;
        for (; seats != 0; seats &= seats - 1) {
            uint256 done = j.partials[uint256(round) << 8 | seats.lowest()];
            if (done != 0) total -= uint256(s.segments) + 1 - done;
        }
    }

    /// @return whether signatures of the round, which is the last settled, still count
    /// @dev Not until the next settlement alone: where the job waits for members, that may be
    /// behind the window.
    function _isSigning(Job storage j, uint32 round) internal view returns (bool) {
        return j.digest != 0 && block.timestamp < _auditEnd(j, round);
    }

    function _auditEnd(Job storage j, uint32 round) internal view returns (uint256) {
        Settlement memory s = j.settled[round];
        return uint256(s.settledAt) + uint256(s.audits) * j.windows.audit;
    }
}
