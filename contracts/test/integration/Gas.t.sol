// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import "../../src/types/Types.sol";
import {Network} from "../support/Network.sol";

/// @title P41: what each call may cost, and that settling does not grow with the number of providers.
/// @dev Every call is a transaction of its own, so that gas is counted as on a chain.
/// forge-config: default.isolate = true
contract GasTest is Network {
    event log_named_uint(string what, uint256 gas); // forge prints it with -vv

    /// @param before gas left before the call; every call is a transaction of its own here
    function costs(string memory what, uint256 before, uint256 ceiling) internal returns (uint256 gas) {
        gas = before - gasleft();
        emit log_named_uint(what, gas);
        atMost(gas, ceiling, what);
    }

    function bigTerms(uint16 seats) internal view returns (Terms memory t) {
        t = defaultTerms();
        t.seats = seats;
        t.minProviders = seats;
        t.pricePerToken = 1;
    }

    function test_P41_commitAndReveal() public {
        uint256 jobId = start();
        Reveal memory r = revealFor(jobId, 1);
        bytes32 commitment = rounds.commitmentOf(jobId, 0, 0, 1, provider(1), r);
        commitAll(jobId, 5);
        vm.prank(provider(1));
        uint256 before = gasleft();
        rounds.commit(jobId, 0, 0, commitment);
        costs("commit", before, 77_000);
        commitAll(jobId, 8);
        revealAll(jobId, 5);
        vm.prank(provider(1));
        before = gasleft();
        rounds.reveal(jobId, 0, 0, r);
        costs("reveal", before, 135_000);
    }

    function test_P41_ballotReportVoteAndAttest() public {
        uint256 jobId = start();
        toReport(jobId);
        Finding[] memory findings = allFindings(13);
        vm.prank(verifier(0));
        uint256 before = gasleft();
        rounds.ballot(jobId, 0, 0, findings, oneReport(1, 3, Fault.WRONG_REPLAY), 0);
        costs("ballot with a report", before, 330_000);
        vm.prank(verifier(1));
        before = gasleft();
        rounds.ballot(jobId, 0, 0, findings, noReports(), 0);
        costs("ballot", before, 120_000);
        ballotBy(jobId, 2, 13, noReports());
        vm.prank(verifier(1));
        before = gasleft();
        rounds.vote(jobId, 0, 0, 1, 0, 0);
        costs("vote", before, 63_000);
        voteBy(jobId, 2, 1, 0, 0);
        mine(1);
        vm.prank(verifier(1));
        before = gasleft();
        rounds.attest(jobId, 0, 0, "verdict", "");
        costs("attest", before, 162_000);
    }

    /// Random bytes, as blocks are: a zero byte of calldata would cost a quarter.
    function blockOf(uint256 size) internal pure returns (bytes memory block_) {
        block_ = new bytes(size);
        for (uint256 i = 0; i < size; i += 32) {
            bytes32 word = keccak256(abi.encode(i));
            assembly ("memory-safe") {
                mstore(add(add(block_, 32), i), word)
            }
        }
    }

    function test_P41_challengeWithdrawAndAnswer() public {
        uint256 jobId = start();
        toReport(jobId);
        bytes memory block_ = blockOf(65_536);
        bytes32 digest = sha256(block_);
        vm.prank(verifier(0));
        uint256 before = gasleft();
        rounds.challenge(jobId, 0, 0, 1, 3, digest);
        costs("challenge", before, 320_000);
        vm.prank(verifier(1));
        before = gasleft();
        rounds.challenge(jobId, 0, 0, 1, 3, digest);
        costs("joining a challenge", before, 85_000);
        vm.prank(verifier(1));
        before = gasleft();
        rounds.withdrawChallenge(jobId, 0, 0, 0);
        costs("withdrawing from a challenge", before, 75_000);
        before = gasleft();
        rounds.answerChallenge(jobId, 0, 0, 0, block_);
        costs("answering with 64 KiB", before, 2_800_000);
    }

    /// @return gas of the settlement that opens the next round
    function settleGas(uint16 seats) internal returns (uint256) {
        uint256 jobId = start(bigTerms(seats), seats, 3);
        toReport(jobId);
        ballotAll(jobId);
        mine(1);
        Verdict memory v = verdictFor(jobId);
        attestAll(jobId, v);
        uint256 before = gasleft();
        rounds.settle(jobId, v);
        return costs("settle", before, 335_000);
    }

    function test_P41_settlingDoesNotGrowWithProviders() public {
        uint256 few = settleGas(2);
        uint256 many = settleGas(128);
        atMost(many, few + 5_000, "settle with 128 seats");
    }

    function test_P41_fullHouseMissingIsBounded() public {
        uint256 jobId = start(bigTerms(256), 256, 3);
        vm.warp(rounds.state(jobId).deadline);
        uint256 before = gasleft();
        rounds.poke(jobId);
        costs("256 misses in one transaction", before, 9_700_000);
    }

    function test_P41_claimFinaliseAndPunish() public {
        uint256 jobId = start();
        commitAll(jobId, 7);
        passDeadline(jobId);
        revealAll(jobId, 7);
        passBeacon(jobId);
        ballotAll(jobId);
        settle(jobId);
        vm.warp(rounds.disputeUntil(jobId, 0));
        uint256 before = gasleft();
        rounds.finalise(jobId);
        costs("finalise", before, 55_000);
        before = gasleft();
        rounds.punish(jobId, 0, Offence.SEAT_MISSED, 3);
        costs("punish", before, 156_000);
        bytes32[] memory proof = proofOf(jobId, provider(0));
        uint256 due = earned[jobId][provider(0)];
        before = gasleft();
        jobs.claim(jobId, provider(0), due, proof);
        costs("claim", before, 170_000);
    }

    function test_P13_largestResolutionFitsABlock() public {
        Terms memory t = bigTerms(128);
        t.maxVerifiers = 32;
        t.attempts = 1;
        uint256 jobId = start(t, 128, 32);
        toReport(jobId);
        fileEverything(jobId);
        uint256 before = gasleft();
        rounds.poke(jobId);
        costs("opening CONFIRM over 256 reports", before, 850_000);
        vm.warp(rounds.state(jobId).deadline);
        before = gasleft();
        rounds.poke(jobId);
        costs("deciding 256 reports", before, 5_500_000);
    }

    /// 256 reports by two verifiers; everyone else silent.
    function fileEverything(uint256 jobId) private {
        for (uint256 v = 0; v < 2; v++) {
            Report[] memory reports = new Report[](128);
            for (uint16 i = 0; i < 128; i++) {
                reports[i] = Report(i, uint16(v), Fault.WRONG_REPLAY, 0);
            }
            ballotBy(jobId, v, 0, reports);
        }
        vm.warp(rounds.state(jobId).deadline);
    }
}
