// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {Bits} from "../libraries/Bits.sol";
import {Draws} from "../libraries/Draws.sol";
import {Rows} from "../libraries/Rows.sol";
import "../types/Types.sol";
import {Head, Packed, Shape, Windows} from "./Packed.sol";
import {RoundsBase} from "./RoundsBase.sol";
import {SeatSteps} from "./SeatSteps.sol";

/// @title What escrow, members and audits tell the rounds contract. IHooks.sol says what each does.
/// @dev Runs by delegate call from `Rounds`; called directly it knows no job.
contract RoundsMembership is RoundsBase {
    using Bits for uint256;
    using Packed for Head;
    using Packed for Shape;
    using SeatSteps for mapping(uint256 => uint256);

    uint32 private constant SIGNING_PART = 4;

    error NotAllowed(address caller);
    error SeatTaken(uint16 seat);
    error NoSuchIndex(uint16 index, uint256 count);
    error NoMissedDuty(uint16 seat, uint256 owing);
    error MergeRuns(uint256 jobId);
    error JobClosed(uint256 jobId);
    error NothingEarned(uint16 seat, uint32 round);
    error NobodySigned(uint32 round);

    constructor(address jobs_) RoundsBase(jobs_) {}

    modifier only(address caller) {
        if (msg.sender != caller) revert NotAllowed(msg.sender);
        _;
    }

    // --- the escrow's ---

    function open(uint256 jobId, Terms calldata t, address policy) external only(jobs) {
        Job storage j = _jobs[jobId];
        (j.head.status, j.head.segments) = (JobStatus.OPEN, uint16(t.steps / t.segmentSteps));
        (j.head.signing, j.head.train) = (t.mergeSeconds / SIGNING_PART, t.trainSeconds);
        j.policy = policy;
        j.windows = Windows(
            t.trainSeconds,
            t.revealSeconds,
            t.mergeSeconds,
            t.auditSeconds,
            t.openSeconds,
            t.keySeconds,
            t.windowSeconds,
            0,
            0
        );
        Shape memory s;
        (s.expiry, s.rounds, s.seats, s.minProviders) = (uint40(t.expiry), t.rounds, t.seats, t.minProviders);
        (s.slots, s.minVerifiers, s.f) = (t.slots, t.minVerifiers, t.f);
        // A merge that bears nobody has everybody audited.
        if (t.f != 0) (s.auditRate, s.lastRate) = (t.auditRate, t.lastRate);
        s.segments = uint16(t.steps / t.segmentSteps);
        s.finalAfter = uint24(uint256(t.auditSeconds) + t.openSeconds + t.keySeconds + t.windowSeconds); // 60 days
        (s.seatBits, s.slotBits) = (uint16(Rows.width(t.seats)), uint16(Rows.width(t.slots)));
        j.shape = s;
        j.earned.dutiesLeft = uint32(Draws.mostDuties(t)); // fewer than 2^24 rounds of 256 seats
    }

    function cancel(uint256 jobId) external only(jobs) {
        Job storage j = _job(jobId);
        Head memory h = j.head.load();
        if (h.phase == Phase.WAITING) return _close(jobId, j, h, JobStatus.CANCELLED);
        j.head.isCancelled = true;
    }

    // --- the members' ---

    function join(uint256 jobId, uint16 seat, address account, uint32 id) external only(members) returns (uint32 from) {
        Job storage j = _job(jobId);
        Head memory h = j.head.load();
        if (h.phase == Phase.CLOSED) revert JobClosed(jobId);
        if (seat >= j.shape.seats) revert NoSuchIndex(seat, j.shape.seats);
        uint256 taken = j.held | j.owing | j.seated;
        if (taken.has(seat)) revert SeatTaken(seat);
        // A round that is void opens again under its number, and then with who came while it ran.
        // From MERGE on none is.
        from = h.phase == Phase.MERGE ? h.round + 1 : h.round;
        j.seats[seat] = Occupant(account, id, from);
        if (j.shape.isSeasoned) j.steps.clear(seat);
        j.held |= Bits.bit(seat);
        j.head.hasMoved = true;
        if (j.shape.hasPartials) {
            j.shortLast &= ~Bits.bit(seat);
            j.shortBefore &= ~Bits.bit(seat);
        }
    }

    function unseat(uint256 jobId, uint16 seat) external only(members) returns (uint32 to) {
        Job storage j = _jobs[jobId];
        j.held &= ~Bits.bit(seat);
        Head memory h = _moved(j);
        return j.seated.has(seat) ? _nextRound(h) : h.round;
    }

    function stop(uint256 jobId, uint16 seat, address account, bytes32 root) external only(members) returns (uint32) {
        Job storage j = _jobs[jobId];
        Head memory h = _moved(j);
        uint256 mark = Bits.bit(seat);
        j.held &= ~mark;
        if (h.phase != Phase.TRAIN || j.waiting & mark == 0) return _nextRound(h);
        (uint256 waiting, uint256 seated) = (j.waiting & ~mark, j.seated & ~mark);
        (j.waiting, j.seated) = (waiting, seated);
        _logBehind(jobId, abi.encode(Stopped.selector, jobId, account, seat), abi.encode(h.round, root));
        uint32 round = h.round;
        if (waiting == 0) _endTrain(jobId, j, h, 0);
        return round;
    }

    function clearOwing(uint256 jobId, uint16 seat) external only(members) returns (uint32 id, uint32 to, uint32 next) {
        Job storage j = _jobs[jobId];
        if (seat > type(uint8).max || !j.owing.has(seat)) revert NoMissedDuty(seat, j.owing);
        j.owing ^= Bits.bit(seat);
        Head memory h = j.head.load();
        return (j.seats[seat].id, h.round, _nextRound(h));
    }

    function season(uint256 jobId, uint16 seat, uint8 steps) external only(members) returns (uint32 from) {
        Job storage j = _jobs[jobId];
        if (!j.shape.isSeasoned) j.shape.isSeasoned = true;
        return j.steps.set(seat, steps, _nextRound(j.head.load()));
    }

    function enter(uint256 jobId, uint16 slot_, address account, uint32 id)
        external
        only(members)
        returns (uint32 from)
    {
        Job storage j = _job(jobId);
        Head memory h = j.head.load();
        if (h.phase == Phase.CLOSED) revert JobClosed(jobId);
        if (slot_ >= j.shape.slots) revert NoSuchIndex(slot_, j.shape.slots);
        // Who has left it counts until the next settlement, whatever is void before.
        from = h.phase == Phase.WAITING && j.poolOut.has(slot_) ? h.round + 1 : _nextRound(h);
        Occupant memory before = j.pool[slot_];
        if (before.from < from) j.poolBefore[slot_] = before;
        j.pool[slot_] = Occupant(account, id, from);
    }

    function setReady(uint256 jobId, uint16 slot_) external only(members) {
        Job storage j = _jobs[jobId];
        Head memory h = _requireNoMerge(jobId, j);
        bool isNow = h.phase == Phase.WAITING && j.pool[slot_].from <= h.round;
        if (isNow) j.ready |= Bits.bit(slot_);
        else (j.poolIn, j.head.hasMoved) = (j.poolIn | Bits.bit(slot_), true);
    }

    function vacate(uint256 jobId, uint16 slot_) external only(members) returns (uint32 to) {
        Job storage j = _jobs[jobId];
        Head memory h = _moved(j);
        uint256 mark = Bits.bit(slot_);
        if (h.phase != Phase.WAITING) {
            j.poolIn &= ~mark;
            j.poolOut |= mark;
        } else if (j.pool[slot_].from > h.round) {
            j.poolIn &= ~mark;
        } else {
            (j.ready, j.noted) = (j.ready & ~mark, j.noted & ~mark);
        }
        return _nextRound(h);
    }

    function setPay(uint256 jobId, uint32 round, uint16 seat, bool isPaid) external {
        if (msg.sender != audits && msg.sender != lateVotes) revert NotAllowed(msg.sender);
        Job storage j = _jobs[jobId];
        uint256 bits = j.shape.seatBits;
        (uint256 pay, uint256 lost) = (Rows.get(j.pay, bits, round), Rows.get(j.lost, bits, round));
        uint256 mark = Bits.bit(seat);
        if ((pay | lost) & mark == 0) revert NothingEarned(seat, round);
        (pay, lost) = isPaid ? (pay | mark, lost & ~mark) : (pay & ~mark, lost | mark);
        Rows.set(j.pay, bits, round, pay);
        Rows.set(j.lost, bits, round, lost);
        _log(jobId, abi.encode(PayChanged.selector, jobId, round), abi.encode(pay));
    }

    /// @dev A job that waits has no boundary to wait for.
    function strike(uint256 jobId, uint32 round, address by) external only(strikes) returns (uint256 signers) {
        Job storage j = _jobs[jobId];
        signers = Rows.get(j.signed, j.shape.slotBits, round);
        if (signers == 0) revert NobodySigned(round);
        Rows.set(j.signed, j.shape.slotBits, round, 0);
        Head memory h = j.head.load();
        if (round + 1 == h.round && j.digest != 0) j.digest = 0;
        _log(jobId, abi.encode(MergeStruck.selector, jobId, round, by), abi.encode(signers));
        if (h.phase == Phase.WAITING) _close(jobId, j, h, JobStatus.CANCELLED);
        else if (h.phase != Phase.CLOSED) j.head.isCancelled = true;
    }

    // --- parts ---

    /// @dev What has moved is looked at when the round settles.
    function _moved(Job storage j) private returns (Head memory h) {
        h = j.head.load();
        if (h.hasMoved) return h;
        h.hasMoved = true;
        j.head.store(h);
    }

    function _requireNoMerge(uint256 jobId, Job storage j) private view returns (Head memory h) {
        h = j.head.load();
        if (h.phase == Phase.CLOSED) revert JobClosed(jobId);
        if (h.phase == Phase.MERGE) revert MergeRuns(jobId);
    }
}
