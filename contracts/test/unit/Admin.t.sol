// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {Config} from "../../src/Config.sol";
import {Jobs} from "../../src/Jobs.sol";
import {Roster} from "../../src/Roster.sol";
import {Params} from "../../src/interfaces/IConfig.sol";
import {Wired} from "../../src/libraries/Wired.sol";
import "../../src/types/Types.sol";
import {Network} from "../support/Network.sol";

/// @title What an owner can do, and what it cannot.
contract AdminTest is Network {
    address internal heir = address(0x4e14);

    function test_P38_ownershipMovesInTwoSteps() public {
        config.transferOwnership(heir);
        same(config.owner(), address(this), "not before it is accepted");
        vm.prank(heir);
        config.acceptOwnership();
        same(config.owner(), heir, "accepted");
        vm.expectRevert(abi.encodeWithSignature("OwnableUnauthorizedAccount(address)", address(this)));
        config.setPaused(true);
    }

    function test_P38_changesWaitForTheDelay() public {
        vm.expectRevert(Config.NothingProposed.selector);
        config.applyParams();
        Params memory p = defaultParams();
        p.missCutBps = 777;
        config.proposeParams(p);
        uint256 due = block.timestamp + CHANGE_DELAY;
        vm.warp(due - 1);
        vm.expectRevert(abi.encodeWithSelector(Config.TooEarly.selector, due, due - 1));
        config.applyParams();
        vm.warp(due);
        vm.prank(heir);
        config.applyParams();
        same(config.params().missCutBps, 777, "applied by anyone");
        vm.expectRevert(Config.NothingProposed.selector);
        config.applyParams();
    }

    function test_P38_policiesWaitForTheDelayToo() public {
        config.proposePolicy(heir);
        vm.expectPartialRevert(Config.TooEarly.selector);
        config.applyPolicy();
        vm.warp(block.timestamp + CHANGE_DELAY);
        config.applyPolicy();
        check(config.isPolicy(heir), "allowed");
        config.proposePolicy(submitter);
        config.dropProposals();
        vm.warp(block.timestamp + CHANGE_DELAY);
        vm.expectRevert(Config.NothingProposed.selector);
        config.applyPolicy();
    }

    function testFuzz_P38_settersAreBounded(uint16 missCut, uint16 cut, uint16 finder, uint16 accused) public {
        Params memory p = defaultParams();
        (p.missCutBps, p.verifierCutBps) = (missCut, cut);
        (p.finderShareBps, p.accusedShareBps) = (finder, accused);
        bool inBounds = missCut >= 1 && missCut <= 2_000 && cut >= 1 && cut <= 2_000;
        inBounds = inBounds && finder <= 5_000 && accused <= 5_000;
        if (!inBounds) vm.expectPartialRevert(Config.OutOfBounds.selector);
        config.proposeParams(p);
    }

    function test_P38_onlyTheOwnerProposes() public {
        vm.startPrank(heir);
        vm.expectPartialRevert(bytes4(keccak256("OwnableUnauthorizedAccount(address)")));
        config.proposeParams(defaultParams());
        vm.expectPartialRevert(bytes4(keccak256("OwnableUnauthorizedAccount(address)")));
        config.proposePolicy(heir);
        vm.expectPartialRevert(bytes4(keccak256("OwnableUnauthorizedAccount(address)")));
        config.dropProposals();
        vm.expectPartialRevert(bytes4(keccak256("OwnableUnauthorizedAccount(address)")));
        config.setPaused(true);
        vm.stopPrank();
    }

    function test_P39_pauseStopsNewEntriesOnly() public {
        uint256 jobId = start();
        config.setPaused(true);
        Terms memory t = defaultTerms();
        uint256 funding = jobs.budget(t);
        vm.prank(submitter);
        vm.expectRevert(Jobs.Paused.selector);
        jobs.create(0, "", t, address(policy), funding);
        vm.prank(provider(9));
        vm.expectRevert(Roster.Paused.selector);
        roster.joinAsProvider(jobId);
        vm.prank(verifier(9));
        vm.expectRevert(Roster.Paused.selector);
        roster.joinAsVerifier(jobId);

        for (uint256 r = 0; r < 3; r++) {
            playRound(jobId);
        }
        finaliseAll(jobId);
        claim(jobId, provider(0));
        jobs.refund(jobId);
        roster.releaseBond(jobId, Role.PROVIDER, provider(0));
        vm.startPrank(provider(0));
        uint256 id = stakes.thaw(Role.PROVIDER, STAKE);
        vm.warp(block.timestamp + UNBONDING + 1);
        stakes.withdraw(Role.PROVIDER, id);
        vm.stopPrank();
    }

    function test_P10_theUnbondingDelayCannotChange() public view {
        same(stakes.unbondingDelay(), config.unbondingDelay(), "one delay, fixed at deployment");
    }

    function test_wiringHappensOnceAndByTheDeployer() public {
        vm.expectRevert(Wired.AlreadyWired.selector);
        stakes.wire(heir, heir, heir);
        vm.prank(heir);
        vm.expectPartialRevert(Wired.OnlyDeployer.selector);
        jobs.wire(heir, heir);
        vm.prank(heir);
        vm.expectPartialRevert(Jobs.OnlyRounds.selector);
        jobs.setStatus(1, JobStatus.DONE, "");
        vm.expectPartialRevert(Roster.OnlyRounds.selector);
        roster.admitAll(1);
        vm.expectRevert(abi.encodeWithSignature("OnlyJobs(address)", address(this)));
        rounds.open(1, defaultTerms(), defaultParams(), heir);
    }
}
