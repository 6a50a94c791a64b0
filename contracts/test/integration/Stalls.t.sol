// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {Members} from "../../src/Members.sol";
import {RoundsBase} from "../../src/rounds/RoundsBase.sol";
import {RoundsSettlement} from "../../src/rounds/RoundsSettlement.sol";
import {Claim} from "../../src/judge/IClaims.sol";
import {Bits} from "../../src/libraries/Bits.sol";
import "../../src/types/Types.sol";
import {Network} from "../support/Network.sol";

/// @title Committees that vote and never sign: whom they can hold, and for how long.
contract StallsTest is Network {
    using Bits for uint256;

    uint256 private constant WINDOW = 2_900; // of the default terms, from AUDIT to its end
    uint256 private constant DRAWS = 31; // 2 mergeSeconds and a window

    uint256 private began;

    /// @return t with five years to go
    function longTerms() private view returns (Terms memory t) {
        t = defaultTerms();
        (t.rounds, t.slots, t.minVerifiers) = (9, 3, 3);
        t.expiry = uint64(block.timestamp + 5 * 365 days);
    }

    function merging() private returns (uint256 jobId) {
        jobId = start(longTerms(), 4, 3);
        toVotes(jobId);
        began = block.timestamp;
        knowSeed(jobId);
    }

    function leaves(uint256 jobId, uint256 i) private {
        vm.prank(provider(i));
        members.leaveSeat(jobId);
    }

    /// @dev To the last committee draw that another one may follow; everybody votes, and nobody signs.
    function stall(uint256 jobId) private {
        for (uint256 over = 1; over < DRAWS; over++) {
            nextCommittee(jobId);
            sayAll(jobId, 15);
        }
        vm.warp(rounds.state(jobId).deadline);
    }

    function settleLate(uint256 jobId) private {
        uint32 round = rounds.state(jobId).round;
        noteRecord(jobId, none(jobId));
        said[jobId][round].record.certificate = 0; // nobody signed one
        rounds.settleLate(jobId, said[jobId][round].slots, said[jobId][round].has);
        hasStatus(jobId, JobStatus.EXPIRED);
    }

    function none(uint256 jobId) private view returns (Verdict memory v) {
        v.state = rounds.state(jobId).model;
    }

    function refusesLate(uint256 jobId) private {
        bytes memory slots = said[jobId][0].slots;
        uint256[] memory has = said[jobId][0].has;
        vm.expectPartialRevert(RoundsSettlement.StillOpen.selector);
        rounds.settleLate(jobId, slots, has);
    }

    function refusesCommittee(uint256 jobId) private {
        vm.expectPartialRevert(RoundsBase.NothingToDo.selector);
        rounds.advance(jobId);
    }

    /// Three bonds that voted and never signed held the others of a job for five years.
    function test_silentSignersHoldWhoLeavesForTwoWindows() public allHome onlyTheGuiltyPay {
        uint256 jobId = merging();
        leaves(jobId, 0);
        stall(jobId);
        refusesCommittee(jobId);
        settleLate(jobId);
        vm.warp(rounds.timesOf(jobId, 0).windowEnd);
        atMost(block.timestamp - began, 3 * 100 + 2 * WINDOW, "seconds");
        for (uint32 id = 1; id <= 4; id++) {
            jobs.claim(jobId, Role.PROVIDER, id, 1);
            members.release(jobId, Role.PROVIDER, id);
            same(token.balanceOf(provider(id - 1)), 8 * segmentPay(), "paid");
            same(lockedOf(provider(id - 1), Role.PROVIDER), 0, "free");
        }
        for (uint32 id = 1; id <= 3; id++) {
            members.release(jobId, Role.VERIFIER, id);
        }
    }

    function test_aMergeGoesOnWhileAllStay() public allHome onlyTheGuiltyPay {
        uint256 jobId = merging();
        stall(jobId);
        refusesLate(jobId);
        nextCommittee(jobId);
        sayAll(jobId, 15);
        nextBlock();
        settle(jobId, verdictFor(jobId, 15));
        inPhase(jobId, Phase.TRAIN);
    }

    function test_noDrawEarlierIsTheLast() public allHome onlyTheGuiltyPay {
        uint256 jobId = merging();
        leaves(jobId, 0);
        for (uint256 over = 1; over < DRAWS; over++) {
            vm.warp(rounds.state(jobId).deadline);
            refusesLate(jobId);
            nextCommittee(jobId);
            sayAll(jobId, 15);
        }
        vm.warp(rounds.state(jobId).deadline - 1);
        refusesLate(jobId);
    }

    /// Until somebody ends it a certificate is as good as ever.
    function test_whatIsSignedAtLastSettles() public allHome onlyTheGuiltyPay {
        uint256 jobId = merging();
        leaves(jobId, 0);
        stall(jobId);
        settle(jobId, verdictFor(jobId, 15));
        inPhase(jobId, Phase.TRAIN);
        same(rounds.state(jobId).seated, 14, "the others go on");
    }

    /// A seat that left alone would get out of a round whose seed has drawn it.
    function test_whoLeavesAStalledRoundIsAuditedInIt() public allHome onlyTheGuiltyPay {
        uint256 jobId = start(longTerms(), 4, 3);
        play(jobId);
        toVotes(jobId);
        knowSeed(jobId);
        leaves(jobId, 2);
        stall(jobId);
        settleLate(jobId);
        vm.warp(rounds.timesOf(jobId, 1).auditEnd);
        blame(provider(2));
        Claim memory c = game.challenge(abi.encode(evidenceFor(jobId, 1, 2, 0)));
        game.holderLoses(c, OUTSIDER);
        same(lockedOf(provider(2), Role.PROVIDER), 0, "its bond");
        vm.warp(rounds.timesOf(jobId, 1).windowEnd);
        jobs.claim(jobId, Role.PROVIDER, 3, 2);
        same(token.balanceOf(provider(2)), 8 * segmentPay(), "and the round's pay: the one before was FINAL");
    }

    /// A chain that stands still in the last draw lets nobody vote: it takes no pay.
    function test_whereMostWereSilentAnotherDrawFollows() public allHome {
        uint256 jobId = merging();
        leaves(jobId, 0);
        for (uint256 over = 1; over < DRAWS; over++) {
            nextCommittee(jobId);
        }
        for (uint256 more = 0; more < 3; more++) {
            vm.warp(rounds.state(jobId).deadline);
            refusesLate(jobId);
            nextCommittee(jobId);
        }
        vm.warp(rounds.state(jobId).deadline);
        refusesCommittee(jobId);
        settleLate(jobId);
    }

    function test_aMemberLeavesAMergeThatSettlesNothing() public allHome onlyTheGuiltyPay {
        uint256 jobId = merging();
        vm.prank(verifier(0));
        vm.expectPartialRevert(Members.NotNow.selector);
        members.leavePool(jobId);
        nextCommittee(jobId);
        vm.prank(verifier(0));
        members.leavePool(jobId);
        same(rounds.state(jobId).ready, 7, "this round's pool is as it was");
        sayAll(jobId, 15);
        for (uint256 over = 2; over < DRAWS; over++) {
            nextCommittee(jobId);
            sayAll(jobId, 15);
        }
        vm.warp(rounds.state(jobId).deadline);
        settleLate(jobId);
        vm.warp(rounds.timesOf(jobId, 0).windowEnd);
        members.release(jobId, Role.VERIFIER, 1);
        same(lockedOf(verifier(0), Role.VERIFIER), 0, "free");
    }

    /// Who leaves at the settlement is not of the next committee.
    function test_aMemberThatLeavesInAMergeIsGoneBehindIt() public allHome onlyTheGuiltyPay {
        Terms memory t = longTerms();
        (t.slots, t.minVerifiers) = (4, 3);
        uint256 jobId = start(t, 4, 4);
        toVotes(jobId);
        nextCommittee(jobId);
        vm.prank(verifier(3));
        members.leavePool(jobId);
        sayAll(jobId, 15);
        nextBlock();
        settle(jobId, verdictFor(jobId, 15));
        same(rounds.state(jobId).committee, 7, "of those who stay");
        same(rounds.state(jobId).ready, 7, "as is the pool");
        play(jobId);
    }

    function test_aCancelledJobEndsTheSameWay() public allHome onlyTheGuiltyPay {
        uint256 jobId = merging();
        vm.prank(SUBMITTER);
        jobs.cancel(jobId);
        stall(jobId);
        noteRecord(jobId, none(jobId));
        rounds.settleLate(jobId, said[jobId][0].slots, said[jobId][0].has);
        hasStatus(jobId, JobStatus.CANCELLED);
        jobs.refund(jobId);
        atMost(jobs.escrowOf(jobId).balance, 4 * 8 * segmentPay() + 33 ether, "what one round may earn");
    }
}
