// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {Members} from "../../src/Members.sol";
import {Escrow} from "../../src/interfaces/IJobs.sol";
import {Claim} from "../../src/judge/IClaims.sol";
import {Bits} from "../../src/libraries/Bits.sol";
import {Draws} from "../../src/libraries/Draws.sol";
import {Hashing} from "../../src/libraries/Hashing.sol";
import {SeatSteps} from "../../src/rounds/SeatSteps.sol";
import {Seasoning} from "../../src/libraries/Seasoning.sol";
import "../../src/types/Types.sol";
import {Network} from "../support/Network.sol";

/// @title Pay that is retained until nothing can take it, and seats that are drawn more rarely for it.
contract RetainedTest is Network {
    using Bits for uint256;
    using SeatSteps for mapping(uint256 => uint256);

    mapping(uint256 => uint256) private words;

    uint256 internal constant SMALL = 1 ether; // a bond, of which 0.7 are burnt
    uint256 internal constant ROUND = 0.8 ether; // a seat's pay

    function smallTerms() internal view returns (Terms memory t) {
        t = defaultTerms();
        (t.rounds, t.auditRate, t.lastRate, t.rateSteps) = (12, 1, 1, 2);
        (t.providerBond, t.segmentPay) = (uint128(SMALL), uint128(ROUND / 8));
        t.trainSeconds = 10_000; // so that a round's window may end in another's TRAIN
    }

    function playTo(uint256 jobId, uint32 rounds_) internal {
        while (rounds.state(jobId).round < rounds_) {
            play(jobId);
        }
        vm.warp(rounds.timesOf(jobId, rounds_ - 1).windowEnd);
    }

    function identity(uint256 jobId) internal view {
        Escrow memory e = jobs.escrowOf(jobId);
        same(e.funded, e.claimed + e.refunded + e.burnt + e.balance, "the identity");
        same(token.balanceOf(address(jobs)), e.balance + jobs.unburnt(), "tokens held by the escrow");
    }

    /// @return paid wei that the account was sent
    function claimed(uint256 jobId, uint32 id, uint32 to) internal returns (uint256 paid) {
        address account = members.holderOf(jobId, Role.PROVIDER, id).account;
        uint256 before = token.balanceOf(account);
        jobs.claim(jobId, Role.PROVIDER, id, to);
        identity(jobId);
        return token.balanceOf(account) - before;
    }

    function test_P100_aHalfIsRetainedUntilItMakesNoRateLower() public allHome onlyTheGuiltyPay {
        uint256 jobId = start(smallTerms(), 4, 3);
        playTo(jobId, 3);
        uint256 held = token.balanceOf(address(stakes));
        same(claimed(jobId, 1, 1), ROUND / 2, "a half");
        same(members.bondOf(jobId, Role.PROVIDER, 1), SMALL + ROUND / 2, "of the bond");
        same(token.balanceOf(address(stakes)), held + ROUND / 2, "and with the stakes");
        same(lockedOf(provider(0), Role.PROVIDER), SMALL + ROUND / 2, "which nobody unbonds");
        same(claimed(jobId, 1, 2), ROUND - 0.3 ether, "two steps take as much again as the bond's burnt part");
        same(claimed(jobId, 1, 3), ROUND, "all, from there on");
        same(members.bondOf(jobId, Role.PROVIDER, 1), SMALL + 0.7 ether, "no more");
        same(claimed(jobId, 2, 3), 3 * ROUND - 0.7 ether, "of a claim of many rounds as of many");
    }

    function test_P100_withoutStepsNothingIsRetained() public allHome {
        Terms memory t = smallTerms();
        t.rateSteps = 0;
        uint256 jobId = start(t, 4, 3);
        playTo(jobId, 1);
        same(claimed(jobId, 1, 1), ROUND, "whole");
        same(members.bondOf(jobId, Role.PROVIDER, 1), SMALL, "the bond");
    }

    function test_P100_whatIsRetainedGoesHomeWithTheBondAndWhatIsClaimedLaterAtOnce() public allHome onlyTheGuiltyPay {
        uint256 jobId = start(smallTerms(), 4, 3);
        playTo(jobId, 1);
        claimed(jobId, 1, 1);
        vm.prank(provider(0));
        members.leaveSeat(jobId);
        play(jobId);
        vm.expectPartialRevert(Members.StillBound.selector);
        members.release(jobId, Role.PROVIDER, 1);
        vm.warp(rounds.timesOf(jobId, 1).windowEnd);
        uint256 active = activeOf(provider(0), Role.PROVIDER);
        members.release(jobId, Role.PROVIDER, 1);
        same(lockedOf(provider(0), Role.PROVIDER), 0, "free");
        same(activeOf(provider(0), Role.PROVIDER), active, "its own");
        same(claimed(jobId, 1, 2), ROUND, "nothing can take it any more");
        // The owner takes it out; a newcomer under the same account begins with its bond alone.
        vm.prank(provider(0));
        members.join(jobId, 0);
        same(rounds.stepsOf(jobId, 0), 0, "as anybody new");
        same(members.bondOf(jobId, Role.PROVIDER, 5), SMALL, "with a bond");
    }

    /// Who wins may be the cheat's other account: what it gets is a part of the bond, and no more.
    function test_P101_aSlashBurnsWhatIsRetained() public allHome {
        uint256 jobId = start(smallTerms(), 4, 3);
        playTo(jobId, 2);
        claimed(jobId, 2, 1);
        play(jobId);
        blame(provider(1));
        vm.warp(rounds.timesOf(jobId, 2).auditEnd);
        Claim memory c = game.challenge(abi.encode(evidenceFor(jobId, 2, 1, 3)));
        uint256 unburnt = stakes.unburnt();
        game.holderLoses(c, OUTSIDER);
        same(activeOf(OUTSIDER, Role.VERIFIER), SMALL * 3 / 10, "the winner's");
        same(stakes.unburnt() - unburnt, SMALL * 7 / 10 + ROUND / 2, "burnt");
        same(members.bondOf(jobId, Role.PROVIDER, 2), 0, "nothing is left");
        same(claimed(jobId, 2, 2), ROUND, "FINAL pay that was not claimed stays its own, and is not retained");
        same(members.bondOf(jobId, Role.PROVIDER, 2), 0, "nor added to a bond that is gone");
    }

    /// The escrow pays out: neither a refund nor the claim deadline takes what is retained.
    function test_P100_noRefundTakesWhatIsRetained() public {
        uint256 jobId = start(smallTerms(), 4, 3);
        playTo(jobId, 1);
        claimed(jobId, 1, 1);
        vm.prank(SUBMITTER);
        jobs.cancel(jobId);
        play(jobId);
        uint256 held = activeOf(provider(0), Role.PROVIDER);
        everythingGoesHome(jobId); // claims the second round, of which the rest is retained
        same(activeOf(provider(0), Role.PROVIDER), held + 0.3 ether, "its own");
        same(lockedOf(provider(0), Role.PROVIDER), 0, "and free");
    }

    /// A claim may come when the audit seed is known: it changes the rounds to come alone.
    function test_P102_stepsCountFromTheNextOpeningOn() public allHome {
        uint256 jobId = start(smallTerms(), 4, 3);
        playTo(jobId, 1);
        toVotes(jobId);
        claimed(jobId, 1, 1);
        same(rounds.stepsOf(jobId, 0), 0, "not in the round that runs");
        nextBlock();
        settle(jobId);
        same(rounds.stepsOf(jobId, 0), 1, "in the next");
        vm.warp(rounds.timesOf(jobId, 1).windowEnd);
        claimed(jobId, 1, 2);
        same(rounds.stepsOf(jobId, 0), 1, "as it was when this one opened");
        same(uint256(rounds.state(jobId).phase), uint256(Phase.TRAIN), "which runs");
    }

    /// @dev `settle` keeps the hash of what `drawnBy` says; here it is written out again.
    function test_P102_whoHasMoreToLoseIsDrawnMoreRarely() public allHome {
        Terms memory t = smallTerms();
        (t.rounds, t.rateSteps) = (30, 8);
        uint256 jobId = start(t, 4, 3);
        uint256 spared;
        for (uint32 round = 0; round < 30; round++) {
            uint256 steps = rounds.stepsOf(jobId, 0);
            play(jobId);
            RoundRecord memory f = said[jobId][round].record;
            same(uint256(rounds.recordOf(jobId, round)), uint256(Hashing.keptOf(Hashing.recordHash(f))), "the record");
            bool isDrawn = Draws.isDrawn(f.auditSeed, 0, 1 + steps);
            check(isDrawn == f.drawn.has(0), "seat 0 by its own rate");
            check(f.drawn.has(3) == Draws.isDrawn(f.auditSeed, 3, 1), "seat 3, which claims nothing, by the terms'");
            if (!isDrawn && Draws.isDrawn(f.auditSeed, 0, 1)) spared++;
            vm.warp(rounds.timesOf(jobId, round).windowEnd);
            claimed(jobId, 1, round + 1);
        }
        same(rounds.stepsOf(jobId, 0), 8, "as far as the terms let it");
        atMost(5, spared, "rounds in which it was spared");
    }

    function test_P102_whoLeavesIsDrawnAsBefore() public allHome {
        uint256 jobId = start(smallTerms(), 4, 3);
        playTo(jobId, 1);
        vm.prank(provider(0));
        members.leaveSeat(jobId);
        claimed(jobId, 1, 1);
        play(jobId);
        same(rounds.stepsOf(jobId, 0), 0, "and whoever takes the seat begins anew");
    }

    /// Two seats of a word that change in different rounds, and a third that nobody changes.
    function test_stepsOfSeatsInOneWordAreTheirOwn() public {
        same(words.set(3, 2, 5), 5, "from the next round on");
        same(words.set(30, 7, 5), 5, "another word's");
        same(stepsIn(3, 4), 0, "as it was");
        same(stepsIn(3, 5), 2, "in the next");
        same(words.set(4, 1, 6), 6, "later");
        same(stepsIn(3, 5), 2, "what counted before it goes on counting");
        same(stepsIn(3, 6) + 16 * stepsIn(4, 6) + 256 * stepsIn(5, 6), 2 + 16, "each its own");
        same(words.set(3, 3, 5), 6, "after a void, no sooner than one that waits beside it");
        same(stepsIn(3, 5), 2, "so that nothing changes in a round that opens again");
        same(stepsIn(3, 6), 3, "but in the next");
        words.clear(3);
        same(stepsIn(3, 5) + stepsIn(3, 6), 0, "whoever takes the seat begins anew");
        same(stepsIn(4, 6) + 16 * stepsIn(30, 6), 1 + 16 * 7, "and the others go on");
    }

    function testFuzz_stepsAreThoseSetLast(uint8[16] memory seats, uint8[16] memory steps) public {
        uint256[256] memory kept;
        for (uint32 round = 1; round <= 16; round++) {
            uint256 seat = seats[round - 1] % 64;
            uint256 before = kept[seat];
            same(words.set(seat, steps[round - 1] % 16, round), round, "in order");
            same(stepsIn(seat, round - 1), before, "before");
            kept[seat] = steps[round - 1] % 16;
            for (uint256 each = 0; each < 64; each++) {
                same(stepsIn(each, round), kept[each], "in it");
            }
        }
    }

    function stepsIn(uint256 seat, uint32 round) private view returns (uint256) {
        return SeatSteps.stepsIn(words[SeatSteps.wordOf(seat)], seat, round);
    }

    function testFuzz_aStepTakesRootTwoTimesTheStakeAndNoLess(uint128 bond, uint8 n) public pure {
        (uint256 whole, uint256 steps) = (uint256(bond) % 1e30 + 40, n % 16);
        uint256 needed = Seasoning.stakeFor(whole, steps);
        check(needed * needed >= (whole * whole) << steps, "rounded up");
        same(Seasoning.stepsOf(whole, needed - whole, 0), steps, "just enough");
        if (steps != 0) same(Seasoning.stepsOf(whole, needed - 1 - whole, 0), steps - 1, "one less");
    }
}
