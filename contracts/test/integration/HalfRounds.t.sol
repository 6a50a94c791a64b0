// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {Audits} from "../../src/Audits.sol";
import {Escrow} from "../../src/interfaces/IJobs.sol";
import {Earned} from "../../src/interfaces/IHooks.sol";
import {Having} from "../../src/interfaces/ILateVotes.sol";
import {Bits} from "../../src/libraries/Bits.sol";
import {Shown} from "../../src/libraries/Reveals.sol";
import {RoundsMembership} from "../../src/rounds/RoundsMembership.sol";
import "../../src/types/Types.sol";
import {Network} from "../support/Network.sol";

/// @title Rounds of which seats do less than three quarters, now and then, so that nothing can be
/// merged.
contract HalfRoundsTest is Network {
    using Bits for uint256;

    uint256 private constant SEATS = 4;
    uint256 private constant HALF = 4; // segments of eight

    /// What the bucket and the pay of each seat should be.
    struct Seat {
        uint256 level;
        uint256 earned; // segments
        bool missed;
    }

    Seat[SEATS] private _seats;
    string private json; // vectors

    /// @return t of a job that merges nothing without 2f + 1 updates
    function termsWith(uint8 f) private view returns (Terms memory t) {
        t = defaultTerms();
        (t.rounds, t.f) = (9, f);
    }

    /// @dev The seats of `halves` do four segments of eight, and all others the whole round.
    /// @return seated who reveals
    function toVotes(uint256 jobId, uint256 halves, uint256 available) private returns (uint256 seated) {
        bytes memory done = new bytes(SEATS);
        for (uint256 seat = 0; seat < SEATS; seat++) {
            done[seat] = bytes1(uint8(halves.has(seat) ? HALF : 8));
        }
        return toVotes(jobId, done, available);
    }

    /// @param done segments, a byte a seat
    function toVotes(uint256 jobId, bytes memory done, uint256 available) private returns (uint256 seated) {
        seated = rounds.state(jobId).seated;
        for (uint16 seat = 0; seat < SEATS; seat++) {
            if (seated.has(seat)) commitSeat(jobId, seat, revealFor(jobId, seat, uint8(done[seat])));
        }
        for (uint16 seat = 0; seat < SEATS; seat++) {
            if (seated.has(seat)) revealSeat(jobId, seat, revealFor(jobId, seat, uint8(done[seat])));
        }
        sayAll(jobId, available);
        nextBlock();
    }

    /// @return round in which so many seats were whole that something is merged, or nothing
    function playHalf(uint256 jobId, uint256 halves, uint256 available) private returns (uint32 round) {
        round = rounds.state(jobId).round;
        uint256 merged = (toVotes(jobId, halves, available) & available & ~halves).popcount();
        Verdict memory v = verdictFor(jobId, 0);
        if (merged > 2 * uint256(jobs.termsOf(jobId).f)) v.merged = uint16(merged);
        settle(jobId, v);
    }

    function blameAll() private {
        for (uint256 i = 0; i < SEATS; i++) {
            blame(provider(i));
        }
    }

    function paid(uint256 jobId, uint32 id) private returns (uint256) {
        address account = members.holderOf(jobId, Role.PROVIDER, id).account;
        uint256 before = token.balanceOf(account);
        Holder memory m = members.holderOf(jobId, Role.PROVIDER, id);
        uint32 settled = rounds.state(jobId).round;
        jobs.claim(jobId, Role.PROVIDER, id, m.to < settled ? m.to : settled);
        return token.balanceOf(account) - before;
    }

    // --- every second round ---

    function test_halfOfEverySecondRoundIsUnpaidAndAMissedDuty() public allHome onlyTheGuiltyPay {
        blameAll();
        uint256 jobId = start(termsWith(0), 4, 3);
        playHalf(jobId, 15, 15);
        playHalf(jobId, 0, 15);
        same(rounds.state(jobId).held, 15, "once");
        playHalf(jobId, 15, 15);
        same(rounds.state(jobId).owing, 15, "all have missed");
        same(rounds.state(jobId).held, 0, "and hold nothing");
        vm.warp(rounds.timesOf(jobId, 2).windowEnd);
        for (uint16 seat = 0; seat < SEATS; seat++) {
            members.penaliseSeat(jobId, seat);
            same(paid(jobId, seat + 1), 8 * segmentPay(), "the round that was whole");
        }
        jobs.burn(jobId, 3);
        same(jobs.escrowOf(jobId).burnt, 0, "what was not earned is burnt by nobody");
    }

    function test_oneRoundInThreeIsForgiven() public allHome onlyTheGuiltyPay {
        uint256 jobId = start(termsWith(0), 4, 3);
        for (uint256 r = 0; r < 9; r++) {
            playHalf(jobId, r % 3 == 0 ? 1 : 0, 15);
            same(rounds.state(jobId).owing, 0, "no missed duty");
        }
        same(paidAtTheEnd(jobId), (3 * HALF + 6 * 8) * segmentPay(), "others' updates were merged");
    }

    function paidAtTheEnd(uint256 jobId) private returns (uint256) {
        vm.warp(rounds.timesOf(jobId, 8).windowEnd);
        return paid(jobId, 1);
    }

    function test_whoTakesASeatBeginsAnew() public allHome onlyTheGuiltyPay {
        uint256 jobId = start(termsWith(0), 4, 3);
        playHalf(jobId, 2, 15);
        vm.prank(provider(1));
        members.leaveSeat(jobId);
        playHalf(jobId, 0, 15);
        join(jobId, 9, 1);
        playHalf(jobId, 0, 15);
        playHalf(jobId, 2, 15);
        same(rounds.state(jobId).owing, 0, "its own first");
    }

    function test_whoLeavesBehindASecondShortRoundMissesAllTheSame() public allHome onlyTheGuiltyPay {
        blame(provider(1));
        uint256 jobId = start(termsWith(0), 4, 3);
        playHalf(jobId, 2, 15);
        vm.prank(provider(1));
        members.leaveSeat(jobId);
        playHalf(jobId, 2, 15);
        same(rounds.state(jobId).owing, 2, "its last round, too");
        members.penaliseSeat(jobId, 1);
    }

    // --- nothing merged ---

    /// Seats 0 and 1 are short, so that two updates are left of the three that f = 1 wants.
    function test_whoWasWholeIsPaidWhereNothingIsMerged() public allHome onlyTheGuiltyPay {
        uint256 jobId = start(termsWith(1), 4, 3);
        same(jobs.refundable(jobId), 0, "all may still be earned");
        uint32 round = playHalf(jobId, 3, 14);
        (uint256 pay, uint256 lost,) = rounds.rowsOf(jobId, round);
        same(pay, 12, "whole, though in vain");
        same(lost, 0, "who was short has nothing to lose, whether it was available or not");
        (,, Earned memory e) = rounds.statusOf(jobId);
        same(e.segments, 16, "earned");
        // Of the round's budget two seats and one duty are not needed: three were set aside, and
        // two are drawn.
        same(jobs.refundable(jobId), 16 * segmentPay() + 10 ether, "the submitter's at once");
        jobs.refund(jobId);
        vm.warp(rounds.timesOf(jobId, round).windowEnd);
        for (uint32 id = 1; id <= SEATS; id++) {
            Holder memory m = members.holderOf(jobId, Role.PROVIDER, id);
            uint256 before = token.balanceOf(m.account);
            jobs.claim(jobId, Role.PROVIDER, id, 1);
            same(token.balanceOf(m.account) - before, id > 2 ? 8 * segmentPay() : 0, "paid");
        }
    }

    function test_wherePartsAreAllThatIsMergedEverySegmentIsPaid() public allHome onlyTheGuiltyPay {
        uint256 jobId = start(termsWith(1), 4, 3);
        uint32 round = playHalf(jobId, 1, 15);
        (uint256 pay, uint256 lost,) = rounds.rowsOf(jobId, round);
        same(pay, 15, "three were merged");
        same(lost, 0, "nobody's");
    }

    function test_noLateVotePaysWhoWasShortForNothing() public allHome onlyTheGuiltyPay {
        uint256 jobId = start(termsWith(1), 4, 3);
        playHalf(jobId, 3, 8); // available: seat 3 alone
        (uint256 pay, uint256 lost,) = rounds.rowsOf(jobId, 0);
        same(pay, 8, "available and whole");
        same(lost, 4, "whole, and not available");
        for (uint256 i = 0; i < 3; i++) {
            vm.prank(verifier(i));
            lateVotes.lateVote(jobId, 0, uint32(i + 1), 15);
        }
        Having memory h;
        Said storage now_ = said[jobId][0];
        (h.record, h.committeeSeed, h.slots, h.has) = (now_.record, now_.record.seed, now_.slots, now_.has);
        h.late = new uint32[](3);
        (h.late[0], h.late[1], h.late[2]) = (1, 2, 3);
        for (uint16 seat = 0; seat < 2; seat++) {
            vm.expectRevert(abi.encodeWithSelector(RoundsMembership.NothingEarned.selector, seat, uint32(0)));
            lateVotes.grant(jobId, 0, seat, h);
        }
        lateVotes.grant(jobId, 0, 2, h);
        (pay, lost,) = rounds.rowsOf(jobId, 0);
        same(pay, 12, "late votes pay the whole one");
        same(lost, 0, "and nothing is left");
    }

    /// Whoever shows a key that it was told takes a pay that stands, and there is none.
    function test_aToldKeyOfWhoEarnedNothingTakesNothing() public allHome onlyTheGuiltyPay {
        blame(provider(0));
        uint256 jobId = start(termsWith(0), 4, 3);
        playHalf(jobId, 15, 15);
        Shown memory s = shownFor(jobId, 0, 0, trainer.train(jobId, 0, 0, keyOf(jobId, 0, 0), HALF));
        bytes32 key_ = keyOf(jobId, 0, 0);
        vm.expectPartialRevert(Audits.NotPaid.selector);
        audits.leak(s, key_);
        vm.warp(rounds.timesOf(jobId, 0).keysEnd);
        audits.reportMissingKey(s); // it was drawn, and owed its key all the same
        (uint256 pay, uint256 lost,) = rounds.rowsOf(jobId, 0);
        same(pay | lost, 0, "nobody's");
    }

    /// The committee's silence ended it, and not who was short.
    function test_whereNothingIsCertifiedNobodyIsShort() public allHome onlyTheGuiltyPay {
        Terms memory t = termsWith(0);
        t.expiry = uint64(block.timestamp + 1_000);
        uint256 jobId = start(t, 4, 3);
        toVotes(jobId, 15, 15);
        bytes memory slots = said[jobId][0].slots;
        uint256[] memory has = said[jobId][0].has;
        vm.warp(t.expiry > rounds.state(jobId).deadline ? t.expiry : rounds.state(jobId).deadline);
        rounds.settleLate(jobId, slots, has);
        (uint256 pay, uint256 lost,) = rounds.rowsOf(jobId, 0);
        same(pay, 15, "paid by the segment");
        same(lost, 0, "nothing lost");
    }

    // --- any order ---

    /// Every schedule of `half_rounds.json`: what the law in Python and the second client say of
    /// it.
    function test_theSchedulesOfTheVectors() public {
        json = vm.readFile("../tests/vectors/half_rounds.json");
        for (uint256 number = 0; vm.keyExistsJson(json, key(number, "f")); number++) {
            Terms memory t = termsWith(uint8(vm.parseJsonUint(json, key(number, "f"))));
            t.minProviders = 1;
            playSchedule(start(t, 4, 3), number);
        }
    }

    /// @param name of what is said of each round
    function told(uint256 number, string memory name, uint256 round) private view returns (uint256) {
        return vm.parseJsonUintArray(json, key(number, name))[round];
    }

    function key(uint256 number, string memory name) private pure returns (string memory) {
        return string.concat(".cases[", vm.toString(number), "].", name);
    }

    function playSchedule(uint256 jobId, uint256 number) private {
        bytes[] memory done = vm.parseJsonBytesArray(json, key(number, "done"));
        for (uint32 r = 0; r < done.length; r++) {
            (uint256 owing, uint256 earned) = (rounds.state(jobId).owing, earnedBy(jobId));
            same(toVotes(jobId, done[r], told(number, "available", r)), there(done[r]), "who is there");
            Verdict memory v = verdictFor(jobId, 0);
            v.merged = uint16(told(number, "merged", r));
            settle(jobId, v);
            requirePay(jobId, r, told(number, "pay", r), told(number, "available", r));
            same(earnedBy(jobId) - earned, told(number, "earned", r), "earned");
            same(rounds.state(jobId).owing & ~owing, told(number, "missed", r), "missed");
        }
        bool isPlayed = done.length == 6 || rounds.state(jobId).phase != Phase.TRAIN;
        check(isPlayed, "as long as there");
    }

    function requirePay(uint256 jobId, uint32 round, uint256 paid_, uint256 available) private view {
        (uint256 pay, uint256 lost,) = rounds.rowsOf(jobId, round);
        same(pay, paid_, "pay");
        same(lost & available, 0, "lost by who was not available alone");
    }

    /// @dev Nobody sits where the byte is 255.
    function there(bytes memory done) private pure returns (uint256 seats) {
        for (uint256 seat = 0; seat < SEATS; seat++) {
            if (uint8(done[seat]) != type(uint8).max) seats |= Bits.bit(seat);
        }
    }

    function earnedBy(uint256 jobId) private view returns (uint256) {
        (,, Earned memory e) = rounds.statusOf(jobId);
        return e.segments;
    }

    /// Six rounds of four seats, whole or short in whatever order: two short ones of three are a
    /// missed duty and nothing else is, and of a round that merged nothing no short seat has a wei.
    /// What is left of it is the submitter's.
    function testFuzz_anyOrderOfHalfRounds(uint24 halves, uint8 f) public allHome onlyTheGuiltyPay {
        blameAll();
        uint256 jobId = start(termsWith(f % 2), 4, 3);
        for (uint256 r = 0; r < 6 && rounds.state(jobId).phase == Phase.TRAIN; r++) {
            uint256 seated = rounds.state(jobId).seated;
            uint256 short = seated & (uint256(halves) >> (4 * r) & 15);
            playHalf(jobId, short, seated);
            expect(seated, short, (seated & ~short).popcount() > 2 * uint256(f % 2));
            same(rounds.state(jobId).owing, missing(), "who has missed");
        }
        uint32 settled = rounds.state(jobId).round;
        vm.warp(rounds.timesOf(jobId, settled - 1).windowEnd);
        for (uint16 seat = 0; seat < SEATS; seat++) {
            if (_seats[seat].missed) members.penaliseSeat(jobId, seat);
            same(paid(jobId, seat + 1), _seats[seat].earned * segmentPay(), "paid");
        }
        jobs.burn(jobId, settled);
        Escrow memory e = jobs.escrowOf(jobId);
        same(e.burnt, 0, "nothing is burnt");
        same(e.funded, e.claimed + e.balance + e.refunded, "the identity");
    }

    function expect(uint256 seated, uint256 short, bool isMerged) private {
        for (uint256 seat = 0; seat < SEATS; seat++) {
            if (!seated.has(seat)) continue;
            Seat storage s = _seats[seat];
            if (short.has(seat)) s.level += 2;
            else if (s.level != 0) s.level--;
            s.missed = s.level >= 3;
            if (!short.has(seat)) s.earned += 8;
            else if (isMerged) s.earned += HALF;
        }
    }

    function missing() private view returns (uint256 seats) {
        for (uint256 seat = 0; seat < SEATS; seat++) {
            if (_seats[seat].missed) seats |= Bits.bit(seat);
        }
    }
}
