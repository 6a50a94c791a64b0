// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import "../../src/types/Types.sol";
import {EventFold} from "../support/EventFold.sol";
import {Network} from "../support/Network.sol";
import {Vm} from "../support/Vm.sol";

/// @title P40: the whole state follows from the events, through every kind of detour.
contract EventsTest is Network {
    EventFold internal fold;
    uint256 internal jobId;

    function setUp() public override {
        super.setUp();
        fold = new EventFold();
        fold.setRounds(3);
        vm.recordLogs();
    }

    /// The fold of all events so far equals what the contract says.
    function rebuilt(string memory where) internal {
        Vm.Log[] memory logs = vm.getRecordedLogs();
        for (uint256 i = 0; i < logs.length; i++) {
            bool ours = logs[i].topics.length > 1 && uint256(logs[i].topics[1]) == jobId;
            address by = logs[i].emitter;
            bool states = by == address(rounds) || by == address(jobs) || by == address(roster);
            if (ours && states) fold.apply_(logs[i], hashOfCut());
        }
        same(keccak256(abi.encode(fold.folded())), keccak256(abi.encode(rounds.state(jobId))), where);
    }

    /// The cut's hash as any reader of the chain knows it, however long ago that block was.
    function hashOfCut() private view returns (bytes32) {
        return blockhash(rounds.state(jobId).cutBlock);
    }

    function test_P40_stateFollowsFromEventsAlone() public {
        jobId = create(defaultTerms());
        rebuilt("created");
        open(jobId, 4, 3);
        rebuilt("training");
        commitAll(jobId, 7);
        rebuilt("commits");
        passDeadline(jobId);
        revealAll(jobId, 7);
        rebuilt("revealed and armed");
        vm.roll(block.number + 300);
        rounds.poke(jobId);
        rebuilt("beacon armed again");
        passBeacon(jobId);
        ballotBy(jobId, 0, 6, oneReport(0, 1, Fault.WRONG_REPLAY));
        ballotBy(jobId, 1, 6, noReports());
        ballotBy(jobId, 2, 2, noReports());
        rebuilt("confirming");
        voteBy(jobId, 1, 1, 0, 0);
        voteBy(jobId, 2, 1, 0, 0);
        rebuilt("evidence");
        passDeadline(jobId);
        rebuilt("no quorum");
        passBeacon(jobId);
        ballotAll(jobId);
        settleAndRebuild();
        rebuilt("settled, and training again");
    }

    function test_P40_stateFollowsThroughVoidsHaltsAndEndings() public {
        jobId = start();
        rebuilt("training");
        passDeadline(jobId);
        rebuilt("nobody committed");
        passBeacon(jobId);
        toReport(jobId);
        Report[] memory three = new Report[](3);
        for (uint16 i = 0; i < 3; i++) {
            three[i] = Report(i, 0, Fault.MALFORMED, 0);
        }
        for (uint256 v = 0; v < 3; v++) {
            ballotBy(jobId, v, 8, three);
        }
        rebuilt("halted");
        rounds.reaudit(jobId);
        rebuilt("audited again");
        passBeacon(jobId);
        ballotAll(jobId);
        settleAndRebuild();
        vm.prank(submitter);
        jobs.cancel(jobId);
        playRoundAndRebuild();
        rebuilt("cancelled");
        hasStatus(jobId, JobStatus.CANCELLED);
    }

    function test_P40_stateFollowsToTheEnd() public {
        jobId = start();
        for (uint256 r = 0; r < 3; r++) {
            playRoundAndRebuild();
        }
        finaliseAll(jobId);
        rebuilt("done");
    }

    function playRoundAndRebuild() internal {
        toReport(jobId);
        ballotAll(jobId);
        settleAndRebuild();
    }

    function settleAndRebuild() internal {
        mine(1);
        rebuilt("attesting");
        Verdict memory v = verdictFor(jobId);
        RoundState memory s = rounds.state(jobId);
        attestBy(jobId, 0, rounds.verdictHash(jobId, s.round, s.attempt, v));
        rebuilt("one attestation");
        attestBy(jobId, 1, rounds.verdictHash(jobId, s.round, s.attempt, v));
        rounds.settle(jobId, v);
        rebuilt("settled");
    }
}
