// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {LateVotes} from "../../src/LateVotes.sol";
import {Having} from "../../src/interfaces/ILateVotes.sol";
import {Reveals, Shown} from "../../src/libraries/Reveals.sol";
import "../../src/types/Types.sol";
import {AuditedRound} from "../support/AuditedRound.sol";

/// @title Votes of both committees after a settlement.
contract LateVotesTest is AuditedRound {
    /// @dev All reveal, and nobody has the update of seat 0.
    function playWithoutSeat0() internal {
        commitAll(jobId, 15);
        revealAll(jobId, 15);
        sayAll(jobId, 14);
        nextBlock();
        settle(jobId, verdictFor(jobId, 14));
    }

    function test_lateVotesOfBothCommitteesPayWhatOneLiedAbout() public allHome {
        playWithoutSeat0();
        (uint256 pay, uint256 lost,) = rounds.rowsOf(jobId, 2);
        same(pay, 14, "unpaid");
        same(lost, 1, "and lost, unless it was available");
        Having memory h = havingOf(2);
        vm.prank(verifier(0));
        lateVotes.lateVote(jobId, 2, 1, 1);
        vm.expectPartialRevert(LateVotes.NotAvailable.selector);
        lateVotes.grant(jobId, 2, 0, h);
        vm.prank(verifier(1));
        lateVotes.lateVote(jobId, 2, 2, 1);
        lateVotes.grant(jobId, 2, 0, h);
        (pay, lost,) = rounds.rowsOf(jobId, 2);
        same(pay, 15, "paid");
        same(lost, 0, "and nobody's lost");
        vm.warp(rounds.timesOf(jobId, 2).auditEnd);
        vm.prank(verifier(2));
        vm.expectPartialRevert(LateVotes.TooLate.selector);
        lateVotes.lateVote(jobId, 2, 3, 1);
    }

    function test_lateVotesOfAMembersFirstRoundCount() public allHome {
        jobId = start();
        playWithoutSeat0();
        for (uint32 id = 1; id <= 2; id++) {
            vm.prank(verifier(id - 1));
            lateVotes.lateVote(jobId, 0, id, 1);
        }
        lateVotes.grant(jobId, 0, 0, havingOf(0));
        (uint256 pay,,) = rounds.rowsOf(jobId, 0);
        same(pay, 15, "paid");
        play(jobId);
    }

    function test_aLateVoteOfWhoIsInTheNextCommitteeAloneCounts() public allHome {
        Terms memory t = defaultTerms();
        (t.rounds, t.slots) = (4, 4);
        jobId = start(t, 4, 3);
        enrol(jobId, 3, 3);
        play(jobId);
        playWithoutSeat0();
        same(said[jobId][1].record.committee, 7, "not in the round's own");
        same(rounds.state(jobId).committee, 15, "in the next");
        Having memory h = havingOf(1);
        for (uint32 id = 1; id <= 2; id++) {
            vm.prank(verifier(id - 1));
            lateVotes.lateVote(jobId, 1, id, 1);
        }
        h.late = ids(1, 2, 4);
        vm.expectPartialRevert(LateVotes.NotAvailable.selector);
        lateVotes.grant(jobId, 1, 0, h); // two of four
        vm.prank(verifier(3));
        lateVotes.lateVote(jobId, 1, 4, 1);
        h.late = ids(1, 2, 2);
        vm.expectPartialRevert(LateVotes.NotAvailable.selector);
        lateVotes.grant(jobId, 1, 0, h); // two of four, one of them twice
        h.late = ids(1, 2, 4);
        lateVotes.grant(jobId, 1, 0, h);
        (uint256 pay,,) = rounds.rowsOf(jobId, 1);
        same(pay, 15, "paid");
        play(jobId);
    }

    function ids(uint32 a, uint32 b, uint32 c) private pure returns (uint32[] memory all) {
        all = new uint32[](3);
        (all[0], all[1], all[2]) = (a, b, c);
    }

    function test_theNextCommitteeIsOfTheNextRoundsRecord() public allHome {
        jobId = start();
        playWithoutSeat0();
        for (uint32 id = 1; id <= 2; id++) {
            vm.prank(verifier(id - 1));
            lateVotes.lateVote(jobId, 0, id, 1);
        }
        play(jobId);
        Having memory h = havingOf(0);
        for (uint32 wrong = 0; wrong < 2; wrong++) {
            if (wrong == 1) h.next = said[jobId][0].record;
            vm.expectPartialRevert(Reveals.WrongRecord.selector);
            lateVotes.grant(jobId, 0, 0, h);
        }
        h.next = said[jobId][1].record;
        lateVotes.grant(jobId, 0, 0, h);
    }

    function test_lateVotesGiveNoPayToWhoHasNotRevealed() public allHome {
        jobId = start();
        commitAll(jobId, 15);
        revealAll(jobId, 7);
        vm.warp(rounds.state(jobId).deadline);
        rounds.advance(jobId);
        sayAll(jobId, 15); // with a seat that has revealed nothing
        nextBlock();
        settle(jobId, verdictFor(jobId, 7));
        Having memory h = havingOf(0);
        h.late = new uint32[](0);
        vm.expectPartialRevert(bytes4(keccak256("NothingEarned(uint16,uint32)")));
        lateVotes.grant(jobId, 0, 3, h);
        members.penaliseSeat(jobId, 3);
        play(jobId);
    }

    function test_whoLeftTheRoundBeforeSaysNoLateVote() public allHome {
        jobId = start();
        vm.prank(verifier(2));
        members.leavePool(jobId);
        play(jobId);
        play(jobId);
        same(members.holderOf(jobId, Role.VERIFIER, 3).to, 1, "it was there for round 0");
        vm.startPrank(verifier(2));
        vm.expectPartialRevert(LateVotes.NotThen.selector);
        lateVotes.lateVote(jobId, 1, 3, 1);
        lateVotes.lateVote(jobId, 0, 3, 1);
        vm.stopPrank();
    }

    function test_lateVotesAreAddedToThoseThatWereSaidAndToNoOthers() public allHome {
        commitAll(jobId, 15);
        revealAll(jobId, 15);
        castVote(jobId, 0, 15); // it alone has seat 0
        castVote(jobId, 1, 14);
        castVote(jobId, 2, 14);
        nextBlock();
        settle(jobId, verdictFor(jobId, 14));
        Having memory h = havingOf(2);
        vm.expectPartialRevert(LateVotes.NotAvailable.selector);
        lateVotes.grant(jobId, 2, 0, h);
        vm.expectPartialRevert(LateVotes.NotYours.selector);
        lateVotes.lateVote(jobId, 2, 2, 1);
        vm.prank(verifier(1));
        lateVotes.lateVote(jobId, 2, 2, 1);
        h.record.available = 15;
        vm.expectPartialRevert(Reveals.WrongRecord.selector);
        lateVotes.grant(jobId, 2, 0, h);
        h.record.available = 14;
        h.has[2] = 15;
        vm.expectPartialRevert(LateVotes.WrongVotes.selector);
        lateVotes.grant(jobId, 2, 0, h);
        h.has[2] = 14;
        uint256 settled = vm.snapshotState();
        lateVotes.grant(jobId, 2, 0, h);
        (uint256 pay,,) = rounds.rowsOf(jobId, 2);
        same(pay, 15, "two of three have it");
        vm.revertToState(settled);
        vm.warp(rounds.timesOf(jobId, 2).auditEnd);
        vm.expectPartialRevert(LateVotes.TooLate.selector);
        lateVotes.grant(jobId, 2, 0, h);
    }

    function test_lateVotesGiveNoPayBackThatALeakTook() public allHome {
        Shown memory s = shownFor(jobId, 1, seat);
        bytes32 told = key();
        vm.prank(OUTSIDER);
        audits.leak(s, told);
        Having memory h = havingOf(1);
        vm.expectPartialRevert(LateVotes.WasLeaked.selector);
        lateVotes.grant(jobId, 1, seat, h);
    }

    /// @return h what the settled round's votes were, and the late ones of members 1 and 2
    function havingOf(uint32 round) internal view returns (Having memory h) {
        Said storage told = said[jobId][round];
        RoundRecord memory none;
        h = Having(told.record, none, told.record.seed, told.slots, told.has, new uint32[](2));
        (h.late[0], h.late[1]) = (1, 2);
    }
}
