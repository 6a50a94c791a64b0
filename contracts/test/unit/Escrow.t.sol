// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {Jobs} from "../../src/Jobs.sol";
import {Members} from "../../src/Members.sol";
import {Rounds} from "../../src/Rounds.sol";
import {Due, Escrow, IJobs} from "../../src/interfaces/IJobs.sol";
import {Pull} from "../../src/libraries/Pull.sol";
import {TermsCheck} from "../../src/libraries/TermsCheck.sol";
import {Bits} from "../../src/libraries/Bits.sol";
import {Draws} from "../../src/libraries/Draws.sol";
import {Earned} from "../../src/interfaces/IHooks.sol";
import "../../src/types/Types.sol";
import {BlacklistToken, FeeToken} from "../support/HostileTokens.sol";
import {Network} from "../support/Network.sol";

/// @title Money of jobs, and members' bonds and slots.
contract EscrowTest is Network {
    using Bits for uint256;

    function identity(uint256 jobId) internal view {
        Escrow memory e = jobs.escrowOf(jobId);
        same(e.funded, e.claimed + e.refunded + e.burnt + e.balance, "the identity");
        uint256 others = jobs.escrowOf(jobId + 1).balance;
        same(token.balanceOf(address(jobs)), e.balance + others + jobs.unburnt(), "tokens held");
    }

    function test_P02_segmentsThatASeatDidNotDoGoHome() public allHome {
        Terms memory t = defaultTerms();
        t.rounds = 4;
        uint256 jobId = start(t, 4, 3);
        commitSeat(jobId, 1, revealFor(jobId, 1, 6));
        commitAll(jobId, 15 & ~uint256(2));
        revealSeat(jobId, 1, revealFor(jobId, 1, 6));
        revealAll(jobId, 15 & ~uint256(2));
        sayAll(jobId, 15);
        nextBlock();
        settle(jobId);
        vm.prank(SUBMITTER);
        jobs.cancel(jobId);
        play(jobId);
        uint256 duties = drawn(jobId, 0).popcount() + drawn(jobId, 1).popcount();
        uint256 earned = (2 * 4 * 8 - 2) * segmentPay() + 6 ether + duties * 10 ether;
        same(jobs.refundable(jobId), jobs.escrowOf(jobId).funded - earned, "all but what was done");
    }

    function test_P01_P02_refundIsWhatCanNoLongerBeEarned() public allHome {
        Terms memory t = defaultTerms();
        t.rounds = 4;
        uint256 jobId = start(t, 4, 3);
        same(jobs.refundable(jobId), 0, "at first nothing");
        play(jobId);
        vm.prank(SUBMITTER);
        jobs.cancel(jobId);
        play(jobId);
        hasStatus(jobId, JobStatus.CANCELLED);
        uint256 audits = drawn(jobId, 0).popcount() + drawn(jobId, 1).popcount();
        uint256 earned = 2 * (4 * 8 * segmentPay() + 3 ether) + audits * 10 ether;
        same(jobs.refundable(jobId), jobs.escrowOf(jobId).funded - earned, "all but what two rounds may earn");
        jobs.refund(jobId);
        same(jobs.refundable(jobId), 0, "once");
        vm.warp(rounds.timesOf(jobId, 1).windowEnd);
        for (uint32 id = 1; id <= 4; id++) {
            jobs.claim(jobId, Role.PROVIDER, id, 2);
        }
        identity(jobId);
        same(jobs.refundable(jobId), 0, "P05: cancelling took no pay");
        vm.warp(rounds.absoluteEnd(jobId) + t.claimSeconds);
        same(jobs.refundable(jobId), 0, "not before lost pay is burnt");
        jobs.burn(jobId, 2);
        uint256 other = create(defaultTerms()); // its tokens lie beside
        jobs.refund(jobId);
        same(jobs.escrowOf(jobId).balance, 0, "fees that nobody earned go home at last");
        vm.expectPartialRevert(Jobs.NothingLeft.selector);
        jobs.claim(jobId, Role.VERIFIER, 1, 2);
        same(jobs.escrowOf(other).balance, jobs.escrowOf(other).funded, "another job's tokens are its own");
        identity(jobId);
    }

    /// Who is excluded is audited in any case, from what is held for its round.
    function test_P02_whoIsDrawnAndExcludedIsOneDuty() public allHome {
        Terms memory t = defaultTerms();
        t.rounds = 9;
        uint256 jobId = start(t, 4, 3);
        (uint256 before, uint256 left) = (jobs.refundable(jobId), Draws.mostDuties(t));
        for (uint16 seat = 0; seat < 4; seat++) {
            toVotes(jobId);
            knowSeed(jobId);
            RoundState memory s = rounds.state(jobId);
            uint256 seeded = Draws.seats(s.auditSeed, s.seated, 2);
            Verdict memory v = verdictFor(jobId, 15 ^ Bits.bit(seat));
            v.excluded = Bits.bit(seat);
            settle(jobId, v);
            same(drawn(jobId, s.round), seeded | Bits.bit(seat), "duties");
            same(jobs.refundable(jobId), before, "both were held");
            left -= (seeded & ~Bits.bit(seat)).popcount();
            (,, Earned memory earned) = rounds.statusOf(jobId);
            same(earned.dutiesLeft, left, "the excluded one's is the round's own");
        }
    }

    /// Nobody who lets others be excluded, or is, has more audited than the escrow pays for.
    function test_P02_ofTheExcludedOneIsSure() public allHome {
        Terms memory t = defaultTerms();
        (t.rounds, t.seats, t.f, t.auditRate, t.lastRate) = (9, 10, 3, 15, 15);
        uint256 jobId = start(t, 10, 3);
        toVotes(jobId);
        knowSeed(jobId);
        Verdict memory v = verdictFor(jobId, 1023 ^ 7);
        v.excluded = 7;
        settle(jobId, v);
        same((drawn(jobId, 0) & 7).popcount(), 1, "one of three");
    }

    /// The escrow is never short: what is left of its duties is the most that a seed draws.
    function test_P02_noMoreAreDrawnThanAreLeft() public pure {
        same(Draws.atMost(0, 3), 0, "of nobody nobody");
        same(Draws.atMost(7, 3), 7, "all");
        same(Draws.atMost(0xf1, 3), 0xe0, "the first go");
        same(Draws.atMost(type(uint256).max, 0), 0, "none is left");
    }

    /// Where one verifier is all there is, nobody has a second auditor.
    function test_P02_oneVerifierAloneIsOneAuditorInTheLastRound() public allHome {
        Terms memory t = defaultTerms();
        (t.rounds, t.slots, t.minVerifiers) = (1, 1, 1);
        uint256 jobId = start(t, 4, 1);
        uint32 round = play(jobId);
        hasStatus(jobId, JobStatus.DONE);
        same(dutiesOf(jobId, round, 0), 15, "all of them are its own");
        (,, uint256 signed) = rounds.rowsOf(jobId, round);
        same(signed, 1, "its signature is paid");
        uint256 earned = 4 * 8 * segmentPay() + 1 ether + 4 * 10 ether;
        same(jobs.refundable(jobId), jobs.escrowOf(jobId).funded - earned, "once");
    }

    function test_P02_aJobThatNeverOpensGoesHome() public allHome {
        uint256 jobId = create(defaultTerms());
        vm.prank(SUBMITTER);
        jobs.cancel(jobId);
        jobs.refund(jobId);
        same(jobs.escrowOf(jobId).balance, 0, "whole");
    }

    function test_P02_anExpiredJobGoesHome() public allHome {
        uint256 jobId = create(defaultTerms());
        vm.warp(defaultTerms().expiry - 30 days + 30 days);
        rounds.advance(jobId);
        hasStatus(jobId, JobStatus.EXPIRED);
        jobs.refund(jobId);
        same(jobs.escrowOf(jobId).balance, 0, "whole");
    }

    function test_P01_whoeverFundsAJobAddsToItsEscrow() public allHome {
        uint256 jobId = create(defaultTerms());
        uint256 before = jobs.escrowOf(jobId).funded;
        token.approve(address(jobs), 7 ether);
        jobs.fund(jobId, 7 ether);
        same(jobs.escrowOf(jobId).funded, before + 7 ether, "funded");
        same(jobs.escrowOf(jobId).balance, before + 7 ether, "balance");
        vm.expectPartialRevert(Jobs.TooMuch.selector);
        jobs.fund(jobId, type(uint128).max - before - 7 ether + 1);
        vm.expectPartialRevert(Jobs.UnknownJob.selector);
        jobs.fund(jobId + 1, 1);
        vm.prank(SUBMITTER);
        jobs.cancel(jobId);
        vm.expectPartialRevert(Jobs.WrongStatus.selector);
        jobs.fund(jobId, 1);
        vm.prank(SUBMITTER);
        vm.expectPartialRevert(Jobs.WrongStatus.selector);
        jobs.cancel(jobId);
        jobs.refund(jobId);
    }

    function test_P01_whatIsBurntLeavesOnceAndTakesNobodysTokens() public allHome {
        uint256 jobId = start();
        commitAll(jobId, 15);
        nextBlock();
        revealAll(jobId, 15);
        nextBlock();
        sayAll(jobId, 13);
        nextBlock();
        settle(jobId, verdictFor(jobId, 13));
        vm.expectPartialRevert(Rounds.WindowOpen.selector);
        jobs.burn(jobId, 1);
        vm.warp(rounds.timesOf(jobId, 0).windowEnd);
        jobs.burn(jobId, 1);
        vm.expectPartialRevert(Jobs.NoSuchRounds.selector);
        jobs.burn(jobId, 1);
        uint256 held = token.balanceOf(address(jobs));
        for (uint256 i = 0; i < 2; i++) {
            jobs.sink();
            same(jobs.unburnt(), 0, "nothing waits any more");
            same(token.balanceOf(jobs.BURN()), 8 * segmentPay(), "a seat's round, once");
            same(token.balanceOf(address(jobs)), held - 8 * segmentPay(), "and no more");
        }
        identity(jobId);
    }

    function test_readyIsSaidOnce() public allHome {
        uint256 jobId = create(defaultTerms());
        uint32 id = enrol(jobId, 0, 0);
        vm.prank(verifier(0));
        vm.expectRevert(abi.encodeWithSelector(Members.AlreadyReady.selector, jobId, id));
        members.ready(jobId);
    }

    function test_P04_feeOnTransferIsRefused() public allHome {
        FeeToken fee = new FeeToken(address(this), 1e9 ether);
        deploy(address(fee));
        Terms memory t = defaultTerms();
        uint256 funding = jobs.budget(t);
        vm.prank(SUBMITTER);
        vm.expectPartialRevert(Pull.TransferFee.selector);
        jobs.create("spec", "cid", t, address(policy), funding);
    }

    function test_P05_onlyTheSubmitterCancels() public allHome {
        uint256 jobId = start();
        vm.expectPartialRevert(Jobs.OnlySubmitter.selector);
        jobs.cancel(jobId);
    }

    function test_P35_eachRoundIsPaidOnce() public allHome {
        uint256 jobId = start();
        play(jobId);
        play(jobId);
        vm.expectPartialRevert(Rounds.WindowOpen.selector);
        jobs.claim(jobId, Role.PROVIDER, 1, 1);
        vm.warp(rounds.timesOf(jobId, 1).windowEnd);
        jobs.claim(jobId, Role.PROVIDER, 1, 1);
        vm.expectPartialRevert(Jobs.NoSuchRounds.selector);
        jobs.claim(jobId, Role.PROVIDER, 1, 1);
        jobs.claim(jobId, Role.PROVIDER, 1, 2);
        same(token.balanceOf(provider(0)), 2 * 8 * segmentPay(), "each once");
        vm.expectPartialRevert(Rounds.WindowOpen.selector);
        jobs.claim(jobId, Role.PROVIDER, 1, 3);
        vm.expectPartialRevert(Jobs.NoSuchRounds.selector);
        jobs.claim(jobId, Role.PROVIDER, 9, 1); // nobody
    }

    function dues(uint256 jobId, uint256 count) private pure returns (Due[] memory all) {
        all = new Due[](count);
        for (uint32 i = 0; i < count; i++) {
            all[i] = Due(jobId, Role.PROVIDER, i + 1, 2);
        }
    }

    function test_P35_severalClaimsPayEachHolderOnce() public allHome {
        uint256 jobId = start();
        play(jobId);
        play(jobId);
        uint256 windowEnd = rounds.timesOf(jobId, 1).windowEnd; // AUDIT of the last round takes several auditSeconds
        vm.warp(windowEnd - 1);
        Due[] memory all = dues(jobId, 4);
        vm.expectPartialRevert(Rounds.WindowOpen.selector);
        jobs.claimMany(all);
        vm.warp(windowEnd);
        jobs.claim(jobId, Role.PROVIDER, 2, 2); // somebody else was faster
        jobs.claimMany(all);
        for (uint256 i = 0; i < 4; i++) {
            same(token.balanceOf(provider(i)), 2 * 8 * segmentPay(), "each once");
            same(jobs.claimedTo(jobId, Role.PROVIDER, uint32(i + 1)), 2, "claimed");
        }
        jobs.claimMany(all);
        same(token.balanceOf(provider(3)), 2 * 8 * segmentPay(), "and not again");
        all[3].to = 3;
        vm.expectPartialRevert(Rounds.WindowOpen.selector);
        jobs.claimMany(all);
        all[3] = Due(jobId, Role.PROVIDER, 9, 1);
        vm.expectPartialRevert(Jobs.NoSuchRounds.selector); // nobody
        jobs.claimMany(all);
    }

    /// @dev A round's pay waits for every auditSeconds of its AUDIT, of which an auditor with one
    /// seat has two.
    function test_P35_aClaimWaitsForEveryWindowOfTheLastAudit() public allHome {
        uint256 jobId = start();
        play(jobId);
        play(jobId);
        Times memory last = rounds.timesOf(jobId, 1);
        same(last.auditEnd - last.settledAt, 2 * 700, "four audits by three auditors");
        vm.warp(last.windowEnd - 1);
        vm.expectPartialRevert(Rounds.WindowOpen.selector);
        jobs.claim(jobId, Role.PROVIDER, 1, 2);
        vm.warp(last.windowEnd);
        jobs.claim(jobId, Role.PROVIDER, 1, 2);
        same(token.balanceOf(provider(0)), 2 * 8 * segmentPay(), "paid");
    }

    /// @dev More rounds than the bits of one word are of.
    function test_P35_aClaimOfManyRoundsCountsEachOfThem() public allHome {
        Terms memory t = defaultTerms();
        t.rounds = 70;
        uint256 jobId = start(t, 4, 3);
        for (uint256 i = 0; i < 70; i++) {
            play(jobId);
        }
        vm.warp(rounds.timesOf(jobId, 69).windowEnd);
        uint32[4] memory ends = [uint32(63), 65, 66, 70];
        for (uint256 i = 0; i < 4; i++) {
            jobs.claim(jobId, Role.PROVIDER, 1, ends[i]);
            same(token.balanceOf(provider(0)), ends[i] * 8 * segmentPay(), "segments");
            jobs.claim(jobId, Role.VERIFIER, 1, ends[i]);
            same(token.balanceOf(verifier(0)), ends[i] * t.signFee, "signatures");
        }
        jobs.claim(jobId, Role.PROVIDER, 2, 65);
        same(token.balanceOf(provider(1)), 65 * 8 * segmentPay(), "one word and a bit more");
    }

    function test_P35_oneTransferPaysOfSeveralJobs() public allHome {
        (uint256 first, uint256 second) = (start(), start());
        play(first);
        play(second);
        play(first);
        play(second);
        vm.warp(rounds.timesOf(second, 1).windowEnd);
        Due[] memory all = new Due[](3);
        (all[0], all[1]) = (Due(first, Role.PROVIDER, 1, 2), Due(second, Role.PROVIDER, 1, 2));
        all[2] = Due(second, Role.PROVIDER, 2, 2);
        vm.recordLogs();
        jobs.claimMany(all);
        same(token.balanceOf(provider(0)), 4 * 8 * segmentPay(), "of both jobs");
        same(token.balanceOf(provider(1)), 2 * 8 * segmentPay(), "of one");
        same(vm.getRecordedLogs().length, 3 + 2, "three claims, two transfers");
    }

    function test_P35_roundsOfAnotherHolderAreNotPaid() public allHome {
        Terms memory t = defaultTerms();
        t.rounds = 4;
        uint256 jobId = start(t, 4, 3);
        play(jobId);
        vm.prank(provider(3));
        members.leaveSeat(jobId);
        play(jobId);
        join(jobId, 9, 3);
        play(jobId);
        play(jobId);
        vm.warp(rounds.timesOf(jobId, 3).windowEnd);
        jobs.claim(jobId, Role.PROVIDER, 4, 2);
        same(token.balanceOf(provider(3)), 2 * 8 * segmentPay(), "its two rounds");
        vm.expectPartialRevert(Jobs.NoSuchRounds.selector);
        jobs.claim(jobId, Role.PROVIDER, 4, 3);
        jobs.claim(jobId, Role.PROVIDER, 5, 4);
        same(token.balanceOf(provider(9)), 8 * segmentPay(), "the next one's");
        members.release(jobId, Role.PROVIDER, 4);
    }

    function test_P37_aRefusedRecipientBlocksNobody() public allHome {
        BlacklistToken hostile = new BlacklistToken(address(this), 1e9 ether);
        deploy(address(hostile));
        uint256 jobId = start();
        play(jobId);
        play(jobId);
        vm.warp(rounds.timesOf(jobId, 1).windowEnd);
        hostile.refuse(provider(0));
        hostile.refuse(jobs.BURN());
        jobs.claim(jobId, Role.PROVIDER, 1, 2);
        same(jobs.keptOf(provider(0)), 2 * 8 * segmentPay(), "kept");
        jobs.claim(jobId, Role.PROVIDER, 2, 2);
        jobs.burn(jobId, 2);
        jobs.refund(jobId);
        same(token.balanceOf(provider(1)), 2 * 8 * segmentPay(), "paid");
    }

    function test_createRefusesBadTerms() public allHome {
        for (uint256 i = 0; i < 10; i++) {
            Terms memory t = defaultTerms();
            if (i == 0) t.f = 2; // 3f < seats
            if (i == 1) (t.seats, t.f) = (3, 1);
            if (i == 2) t.auditRate = 16;
            if (i == 3) t.segmentSteps = 7;
            if (i == 4) t.windowSeconds = 1_999;
            if (i == 5) t.gameSeconds = 9_000;
            if (i == 6) t.expiry = uint64(block.timestamp);
            if (i == 7) t.slots = 257;
            if (i == 8) t.providerBond = 1 ether - 1;
            if (i == 9) t.program = 0; // nobody could play an accusation
            vm.prank(SUBMITTER);
            vm.expectPartialRevert(TermsCheck.TermOutOfRange.selector);
            jobs.create("spec", "cid", t, address(policy), 1e24);
        }
        Terms memory good = defaultTerms();
        uint256 funding = jobs.budget(good) - 1;
        vm.prank(SUBMITTER);
        vm.expectPartialRevert(Jobs.Underfunded.selector);
        jobs.create("spec", "cid", good, address(policy), funding);
    }

    function test_createRefusesWhatNobodyAllowedOrCouldHold() public allHome {
        Terms memory t = defaultTerms();
        vm.startPrank(SUBMITTER);
        vm.expectRevert(abi.encodeWithSelector(Jobs.PolicyNotAllowed.selector, address(jobs)));
        jobs.create("spec", "cid", t, address(jobs), 1e24);
        vm.expectRevert(abi.encodeWithSelector(Jobs.CidTooLong.selector, 129, 128));
        jobs.create("spec", new bytes(129), t, address(policy), 1e24);
        vm.expectPartialRevert(Jobs.TooMuch.selector);
        jobs.create("spec", "cid", t, address(policy), 1 << 128);
        same(jobs.jobCount(), 0, "none");
        uint256 funding = jobs.budget(t);
        jobs.create("spec", new bytes(128), t, address(policy), funding);
        vm.stopPrank();
        same(jobs.jobCount(), 1, "a CID of as many bytes as there may be");
    }

    // --- members ---

    function test_P09_bondsAreHeldUntilTheLastRoundsWindowAndNoLonger() public allHome {
        Terms memory t = defaultTerms();
        t.rounds = 9;
        uint256 jobId = start(t, 4, 3);
        play(jobId);
        vm.prank(provider(0));
        members.leaveSeat(jobId);
        vm.expectPartialRevert(Members.StillBound.selector); // it owes round 1
        members.release(jobId, Role.PROVIDER, 1);
        vm.expectPartialRevert(Members.StillMember.selector);
        members.release(jobId, Role.PROVIDER, 2);
        play(jobId);
        uint256 end = rounds.timesOf(jobId, 1).windowEnd;
        vm.warp(end - 1);
        vm.expectPartialRevert(Members.StillBound.selector);
        members.release(jobId, Role.PROVIDER, 1);
        vm.warp(end);
        members.release(jobId, Role.PROVIDER, 1);
        vm.expectPartialRevert(Members.NotMember.selector);
        members.release(jobId, Role.PROVIDER, 1);
    }

    function test_aMembersBondIsNoSmallerThanItsTerms() public {
        uint256 jobId = create(defaultTerms());
        stakeUp(verifier(7), Role.VERIFIER, BOND);
        vm.startPrank(verifier(7));
        vm.expectRevert(abi.encodeWithSelector(Members.BondTooSmall.selector, BOND - 1, BOND));
        members.enrol(jobId, 0, uint128(BOND - 1), enrolment(7, jobId, 0, BOND - 1));
        members.enrol(jobId, 0, uint128(BOND), enrolment(7, jobId, 0, BOND));
        vm.stopPrank();
        same(lockedOf(verifier(7), Role.VERIFIER), BOND, "locked");
    }

    function test_whoWasNotReadyInTimeHasNoSlotAndItsBondIsHome() public {
        uint256 jobId = create(defaultTerms());
        uint32 late = enrolUnready(jobId, 0, 0);
        stakeUp(verifier(1), Role.VERIFIER, BOND);
        vm.warp(block.timestamp + 999);
        vm.prank(verifier(1));
        vm.expectPartialRevert(bytes4(keccak256("SlotTaken(uint16)")));
        members.enrol(jobId, 0, uint128(BOND), enrolment(1, jobId, 0, BOND));
        vm.warp(block.timestamp + 1);
        vm.prank(verifier(1));
        uint32 next = members.enrol(jobId, 0, uint128(BOND), enrolment(1, jobId, 0, BOND));
        same(members.holderOf(jobId, Role.VERIFIER, late).to, 0, "it never counted");
        same(lockedOf(verifier(0), Role.VERIFIER), 0, "home");
        vm.prank(verifier(0));
        vm.expectPartialRevert(Members.NotMember.selector);
        members.leavePool(jobId); // which would be of the other's slot
        same(members.holderOf(jobId, Role.VERIFIER, next).index, 0, "whose it is");
    }

    function test_aFullPoolIsOutbidByATenthAtTheNextOpening() public allHome {
        Terms memory t = defaultTerms();
        t.rounds = 4;
        uint256 jobId = start(t, 4, 3);
        stakeUp(verifier(7), Role.VERIFIER, 2 * BOND);
        vm.startPrank(verifier(7));
        vm.expectPartialRevert(Members.BondTooSmall.selector);
        members.enrol(jobId, 0, uint128(BOND * 11 / 10 - 1), enrolment(7, jobId, 0, BOND * 11 / 10 - 1));
        vm.expectPartialRevert(Members.NotTheSmallest.selector);
        members.enrol(jobId, 1, uint128(BOND * 11 / 10), enrolment(7, jobId, 1, BOND * 11 / 10));
        members.enrol(jobId, 0, uint128(BOND * 11 / 10), enrolment(7, jobId, 0, BOND * 11 / 10));
        vm.stopPrank();
        same(memberAt(jobId, 0), verifier(0), "the old one plays the round");
        play(jobId);
        same(memberAt(jobId, 0), verifier(7), "the new one the next");
        same(rounds.state(jobId).ready, 7, "ready at once");
        play(jobId);
        vm.warp(rounds.timesOf(jobId, 1).windowEnd);
        jobs.claim(jobId, Role.VERIFIER, 1, 1);
        jobs.claim(jobId, Role.VERIFIER, 4, 2);
        same(token.balanceOf(verifier(0)), 1 ether, "each its rounds");
        same(token.balanceOf(verifier(7)), 0, "round 1's committee is of the pool before");
        members.release(jobId, Role.VERIFIER, 1);
    }

    function test_thePoolStandsStillWhileVotesAreCast() public allHome {
        uint256 jobId = start();
        toVotes(jobId);
        vm.prank(verifier(0));
        vm.expectPartialRevert(Members.NotNow.selector);
        members.leavePool(jobId);
    }

    /// Where there is nothing to draw, everybody who is ready is the committee.
    function test_whoIsReadyInTheOpeningsBlockIsInACommitteeThatIsNotDrawn() public allHome {
        Terms memory t = defaultTerms();
        uint256 jobId = create(t);
        for (uint256 i = 0; i < 4; i++) {
            join(jobId, i, uint16(i));
        }
        enrol(jobId, 0, 0);
        enrol(jobId, 1, 1);
        nextBlock();
        enrol(jobId, 2, 2);
        rounds.advance(jobId);
        same(rounds.state(jobId).committee, 7, "the committee");
        same(rounds.state(jobId).ready, 7, "the pool");
    }

    function test_waitingJobsLetGoAtOnce() public allHome {
        uint256 jobId = create(defaultTerms());
        uint32 seatId = join(jobId, 0, 2);
        uint32 slotId = enrol(jobId, 0, 1);
        vm.prank(provider(0));
        members.leaveSeat(jobId);
        vm.prank(verifier(0));
        members.leavePool(jobId);
        members.release(jobId, Role.PROVIDER, seatId);
        members.release(jobId, Role.VERIFIER, slotId);
        same(lockedOf(provider(0), Role.PROVIDER) + lockedOf(verifier(0), Role.VERIFIER), 0, "home");
    }

    function test_oneIdInAJobAtATime() public allHome {
        uint256 jobId = start();
        stakeUp(provider(0), Role.PROVIDER, BOND);
        vm.prank(provider(0));
        vm.expectPartialRevert(Members.AlreadyMember.selector);
        members.join(jobId, 3);
    }
}
