// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {Sampling} from "../../src/libraries/Sampling.sol";
import {RoundsAudit} from "../../src/rounds/RoundsAudit.sol";
import {RoundsBase} from "../../src/rounds/RoundsBase.sol";
import {RoundsReports} from "../../src/rounds/RoundsReports.sol";
import {RoundsSettlement} from "../../src/rounds/RoundsSettlement.sol";
import {Roster} from "../../src/Roster.sol";
import "../../src/types/Types.sol";
import {Network} from "../support/Network.sol";

/// @title Reports, votes and what follows from them.
contract AuditsTest is Network {
    uint256 internal constant WRONG = 1; // the seat that cheats
    uint256 internal constant BOND = 100 ether;
    uint256 internal jobId;

    function setUp() public override {
        super.setUp();
        jobId = start();
    }

    function outcomeOf(uint16 index) internal view returns (Outcome) {
        return rounds.reportOf(jobId, rounds.state(jobId).round, index).outcome;
    }

    function isAssigned(uint16 v) internal view returns (bool) {
        RoundState memory s = rounds.state(jobId);
        return Sampling.isAssigned(s.auditSeed, uint16(WRONG), s.verifiers, 2, v);
    }

    /// @return v a verifier that audits the cheat, or one that does not
    function auditor(bool assigned) internal view returns (uint16 v) {
        while (isAssigned(v) != assigned) {
            v++;
        }
    }

    /// Everyone ballots; `reporter` reports the cheat; the others found nothing wrong with the rest.
    function reportCheat(uint16 reporter, Fault fault, uint16 segment) internal {
        toReport(jobId);
        ballotBy(jobId, reporter, 13, oneReport(uint16(WRONG), segment, fault));
        for (uint16 v = 0; v < 3; v++) {
            if (v != reporter) ballotBy(jobId, v, 13, noReports());
        }
        inPhase(jobId, Phase.CONFIRM);
    }

    function othersVote(uint16 reporter, uint256 agree, uint256 disagree, uint256 cannotFetch) internal {
        for (uint16 v = 0; v < 3; v++) {
            if (v != reporter) voteBy(jobId, v, agree, disagree, cannotFetch);
        }
    }

    function toFinal() internal {
        settle(jobId);
        vm.warp(rounds.disputeUntil(jobId, 0));
    }

    function test_confirmedCheatIsRejectedUnseatedAndSlashed() public {
        toReport(jobId);
        uint16 finder = auditor(true);
        ballotBy(jobId, finder, 13, oneReport(uint16(WRONG), 2, Fault.WRONG_REPLAY));
        for (uint16 v = 0; v < 3; v++) {
            if (v != finder) ballotBy(jobId, v, 13, noReports());
        }
        othersVote(finder, 1, 0, 0);
        same(uint256(outcomeOf(0)), uint256(Outcome.CONFIRMED), "outcome");
        RoundState memory s = rounds.state(jobId);
        same(s.accepted, 13, "accepted");
        same(s.rejected, 2, "rejected");
        same(s.caught, 2, "caught");
        same(s.dutiful, 7, "dutiful");
        toFinal();
        same(rounds.state(jobId).seated, 13, "the next round seats it no more");
        rounds.punish(jobId, 0, Offence.REPORT, 0);
        same(activeOf(provider(WRONG), Role.PROVIDER), STAKE, "its whole bond");
        same(activeOf(verifier(finder), Role.VERIFIER), STAKE + 50 ether + 30 ether, "finder's share, 30 %");
        same(lockedOf(verifier(finder), Role.VERIFIER), 50 ether, "the report's bond is free again");
        same(token.balanceOf(stakes.BURN()), 70 ether, "the rest is burnt");
    }

    function test_P33_unassignedFinderGetsNothing() public {
        toReport(jobId);
        uint16 finder = auditor(false);
        ballotBy(jobId, finder, 13, oneReport(uint16(WRONG), 2, Fault.WRONG_REPLAY));
        for (uint16 v = 0; v < 3; v++) {
            if (v != finder) ballotBy(jobId, v, 13, noReports());
        }
        othersVote(finder, 1, 0, 0);
        toFinal();
        rounds.punish(jobId, 0, Offence.REPORT, 0);
        same(activeOf(verifier(finder), Role.VERIFIER), STAKE + 50 ether, "no share");
        same(token.balanceOf(stakes.BURN()), BOND, "all burnt");
    }

    function test_P33_fromHalfTimeAnyoneIsAssigned() public {
        toReport(jobId);
        uint16 finder = auditor(false);
        vm.warp(block.timestamp + 300);
        ballotBy(jobId, finder, 13, oneReport(uint16(WRONG), 2, Fault.WRONG_REPLAY));
        check(rounds.reportOf(jobId, 0, 0).assigned, "assigned");
    }

    function test_P31_oneFaultOnePunishment() public {
        reportCheat(0, Fault.WRONG_REPLAY, 2);
        othersVote(0, 1, 0, 0);
        toFinal();
        rounds.punish(jobId, 0, Offence.REPORT, 0);
        vm.expectPartialRevert(RoundsSettlement.AlreadyPunished.selector);
        rounds.punish(jobId, 0, Offence.REPORT, 0);
        vm.expectPartialRevert(RoundsSettlement.NoFault.selector);
        rounds.punish(jobId, 0, Offence.REPORT, 1);
        vm.expectPartialRevert(RoundsSettlement.RoundRunning.selector);
        rounds.punish(jobId, 1, Offence.REPORT, 0);
    }

    function test_P31_twoReportsOnOneSeatTakeOneBond() public {
        toReport(jobId);
        ballotBy(jobId, 0, 13, oneReport(uint16(WRONG), 2, Fault.WRONG_REPLAY));
        ballotBy(jobId, 1, 13, oneReport(uint16(WRONG), 5, Fault.WRONG_REPLAY));
        ballotBy(jobId, 2, 13, noReports());
        voteBy(jobId, 0, 2, 0, 0);
        voteBy(jobId, 1, 1, 0, 0);
        voteBy(jobId, 2, 3, 0, 0);
        toFinal();
        rounds.punish(jobId, 0, Offence.REPORT, 1);
        same(activeOf(provider(WRONG), Role.PROVIDER), STAKE + BOND, "the second report carries no bond");
        rounds.punish(jobId, 0, Offence.REPORT, 0);
        same(activeOf(provider(WRONG), Role.PROVIDER), STAKE, "the first one does");
        for (uint256 v = 0; v < 2; v++) {
            same(lockedOf(verifier(v), Role.VERIFIER), 50 ether, "both report bonds are free");
        }
    }

    function test_P12_leavingAndReleasingDoNotSaveTheBond() public {
        vm.prank(provider(WRONG));
        roster.leaveAsProvider(jobId);
        reportCheat(0, Fault.WRONG_REPLAY, 2);
        othersVote(0, 1, 0, 0);
        vm.startPrank(provider(WRONG));
        stakes.thaw(Role.PROVIDER, STAKE);
        vm.stopPrank();
        toFinal();
        vm.expectRevert(abi.encodeWithSelector(Roster.FaultsPending.selector, 1));
        roster.releaseBond(jobId, Role.PROVIDER, provider(WRONG));
        rounds.punish(jobId, 0, Offence.REPORT, 0);
        roster.releaseBond(jobId, Role.PROVIDER, provider(WRONG));
        same(activeOf(provider(WRONG), Role.PROVIDER), 0, "slashed in full");
    }

    function test_falseReportLosesItsBondPartOfItToTheAccused() public {
        reportCheat(0, Fault.WRONG_REPLAY, 2);
        for (uint16 v = 1; v < 3; v++) {
            voteBy(jobId, v, 0, 1, 0);
        }
        same(uint256(outcomeOf(0)), uint256(Outcome.REFUTED), "outcome");
        inPhase(jobId, Phase.DRAW);
        same(rounds.state(jobId).auditSet, 2, "nobody has replayed the accused yet");
        passBeacon(jobId);
        ballotAll(jobId);
        RoundState memory s = rounds.state(jobId);
        same(s.accepted, 15, "the accused is accepted");
        same(s.dutiful, 6, "the false reporter is not dutiful");
        toFinal();
        rounds.punish(jobId, 0, Offence.REPORT, 0);
        same(activeOf(provider(WRONG), Role.PROVIDER), STAKE + BOND + 2.5 ether, "half goes to the accused");
        same(activeOf(verifier(0), Role.VERIFIER), STAKE + 45 ether, "the report's bond is lost");
        rounds.punish(jobId, 0, Offence.VERIFIER_CONTRADICTED, 0);
        same(activeOf(verifier(0), Role.VERIFIER), STAKE + 44 ether, "and 2 % of the verifier's bond");
    }

    function test_verifierThatVouchedForAConfirmedSegmentIsContradicted() public {
        toReport(jobId);
        ballotBy(jobId, 0, 15, noReports());
        ballotBy(jobId, 1, 13, oneReport(uint16(WRONG), 2, Fault.WRONG_REPLAY));
        ballotBy(jobId, 2, 13, noReports());
        voteBy(jobId, 0, 1, 0, 0);
        voteBy(jobId, 2, 1, 0, 0);
        same(rounds.state(jobId).dutiful, 6, "a rubber stamp is not dutiful");
        toFinal();
        rounds.punish(jobId, 0, Offence.VERIFIER_CONTRADICTED, 0);
        same(activeOf(verifier(0), Role.VERIFIER), STAKE + 49 ether, "2 % of its bond");
    }

    function test_reportNobodyCanCheckCountsAsWithheld() public {
        reportCheat(0, Fault.WRONG_REPLAY, 2);
        voteBy(jobId, 1, 0, 0, 1);
        voteBy(jobId, 2, 0, 0, 1);
        same(uint256(outcomeOf(0)), uint256(Outcome.UNFETCHABLE), "outcome");
        same(rounds.state(jobId).rejected, 2, "rejected");
        same(rounds.state(jobId).caught, 0, "not caught");
    }

    function test_unresolvedReportIsAuditedAgainAndCostsNothing() public {
        reportCheat(0, Fault.WRONG_REPLAY, 2);
        voteBy(jobId, 1, 0, 1, 0);
        passDeadline(jobId);
        same(uint256(outcomeOf(0)), uint256(Outcome.UNRESOLVED), "outcome");
        inPhase(jobId, Phase.DRAW);
        same(rounds.state(jobId).auditSet, 2, "only the unresolved seat");
        same(rounds.state(jobId).attempt, 1, "attempt");
        passBeacon(jobId);
        ballotAll(jobId);
        same(rounds.state(jobId).accepted, 15, "accepted after all");
        toFinal();
        rounds.punish(jobId, 0, Offence.REPORT, 0);
        same(activeOf(verifier(0), Role.VERIFIER), STAKE + 50 ether, "the reporter loses nothing");
        same(lockedOf(verifier(0), Role.VERIFIER), 50 ether, "its report bond is free");
        rounds.punish(jobId, 0, Offence.VERIFIER_MISSED, 2);
        same(activeOf(verifier(2), Role.VERIFIER), STAKE + 49 ether, "not voting costs 2 %");
    }

    function test_workOutOfToleranceIsNeitherPaidNorSlashed() public {
        toReport(jobId);
        for (uint16 attempt = 0; attempt < 3; attempt++) {
            same(rounds.state(jobId).attempt, attempt, "attempt");
            for (uint16 v = 0; v < 3; v++) {
                ballotBy(jobId, v, attempt == 0 ? 13 : 0, oneReport(uint16(WRONG), 2, Fault.OUT_OF_TOLERANCE));
            }
            same(uint256(outcomeOf(attempt)), uint256(Outcome.UNRESOLVED), "all agree, and still nothing is proven");
            if (rounds.state(jobId).phase == Phase.DRAW) passBeacon(jobId);
        }
        inPhase(jobId, Phase.ATTEST);
        RoundState memory s = rounds.state(jobId);
        same(s.accepted, 13, "accepted");
        same(s.unresolved, 2, "unresolved");
        same(s.rejected, 0, "rejected");
        same(s.dutiful, 7, "nobody is contradicted");
        toFinal();
        for (uint16 report = 0; report < 3; report++) {
            rounds.punish(jobId, 0, Offence.REPORT, report);
        }
        same(activeOf(provider(WRONG), Role.PROVIDER), STAKE + BOND, "its bond is whole");
        same(lockedOf(verifier(0), Role.VERIFIER), 50 ether, "the reports' bonds are free again");
    }

    function test_aToleranceReportCanBeRefuted() public {
        toReport(jobId);
        ballotBy(jobId, 0, 13, oneReport(uint16(WRONG), 2, Fault.OUT_OF_TOLERANCE));
        ballotBy(jobId, 1, 15, noReports());
        ballotBy(jobId, 2, 15, noReports());
        othersVote(0, 0, 1, 0);
        same(uint256(outcomeOf(0)), uint256(Outcome.REFUTED), "outcome");
        same(rounds.state(jobId).accepted, 15, "accepted");
        same(rounds.state(jobId).dutiful, 6, "the reporter is contradicted");
    }

    function test_nobodyFetchingAToleranceReportProvesNothing() public {
        reportCheat(0, Fault.OUT_OF_TOLERANCE, 2);
        othersVote(0, 0, 0, 1);
        same(uint256(outcomeOf(0)), uint256(Outcome.UNRESOLVED), "outcome");
        same(rounds.state(jobId).rejected, 0, "rejected");
    }

    function test_P12_secondReporterAgreesWithoutABond() public {
        toReport(jobId);
        ballotBy(jobId, 0, 13, oneReport(1, 2, Fault.WRONG_REPLAY));
        ballotBy(jobId, 1, 13, oneReport(1, 2, Fault.WRONG_REPLAY));
        same(lockedOf(verifier(1), Role.VERIFIER), 50 ether, "no bond for the second");
        ballotBy(jobId, 2, 13, noReports());
        inPhase(jobId, Phase.CONFIRM);
        voteBy(jobId, 2, 1, 0, 0);
        same(rounds.state(jobId).dutiful, 7, "reporters need not vote");
    }

    function test_allAgreeingInTheirBallotsNeedNoConfirm() public {
        toReport(jobId);
        for (uint256 v = 0; v < 3; v++) {
            ballotBy(jobId, v, 13, oneReport(1, 2, Fault.WRONG_REPLAY));
        }
        inPhase(jobId, Phase.ATTEST);
        same(rounds.state(jobId).caught, 2, "caught");
    }

    function test_supplementOnlyFromHalfTimeAndOnce() public {
        toReport(jobId);
        ballotBy(jobId, 0, 1, noReports());
        vm.prank(verifier(0));
        vm.expectPartialRevert(RoundsAudit.SupplementTooEarly.selector);
        rounds.ballot(jobId, 0, 0, allFindings(2), noReports(), 0);
        vm.warp(block.timestamp + 300);
        ballotBy(jobId, 0, 14, noReports());
        vm.prank(verifier(0));
        vm.expectRevert(abi.encodeWithSelector(RoundsAudit.AlreadyBalloted.selector, 0));
        rounds.ballot(jobId, 0, 0, allFindings(2), noReports(), 0);
        passDeadline(jobId);
        RoundState memory s = rounds.state(jobId);
        same(s.accepted, 15, "one verifier replayed every seat");
        same(s.dutiful, 1, "the silent ones are not dutiful");
    }

    function test_ballotsAndVotesAreChecked() public {
        toReport(jobId);
        vm.startPrank(verifier(0));
        vm.expectRevert(abi.encodeWithSelector(RoundsReports.SeatNotAudited.selector, 4, 15));
        rounds.ballot(jobId, 0, 0, allFindings(16), noReports(), 0);
        vm.expectPartialRevert(RoundsReports.SeatNotAudited.selector);
        rounds.ballot(jobId, 0, 0, allFindings(1), oneReport(4, 0, Fault.MALFORMED), 0);
        vm.expectPartialRevert(RoundsReports.BadReport.selector);
        rounds.ballot(jobId, 0, 0, allFindings(1), oneReport(1, 0, Fault.NO_REVEAL), 0);
        vm.expectPartialRevert(RoundsReports.BadReport.selector);
        rounds.ballot(jobId, 0, 0, allFindings(1), oneReport(1, 64, Fault.WRONG_REPLAY), 0);
        vm.expectPartialRevert(RoundsReports.BadReport.selector);
        rounds.ballot(jobId, 0, 0, allFindings(1), oneReport(1, 0xffff, Fault.WRONG_REPLAY), 0);
        vm.expectPartialRevert(RoundsReports.BadReport.selector);
        rounds.ballot(jobId, 0, 0, allFindings(1), oneReport(1, 0xffff, Fault.OUT_OF_TOLERANCE), 0);
        vm.expectPartialRevert(RoundsReports.BadReport.selector);
        rounds.ballot(jobId, 0, 0, allFindings(1), oneReport(1, 2, Fault.WITHHELD), 0);
        vm.stopPrank();
        vm.prank(provider(0));
        vm.expectRevert(abi.encodeWithSelector(RoundsBase.NotVerifier.selector, provider(0)));
        rounds.ballot(jobId, 0, 0, allFindings(1), noReports(), 0);

        ballotBy(jobId, 0, 13, oneReport(1, 2, Fault.WRONG_REPLAY));
        ballotBy(jobId, 1, 13, noReports());
        ballotBy(jobId, 2, 13, noReports());
        vm.startPrank(verifier(0));
        vm.expectRevert(abi.encodeWithSelector(RoundsAudit.OwnReport.selector, 0));
        rounds.vote(jobId, 0, 0, 0, 1, 0);
        vm.expectRevert(abi.encodeWithSelector(RoundsAudit.UnknownReports.selector, 2, 1));
        rounds.vote(jobId, 0, 0, 2, 0, 0);
        vm.stopPrank();
        vm.startPrank(verifier(1));
        vm.expectRevert(abi.encodeWithSelector(RoundsAudit.MapsOverlap.selector, 1, 1, 0));
        rounds.vote(jobId, 0, 0, 1, 1, 0);
        rounds.vote(jobId, 0, 0, 1, 0, 0);
        vm.stopPrank();
        inPhase(jobId, Phase.CONFIRM);
        vm.prank(verifier(1));
        vm.expectRevert(abi.encodeWithSelector(RoundsAudit.AlreadyVoted.selector, 1));
        rounds.vote(jobId, 0, 0, 1, 0, 0);
    }

    function test_P13_reportsAreCapped() public {
        toReport(jobId);
        Report[] memory many = new Report[](5);
        for (uint16 i = 0; i < 5; i++) {
            many[i] = Report(1, i, Fault.WRONG_REPLAY, 0);
        }
        vm.prank(verifier(0));
        vm.expectRevert(abi.encodeWithSelector(RoundsReports.TooManyReports.selector, 5, 4));
        rounds.ballot(jobId, 0, 0, allFindings(13), many, 0);
        Report[] memory four = new Report[](4);
        for (uint256 v = 0; v < 2; v++) {
            for (uint16 i = 0; i < 4; i++) {
                four[i] = Report(uint16(v), i, Fault.WRONG_REPLAY, 0);
            }
            ballotBy(jobId, v, 12, four);
        }
        vm.prank(verifier(2));
        vm.expectRevert(abi.encodeWithSelector(RoundsReports.TooManyReports.selector, 9, 8));
        rounds.ballot(jobId, 0, 0, allFindings(13), oneReport(2, 0, Fault.WRONG_REPLAY), 0);
    }

    function test_noneAcceptedTrainsAgainWithoutTheRejected() public {
        joinProvider(jobId, 8);
        joinProvider(jobId, 9);
        commitAll(jobId, 3);
        passDeadline(jobId);
        revealAll(jobId, 3);
        passBeacon(jobId);
        Report[] memory both = new Report[](2);
        both[0] = Report(0, 1, Fault.MALFORMED, 0);
        both[1] = Report(1, 1, Fault.WRONG_REPLAY, 0);
        for (uint256 v = 0; v < 3; v++) {
            ballotBy(jobId, v, 0, both);
        }
        inPhase(jobId, Phase.SEEDING);
        RoundState memory s = rounds.state(jobId);
        same(s.attempt, 1, "attempt");
        same(s.seated, 15, "the waiting list took the seats");
        same(roster.seatHolder(jobId, 0), provider(8), "first in the list, lowest seat");
        passBeacon(jobId);
        playRound(jobId);
        vm.warp(rounds.disputeUntil(jobId, 0));
        rounds.punish(jobId, 0, Offence.REPORT, 0);
        rounds.punish(jobId, 0, Offence.REPORT, 1);
        rounds.punish(jobId, 0, Offence.SEAT_MISSED, 2);
        same(activeOf(provider(0), Role.PROVIDER), STAKE, "the one that was seated then is slashed");
        same(activeOf(provider(8), Role.PROVIDER), STAKE + BOND, "not the one that sits there now");
    }
}
