// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {Rounds} from "../../src/Rounds.sol";
import {EcdsaPolicy} from "../../src/EcdsaPolicy.sol";
import {RoundsBase} from "../../src/rounds/RoundsBase.sol";
import {RoundsSettlement} from "../../src/rounds/RoundsSettlement.sol";
import {Members} from "../../src/Members.sol";
import {Bits} from "../../src/libraries/Bits.sol";
import {Draws} from "../../src/libraries/Draws.sol";
import {Hashing} from "../../src/libraries/Hashing.sol";
import {Reveals, Shown} from "../../src/libraries/Reveals.sol";
import {LateVotes} from "../../src/LateVotes.sol";
import "../../src/types/Types.sol";
import {Network} from "../support/Network.sol";

/// @title Commit, reveal, votes and settlement: what is taken, when, from whom.
contract PhasesTest is Network {
    using Bits for uint256;

    uint256 internal jobId;

    function setUp() public override {
        super.setUp();
        jobId = start();
    }

    // --- commit and reveal ---

    function test_P14_aCommitmentBindsEverythingOfIt() public view {
        Reveal memory r = revealFor(jobId, 1, 8);
        bytes32 right = commitmentFor(jobId, 1, r);
        RoundState memory s = rounds.state(jobId);
        Hashing.RoundId memory roundId = Hashing.RoundId(address(rounds), jobId, 0);
        check(trainer.commitment(roundId, s.seed, 2, provider(1), s.model, r) != right, "seat");
        check(trainer.commitment(roundId, s.seed, 1, provider(2), s.model, r) != right, "account");
        check(trainer.commitment(roundId, keccak256("x"), 1, provider(1), s.model, r) != right, "seed");
        check(trainer.commitment(roundId, s.seed, 1, provider(1), keccak256("x"), r) != right, "model");
        roundId.round = 1;
        check(trainer.commitment(roundId, s.seed, 1, provider(1), s.model, r) != right, "round");
        roundId.round = 0;
        roundId.rounds = address(this);
        check(trainer.commitment(roundId, s.seed, 1, provider(1), s.model, r) != right, "contract");
    }

    function test_onlyTheHolderCommitsForItsSeat() public allHome {
        bytes32 commitment = commitmentFor(jobId, 0, revealFor(jobId, 0, 8));
        bytes32 seed = rounds.state(jobId).seed;
        vm.prank(provider(1));
        vm.expectRevert(abi.encodeWithSelector(RoundsBase.NotYourSeat.selector, 0, provider(0), provider(1)));
        rounds.commit(jobId, 0, seed, commitment);
        play(jobId);
        play(jobId);
    }

    function test_onlyTheHolderRevealsForItsSeat() public allHome {
        commitAll(jobId, 15);
        bytes32 seed = rounds.state(jobId).seed;
        Reveal memory r = revealFor(jobId, 0, 8);
        vm.prank(provider(1));
        vm.expectRevert(abi.encodeWithSelector(RoundsBase.NotYourSeat.selector, 0, provider(0), provider(1)));
        rounds.reveal(jobId, 0, seed, r);
        revealAll(jobId, 15);
        sayAll(jobId, 15);
        nextBlock();
        settle(jobId);
        play(jobId);
    }

    function test_P14_anyOtherContentIsNotTheReveal() public allHome {
        commitAll(jobId, 15);
        Reveal memory right = revealFor(jobId, 1, 8);
        bytes32 seed = rounds.state(jobId).seed;
        for (uint256 i = 0; i < 4; i++) {
            Reveal memory r = revealFor(jobId, 1, 8);
            if (i == 0) r.updateRoot = "x";
            if (i == 1) r.keyHash = "x";
            if (i == 2) r.salt = "x";
            if (i == 3) r.checkpointCommitments[100] ^= 0x01;
            vm.prank(provider(1));
            vm.expectPartialRevert(Rounds.WrongReveal.selector);
            rounds.reveal(jobId, 1, seed, r);
        }
        right.updateCid = "another hint";
        vm.prank(provider(1));
        rounds.reveal(jobId, 1, seed, right);
    }

    function test_P15_oneARound() public allHome {
        commitSeat(jobId, 1, revealFor(jobId, 1, 8));
        bytes32 seed = rounds.state(jobId).seed;
        vm.prank(provider(1));
        vm.expectPartialRevert(RoundsBase.NotWaitedFor.selector);
        rounds.commit(jobId, 1, seed, "again");
        commitAll(jobId, 13);
        revealSeat(jobId, 1, revealFor(jobId, 1, 8));
        Reveal memory r = revealFor(jobId, 1, 8);
        vm.prank(provider(1));
        vm.expectPartialRevert(RoundsBase.NotWaitedFor.selector);
        rounds.reveal(jobId, 1, seed, r);
    }

    function test_P16_aCopiedCommitmentCannotBeRevealed() public allHome {
        Reveal memory r = revealFor(jobId, 0, 8);
        bytes32 copied = commitmentFor(jobId, 0, r);
        bytes32 seed = rounds.state(jobId).seed;
        vm.prank(provider(1));
        rounds.commit(jobId, 1, seed, copied);
        commitAll(jobId, 13);
        vm.prank(provider(1));
        vm.expectPartialRevert(Rounds.WrongReveal.selector);
        rounds.reveal(jobId, 1, seed, r);
    }

    function test_P17_windowsAreDisjointAtEverySecond() public allHome {
        RoundState memory s = rounds.state(jobId);
        commitAll(jobId, 7);
        bytes32 last = commitmentFor(jobId, 3, revealFor(jobId, 3, 8));
        vm.warp(s.deadline - 1);
        vm.expectPartialRevert(RoundsBase.NothingToDo.selector);
        rounds.advance(jobId);
        vm.warp(s.deadline);
        vm.prank(provider(3));
        vm.expectPartialRevert(RoundsBase.DeadlinePassed.selector);
        rounds.commit(jobId, 3, s.seed, last);
        rounds.advance(jobId);
        inPhase(jobId, Phase.REVEAL);
        revealAll(jobId, 3);
        Reveal memory r = revealFor(jobId, 2, 8);
        vm.warp(rounds.state(jobId).deadline);
        vm.prank(provider(2));
        vm.expectPartialRevert(RoundsBase.DeadlinePassed.selector);
        rounds.reveal(jobId, 2, s.seed, r);
        rounds.advance(jobId);
        inPhase(jobId, Phase.MERGE);
        same(rounds.state(jobId).seated, 3, "who revealed");
        same(rounds.state(jobId).owing, 12, "who missed");
    }

    function test_anotherSeedIsRefused() public allHome {
        bytes32 seed = rounds.state(jobId).seed;
        bytes32 other = keccak256("of another history");
        vm.prank(provider(0));
        vm.expectRevert(abi.encodeWithSelector(RoundsBase.WrongSeed.selector, other, seed));
        rounds.commit(jobId, 0, other, "x");
        vm.prank(provider(0));
        vm.expectPartialRevert(RoundsBase.WrongSeed.selector);
        members.disagree(jobId, other, "root");
        commitAll(jobId, 15);
        revealAll(jobId, 15);
        vm.prank(verifier(0));
        vm.expectPartialRevert(RoundsBase.WrongSeed.selector);
        rounds.vote(jobId, 0, other, 15);
    }

    function test_P18_aMissedDutyNeverStallsAndTheSeatCanBeTakenAgain() public allHome {
        commitAll(jobId, 7);
        vm.warp(rounds.state(jobId).deadline);
        rounds.advance(jobId);
        stakeUp(provider(9), Role.PROVIDER, BOND);
        vm.prank(provider(9));
        vm.expectPartialRevert(bytes4(keccak256("SeatTaken(uint16)")));
        members.join(jobId, 3);
        members.penaliseSeat(jobId, 3);
        vm.prank(provider(9));
        members.join(jobId, 3);
        revealAll(jobId, 7);
        sayAll(jobId, 7);
        nextBlock();
        settle(jobId);
        same(rounds.state(jobId).seated, 15, "the new holder counts in the next round");
        play(jobId);
        vm.warp(rounds.timesOf(jobId, 1).windowEnd);
        jobs.claim(jobId, Role.PROVIDER, 5, 2);
        same(token.balanceOf(provider(9)), 8 * segmentPay(), "and is paid for that one");
    }

    function test_P18_everybodyOfflineForThreeWindowsAndBack() public allHome {
        for (uint256 i = 0; i < 3; i++) {
            endPhase(jobId);
            for (uint16 seat = 0; seat < 4; seat++) {
                members.penaliseSeat(jobId, seat);
                members.release(jobId, Role.PROVIDER, uint32(4 * i + seat + 1));
                join(jobId, seat, seat);
            }
            nextBlock();
            rounds.advance(jobId);
        }
        play(jobId);
        play(jobId);
        hasStatus(jobId, JobStatus.DONE);
    }

    function test_P19_theAuditSeedComesAfterTheLastReveal() public allHome {
        commitAll(jobId, 15);
        revealAll(jobId, 7);
        same(rounds.state(jobId).auditSeed, 0, "not before the last reveal");
        vm.expectPartialRevert(RoundsBase.WrongPhase.selector);
        rounds.seedAudit(jobId);
        revealAll(jobId, 8);
        same(rounds.state(jobId).auditSeed, 0, "nor with it");
        vm.expectRevert(abi.encodeWithSelector(RoundsBase.Unseeded.selector, block.number, block.number));
        rounds.seedAudit(jobId);
        castVote(jobId, 1, 15);
        same(rounds.state(jobId).auditSeed, 0, "nor with a vote of its block");
        uint256 opened = block.number;
        vm.roll(opened + 1);
        bytes32 seed_ = seedOf(opened);
        castVote(jobId, 0, 15);
        same(rounds.state(jobId).auditSeed, seed_, "but with the first one after, by the block that nobody knew in it");
        nextBlock();
        castVote(jobId, 2, 15);
        same(rounds.state(jobId).auditSeed, seed_, "and never again");
        nextCommittee(jobId);
        same(rounds.state(jobId).auditSeed, seed_, "another committee draw leaves it");
    }

    /// @return what a block's hash makes of the reveals
    function seedOf(uint256 number) private view returns (bytes32) {
        RoundState memory s = rounds.state(jobId);
        return Hashing.auditSeed(Hashing.RoundId(address(rounds), jobId, s.round), s.reveals, blockhash(number));
    }

    /// @dev Whoever asks, and when: a block later or two hundred, it is the same seed.
    function testFuzz_P19_whoeverAsksTheSeedIsTheSame(uint8 later) public {
        commitAll(jobId, 15);
        revealAll(jobId, 15);
        uint256 opened = block.number;
        vm.roll(opened + 1 + later % 256);
        bytes32 seed_ = seedOf(opened);
        rounds.seedAudit(jobId);
        same(rounds.state(jobId).auditSeed, seed_, "of the block in which MERGE opened");
        vm.expectPartialRevert(Rounds.AlreadySeeded.selector);
        rounds.seedAudit(jobId);
    }

    /// @dev A chain has forgotten it after 256 blocks: then it is another block's, which nobody
    /// knows yet, either.
    function test_P19_aForgottenBlockIsReplaced() public allHome {
        commitAll(jobId, 15);
        revealAll(jobId, 15);
        sayAll(jobId, 15); // in the same block
        vm.roll(block.number + 257);
        uint256 noted = block.number;
        Verdict memory v = verdictFor(jobId, 15);
        bytes memory all = certificate(jobId, digestFor(jobId, v), 7, 7);
        bytes memory slots = said[jobId][0].slots;
        uint256[] memory has = said[jobId][0].has;
        vm.expectPartialRevert(RoundsBase.Unseeded.selector);
        rounds.settle(jobId, slots, has, bare(v, all));
        rounds.seedAudit(jobId);
        same(rounds.state(jobId).auditSeed, 0, "noted");
        vm.expectPartialRevert(RoundsBase.Unseeded.selector);
        rounds.settle(jobId, slots, has, bare(v, all));
        vm.roll(noted + 1);
        bytes32 seed_ = seedOf(noted);
        rounds.settle(jobId, slots, has, bare(v, all));
        noteRecordOf(0, v, seed_);
    }

    function noteRecordOf(uint32 round, Verdict memory v, bytes32 seed_) private view {
        RoundRecord memory f = said[jobId][round].record;
        check(f.auditSeed == 0 && v.merged == 4, "nothing was noted before");
        same(rounds.state(jobId).committee, Draws.committee(Hashing.committeeSeed(seed_, 0), 7), "and drawn by");
    }

    /// @dev Else whoever brings the last member could, in one transaction, see the committee and
    /// undo it.
    function test_aFirstCommitteeIsDrawnByABlockThatNobodyKnewBefore() public allHome {
        Terms memory t = defaultTerms();
        (t.slots, t.minVerifiers) = (64, 40);
        jobId = create(t);
        for (uint256 i = 0; i < 4; i++) {
            join(jobId, 60 + i, uint16(i));
        }
        for (uint16 i = 0; i < 40; i++) {
            enrol(jobId, 60 + i, i);
        }
        rounds.advance(jobId);
        inPhase(jobId, Phase.WAITING);
        vm.expectPartialRevert(RoundsBase.Unseeded.selector);
        rounds.advance(jobId);
        uint256 noted = block.number;
        nextBlock();
        enrol(jobId, 100, 40); // too late for that draw
        vm.prank(verifier(60));
        members.leavePool(jobId);
        bytes32 seed_ = Hashing.dataSeed(Hashing.RoundId(address(rounds), jobId, 0), bytes32(0), blockhash(noted));
        rounds.advance(jobId);
        same(rounds.state(jobId).seed, seed_, "by that block");
        uint256 pool = Bits.firstBits(40) & ~uint256(1);
        same(rounds.state(jobId).committee, Draws.committee(seed_, pool), "of who was there in it, and still is");
    }

    function testFuzz_checkpointCommitmentsAreWholeSegments(uint16 length) public {
        uint256 bytes_ = within(length, 0, 600);
        Reveal memory r = revealFor(jobId, 0, 8);
        r.checkpointCommitments = new bytes(bytes_);
        commitSeat(jobId, 0, r);
        commitAll(jobId, 14);
        bytes32 seed = rounds.state(jobId).seed;
        bool isRight = bytes_ % 64 == 0 && bytes_ <= 512;
        vm.prank(provider(0));
        if (!isRight) vm.expectPartialRevert(Rounds.WrongCheckpointCommitments.selector);
        rounds.reveal(jobId, 0, seed, r);
        if (isRight) same(rounds.segmentsOf(jobId, 0, 0), bytes_ / 64, "segments");
    }

    /// @dev A job of providers 20 …, so that nobody is in two.
    function startOthers(Terms memory t) private returns (uint256 id) {
        id = create(t);
        for (uint256 i = 0; i < 4; i++) {
            join(id, 20 + i, uint16(i));
        }
        for (uint256 i = 0; i < 3; i++) {
            enrol(id, 20 + i, uint16(i));
        }
        nextBlock();
        rounds.advance(id);
    }

    function test_shortTwiceRunningIsAMissedDuty() public allHome {
        Terms memory t = defaultTerms();
        t.rounds = 4;
        uint256 id = startOthers(t);
        for (uint256 r = 0; r < 2; r++) {
            commitSeat(id, 0, revealFor(id, 0, 5));
            commitAll(id, 14);
            revealSeat(id, 0, revealFor(id, 0, 5));
            revealAll(id, 14);
            sayAll(id, 15);
            nextBlock();
            same(rounds.state(id).held, 15, "not before the second settlement");
            settle(id, verdictFor(id, 14));
        }
        same(rounds.state(id).held, 14, "the seat is free");
        members.penaliseSeat(id, 0);
        vm.warp(rounds.timesOf(id, 1).windowEnd);
        jobs.claim(id, Role.PROVIDER, 1, 2);
        same(token.balanceOf(provider(20)), 2 * 5 * segmentPay(), "segments done are paid");
    }

    function test_whoTakesASeatIsNotShortForWhoHadIt() public allHome {
        Terms memory t = defaultTerms();
        t.rounds = 4;
        uint256 id = startOthers(t);
        vm.prank(provider(20));
        members.leaveSeat(id);
        shortRound(id);
        endPhase(id); // nobody committed: the round is void, and opens again with others
        for (uint16 seat = 1; seat < 4; seat++) {
            members.penaliseSeat(id, seat);
        }
        for (uint256 i = 0; i < 4; i++) {
            join(id, 24 + i, uint16(i));
        }
        nextBlock();
        rounds.advance(id);
        same(rounds.state(id).round, 1, "the round that was void");
        shortRound(id);
        same(rounds.state(id).held, 15, "short for the first time");
        shortRound(id);
        same(rounds.state(id).held, 14, "and for the second");
    }

    function test_whoTakesASeatIsNotEmptyForWhoHadIt() public allHome {
        Terms memory t = defaultTerms();
        t.rounds = 4;
        uint256 id = startOthers(t);
        vm.prank(provider(20));
        members.leaveSeat(id);
        partRound(id, 0);
        join(id, 24, 0);
        play(id); // in which the seat does not count yet
        partRound(id, 0);
        same(rounds.state(id).held, 15, "empty for the first time");
    }

    function test_ofEachRoundAsMuchIsPaidAsWasDoneInIt() public allHome {
        Terms memory t = defaultTerms();
        t.rounds = 4;
        uint256 id = startOthers(t);
        partRound(id, 6);
        partRound(id, 7);
        same(rounds.state(id).held, 15, "three quarters are not short");
        play(id);
        vm.warp(rounds.timesOf(id, 1).windowEnd);
        jobs.claim(id, Role.PROVIDER, 1, 2);
        same(token.balanceOf(provider(20)), (6 + 7) * segmentPay(), "of two rounds, and not of the third");
    }

    function test_ofALostRoundAsMuchIsBurntAsWasRevealed() public allHome {
        Terms memory t = defaultTerms();
        t.rounds = 3;
        jobId = start(t, 4, 3);
        play(jobId);
        commitSeat(jobId, 0, revealFor(jobId, 0, 5));
        commitAll(jobId, 14);
        revealSeat(jobId, 0, revealFor(jobId, 0, 5));
        revealAll(jobId, 14);
        sayAll(jobId, 14);
        nextBlock();
        settle(jobId, verdictFor(jobId, 14));
        play(jobId);
        vm.warp(rounds.timesOf(jobId, 1).windowEnd);
        jobs.burn(jobId, 2);
        same(jobs.escrowOf(jobId).burnt, 5 * segmentPay(), "five segments of eight");
    }

    /// @dev Seat 0 does five segments of eight.
    function shortRound(uint256 id) private {
        partRound(id, 5);
    }

    function partRound(uint256 id, uint256 segments) private {
        commitSeat(id, 0, revealFor(id, 0, segments));
        commitAll(id, 14);
        revealSeat(id, 0, revealFor(id, 0, segments));
        revealAll(id, 14);
        sayAll(id, 15);
        nextBlock();
        settle(id, verdictFor(id, 14));
    }

    // --- votes and settlement ---

    function test_mergeEndsWhenNoVoteCanChangeIt() public allHome {
        commitAll(jobId, 15);
        revealAll(jobId, 15);
        castVote(jobId, 0, 15);
        Verdict memory v = verdictFor(jobId, 15);
        bytes memory slots = said[jobId][0].slots;
        uint256[] memory has = said[jobId][0].has;
        vm.expectPartialRevert(RoundsSettlement.StillOpen.selector);
        rounds.settle(jobId, slots, has, bare(v, ""));
        castVote(jobId, 1, 15);
        nextBlock();
        settle(jobId); // two of three have all of them
        inPhase(jobId, Phase.TRAIN);
    }

    function test_aVoteIsCastOnceInTimeByTheMemberItself() public allHome {
        commitAll(jobId, 15);
        revealAll(jobId, 15);
        bytes32 seed = rounds.state(jobId).seed;
        vm.expectPartialRevert(RoundsBase.NotYourSlot.selector);
        rounds.vote(jobId, 0, seed, 15);
        vm.startPrank(verifier(0));
        vm.expectPartialRevert(Rounds.NotInCommittee.selector);
        rounds.vote(jobId, 3, seed, 15);
        vm.expectPartialRevert(Rounds.NotInCommittee.selector);
        rounds.vote(jobId, 256, seed, 15);
        vm.expectPartialRevert(RoundsBase.WrongSeed.selector);
        rounds.vote(jobId, 0, "x", 15);
        vm.stopPrank();
        castVote(jobId, 0, 15);
        vm.prank(verifier(0));
        vm.expectRevert(abi.encodeWithSelector(Rounds.AlreadyVoted.selector, 0));
        rounds.vote(jobId, 0, seed, 7);
        castVote(jobId, 1, 15);
        vm.warp(rounds.state(jobId).deadline - 1); // time to sign
        vm.prank(verifier(2));
        vm.expectPartialRevert(RoundsBase.DeadlinePassed.selector);
        rounds.vote(jobId, 2, seed, 15);
        settle(jobId);
    }

    function test_votesOfOthersOrInAnotherOrderAreRefused() public allHome {
        toVotes(jobId);
        Verdict memory v = verdictFor(jobId, 15);
        uint256[] memory has = said[jobId][0].has;
        vm.expectPartialRevert(RoundsSettlement.WrongVotes.selector);
        rounds.settle(jobId, hex"010002", has, bare(v, ""));
        has[1] = 14;
        vm.expectPartialRevert(RoundsSettlement.WrongVotes.selector);
        rounds.settle(jobId, hex"000102", has, bare(v, ""));
    }

    /// forge-config: default.fuzz.runs = 32
    function testFuzz_availableIsMoreThanHalfOfTheVotes(uint8[7] memory saysOf, uint8 count) public {
        (jobId, count) = (biggerJob(), uint8(within(count, 0, 7)));
        commitAll(jobId, 15);
        revealAll(jobId, 15);
        for (uint16 slot = 0; slot < count; slot++) {
            castVote(jobId, slot, saysOf[slot]);
        }
        vm.warp(rounds.state(jobId).deadline);
        uint256 available;
        for (uint256 seat = 0; seat < 4; seat++) {
            uint256 votes;
            for (uint256 i = 0; i < count; i++) {
                if (uint256(saysOf[i]).has(seat)) votes++;
            }
            if (2 * votes > 7) available |= Bits.bit(seat);
        }
        settle(jobId, verdictFor(jobId, available));
        (uint256 pay, uint256 lost,) = rounds.rowsOf(jobId, 0);
        same(pay, available, "paid");
        same(lost, 15 & ~available, "burnt");
    }

    function biggerJob() internal returns (uint256 id) {
        Terms memory t = defaultTerms();
        (t.slots, t.minVerifiers) = (7, 7);
        id = create(t);
        for (uint256 i = 0; i < 4; i++) {
            join(id, 40 + i, uint16(i));
        }
        for (uint256 i = 0; i < 7; i++) {
            enrol(id, 40 + i, uint16(i));
        }
        nextBlock();
        rounds.advance(id);
    }

    function test_P22_P23_oneSignatureOfEachMemberAndOfNobodyElse() public allHome {
        toVotes(jobId);
        Verdict memory v = verdictFor(jobId, 15);
        bytes32 digest = digestFor(jobId, v);
        noteRecord(jobId, v);
        bytes memory one = signatureOf(verifierKey(0), digest);
        bytes memory two = signatureOf(verifierKey(1), digest);
        refuses(v, bytes.concat(bytes4(uint32(3)), one, one), RoundsSettlement.TooFewSigners.selector);
        refuses(v, bytes.concat(bytes4(uint32(3)), two, one), RoundsSettlement.TooFewSigners.selector);
        refuses(v, bytes.concat(bytes4(uint32(3)), one, two, hex"00"), EcdsaPolicy.WrongLength.selector);
        refuses(v, bytes.concat(bytes4(uint32(9)), one, two), EcdsaPolicy.NotInCommittee.selector);
        refuses(v, bytes.concat(bytes4(uint32(1)), one), RoundsSettlement.TooFewSigners.selector);
        bytes memory stranger = signatureOf(0xbad, digest);
        refuses(v, bytes.concat(bytes4(uint32(3)), one, stranger), RoundsSettlement.TooFewSigners.selector);
        rounds.settle(jobId, hex"000102", said[jobId][0].has, bare(v, bytes.concat(bytes4(uint32(3)), one, two)));
    }

    function test_P22_aHighSignatureIsNone() public allHome {
        toVotes(jobId);
        Verdict memory v = verdictFor(jobId, 15);
        bytes32 digest = digestFor(jobId, v);
        (uint8 parity, bytes32 r, bytes32 s) = vm.sign(verifierKey(0), digest);
        uint256 order = 0xfffffffffffffffffffffffffffffffebaaedce6af48a03bbfd25e8cd0364141;
        bytes memory high =
            abi.encodePacked(uint16(65), r, bytes32(order - uint256(s)), parity == 27 ? uint8(28) : uint8(27));
        bytes memory two = signatureOf(verifierKey(1), digest);
        refuses(v, bytes.concat(bytes4(uint32(3)), high, two), RoundsSettlement.TooFewSigners.selector);
    }

    function refuses(Verdict memory v, bytes memory certificate_, bytes4 why) internal {
        uint256[] memory has = said[jobId][0].has;
        vm.expectPartialRevert(why);
        rounds.settle(jobId, hex"000102", has, bare(v, certificate_));
    }

    function test_P24_aCertificateBindsRoundSeedAndVotes() public allHome {
        toVotes(jobId);
        Verdict memory v = verdictFor(jobId, 15);
        Hashing.RoundId memory roundId = Hashing.RoundId(address(rounds), jobId, 0);
        RoundState memory s = rounds.state(jobId);
        bytes32 kept = Hashing.cut(s.votes);
        bytes32 right = digestFor(jobId, v);
        check(trainer.digest(roundId, s.seed, "votes", v) != right, "votes");
        check(trainer.digest(roundId, "seed", kept, v) != right, "seed");
        roundId.jobId++;
        check(trainer.digest(roundId, s.seed, kept, v) != right, "job");
        v.excluded = 1;
        check(digestFor(jobId, v) != right, "left out");
    }

    function test_P25_twoCertificatesOverTheSameVotesCostTheBondOnce() public allHome {
        toVotes(jobId);
        Certified[2] memory shown;
        for (uint256 i = 0; i < 2; i++) {
            shown[i].verdict = verdictFor(jobId, 15);
            if (i == 1) shown[i].verdict.state = "another";
            bytes32 digest = digestFor(jobId, shown[i].verdict);
            shown[i].certificate = bytes.concat(bytes4(uint32(1)), signatureOf(verifierKey(2), digest));
            shown[i].accounts = new address[](1);
            shown[i].accounts[0] = verifier(2);
        }
        RoundState memory s = rounds.state(jobId);
        bytes32 kept = Hashing.cut(s.votes);
        vm.expectPartialRevert(LateVotes.NotSigned.selector);
        lateVotes.equivocated(jobId, 0, 1, s.seed, kept, shown);
        vm.prank(OUTSIDER);
        lateVotes.equivocated(jobId, 0, 3, s.seed, kept, shown);
        same(lockedOf(verifier(2), Role.VERIFIER), 0, "the bond");
        same(activeOf(OUTSIDER, Role.VERIFIER), 0, "nobody's gain");
        vm.expectPartialRevert(bytes4(keccak256("FaultUsed(bytes32)")));
        lateVotes.equivocated(jobId, 0, 3, s.seed, kept, shown);
        shown[1] = shown[0];
        vm.expectPartialRevert(bytes4(keccak256("NoContradiction(uint32)")));
        lateVotes.equivocated(jobId, 0, 3, s.seed, kept, shown);
    }

    function test_verdictsAreWithinWhatTheRuleBears() public allHome {
        toVotes(jobId);
        Verdict memory v = verdictFor(jobId, 15);
        (v.excluded, v.merged) = (3, 2); // f is 1
        refuses(v, "", RoundsSettlement.WrongVerdict.selector);
        v.excluded = 16; // nobody
        refuses(v, "", RoundsSettlement.WrongVerdict.selector);
        (v.excluded, v.merged) = (1, 4);
        refuses(v, "", RoundsSettlement.WrongVerdict.selector);
        v.merged = 3;
        nextBlock();
        settle(jobId, v);
        check(drawn(jobId, 0).has(0), "who was left out is drawn");
    }

    function test_aSilentCommitteeDrawIsReplacedAndItsSilentMembersMiss() public allHome {
        commitAll(jobId, 15);
        revealAll(jobId, 15);
        castVote(jobId, 0, 15);
        castVote(jobId, 1, 15);
        nextCommittee(jobId);
        same(rounds.state(jobId).committeeDraw, 1, "the next committee draw");
        same(rounds.absentOf(jobId, 0), 4, "the silent");
        sayAll(jobId, 15);
        nextBlock();
        settle(jobId);
        members.penaliseMember(jobId, 0, 3);
        same(lockedOf(verifier(2), Role.VERIFIER), BOND - 1 ether, "cut");
        vm.expectPartialRevert(Members.NotAbsent.selector);
        members.penaliseMember(jobId, 0, 1);
    }

    function test_lateSignaturesAreTakenUntilTheNextSettlement() public allHome {
        toVotes(jobId);
        nextBlock();
        Verdict memory v = verdictFor(jobId, 15);
        bytes32 digest = digestFor(jobId, v);
        noteRecord(jobId, v);
        rounds.settle(jobId, hex"000102", said[jobId][0].has, bare(v, certificate(jobId, digest, 7, 3)));
        rounds.sign(
            jobId, said[jobId][0].record, 3, bytes.concat(bytes4(uint32(1)), signatureOf(verifierKey(2), digest))
        );
        (,, uint256 signed) = rounds.rowsOf(jobId, 0);
        same(signed, 7, "and paid");
    }

    function test_aSignatureOfTheLastRoundIsPaidUntilItsAuditIsOver() public {
        play(jobId);
        toVotes(jobId);
        nextBlock();
        settleBy(jobId, verdictFor(jobId, 15), 3);
        hasStatus(jobId, JobStatus.DONE);
        Said storage last = said[jobId][1];
        bytes memory late = bytes.concat(bytes4(uint32(1)), signatureOf(verifierKey(2), last.digest));
        vm.warp(rounds.timesOf(jobId, 1).auditEnd);
        vm.expectPartialRevert(bytes4(keccak256("SigningOver(uint32)")));
        rounds.sign(jobId, last.record, 3, late);
        vm.warp(block.timestamp - 1);
        rounds.sign(jobId, last.record, 3, late);
        (,, uint256 signed) = rounds.rowsOf(jobId, 1);
        same(signed, 7, "and paid");
        same(rounds.absentOf(jobId, 1), 0, "who has not signed misses nothing");
    }

    function test_theLastAuditHasAWindowForEverySeatThatAnAuditorMayHave() public allHome {
        play(jobId);
        Times memory first = rounds.timesOf(jobId, 0);
        same(first.auditEnd - first.settledAt, 700, "any other has one");
        play(jobId);
        Times memory last = rounds.timesOf(jobId, 1);
        same(last.auditEnd - last.settledAt, 2 * 700, "four audits by three auditors are two each");
    }

    /// Else two auditors of many seats would keep every bond for weeks.
    function test_theLastAuditHasNoMoreThanSixteenWindows() public {
        Terms memory t = defaultTerms();
        (t.rounds, t.seats) = (1, 40);
        uint256 id = start(t, 40, 2);
        play(id);
        Times memory last = rounds.timesOf(id, 0);
        same(last.auditEnd - last.settledAt, 16 * 700, "40 audits by two auditors would have 20");
    }

    function test_theAbsoluteEndIsAfterTheLongestOfEverything() public view {
        uint256 lastRound = jobs.termsOf(jobId).expiry + 600 + 100 + 2 * 100;
        uint256 itsWindows = 16 * 700 + 100 + 100 + 2_000;
        same(rounds.absoluteEnd(jobId), lastRound + itsWindows + 6 * LONGEST, "from SPEC-ROUNDS");
    }

    function test_whereAllOfThePoolLeaveTheNextCommitteeIsOfThoseWhoCame() public allHome {
        Terms memory t = defaultTerms();
        t.slots = 6;
        jobId = start(t, 4, 3);
        for (uint16 slot = 3; slot < 6; slot++) {
            enrol(jobId, slot, slot);
        }
        for (uint256 i = 0; i < 3; i++) {
            vm.prank(verifier(i));
            members.leavePool(jobId);
        }
        play(jobId);
        same(rounds.state(jobId).committee, 0x38, "the three who came");
        play(jobId);
        hasStatus(jobId, JobStatus.DONE);
    }

    function test_aVerdictsCidIsNoLongerThanItMayBe() public allHome {
        toVotes(jobId);
        nextBlock();
        Verdict memory v = verdictFor(jobId, 15);
        v.cid = new bytes(129);
        refuses(v, "", RoundsSettlement.CidTooLong.selector);
        v.cid = new bytes(128);
        settle(jobId, v);
    }

    function test_threeRoundsThatMergeNothingCloseTheJob() public allHome {
        Terms memory t = defaultTerms();
        t.rounds = 5;
        jobId = create(t);
        for (uint256 i = 0; i < 4; i++) {
            join(jobId, 30 + i, uint16(i));
        }
        for (uint256 i = 0; i < 3; i++) {
            enrol(jobId, 30 + i, uint16(i));
        }
        nextBlock();
        rounds.advance(jobId);
        for (uint256 r = 0; r < 3; r++) {
            toVotes(jobId);
            nextBlock();
            Verdict memory v = verdictFor(jobId, 15);
            v.merged = 0;
            settle(jobId, v);
        }
        hasStatus(jobId, JobStatus.EXPIRED);
        vm.warp(rounds.timesOf(jobId, 2).windowEnd);
        jobs.claim(jobId, Role.PROVIDER, 1, 3);
        same(token.balanceOf(provider(30)), 3 * 8 * segmentPay(), "rounds done are paid");
    }

    /// @dev Otherwise a seat taken while a void round ran would count in its second opening, and
    /// nothing it said could be shown.
    function voidsForNobodyCommits() private {
        endPhase(jobId);
        inPhase(jobId, Phase.WAITING);
    }

    function test_whoTakesASlotThatWasLeftInAVoidRoundCountsFromTheNextOne() public allHome {
        Terms memory t = defaultTerms();
        t.seats = 8;
        jobId = start(t, 4, 3);
        vm.prank(verifier(0));
        members.leavePool(jobId);
        voidsForNobodyCommits();
        same(members.holderOf(jobId, Role.VERIFIER, enrol(jobId, 3, 0)).from, 1, "not in the one that opens again");
        opensWithOthers();
        check(memberAt(jobId, 0) == verifier(0), "in which the other still counts");
        play(jobId);
        check(memberAt(jobId, 0) == verifier(3), "and then it");
        play(jobId);
    }

    function test_whoJoinsInMergeCountsFromTheNextRound() public allHome {
        Terms memory t = defaultTerms();
        t.seats = 6;
        jobId = start(t, 4, 3);
        same(members.holderOf(jobId, Role.PROVIDER, join(jobId, 4, 4)).from, 0, "the round may open again");
        toMerge(jobId);
        same(members.holderOf(jobId, Role.PROVIDER, join(jobId, 5, 5)).from, 1, "from MERGE on it does not");
        sayAll(jobId, 15);
        nextBlock();
        settle(jobId, verdictFor(jobId, 15));
        play(jobId);
    }

    function test_oneVoteOfThreeDecidesNothing() public allHome {
        toMerge(jobId);
        castVote(jobId, 0, 0);
        nextBlock();
        noteRecord(jobId, verdictFor(jobId, 0));
        Certified memory shown =
            bare(verdictFor(jobId, 0), certificate(jobId, digestFor(jobId, verdictFor(jobId, 0)), 7, 7));
        (bytes memory slots, uint256[] memory has) = (said[jobId][0].slots, said[jobId][0].has);
        vm.expectPartialRevert(RoundsSettlement.StillOpen.selector);
        rounds.settle(jobId, slots, has, shown);
        castVote(jobId, 1, 0);
        nextBlock();
        settle(jobId, verdictFor(jobId, 0));
        play(jobId);
    }

    function test_aCancelledJobEndsWithARoundThatIsVoid() public allHome {
        vm.prank(SUBMITTER);
        jobs.cancel(jobId);
        hasStatus(jobId, JobStatus.ACTIVE);
        vm.warp(rounds.state(jobId).deadline);
        rounds.advance(jobId);
        hasStatus(jobId, JobStatus.CANCELLED);
        inPhase(jobId, Phase.CLOSED);
    }

    /// @dev Nobody asked for the seed while its block could be looked up: another block gives it,
    /// and then the committee draw.
    function test_noCommitteeDrawIsDrawnByASeedThatNobodyCanWorkOut() public allHome {
        toMerge(jobId);
        vm.roll(block.number + 300);
        vm.warp(rounds.state(jobId).deadline);
        rounds.advance(jobId);
        same(rounds.state(jobId).committeeDraw, 0, "not yet");
        same(uint256(rounds.state(jobId).auditSeed), 0, "its block is too old");
        nextBlock();
        rounds.advance(jobId);
        same(rounds.state(jobId).committeeDraw, 1, "by the block of the first call");
        check(rounds.state(jobId).auditSeed != 0, "which is the seed's");
    }

    function test_afterTheLastMomentNothingSettles() public allHome {
        toVotes(jobId);
        nextBlock();
        Terms memory t = jobs.termsOf(jobId);
        uint256 last = t.expiry + t.trainSeconds + t.revealSeconds + 2 * t.mergeSeconds;
        (bytes memory slots, uint256[] memory has) = (said[jobId][0].slots, said[jobId][0].has);
        vm.warp(last);
        vm.expectRevert(abi.encodeWithSelector(RoundsBase.DeadlinePassed.selector, last, last));
        rounds.settleLate(jobId, slots, has);
        vm.warp(last - 1);
        rounds.settleLate(jobId, slots, has);
        hasStatus(jobId, JobStatus.EXPIRED);
    }

    function opensWithOthers() private {
        for (uint16 seat = 4; seat < 7; seat++) {
            join(jobId, seat, seat);
        }
        nextBlock();
        rounds.advance(jobId);
    }

    function test_whoEnrolledForTheRoundAfterAVoidOneAndLeavesIsNotInItsPool() public allHome {
        Terms memory t = defaultTerms();
        (t.seats, t.slots) = (8, 4);
        jobId = start(t, 4, 3);
        enrol(jobId, 3, 3);
        voidsForNobodyCommits();
        vm.prank(verifier(3));
        members.leavePool(jobId);
        opensWithOthers();
        play(jobId);
        same(rounds.state(jobId).ready, 7, "an empty slot is not ready");
        play(jobId);
    }

    function test_whoSaidReadyInAVoidRoundIsInThePoolOfTheSameThatOpensAgain() public allHome {
        Terms memory t = defaultTerms();
        (t.seats, t.slots, t.minVerifiers) = (8, 4, 3);
        jobId = create(t);
        for (uint256 i = 0; i < 4; i++) {
            join(jobId, i, uint16(i));
        }
        enrolUnready(jobId, 3, 3);
        for (uint256 i = 0; i < 3; i++) {
            enrol(jobId, i, uint16(i));
        }
        nextBlock();
        rounds.advance(jobId);
        inPhase(jobId, Phase.TRAIN);
        same(rounds.state(jobId).ready, 7, "not yet");
        vm.prank(verifier(3));
        members.ready(jobId);
        voidsForNobodyCommits();
        same(rounds.state(jobId).ready, 15, "the round opens again with it");
        opensWithOthers();
        play(jobId);
        play(jobId);
    }

    function test_aVoidRoundOpensAgainWithSeatsThatCameAndItsOwnPool() public allHome {
        Terms memory t = defaultTerms();
        t.seats = 8;
        jobId = start(t, 4, 3);
        uint32 id = join(jobId, 4, 4);
        check(members.holderOf(jobId, Role.PROVIDER, id).from == 0, "from");
        vm.prank(verifier(0));
        members.leavePool(jobId);
        enrol(jobId, 3, 0);
        endPhase(jobId);
        RoundState memory s = rounds.state(jobId);
        check(s.phase == Phase.WAITING && s.round == 0 && s.ready == 7, "waits with its pool");
        join(jobId, 5, 5);
        join(jobId, 6, 6);
        nextBlock();
        rounds.advance(jobId);
        check(rounds.state(jobId).seated == 0x70, "seated");
        check(memberAt(jobId, 0) == verifier(0), "who left counts until the settlement");
        toVotes(jobId);
        settle(jobId, verdictFor(jobId, 0x70));
        check(memberAt(jobId, 0) == verifier(3), "and then the next");
        Shown memory shown = shownFor(jobId, 0, 4);
        vm.expectPartialRevert(Reveals.WrongKey.selector); // so what the seat said has been proved
        audits.leak(shown, "another key");
        vm.warp(rounds.timesOf(jobId, 0).windowEnd);
        jobs.claim(jobId, Role.PROVIDER, id, 1);
        same(token.balanceOf(provider(4)), 8 * segmentPay(), "paid");
    }

    function test_disagreeingLeavesWithoutAMissedDuty() public allHome {
        bytes32 seed = rounds.state(jobId).seed;
        vm.prank(provider(3));
        members.disagree(jobId, seed, "another root");
        same(rounds.state(jobId).seated, 7, "does not count");
        commitAll(jobId, 7);
        inPhase(jobId, Phase.REVEAL);
        same(rounds.state(jobId).owing, 0, "and owes nothing");
    }

    /// @dev Else every missed duty of a commit could be taken back in the block that would note it.
    function test_whoHasMissedTheDeadlineCannotDisagreeAnyMore() public allHome {
        RoundState memory s = rounds.state(jobId);
        commitAll(jobId, 7);
        vm.warp(s.deadline);
        vm.prank(provider(3));
        vm.expectRevert(abi.encodeWithSelector(Members.NotNow.selector, jobId, Phase.TRAIN));
        members.disagree(jobId, s.seed, "another root");
        rounds.advance(jobId);
        same(rounds.state(jobId).owing, 8, "it owes its penalty");
    }

    function test_committeeIsTheSmallestTicketsOfThePool() public pure {
        uint256 pool = type(uint256).max << 3;
        uint256 drawn_ = Draws.committee("seed", pool);
        same(drawn_.popcount(), 32, "members");
        bytes32 largest;
        for (uint256 left = drawn_; left != 0; left &= left - 1) {
            bytes32 ticket = Draws.ticket("seed", left.lowest());
            if (ticket > largest) largest = ticket;
        }
        for (uint256 left = pool & ~drawn_; left != 0; left &= left - 1) {
            check(Draws.ticket("seed", left.lowest()) > largest, "nobody with a smaller one is left out");
        }
    }
}
