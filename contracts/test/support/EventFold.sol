// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {IMembers} from "../../src/interfaces/IMembers.sol";
import {IRoundsEvents} from "../../src/interfaces/IRoundsEvents.sol";
import {Bits} from "../../src/libraries/Bits.sol";
import {Hashing} from "../../src/libraries/Hashing.sol";
import "../../src/types/Types.sol";
import {Check} from "./Check.sol";
import {Vm} from "./Vm.sol";

/// @title The fold of EVENTS.md: a job's state from logs alone.
contract EventFold is Check {
    using Bits for uint256;

    RoundState internal s;
    address internal immutable rounds;
    uint256 internal immutable jobId;
    uint256 internal immutable segments;
    uint256 internal poolIn;
    uint256 internal poolOut;
    uint256 internal short;
    mapping(uint256 seat => uint256) internal buckets;
    bytes32 internal committeeSeed;
    uint32[256] internal counts; // by slot, from which round on

    constructor(address rounds_, uint256 jobId_, uint256 segments_) {
        (rounds, jobId, segments) = (rounds_, jobId_, segments_);
        s.status = JobStatus.OPEN;
    }

    function state() external view returns (RoundState memory) {
        return s;
    }

    function take(Vm.Log[] calldata logs) external {
        for (uint256 i = 0; i < logs.length; i++) {
            if (logs[i].topics.length < 2 || uint256(logs[i].topics[1]) != jobId) continue;
            takeMember(logs[i]);
            takeRound(logs[i]);
        }
    }

    function takeMember(Vm.Log calldata log) private {
        bytes32 name = log.topics[0];
        if (log.topics.length < 4) return;
        if (name == IMembers.Missed.selector) {
            (Role role,, MissedDuty kind,) = abi.decode(log.data, (Role, uint32, MissedDuty, uint256));
            uint32 missing = uint32(uint256(log.topics[3]));
            if (role == Role.PROVIDER && kind == MissedDuty.SEAT) s.owing &= ~Bits.bit(seatOf[missing]);
            return;
        }
        uint256 mark = Bits.bit(uint256(log.topics[3]));
        if (name == IMembers.Seated.selector) {
            (uint32 id,) = abi.decode(log.data, (uint32, uint32));
            seatOf[id] = uint256(log.topics[3]);
            s.held |= mark;
            buckets[uint256(log.topics[3])] = 0;
        } else if (name == IMembers.SeatLeaving.selector) {
            s.held &= ~mark;
        } else {
            takeSlot(name, uint256(log.topics[3]), log.data);
        }
    }

    function takeSlot(bytes32 name, uint256 slot, bytes calldata data) private {
        uint256 mark = Bits.bit(slot);
        bool isNow = s.phase == Phase.WAITING && counts[slot] <= s.round;
        if (name == IMembers.Enrolled.selector) {
            (, counts[slot],,) = abi.decode(data, (uint32, uint32, uint128, uint64));
        } else if (name == IMembers.Ready.selector) {
            if (isNow) s.ready |= mark;
            else poolIn |= mark;
        } else if (name == IMembers.SlotLeaving.selector) {
            if (isNow) s.ready &= ~mark;
            else (poolIn, poolOut) = (poolIn & ~mark, poolOut | (s.ready & mark));
        }
    }

    mapping(uint32 id => uint256) internal seatOf;

    function takeRound(Vm.Log calldata log) private {
        bytes32 name = log.topics[0];
        if (name == IRoundsEvents.RoundOpened.selector) open(log);
        else if (name == IRoundsEvents.Committed.selector) s.waiting ^= Bits.bit(uint256(log.topics[3]));
        else if (name == IRoundsEvents.Stopped.selector) stop(Bits.bit(uint256(log.topics[3])));
        else if (name == IRoundsEvents.PhaseRepeated.selector) s.deadline = abi.decode(log.data, (uint64));
        else if (name == IRoundsEvents.RevealOpened.selector) endTrain(log);
        else if (name == IRoundsEvents.Revealed.selector) reveal(log);
        else if (name == IRoundsEvents.MergeOpened.selector) endReveal(log);
        else if (name == IRoundsEvents.Voted.selector) vote(log);
        else if (name == IRoundsEvents.AuditSeeded.selector) s.auditSeed = abi.decode(log.data, (bytes32));
        else if (name == IRoundsEvents.CommitteeDrawn.selector) committeeDraw(log);
        else if (name == IRoundsEvents.Settled.selector) settle(log);
        else if (name == IRoundsEvents.Waiting.selector) wait(abi.decode(log.data, (uint256)));
        else if (name == IRoundsEvents.Closed.selector) close(log);
    }

    function open(Vm.Log calldata log) private {
        s.round = uint32(uint256(log.topics[2]));
        (s.seed, s.seated, s.ready, s.committee, s.model, s.deadline) =
            abi.decode(log.data, (bytes32, uint256, uint256, uint256, bytes32, uint64));
        (s.phase, s.status, s.waiting, s.reveals) = (Phase.TRAIN, JobStatus.ACTIVE, s.seated, s.seed);
        (s.votes, s.committeeDraw, s.auditSeed, s.nextSeed) = (Hashing.noVotes(s.seed), 0, 0, 0);
        committeeSeed = s.seed;
    }

    function stop(uint256 mark) private {
        (s.waiting, s.seated, s.held) = (s.waiting & ~mark, s.seated & ~mark, s.held & ~mark);
    }

    function miss(uint256 seats) private {
        (s.owing, s.held) = (s.owing | seats, s.held & ~seats);
    }

    function endTrain(Vm.Log calldata log) private {
        (uint256 committed, uint64 deadline) = abi.decode(log.data, (uint256, uint64));
        miss(s.seated & ~committed);
        (s.phase, s.seated, s.waiting, s.deadline) = (Phase.REVEAL, committed, committed, deadline);
    }

    function reveal(Vm.Log calldata log) private {
        (uint32 round, Reveal memory r) = abi.decode(log.data, (uint32, Reveal));
        uint256 seat = uint256(log.topics[3]);
        s.waiting ^= Bits.bit(seat);
        address account = address(uint160(uint256(log.topics[2])));
        Hashing.RoundId memory roundId = Hashing.RoundId(rounds, jobId, round);
        bytes32 commitment = this.commitmentOf(roundId, s.seed, seat, account, s.model, r);
        s.reveals = Hashing.accumulateReveal(s.reveals, seat, commitment);
        if (r.checkpointCommitments.length / 64 * 4 < segments * 3) short |= Bits.bit(seat);
    }

    function commitmentOf(
        Hashing.RoundId calldata roundId,
        bytes32 seed,
        uint256 seat,
        address account,
        bytes32 model,
        Reveal calldata r
    ) external view returns (bytes32) {
        return Hashing.commitment(roundId, seed, seat, account, model, r);
    }

    function endReveal(Vm.Log calldata log) private {
        uint256 revealed;
        (revealed, s.nextSeed, s.deadline) = abi.decode(log.data, (uint256, bytes32, uint64));
        miss(s.seated & ~revealed);
        (s.phase, s.seated, s.waiting) = (Phase.MERGE, revealed, revealed);
    }

    function vote(Vm.Log calldata log) private {
        (,, uint256 has) = abi.decode(log.data, (uint32, uint16, uint256));
        uint256 slot = uint256(log.topics[3]);
        uint256 rank = (s.committee & (Bits.bit(slot) - 1)).popcount();
        uint256 said = uint32(uint256(s.votes)) | 1 << rank;
        bytes32 accumulator = Hashing.accumulateVote(Hashing.cut(s.votes), slot, has);
        s.votes = bytes32(uint256(accumulator) | said);
    }

    function committeeDraw(Vm.Log calldata log) private {
        (s.committeeDraw, s.committee, s.deadline) = abi.decode(log.data, (uint16, uint256, uint64));
        committeeSeed = Hashing.committeeSeed(s.committeeDraw == 1 ? s.auditSeed : committeeSeed, s.committeeDraw);
        s.votes = Hashing.noVotes(committeeSeed);
    }

    function settle(Vm.Log calldata log) private {
        (bytes32 digest, Verdict memory v,, uint256 signers, RoundRecord memory f) =
            abi.decode(log.data, (bytes32, Verdict, uint256, uint256, RoundRecord));
        if (signers != f.committee) s.digest = digest;
        s.model = v.state;
        if (digest != 0) fill();
        s.round++;
        changePool();
    }

    /// @dev Two for a short round, less one for another; three are a missed duty.
    function fill() private {
        for (uint256 left = s.seated; left != 0; left &= left - 1) {
            uint256 seat = left.lowest();
            uint256 level = buckets[seat];
            if (short.has(seat)) level += 2;
            else if (level != 0) level--;
            if (level >= 3) miss(Bits.bit(seat));
            buckets[seat] = level;
        }
        short = 0;
    }

    function changePool() private {
        s.ready = (s.ready & ~poolOut) | poolIn;
        (poolIn, poolOut) = (0, 0);
    }

    /// @dev Behind a settlement nothing is pending; of a void round the pool stays, with who only
    /// had to say `ready`.
    function wait(uint256 missed) private {
        for (uint256 left = poolIn; left != 0; left &= left - 1) {
            uint256 mark = left & (~left + 1);
            if (counts[left.lowest()] <= s.round) (s.ready, poolIn) = (s.ready | mark, poolIn ^ mark);
        }
        miss(missed);
        (s.seed, s.nextSeed) = (0, 0);
        (s.phase, s.seated, s.waiting, s.deadline) = (Phase.WAITING, 0, 0, 0);
    }

    function close(Vm.Log calldata log) private {
        (s.status,,) = abi.decode(log.data, (JobStatus, uint32, uint64));
        (s.phase, s.deadline, s.seed, s.nextSeed) = (Phase.CLOSED, 0, 0, 0);
    }
}
