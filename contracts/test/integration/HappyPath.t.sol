// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import "../../src/types/Types.sol";
import {Network} from "../support/Network.sol";

/// @title A whole job with nobody misbehaving.
contract HappyPathTest is Network {
    function test_wholeJobPaysEveryoneAndRefundsTheRest() public {
        uint256 jobId = start();
        for (uint256 r = 0; r < 3; r++) {
            inPhase(jobId, Phase.TRAIN);
            same(rounds.state(jobId).round, r, "round");
            playRound(jobId);
        }
        inPhase(jobId, Phase.CLOSED);
        finaliseAll(jobId);
        hasStatus(jobId, JobStatus.DONE);

        for (uint256 i = 0; i < 4; i++) {
            claim(jobId, provider(i));
            uint256 pay = 3 * uint256(STEPS) * TOKENS_PER_STEP * 0.001 ether;
            same(token.balanceOf(provider(i)), pay, "a provider's pay");
        }
        for (uint256 i = 0; i < 3; i++) {
            claim(jobId, verifier(i));
            same(token.balanceOf(verifier(i)), 1.5 ether, "a verifier's fee");
        }
        jobs.refund(jobId);
        (uint256 funded, uint256 claimed, uint256 refunded, uint256 balance) = jobs.escrowOf(jobId);
        same(balance, 0, "nothing is left");
        same(funded, claimed + refunded, "all of it is accounted for");
        same(token.balanceOf(address(jobs)), 0, "escrow is empty");
        releaseEverything(jobId);
    }

    function releaseEverything(uint256 jobId) private {
        for (uint256 i = 0; i < 4; i++) {
            roster.releaseBond(jobId, Role.PROVIDER, provider(i));
            same(lockedOf(provider(i), Role.PROVIDER), 0, "provider's lock");
            same(activeOf(provider(i), Role.PROVIDER), STAKE + 100 ether, "provider's stake");
        }
        for (uint256 i = 0; i < 3; i++) {
            roster.releaseBond(jobId, Role.VERIFIER, verifier(i));
            same(activeOf(verifier(i), Role.VERIFIER), STAKE + 50 ether, "verifier's stake");
        }
    }

    function test_seedsFollowTheHashingLaw() public {
        uint256 jobId = start();
        toReport(jobId);
        bytes32 auditSeed = rounds.state(jobId).auditSeed;
        ballotAll(jobId);
        settle(jobId);
        bytes32 wanted = keccak256(
            abi.encode(
                keccak256("atoll.data.v1"), block.chainid, address(rounds), jobId, uint32(1), uint16(0), auditSeed
            )
        );
        same(rounds.state(jobId).dataSeed, wanted, "data seed of the next round");
    }

    function test_optimiserRootAdvancesOnlyWhenAccepted() public {
        uint256 jobId = start();
        bytes32 root = revealFor(jobId, 0).optimiserRoot;
        toReport(jobId);
        ballotAll(jobId);
        same(rounds.lastOptimiserRoot(jobId, 0), bytes32(0), "not yet settled");
        settle(jobId);
        same(rounds.lastOptimiserRoot(jobId, 0), root, "accepted");
    }
}
