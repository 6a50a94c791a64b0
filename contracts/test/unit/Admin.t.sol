// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {Audits} from "../../src/Audits.sol";
import {Config} from "../../src/Config.sol";
import {Jobs} from "../../src/Jobs.sol";
import {Members} from "../../src/Members.sol";
import {Rounds} from "../../src/Rounds.sol";
import {Params} from "../../src/interfaces/IConfig.sol";
import {Placed} from "../../src/libraries/Placed.sol";
import {Wired} from "../../src/libraries/Wired.sol";
import {RoundsMembership} from "../../src/rounds/RoundsMembership.sol";
import {RoundsSettlement} from "../../src/rounds/RoundsSettlement.sol";
import "../../src/types/Types.sol";
import {Network} from "../support/Network.sol";
import {deployed} from "../support/Deployed.sol";

/// @title What an owner can do, and what it cannot.
contract AdminTest is Network {
    address internal heir = address(0x4e14);
    uint256 internal constant CHANGE_DELAY = 2 days;

    function defaultParams() internal pure returns (Params memory) {
        return Params(100, 3_000, 10, 5, 150, 1 ether, 1 ether);
    }

    function test_P39_ownershipMovesInTwoSteps() public allHome {
        config.transferOwnership(heir);
        same(config.owner(), address(this), "not before it is accepted");
        vm.prank(heir);
        config.acceptOwnership();
        same(config.owner(), heir, "accepted");
        vm.expectRevert(abi.encodeWithSignature("OwnableUnauthorizedAccount(address)", address(this)));
        config.setPaused(true);
    }

    function test_P39_changesWaitForTheDelay() public allHome {
        vm.expectRevert(Config.NothingProposed.selector);
        config.applyParams();
        Params memory p = defaultParams();
        p.penaltyBps = 777;
        config.proposeParams(p);
        uint256 due = block.timestamp + CHANGE_DELAY;
        (Params memory said, uint64 since) = config.proposedParams();
        same(said.penaltyBps, 777, "everybody can read what is proposed");
        same(since, due, "and from when on it can be applied");
        vm.warp(due - 1);
        vm.expectRevert(abi.encodeWithSelector(Config.TooEarly.selector, due, due - 1));
        config.applyParams();
        vm.warp(due);
        vm.prank(heir);
        config.applyParams();
        same(config.params().penaltyBps, 777, "applied by anyone");
        (, since) = config.proposedParams();
        same(since, 0, "and nothing is proposed any more");
    }

    function test_P39_policiesWaitForTheDelayToo() public allHome {
        config.proposePolicy(heir, true);
        vm.expectPartialRevert(Config.TooEarly.selector);
        config.applyPolicy();
        vm.warp(block.timestamp + CHANGE_DELAY);
        config.applyPolicy();
        check(config.isPolicy(heir), "allowed");
        config.proposePolicy(SUBMITTER, true);
        (address said, bool isAllowed, uint64 since) = config.proposedPolicy();
        check(said == SUBMITTER && isAllowed && since == block.timestamp + CHANGE_DELAY, "read by everybody");
        config.dropProposals();
        (,, since) = config.proposedPolicy();
        same(since, 0, "dropped");
        vm.warp(block.timestamp + CHANGE_DELAY);
        vm.expectRevert(Config.NothingProposed.selector);
        config.applyPolicy();
    }

    /// Of a policy that turns out wrong: no new job names it, and those that have it go on.
    function test_aPolicyIsTakenBackAfterTheDelay() public allHome {
        uint256 jobId = start();
        config.proposePolicy(address(policy), false);
        vm.expectPartialRevert(Config.TooEarly.selector);
        config.applyPolicy();
        create(defaultTerms());
        vm.warp(block.timestamp + CHANGE_DELAY);
        vm.prank(heir);
        config.applyPolicy();
        check(!config.isPolicy(address(policy)), "taken back");
        Terms memory t = defaultTerms();
        vm.expectRevert(abi.encodeWithSelector(Jobs.PolicyNotAllowed.selector, address(policy)));
        vm.prank(SUBMITTER);
        jobs.create("spec", "cid", t, address(policy), 1e30);
        rounds.advance(jobId);
        commitAll(jobId, rounds.state(jobId).seated);
        inPhase(jobId, Phase.REVEAL);
        config.proposePolicy(address(policy), true);
        vm.warp(block.timestamp + CHANGE_DELAY);
        config.applyPolicy();
        create(defaultTerms());
    }

    function testFuzz_P39_settersAreBounded(uint16 penalty, uint16 share, uint32[3] memory clocks, uint128 bond)
        public
    {
        Params memory p = Params(penalty, share, clocks[0], clocks[1], clocks[2], bond, bond);
        bool isWithin =
            penalty >= 1 && penalty <= 1_250 && share >= 2_300 && share <= 5_000 && bond >= 80 && bond <= 1e30;
        uint32[3] memory most = [uint32(1 days), 1 hours, 3 days];
        for (uint256 i = 0; i < 3; i++) {
            isWithin = isWithin && clocks[i] >= 1 && clocks[i] <= most[i];
        }
        if (!isWithin) vm.expectPartialRevert(Config.OutOfBounds.selector);
        config.proposeParams(p);
    }

    /// At a lowest rate of 1/32 and a bond of 137 rounds' pay a smaller one is less than a round's pay.
    function test_P39_aWinnersShareIsDearerThanABribe() public {
        Params memory p = defaultParams();
        p.winnerShareBps = 2_300;
        config.proposeParams(p);
        p.winnerShareBps = 2_299;
        vm.expectRevert(abi.encodeWithSelector(Config.OutOfBounds.selector, "winnerShareBps", 2_299, 2_300, 5_000));
        config.proposeParams(p);
    }

    function test_P39_renouncingAndPausingHarmNobodyInAJob() public allHome {
        uint256 jobId = start();
        config.setPaused(true);
        config.renounceOwnership();
        Terms memory t = defaultTerms();
        uint256 funding = jobs.budget(t);
        vm.prank(SUBMITTER);
        vm.expectRevert(Jobs.Paused.selector);
        jobs.create(0, "", t, address(policy), funding);
        play(jobId);
        endPhase(jobId);
        for (uint16 seat = 0; seat < 4; seat++) {
            members.penaliseSeat(jobId, seat);
            join(jobId, 10 + seat, seat); // new members come all the same
        }
        nextBlock();
        rounds.advance(jobId);
        play(jobId);
        hasStatus(jobId, JobStatus.DONE);
        vm.warp(rounds.timesOf(jobId, 1).windowEnd);
        jobs.claim(jobId, Role.PROVIDER, 1, 1);
        jobs.refund(jobId);
        members.release(jobId, Role.PROVIDER, 1);
    }

    function test_P06_P10_changesReachNoOpenJob() public allHome {
        uint256 jobId = start();
        uint256 end = rounds.absoluteEnd(jobId);
        Params memory p = Params(1_250, 5_000, 1 days, 1 hours, 3 days, 1e30, 1e30);
        config.proposeParams(p);
        vm.warp(block.timestamp + CHANGE_DELAY);
        config.applyParams();
        same(jobs.paramsOf(jobId).penaltyBps, 100, "the job's own");
        same(rounds.absoluteEnd(jobId), end, "the locks' end");
    }

    function test_wiringHappensOnceAndByTheDeployer() public allHome {
        vm.expectRevert(Wired.AlreadyWired.selector);
        stakes.wire(heir, heir);
        vm.prank(heir);
        vm.expectPartialRevert(Wired.OnlyDeployer.selector);
        rounds.wire(heir, heir, heir, heir);
    }

    function test_onlyTheContractsThemselvesCallTheirHooks() public allHome {
        uint256 jobId = start();
        Terms memory t = defaultTerms();
        vm.startPrank(heir);
        vm.expectPartialRevert(RoundsMembership.NotAllowed.selector);
        rounds.open(jobId, t, heir);
        vm.expectPartialRevert(RoundsMembership.NotAllowed.selector);
        rounds.cancel(jobId);
        vm.expectPartialRevert(RoundsMembership.NotAllowed.selector);
        rounds.join(jobId, 0, heir, 1);
        vm.expectPartialRevert(RoundsMembership.NotAllowed.selector);
        rounds.unseat(jobId, 0);
        vm.expectPartialRevert(RoundsMembership.NotAllowed.selector);
        rounds.stop(jobId, 0, heir, 0);
        vm.expectPartialRevert(RoundsMembership.NotAllowed.selector);
        rounds.clearOwing(jobId, 0);
        vm.expectPartialRevert(RoundsMembership.NotAllowed.selector);
        rounds.enter(jobId, 0, heir, 1);
        vm.expectPartialRevert(RoundsMembership.NotAllowed.selector);
        rounds.setReady(jobId, 0);
        vm.expectPartialRevert(RoundsMembership.NotAllowed.selector);
        rounds.vacate(jobId, 0);
        vm.expectPartialRevert(RoundsMembership.NotAllowed.selector);
        rounds.setPay(jobId, 0, 0, true);
        vm.expectPartialRevert(Members.NotAllowed.selector);
        members.penalise(jobId, Role.PROVIDER, 1, 0, MissedDuty.KEY);
        vm.expectPartialRevert(Members.NotAllowed.selector);
        members.slashDropped(jobId, 1, 0, 0);
        vm.expectPartialRevert(Members.NotAllowed.selector);
        members.slashEquivocated(jobId, 1, 0);
        vm.expectPartialRevert(Members.NotAllowed.selector);
        members.slash(jobId, Role.PROVIDER, 1, 0, heir);
        vm.expectPartialRevert(Members.NotAllowed.selector);
        members.closeSlash(jobId);
        vm.expectPartialRevert(Jobs.NotAllowed.selector);
        jobs.credit(jobId, heir, 1);
        vm.expectPartialRevert(bytes4(keccak256("OnlyGame(address)")));
        claims.slash(0, 0, heir);
        vm.stopPrank();
    }

    function test_modulesAreOfTheSameJobsContract() public allHome {
        address escrow = deployed("Jobs", abi.encode(config, heir, heir, heir, heir));
        address other = deployed("RoundsSettlement", abi.encode(escrow));
        address right = deployed("RoundsMembership", abi.encode(jobs));
        vm.expectRevert(abi.encodeWithSelector(Rounds.ModuleMismatch.selector, other));
        deployed("Rounds", abi.encode(jobs, LONGEST, other, right));
    }

    function test_theEscrowsContractsStandWhereItExpectsThem() public allHome {
        address settlement = deployed("RoundsSettlement", abi.encode(jobs));
        address membership = deployed("RoundsMembership", abi.encode(jobs));
        vm.expectPartialRevert(Placed.Misplaced.selector);
        deployed("Rounds", abi.encode(jobs, LONGEST, settlement, membership));
        vm.expectPartialRevert(Placed.Misplaced.selector);
        deployed("Members", abi.encode(stakes, jobs));
        vm.expectPartialRevert(Placed.Misplaced.selector);
        deployed("Audits", abi.encode(rounds, members, jobs));
    }
}
