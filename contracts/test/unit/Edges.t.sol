// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {Due} from "../../src/interfaces/IJobs.sol";
import {Jobs} from "../../src/Jobs.sol";
import {Members} from "../../src/Members.sol";
import {Rounds} from "../../src/Rounds.sol";
import {LateVotes} from "../../src/LateVotes.sol";
import {IMembers} from "../../src/interfaces/IMembers.sol";
import {Bits} from "../../src/libraries/Bits.sol";
import {Hashing} from "../../src/libraries/Hashing.sol";
import {TermsCheck} from "../../src/libraries/TermsCheck.sol";
import {RoundsMembership} from "../../src/rounds/RoundsMembership.sol";
import {RoundsSettlement} from "../../src/rounds/RoundsSettlement.sol";
import "../../src/types/Types.sol";
import {Network} from "../support/Network.sol";

/// @title The first and the last of everything that is bounded: who, when, how many.
contract EdgesTest is Network {
    using Bits for uint256;

    // --- signatures ---

    function test_nobodySignsTwiceOrWithoutHavingBeenInTheCommittee() public allHome {
        Terms memory t = defaultTerms();
        t.slots = 4;
        uint256 jobId = start(t, 4, 3);
        uint32 late = enrol(jobId, 3, 3); // counts from round 1 on
        toVotes(jobId);
        nextBlock();
        Verdict memory v = verdictFor(jobId, 15);
        bytes32 digest = digestFor(jobId, v);
        noteRecord(jobId, v);
        rounds.settle(jobId, said[jobId][0].slots, said[jobId][0].has, bare(v, certificate(jobId, digest, 7, 3)));
        isNotDue(jobId, 1, 0, digest);
        isNotDue(jobId, 2, 1, digest);
        isNotDue(jobId, late, 3, digest);
        isNotDue(jobId, late + 1, 4, digest);
        rounds.sign(jobId, said[jobId][0].record, 3, alone(2, digest));
        isNotDue(jobId, 3, 2, digest);
        play(jobId);
        hasStatus(jobId, JobStatus.DONE);
    }

    function test_whoHasTheSeatOfACommitteesMemberSignsNothingOfItsRound() public allHome {
        uint256 jobId = start();
        vm.prank(verifier(2));
        members.leavePool(jobId);
        toVotes(jobId);
        nextBlock();
        settleBy(jobId, verdictFor(jobId, 15), 3);
        uint32 heir = enrol(jobId, 7, 2);
        isNotDue(jobId, heir, 7, said[jobId][0].digest);
        rounds.sign(jobId, said[jobId][0].record, 3, alone(2, said[jobId][0].digest));
        play(jobId);
    }

    /// @dev From which on it may do rounds that take the penalty's doubling back.
    function test_aSeatIsPenalisedInTheRoundThatIsOpenThen() public allHome {
        Terms memory t = defaultTerms();
        t.rounds = 4;
        uint256 jobId = start(t, 4, 3);
        play(jobId);
        commitAll(jobId, 7);
        vm.warp(rounds.state(jobId).deadline);
        rounds.advance(jobId);
        revealAll(jobId, 7);
        sayAll(jobId, 7);
        nextBlock();
        settle(jobId, verdictFor(jobId, 7));
        vm.expectEmit();
        emit IMembers.Missed(jobId, provider(3), Role.PROVIDER, 4, 2, MissedDuty.SEAT, 1 ether);
        members.penaliseSeat(jobId, 3);
        play(jobId);
        play(jobId);
    }

    /// @dev Where all have signed no digest is kept, but the one before: nobody is left to sign it
    /// in the later round.
    function test_behindARoundThatAllSignedNobodySignsAnything() public allHome {
        Terms memory t = defaultTerms();
        t.rounds = 4;
        uint256 jobId = start(t, 4, 3);
        toVotes(jobId);
        nextBlock();
        settleBy(jobId, verdictFor(jobId, 15), 3);
        bytes32 first = said[jobId][0].digest;
        check(rounds.state(jobId).digest == first, "kept for the third");
        play(jobId);
        check(rounds.state(jobId).digest == first, "of the second none is");
        for (uint32 id = 1; id < 4; id++) {
            isNotDue(jobId, 1, id, id - 1, first);
            isNotDue(jobId, 1, id, id - 1, said[jobId][1].digest);
        }
        toVotes(jobId);
        nextBlock();
        settleBy(jobId, verdictFor(jobId, 15), 6);
        rounds.sign(jobId, said[jobId][2].record, 1, alone(0, said[jobId][2].digest));
        (,, uint256 signed) = rounds.rowsOf(jobId, 2);
        same(signed, 7, "of the next that is not whole it is");
        play(jobId);
    }

    function isNotDue(uint256 jobId, uint32 id, uint256 who, bytes32 digest) private {
        isNotDue(jobId, 0, id, who, digest);
    }

    function isNotDue(uint256 jobId, uint32 round, uint32 id, uint256 who, bytes32 digest) private {
        bytes memory signed = alone(who, digest);
        RoundRecord memory record = said[jobId][round].record;
        vm.expectPartialRevert(RoundsSettlement.NotDue.selector);
        rounds.sign(jobId, record, id, signed);
    }

    /// @return certificate of that verifier alone
    function alone(uint256 who, bytes32 digest) private pure returns (bytes memory) {
        return bytes.concat(bytes4(uint32(1)), signatureOf(verifierKey(who), digest));
    }

    function test_signaturesAreOfRoundsThatTheMemberWasThereFor() public allHome {
        Terms memory t = defaultTerms();
        t.slots = 4;
        uint256 jobId = start(t, 4, 3);
        uint32 late = enrol(jobId, 3, 3);
        vm.prank(verifier(2));
        members.leavePool(jobId);
        toVotes(jobId);
        settle(jobId);
        contradicts(jobId, 0, late, 3, LateVotes.NotThen.selector);
        contradicts(jobId, 1, 3, 2, LateVotes.NotThen.selector);
        contradicts(jobId, 0, 3, 2, 0);
        contradicts(jobId, 1, late, 3, 0);
        same(lockedOf(verifier(2), Role.VERIFIER) + lockedOf(verifier(3), Role.VERIFIER), 0, "both bonds are gone");
    }

    /// @dev Two models over the same votes of a round, each signed by one member; `why` 0 where
    /// that is its fault.
    function contradicts(uint256 jobId, uint32 round, uint32 id, uint256 who, bytes4 why) private {
        Hashing.RoundId memory roundId = Hashing.RoundId(address(rounds), jobId, round);
        Certified[2] memory shown;
        for (uint256 i = 0; i < 2; i++) {
            shown[i].verdict.state = bytes32(i + 1);
            shown[i].certificate = alone(who, trainer.digest(roundId, "seed", "votes", shown[i].verdict));
            shown[i].accounts = new address[](1);
            shown[i].accounts[0] = verifier(who);
        }
        if (why != 0) vm.expectPartialRevert(why);
        lateVotes.equivocated(jobId, round, id, "seed", "votes", shown);
    }

    function test_aMissedDutyIsPenalisedUntilItsRoundsWindowIsOver() public allHome {
        uint256 jobId = start();
        commitAll(jobId, 15);
        revealAll(jobId, 15);
        castVote(jobId, 0, 15);
        castVote(jobId, 1, 15);
        nextBlock();
        vm.warp(rounds.state(jobId).deadline - 25);
        settleBy(jobId, verdictFor(jobId, 15), 3);
        play(jobId);
        same(rounds.absentOf(jobId, 0), 4, "the third said nothing");
        uint256 end = rounds.timesOf(jobId, 0).windowEnd;
        vm.warp(end);
        vm.expectRevert(abi.encodeWithSelector(Members.WindowOver.selector, end, end));
        members.penaliseMember(jobId, 0, 3);
        vm.warp(end - 1);
        members.penaliseMember(jobId, 0, 3);
        same(lockedOf(verifier(2), Role.VERIFIER), BOND - 1 ether, "penalty");
    }

    function test_whoLeavesAgainBeforeItsFirstRoundIsInNoCommittee() public allHome {
        Terms memory t = defaultTerms();
        (t.rounds, t.slots) = (4, 4);
        uint256 id = start(t, 4, 3);
        enrol(id, 3, 3);
        vm.prank(verifier(3));
        members.leavePool(id);
        for (uint256 r = 0; r < 3; r++) {
            play(id);
            same(rounds.state(id).committee, 7, "the three that stayed");
        }
    }

    function test_aPenaltyThatNobodyTookKeepsTheBondWhenTheJobIsOver() public {
        Terms memory t = defaultTerms();
        t.rounds = 1;
        uint256 id = start(t, 4, 3);
        commitAll(id, 7);
        vm.warp(rounds.state(id).deadline);
        rounds.advance(id);
        revealAll(id, 7);
        nextBlock();
        sayAll(id, 7);
        nextBlock();
        settle(id, verdictFor(id, 7));
        hasStatus(id, JobStatus.DONE);
        vm.warp(rounds.timesOf(id, 0).windowEnd - 1);
        vm.expectRevert(abi.encodeWithSelector(Members.PenaltyDue.selector, id, 3));
        members.release(id, Role.PROVIDER, 4);
        members.penaliseSeat(id, 3);
        vm.warp(rounds.timesOf(id, 0).windowEnd);
        members.release(id, Role.PROVIDER, 4);
    }

    function test_aMissedDutyInARoundThatNeverSettlesIsPenalisedUntilTheAbsoluteEnd() public {
        uint256 jobId = start();
        uint256 end = rounds.absoluteEnd(jobId);
        commitAll(jobId, 15);
        revealAll(jobId, 15);
        castVote(jobId, 0, 15);
        castVote(jobId, 1, 15);
        nextBlock();
        nextCommittee(jobId);
        same(rounds.absentOf(jobId, 0), 4, "one said nothing");
        vm.warp(end - 1);
        rounds.advance(jobId);
        hasStatus(jobId, JobStatus.EXPIRED);
        uint256 before = vm.snapshotState();
        members.penaliseMember(jobId, 0, 3);
        same(lockedOf(verifier(2), Role.VERIFIER), BOND - 1 ether, "penalty");
        vm.revertToState(before);
        vm.warp(end);
        vm.expectRevert(abi.encodeWithSelector(Members.WindowOver.selector, end, end));
        members.penaliseMember(jobId, 0, 3);
    }

    function slash(uint256 jobId, uint32 id) private {
        vm.prank(address(claims));
        members.slash(jobId, Role.PROVIDER, id, 0, OUTSIDER);
    }

    function test_aGatewayIsOfBytesThatCanBePrinted() public {
        bytes memory url = "http://a";
        uint8[4] memory wrong = [0x00, 0x20, 0x7f, 0xff];
        for (uint256 i = 0; i < 4; i++) {
            url[7] = bytes1(wrong[i]);
            vm.expectRevert(abi.encodeWithSelector(Members.UrlByte.selector, 7, bytes1(wrong[i])));
            members.announceGateway(string(url));
        }
        url[7] = 0x21;
        members.announceGateway(string(url));
        url[7] = 0x7e;
        members.announceGateway(string(url));
        vm.expectPartialRevert(Members.UrlLength.selector);
        members.announceGateway("");
        vm.expectPartialRevert(Members.UrlLength.selector);
        members.announceGateway(string(new bytes(513)));
    }

    /// @dev Whichever of its rounds it is, with those before it FINAL and those behind it not.
    function test_aLaterHoldersSlashTakesItsFirstRoundThatIsNotFinal() public allHome {
        Terms memory t = defaultTerms();
        (t.rounds, t.seats) = (16, 5);
        uint256 jobId = start(t, 4, 3);
        play(jobId);
        play(jobId);
        uint32 id = join(jobId, 9, 4);
        while (rounds.state(jobId).round < 14) {
            vm.warp(block.timestamp + 500);
            play(jobId);
        }
        uint256 began = vm.snapshotState();
        for (uint32 open = 4; open < 14; open++) {
            vm.revertToState(began);
            uint256 end = rounds.timesOf(jobId, open).windowEnd;
            if (end <= block.timestamp) continue;
            vm.warp(end - 1);
            vm.prank(address(claims));
            members.slash(jobId, Role.PROVIDER, id, type(uint32).max, OUTSIDER);
            same(members.lostFrom(jobId, Role.PROVIDER, id), open, "the first that is not FINAL");
        }
        vm.revertToState(began);
        play(jobId);
        play(jobId);
    }

    function test_aSeatThatIsLeavingAndSlashedBeforeItsCommitIsNotWaitedFor() public allHome {
        uint256 jobId = start();
        vm.prank(provider(3));
        members.leaveSeat(jobId);
        commitAll(jobId, 7);
        inPhase(jobId, Phase.TRAIN);
        slash(jobId, 4);
        inPhase(jobId, Phase.REVEAL);
        same(rounds.state(jobId).seated, 7, "those that committed");
        same(rounds.state(jobId).owing, 0, "it owed nothing");
        revealAll(jobId, 7);
        nextBlock();
        sayAll(jobId, 7);
        nextBlock();
        settle(jobId);
        same(rounds.state(jobId).round, 1, "the round goes on");
    }

    /// @dev Whoever had the seat before is slashed while its heir is waited for.
    function test_aSlashOfWhoLeftTheSeatStopsNotItsHeir() public allHome {
        Terms memory t = defaultTerms();
        t.rounds = 3;
        uint256 jobId = start(t, 4, 3);
        vm.prank(provider(3));
        members.leaveSeat(jobId);
        play(jobId);
        join(jobId, 9, 3);
        play(jobId);
        commitAll(jobId, 7);
        slash(jobId, 4);
        inPhase(jobId, Phase.TRAIN);
        same(rounds.state(jobId).held, 15, "the heir's seat");
        commitAll(jobId, 8);
        inPhase(jobId, Phase.REVEAL);
    }

    /// @dev The round is void with it, and opens again: it is its heir's, and nobody else's to
    /// claim.
    function test_whoLeftAndIsSlashedBeforeItsCommitHasNoPartInTheRoundThatOpensAgain() public allHome {
        Terms memory t = defaultTerms();
        (t.seats, t.minProviders, t.f, t.signFee, t.dutyFee) = (1, 1, 0, 0, 0);
        uint256 jobId = start(t, 1, 3);
        vm.prank(provider(0));
        members.leaveSeat(jobId);
        slash(jobId, 1);
        inPhase(jobId, Phase.WAITING);
        same(members.holderOf(jobId, Role.PROVIDER, 1).to, 0, "it never counted");
        uint32 heir = join(jobId, 9, 0);
        nextBlock();
        rounds.advance(jobId);
        play(jobId);
        play(jobId);
        vm.warp(rounds.timesOf(jobId, 1).windowEnd);
        vm.expectPartialRevert(Jobs.NoSuchRounds.selector);
        jobs.claim(jobId, Role.PROVIDER, 1, 1);
        jobs.claim(jobId, Role.PROVIDER, heir, 2);
        same(token.balanceOf(provider(9)), 16 * segmentPay(), "both rounds");
    }

    function test_withoutACertificateTheSilentMissAndNobodyOwesASignature() public allHome {
        uint256 jobId = start();
        uint256 expiry = jobs.termsOf(jobId).expiry;
        commitAll(jobId, 15);
        revealAll(jobId, 15);
        castVote(jobId, 0, 15);
        castVote(jobId, 2, 15);
        (bytes memory slots, uint256[] memory has) = (said[jobId][0].slots, said[jobId][0].has);
        nextBlock();
        vm.warp(expiry - 1);
        vm.expectRevert(abi.encodeWithSelector(RoundsSettlement.StillOpen.selector, expiry, expiry - 1));
        rounds.settleLate(jobId, slots, has);
        vm.warp(expiry);
        rounds.settleLate(jobId, slots, has);
        hasStatus(jobId, JobStatus.EXPIRED);
        same(rounds.state(jobId).round, 1, "it is a settled round");
        same(rounds.absentOf(jobId, 0), 2, "the one that said nothing");
        (uint256 pay,, uint256 signed) = rounds.rowsOf(jobId, 0);
        same(pay, 15, "what was available is paid");
        same(signed, 0, "nobody signed");
        for (uint32 id = 1; id <= 3; id += 2) {
            vm.expectPartialRevert(Members.NotAbsent.selector);
            members.penaliseMember(jobId, 0, id);
        }
        members.penaliseMember(jobId, 0, 2);
        same(lockedOf(verifier(1), Role.VERIFIER), BOND - 1 ether, "penalty");
    }

    /// A missed duty costs twice as much for each other one of the eight rounds before it; a holder's
    /// together an eighth of the bond at most.
    function test_missedDutiesInARowCostMoreAndFarApartLess() public allHome {
        uint256 jobId = start();
        uint32[9] memory missed = [uint32(0), 1, 9, 20, 21, 22, 23, 62, 64];
        uint256[9] memory cost = [uint256(2), 4, 4, 2, 4, 8, 1, 0, 0];
        uint256 left = BOND;
        for (uint256 i = 0; i < 9; i++) {
            vm.prank(address(audits));
            members.penalise(jobId, Role.VERIFIER, 1, missed[i], MissedDuty.AUDIT);
            left -= cost[i] * 0.5 ether;
            same(members.bondOf(jobId, Role.VERIFIER, 1), left, "what is left");
        }
        same(stakes.unburnt(), BOND - left, "all of it is burnt");
    }

    /// What is lost of a penalty's division nobody saves: the penalty is the next wei.
    function testFuzz_P32_aPenaltyIsRoundedUp(uint16 odd) public {
        Terms memory t = defaultTerms();
        t.verifierBond = uint128(BOND - odd);
        uint256 jobId = start(t, 4, 3);
        vm.prank(address(audits));
        members.penalise(jobId, Role.VERIFIER, 1, 0, MissedDuty.AUDIT);
        uint256 penalty = BOND - members.bondOf(jobId, Role.VERIFIER, 1);
        check(penalty * 100 >= t.verifierBond && penalty * 100 < t.verifierBond + 100, "the next wei");
        same(stakes.unburnt(), penalty, "and it is burnt");
    }

    function test_anAccusationThatIsDroppedCostsHalfOfWhatIsLeftAndIsNobodysGain() public allHome {
        uint256 jobId = start();
        uint256 left = BOND;
        for (uint16 seat = 0; seat < 3; seat++) {
            vm.prank(address(audits));
            members.slashDropped(jobId, 1, 0, seat);
            left -= left / 2;
            same(members.bondOf(jobId, Role.VERIFIER, 1), left, "half");
        }
        same(stakes.unburnt(), BOND - left, "all of it is burnt");
        vm.prank(address(audits));
        vm.expectPartialRevert(bytes4(keccak256("FaultUsed(bytes32)")));
        members.slashDropped(jobId, 1, 0, 0);
    }

    // --- slots ---

    function test_nobodyTakesASlotThatIsNotOrOneOfAJobThatIsOver() public allHome {
        Terms memory t = defaultTerms();
        (t.slots, t.seats) = (4, 5);
        uint256 jobId = start(t, 4, 3);
        stakeUp(verifier(9), Role.VERIFIER, BOND);
        stakeUp(provider(9), Role.PROVIDER, BOND);
        vm.startPrank(verifier(9));
        vm.expectRevert(abi.encodeWithSelector(RoundsMembership.NoSuchIndex.selector, 4, 4));
        members.enrol(jobId, 4, uint128(BOND), enrolment(9, jobId, 4, BOND));
        vm.expectRevert(abi.encodeWithSelector(RoundsMembership.NoSuchIndex.selector, 256, 4));
        members.enrol(jobId, 256, uint128(BOND), enrolment(9, jobId, 256, BOND));
        vm.stopPrank();
        vm.startPrank(provider(9));
        vm.expectRevert(abi.encodeWithSelector(RoundsMembership.NoSuchIndex.selector, 5, 5));
        members.join(jobId, 5);
        vm.stopPrank();
        play(jobId);
        play(jobId);
        hasStatus(jobId, JobStatus.DONE);
        vm.prank(verifier(9));
        vm.expectRevert(abi.encodeWithSelector(RoundsMembership.JobClosed.selector, jobId));
        members.enrol(jobId, 3, uint128(BOND), enrolment(9, jobId, 3, BOND));
        vm.prank(provider(9));
        vm.expectRevert(abi.encodeWithSelector(RoundsMembership.JobClosed.selector, jobId));
        members.join(jobId, 4);
    }

    function test_whoCameToThePoolAndLeftItStaysOut() public allHome {
        Terms memory t = defaultTerms();
        (t.rounds, t.slots) = (8, 4);
        uint256 id = start(t, 4, 3);
        enrol(id, 3, 3);
        hasCommittee(id, 2, 15); // it came
        vm.prank(verifier(3));
        members.leavePool(id);
        hasCommittee(id, 2, 7);
        enrol(id, 4, 3);
        hasCommittee(id, 2, 15); // another in its slot
        vm.prank(verifier(0));
        members.leavePool(id);
        hasCommittee(id, 1, 14); // which stays where somebody else leaves
        play(id);
        hasStatus(id, JobStatus.DONE);
    }

    function hasCommittee(uint256 id, uint256 later, uint256 slots) private {
        for (uint256 i = 0; i < later; i++) {
            play(id);
        }
        same(rounds.state(id).committee, slots, "committee");
    }

    /// @dev Who took the slot and left it before it counted was never its holder, and must not hide
    /// who is.
    function test_aSlotThatChangesHandsTwiceInARoundIsStillItsHoldersInTheRound() public allHome {
        uint256 jobId = start();
        vm.prank(verifier(0));
        members.leavePool(jobId);
        uint32 never = enrol(jobId, 3, 0);
        vm.prank(verifier(3));
        members.leavePool(jobId);
        enrol(jobId, 4, 0);
        Holder memory m = members.holderOf(jobId, Role.VERIFIER, never);
        same(m.from, m.to, "counts in no round");
        same(memberAt(jobId, 0), verifier(0), "holds it in the round that runs");
        play(jobId);
        same(memberAt(jobId, 0), verifier(4), "the next holder");
        play(jobId);
        hasStatus(jobId, JobStatus.DONE);
    }

    // --- terms ---

    function test_everyTermHasItsBounds() public {
        Terms memory t = defaultTerms();
        t.rounds = 0;
        refused(t, "rounds", 0, 1, type(uint24).max - 1);
        t.rounds = type(uint24).max;
        refused(t, "rounds", type(uint24).max, 1, type(uint24).max - 1);
        t = defaultTerms();
        t.seats = 257;
        refused(t, "seats", 257, 1, 256);
        (t.seats, t.minProviders) = (4, 0);
        refused(t, "minProviders", 0, 1, 4);
        t.minProviders = 5;
        refused(t, "minProviders", 5, 1, 4);
        t = defaultTerms();
        t.minVerifiers = 0;
        refused(t, "minVerifiers", 0, 1, 3);
        t.minVerifiers = 4;
        refused(t, "minVerifiers", 4, 1, 3);
        t = defaultTerms();
        t.slots = 0;
        refused(t, "slots", 0, 1, 256);
        t = defaultTerms();
        t.auditRate = 16;
        refused(t, "auditRate", 16, 0, 15);
        (t.auditRate, t.lastRate) = (15, 16);
        refused(t, "lastRate", 16, 0, 15);
        t = defaultTerms();
        t.expiry = uint64(block.timestamp + 5 * 365 days + 1);
        refused(t, "expiry", t.expiry, block.timestamp + 1, block.timestamp + 5 * 365 days);
        t = defaultTerms();
        t.verifierBond = 1 ether - 1;
        refused(t, "verifierBond", 1 ether - 1, 1 ether, type(uint128).max);
    }

    function test_workIsOfWholeSegmentsAndNoMoreThanCanBeCounted() public {
        Terms memory t = defaultTerms();
        t.steps = 0;
        refused(t, "steps", 0, 1, type(uint32).max);
        t = defaultTerms();
        t.segmentSteps = 0;
        refused(t, "segmentSteps", 0, 1, 80);
        t.segmentSteps = 81;
        refused(t, "segmentSteps", 81, 1, 80);
        (t.steps, t.segmentSteps) = (1_025, 1);
        refused(t, "segments", 1_025, 1, 1_024);
        t.steps = 1_024;
        t.tokensPerStep = 0;
        refused(t, "tokensPerStep", 0, 1, type(uint64).max / 1_024);
        t.tokensPerStep = type(uint64).max / 1_024 + 1;
        refused(t, "tokensPerStep", t.tokensPerStep, 1, type(uint64).max / 1_024);
    }

    function test_noWindowIsShorterThanTheShortestAndAllTogetherNoLongerThanARound() public allHome {
        string[7] memory names = [
            "trainSeconds",
            "revealSeconds",
            "mergeSeconds",
            "auditSeconds",
            "openSeconds",
            "keySeconds",
            "windowSeconds"
        ];
        for (uint256 i = 0; i < 7; i++) {
            uint256 least = i == 6 ? 2_000 : 10;
            refused(withWindow(i, uint32(least - 1)), names[i], least - 1, least, type(uint32).max);
            uint32 rest = 600 + 100 + 100 + 700 + 100 + 100 + 2_000 - window(defaultTerms(), i);
            refused(withWindow(i, 60 days - rest + 1), "windows", 60 days + 1, 1, 60 days);
            create(withWindow(i, 60 days - rest));
        }
        Terms memory t = defaultTerms();
        t.readySeconds = 9;
        refused(t, "readySeconds", 9, 10, type(uint32).max);
        t = defaultTerms();
        t.gameSeconds = 149;
        refused(t, "gameSeconds", 149, 150, type(uint32).max);
        t.gameSeconds = 150;
        create(t);
        t = defaultTerms();
        t.moveSeconds = 4;
        refused(t, "moveSeconds", 4, 5, type(uint32).max);
        t.moveSeconds = 5;
        create(t);
        t = defaultTerms();
        t.claimSeconds = 9;
        refused(t, "claimSeconds", 9, 10, type(uint32).max);
        t = defaultTerms();
        for (uint16 seats = 3; seats < 7; seats++) {
            (t.seats, t.f) = (seats, 2);
            refused(t, "f", 2, 0, seats < 4 ? 0 : 1); // fewer than a third are bad
        }
        t = defaultTerms();
        (t.gameSeconds, t.moveSeconds) = (1_000, uint32((LONGEST - 2_000) / 40));
        create(t);
        (t.gameSeconds, t.windowSeconds) = (1_001, 2_002);
        refused(t, "game", LONGEST + 2, 1, LONGEST);
    }

    function window(Terms memory t, uint256 which) private pure returns (uint32) {
        uint32[7] memory all = [
            t.trainSeconds,
            t.revealSeconds,
            t.mergeSeconds,
            t.auditSeconds,
            t.openSeconds,
            t.keySeconds,
            t.windowSeconds
        ];
        return all[which];
    }

    function withWindow(uint256 which, uint32 value) private view returns (Terms memory t) {
        t = defaultTerms();
        if (which == 0) t.trainSeconds = value;
        else if (which == 1) t.revealSeconds = value;
        else if (which == 2) t.mergeSeconds = value;
        else if (which == 3) t.auditSeconds = value;
        else if (which == 4) t.openSeconds = value;
        else if (which == 5) t.keySeconds = value;
        else t.windowSeconds = value;
    }

    function refused(Terms memory t, string memory name, uint256 value, uint256 lowest, uint256 highest) private {
        bytes4 why = TermsCheck.TermOutOfRange.selector;
        vm.prank(SUBMITTER);
        vm.expectRevert(abi.encodeWithSelector(why, name, value, lowest, highest));
        jobs.create("spec", "cid", t, address(policy), 1e24);
    }

    // --- money ---

    /// A committee has 32 members at most, however many slots there are; where f is 0 every seat is
    /// drawn, and nobody is excluded.
    function test_aBudgetIsWhatARoundCostsAtMost() public view {
        Terms memory t = defaultTerms(); // 2 rounds of 4 seats, all of them drawn in the last one
        uint256 pay = 2 * 4 * 8 * segmentPay();
        uint16[5] memory slots = [uint16(1), 31, 32, 33, 256];
        uint256[5] memory committees = [uint256(1), 31, 32, 32, 32];
        for (uint256 i = 0; i < 5; i++) {
            t.slots = slots[i];
            same(jobs.budget(t), pay + 3 * committees[i] * 1 ether + (8 + 2) * 10 ether, "with f");
        }
        (t.slots, t.f) = (3, 0);
        same(jobs.budget(t), pay + 3 * 3 * 1 ether + 8 * 10 ether, "every seat, of whom nobody is excluded");
    }

    /// What is expected, six times its root, and six.
    function test_aBudgetHoldsWhatDrawsMayTake() public view {
        Terms memory t = defaultTerms();
        (t.rounds, t.seats, t.f, t.auditRate, t.lastRate) = (100, 16, 5, 8, 8); // of 1,600 one in sixteen
        uint256 pay = 100 * (16 * 8 * segmentPay() + 3 * 1 ether) + 3 * 1 ether;
        same(jobs.budget(t), pay + (100 + 100 + 6 * 11) * 10 ether, "a hundred, and a hundred that were excluded");
        t.lastRate = 0; // 115 and
        same(jobs.budget(t), pay + (100 + 115 + 6 * 11) * 10 ether, "fifteen more in the last round");
        (t.rounds, t.lastRate) = (1, 8);
        same(jobs.budget(t) - 16 * 8 * segmentPay() - 6 * 1 ether, (1 + 1 + 6 * 2) * 10 ether, "one of sixteen");
        t.seats = 8;
        same(jobs.budget(t) - 8 * 8 * segmentPay() - 6 * 1 ether, (1 + 8) * 10 ether, "never more than there are");
    }

    function test_aSlashIsClosedByTheClaimOfItsHoldersLastRound() public allHome {
        uint256 jobId = start();
        play(jobId);
        play(jobId);
        vm.warp(rounds.timesOf(jobId, 0).windowEnd); // round 0 is final
        vm.prank(address(claims));
        members.slash(jobId, Role.PROVIDER, 1, 1, OUTSIDER);
        vm.warp(rounds.timesOf(jobId, 1).windowEnd);
        jobs.claim(jobId, Role.PROVIDER, 1, 1);
        same(members.openSlashes(jobId), 1, "a round is left");
        jobs.claim(jobId, Role.PROVIDER, 1, 2);
        same(members.openSlashes(jobId), 0, "none is");
        same(token.balanceOf(provider(0)), 8 * segmentPay(), "the round before is paid");
        same(jobs.escrowOf(jobId).burnt, 8 * segmentPay(), "the other is burnt");
        vm.expectPartialRevert(Jobs.NoSuchRounds.selector);
        jobs.claim(jobId, Role.PROVIDER, 1, 2);
    }

    function test_severalClaimsPassOverWhatIsPaidAndRefuseWhatIsNoRoundOfTheHolders() public allHome {
        Terms memory t = defaultTerms();
        t.rounds = 3;
        uint256 jobId = start(t, 4, 3);
        vm.prank(provider(3));
        members.leaveSeat(jobId);
        play(jobId);
        play(jobId);
        play(jobId);
        vm.warp(rounds.timesOf(jobId, 2).windowEnd);
        jobs.claim(jobId, Role.PROVIDER, 1, 3);
        Due[] memory dues = new Due[](2);
        (dues[0], dues[1]) = (Due(jobId, Role.PROVIDER, 1, 3), Due(jobId, Role.PROVIDER, 4, 2));
        vm.expectRevert(abi.encodeWithSelector(Jobs.NoSuchRounds.selector, 0, 2, 1));
        jobs.claimMany(dues);
        dues[1].to = 1;
        jobs.claimMany(dues);
        same(token.balanceOf(provider(0)), 3 * 8 * segmentPay(), "paid once");
        same(token.balanceOf(provider(3)), 8 * segmentPay(), "its one round");
        vm.expectRevert(abi.encodeWithSelector(Jobs.NoSuchRounds.selector, 3, 3, type(uint24).max));
        jobs.claim(jobId, Role.PROVIDER, 1, 3);
    }

    function test_aMembersFeesWaitForTheWindowToo() public allHome {
        uint256 jobId = start();
        play(jobId);
        uint256 end = rounds.timesOf(jobId, 0).windowEnd;
        vm.warp(end - 1);
        vm.expectRevert(abi.encodeWithSelector(Rounds.WindowOpen.selector, end, end - 1));
        jobs.claim(jobId, Role.VERIFIER, 1, 1);
        vm.expectRevert(abi.encodeWithSelector(Rounds.WindowOpen.selector, 0, end - 1));
        jobs.claim(jobId, Role.VERIFIER, 1, 2);
        vm.warp(end);
        jobs.claim(jobId, Role.VERIFIER, 1, 1);
        same(token.balanceOf(verifier(0)), 1 ether, "its signature");
    }
}
