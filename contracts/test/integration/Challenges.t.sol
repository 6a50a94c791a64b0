// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {IRoundsEvents} from "../../src/interfaces/IRoundsEvents.sol";
import {RoundsBase} from "../../src/rounds/RoundsBase.sol";
import {RoundsReports} from "../../src/rounds/RoundsReports.sol";
import {RoundsSettlement} from "../../src/rounds/RoundsSettlement.sol";
import "../../src/types/Types.sol";
import {Network} from "../support/Network.sol";

/// @title Blocks that somebody could not fetch: challenged, served, put on the chain, or neither.
contract ChallengesTest is Network {
    uint16 internal constant SEAT = 1; // the one that is challenged
    uint16 internal constant SEGMENT = 2;
    uint256 internal constant BOND = 100 ether;
    bytes internal constant BLOCK = "a node of the state that opens the segment";
    bytes32 internal immutable digest = sha256(BLOCK);
    uint256 internal jobId;

    function setUp() public override {
        super.setUp();
        jobId = start();
        toReport(jobId);
    }

    function challengeIt(uint256 v) internal {
        challengeBy(jobId, v, SEAT, SEGMENT, BLOCK);
    }

    /// Everyone has replayed these seats and reports nothing in a ballot.
    function ballots(uint256 seats) internal {
        for (uint256 v = 0; v < 3; v++) {
            ballotBy(jobId, v, seats, noReports());
        }
    }

    function outcomeOf(uint16 index) internal view returns (Outcome) {
        return rounds.reportOf(jobId, 0, index).outcome;
    }

    function hasOutcome(Outcome wanted) internal view {
        same(uint256(outcomeOf(0)), uint256(wanted), "outcome");
    }

    function toFinal() internal {
        settle(jobId);
        vm.warp(rounds.disputeUntil(jobId, 0));
    }

    function heldBy(uint256 v) internal view returns (uint256) {
        return activeOf(verifier(v), Role.VERIFIER);
    }

    // --- nobody answers ---

    function test_withheldDataIsConfirmedByThoseWhoCannotFetch() public {
        challengeIt(0);
        ballots(13);
        inPhase(jobId, Phase.REPORT);
        passDeadline(jobId);
        inPhase(jobId, Phase.CONFIRM);
        voteBy(jobId, 1, 0, 0, 1);
        voteBy(jobId, 2, 0, 0, 1);
        hasOutcome(Outcome.CONFIRMED);
        RoundState memory s = rounds.state(jobId);
        same(s.rejected, 2, "rejected");
        same(s.caught, 0, "withholding is not proof of wrong work");
        same(s.dutiful, 7, "nobody was wrong");
        toFinal();
        rounds.punish(jobId, 0, Offence.REPORT, 0);
        same(activeOf(provider(SEAT), Role.PROVIDER), STAKE, "its whole bond");
        same(lockedOf(verifier(0), Role.VERIFIER), 50 ether, "the challenge's bond is free again");
    }

    function test_theFinderOfWithheldDataIsPaidFromThePenalty() public {
        vm.warp(block.timestamp + 300); // half time: whoever challenges now is assigned
        challengeIt(0);
        ballots(13);
        passDeadline(jobId);
        voteBy(jobId, 1, 0, 0, 1);
        voteBy(jobId, 2, 0, 0, 1);
        toFinal();
        rounds.punish(jobId, 0, Offence.REPORT, 0);
        same(heldBy(0), STAKE + 50 ether + 30 ether, "30 % of the seat's bond");
    }

    function test_whatEverybodyChallengesNeedsNoVote() public {
        for (uint256 v = 0; v < 3; v++) {
            challengeIt(v);
        }
        same(lockedOf(verifier(1), Role.VERIFIER), 50 ether, "who joins a challenge locks nothing");
        ballots(13);
        inPhase(jobId, Phase.REPORT);
        passDeadline(jobId);
        inPhase(jobId, Phase.ATTEST);
        hasOutcome(Outcome.CONFIRMED);
    }

    // --- a false challenge ---

    function test_falseChallengeLosesItsBondPartOfItToTheAccused() public {
        challengeIt(0);
        ballots(15);
        passDeadline(jobId);
        voteBy(jobId, 1, 0, 1, 0);
        voteBy(jobId, 2, 0, 1, 0);
        hasOutcome(Outcome.REFUTED);
        RoundState memory s = rounds.state(jobId);
        same(s.accepted, 15, "the accused is accepted");
        same(s.dutiful, 6, "who raised it is not dutiful");
        toFinal();
        rounds.punish(jobId, 0, Offence.REPORT, 0);
        same(activeOf(provider(SEAT), Role.PROVIDER), STAKE + BOND + 2.5 ether, "half goes to the accused");
        same(heldBy(0), STAKE + 45 ether, "the bond is lost");
    }

    function test_anAnswerDoesNotSaveAFalseChallenge() public {
        challengeIt(0);
        ballots(15);
        inPhase(jobId, Phase.REPORT);
        rounds.answerChallenge(jobId, 0, 0, 0, BLOCK);
        inPhase(jobId, Phase.CONFIRM);
        voteBy(jobId, 0, 1, 0, 0);
        voteBy(jobId, 1, 0, 1, 0);
        voteBy(jobId, 2, 0, 1, 0);
        hasOutcome(Outcome.REFUTED);
        same(rounds.state(jobId).dutiful, 6, "who raised it is not dutiful");
        toFinal();
        rounds.punish(jobId, 0, Offence.REPORT, 0);
        same(heldBy(0), STAKE + 45 ether, "the bond is lost");
        same(activeOf(provider(SEAT), Role.PROVIDER), STAKE + BOND + 2.5 ether, "half goes to the accused");
    }

    // --- answers ---

    function test_answeredOnTheChainNobodyLoses() public {
        challengeIt(0);
        vm.expectEmit();
        emit IRoundsEvents.ChallengeAnswered(jobId, 0, 0, 0, provider(SEAT), BLOCK);
        vm.prank(provider(SEAT));
        rounds.answerChallenge(jobId, 0, 0, 0, BLOCK);
        ballots(15);
        inPhase(jobId, Phase.CONFIRM);
        for (uint256 v = 0; v < 3; v++) {
            voteBy(jobId, v, 0, 0, 1);
        }
        hasOutcome(Outcome.ANSWERED);
        RoundState memory s = rounds.state(jobId);
        same(s.accepted, 15, "the accused is accepted");
        same(s.dutiful, 7, "nobody was wrong");
        toFinal();
        rounds.punish(jobId, 0, Offence.REPORT, 0);
        same(heldBy(0), STAKE + 50 ether, "the bond comes back");
        same(lockedOf(verifier(0), Role.VERIFIER), 50 ether, "and is free");
        same(activeOf(provider(SEAT), Role.PROVIDER), STAKE + BOND, "a late answer earns nothing");
    }

    function test_anAnswerLeavesOnlyReplaysToSpeakAgainstTheSeat() public {
        for (uint256 v = 0; v < 3; v++) {
            challengeIt(v);
        }
        rounds.answerChallenge(jobId, 0, 0, 0, BLOCK);
        ballots(13);
        inPhase(jobId, Phase.CONFIRM);
        voteBy(jobId, 0, 1, 0, 0);
        voteBy(jobId, 1, 1, 0, 0);
        voteBy(jobId, 2, 0, 0, 1);
        hasOutcome(Outcome.CONFIRMED);
        same(rounds.state(jobId).rejected, 2, "served at last, and wrong");
    }

    function test_answeredWithoutAQuorumIsAuditedAgain() public {
        challengeIt(0);
        rounds.answerChallenge(jobId, 0, 0, 0, BLOCK);
        ballots(15);
        voteBy(jobId, 1, 0, 1, 0);
        passDeadline(jobId);
        hasOutcome(Outcome.UNRESOLVED);
        inPhase(jobId, Phase.DRAW);
        same(rounds.state(jobId).auditSet, 2, "only the unresolved seat");
    }

    function test_theNextBlockIsAnotherChallenge() public {
        challengeIt(0);
        rounds.answerChallenge(jobId, 0, 0, 0, BLOCK);
        challengeBy(jobId, 0, SEAT, SEGMENT, "its first leaf");
        same(lockedOf(verifier(0), Role.VERIFIER), 60 ether, "a bond each");
        ballots(13);
        inPhase(jobId, Phase.REPORT);
        passDeadline(jobId);
        voteBy(jobId, 0, 1, 0, 0);
        voteBy(jobId, 1, 1, 0, 2);
        voteBy(jobId, 2, 1, 0, 2);
        same(uint256(outcomeOf(1)), uint256(Outcome.CONFIRMED), "the leaf is withheld");
        same(rounds.state(jobId).rejected, 2, "rejected");
    }

    function test_answersAreChecked() public {
        challengeIt(0);
        vm.expectPartialRevert(RoundsReports.WrongBlock.selector);
        rounds.answerChallenge(jobId, 0, 0, 0, "another block");
        bytes memory large = new bytes(65_537);
        vm.expectRevert(abi.encodeWithSelector(RoundsReports.BlockTooLarge.selector, 65_537, 65_536));
        rounds.answerChallenge(jobId, 0, 0, 0, large);
        vm.expectPartialRevert(RoundsReports.NotChallenged.selector);
        rounds.answerChallenge(jobId, 0, 0, 1, BLOCK);
        vm.expectPartialRevert(RoundsReports.NotChallenged.selector);
        rounds.answerChallenge(jobId, 0, 0, 300, BLOCK);
        vm.expectPartialRevert(RoundsBase.StaleSlot.selector);
        rounds.answerChallenge(jobId, 0, 1, 0, BLOCK);
        rounds.answerChallenge(jobId, 0, 0, 0, BLOCK);
        vm.expectRevert(abi.encodeWithSelector(RoundsReports.AlreadyAnswered.selector, 0));
        rounds.answerChallenge(jobId, 0, 0, 0, BLOCK);
        vm.prank(verifier(1));
        vm.expectRevert(abi.encodeWithSelector(RoundsReports.AlreadyAnswered.selector, 0));
        rounds.challenge(jobId, 0, 0, SEAT, SEGMENT, digest);
        vm.prank(verifier(0));
        vm.expectRevert(abi.encodeWithSelector(RoundsReports.AlreadyAnswered.selector, 0));
        rounds.withdrawChallenge(jobId, 0, 0, 0);
        ballotBy(jobId, 0, 13, oneReport(SEAT, SEGMENT, Fault.WRONG_REPLAY));
        vm.expectRevert(abi.encodeWithSelector(RoundsReports.NotChallenged.selector, 1, 1));
        rounds.answerChallenge(jobId, 0, 0, 1, BLOCK);
    }

    function testFuzz_onlyTheChallengedBytesAnswer(bytes memory block_, bytes memory other) public {
        challengeBy(jobId, 0, SEAT, SEGMENT, block_);
        if (keccak256(block_) != keccak256(other)) {
            vm.expectPartialRevert(RoundsReports.WrongBlock.selector);
            rounds.answerChallenge(jobId, 0, 0, 0, other);
        }
        rounds.answerChallenge(jobId, 0, 0, 0, block_);
    }

    // --- served, and taken back ---

    function test_servedInTimeCostsNobodyAnything() public {
        challengeIt(0);
        ballots(15);
        inPhase(jobId, Phase.REPORT);
        withdrawBy(jobId, 0, 0);
        inPhase(jobId, Phase.ATTEST);
        hasOutcome(Outcome.WITHDRAWN);
        same(lockedOf(verifier(0), Role.VERIFIER), 50 ether, "the bond is free at once");
        same(rounds.state(jobId).accepted, 15, "the accused is accepted");
        same(rounds.state(jobId).dutiful, 7, "nobody was wrong");
        toFinal();
        vm.expectPartialRevert(RoundsSettlement.NoFault.selector);
        rounds.punish(jobId, 0, Offence.REPORT, 0);
    }

    function test_othersMayStandByIt() public {
        challengeIt(0);
        challengeIt(1);
        withdrawBy(jobId, 0, 0);
        ballots(15);
        inPhase(jobId, Phase.REPORT);
        passDeadline(jobId);
        inPhase(jobId, Phase.CONFIRM);
        voteBy(jobId, 0, 0, 1, 0);
        voteBy(jobId, 2, 0, 1, 0);
        hasOutcome(Outcome.REFUTED);
        same(rounds.state(jobId).dutiful, 5, "who stood by it was wrong");
        toFinal();
        rounds.punish(jobId, 0, Offence.REPORT, 0);
        same(heldBy(0), STAKE + 50 ether, "who took it back keeps its bond");
        same(lockedOf(verifier(0), Role.VERIFIER), 50 ether, "free again");
        rounds.punish(jobId, 0, Offence.VERIFIER_CONTRADICTED, 1);
        same(heldBy(1), STAKE + 49 ether, "2 % of the verifier's bond");
    }

    function test_takenBackItCanBeRaisedAgainByAnyone() public {
        challengeIt(0);
        withdrawBy(jobId, 0, 0);
        challengeIt(1);
        same(rounds.reportOf(jobId, 0, 1).reporter == verifier(1) ? 1 : 0, 1, "a challenge of its own");
        same(lockedOf(verifier(1), Role.VERIFIER), 55 ether, "with a bond of its own");
        vm.prank(verifier(0));
        vm.expectPartialRevert(RoundsReports.NotChallenged.selector);
        rounds.withdrawChallenge(jobId, 0, 0, 0);
        vm.prank(verifier(0));
        vm.expectRevert(abi.encodeWithSelector(RoundsReports.NotChallenger.selector, 1, 0));
        rounds.withdrawChallenge(jobId, 0, 0, 1);
    }

    // --- windows, authority, caps ---

    function test_P27_aLastSecondChallengeLeavesTimeToAnswer() public {
        RoundState memory s = rounds.state(jobId);
        vm.warp(s.deadline - 151);
        challengeIt(0);
        vm.warp(s.deadline - 150);
        vm.prank(verifier(1));
        vm.expectRevert(
            abi.encodeWithSelector(RoundsReports.ChallengeTooLate.selector, s.deadline - 150, s.deadline - 150)
        );
        rounds.challenge(jobId, 0, 0, SEAT, SEGMENT, digest);
        ballots(13);
        inPhase(jobId, Phase.REPORT);
        vm.warp(s.deadline - 1);
        rounds.answerChallenge(jobId, 0, 0, 0, BLOCK);
        inPhase(jobId, Phase.CONFIRM);
    }

    function test_noAnswerAfterTheReportWindow() public {
        challengeIt(0);
        vm.warp(rounds.state(jobId).deadline);
        vm.expectPartialRevert(RoundsBase.WindowClosed.selector);
        rounds.answerChallenge(jobId, 0, 0, 0, BLOCK);
        rounds.poke(jobId);
        vm.expectPartialRevert(RoundsBase.WrongPhase.selector);
        rounds.answerChallenge(jobId, 0, 0, 0, BLOCK);
    }

    function test_onlyVerifiersChallengeAndOnlyAuditedSeats() public {
        vm.prank(provider(0));
        vm.expectRevert(abi.encodeWithSelector(RoundsBase.NotVerifier.selector, provider(0)));
        rounds.challenge(jobId, 0, 0, SEAT, SEGMENT, digest);
        vm.startPrank(verifier(0));
        vm.expectPartialRevert(RoundsReports.SeatNotAudited.selector);
        rounds.challenge(jobId, 0, 0, 4, SEGMENT, digest);
        vm.expectPartialRevert(RoundsReports.BadReport.selector);
        rounds.challenge(jobId, 0, 0, SEAT, 64, digest);
        rounds.challenge(jobId, 0, 0, SEAT, 0xffff, digest);
        vm.expectRevert(abi.encodeWithSelector(RoundsReports.DuplicateReport.selector, 0));
        rounds.challenge(jobId, 0, 0, SEAT, 0xffff, digest);
        vm.stopPrank();
    }

    function test_P13_challengesAreCappedAndLeaveRoomForReports() public {
        for (uint256 v = 0; v < 2; v++) {
            for (uint256 i = 0; i < 7; i++) {
                challengeBy(jobId, v, SEAT, SEGMENT, abi.encode(v, i));
            }
        }
        vm.prank(verifier(0));
        vm.expectRevert(abi.encodeWithSelector(RoundsReports.TooManyReports.selector, 15, 14));
        rounds.challenge(jobId, 0, 0, SEAT, SEGMENT, digest);
        for (uint256 v = 0; v < 2; v++) {
            Report[] memory four = new Report[](4);
            for (uint16 i = 0; i < 4; i++) {
                four[i] = Report(uint16(v), i, Fault.WRONG_REPLAY, 0);
            }
            ballotBy(jobId, v, 12, four);
        }
    }

    function test_P13_challengesLeaveHalfOfTheWordToReports() public {
        Terms memory t = defaultTerms();
        (t.seats, t.pricePerToken) = (100, 1);
        uint256 big = create(t);
        for (uint256 i = 10; i < 13; i++) {
            joinProvider(big, i);
            joinVerifier(big, i);
        }
        rounds.poke(big);
        passBeacon(big);
        toReport(big);
        for (uint256 i = 0; i < 128; i++) {
            challengeBy(big, i % 2, 0, SEGMENT, abi.encode(i));
            withdrawBy(big, i % 2, uint16(i));
        }
        vm.prank(verifier(10));
        vm.expectRevert(abi.encodeWithSelector(RoundsReports.TooManyReports.selector, 129, 128));
        rounds.challenge(big, 0, 0, 0, SEGMENT, digest);
        ballotBy(big, 0, 6, oneReport(0, SEGMENT, Fault.WRONG_REPLAY));
        same(rounds.reportOf(big, 0, 128).agree, 1, "a report finds its place");
    }

    function test_P13_oneVerifiersChallengesAreCapped() public {
        for (uint256 i = 0; i < 7; i++) {
            challengeBy(jobId, 0, SEAT, SEGMENT, abi.encode(i));
        }
        vm.prank(verifier(0));
        vm.expectRevert(abi.encodeWithSelector(RoundsReports.TooManyReports.selector, 8, 7));
        rounds.challenge(jobId, 0, 0, SEAT, SEGMENT, digest);
    }
}
