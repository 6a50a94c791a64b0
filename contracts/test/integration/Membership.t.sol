// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {Roster} from "../../src/Roster.sol";
import {RoundsBase} from "../../src/rounds/RoundsBase.sol";
import "../../src/types/Types.sol";
import {Network} from "../support/Network.sol";

/// @title Joining, waiting, leaving, being dropped, and getting the bond back.
contract MembershipTest is Network {
    uint256 internal jobId;

    function setUp() public override {
        super.setUp();
        jobId = start();
    }

    function test_joinerWaitsForTheBoundary() public {
        joinProvider(jobId, 7);
        same(roster.waitingList(jobId)[0], provider(7), "waiting");
        vm.prank(provider(3));
        roster.leaveAsProvider(jobId);
        same(rounds.state(jobId).seated, 15, "nothing changes while the round runs");
        mine(1);
        playRound(jobId);
        same(roster.seatHolder(jobId, 3), provider(7), "took the free seat");
        same(rounds.state(jobId).seated, 15, "seated");
        same(roster.waitingList(jobId).length, 0, "list");
        playRound(jobId);
    }

    function test_lateJoinerKnowsTheSeedAndWaitsARoundMore() public {
        vm.prank(provider(3));
        roster.leaveAsProvider(jobId);
        toReport(jobId);
        joinProvider(jobId, 7);
        ballotAll(jobId);
        settle(jobId);
        same(rounds.state(jobId).seated, 7, "not in the next round");
        playRound(jobId);
        same(rounds.state(jobId).seated, 15, "but in the one after");
    }

    function test_newHolderStartsWithoutOptimiserState() public {
        playRound(jobId);
        check(rounds.lastOptimiserRoot(jobId, 3) != 0, "the holder has one");
        joinProvider(jobId, 7);
        vm.prank(provider(3));
        roster.leaveAsProvider(jobId);
        playRound(jobId);
        same(rounds.lastOptimiserRoot(jobId, 3), bytes32(0), "the next holder has none");
    }

    function test_leavingInAWaitingJobTakesEffectAtOnce() public {
        uint256 other = create(defaultTerms());
        joinProvider(other, 0);
        vm.prank(provider(0));
        roster.leaveAsProvider(other);
        (uint256 seated,,) = roster.membersOf(other);
        same(seated, 0, "seats");
        uint256 locked = lockedOf(provider(0), Role.PROVIDER);
        roster.releaseBond(other, Role.PROVIDER, provider(0));
        same(locked - lockedOf(provider(0), Role.PROVIDER), 100 ether, "released");
        joinProvider(other, 0);
    }

    function test_waitingListIsServedWhenASeatFreesInAWaitingJob() public {
        uint256 other = create(defaultTerms());
        for (uint256 i = 0; i < 6; i++) {
            joinProvider(other, i);
        }
        same(roster.waitingList(other).length, 2, "two wait");
        vm.prank(provider(1));
        roster.leaveAsProvider(other);
        same(roster.seatHolder(other, 1), provider(4), "the first of them sits down");
        uint256 locked = lockedOf(provider(5), Role.PROVIDER);
        vm.prank(provider(5));
        roster.leaveAsProvider(other);
        same(locked - lockedOf(provider(5), Role.PROVIDER), 100 ether, "leaving the list frees the bond");
    }

    function test_twoMissesInARowFreeTheSeat() public {
        for (uint256 r = 0; r < 2; r++) {
            same(rounds.state(jobId).seated, 15, "seated");
            commitAll(jobId, 7);
            passDeadline(jobId);
            revealAll(jobId, 7);
            passBeacon(jobId);
            ballotAll(jobId);
            settle(jobId);
        }
        same(rounds.state(jobId).seated, 7, "dropped");
    }

    function test_oneMissBetweenGoodRoundsDoesNot() public {
        playRound(jobId);
        commitAll(jobId, 7);
        passDeadline(jobId);
        revealAll(jobId, 7);
        passBeacon(jobId);
        ballotAll(jobId);
        settle(jobId);
        same(rounds.state(jobId).seated, 15, "still seated");
    }

    function test_verifierAbsentTwiceIsDropped() public {
        for (uint256 r = 0; r < 2; r++) {
            same(rounds.state(jobId).verifiers, 7, "snapshot");
            toReport(jobId);
            ballotBy(jobId, 0, 15, noReports());
            ballotBy(jobId, 1, 15, noReports());
            passDeadline(jobId);
            settle(jobId);
        }
        inPhase(jobId, Phase.WAITING);
        (, uint256 verifiers,) = roster.membersOf(jobId);
        same(verifiers, 3, "dropped, and the job waits for its minimum");
        joinVerifier(jobId, 5);
        rounds.poke(jobId);
        passBeacon(jobId);
        playRound(jobId);
        inPhase(jobId, Phase.CLOSED);
    }

    function test_verifierLeavesAtTheBoundary() public {
        joinVerifier(jobId, 3);
        vm.prank(verifier(0));
        roster.leaveAsVerifier(jobId);
        playRound(jobId);
        same(rounds.state(jobId).verifiers, 14, "one left, one came");
        vm.expectPartialRevert(Roster.StillBound.selector);
        roster.releaseBond(jobId, Role.VERIFIER, verifier(0));
        vm.warp(rounds.disputeUntil(jobId, 0));
        roster.releaseBond(jobId, Role.VERIFIER, verifier(0));
        same(lockedOf(verifier(0), Role.VERIFIER), 0, "released");
    }

    function test_P09_bondIsHeldUntilTheDisputeWindowEnds() public {
        vm.prank(provider(0));
        roster.leaveAsProvider(jobId);
        vm.expectPartialRevert(Roster.StillMember.selector);
        roster.releaseBond(jobId, Role.PROVIDER, provider(0));
        playRound(jobId);
        uint64 until = rounds.disputeUntil(jobId, 0);
        vm.warp(until - 1);
        vm.expectRevert(abi.encodeWithSelector(Roster.StillBound.selector, until, until - 1));
        roster.releaseBond(jobId, Role.PROVIDER, provider(0));
        vm.warp(until);
        roster.releaseBond(jobId, Role.PROVIDER, provider(0));
        same(lockedOf(provider(0), Role.PROVIDER), 0, "released");
    }

    function test_P12_aMissIsPunishedBeforeTheBondGoesBack() public {
        vm.prank(provider(3));
        roster.leaveAsProvider(jobId);
        commitAll(jobId, 7);
        passDeadline(jobId);
        revealAll(jobId, 7);
        passBeacon(jobId);
        ballotAll(jobId);
        settle(jobId);
        vm.warp(rounds.disputeUntil(jobId, 0));
        vm.expectRevert(abi.encodeWithSelector(Roster.FaultsPending.selector, 1));
        roster.releaseBond(jobId, Role.PROVIDER, provider(3));
        rounds.punish(jobId, 0, Offence.SEAT_MISSED, 3);
        roster.releaseBond(jobId, Role.PROVIDER, provider(3));
        same(activeOf(provider(3), Role.PROVIDER), STAKE + 99 ether, "less the cut");
    }

    function testFuzz_P32_cutsRoundUp(uint96 bond) public {
        Terms memory t = defaultTerms();
        t.providerBond = uint128(within(bond, 1 ether, 1e24));
        uint256 other = start(t, 4, 3);
        for (uint256 r = 0; r < 2; r++) {
            commitAll(other, 7);
            passDeadline(other);
            revealAll(other, 7);
            passBeacon(other);
            ballotAll(other);
            settle(other);
        }
        vm.warp(rounds.disputeUntil(other, 1));
        uint256 before = activeOf(provider(3), Role.PROVIDER);
        uint256 cutUp = (uint256(t.providerBond) * 100 + 9_999) / 10_000;
        for (uint32 r = 0; r < 2; r++) {
            rounds.punish(other, r, Offence.SEAT_MISSED, 3);
            before -= cutUp;
            same(activeOf(provider(3), Role.PROVIDER), before, "rounded up, every time");
        }
    }

    function test_jobOpensOnlyWithMembersAndReadiness() public {
        uint256 other = create(defaultTerms());
        joinProvider(other, 0);
        vm.expectPartialRevert(RoundsBase.NothingToDo.selector);
        rounds.poke(other);
        joinProvider(other, 1);
        joinVerifier(other, 0);
        for (uint256 i = 1; i < 3; i++) {
            stakeUp(verifier(i), Role.VERIFIER, STAKE);
            vm.prank(verifier(i));
            roster.joinAsVerifier(other);
        }
        vm.expectPartialRevert(RoundsBase.NothingToDo.selector);
        rounds.poke(other);
        vm.startPrank(verifier(1));
        roster.attestReady(other);
        vm.expectRevert(abi.encodeWithSelector(Roster.AlreadyReady.selector, other, 1));
        roster.attestReady(other);
        vm.stopPrank();
        rounds.poke(other);
        hasStatus(other, JobStatus.ACTIVE);
        inPhase(other, Phase.SEEDING);
    }

    function test_strangersAndDoubleMembersAreRefused() public {
        vm.prank(provider(0));
        vm.expectPartialRevert(Roster.AlreadyMember.selector);
        roster.joinAsProvider(jobId);
        vm.prank(verifier(0));
        vm.expectPartialRevert(Roster.AlreadyMember.selector);
        roster.joinAsVerifier(jobId);
        vm.prank(submitter);
        vm.expectPartialRevert(Roster.NotMember.selector);
        roster.leaveAsProvider(jobId);
        vm.startPrank(provider(0));
        roster.leaveAsProvider(jobId);
        vm.expectPartialRevert(Roster.AlreadyLeaving.selector);
        roster.leaveAsProvider(jobId);
        vm.expectPartialRevert(Roster.UrlLength.selector);
        roster.announceGateway("");
        roster.announceGateway("http://127.0.0.1:4001");
        vm.stopPrank();
    }

    function test_gatewayUrlsAreVisibleAscii() public {
        roster.announceGateway("http://[2001:db8::1]:4001/!~");
        for (uint256 value = 0; value < 256; value++) {
            bytes memory url = "http://x?";
            url[8] = bytes1(uint8(value));
            if (value < 0x21 || value > 0x7e) {
                vm.expectRevert(abi.encodeWithSelector(Roster.UrlByte.selector, 8, url[8]));
            }
            roster.announceGateway(string(url));
        }
    }

    function test_P13_waitingListAndVerifiersAreCapped() public {
        for (uint256 i = 10; i < 74; i++) {
            joinProvider(jobId, i);
        }
        stakeUp(provider(74), Role.PROVIDER, STAKE);
        vm.prank(provider(74));
        vm.expectRevert(abi.encodeWithSelector(Roster.QueueFull.selector, 64, 64));
        roster.joinAsProvider(jobId);
        for (uint256 i = 3; i < 8; i++) {
            joinVerifier(jobId, i);
        }
        stakeUp(verifier(8), Role.VERIFIER, STAKE);
        vm.prank(verifier(8));
        vm.expectRevert(abi.encodeWithSelector(Roster.NoVerifierPlace.selector, 8));
        roster.joinAsVerifier(jobId);
    }
}
