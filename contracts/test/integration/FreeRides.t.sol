// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {Audits} from "../../src/Audits.sol";
import {Members} from "../../src/Members.sol";
import {Rounds} from "../../src/Rounds.sol";
import {LateVotes} from "../../src/LateVotes.sol";
import {Having} from "../../src/interfaces/ILateVotes.sol";
import {Evidence} from "../../src/judge/Claims.sol";
import {Bits} from "../../src/libraries/Bits.sol";
import {Draws} from "../../src/libraries/Draws.sol";
import {Hashing} from "../../src/libraries/Hashing.sol";
import {Shown} from "../../src/libraries/Reveals.sol";
import {RoundsBase} from "../../src/rounds/RoundsBase.sol";
import "../../src/types/Types.sol";
import {Network} from "../support/Network.sol";

/// @title What somebody would do because it costs nothing, and what it costs.
contract FreeRidesTest is Network {
    using Bits for uint256;

    /// @return t with f = 0, so that everybody is audited
    function audited() private view returns (Terms memory t) {
        t = defaultTerms();
        (t.rounds, t.f) = (9, 0);
    }

    /// @dev A round in which one seat revealed so many segments; nobody needs the others' updates.
    function playWith(uint256 jobId, uint16 seat, uint256 segments) private returns (uint32 round) {
        round = rounds.state(jobId).round;
        uint256 others = rounds.state(jobId).seated & ~Bits.bit(seat);
        commitSeat(jobId, seat, revealFor(jobId, seat, segments));
        commitAll(jobId, others);
        revealSeat(jobId, seat, revealFor(jobId, seat, segments));
        revealAll(jobId, others);
        sayAll(jobId, others);
        nextBlock();
        settle(jobId, verdictFor(jobId, others));
    }

    // --- a seat that did nothing ---

    function test_aSeatWithoutASegmentIsNobodysDutyAndOwesNoKey() public allHome onlyTheGuiltyPay {
        uint256 jobId = start(audited(), 4, 3);
        uint32 round = playWith(jobId, 1, 0);
        for (uint32 id = 1; id <= 3; id++) {
            check(!dutiesOf(jobId, round, uint16(id - 1)).has(1), "no duty");
            bytes memory body =
                abi.encodePacked(uint8(1), type(uint16).max, validDigest(jobId, round, 1, verifier(id - 1)));
            auditReportBody(jobId, round, id, body);
        }
        vm.warp(rounds.timesOf(jobId, round).auditEnd);
        RoundRecord memory f = said[jobId][round].record;
        for (uint32 id = 1; id <= 3; id++) {
            bytes memory body =
                abi.encodePacked(uint8(1), type(uint16).max, validDigest(jobId, round, 1, verifier(id - 1)));
            vm.prank(verifier(id - 1));
            vm.expectPartialRevert(Audits.NotADuty.selector);
            audits.open(jobId, round, id, f, body, "salt");
        }
        vm.warp(rounds.timesOf(jobId, round).half);
        for (uint32 id = 1; id <= 3; id++) {
            vm.expectPartialRevert(Audits.NotADuty.selector);
            audits.absent(jobId, round, id, 1, f, "");
        }
        Shown memory s = shownFor(jobId, round, 1, revealOf(jobId, round, 1, 0));
        vm.expectPartialRevert(Audits.NotDrawn.selector);
        audits.reportMissingKey(s);
    }

    function revealOf(uint256 jobId, uint32 round, uint16 seat, uint256 segments) private view returns (Reveal memory) {
        return trainer.train(jobId, round, seat, keyOf(jobId, round, seat), segments);
    }

    function test_noSegmentTwiceInThreeRoundsIsAMissedDuty() public allHome onlyTheGuiltyPay {
        uint256 jobId = start(audited(), 4, 3);
        uint8[6] memory done = [0, 8, 8, 0, 8, 0];
        for (uint256 r = 0; r < 6; r++) {
            same(rounds.state(jobId).owing, 0, "not yet");
            playWith(jobId, 1, done[r]);
        }
        same(rounds.state(jobId).owing, 2, "now");
        same(rounds.state(jobId).held, 13, "the seat is free");
    }

    function test_whoTakesASeatIsNotShortForWhoHadIt() public allHome onlyTheGuiltyPay {
        uint256 jobId = start(audited(), 4, 3);
        playWith(jobId, 1, 0);
        vm.prank(provider(1));
        members.leaveSeat(jobId);
        playWith(jobId, 1, 8);
        join(jobId, 9, 1);
        play(jobId);
        playWith(jobId, 1, 0);
        same(rounds.state(jobId).owing, 0, "its own first");
        play(jobId);
        playWith(jobId, 1, 4);
        same(rounds.state(jobId).owing, 2, "and its own second");
    }

    // --- a commitment that is bound to another seed ---

    /// Of such a reveal nothing could ever be shown: no game, no key that it owes, and its honest
    /// auditor's accusation, which nobody could play, would be dropped.
    function test_whatIsBoundToAnotherSeedIsNotRevealed() public allHome onlyTheGuiltyPay {
        uint256 jobId = start(audited(), 4, 3);
        RoundState memory s = rounds.state(jobId);
        Reveal memory r = revealFor(jobId, 1, 8);
        bytes32 other = keccak256("of no round");
        Hashing.RoundId memory roundId = Hashing.RoundId(address(rounds), jobId, s.round);
        bytes32 unshowable = trainer.commitment(roundId, other, 1, provider(1), s.model, r);
        vm.prank(provider(1));
        rounds.commit(jobId, 1, s.seed, unshowable);
        commitAll(jobId, 13);
        blame(provider(1));
        vm.startPrank(provider(1));
        vm.expectRevert(abi.encodeWithSelector(RoundsBase.WrongSeed.selector, other, s.seed));
        rounds.reveal(jobId, 1, other, r);
        vm.expectPartialRevert(Rounds.WrongReveal.selector);
        rounds.reveal(jobId, 1, s.seed, r);
        vm.stopPrank();
    }

    // --- disagreeing ---

    function test_whoDisagreesIsBoundAsLongAsAnAuditTakes() public allHome onlyTheGuiltyPay {
        uint256 jobId = start();
        bytes32 seed = rounds.state(jobId).seed;
        vm.startPrank(provider(3));
        vm.expectRevert(Members.NoRoot.selector);
        members.disagree(jobId, seed, 0);
        members.disagree(jobId, seed, "another root");
        uint256 until = block.timestamp + 700 + 100 + 100 + 2_000;
        vm.expectPartialRevert(Members.AlreadyMember.selector); // no second disagreement with one bond and account
        members.join(jobId, 3);
        vm.stopPrank();
        commitAll(jobId, 7);
        same(rounds.state(jobId).owing, 0, "it owes nothing");
        vm.warp(until - 1);
        vm.expectPartialRevert(Members.StillBound.selector);
        members.release(jobId, Role.PROVIDER, 4);
        vm.warp(until);
        members.release(jobId, Role.PROVIDER, 4);
        same(lockedOf(provider(3), Role.PROVIDER), 0, "all of it comes home");
    }

    // --- a job's last round ---

    /// @dev Three of four seats work until the very last moments that the phases have.
    function test_aRoundThatOpensJustBeforeExpiryCanStillBeSettledLate() public allHome onlyTheGuiltyPay {
        Terms memory t = defaultTerms();
        uint256 jobId = create(t);
        for (uint256 i = 0; i < 4; i++) {
            join(jobId, i, uint16(i));
            if (i < 3) enrol(jobId, i, uint16(i));
        }
        vm.warp(t.expiry - 1);
        nextBlock();
        vm.warp(t.expiry - 1);
        rounds.advance(jobId);
        commitAll(jobId, 7);
        vm.warp(rounds.state(jobId).deadline);
        rounds.advance(jobId); // one is missing, so the phase lasts as long as it can
        revealAll(jobId, 3);
        vm.warp(rounds.state(jobId).deadline);
        rounds.advance(jobId);
        sayAll(jobId, 3); // and nobody signs
        nextBlock();
        vm.warp(rounds.state(jobId).deadline);
        Verdict memory none;
        none.state = rounds.state(jobId).model;
        rounds.settleLate(jobId, said[jobId][0].slots, said[jobId][0].has);
        hasStatus(jobId, JobStatus.EXPIRED);
        vm.warp(rounds.timesOf(jobId, 0).windowEnd);
        jobs.claim(jobId, Role.PROVIDER, 1, 1);
        same(token.balanceOf(provider(0)), 8 * segmentPay(), "paid");
        check(rounds.absoluteEnd(jobId) >= rounds.timesOf(jobId, 0).windowEnd, "and all ends in time");
    }

    function test_fromTheLastMomentOnNothingIsSettled() public allHome onlyTheGuiltyPay {
        uint256 jobId = start();
        toVotes(jobId);
        vm.warp(defaultTerms().expiry + 600 + 100 + 2 * 100); // the job was made in the same second
        bytes memory slots = said[jobId][0].slots;
        uint256[] memory has = said[jobId][0].has;
        vm.expectPartialRevert(RoundsBase.DeadlinePassed.selector);
        rounds.settleLate(jobId, slots, has);
    }

    /// @dev A phase that somebody began late may end behind it: what is shown there earns nobody
    /// anything, and who is silent misses nothing.
    function test_fromTheLastMomentOnWhatIsRevealedCountsNothing() public allHome onlyTheGuiltyPay {
        uint256 jobId = start();
        blame(provider(3));
        commitAll(jobId, 7);
        uint256 lastMoment = defaultTerms().expiry + 600 + 100 + 2 * 100; // the job was made in the same second
        vm.warp(lastMoment - 50);
        rounds.advance(jobId);
        vm.warp(lastMoment);
        revealAll(jobId, 1);
        rounds.advance(jobId);
        hasStatus(jobId, JobStatus.EXPIRED);
        same(rounds.state(jobId).round, 0, "nothing is settled");
        same(rounds.state(jobId).owing, 8, "who did not commit");
    }

    // --- committee draws of large pools ---

    /// @dev Whoever holds n penalties back, or has them made, chose among 2ⁿ committees.
    function test_penaltiesThatAreHeldBackChangeNobodyElsesLuck() public allHome onlyTheGuiltyPay {
        Terms memory t = audited();
        (t.slots, t.minVerifiers) = (64, 3);
        uint256 jobId = start(t, 4, 48);
        uint256 committee = rounds.state(jobId).committee;
        same(committee.popcount(), 32, "a committee draw");
        commitAll(jobId, 15);
        revealAll(jobId, 15);
        uint256 silent = committee & ~(committee & (committee - 1)); // one says nothing
        for (uint256 left = committee & ~silent; left != 0; left &= left - 1) {
            castVote(jobId, left.lowest(), 15);
        }
        nextCommittee(jobId);
        sayAll(jobId, 15);
        nextBlock();
        uint256 before = vm.snapshotState();
        settle(jobId);
        uint256 held = rounds.state(jobId).committee;
        vm.revertToState(before);
        blame(verifier(silent.lowest()));
        members.penaliseMember(jobId, 0, uint32(silent.lowest()) + 1);
        settle(jobId);
        same(rounds.state(jobId).committee, held & ~silent, "only its own ticket is gone");
    }

    // --- late votes ---

    function test_aLateVoteIsItsMembersNotItsSlots() public allHome onlyTheGuiltyPay {
        Terms memory t = audited();
        (t.slots, t.minVerifiers) = (4, 2);
        uint256 jobId = start(t, 4, 3);
        toMerge(jobId);
        sayAll(jobId, 14);
        vm.warp(rounds.state(jobId).deadline - 1);
        settle(jobId, verdictFor(jobId, 14)); // nobody has seat 0
        vm.prank(verifier(2));
        members.leavePool(jobId);
        uint32 heir = enrol(jobId, 9, 2); // from round 2 on, so it has no vote about round 0
        vm.prank(verifier(9));
        vm.expectPartialRevert(LateVotes.NotThen.selector);
        lateVotes.lateVote(jobId, 0, heir, 1);
        toMerge(jobId);
        sayAll(jobId, 14);
        vm.warp(rounds.state(jobId).deadline - 1);
        settle(jobId, verdictFor(jobId, 14));
        vm.prank(verifier(9));
        lateVotes.lateVote(jobId, 1, heir, 1); // but slot 2 was another's in round 1, who was in its committee
        vm.prank(verifier(0));
        lateVotes.lateVote(jobId, 1, 1, 1);
        Having memory h = havingOf(jobId, 1);
        (h.late[0], h.late[1], h.late[2]) = (1, heir, heir);
        vm.expectPartialRevert(LateVotes.NotAvailable.selector);
        lateVotes.grant(jobId, 1, 0, h);
        vm.prank(verifier(2));
        lateVotes.lateVote(jobId, 1, 3, 1);
        h.late[2] = 3;
        lateVotes.grant(jobId, 1, 0, h);
        (uint256 pay,,) = rounds.rowsOf(jobId, 1);
        check(pay.has(0), "paid");
    }

    function havingOf(uint256 jobId, uint32 round) private view returns (Having memory h) {
        Said storage now_ = said[jobId][round];
        (h.record, h.committeeSeed, h.slots, h.has) = (now_.record, now_.record.seed, now_.slots, now_.has);
        h.late = new uint32[](3);
    }

    // --- keys ---

    function test_aKeyOfBeforeTheSettlementIsNoneAndTheLastOneCounts() public allHome onlyTheGuiltyPay {
        uint256 jobId = start(audited(), 4, 3);
        uint32 round = toVotes(jobId);
        showKey(jobId, round, 0);
        nextBlock();
        settle(jobId);
        showKey(jobId, round, 1); // in the settlement's own block
        vm.warp(rounds.timesOf(jobId, round).openEnd);
        showKey(jobId, round, 2, "a wrong one first");
        showKey(jobId, round, 2);
        showKey(jobId, round, 3);
        showKey(jobId, round, 3, "a wrong one last");
        vm.warp(rounds.timesOf(jobId, round).keysEnd);
        for (uint16 seat = 0; seat < 4; seat++) {
            Shown memory s = shownFor(jobId, round, seat);
            if (seat != 2) blame(provider(seat));
            else vm.expectPartialRevert(Audits.KeyShownAlready.selector);
            audits.reportMissingKey(s);
        }
    }

    function test_aKeyThatIsLeakedInTheSettlementsBlockCounts() public allHome onlyTheGuiltyPay {
        uint256 jobId = start(audited(), 4, 3);
        uint32 round = play(jobId);
        Shown memory s = shownFor(jobId, round, 0);
        bytes32 key = keyOf(jobId, round, 0);
        vm.prank(OUTSIDER);
        audits.leak(s, key);
        vm.warp(rounds.timesOf(jobId, round).keysEnd);
        vm.expectPartialRevert(Audits.KeyShownAlready.selector);
        audits.reportMissingKey(s);
    }

    // --- accusations ---

    function test_everyDroppedAccusationTakesHalfOfWhatIsLeft() public allHome onlyTheGuiltyPay {
        uint256 jobId = start(audited(), 4, 2);
        uint32 round = play(jobId);
        uint256 duties = dutiesOf(jobId, round, 0);
        same(duties.popcount(), 2, "two of four");
        bytes memory body;
        blame(verifier(0));
        for (uint256 left = duties; left != 0; left &= left - 1) {
            body = abi.encodePacked(body, uint8(left.lowest()), uint16(3), keccak256("mine"));
        }
        auditReportBody(jobId, round, 1, body);
        vm.warp(rounds.timesOf(jobId, round).auditEnd);
        openBody(jobId, round, 1, body);
        vm.warp(rounds.timesOf(jobId, round).half);
        uint256 bond = BOND;
        for (; duties != 0; duties &= duties - 1) {
            uint16 seat = duties.lowest();
            audits.dropped(jobId, round, 1, seat, uint32(seat) + 1, body);
            bond -= bond / 2;
            same(lockedOf(verifier(0), Role.VERIFIER), bond, "half of what was left");
            vm.expectPartialRevert(bytes4(keccak256("FaultUsed(bytes32)")));
            audits.dropped(jobId, round, 1, seat, uint32(seat) + 1, body);
        }
    }

    /// Without a replay: it accuses everybody in every round, and an accomplice plays one game a
    /// holder meanwhile.
    function test_accusationsWithoutAReplayEarnNothingWhateverElseIsPlayed() public allHome onlyTheGuiltyPay {
        uint256 jobId = start(audited(), 4, 2);
        for (uint32 r = 0; r < 6; r++) {
            play(jobId);
            auditReportBody(jobId, r, 1, accusing(jobId, r));
        }
        for (uint32 r = 0; r < 6; r++) {
            vm.warp(rounds.timesOf(jobId, r).auditEnd + 6);
            openBody(jobId, r, 1, accusing(jobId, r));
        }
        vm.warp(rounds.timesOf(jobId, 0).half - 1);
        for (uint16 seat = 0; seat < 4; seat++) {
            Evidence memory e = evidenceFor(jobId, 5, seat, 0);
            vm.prank(OUTSIDER);
            game.challenge(abi.encode(e));
        }
        blame(verifier(0));
        uint256 bond = BOND;
        for (uint32 r = 0; r < 6; r++) {
            vm.warp(rounds.timesOf(jobId, r).half);
            for (uint256 left = dutiesOf(jobId, r, 0); left != 0; left &= left - 1) {
                uint16 seat = left.lowest();
                audits.dropped(jobId, r, 1, seat, uint32(seat) + 1, accusing(jobId, r));
                bond -= bond / 2;
            }
        }
        same(lockedOf(verifier(0), Role.VERIFIER), bond, "half of what was left, each time");
        vm.warp(rounds.timesOf(jobId, 5).windowEnd);
        jobs.claim(jobId, Role.VERIFIER, 1, 6);
        same(token.balanceOf(verifier(0)), 6 * 1 ether, "its signatures alone are paid");
    }

    function accusing(uint256 jobId, uint32 round) private view returns (bytes memory body) {
        for (uint256 left = dutiesOf(jobId, round, 0); left != 0; left &= left - 1) {
            body = abi.encodePacked(body, uint8(left.lowest()), uint16(0), keccak256("no replay"));
        }
    }

    // --- signatures ---

    /// Behind the settlement there are too few members, so the next one may come when every window
    /// is over.
    function test_signaturesAreTakenUntilAuditIsOverAsTheJobWaits() public allHome onlyTheGuiltyPay {
        Terms memory t = audited();
        t.minProviders = 4;
        uint256 jobId = start(t, 4, 3);
        toVotes(jobId);
        vm.prank(provider(3));
        members.leaveSeat(jobId);
        nextBlock();
        Verdict memory v = verdictFor(jobId, 15);
        bytes memory two = certificate(jobId, digestFor(jobId, v), 7, 3);
        noteRecord(jobId, v);
        rounds.settle(jobId, said[jobId][0].slots, said[jobId][0].has, bare(v, two));
        inPhase(jobId, Phase.WAITING);
        vm.warp(rounds.timesOf(jobId, 0).auditEnd - 1);
        vm.warp(block.timestamp + 1);
        bytes memory late = bytes.concat(bytes4(uint32(1)), signatureOf(verifierKey(2), said[jobId][0].digest));
        RoundRecord memory f = said[jobId][0].record;
        vm.expectPartialRevert(bytes4(keccak256("SigningOver(uint32)")));
        rounds.sign(jobId, f, 3, late);
        vm.expectPartialRevert(Members.NotAbsent.selector);
        members.penaliseMember(jobId, 0, 3);
    }

    // --- duties ---

    function testFuzz_nobodyHasTwoDutiesBeforeEverybodyHasOne(bytes32 seed, uint256 pool, uint256 drawn_) public pure {
        if (pool == 0) pool = 1;
        pool &= type(uint32).max << 8; // so few that each is looked at
        if (pool == 0) pool = 1 << 255;
        uint256 fewest = type(uint256).max;
        (uint256 most, uint256 total) = (0, 0);
        for (uint256 left = pool; left != 0; left &= left - 1) {
            uint256 duties;
            for (uint256 seats = drawn_; seats != 0; seats &= seats - 1) {
                if (Draws.isAuditor(seed, drawn_, pool, seats.lowest(), left.lowest())) duties++;
            }
            if (duties < fewest) fewest = duties;
            if (duties > most) most = duties;
            total += duties;
        }
        same(total, drawn_.popcount(), "every drawn seat has one auditor");
        check(most - fewest <= 1, "even");
    }
}
