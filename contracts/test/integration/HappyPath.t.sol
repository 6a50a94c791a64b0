// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {Escrow} from "../../src/interfaces/IJobs.sol";
import {Bits} from "../../src/libraries/Bits.sol";
import "../../src/types/Types.sol";
import {Network} from "../support/Network.sol";

/// @title A whole job, from its creation to the last token.
contract HappyPathTest is Network {
    using Bits for uint256;

    function test_aWholeJobPaysEverybodyAndReturnsTheRest() public allHome {
        uint256 jobId = start();
        uint256 funded = jobs.escrowOf(jobId).funded;
        play(jobId);
        inPhase(jobId, Phase.TRAIN);
        same(rounds.state(jobId).round, 1, "the next round opened in the settlement");
        play(jobId);
        hasStatus(jobId, JobStatus.DONE);
        audit(jobId, 0);
        audit(jobId, 1);
        vm.warp(rounds.timesOf(jobId, 1).windowEnd);
        uint256 paid;
        for (uint32 id = 1; id <= 4; id++) {
            jobs.claim(jobId, Role.PROVIDER, id, 2);
            same(token.balanceOf(provider(id - 1)), 2 * 8 * segmentPay(), "a seat's pay");
            paid += token.balanceOf(provider(id - 1));
        }
        uint256 duties = drawn(jobId, 0).popcount() + drawn(jobId, 1).popcount();
        uint256 fees;
        for (uint32 id = 1; id <= 3; id++) {
            jobs.claim(jobId, Role.VERIFIER, id, 2);
            fees += token.balanceOf(verifier(id - 1));
        }
        same(fees, 3 * 2 * 1 ether + duties * 10 ether, "fees");
        uint256 before = token.balanceOf(SUBMITTER);
        jobs.refund(jobId);
        same(token.balanceOf(SUBMITTER) - before, funded - paid - fees, "all else goes back at once");
        Escrow memory e = jobs.escrowOf(jobId);
        same(e.balance, 0, "nothing is left");
        for (uint32 id = 1; id <= 4; id++) {
            members.release(jobId, Role.PROVIDER, id);
            same(lockedOf(provider(id - 1), Role.PROVIDER), 0, "a seat's bond");
        }
        for (uint32 id = 1; id <= 3; id++) {
            members.release(jobId, Role.VERIFIER, id);
            same(lockedOf(verifier(id - 1), Role.VERIFIER), 0, "a member's bond");
        }
        same(token.balanceOf(address(jobs)), 0, "of the escrow's tokens too");
    }
}
