// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {Earned, IRoundsHooks} from "./interfaces/IHooks.sol";
import {IJobs} from "./interfaces/IJobs.sol";
import {IRounds} from "./interfaces/IRounds.sol";
import {Bits} from "./libraries/Bits.sol";
import {Draws} from "./libraries/Draws.sol";
import {Placed} from "./libraries/Placed.sol";
import {Hashing} from "./libraries/Hashing.sol";
import {Modules} from "./libraries/Modules.sol";
import {Rows} from "./libraries/Rows.sol";
import {TypedDomain} from "./libraries/TypedData.sol";
import "./types/Types.sol";
import {Head, HeadWord, Packed, Settlement, Shape, Windows} from "./rounds/Packed.sol";
import {RoundsBase} from "./rounds/RoundsBase.sol";
import {SeatSteps} from "./rounds/SeatSteps.sol";

/// @title The round state machine. It holds no money and asks nobody who may change his answer, but for a member that
/// is a contract, about its own signature alone.
/// @notice Commit, reveal and vote write one or two words that are reused from round to round. Of a
/// settled round there stay a hash of its record, its time, and rows of bits.
/// @dev Settling, and what members change, lie in two modules at fixed addresses, run by delegate
/// call: one contract would exceed the size limit. Nothing can replace a module.
contract Rounds is RoundsBase, TypedDomain, IRounds, IRoundsHooks {
    using Bits for uint256;
    using Packed for Head;
    using Packed for Shape;
    using Packed for Windows;

    uint256 private constant LONGEST_GAMES = 6;

    uint256 public immutable longestGame;
    address public immutable settlement;
    address public immutable membership;

    error ModuleMismatch(address module);
    error WindowOpen(uint256 windowEnd, uint256 now_);
    error EmptyCommitment();
    error WrongReveal(bytes32 given, bytes32 committed);
    error WrongCheckpointCommitments(uint256 length, uint256 segments);
    error CidTooLong(uint256 length, uint256 highest);
    error NotInCommittee(uint16 slot, uint256 committee);
    error AlreadyVoted(uint16 slot);
    error AlreadySeeded(uint256 jobId);

    constructor(address jobs_, uint256 longestGame_, address settlement_, address membership_) RoundsBase(jobs_) {
        (longestGame, settlement, membership) = (longestGame_, settlement_, membership_);
        if (RoundsBase(settlement_).jobs() != jobs_) revert ModuleMismatch(settlement_);
        if (RoundsBase(membership_).jobs() != jobs_) revert ModuleMismatch(membership_);
        Placed.requireHere(IJobs(jobs_).rounds());
    }

    function wire(address members_, address audits_, address lateVotes_, address strikes_) external wiring {
        (members, audits, lateVotes, strikes) = (members_, audits_, lateVotes_, strikes_);
    }

    /// @inheritdoc IRounds
    function commit(uint256 jobId, uint16 seat, bytes32 seed, bytes32 commitment) external {
        Job storage j = _jobs[jobId];
        HeadWord h = j.head.peek();
        _requireWindow(h, Phase.TRAIN);
        _requireSeed(seed, _seed(j, h.roundIn()));
        _requireHolder(j, seat);
        uint256 waiting = j.waiting;
        if (!waiting.has(seat)) revert NotWaitedFor(seat, waiting);
        if (commitment == 0) revert EmptyCommitment();
        j.commitments[seat] = commitment;
        waiting ^= Bits.bit(seat);
        j.waiting = waiting;
        _log(jobId, abi.encode(Committed.selector, jobId, msg.sender, seat), abi.encode(h.roundIn(), commitment));
        if (waiting == 0) _endTrain(jobId, j, j.head.load(), 0);
    }

    /// @inheritdoc IRounds
    function reveal(uint256 jobId, uint16 seat, bytes32 seed, Reveal calldata reveal_) external {
        Job storage j = _jobs[jobId];
        HeadWord h = j.head.peek();
        _requireWindow(h, Phase.REVEAL);
        // Whoever commits may have named any: of what another one is in, nothing could be shown
        // behind the settlement.
        _requireSeed(seed, _seed(j, h.roundIn()));
        _requireHolder(j, seat);
        uint256 waiting = j.waiting;
        if (!waiting.has(seat)) revert NotWaitedFor(seat, waiting);
        _takeSegments(j, h, seat, reveal_);
        bytes32 given = Hashing.commitment(_roundId(jobId, h.roundIn()), seed, seat, msg.sender, j.model, reveal_);
        if (given != j.commitments[seat]) revert WrongReveal(given, j.commitments[seat]);
        waiting ^= Bits.bit(seat);
        j.waiting = waiting;
        j.reveals = Hashing.accumulateReveal(j.reveals, seat, given);
        _log(jobId, abi.encode(Revealed.selector, jobId, msg.sender, seat), abi.encode(h.roundIn(), reveal_));
        if (waiting == 0) _endReveal(jobId, j, j.head.load(), 0);
    }

    /// @inheritdoc IRounds
    function vote(uint256 jobId, uint16 slot, bytes32 seed, uint256 has) external {
        Job storage j = _jobs[jobId];
        HeadWord h = j.head.peek();
        _requireWindow(h, Phase.MERGE);
        if (block.timestamp >= h.votesEndIn()) revert DeadlinePassed(h.votesEndIn(), block.timestamp);
        _requireSeed(seed, _seed(j, h.roundIn()));
        uint256 committee = j.committee;
        if (slot > type(uint8).max || !committee.has(slot)) revert NotInCommittee(slot, committee);
        address member = _accountAt(j, slot, h.roundIn());
        if (msg.sender != member) revert NotYourSlot(slot, member, msg.sender);
        uint256 kept = uint256(j.votes);
        uint256 mark = 1 << (committee & (Bits.bit(slot) - 1)).popcount();
        if (kept & mark != 0) revert AlreadyVoted(slot);
        uint256 said = uint32(kept) | mark;
        bytes32 accumulator = Hashing.accumulateVote(Hashing.cut(bytes32(kept)), slot, has);
        j.votes = bytes32(uint256(accumulator) | said);
        _log(jobId, abi.encode(Voted.selector, jobId, msg.sender, slot), abi.encode(h.roundIn(), h.committeeIn(), has));
        if (!h.isSeededIn()) _seedAudit(jobId, j, j.head.load()); // counts, whether that is known yet or not
    }

    /// @inheritdoc IRounds
    function seedAudit(uint256 jobId) external {
        Job storage j = _jobs[jobId];
        Head memory h = j.head.load();
        if (h.phase != Phase.MERGE) revert WrongPhase(h.phase, Phase.MERGE);
        if (h.isSeeded) revert AlreadySeeded(jobId);
        _seedOrNote(jobId, j, h);
    }

    /// @inheritdoc IRounds
    function advance(uint256 jobId) external {
        Job storage j = _job(jobId);
        Head memory h = j.head.load();
        if (h.phase == Phase.CLOSED) revert NothingToDo(h.phase, 0);
        if (h.phase == Phase.WAITING) return _advanceWaiting(jobId, j, h);
        if (block.timestamp >= _lastMoment(j)) return _close(jobId, j, h, JobStatus.EXPIRED);
        if (block.timestamp < h.deadline) revert NothingToDo(h.phase, h.deadline);
        if (h.phase == Phase.TRAIN || h.phase == Phase.REVEAL) {
            if (_repeats(jobId, j, h)) return;
            return h.phase == Phase.TRAIN ? _endTrain(jobId, j, h, j.waiting) : _endReveal(jobId, j, h, j.waiting);
        }
        if (_isOverdue(j, h)) revert NothingToDo(h.phase, _lastMoment(j)); // `settleLate` is due
        _nextCommittee(jobId, j, h);
    }

    /// @dev Where fewer than half do what they owe, it is the chain or the network that stood still:
    /// nobody misses, and all have as long again. Three times in a round at most, or a majority of
    /// seats could hold a job up for nothing.
    /// @return whether the phase goes on
    function _repeats(uint256 jobId, Job storage j, Head memory h) private returns (bool) {
        if (2 * j.waiting.popcount() <= j.seated.popcount()) return false;
        if (h.isCancelled || block.timestamp >= j.shape.expiry) return false;
        Windows storage w = j.windows;
        uint8 repeats = w.repeatedRound == h.round ? w.repeats : 0;
        if (repeats == MAX_REPEATS) return false;
        (w.repeatedRound, w.repeats) = (uint24(h.round), repeats + 1);
        h.deadline = uint40(block.timestamp) + (h.phase == Phase.TRAIN ? w.train : w.reveal);
        j.head.store(h);
        _log(jobId, abi.encode(PhaseRepeated.selector, jobId, h.round), abi.encode(h.deadline));
        return true;
    }

    function _advanceWaiting(uint256 jobId, Job storage j, Head memory h) private {
        Shape memory s = j.shape.load();
        if (block.timestamp >= s.expiry) return _close(jobId, j, h, JobStatus.EXPIRED);
        Crew memory c = Crew(j.held, j.ready, 0);
        if (!_isEnough(s, c)) revert NothingToDo(Phase.WAITING, 0);
        uint256 pool = c.ready;
        bytes32 drawn = blockhash(block.number - 1);
        if (pool.popcount() > Draws.COMMITTEE) {
            bool isLost = h.noted == 0;
            if (!isLost) (drawn, isLost) = beacon.seedOf(h.noted);
            if (isLost) return _notePool(jobId, j, h);
            if (drawn == 0) revert Unseeded(h.noted, block.number);
            if (pool & j.noted != 0) pool &= j.noted;
        }
        h.status = JobStatus.ACTIVE;
        bytes32 seed = Hashing.dataSeed(_roundId(jobId, h.round), 0, drawn);
        j.seeds[h.round & 1] = seed;
        _forgetAccounts(j);
        c.committee = Draws.committee(seed, pool);
        _openRound(jobId, j, h, seed, c);
    }

    /// @dev A committee is drawn from it, by the seed of this block, which nobody knows in it:
    /// whoever brings the last member that was missing has no choice of committees.
    function _notePool(uint256 jobId, Job storage j, Head memory h) private {
        _note(h);
        j.noted = j.ready;
        j.head.store(h);
        _logBehind(jobId, abi.encode(Waiting.selector, jobId, h.round), abi.encode(0));
    }

    /// @param missed seats that have not revealed
    function _endReveal(uint256 jobId, Job storage j, Head memory h, uint256 missed) internal {
        uint256 revealed = j.seated & ~missed;
        _free(j, missed);
        if (revealed == 0) return _void(jobId, j, h, missed);
        if (missed != 0) j.seated = revealed;
        j.waiting = revealed; // it says nothing from here on; written as not zero, since that is cheaper
        bytes32 last = blockhash(block.number - 1);
        bytes32 nextSeed = Hashing.dataSeed(_roundId(jobId, h.round + 1), j.reveals, last);
        j.seeds[(h.round + 1) & 1] = nextSeed;
        (h.phase, h.deadline) = (Phase.MERGE, uint40(block.timestamp) + j.windows.merge);
        _note(h);
        j.head.store(h);
        _logBehind(jobId, abi.encode(MergeOpened.selector, jobId, h.round), abi.encode(revealed, nextSeed, h.deadline));
    }

    /// @dev Reverts where it would change nothing, or its sender would pay for that.
    /// @return whether the audit seed is fixed; else the block that draws it was lost, and this one is noted instead
    function _seedOrNote(uint256 jobId, Job storage j, Head memory h) private returns (bool) {
        uint40 noted = h.noted;
        if (_seedAudit(jobId, j, h)) return true;
        if (h.noted == noted) revert Unseeded(noted, block.number);
        return false;
    }

    /// @dev Who was silent in a committee draw that settled nothing misses, unless most were; the
    /// audit seed stays, which the next one is drawn by.
    function _nextCommittee(uint256 jobId, Job storage j, Head memory h) private {
        if (!_seedOrNote(jobId, j, h)) return;
        uint256 said = uint32(uint256(j.votes));
        uint256 silent;
        for (uint256 left = j.committee; left != 0; (left &= left - 1, said >>= 1)) {
            if (said & 1 == 0) silent |= left & (~left + 1);
        }
        if (silent != 0 && !_isStandstill(j.committee, silent, h.committeeDraw)) j.absent[h.round] |= silent;
        bytes32 previous = h.committeeDraw == 0 ? j.auditSeed : j.committeeSeed;
        h.committeeDraw++;
        bytes32 seed = Hashing.committeeSeed(previous, h.committeeDraw);
        (j.committeeSeed, j.votes, j.committee) = (seed, Hashing.noVotes(seed), Draws.committee(seed, j.ready));
        h.deadline = uint40(block.timestamp) + j.windows.merge;
        j.head.store(h);
        _log(
            jobId,
            abi.encode(CommitteeDrawn.selector, jobId, h.round),
            abi.encode(h.committeeDraw, j.committee, h.deadline)
        );
    }

    function _takeSegments(Job storage j, HeadWord h, uint16 seat, Reveal calldata r) private {
        uint256 segments = r.checkpointCommitments.length / CHECKPOINT_COMMITMENT_BYTES;
        if (r.checkpointCommitments.length % CHECKPOINT_COMMITMENT_BYTES != 0 || segments > h.segmentsIn()) {
            revert WrongCheckpointCommitments(r.checkpointCommitments.length, h.segmentsIn());
        }
        if (r.updateCid.length > MAX_CID_BYTES) revert CidTooLong(r.updateCid.length, MAX_CID_BYTES);
        if (segments == h.segmentsIn()) return;
        j.partials[uint256(h.roundIn()) << 8 | seat] = segments + 1;
        if (!j.shape.hasPartials) j.shape.hasPartials = true;
        if (segments * 4 < h.segmentsIn() * 3) j.short |= Bits.bit(seat);
    }

    function _requireWindow(HeadWord h, Phase phase) private view {
        if (h.phaseIn() != phase) revert WrongPhase(h.phaseIn(), phase);
        if (block.timestamp >= h.deadlineIn()) revert DeadlinePassed(h.deadlineIn(), block.timestamp);
    }

    function _requireSeed(bytes32 given, bytes32 current) private pure {
        if (given != current) revert WrongSeed(given, current);
    }

    function _requireHolder(Job storage j, uint16 seat) private view {
        address holder = j.seats[seat].account;
        if (msg.sender != holder) revert NotYourSeat(seat, holder, msg.sender);
    }

    // --- what the modules do ---

    /// @inheritdoc IRounds
    function settle(uint256, bytes calldata, uint256[] calldata, Certified calldata) external {
        Modules.delegate(settlement);
    }

    /// @inheritdoc IRounds
    function settleLate(uint256, bytes calldata, uint256[] calldata) external {
        Modules.delegate(settlement);
    }

    /// @inheritdoc IRounds
    function sign(uint256, RoundRecord calldata, uint32, bytes calldata) external {
        Modules.delegate(settlement);
    }

    /// @inheritdoc IRoundsHooks
    function open(uint256, Terms calldata, address) external {
        Modules.delegate(membership);
    }

    /// @inheritdoc IRoundsHooks
    function cancel(uint256) external {
        Modules.delegate(membership);
    }

    /// @inheritdoc IRoundsHooks
    function join(uint256, uint16, address, uint32) external returns (uint32) {
        Modules.delegate(membership);
    }

    /// @inheritdoc IRoundsHooks
    function unseat(uint256, uint16) external returns (uint32) {
        Modules.delegate(membership);
    }

    /// @inheritdoc IRoundsHooks
    function stop(uint256, uint16, address, bytes32) external returns (uint32) {
        Modules.delegate(membership);
    }

    /// @inheritdoc IRoundsHooks
    function clearOwing(uint256, uint16) external returns (uint32, uint32, uint32) {
        Modules.delegate(membership);
    }

    /// @inheritdoc IRoundsHooks
    function season(uint256, uint16, uint8) external returns (uint32) {
        Modules.delegate(membership);
    }

    /// @inheritdoc IRoundsHooks
    function enter(uint256, uint16, address, uint32) external returns (uint32) {
        Modules.delegate(membership);
    }

    /// @inheritdoc IRoundsHooks
    function setReady(uint256, uint16) external {
        Modules.delegate(membership);
    }

    /// @inheritdoc IRoundsHooks
    function vacate(uint256, uint16) external returns (uint32) {
        Modules.delegate(membership);
    }

    /// @inheritdoc IRoundsHooks
    function strike(uint256, uint32, address) external returns (uint256) {
        Modules.delegate(membership);
    }

    /// @inheritdoc IRoundsHooks
    function setPay(uint256, uint32, uint16, bool) external {
        Modules.delegate(membership);
    }

    // --- what is counted for the escrow ---

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
        Shape memory s = j.shape.load();
        _requireOver(j, s, to);
        if (lostFrom < from) lostFrom = from;
        if (lostFrom > to) lostFrom = to;
        return (_paidSegments(j, s, seat, from, lostFrom), _paidSegments(j, s, seat, lostFrom, to));
    }

    /// @inheritdoc IRoundsHooks
    function segmentsUnpaid(uint256 jobId, uint32 from, uint32 to) external view returns (uint256 total) {
        Job storage j = _jobs[jobId];
        Shape memory s = j.shape.load();
        _requireOver(j, s, to);
        for (uint32 round = from; round < to; round++) {
            uint256 lost = Rows.get(j.lost, s.seatBits, round);
            if (lost != 0) total += _segmentsOf(j, s, round, lost);
        }
    }

    /// @inheritdoc IRoundsHooks
    function signaturesOf(uint256 jobId, uint16 slot_, uint32 from, uint32 to) external view returns (uint256) {
        Job storage j = _jobs[jobId];
        Shape memory s = j.shape.load();
        _requireOver(j, s, to);
        return _bitsOf(j.signed, s.slotBits, slot_, from, to);
    }

    // --- views ---

    /// @inheritdoc IRounds
    function state(uint256 jobId) external view returns (RoundState memory s) {
        Job storage j = _job(jobId);
        Head memory h = j.head.load();
        (s.status, s.phase, s.round, s.committeeDraw, s.deadline) =
        (h.status, h.phase, h.round, h.committeeDraw, h.deadline);
        if (h.phase != Phase.WAITING && h.phase != Phase.CLOSED) s.seed = _seed(j, h.round);
        if (h.phase == Phase.MERGE) s.nextSeed = _seed(j, h.round + 1);
        s.auditSeed = h.isSeeded ? j.auditSeed : bytes32(0);
        (s.held, s.seated, s.waiting, s.owing) = (j.held, j.seated, j.waiting, j.owing);
        (s.ready, s.committee) = (j.ready, j.committee);
        (s.reveals, s.votes, s.model, s.digest) = (j.reveals, j.votes, j.model, j.digest);
    }

    /// @inheritdoc IRounds
    function awaitedBlock(uint256 jobId) external view returns (uint256) {
        Head memory h = _jobs[jobId].head.load();
        bool isAwaited = h.phase == Phase.WAITING || (h.phase == Phase.MERGE && !h.isSeeded);
        return isAwaited ? h.noted : 0;
    }

    /// @inheritdoc IRounds
    function timesOf(uint256 jobId, uint32 round) public view returns (Times memory t) {
        Job storage j = _jobs[jobId];
        Settlement memory s = j.settled[round];
        if (s.settledAt == 0) return t;
        Windows memory w = j.windows.load();
        unchecked { // 40 and 32 bits in 64
            t.settledAt = s.settledAt;
            t.auditEnd = t.settledAt + uint64(s.audits) * w.audit;
            t.openEnd = t.auditEnd + w.open;
            t.keysEnd = t.openEnd + w.key;
            t.half = t.keysEnd + w.window / 2;
            t.windowEnd = t.keysEnd + w.window;
        }
    }

    /// @inheritdoc IRounds
    function auditOf(uint256 jobId, uint32 round) external view returns (Audit memory a) {
        Job storage j = _jobs[jobId];
        Settlement memory s = j.settled[round];
        (a.hasPartials, a.record) = (j.shape.hasPartials, s.record);
        if (s.settledAt == 0) return a;
        Windows memory w = j.windows.load();
        unchecked { // 40 and 32 bits in 64
            a.settledAt = s.settledAt;
            a.auditEnd = a.settledAt + uint64(s.audits) * w.audit;
            a.openEnd = a.auditEnd + w.open;
            a.windowEnd = a.openEnd + uint64(w.key) + w.window;
        }
    }

    /// @inheritdoc IRounds
    function recordOf(uint256 jobId, uint32 round) external view returns (bytes32) {
        return _jobs[jobId].settled[round].record;
    }

    /// @inheritdoc IRounds
    function rowsOf(uint256 jobId, uint32 round) external view returns (uint256, uint256, uint256) {
        Job storage j = _jobs[jobId];
        (uint256 seats, uint256 slots) = (j.shape.seatBits, j.shape.slotBits);
        return (Rows.get(j.pay, seats, round), Rows.get(j.lost, seats, round), Rows.get(j.signed, slots, round));
    }

    /// @inheritdoc IRounds
    function seatHolder(uint256 jobId, uint16 seat) external view returns (address, uint32, uint32) {
        Occupant memory o = _jobs[jobId].seats[seat];
        return (o.account, o.id, o.from);
    }

    /// @inheritdoc IRounds
    function stepsOf(uint256 jobId, uint16 seat) external view returns (uint256) {
        Job storage j = _jobs[jobId];
        return SeatSteps.stepsIn(j.steps[SeatSteps.wordOf(seat)], seat, j.head.round);
    }

    /// @inheritdoc IRounds
    function slotHolder(uint256 jobId, uint16 slot_) external view returns (address, uint32, uint32) {
        Job storage j = _jobs[jobId];
        Occupant memory o = _member(j, slot_, j.head.round);
        return (o.account, o.id, o.from);
    }

    /// @inheritdoc IRounds
    function absentOf(uint256 jobId, uint32 round) external view returns (uint256) {
        return _jobs[jobId].absent[round];
    }

    /// @inheritdoc IRounds
    function segmentsOf(uint256 jobId, uint32 round, uint16 seat) external view returns (uint256) {
        Job storage j = _jobs[jobId];
        uint256 done = j.partials[uint256(round) << 8 | seat];
        return done == 0 ? j.shape.segments : done - 1;
    }

    /// @inheritdoc IRounds
    function policyOf(uint256 jobId) external view returns (address) {
        return _jobs[jobId].policy;
    }

    /// @inheritdoc IRounds
    function certificateHash(uint256 jobId, uint32 round, bytes32 seed, bytes32 votes, Verdict calldata verdict)
        external
        view
        returns (bytes32)
    {
        return Hashing.certificate(_roundId(jobId, round), seed, votes, verdict);
    }

    /// @inheritdoc IRounds
    function absoluteEnd(uint256 jobId) external view returns (uint256) {
        Job storage j = _job(jobId);
        Windows memory w = j.windows.load();
        return _lastMoment(j) + MAX_AUDITS * w.audit + w.open + w.key + w.window + LONGEST_GAMES * longestGame;
    }

    // --- parts ---

    /// @dev As `timesOf` has it, from one word less: that of the windows is read where AUDIT took
    /// more than one of them.
    function _requireOver(Job storage j, Shape memory s, uint32 to) private view {
        if (to == 0) return;
        uint256 end;
        unchecked { // 40 bits and fewer
            Settlement memory last = j.settled[to - 1];
            if (last.settledAt != 0) end = uint256(last.settledAt) + s.finalAfter;
            if (last.audits > 1) end += uint256(last.audits - 1) * j.windows.audit;
        }
        if (end == 0 || block.timestamp < end) revert WindowOpen(end, block.timestamp);
    }

    function _paidSegments(Job storage j, Shape memory s, uint16 seat, uint32 from, uint32 to)
        private
        view
        returns (uint256 total)
    {
        if (!s.hasPartials) return s.segments * _bitsOf(j.pay, s.seatBits, seat, from, to);
        for (uint256 round = from; round < to; round++) {
            if (!Rows.get(j.pay, s.seatBits, round).has(seat)) continue;
            uint256 done = j.partials[round << 8 | seat];
            total += done == 0 ? s.segments : done - 1;
        }
    }

    /// @return count rounds from … to in whose row the bit is set; each word is read once, and its
    /// rows are counted at once
    function _bitsOf(
        mapping(uint256 => uint256) storage lateVotes_,
        uint256 bits,
        uint256 index,
        uint32 from,
        uint32 to
    ) private view returns (uint256 count) {
        if (from >= to) return 0;
        (uint256 word_, uint256 shift) = Rows.locate(bits, from);
        unchecked {
            uint256 last = to - 1;
            for (uint256 end = last * bits / 256; word_ < end; (word_++, shift = 0)) {
                count += Rows.countOf(lateVotes_[word_] >> shift, bits, index);
            }
            uint256 left = (last % (256 / bits) + 1) * bits - shift;
            count += Rows.countOf(lateVotes_[word_] >> shift & Rows.ones(left), bits, index);
        }
    }
}
