// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {IRounds} from "../interfaces/IRounds.sol";
import {Bits} from "../libraries/Bits.sol";
import {Draws} from "../libraries/Draws.sol";
import {Hashing} from "../libraries/Hashing.sol";
import "../types/Types.sol";
import {RoundsBase} from "./RoundsBase.sol";

/// @title From the opening of a round to its words: what members say, and what time does.
abstract contract RoundsPhases is RoundsBase, IRounds {
    using Bits for uint256;

    error EmptyCommitment();
    error WrongReveal(bytes32 given, bytes32 committed);
    error WrongLeaves(uint256 length, uint256 segments);
    error CidTooLong(uint256 length, uint256 highest);
    error NotInCommittee(uint16 place, uint256 committee);
    error AlreadySaid(uint16 place);
    error AlreadySeeded(uint256 jobId);

    /// @inheritdoc IRounds
    function commit(uint256 jobId, uint16 seat, bytes32 seed, bytes32 commitment) external {
        Job storage j = _jobs[jobId];
        Head memory h = j.head;
        _requireWindow(h, Phase.TRAIN);
        _requireSeed(seed, j.seed);
        _requireHolder(j, seat);
        uint256 waiting = j.waiting;
        if (!waiting.has(seat)) revert NotWaitedFor(seat, waiting);
        if (commitment == 0) revert EmptyCommitment();
        j.commitments[seat] = commitment;
        waiting ^= Bits.bit(seat);
        j.waiting = waiting;
        emit Committed(jobId, msg.sender, seat, h.round, commitment);
        if (waiting == 0) _endTrain(jobId, j, h, 0);
    }

    /// @inheritdoc IRounds
    function reveal(uint256 jobId, uint16 seat, bytes32 seed, Reveal calldata reveal_) external {
        Job storage j = _jobs[jobId];
        Head memory h = j.head;
        _requireWindow(h, Phase.REVEAL);
        _requireHolder(j, seat);
        uint256 waiting = j.waiting;
        if (!waiting.has(seat)) revert NotWaitedFor(seat, waiting);
        _takeSegments(j, h, seat, reveal_);
        // A commitment that was taken in this round names its seed, so another seed gives another commitment.
        bytes32 given = Hashing.commitment(_slot(jobId, h.round), seed, seat, msg.sender, j.model, reveal_);
        if (given != j.commitments[seat]) revert WrongReveal(given, j.commitments[seat]);
        waiting ^= Bits.bit(seat);
        j.waiting = waiting;
        j.reveals = Hashing.accumulateReveal(j.reveals, seat, given);
        emit Revealed(jobId, msg.sender, seat, h.round, reveal_);
        if (waiting == 0) _endReveal(jobId, j, h, 0);
    }

    /// @inheritdoc IRounds
    function word(uint256 jobId, uint16 place, bytes32 seed, uint256 has) external {
        Job storage j = _jobs[jobId];
        Head memory h = j.head;
        _requireWindow(h, Phase.MERGE);
        _requireSeed(seed, j.seed);
        uint256 committee = j.committee;
        if (place > type(uint8).max || !committee.has(place)) revert NotInCommittee(place, committee);
        address member = _member(j, place, h.round).account;
        if (msg.sender != member) revert NotYourPlace(place, member, msg.sender);
        uint256 words = uint256(j.words);
        uint256 mark = 1 << (committee & (Bits.bit(place) - 1)).popcount();
        if (words & mark != 0) revert AlreadySaid(place);
        uint256 said = uint32(words) | mark;
        bytes32 accumulator = Hashing.accumulateWord(Hashing.cut(bytes32(words)), place, has);
        j.words = bytes32(uint256(accumulator) | said);
        emit Said(jobId, msg.sender, place, h.round, h.lot, has);
        if (!h.isSeeded) _seedAudit(jobId, j, h);
    }

    /// @inheritdoc IRounds
    function seedAudit(uint256 jobId) external {
        Job storage j = _jobs[jobId];
        Head memory h = j.head;
        if (h.phase != Phase.MERGE) revert WrongPhase(h.phase, Phase.MERGE);
        if (h.isSeeded) revert AlreadySeeded(jobId);
        if (block.timestamp < h.halfMerge) revert NothingToDo(h.phase, h.halfMerge);
        _seedAudit(jobId, j, h);
    }

    /// @inheritdoc IRounds
    function poke(uint256 jobId) external {
        Job storage j = _job(jobId);
        Head memory h = j.head;
        if (h.phase == Phase.CLOSED) revert NothingToDo(h.phase, 0);
        if (h.phase == Phase.WAITING) return _pokeWaiting(jobId, j, h);
        if (block.timestamp >= _lastMoment(j)) return _close(jobId, j, h, JobStatus.EXPIRED);
        if (block.timestamp < h.deadline) revert NothingToDo(h.phase, h.deadline);
        if (h.phase == Phase.TRAIN) return _endTrain(jobId, j, h, j.waiting);
        if (h.phase == Phase.REVEAL) return _endReveal(jobId, j, h, j.waiting);
        if (block.timestamp >= j.shape.expiry) revert NothingToDo(h.phase, _lastMoment(j)); // `settleLate` is due
        _nextLot(jobId, j, h);
    }

    function _pokeWaiting(uint256 jobId, Job storage j, Head memory h) private {
        Shape memory s = j.shape;
        if (block.timestamp >= s.expiry) return _close(jobId, j, h, JobStatus.EXPIRED);
        if (!_hasEnough(j, s)) revert NothingToDo(Phase.WAITING, 0);
        h.status = JobStatus.ACTIVE;
        uint256 ready = j.ready;
        uint256 pool = block.number > h.poolChangedAt ? ready : ready & j.readyBefore;
        bytes32 seed = Hashing.dataSeed(_slot(jobId, h.round), 0, blockhash(block.number - 1));
        _openRound(jobId, j, h, seed, pool == 0 ? ready : pool);
    }

    /// @param missed seats that have not committed
    function _endTrain(uint256 jobId, Job storage j, Head memory h, uint256 missed) internal {
        uint256 committed = j.seated & ~missed;
        _free(j, missed);
        if (committed == 0) return _void(jobId, j, h, missed);
        if (missed != 0) j.seated = committed;
        j.waiting = committed;
        (h.phase, h.deadline) = (Phase.REVEAL, uint40(block.timestamp) + j.windows.reveal);
        j.head = h;
        emit RevealOpened(jobId, h.round, committed, h.deadline);
    }

    /// @param missed seats that have not revealed
    function _endReveal(uint256 jobId, Job storage j, Head memory h, uint256 missed) internal {
        uint256 revealed = j.seated & ~missed;
        _free(j, missed);
        if (revealed == 0) return _void(jobId, j, h, missed);
        if (missed != 0) j.seated = revealed;
        j.waiting = revealed; // it says nothing from here on; written as not zero, since that is cheaper
        bytes32 beacon = blockhash(block.number - 1);
        j.nextSeed = Hashing.dataSeed(_slot(jobId, h.round + 1), j.reveals, beacon);
        uint40 merge = j.windows.merge;
        (h.phase, h.deadline) = (Phase.MERGE, uint40(block.timestamp) + merge);
        h.halfMerge = uint40(block.timestamp) + merge / 2;
        j.head = h;
        emit MergeOpened(jobId, h.round, revealed, j.nextSeed, h.deadline);
    }

    function _seedAudit(uint256 jobId, Job storage j, Head memory h) internal {
        h.isSeeded = true;
        j.head = h;
        j.auditSeed =
            Hashing.auditSeed(_slot(jobId, h.round), j.reveals, blockhash(block.number - 1), block.prevrandao);
        emit AuditSeeded(jobId, h.round, j.auditSeed);
    }

    /// @dev Who was silent in a lot that settled nothing misses; the audit seed stays.
    function _nextLot(uint256 jobId, Job storage j, Head memory h) private {
        uint256 said = uint32(uint256(j.words));
        uint256 silent;
        for (uint256 left = j.committee; left != 0; (left &= left - 1, said >>= 1)) {
            if (said & 1 == 0) silent |= left & (~left + 1);
        }
        if (silent != 0) j.absent[h.round] |= silent;
        bytes32 seed = Hashing.lotSeed(j.lotSeed, ++h.lot);
        (j.lotSeed, j.words, j.committee) = (seed, Hashing.noWords(seed), Draws.committee(seed, j.ready));
        h.deadline = uint40(block.timestamp) + j.windows.merge;
        j.head = h;
        emit LotDrawn(jobId, h.round, h.lot, j.committee, h.deadline);
    }

    /// @dev Who missed owes a cut, and its seat is nobody's.
    function _free(Job storage j, uint256 missed) internal {
        if (missed == 0) return;
        j.held &= ~missed;
        j.owing |= missed;
    }

    function _takeSegments(Job storage j, Head memory h, uint16 seat, Reveal calldata r) private {
        Shape memory s = j.shape;
        uint256 segments = r.leaves.length / LEAF_BYTES;
        if (r.leaves.length % LEAF_BYTES != 0 || segments > s.segments) {
            revert WrongLeaves(r.leaves.length, s.segments);
        }
        if (r.updateCid.length > MAX_CID_BYTES) revert CidTooLong(r.updateCid.length, MAX_CID_BYTES);
        if (segments == s.segments) return;
        j.partials[uint256(h.round) << 8 | seat] = segments + 1;
        h.hasPartials = true;
        j.head = h;
        if (segments * 4 < uint256(s.segments) * 3) j.short |= Bits.bit(seat);
    }

    function _requireWindow(Head memory h, Phase phase) private view {
        if (h.phase != phase) revert WrongPhase(h.phase, phase);
        if (block.timestamp >= h.deadline) revert DeadlinePassed(h.deadline, block.timestamp);
    }

    function _requireSeed(bytes32 given, bytes32 current) private pure {
        if (given != current) revert WrongSeed(given, current);
    }

    function _requireHolder(Job storage j, uint16 seat) private view {
        address holder = j.seats[seat].account;
        if (msg.sender != holder) revert NotYourSeat(seat, holder, msg.sender);
    }
}
