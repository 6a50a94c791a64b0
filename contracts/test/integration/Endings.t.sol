// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {CountingPolicy} from "../../src/CountingPolicy.sol";
import {RoundsAudit} from "../../src/rounds/RoundsAudit.sol";
import {RoundsBase} from "../../src/rounds/RoundsBase.sol";
import {RoundsSettlement} from "../../src/rounds/RoundsSettlement.sol";
import "../../src/types/Types.sol";
import {Network} from "../support/Network.sol";

/// @title Quorums that come or do not, halted jobs, and jobs that end early.
contract EndingsTest is Network {
    uint256 internal jobId;

    function setUp() public override {
        super.setUp();
        jobId = start();
    }

    function toAttest() internal {
        toReport(jobId);
        ballotAll(jobId);
        mine(1);
    }

    function hashOf(Verdict memory v) internal view returns (bytes32) {
        RoundState memory s = rounds.state(jobId);
        return rounds.verdictHash(jobId, s.round, s.attempt, v);
    }

    function test_P23_quorumIsOfTheSnapshotAtRoundOpen() public {
        for (uint256 i = 3; i < 8; i++) {
            joinVerifier(jobId, i);
        }
        toAttest();
        Verdict memory v = verdictFor(jobId);
        bytes32 hash = hashOf(v);
        same(rounds.state(jobId).totalWeight, 150 ether, "three verifiers at round open");
        vm.prank(verifier(5));
        vm.expectRevert(abi.encodeWithSelector(RoundsBase.NotVerifier.selector, verifier(5)));
        rounds.attest(jobId, 0, 0, hash, "");
        attestBy(jobId, 0, hash);
        vm.expectRevert(abi.encodeWithSelector(RoundsSettlement.NoQuorum.selector, 50 ether, 150 ether));
        rounds.settle(jobId, v);
        attestBy(jobId, 2, hash);
        rounds.settle(jobId, v);
        same(rounds.state(jobId).verifiers, 255, "the newcomers are in the next snapshot");
    }

    function test_P22_nobodySignsTwice() public {
        toAttest();
        attestBy(jobId, 0, "one");
        vm.prank(verifier(0));
        vm.expectPartialRevert(CountingPolicy.AlreadySigned.selector);
        rounds.attest(jobId, 0, 0, "one", "");
        vm.prank(verifier(0));
        vm.expectPartialRevert(CountingPolicy.AlreadySigned.selector);
        rounds.attest(jobId, 0, 0, "another", "");
    }

    function test_P24_attestationsDoNotCarryOver() public {
        toAttest();
        Verdict memory v = verdictFor(jobId);
        bytes32 hash = hashOf(v);
        attestBy(jobId, 0, hash);
        passDeadline(jobId);
        passBeacon(jobId);
        ballotAll(jobId);
        mine(1);
        vm.prank(verifier(1));
        vm.expectPartialRevert(RoundsBase.StaleSlot.selector);
        rounds.attest(jobId, 0, 0, hash, "");
        attestBy(jobId, 1, hash);
        vm.expectPartialRevert(RoundsSettlement.NoQuorum.selector);
        rounds.settle(jobId, v);
    }

    function testFuzz_P24_verdictHashBindsItsSlot(uint8 field, uint8 by) public {
        toAttest();
        Verdict memory v = verdictFor(jobId);
        uint256 which = field % 3;
        uint16 more = 1 + uint16(by);
        bytes32 other =
            rounds.verdictHash(which == 0 ? jobId + more : jobId, which == 1 ? more : 0, which == 2 ? more : 0, v);
        check(other != hashOf(v), "another slot");
        bytes32 here = hashOf(v);
        vm.chainId(block.chainid + more);
        check(hashOf(v) != here, "another chain");
    }

    function test_verdictCannotClaimMoreThanTheEvidence() public {
        toAttest();
        refuses(0, RoundsSettlement.WrongEvidence.selector);
        refuses(1, RoundsSettlement.WrongCutBlock.selector);
        refuses(2, RoundsSettlement.WrongParent.selector);
    }

    function test_verdictCannotPayForTokensNobodyVerified() public {
        toAttest();
        refuses(3, RoundsSettlement.TooManyTokens.selector);
    }

    function test_verdictTotalsFollowTheTerms() public {
        toAttest();
        refuses(4, RoundsSettlement.WrongTotal.selector);
    }

    /// One field off, signed by everyone: refused.
    function refuses(uint256 field, bytes4 reason) internal {
        Verdict memory v = verdictFor(jobId);
        if (field == 0) v.evidenceRoot ^= bytes32(uint256(1));
        if (field == 1) v.cutBlockHash ^= bytes32(uint256(1));
        if (field == 2) v.parent = "another";
        if (field == 3) v.tokensTotal += 1;
        if (field == 4) v.cumulativeTotal += 1;
        attestAll(jobId, v);
        vm.expectPartialRevert(reason);
        rounds.settle(jobId, v);
        vm.warp(rounds.state(jobId).deadline + jobs.termsOf(jobId).attestSeconds);
        rounds.poke(jobId);
        if (phase(jobId) != Phase.DRAW) return;
        passBeacon(jobId);
        ballotAll(jobId);
        mine(1);
    }

    function test_P26_finalIsUndisputableNotUnpayable() public {
        playRound(jobId);
        uint64 until = rounds.disputeUntil(jobId, 0);
        vm.warp(until - 1);
        vm.expectRevert(abi.encodeWithSelector(RoundsSettlement.DisputeOpen.selector, until, until - 1));
        rounds.finalise(jobId);
        vm.warp(until);
        rounds.finalise(jobId);
        claim(jobId, provider(2));
        same(token.balanceOf(provider(2)), 0.512 ether, "final and paid");
        vm.expectRevert(abi.encodeWithSelector(RoundsSettlement.NothingToFinalise.selector, 1, 1));
        rounds.finalise(jobId);
    }

    function test_noQuorumAuditsAgainThenPaysFromTheEvidenceAlone() public {
        toReport(jobId);
        ballotBy(jobId, 0, 7, noReports());
        passDeadline(jobId);
        for (uint16 attempt = 0; attempt < 3; attempt++) {
            if (phase(jobId) == Phase.DRAW) {
                passBeacon(jobId);
                ballotBy(jobId, 0, 7 & rounds.state(jobId).auditSet, noReports());
                passDeadline(jobId);
            }
            if (phase(jobId) == Phase.ATTEST) break;
        }
        inPhase(jobId, Phase.ATTEST);
        same(rounds.state(jobId).attempt, 2, "seat 3 stayed unresolved through every attempt");
        passDeadline(jobId);
        hasStatus(jobId, JobStatus.EXPIRED);
        (uint256 seats, uint256 verifiers) = rounds.creditable(jobId);
        same(seats, 7, "replayed by somebody");
        same(verifiers, 1, "the one that worked");
        (uint256 funded,,,) = jobs.escrowOf(jobId);
        jobs.refund(jobId);
        for (uint16 i = 0; i < 3; i++) {
            rounds.credit(jobId, 0, Role.PROVIDER, i);
            jobs.claim(jobId, provider(i), 0, new bytes32[](0));
            same(token.balanceOf(provider(i)), 0.512 ether, "a round's pay");
        }
        vm.expectPartialRevert(RoundsSettlement.NotCreditable.selector);
        rounds.credit(jobId, 0, Role.PROVIDER, 0);
        vm.expectPartialRevert(RoundsSettlement.NotCreditable.selector);
        rounds.credit(jobId, 0, Role.PROVIDER, 3);
        rounds.credit(jobId, 0, Role.VERIFIER, 0);
        jobs.claim(jobId, verifier(0), 0, new bytes32[](0));
        same(token.balanceOf(verifier(0)), 0.5 ether, "the fee");
        (, uint256 claimed, uint256 refunded, uint256 balance) = jobs.escrowOf(jobId);
        same(balance, 0, "everything went where it belongs");
        same(claimed + refunded, funded, "and nothing more");
        vm.warp(rounds.disputeUntil(jobId, 0));
        rounds.punish(jobId, 0, Offence.VERIFIER_MISSED, 1);
        same(activeOf(verifier(1), Role.VERIFIER), STAKE + 49 ether, "absence costs");
    }

    function test_P28_aQuorumThatSignsNonsenseOnlyCostsTime() public {
        toAttest();
        for (uint256 v = 0; v < 3; v++) {
            attestBy(jobId, v, "nobody knows the preimage");
        }
        vm.warp(rounds.state(jobId).deadline);
        vm.expectPartialRevert(RoundsBase.NothingToDo.selector);
        rounds.poke(jobId);
        vm.warp(rounds.state(jobId).deadline + 300);
        rounds.poke(jobId);
        inPhase(jobId, Phase.DRAW);
        same(rounds.state(jobId).attempt, 1, "audited again");
    }

    function test_confirmedFaultsSurviveANoQuorum() public {
        toReport(jobId);
        for (uint256 v = 0; v < 3; v++) {
            ballotBy(jobId, v, 13, oneReport(1, 2, Fault.WRONG_REPLAY));
        }
        passDeadline(jobId);
        same(rounds.state(jobId).auditSet, 13, "everyone but the rejected");
        passBeacon(jobId);
        ballotAll(jobId);
        RoundState memory s = rounds.state(jobId);
        same(s.rejected, 2, "still rejected");
        same(s.accepted, 13, "accepted");
        settle(jobId);
        same(rounds.state(jobId).seated, 13, "and unseated");
    }

    // --- circuit breaker ---

    function halt() internal {
        toReport(jobId);
        Report[] memory reports = new Report[](3);
        for (uint16 i = 0; i < 3; i++) {
            reports[i] = Report(i, 0, Fault.WRONG_REPLAY, 0);
        }
        for (uint256 v = 0; v < 3; v++) {
            ballotBy(jobId, v, 8, reports);
        }
    }

    function test_circuitBreakerHaltsAndAReauditClearsEverything() public {
        halt();
        hasStatus(jobId, JobStatus.HALTED);
        inPhase(jobId, Phase.HALTED);
        vm.prank(submitter);
        vm.expectRevert(abi.encodeWithSelector(RoundsAudit.OnlyOwner.selector, submitter));
        rounds.reaudit(jobId);
        vm.expectPartialRevert(RoundsBase.NothingToDo.selector);
        rounds.poke(jobId);
        rounds.reaudit(jobId);
        hasStatus(jobId, JobStatus.ACTIVE);
        RoundState memory s = rounds.state(jobId);
        same(s.rejected | s.caught, 0, "nobody is rejected");
        same(s.auditSet, 15, "everyone is audited");
        passBeacon(jobId);
        ballotAll(jobId);
        same(rounds.state(jobId).dutiful, 7, "nobody is contradicted");
        settle(jobId);
        vm.warp(rounds.disputeUntil(jobId, 0));
        for (uint16 i = 0; i < 3; i++) {
            rounds.punish(jobId, 0, Offence.REPORT, i);
            same(activeOf(provider(i), Role.PROVIDER), STAKE + 100 ether, "nobody is slashed");
        }
        same(lockedOf(verifier(0), Role.VERIFIER), 50 ether, "the reports' bonds are free");
    }

    function test_haltedJobExpiresWithoutSlashes() public {
        commitAll(jobId, 15);
        revealAll(jobId, 7);
        passDeadline(jobId);
        passBeacon(jobId);
        Report[] memory reports = new Report[](3);
        for (uint16 i = 0; i < 3; i++) {
            reports[i] = Report(i, 0, Fault.WRONG_REPLAY, 0);
        }
        for (uint256 v = 0; v < 3; v++) {
            ballotBy(jobId, v, 0, reports);
        }
        inPhase(jobId, Phase.HALTED);
        vm.warp(jobs.termsOf(jobId).expiry);
        rounds.poke(jobId);
        hasStatus(jobId, JobStatus.EXPIRED);
        jobs.refund(jobId);
        vm.warp(rounds.disputeUntil(jobId, 0));
        for (uint16 i = 0; i < 3; i++) {
            rounds.punish(jobId, 0, Offence.REPORT, i);
        }
        rounds.punish(jobId, 0, Offence.SEAT_MISSED, 3);
        for (uint256 i = 0; i < 4; i++) {
            roster.releaseBond(jobId, Role.PROVIDER, provider(i));
            same(activeOf(provider(i), Role.PROVIDER), STAKE + 100 ether, "nobody loses anything");
        }
        same(lockedOf(verifier(0), Role.VERIFIER), 50 ether, "the reports' bonds are free");
    }

    // --- divergence ---

    function test_divergedSeatsArePaidAndTheJobEnds() public {
        Reveal[4] memory reveals;
        for (uint16 seat = 0; seat < 4; seat++) {
            reveals[seat] = revealFor(jobId, seat);
            if (seat == 0) reveals[seat].steps = 3;
            commitOne(jobId, seat, reveals[seat]);
        }
        for (uint16 seat = 0; seat < 4; seat++) {
            revealOne(jobId, seat, reveals[seat]);
        }
        passBeacon(jobId);
        ballotAll(jobId);
        settle(jobId);
        hasStatus(jobId, JobStatus.EXPIRED);
        inPhase(jobId, Phase.CLOSED);
        finaliseAll(jobId);
        claim(jobId, provider(0));
        check(token.balanceOf(provider(0)) > 0, "paid for what it did");
        jobs.refund(jobId);
        checkEscrow(jobId);
    }

    function test_expiryEndsTheJobAtTheNextBoundary() public {
        Terms memory t = defaultTerms();
        t.expiry = uint64(block.timestamp + 30);
        uint256 other = create(t);
        for (uint256 i = 0; i < 4; i++) {
            joinProvider(other, i);
            joinVerifier(other, i);
        }
        rounds.poke(other);
        passBeacon(other);
        vm.warp(t.expiry);
        playRound(other);
        hasStatus(other, JobStatus.EXPIRED);
        finaliseAll(other);
        jobs.refund(other);
        checkEscrow(other);
    }

    function test_lostCutBlockDoesNotBlockTheVerdict() public {
        toAttest();
        Verdict memory v = verdictFor(jobId);
        vm.roll(block.number + 300);
        attestAll(jobId, v);
        same(rounds.state(jobId).cutBlockHash, bytes32(0), "lost");
        rounds.settle(jobId, v);
        same(rounds.state(jobId).round, 1, "settled");
    }

    function test_attestingInTheCutsOwnBlockIsTooEarly() public {
        toReport(jobId);
        ballotAll(jobId);
        vm.prank(verifier(0));
        vm.expectRevert(abi.encodeWithSelector(RoundsSettlement.SameBlockAsCut.selector, block.number));
        rounds.attest(jobId, 0, 0, "verdict", "");
    }
}
