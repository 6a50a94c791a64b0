// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {Rounds} from "../../src/Rounds.sol";
import {RoundsBase} from "../../src/rounds/RoundsBase.sol";
import "../../src/types/Types.sol";
import {Network} from "../support/Network.sol";

/// @title Commitments, windows and seeds.
contract CommitRevealTest is Network {
    uint256 internal jobId;

    function setUp() public override {
        super.setUp();
        jobId = start();
    }

    function revealStarts() internal {
        commitAll(jobId, 15);
    }

    struct Slotted {
        uint256 job;
        uint32 round;
        uint16 attempt;
        uint16 seat;
        address sender;
    }

    function commitmentOf(Slotted memory slot, Reveal memory r) internal view returns (bytes32) {
        return rounds.commitmentOf(slot.job, slot.round, slot.attempt, slot.seat, slot.sender, r);
    }

    function testFuzz_P14_commitmentBindsTheSlot(uint8 field, uint8 by) public view {
        Reveal memory r = revealFor(jobId, 0);
        Slotted memory slot = Slotted(jobId, 0, 0, 0, provider(0));
        bytes32 honest = commitmentOf(slot, r);
        uint16 more = 1 + uint16(by);
        uint256 which = field % 5;
        if (which == 0) slot.job += more;
        if (which == 1) slot.round += more;
        if (which == 2) slot.attempt += more;
        if (which == 3) slot.seat += more;
        if (which == 4) slot.sender = address(uint160(slot.sender) + more);
        check(commitmentOf(slot, r) != honest, "another commitment");
    }

    function testFuzz_P14_commitmentBindsTheReveal(uint8 field, uint8 bit) public view {
        Reveal memory r = revealFor(jobId, 0);
        Slotted memory slot = Slotted(jobId, 0, 0, 0, provider(0));
        bytes32 honest = commitmentOf(slot, r);
        bytes32 flip = bytes32(uint256(1) << bit);
        uint256 which = field % 8;
        if (which == 0) r.traceRoot ^= flip;
        if (which == 1) r.updateRoot ^= flip;
        if (which == 2) r.optimiserRoot ^= flip;
        if (which == 3) r.steps ^= uint32(1) << (bit % 32);
        if (which == 4) r.reset = !r.reset;
        if (which == 5) r.salt ^= flip;
        if (which == 6) r.updateCid = abi.encodePacked(r.updateCid, flip);
        if (which == 7) r.traceCid = abi.encodePacked(r.traceCid, flip);
        check(commitmentOf(slot, r) != honest, "another commitment");
    }

    function test_P14_commitmentBindsChainAndContract() public {
        Reveal memory r = revealFor(jobId, 0);
        bytes32 honest = rounds.commitmentOf(jobId, 0, 0, 0, provider(0), r);
        vm.chainId(block.chainid + 1);
        check(rounds.commitmentOf(jobId, 0, 0, 0, provider(0), r) != honest, "another chain");
        vm.chainId(31337);
        deploy(address(token));
        check(rounds.commitmentOf(jobId, 0, 0, 0, provider(0), r) != honest, "another contract");
    }

    function test_P15_oneCommitmentPerSlot() public {
        Reveal memory r = revealFor(jobId, 0);
        commitOne(jobId, 0, r);
        vm.prank(provider(0));
        vm.expectRevert(abi.encodeWithSelector(Rounds.AlreadyCommitted.selector, 0));
        rounds.commit(jobId, 0, 0, keccak256("another"));
        vm.prank(provider(1));
        vm.expectPartialRevert(RoundsBase.StaleSlot.selector);
        rounds.commit(jobId, 0, 1, keccak256("another attempt"));
        vm.prank(provider(9));
        vm.expectRevert(abi.encodeWithSelector(RoundsBase.NotSeated.selector, provider(9)));
        rounds.commit(jobId, 0, 0, keccak256("a stranger"));
    }

    function test_P15_oneRevealPerSlot() public {
        revealStarts();
        Reveal memory r = revealFor(jobId, 0);
        revealOne(jobId, 0, r);
        vm.prank(provider(0));
        vm.expectRevert(abi.encodeWithSelector(Rounds.AlreadyRevealed.selector, 0));
        rounds.reveal(jobId, 0, 0, r);
    }

    function test_P16_copiedCommitmentCannotBeRevealed() public {
        Reveal memory r = revealFor(jobId, 0);
        bytes32 commitment = rounds.commitmentOf(jobId, 0, 0, 0, provider(0), r);
        commitOne(jobId, 0, r);
        vm.prank(provider(1));
        rounds.commit(jobId, 0, 0, commitment);
        commitAll(jobId, 12);
        revealOne(jobId, 0, r);
        vm.prank(provider(1));
        vm.expectPartialRevert(Rounds.WrongReveal.selector);
        rounds.reveal(jobId, 0, 0, r);
    }

    function test_P17_commitWindowIsHalfOpen() public {
        uint64 deadline = rounds.state(jobId).deadline;
        commitOne(jobId, 0, revealFor(jobId, 0));
        vm.warp(deadline - 1);
        vm.expectPartialRevert(RoundsBase.NothingToDo.selector);
        rounds.poke(jobId);
        commitOne(jobId, 1, revealFor(jobId, 1));
        vm.warp(deadline);
        vm.prank(provider(2));
        vm.expectRevert(abi.encodeWithSelector(RoundsBase.WindowClosed.selector, deadline, deadline));
        rounds.commit(jobId, 0, 0, keccak256("late"));
        rounds.poke(jobId);
        inPhase(jobId, Phase.REVEAL);
    }

    function test_P17_revealWindowIsHalfOpen() public {
        Reveal memory r = revealFor(jobId, 0);
        commitOne(jobId, 0, r);
        vm.prank(provider(0));
        vm.expectRevert(abi.encodeWithSelector(RoundsBase.WrongPhase.selector, Phase.TRAIN, Phase.REVEAL));
        rounds.reveal(jobId, 0, 0, r);
        commitAll(jobId, 14);
        uint64 deadline = rounds.state(jobId).deadline;
        vm.warp(deadline - 1);
        revealOne(jobId, 0, r);
        vm.warp(deadline);
        Reveal memory late = revealFor(jobId, 1);
        vm.prank(provider(1));
        vm.expectRevert(abi.encodeWithSelector(RoundsBase.WindowClosed.selector, deadline, deadline));
        rounds.reveal(jobId, 0, 0, late);
        rounds.poke(jobId);
        inPhase(jobId, Phase.DRAW);
    }

    function test_P17_ballotVoteAndAttestWindowsAreHalfOpen() public {
        toReport(jobId);
        ballotBy(jobId, 0, 15, oneReport(1, 0, Fault.WRONG_REPLAY));
        uint64 deadline = rounds.state(jobId).deadline;
        vm.warp(deadline - 1);
        ballotBy(jobId, 1, 15, noReports());
        vm.warp(deadline);
        vm.prank(verifier(2));
        vm.expectRevert(abi.encodeWithSelector(RoundsBase.WindowClosed.selector, deadline, deadline));
        rounds.ballot(jobId, 0, 0, allFindings(15), noReports(), 0);
        rounds.poke(jobId);
        inPhase(jobId, Phase.CONFIRM);

        deadline = rounds.state(jobId).deadline;
        vm.warp(deadline);
        vm.prank(verifier(2));
        vm.expectRevert(abi.encodeWithSelector(RoundsBase.WindowClosed.selector, deadline, deadline));
        rounds.vote(jobId, 0, 0, 0, 1, 0);
        rounds.poke(jobId);
        inPhase(jobId, Phase.DRAW);
        passBeacon(jobId);
        vm.warp(rounds.state(jobId).deadline);
        rounds.poke(jobId);
    }

    function test_P18_notRevealingCostsAndDoesNotStall() public {
        commitAll(jobId, 15);
        revealAll(jobId, 7);
        passDeadline(jobId);
        inPhase(jobId, Phase.DRAW);
        passBeacon(jobId);
        ballotAll(jobId);
        settle(jobId);
        same(rounds.state(jobId).round, 1, "the round settled without it");
        vm.expectPartialRevert(bytes4(keccak256("DisputeOpen(uint64,uint256)")));
        rounds.punish(jobId, 0, Offence.SEAT_MISSED, 3);
        vm.warp(rounds.disputeUntil(jobId, 0));
        rounds.punish(jobId, 0, Offence.SEAT_MISSED, 3);
        same(activeOf(provider(3), Role.PROVIDER), STAKE + 99 ether, "1 % of its bond");
        vm.expectPartialRevert(bytes4(keccak256("AlreadyPunished(bytes32)")));
        rounds.punish(jobId, 0, Offence.SEAT_MISSED, 3);
        vm.expectPartialRevert(bytes4(keccak256("NoFault(uint32,uint8,uint16)")));
        rounds.punish(jobId, 0, Offence.SEAT_MISSED, 0);
    }

    function test_P18_nobodyCommittingTrainsAgainThenExpires() public {
        for (uint16 attempt = 0; attempt < 2; attempt++) {
            same(rounds.state(jobId).attempt, attempt, "attempt");
            passDeadline(jobId);
            if (attempt == 1) break;
            inPhase(jobId, Phase.SEEDING);
            passBeacon(jobId);
        }
        inPhase(jobId, Phase.WAITING);
        same(rounds.state(jobId).attempt, 2, "waits for members: two misses in a row freed every seat");
        (uint256 seated,,) = roster.membersOf(jobId);
        same(seated, 0, "seats");
    }

    function test_P19_auditSeedComesAfterTheReveals() public {
        commitAll(jobId, 15);
        revealAll(jobId, 15);
        RoundState memory s = rounds.state(jobId);
        same(s.beaconBlock, block.number + 2, "a block that does not exist yet");
        vm.roll(s.beaconBlock);
        vm.expectPartialRevert(RoundsBase.NothingToDo.selector);
        rounds.poke(jobId);
        vm.roll(s.beaconBlock + 1);
        rounds.poke(jobId);
        bytes32 wanted = keccak256(
            abi.encode(
                keccak256("atoll.audit.v1"),
                block.chainid,
                address(rounds),
                jobId,
                uint32(0),
                uint16(0),
                s.commitAccumulator,
                s.revealAccumulator,
                blockhash(s.beaconBlock)
            )
        );
        same(rounds.state(jobId).auditSeed, wanted, "audit seed");
    }

    function test_P19_lostBeaconIsArmedAgainAndCutsNobody() public {
        commitAll(jobId, 15);
        revealAll(jobId, 15);
        uint256 beacon = rounds.state(jobId).beaconBlock;
        vm.roll(beacon + 257);
        rounds.poke(jobId);
        inPhase(jobId, Phase.DRAW);
        same(rounds.state(jobId).beaconBlock, beacon + 257 + 2, "armed again");
        same(rounds.state(jobId).auditSeed, bytes32(0), "no seed from a lost hash");
        passBeacon(jobId);
        ballotAll(jobId);
        settle(jobId);
        same(earned[jobId][provider(0)] > 0 ? 1 : 0, 1, "paid as usual");
    }

    function test_P19_lostDataBeaconIsArmedAgain() public {
        uint256 other = create(defaultTerms());
        for (uint256 i = 0; i < 4; i++) {
            joinProvider(other, i);
            joinVerifier(other, i);
        }
        rounds.poke(other);
        uint256 beacon = rounds.state(other).beaconBlock;
        vm.roll(beacon + 300);
        rounds.poke(other);
        inPhase(other, Phase.SEEDING);
        passBeacon(other);
        inPhase(other, Phase.TRAIN);
    }
}
