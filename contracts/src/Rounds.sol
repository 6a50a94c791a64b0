// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {Earned, IMembersHooks, IRoundsHooks} from "./interfaces/IHooks.sol";
import {IRounds} from "./interfaces/IRounds.sol";
import {Bits} from "./libraries/Bits.sol";
import {Rows} from "./libraries/Rows.sol";
import {Wired} from "./libraries/Wired.sol";
import "./types/Types.sol";
import {RoundsBase} from "./rounds/RoundsBase.sol";
import {RoundsSettlement} from "./rounds/RoundsSettlement.sol";

/// @title The round state machine. It holds no money and asks nobody who may change his answer.
/// @notice Commit, reveal and word write one or two words that are reused from round to round. Of a settled round there stay a
/// hash of its facts, its time, and rows of bits.
contract Rounds is RoundsSettlement, IRoundsHooks, Wired {
    using Bits for uint256;

    address public immutable jobs;
    address public members;
    address public audits;

    error NotAllowed(address caller);
    error SeatTaken(uint16 seat);
    error NoSuchIndex(uint16 index, uint256 count);
    error NoMiss(uint16 seat, uint256 owing);
    error MergeRuns(uint256 jobId);
    error JobClosed(uint256 jobId);
    error WindowOpen(uint256 windowEnd, uint256 now_);
    error NotRevealed(uint16 seat, uint32 round);

    constructor(address jobs_, uint256 longestGame_) RoundsBase(longestGame_) {
        jobs = jobs_;
    }

    function wire(address members_, address audits_) external wiring {
        (members, audits) = (members_, audits_);
    }

    modifier only(address caller) {
        if (msg.sender != caller) revert NotAllowed(msg.sender);
        _;
    }

    // --- the escrow's ---

    /// @inheritdoc IRoundsHooks
    function open(uint256 jobId, Terms calldata t, address policy) external only(jobs) {
        Job storage j = _jobs[jobId];
        j.head.status = JobStatus.OPEN;
        j.policy = policy;
        j.windows = Windows(
            t.trainSeconds,
            t.revealSeconds,
            t.mergeSeconds,
            t.auditSeconds,
            t.openSeconds,
            t.keySeconds,
            t.windowSeconds
        );
        Shape memory s;
        (s.expiry, s.rounds, s.seats, s.minProviders) = (uint40(t.expiry), t.rounds, t.seats, t.minProviders);
        (s.places, s.minVerifiers, s.f, s.shareBps) = (t.places, t.minVerifiers, t.f, t.shareBps);
        s.segments = uint16(t.steps / t.segmentSteps);
        (s.seatBits, s.placeBits) = (uint16(Rows.width(t.seats)), uint16(Rows.width(t.places)));
        j.shape = s;
    }

    /// @inheritdoc IRoundsHooks
    function cancel(uint256 jobId) external only(jobs) {
        Job storage j = _job(jobId);
        Head memory h = j.head;
        if (h.phase == Phase.WAITING) return _close(jobId, j, h, JobStatus.CANCELLED);
        j.head.isCancelled = true;
    }

    /// @inheritdoc IRoundsHooks
    function statusOf(uint256 jobId) external view returns (JobStatus, uint32, Earned memory) {
        Job storage j = _jobs[jobId];
        return (j.head.status, j.head.round, j.earned);
    }

    /// @inheritdoc IRoundsHooks
    function segmentsPaid(uint256 jobId, uint16 seat, uint32 from, uint32 to, uint32 lostFrom)
        external
        view
        returns (uint256 paid, uint256 lost)
    {
        Job storage j = _jobs[jobId];
        _requireOver(jobId, to);
        Shape memory s = j.shape;
        for (uint32 round = from; round < to; round++) {
            uint256 segments = _paidSegments(j, s, round, seat);
            if (round < lostFrom) paid += segments;
            else lost += segments;
        }
    }

    /// @inheritdoc IRoundsHooks
    function segmentsUnpaid(uint256 jobId, uint32 from, uint32 to) external view returns (uint256 total) {
        Job storage j = _jobs[jobId];
        _requireOver(jobId, to);
        Shape memory s = j.shape;
        for (uint32 round = from; round < to; round++) {
            uint256 lost = Rows.get(j.lost, s.seatBits, round);
            if (lost != 0) total += _segmentsOf(j, s, round, lost, j.settled[round].hasPartials);
        }
    }

    /// @inheritdoc IRoundsHooks
    function signaturesOf(uint256 jobId, uint16 place_, uint32 from, uint32 to) external view returns (uint256 count) {
        Job storage j = _jobs[jobId];
        _requireOver(jobId, to);
        uint256 bits = j.shape.placeBits;
        for (uint256 round = from; round < to; round++) {
            if (Rows.get(j.signed, bits, round).has(place_)) count++;
        }
    }

    // --- the members' ---

    /// @inheritdoc IRoundsHooks
    function sit(uint256 jobId, uint16 seat, address account, uint32 id) external only(members) returns (uint32 from) {
        Job storage j = _job(jobId);
        Head memory h = j.head;
        if (h.phase == Phase.CLOSED) revert JobClosed(jobId);
        if (seat >= j.shape.seats) revert NoSuchIndex(seat, j.shape.seats);
        uint256 taken = j.held | j.owing | j.seated;
        if (taken.has(seat)) revert SeatTaken(seat);
        from = _nextRound(h);
        j.seats[seat] = Occupant(account, id, from);
        j.held |= Bits.bit(seat);
    }

    /// @inheritdoc IRoundsHooks
    function unseat(uint256 jobId, uint16 seat) external only(members) returns (uint32 to) {
        Job storage j = _jobs[jobId];
        j.held &= ~Bits.bit(seat);
        return _nextRound(j.head);
    }

    /// @inheritdoc IRoundsHooks
    function stop(uint256 jobId, uint16 seat, address account, bytes32 root) external only(members) returns (uint32) {
        Job storage j = _jobs[jobId];
        Head memory h = j.head;
        uint256 mark = Bits.bit(seat);
        j.held &= ~mark;
        if (h.phase != Phase.TRAIN || j.waiting & mark == 0) return _nextRound(h);
        (uint256 waiting, uint256 seated) = (j.waiting & ~mark, j.seated & ~mark);
        (j.waiting, j.seated) = (waiting, seated);
        emit Stopped(jobId, account, seat, h.round, root);
        uint32 round = h.round;
        if (waiting == 0) _endTrain(jobId, j, h, 0);
        return round;
    }

    /// @inheritdoc IRoundsHooks
    function clearOwing(uint256 jobId, uint16 seat) external only(members) returns (uint32 id, uint32 to) {
        Job storage j = _jobs[jobId];
        if (seat > type(uint8).max || !j.owing.has(seat)) revert NoMiss(seat, j.owing);
        j.owing ^= Bits.bit(seat);
        return (j.seats[seat].id, _nextRound(j.head));
    }

    /// @inheritdoc IRoundsHooks
    function place(uint256 jobId, uint16 place_, address account, uint32 id)
        external
        only(members)
        returns (uint32 from)
    {
        Job storage j = _job(jobId);
        Head memory h = j.head;
        if (h.phase == Phase.CLOSED) revert JobClosed(jobId);
        if (place_ >= j.shape.places) revert NoSuchIndex(place_, j.shape.places);
        from = _nextRound(h);
        Occupant memory before = j.pool[place_];
        if (before.from < from) j.poolBefore[place_] = before;
        j.pool[place_] = Occupant(account, id, from);
    }

    /// @inheritdoc IRoundsHooks
    function setReady(uint256 jobId, uint16 place_) external only(members) {
        Job storage j = _jobs[jobId];
        Head memory h = _requireNoMerge(jobId, j);
        if (h.phase == Phase.WAITING) _setReady(j, h, j.ready | Bits.bit(place_));
        else j.poolIn |= Bits.bit(place_);
    }

    /// @inheritdoc IRoundsHooks
    function unplace(uint256 jobId, uint16 place_) external only(members) returns (uint32 to) {
        Job storage j = _jobs[jobId];
        Head memory h = j.head;
        uint256 mark = Bits.bit(place_);
        if (h.phase == Phase.WAITING) {
            _setReady(j, h, j.ready & ~mark);
        } else {
            j.poolIn &= ~mark;
            if (j.ready & mark != 0) j.poolOut |= mark;
        }
        return _nextRound(h);
    }

    /// @inheritdoc IRoundsHooks
    function setPay(uint256 jobId, uint32 round, uint16 seat, bool isPaid) external only(audits) {
        Job storage j = _jobs[jobId];
        uint256 bits = j.shape.seatBits;
        (uint256 pay, uint256 lost) = (Rows.get(j.pay, bits, round), Rows.get(j.lost, bits, round));
        uint256 mark = Bits.bit(seat);
        if ((pay | lost) & mark == 0) revert NotRevealed(seat, round);
        (pay, lost) = isPaid ? (pay | mark, lost & ~mark) : (pay & ~mark, lost | mark);
        Rows.set(j.pay, bits, round, pay);
        Rows.set(j.lost, bits, round, lost);
        emit PayChanged(jobId, round, pay);
    }

    // --- views ---

    /// @inheritdoc IRounds
    function state(uint256 jobId) external view returns (RoundState memory s) {
        Job storage j = _job(jobId);
        Head memory h = j.head;
        (s.status, s.phase, s.round, s.lot, s.deadline) = (h.status, h.phase, h.round, h.lot, h.deadline);
        (s.seed, s.nextSeed) = (j.seed, j.nextSeed);
        s.auditSeed = h.isSeeded ? j.auditSeed : bytes32(0);
        (s.held, s.seated, s.waiting, s.owing) = (j.held, j.seated, j.waiting, j.owing);
        (s.ready, s.committee, s.due) = (j.ready, j.committee, j.due);
        (s.reveals, s.words, s.model, s.digest) = (j.reveals, j.words, j.model, j.digest);
    }

    /// @inheritdoc IRounds
    function timesOf(uint256 jobId, uint32 round) public view returns (Times memory t) {
        Job storage j = _jobs[jobId];
        Settlement memory s = j.settled[round];
        if (s.settledAt == 0) return t;
        Windows memory w = j.windows;
        (t.settledAt, t.auditTag) = (s.settledAt, s.auditTag);
        t.auditEnd = s.settledAt + uint64(s.audits) * w.audit;
        t.openEnd = t.auditEnd + w.open;
        t.keysEnd = t.openEnd + w.key;
        t.half = t.keysEnd + w.window / 2;
        t.windowEnd = t.keysEnd + w.window;
    }

    /// @inheritdoc IRounds
    function factsOf(uint256 jobId, uint32 round) external view returns (bytes32) {
        return _jobs[jobId].facts[round];
    }

    /// @inheritdoc IRounds
    function rowsOf(uint256 jobId, uint32 round) external view returns (uint256, uint256, uint256) {
        Job storage j = _jobs[jobId];
        (uint256 seats, uint256 places) = (j.shape.seatBits, j.shape.placeBits);
        return (Rows.get(j.pay, seats, round), Rows.get(j.lost, seats, round), Rows.get(j.signed, places, round));
    }

    /// @inheritdoc IRounds
    function seatHolder(uint256 jobId, uint16 seat) external view returns (address, uint32, uint32) {
        Occupant memory o = _jobs[jobId].seats[seat];
        return (o.account, o.id, o.from);
    }

    /// @inheritdoc IRounds
    function placeHolder(uint256 jobId, uint16 place_) external view returns (address, uint32, uint32) {
        Job storage j = _jobs[jobId];
        Occupant memory o = _member(j, place_, j.head.round);
        return (o.account, o.id, o.from);
    }

    /// @inheritdoc IRounds
    function absentOf(uint256 jobId, uint32 round) external view returns (uint256 absent) {
        Job storage j = _jobs[jobId];
        absent = j.absent[round];
        bool isLast = j.head.phase == Phase.CLOSED && round + 1 == j.head.round;
        if (isLast && !_isSigning(j, round)) absent |= j.due;
    }

    /// @inheritdoc IRounds
    function segmentsOf(uint256 jobId, uint32 round, uint16 seat) external view returns (uint256) {
        Job storage j = _jobs[jobId];
        uint256 done = j.partials[uint256(round) << 8 | seat];
        return done == 0 ? j.shape.segments : done - 1;
    }

    /// @inheritdoc IRounds
    function drawRule(uint256 jobId) external view returns (uint32, uint8, uint16) {
        Shape memory s = _jobs[jobId].shape;
        return (s.rounds, s.f, s.shareBps);
    }

    /// @inheritdoc IRounds
    function policyOf(uint256 jobId) external view returns (address) {
        return _jobs[jobId].policy;
    }

    /// @inheritdoc IRounds
    function absoluteEnd(uint256 jobId) external view returns (uint256) {
        Job storage j = _job(jobId);
        Windows memory w = j.windows;
        return _lastMoment(j) + MAX_AUDITS * w.audit + w.open + w.key + w.window + LONGEST_GAMES * longestGame;
    }

    function _members() internal view override returns (IMembersHooks) {
        return IMembersHooks(members);
    }

    // --- parts ---

    function _requireOver(uint256 jobId, uint32 to) private view {
        if (to == 0) return;
        uint256 end = timesOf(jobId, to - 1).windowEnd;
        if (end == 0 || block.timestamp < end) revert WindowOpen(end, block.timestamp);
    }

    function _paidSegments(Job storage j, Shape memory s, uint256 round, uint16 seat) private view returns (uint256) {
        if (!Rows.get(j.pay, s.seatBits, round).has(seat)) return 0;
        uint256 done = j.partials[round << 8 | seat];
        return done == 0 ? s.segments : done - 1;
    }

    function _requireNoMerge(uint256 jobId, Job storage j) private view returns (Head memory h) {
        h = j.head;
        if (h.phase == Phase.CLOSED) revert JobClosed(jobId);
        if (h.phase == Phase.MERGE) revert MergeRuns(jobId);
    }

    /// @dev While a job waits: the pool as it stood before this block is kept, since an opening's lot is drawn from it.
    function _setReady(Job storage j, Head memory h, uint256 ready) private {
        if (block.number > h.poolChangedAt) {
            j.readyBefore = j.ready;
            j.head.poolChangedAt = uint40(block.number);
        }
        j.ready = ready;
    }
}
