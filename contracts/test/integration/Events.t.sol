// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {Hashing} from "../../src/libraries/Hashing.sol";
import "../../src/types/Types.sol";
import {EventFold} from "../support/EventFold.sol";
import {Network} from "../support/Network.sol";
import {deployed} from "../support/Deployed.sol";

/// @title P40: a job's state follows from its events alone, and its modules share one layout.
contract EventsTest is Network {
    EventFold internal fold;
    uint256 internal jobId;

    function agree(string memory when) internal {
        fold.take(vm.getRecordedLogs());
        RoundState memory a = fold.state();
        RoundState memory b = rounds.state(jobId);
        if (b.phase == Phase.CLOSED) (a.seated, a.waiting, b.seated, b.waiting) = (0, 0, 0, 0);
        same(uint256(a.phase), uint256(b.phase), when);
        same(a.ready, b.ready, when);
        same(a.held, b.held, when);
        same(a.owing, b.owing, when);
        same(a.votes, b.votes, when);
        same(keccak256(abi.encode(a)), keccak256(abi.encode(b)), when);
    }

    function test_P40_stateFollowsFromEvents() public {
        vm.recordLogs();
        Terms memory t = defaultTerms();
        t.rounds = 6;
        jobId = create(t);
        fold = EventFold(deployed("EventFold", abi.encode(rounds, jobId, 8)));
        for (uint16 i = 0; i < 4; i++) {
            join(jobId, i, i);
        }
        for (uint16 i = 0; i < 3; i++) {
            enrol(jobId, i, i);
        }
        agree("members");
        nextBlock();
        rounds.advance(jobId);
        agree("opened");
        bytes32 seed = rounds.state(jobId).seed;
        vm.prank(provider(3));
        members.disagree(jobId, seed, "root");
        commitAll(jobId, 3);
        vm.warp(rounds.state(jobId).deadline);
        rounds.advance(jobId);
        agree("a seat stopped, another missed");
        revealSeat(jobId, 0, revealFor(jobId, 0, 8));
        members.penaliseSeat(jobId, 2);
        join(jobId, 8, 2);
        vm.warp(rounds.state(jobId).deadline);
        rounds.advance(jobId);
        agree("a seat missed its reveal");
        castVote(jobId, 1, 1);
        nextCommittee(jobId);
        agree("another committee draw");
        castVote(jobId, 0, 0);
        castVote(jobId, 1, 1);
        castVote(jobId, 2, 1);
        nextBlock();
        settle(jobId, verdictFor(jobId, 1));
        agree("settled, too few");
        inPhase(jobId, Phase.WAITING);
        refill();
        shortRounds();
        vm.prank(SUBMITTER);
        jobs.cancel(jobId);
        play(jobId);
        hasStatus(jobId, JobStatus.CANCELLED);
        agree("closed");
    }

    function refill() internal {
        members.penaliseSeat(jobId, 1);
        join(jobId, 9, 1);
        join(jobId, 10, 3);
        vm.prank(verifier(2));
        members.leavePool(jobId);
        enrol(jobId, 5, 2);
        nextBlock();
        rounds.advance(jobId);
        agree("opened again");
    }

    function shortRounds() internal {
        for (uint256 r = 0; r < 2; r++) {
            vm.prank(verifier(r == 0 ? 1 : 5));
            members.leavePool(jobId);
            enrol(jobId, 6 + r, r == 0 ? 1 : 2);
            commitSeat(jobId, 3, revealFor(jobId, 3, 2));
            commitAll(jobId, 7);
            revealSeat(jobId, 3, revealFor(jobId, 3, 2));
            revealAll(jobId, 7);
            agree("revealed");
            sayAll(jobId, 15);
            nextBlock();
            settle(jobId, verdictFor(jobId, 7));
            agree("settled");
        }
        same(rounds.state(jobId).owing, 8, "short twice");
    }
}
