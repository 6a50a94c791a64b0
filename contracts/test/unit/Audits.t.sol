// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {Audits} from "../../src/Audits.sol";
import {Jobs} from "../../src/Jobs.sol";
import {Members} from "../../src/Members.sol";
import {LateVotes} from "../../src/LateVotes.sol";
import {Claims, Evidence} from "../../src/judge/Claims.sol";
import {IAudits} from "../../src/interfaces/IAudits.sol";
import {Having} from "../../src/interfaces/ILateVotes.sol";
import {Claim} from "../../src/judge/IClaims.sol";
import {Bits} from "../../src/libraries/Bits.sol";
import {Draws} from "../../src/libraries/Draws.sol";
import {Hashing} from "../../src/libraries/Hashing.sol";
import {Reveals, Shown} from "../../src/libraries/Reveals.sol";
import {TermsCheck} from "../../src/libraries/TermsCheck.sol";
import {ProgramReader} from "../../src/judge/ProgramReader.sol";
import "../../src/types/Types.sol";
import {Network} from "../support/Network.sol";

/// @title Audit reports, keys, contests, claims and slashes, about round 1 of a job of three
/// rounds.
contract AuditsTest is Network {
    using Bits for uint256;

    uint256 internal jobId;
    uint16 internal seat; // a drawn one
    uint32 internal auditor; // id
    address internal account; // the auditor's

    function setUp() public override {
        super.setUp();
        Terms memory t = defaultTerms();
        t.rounds = 4;
        jobId = start(t, 4, 3);
        play(jobId);
        play(jobId);
        seat = drawn(jobId, 1).lowest();
        for (uint16 slot = 0; slot < 3; slot++) {
            if (dutiesOf(jobId, 1, slot).has(seat)) auditor = uint32(slot) + 1;
        }
        account = members.holderOf(jobId, Role.VERIFIER, auditor).account;
    }

    function toOpen(bytes memory body) internal {
        auditReportBody(jobId, 1, auditor, body);
        vm.warp(rounds.timesOf(jobId, 1).auditEnd);
        openBody(jobId, 1, auditor, body);
        vm.warp(rounds.timesOf(jobId, 1).openEnd);
    }

    /// @dev Else most auditors are silent, and nobody misses.
    function othersOpen() internal {
        for (uint32 id = 1; id <= 3; id++) {
            if (id == auditor || dutiesOf(jobId, 1, uint16(id - 1)) == 0) continue;
            bytes memory body = honestBody(jobId, 1, id);
            auditReportBody(jobId, 1, id, body);
            uint256 back = block.timestamp;
            vm.warp(rounds.timesOf(jobId, 1).auditEnd);
            openBody(jobId, 1, id, body);
            vm.warp(back);
        }
    }

    function wrongBody() internal view returns (bytes memory) {
        return abi.encodePacked(uint8(seat), type(uint16).max, keccak256("wrong"));
    }

    function key() internal view returns (bytes32) {
        return keyOf(jobId, 1, seat);
    }

    function record() internal view returns (RoundRecord memory) {
        return said[jobId][1].record;
    }

    // --- draws ---

    function testFuzz_P42_eachSeatIsDrawnByItself(bytes32 seed, uint256 revealed, uint256 others) public pure {
        for (uint256 rate = 0; rate < 16; rate++) {
            uint256 all = Draws.seats(seed, type(uint256).max, rate);
            same(Draws.seats(seed, revealed, rate), all & revealed, "whoever else revealed");
            check(
                Draws.seats(seed, others, rate) & ~Draws.seats(seed, others, rate / 2) == 0, "a lower rate draws fewer"
            );
        }
        same(Draws.seats(seed, revealed, 0), revealed, "always");
    }

    function test_P42_ratesFallByARootOfTwo() public pure {
        same(Draws.chance(0), 1 << 32, "always");
        same(Draws.chance(2), 1 << 31, "a half");
        same(Draws.chance(1), 3_037_000_500, "rounded up");
        same(Draws.chance(15), 23_726_567, "the last");
        for (uint256 rate = 0; rate < 16; rate++) {
            (uint256 drawn_, uint256 wanted) = (0, Draws.chance(rate) * 256 * 40 >> 32);
            for (uint256 i = 0; i < 40; i++) {
                drawn_ += Draws.seats(keccak256(abi.encode(i)), type(uint256).max, rate).popcount();
            }
            check(drawn_ * 10 < wanted * 13 && drawn_ * 10 > wanted * 7, "about so many of ten thousand");
        }
    }

    function test_P42_everyDrawnSeatHasOneAuditor() public allHome {
        play(jobId);
        play(jobId);
        for (uint32 round = 0; round < 4; round++) {
            uint256 duties;
            for (uint16 slot = 0; slot < 3; slot++) {
                duties += dutiesOf(jobId, round, slot).popcount();
            }
            same(duties, drawn(jobId, round).popcount(), "duties");
        }
        same(drawn(jobId, 3), 15, "in the last round all");
    }

    function test_P42_onlyDutiesAreOpened() public allHome {
        for (uint16 other = 0; other < 4; other++) {
            if (dutiesOf(jobId, 1, uint16(auditor - 1)).has(other)) continue;
            bytes memory body = abi.encodePacked(uint8(other), type(uint16).max, keccak256("x"));
            uint256 before = block.timestamp;
            auditReportBody(jobId, 1, auditor, body);
            vm.warp(rounds.timesOf(jobId, 1).auditEnd);
            RoundRecord memory f = record();
            vm.prank(account);
            vm.expectPartialRevert(Audits.NotADuty.selector);
            audits.open(jobId, 1, auditor, f, body, "salt");
            vm.warp(before);
            return;
        }
    }

    function test_anAuditReportIsSealedInTimeForItsSeedAndOpenedOnce() public allHome {
        bytes memory body = wrongBody();
        RoundRecord memory f = record();
        vm.prank(account);
        audits.sealAuditReport(jobId, 1, "made for another history");
        auditReportBody(jobId, 1, auditor, body); // replaces it
        opens(f, body, "salt", Audits.NotOpen.selector);
        vm.warp(rounds.timesOf(jobId, 1).auditEnd);
        opens(f, body, "pepper", Audits.WrongAuditReport.selector);
        f.ready ^= 8;
        opens(f, body, "salt", Reveals.WrongRecord.selector);
        vm.prank(OUTSIDER);
        vm.expectPartialRevert(Audits.NotYours.selector);
        audits.open(jobId, 1, auditor, record(), body, "salt");
        openBody(jobId, 1, auditor, body);
        opens(record(), body, "salt", Audits.WrongAuditReport.selector);
        vm.prank(account);
        vm.expectPartialRevert(Audits.AlreadyOpened.selector);
        audits.sealAuditReport(jobId, 1, "again");
    }

    function test_anAuditReportOfAfterAuditCannotBeOpened() public allHome {
        vm.warp(rounds.timesOf(jobId, 1).auditEnd);
        auditReportBody(jobId, 1, auditor, wrongBody());
        opens(record(), wrongBody(), "salt", Audits.NotInTime.selector);
    }

    function opens(RoundRecord memory f, bytes memory body, bytes32 salt, bytes4 why) internal {
        vm.prank(account);
        vm.expectPartialRevert(why);
        audits.open(jobId, 1, auditor, f, body, salt);
    }

    // --- digests ---

    function test_P43_aRightDigestCannotBeContested() public allHome {
        bytes memory body = honestBody(jobId, 1, auditor);
        toOpen(body);
        Shown memory s = shownFor(jobId, 1, seat);
        bytes32 right = key();
        vm.expectPartialRevert(Audits.DigestIsRight.selector);
        audits.contest(s, auditor, body, right);
        vm.expectPartialRevert(Reveals.WrongKey.selector);
        audits.contest(s, auditor, body, "another key");
    }

    function test_P43_P44_aWrongDigestCostsItsFeeAndAMiss() public allHome {
        toOpen(wrongBody());
        Shown memory s = shownFor(jobId, 1, seat);
        (bytes memory body, bytes32 right) = (wrongBody(), key());
        vm.prank(OUTSIDER);
        audits.contest(s, auditor, body, right);
        vm.expectPartialRevert(Audits.AlreadyContested.selector);
        audits.contest(s, auditor, body, right);
        same(audits.dutiesOf(jobId, account, 1, 2), 0, "no fee");
        vm.expectPartialRevert(Audits.NotOpen.selector);
        audits.settleContest(jobId, 1, auditor, uint32(seat) + 1);
        vm.warp(rounds.timesOf(jobId, 1).windowEnd);
        vm.expectEmit();
        emit IAudits.ContestSettled(jobId, auditor, 1, seat, true);
        audits.settleContest(jobId, 1, auditor, uint32(seat) + 1);
        same(jobs.creditOf(jobId, OUTSIDER), 0, "nothing to who showed it: anybody can copy that");
        same(lockedOf(account, Role.VERIFIER), BOND - 1 ether, "a missed duty");
        same(lockedOf(provider(seat), Role.PROVIDER), BOND, "nobody else's bond");
        vm.expectPartialRevert(Audits.NotContested.selector);
        audits.settleContest(jobId, 1, auditor, uint32(seat) + 1);
    }

    function test_P43_severalWrongDigestsOfARoundAreOneMiss() public {
        Terms memory t = defaultTerms();
        t.rounds = 1; // the last: four audits by three auditors
        jobId = start(t, 4, 3);
        play(jobId);
        uint16 slot = 0;
        while (dutiesOf(jobId, 0, slot).popcount() < 2) slot++;
        uint256 duties = dutiesOf(jobId, 0, slot);
        (uint16 first, uint16 second) = (duties.lowest(), (duties & (duties - 1)).lowest());
        bytes memory body = abi.encodePacked(
            uint8(first), type(uint16).max, keccak256("wrong"), uint8(second), type(uint16).max, keccak256("too")
        );
        auditor = uint32(slot) + 1;
        auditReportBody(jobId, 0, auditor, body);
        vm.warp(rounds.timesOf(jobId, 0).auditEnd);
        openBody(jobId, 0, auditor, body);
        vm.warp(rounds.timesOf(jobId, 0).openEnd);
        Shown memory s = shownFor(jobId, 0, first);
        Shown memory other = shownFor(jobId, 0, second);
        vm.startPrank(OUTSIDER);
        audits.contest(s, auditor, body, keyOf(jobId, 0, first));
        audits.contest(other, auditor, body, keyOf(jobId, 0, second));
        vm.stopPrank();
        vm.warp(rounds.timesOf(jobId, 0).windowEnd);
        uint256 before = lockedOf(verifier(slot), Role.VERIFIER);
        audits.settleContest(jobId, 0, auditor, uint32(first) + 1);
        audits.settleContest(jobId, 0, auditor, uint32(second) + 1);
        same(lockedOf(verifier(slot), Role.VERIFIER), before - 1 ether, "one missed duty");
    }

    /// Whoever said *valid* of other work tags plays no game for the seat's: that is for a contest.
    function test_P43_aValidOfOtherWorkTagsIsNoneOfTheSeats() public allHome {
        toOpen(wrongBody());
        Evidence memory e = evidenceFor(jobId, 1, seat, 3);
        (e.member, e.body, e.key) = (auditor, wrongBody(), key());
        vm.expectPartialRevert(Claims.OtherDigest.selector);
        game.challenge(abi.encode(e));
    }

    /// It could take what the seat earns from that round on, and nothing of a round before.
    function test_P43_aGameAboutALaterRoundHoldsNoContestUp() public allHome {
        play(jobId);
        toOpen(wrongBody());
        audits.contest(shownFor(jobId, 1, seat), auditor, wrongBody(), key());
        vm.warp(rounds.timesOf(jobId, 2).auditEnd);
        game.challenge(abi.encode(evidenceFor(jobId, 2, seat, 0)));
        vm.warp(rounds.timesOf(jobId, 1).windowEnd);
        audits.settleContest(jobId, 1, auditor, uint32(seat) + 1);
        same(lockedOf(account, Role.VERIFIER), BOND - 1 ether, "a missed duty");
    }

    /// Whoever replayed a round that was false knew better than to call it valid.
    function test_aValidAboutARoundThatItsSeatLosesEarnsNothing() public allHome {
        bytes memory body = honestBody(jobId, 1, auditor);
        toOpen(body);
        uint32 seatId = uint32(seat) + 1;
        vm.expectPartialRevert(Audits.NotAboutIt.selector);
        audits.withhold(jobId, 1, auditor, seatId, 1, body);
        Claim memory c = game.challenge(abi.encode(evidenceFor(jobId, 1, seat, 0)));
        audits.withhold(jobId, 1, auditor, seatId, 1, body);
        vm.expectRevert(abi.encodeWithSelector(Audits.AlreadyContested.selector, auditor, seat));
        audits.withhold(jobId, 1, auditor, seatId, 1, body);
        vm.warp(rounds.timesOf(jobId, 1).windowEnd);
        vm.expectPartialRevert(Audits.NotFinal.selector);
        audits.settleContest(jobId, 1, auditor, seatId);
        game.holderLoses(c, OUTSIDER);
        vm.expectEmit();
        emit IAudits.ContestSettled(jobId, auditor, 1, seat, true);
        audits.settleContest(jobId, 1, auditor, seatId);
        same(jobs.creditOf(jobId, account), 0, "no fee");
        same(lockedOf(account, Role.VERIFIER), BOND, "and no missed duty");
    }

    /// Of a game that the seat does not lose, or of one about another round, the fee comes back.
    function test_aFeeThatWaitedForAShamComesBack() public allHome {
        bytes memory body = honestBody(jobId, 1, auditor);
        toOpen(body);
        uint32 seatId = uint32(seat) + 1;
        Claim memory sham = game.challenge(abi.encode(evidenceFor(jobId, 1, seat, 0)));
        audits.withhold(jobId, 1, auditor, seatId, 1, body);
        game.holderWins(sham);
        vm.warp(rounds.timesOf(jobId, 1).windowEnd);
        audits.settleContest(jobId, 1, auditor, seatId);
        same(jobs.creditOf(jobId, account), 10 ether, "the fee");
        vm.expectPartialRevert(Audits.NotContested.selector);
        audits.settleContest(jobId, 1, auditor, seatId);
    }

    /// A sham that the seat's friend names first gives way to the game that the seat loses.
    function test_aShamKeepsNoFee() public allHome {
        bytes memory body = honestBody(jobId, 1, auditor);
        toOpen(body);
        uint32 seatId = uint32(seat) + 1;
        Evidence memory e = evidenceFor(jobId, 1, seat, 0);
        Claim memory sham = game.challenge(abi.encode(e));
        audits.withhold(jobId, 1, auditor, seatId, 1, body);
        game.holderWins(sham);
        Claim memory c = game.challenge(abi.encode(e));
        vm.warp(rounds.timesOf(jobId, 1).windowEnd);
        vm.expectPartialRevert(Audits.NotFinal.selector);
        audits.settleContest(jobId, 1, auditor, seatId);
        audits.withhold(jobId, 1, auditor, seatId, 2, body);
        game.holderLoses(c, OUTSIDER);
        audits.settleContest(jobId, 1, auditor, seatId);
        same(jobs.creditOf(jobId, account), 0, "no fee");
    }

    /// Whose round goes with another one's game has called nothing false valid.
    function test_aRoundThatIsLostWithAnotherPaysItsAuditors() public allHome {
        play(jobId);
        bytes memory body = honestBody(jobId, 1, auditor);
        toOpen(body);
        uint32 seatId = uint32(seat) + 1;
        vm.warp(rounds.timesOf(jobId, 2).auditEnd);
        Claim memory c = game.challenge(abi.encode(evidenceFor(jobId, 2, seat, 0)));
        game.challenge(abi.encode(evidenceFor(jobId, 1, seat, 0)));
        vm.expectPartialRevert(Audits.NotAboutIt.selector);
        audits.withhold(jobId, 1, auditor, seatId, 1, body);
        audits.withhold(jobId, 1, auditor, seatId, 2, body);
        game.holderLoses(c, OUTSIDER);
        vm.warp(rounds.timesOf(jobId, 1).windowEnd);
        audits.settleContest(jobId, 1, auditor, seatId);
        same(jobs.creditOf(jobId, account), 10 ether, "the fee");
    }

    /// Who names a game first keeps nobody from showing a wrong digest, which costs what it did.
    function test_aWithheldFeeCanStillBeContested() public allHome {
        toOpen(wrongBody());
        uint32 seatId = uint32(seat) + 1;
        Claim memory sham = game.challenge(abi.encode(evidenceFor(jobId, 1, seat, 0)));
        audits.withhold(jobId, 1, auditor, seatId, 1, wrongBody());
        audits.contest(shownFor(jobId, 1, seat), auditor, wrongBody(), key());
        game.holderWins(sham);
        vm.warp(rounds.timesOf(jobId, 1).windowEnd);
        audits.settleContest(jobId, 1, auditor, seatId);
        same(lockedOf(account, Role.VERIFIER), BOND - 1 ether, "a missed duty");
        same(jobs.creditOf(jobId, account), 0, "and no fee");
    }

    /// A seat that hides false work tags costs itself the bond, not its auditor the fee.
    function test_P43_aContestAboutASlashedSeatGivesTheFeeBack() public allHome {
        toOpen(wrongBody());
        audits.contest(shownFor(jobId, 1, seat), auditor, wrongBody(), key());
        Evidence memory e = evidenceFor(jobId, 1, seat, 0);
        Claim memory c = game.challenge(abi.encode(e));
        vm.warp(rounds.timesOf(jobId, 1).windowEnd);
        vm.expectPartialRevert(Audits.NotFinal.selector);
        audits.settleContest(jobId, 1, auditor, uint32(seat) + 1);
        game.holderLoses(c, OUTSIDER);
        vm.expectEmit();
        emit IAudits.ContestSettled(jobId, auditor, 1, seat, false);
        audits.settleContest(jobId, 1, auditor, uint32(seat) + 1);
        same(jobs.creditOf(jobId, account), 10 ether, "the fee is back");
        same(lockedOf(account, Role.VERIFIER), BOND, "no missed duty");
    }

    function test_P43_anUnopenedAuditReportIsAMissedDuty() public allHome {
        auditReportBody(jobId, 1, auditor, honestBody(jobId, 1, auditor));
        othersOpen();
        RoundRecord memory f = record();
        vm.warp(rounds.timesOf(jobId, 1).openEnd - 1);
        vm.expectPartialRevert(Audits.NotOpen.selector);
        audits.absent(jobId, 1, auditor, seat, f, "");
        vm.warp(rounds.timesOf(jobId, 1).windowEnd);
        vm.expectPartialRevert(Audits.NotOpen.selector);
        audits.absent(jobId, 1, auditor, seat, f, "");
        vm.warp(rounds.timesOf(jobId, 1).openEnd);
        audits.absent(jobId, 1, auditor, seat, f, "");
        same(lockedOf(account, Role.VERIFIER), BOND - 1 ether, "cut");
        vm.expectPartialRevert(bytes4(keccak256("FaultUsed(bytes32)")));
        audits.absent(jobId, 1, auditor, seat, f, "");
        uint32 other = auditor == 1 ? 2 : 1;
        if (!dutiesOf(jobId, 1, uint16(other - 1)).has(seat)) {
            vm.expectPartialRevert(Audits.NotADuty.selector);
            audits.absent(jobId, 1, other, seat, f, "");
        }
    }

    function test_P43_whoAuditedIsNotAbsent() public allHome {
        bytes memory body = honestBody(jobId, 1, auditor);
        toOpen(body);
        RoundRecord memory f = record();
        vm.expectPartialRevert(Audits.WasAudited.selector);
        audits.absent(jobId, 1, auditor, seat, f, body);
        vm.expectPartialRevert(Audits.WrongBody.selector);
        audits.absent(jobId, 1, auditor, seat, f, "");
    }

    function test_aDutyIsNamedOnceAndInTheSeatsOrder() public allHome {
        bytes memory once = validBody(jobId, 1, Bits.bit(seat), account);
        bytes memory twice = bytes.concat(once, once);
        auditReportBody(jobId, 1, auditor, twice);
        vm.warp(rounds.timesOf(jobId, 1).auditEnd);
        RoundRecord memory f = record();
        vm.prank(account);
        vm.expectRevert(abi.encodeWithSelector(Audits.NotADuty.selector, seat, auditor - 1));
        audits.open(jobId, 1, auditor, f, twice, "salt");
    }

    function test_aBodyIsOfWholeDutiesAndOfOneAtLeast() public allHome {
        bytes memory whole = validBody(jobId, 1, Bits.bit(seat), account);
        bytes[3] memory wrong = [bytes(""), bytes.concat(whole, hex"00"), hex"00"];
        RoundRecord memory f = record();
        uint256 now_ = block.timestamp;
        for (uint256 i = 0; i < wrong.length; i++) {
            vm.warp(now_);
            auditReportBody(jobId, 1, auditor, wrong[i]);
            vm.warp(rounds.timesOf(jobId, 1).auditEnd);
            vm.prank(account);
            vm.expectRevert(abi.encodeWithSelector(Audits.BodyLength.selector, wrong[i].length));
            audits.open(jobId, 1, auditor, f, wrong[i], "salt");
        }
    }

    /// @dev One of those that are excluded is.
    function test_whoIsExcludedIsAuditedByWhoeverIsNext() public allHome {
        Terms memory t = defaultTerms();
        (t.seats, t.slots, t.f) = (10, 9, 3);
        jobId = start(t, 10, 9);
        toVotes(jobId);
        nextBlock();
        Verdict memory v = verdictFor(jobId, 1023);
        (v.excluded, v.merged) = (7, 7);
        settle(jobId, v);
        bytes[] memory bodies = honestBodies(jobId, 0);
        for (uint32 id = 1; id <= 9; id++) {
            if (bodies[id - 1].length != 0) auditReportBody(jobId, 0, id, bodies[id - 1]);
        }
        vm.warp(rounds.timesOf(jobId, 0).auditEnd);
        uint256 audited;
        for (uint32 id = 1; id <= 9; id++) {
            if (bodies[id - 1].length == 0) continue;
            openBody(jobId, 0, id, bodies[id - 1]);
            audited += bodies[id - 1].length / 35;
        }
        same(audited, drawn(jobId, 0).popcount(), "every drawn seat has its auditor");
        check(drawn(jobId, 0) & 7 != 0, "one that was left out too");
    }

    function test_anAccusationThatWasPlayedIsNotDropped() public allHome {
        bytes memory body = abi.encodePacked(uint8(seat), uint16(2), keccak256("mine"));
        toOpen(body);
        Evidence memory e = evidenceFor(jobId, 1, seat, 2);
        vm.prank(account);
        Claim memory c = game.challenge(abi.encode(e));
        vm.warp(rounds.timesOf(jobId, 1).half);
        vm.expectPartialRevert(Audits.NotDropped.selector);
        audits.dropped(jobId, 1, auditor, seat, uint32(seat) + 1, body);
        game.holderWins(c);
        vm.expectPartialRevert(Audits.NotDropped.selector);
        audits.dropped(jobId, 1, auditor, seat, uint32(seat) + 1, body);
    }

    /// @dev Its challenge names the last segment, as all challenges of links do.
    function test_anAccusationOfALinkThatWasPlayedIsNotDropped() public allHome {
        bytes memory body = abi.encodePacked(uint8(seat), uint16(8), keccak256("mine"));
        toOpen(body);
        Evidence memory e = evidenceFor(jobId, 1, seat, 7);
        vm.prank(account);
        game.challenge(abi.encode(e)); // of the segment, and not of the update proof
        vm.warp(rounds.timesOf(jobId, 1).half);
        uint256 before = vm.snapshotState();
        audits.dropped(jobId, 1, auditor, seat, uint32(seat) + 1, body);
        vm.revertToState(before);
        vm.warp(rounds.timesOf(jobId, 1).half - 1);
        e.isUpdateProof = true;
        vm.prank(account);
        game.challenge(abi.encode(e));
        vm.warp(rounds.timesOf(jobId, 1).half);
        vm.expectPartialRevert(Audits.NotDropped.selector);
        audits.dropped(jobId, 1, auditor, seat, uint32(seat) + 1, body);
    }

    /// @dev Else who seals the hash of a body, and not an audit report, would have said it without
    /// having opened it.
    function test_nothingIsSaidByAAuditReportThatIsNotOpened() public allHome {
        bytes memory body = honestBody(jobId, 1, auditor);
        vm.prank(account);
        audits.sealAuditReport(jobId, 1, keccak256(body));
        vm.expectPartialRevert(Audits.WrongBody.selector);
        audits.saidOf(jobId, 1, auditor, seat, body);
    }

    function test_nothingIsSaidByABodyThatWasNotOpened() public allHome {
        bytes memory body = honestBody(jobId, 1, auditor);
        toOpen(body);
        (uint16 from,) = audits.saidOf(jobId, 1, auditor, seat, body);
        same(from, type(uint16).max, "valid");
        body[body.length - 1] ^= 0x01;
        vm.expectPartialRevert(Audits.WrongBody.selector);
        audits.saidOf(jobId, 1, auditor, seat, body);
    }

    function test_anAccusationEarnsOnceItsSeatIsSlashed() public allHome {
        bytes memory body = abi.encodePacked(uint8(seat), uint16(2), keccak256("mine"));
        toOpen(body);
        uint32 seatId = uint32(seat) + 1;
        vm.expectRevert(abi.encodeWithSelector(Audits.NotProven.selector, seat, auditor));
        audits.proven(jobId, 1, auditor, seatId, body);
        game.holderLoses(game.challenge(abi.encode(evidenceFor(jobId, 1, seat, 5))), OUTSIDER); // another one's
        vm.expectPartialRevert(Audits.NotThen.selector);
        audits.proven(jobId, 1, auditor, 9, body);
        audits.proven(jobId, 1, auditor, seatId, body);
        vm.expectPartialRevert(Audits.AlreadyContested.selector);
        audits.proven(jobId, 1, auditor, seatId, body);
        jobs.claimCredit(jobId, account);
        same(token.balanceOf(account), 10 ether, "its fee");
        vm.warp(rounds.timesOf(jobId, 1).half);
        vm.expectPartialRevert(Audits.NotDropped.selector);
        audits.dropped(jobId, 1, auditor, seat, seatId, body);
        vm.warp(rounds.timesOf(jobId, 1).windowEnd);
        jobs.claim(jobId, Role.VERIFIER, auditor, 2);
        same(token.balanceOf(account), 12 ether, "and its signatures, but not its fee again");
    }

    /// @dev Who enrols, leaves and enrols again has had several ids, and one audit report: else
    /// each id would have its fee.
    function test_whatAnAccountSaidCountsForOneOfItsIds() public allHome {
        Terms memory t = defaultTerms();
        t.rounds = 4;
        jobId = create(t);
        for (uint256 i = 0; i < 3; i++) {
            uint32 id = enrol(jobId, i, uint16(i));
            vm.prank(verifier(i));
            members.leavePool(jobId);
            members.release(jobId, Role.VERIFIER, id);
        }
        for (uint256 i = 0; i < 4; i++) {
            join(jobId, i, uint16(i));
            if (i < 3) enrol(jobId, i, uint16(i));
        }
        nextBlock();
        rounds.advance(jobId);
        play(jobId);
        play(jobId);
        seat = drawn(jobId, 1).lowest();
        uint32 earlier;
        for (uint16 slot = 0; slot < 3; slot++) {
            if (dutiesOf(jobId, 1, slot).has(seat)) (earlier, auditor) = (uint32(slot) + 1, uint32(slot) + 4);
        }
        account = members.holderOf(jobId, Role.VERIFIER, auditor).account;
        same(uint160(members.holderOf(jobId, Role.VERIFIER, earlier).account), uint160(account), "the same account");
        bytes memory body = abi.encodePacked(uint8(seat), uint16(2), keccak256("mine"));
        toOpen(body);
        uint32 seatId = uint32(seat) + 1;
        vm.expectRevert(abi.encodeWithSelector(Audits.NotThen.selector, earlier, 1));
        audits.saidOf(jobId, 1, earlier, seat, body);
        game.holderLoses(game.challenge(abi.encode(evidenceFor(jobId, 1, seat, 5))), OUTSIDER);
        vm.expectRevert(abi.encodeWithSelector(Audits.NotThen.selector, earlier, 1));
        audits.proven(jobId, 1, earlier, seatId, body);
        audits.proven(jobId, 1, auditor, seatId, body);
    }

    function test_aValidEntryEarnsByItselfAlone() public allHome {
        bytes memory body = honestBody(jobId, 1, auditor);
        toOpen(body);
        game.holderLoses(game.challenge(abi.encode(evidenceFor(jobId, 1, seat, 5))), OUTSIDER);
        vm.expectRevert(abi.encodeWithSelector(Audits.NotProven.selector, seat, auditor));
        audits.proven(jobId, 1, auditor, uint32(seat) + 1, body);
    }

    function test_P13_programsThatNobodyCouldOpenAreNotPlayed() public allHome {
        microBatches = 810; // ten steps of them are 32,800 bytes
        uint256 id = start(defaultTerms(), 4, 3);
        play(id);
        play(id);
        vm.warp(rounds.timesOf(id, 1).auditEnd);
        bytes memory e = abi.encode(evidenceFor(id, 1, 0, 3));
        vm.expectRevert(abi.encodeWithSelector(ProgramReader.SegmentTooLarge.selector, 32_800, 32_768));
        claims.claim(e);
        Terms memory t = defaultTerms();
        (t.steps, t.segmentSteps) = (745, 745);
        vm.expectRevert(abi.encodeWithSelector(TermsCheck.TermOutOfRange.selector, "segmentSteps", 745, 1, 744));
        vm.prank(SUBMITTER);
        jobs.create("spec", "cid", t, address(policy), 1e30);
    }

    /// @dev Else who dropped an accusation of a seat that was slashed could be shown another seat
    /// that did not.
    function test_anAccusationIsOfTheSeatThatItNames() public allHome {
        bytes memory body = abi.encodePacked(uint8(seat), uint16(2), keccak256("mine"));
        toOpen(body);
        vm.warp(rounds.timesOf(jobId, 1).half);
        uint32 another = (uint32(seat) + 1) % 4 + 1;
        vm.expectRevert(abi.encodeWithSelector(Audits.NotThen.selector, another, 1));
        audits.dropped(jobId, 1, auditor, seat, another, body);
        vm.expectRevert(abi.encodeWithSelector(Audits.NotThen.selector, 9, 1));
        audits.dropped(jobId, 1, auditor, seat, 9, body);
        vm.expectRevert(abi.encodeWithSelector(Audits.NotADuty.selector, 200, auditor));
        audits.saidOf(jobId, 1, auditor, 200, body);
        audits.dropped(jobId, 1, auditor, seat, uint32(seat) + 1, body);
        same(lockedOf(account, Role.VERIFIER), BOND / 2, "half of the bond");
    }

    /// @dev A holder's last round is the one before `to`.
    function test_nothingIsShownOfWhoHadTheSeatBefore() public allHome {
        Terms memory t = defaultTerms();
        (t.rounds, t.seats) = (4, 5);
        jobId = start(t, 4, 3);
        vm.prank(provider(0));
        members.leaveSeat(jobId);
        play(jobId);
        stakeUp(provider(9), Role.PROVIDER, BOND);
        vm.prank(provider(9));
        uint32 id = members.join(jobId, 0);
        play(jobId);
        play(jobId);
        same(members.holderOf(jobId, Role.PROVIDER, id).from, 1, "the next holder, seated from round 2 on");
        Shown memory shown = shownFor(jobId, 2, 0);
        bytes32 right = keyOf(jobId, 2, 0);
        for (uint32 wrong = 1; wrong < id; wrong++) {
            shown.id = wrong;
            vm.expectRevert(abi.encodeWithSelector(Reveals.NotTheHolder.selector, wrong, 0, 2));
            audits.leak(shown, right);
        }
        shown = shownFor(jobId, 0, 0);
        shown.round = 1;
        shown.record = said[jobId][1].record;
        shown.id = 1;
        vm.expectRevert(abi.encodeWithSelector(Reveals.NotTheHolder.selector, 1, 0, 1));
        audits.leak(shown, right);
        play(jobId);
    }

    // --- keys ---

    /// @dev Else most of the drawn are silent, and nobody misses.
    function othersShow(uint256 id, uint32 round, uint16 silent) internal {
        vm.warp(rounds.timesOf(id, round).openEnd);
        for (uint256 left = drawn(id, round) & ~Bits.bit(silent); left != 0; left &= left - 1) {
            showKey(id, round, left.lowest());
        }
    }

    /// Who sleeps is no cheat: a mismatch is played without its key, which only scores auditors.
    function test_P43_aKeyThatIsNotShownCostsThePayAndAPenalty() public allHome {
        othersShow(jobId, 1, seat);
        vm.warp(rounds.timesOf(jobId, 1).keysEnd - 1);
        Shown memory s = shownFor(jobId, 1, seat);
        vm.expectPartialRevert(Audits.NotOpen.selector);
        audits.reportMissingKey(s);
        vm.warp(rounds.timesOf(jobId, 1).keysEnd);
        audits.reportMissingKey(s);
        (uint256 pay, uint256 lost,) = rounds.rowsOf(jobId, 1);
        check(!pay.has(seat) && lost.has(seat), "the round's pay");
        same(lockedOf(provider(seat), Role.PROVIDER), BOND - 10 ether, "a missed duty");
        vm.expectRevert(abi.encodeWithSelector(Audits.AlreadyStruck.selector, seat, 1));
        audits.reportMissingKey(s);
        vm.warp(rounds.timesOf(jobId, 1).windowEnd);
        vm.expectPartialRevert(Audits.NotOpen.selector);
        audits.reportMissingKey(s);
        uint32 id = uint32(seat) + 1;
        check(!members.holderOf(jobId, Role.PROVIDER, id).isSlashed, "and nothing else");
        same(activeOf(OUTSIDER, Role.VERIFIER), 0, "nobody earns by it");
    }

    /// However often it was away, and whoever reports it when.
    function test_P43_whatIsMissedTakesAnEighthOfABondAtMost() public allHome {
        Terms memory t = defaultTerms();
        (t.rounds, t.f, t.windowSeconds) = (30, 0, 9_000);
        jobId = start(t, 4, 3);
        for (uint256 n = 0; n < 9; n++) {
            play(jobId);
        }
        vm.warp(rounds.timesOf(jobId, 8).openEnd);
        for (uint32 round = 0; round < 9; round++) {
            showKey(jobId, round, 1);
            showKey(jobId, round, 2);
        }
        vm.warp(rounds.timesOf(jobId, 8).keysEnd);
        uint256[9] memory order = [uint256(4), 8, 0, 7, 2, 3, 6, 1, 5];
        for (uint256 n = 0; n < 9; n++) {
            audits.reportMissingKey(shownFor(jobId, uint32(order[n]), 0));
        }
        same(members.bondOf(jobId, Role.PROVIDER, 1), BOND - BOND / 8, "an eighth");
    }

    /// The fees of the seat's auditors, whose words its key would have scored.
    function test_P43_aKeylessSeatPaysWhatItsAuditorsAreOwed() public allHome {
        Terms memory t = defaultTerms();
        (t.f, t.dutyFee) = (0, 3 ether);
        jobId = start(t, 4, 3);
        play(jobId);
        othersShow(jobId, 0, 1);
        vm.warp(rounds.timesOf(jobId, 0).keysEnd);
        audits.reportMissingKey(shownFor(jobId, 0, 1));
        same(members.bondOf(jobId, Role.PROVIDER, 2), BOND - 3 ether, "above a first penalty");
    }

    function test_P43_anUndrawnSeatOwesNoKey() public allHome {
        uint16 other = (15 & ~drawn(jobId, 1)).lowest();
        vm.warp(rounds.timesOf(jobId, 1).half);
        Shown memory s = shownFor(jobId, 1, other);
        vm.expectPartialRevert(Audits.NotDrawn.selector);
        audits.reportMissingKey(s);
    }

    function test_P43_aWrongKeyCountsAsNone() public allHome {
        othersShow(jobId, 1, seat);
        vm.warp(rounds.timesOf(jobId, 1).half);
        showKey(jobId, 1, seat, "not mine");
        Shown memory s = shownFor(jobId, 1, seat);
        audits.reportMissingKey(s);
        same(lockedOf(provider(seat), Role.PROVIDER), BOND - 10 ether, "a missed duty");
    }

    /// @return id of another job, in whose round 1 seat 0 has this key, and what it revealed
    function playedWith(bytes32 own, bool hasZeroTag) private returns (uint256 id, Reveal memory r) {
        id = start();
        play(id);
        r = trainer.train(id, 1, 0, own, 8);
        if (hasZeroTag) {
            bytes memory leaves = r.checkpointCommitments;
            bytes32 mask = Hashing.mask(own, 3);
            assembly ("memory-safe") {
                mstore(add(leaves, 256), mask) // the fourth leaf's blinded tag, behind the length
            }
        }
        commitAll(id, 14);
        commitSeat(id, 0, r);
        nextBlock();
        revealAll(id, 14);
        revealSeat(id, 0, r);
        nextBlock();
        sayAll(id, 15);
        nextBlock();
        settle(id);
    }

    /// In a claim zero is no work tag, which whoever trained truly could never be made to open.
    function test_P43_aWorkTagOfZeroIsClaimedAsOneThatNobodyOpens() public allHome {
        bytes32 own = "its key";
        (uint256 id, Reveal memory r) = playedWith(own, true);
        vm.warp(rounds.timesOf(id, 1).openEnd);
        showKey(id, 1, 0, own);
        Evidence memory e = evidenceFor(id, 1, 0, 3);
        (e.shown, e.key) = (shownFor(id, 1, 0, r), own);
        same(claims.claim(abi.encode(e)).workTag, bytes32(uint256(1)), "no hash");
        e.segment = 4;
        same(claims.claim(abi.encode(e)).workTag, workTag(id, 1, 0, 4), "another one's tag");
        e.key = 0;
        same(claims.claim(abi.encode(e)).workTag, 0, "none without the key");
    }

    /// A key of zero is none: nobody contests with it, and who has committed to it shows none.
    function test_P43_aKeyOfZeroIsNotShown() public allHome {
        (uint256 id, Reveal memory r) = playedWith(0, false);
        Shown memory s = shownFor(id, 1, 0, r);
        othersShow(id, 1, 0);
        vm.prank(provider(0));
        vm.expectRevert(Audits.ZeroKey.selector);
        audits.key(id, 1, 0);
        vm.expectPartialRevert(Reveals.WrongKey.selector);
        audits.contest(s, 1, "", 0);
        vm.warp(rounds.timesOf(id, 1).half);
        audits.reportMissingKey(s);
        same(members.bondOf(id, Role.PROVIDER, 1), BOND - 10 ether, "a missed duty");
    }

    function test_P43_theCommittedKeyInTimeSavesPayAndBond() public allHome {
        vm.warp(rounds.timesOf(jobId, 1).keysEnd - 1);
        showKey(jobId, 1, seat);
        vm.warp(rounds.timesOf(jobId, 1).half);
        Shown memory s = shownFor(jobId, 1, seat);
        vm.expectPartialRevert(Audits.KeyShownAlready.selector);
        audits.reportMissingKey(s);
    }

    /// It follows from when it was shown, not from who reports it first; it still scores auditors.
    function test_P43_aLateKeyGivesNothingBack() public allHome {
        othersShow(jobId, 1, seat);
        vm.warp(rounds.timesOf(jobId, 1).keysEnd);
        showKey(jobId, 1, seat);
        audits.reportMissingKey(shownFor(jobId, 1, seat));
        same(lockedOf(provider(seat), Role.PROVIDER), BOND - 10 ether, "a missed duty");
    }

    /// What is shown is anybody's to copy, and the seat's second account may be who shows it: nobody
    /// earns by it, and a seat that was told on has nothing left of its pay.
    function test_P43_aToldKeyTakesThePayAndIsNobodysGain() public allHome {
        Shown memory s = shownFor(jobId, 1, seat);
        bytes32 told = key();
        vm.prank(provider(seat));
        vm.expectPartialRevert(Audits.OwnKey.selector);
        audits.leak(s, told);
        vm.prank(OUTSIDER);
        audits.leak(s, told);
        vm.expectPartialRevert(Audits.NotPaid.selector);
        audits.leak(s, told);
        toOpen(wrongBody());
        s = shownFor(jobId, 1, seat);
        bytes memory body = wrongBody();
        vm.expectPartialRevert(Audits.WasLeaked.selector);
        audits.contest(s, auditor, body, told);
        vm.warp(rounds.timesOf(jobId, 1).windowEnd);
        vm.expectPartialRevert(Audits.NotContested.selector);
        audits.settleContest(jobId, 1, 0, uint32(seat) + 1);
        jobs.burn(jobId, 2);
        same(jobs.escrowOf(jobId).burnt, 8 * segmentPay(), "all of it is burnt");
        same(jobs.creditOf(jobId, OUTSIDER), 0, "and nothing is for who showed it");
    }

    // --- late votes ---

    /// @dev All reveal, and nobody has the update of seat 0.
    function playWithoutSeat0() internal {
        commitAll(jobId, 15);
        revealAll(jobId, 15);
        sayAll(jobId, 14);
        nextBlock();
        settle(jobId, verdictFor(jobId, 14));
    }

    function test_lateVotesOfBothCommitteesPayWhatOneLiedAbout() public allHome {
        playWithoutSeat0();
        (uint256 pay, uint256 lost,) = rounds.rowsOf(jobId, 2);
        same(pay, 14, "unpaid");
        same(lost, 1, "and lost, unless it was available");
        Having memory h = havingOf(2);
        vm.prank(verifier(0));
        lateVotes.lateVote(jobId, 2, 1, 1);
        vm.expectPartialRevert(LateVotes.NotAvailable.selector);
        lateVotes.grant(jobId, 2, 0, h);
        vm.prank(verifier(1));
        lateVotes.lateVote(jobId, 2, 2, 1);
        lateVotes.grant(jobId, 2, 0, h);
        (pay, lost,) = rounds.rowsOf(jobId, 2);
        same(pay, 15, "paid");
        same(lost, 0, "and nobody's lost");
        vm.warp(rounds.timesOf(jobId, 2).auditEnd);
        vm.prank(verifier(2));
        vm.expectPartialRevert(LateVotes.TooLate.selector);
        lateVotes.lateVote(jobId, 2, 3, 1);
    }

    function test_lateVotesOfAMembersFirstRoundCount() public allHome {
        jobId = start();
        playWithoutSeat0();
        for (uint32 id = 1; id <= 2; id++) {
            vm.prank(verifier(id - 1));
            lateVotes.lateVote(jobId, 0, id, 1);
        }
        lateVotes.grant(jobId, 0, 0, havingOf(0));
        (uint256 pay,,) = rounds.rowsOf(jobId, 0);
        same(pay, 15, "paid");
        play(jobId);
    }

    function test_aLateVoteOfWhoIsInTheNextCommitteeAloneCounts() public allHome {
        Terms memory t = defaultTerms();
        (t.rounds, t.slots) = (4, 4);
        jobId = start(t, 4, 3);
        enrol(jobId, 3, 3);
        play(jobId);
        playWithoutSeat0();
        same(said[jobId][1].record.committee, 7, "not in the round's own");
        same(rounds.state(jobId).committee, 15, "in the next");
        Having memory h = havingOf(1);
        for (uint32 id = 1; id <= 2; id++) {
            vm.prank(verifier(id - 1));
            lateVotes.lateVote(jobId, 1, id, 1);
        }
        h.late = ids(1, 2, 4);
        vm.expectPartialRevert(LateVotes.NotAvailable.selector);
        lateVotes.grant(jobId, 1, 0, h); // two of four
        vm.prank(verifier(3));
        lateVotes.lateVote(jobId, 1, 4, 1);
        h.late = ids(1, 2, 2);
        vm.expectPartialRevert(LateVotes.NotAvailable.selector);
        lateVotes.grant(jobId, 1, 0, h); // two of four, one of them twice
        h.late = ids(1, 2, 4);
        lateVotes.grant(jobId, 1, 0, h);
        (uint256 pay,,) = rounds.rowsOf(jobId, 1);
        same(pay, 15, "paid");
        play(jobId);
    }

    function ids(uint32 a, uint32 b, uint32 c) private pure returns (uint32[] memory all) {
        all = new uint32[](3);
        (all[0], all[1], all[2]) = (a, b, c);
    }

    function test_theNextCommitteeIsOfTheNextRoundsRecord() public allHome {
        jobId = start();
        playWithoutSeat0();
        for (uint32 id = 1; id <= 2; id++) {
            vm.prank(verifier(id - 1));
            lateVotes.lateVote(jobId, 0, id, 1);
        }
        play(jobId);
        Having memory h = havingOf(0);
        for (uint32 wrong = 0; wrong < 2; wrong++) {
            if (wrong == 1) h.next = said[jobId][0].record;
            vm.expectPartialRevert(Reveals.WrongRecord.selector);
            lateVotes.grant(jobId, 0, 0, h);
        }
        h.next = said[jobId][1].record;
        lateVotes.grant(jobId, 0, 0, h);
    }

    function test_lateVotesGiveNoPayToWhoHasNotRevealed() public allHome {
        jobId = start();
        commitAll(jobId, 15);
        revealAll(jobId, 7);
        vm.warp(rounds.state(jobId).deadline);
        rounds.advance(jobId);
        sayAll(jobId, 15); // with a seat that has revealed nothing
        nextBlock();
        settle(jobId, verdictFor(jobId, 7));
        Having memory h = havingOf(0);
        h.late = new uint32[](0);
        vm.expectPartialRevert(bytes4(keccak256("NothingEarned(uint16,uint32)")));
        lateVotes.grant(jobId, 0, 3, h);
        members.penaliseSeat(jobId, 3);
        play(jobId);
    }

    function test_whoLeftTheRoundBeforeSaysNoLateVote() public allHome {
        jobId = start();
        vm.prank(verifier(2));
        members.leavePool(jobId);
        play(jobId);
        play(jobId);
        same(members.holderOf(jobId, Role.VERIFIER, 3).to, 1, "it was there for round 0");
        vm.startPrank(verifier(2));
        vm.expectPartialRevert(LateVotes.NotThen.selector);
        lateVotes.lateVote(jobId, 1, 3, 1);
        lateVotes.lateVote(jobId, 0, 3, 1);
        vm.stopPrank();
    }

    function test_lateVotesAreAddedToThoseThatWereSaidAndToNoOthers() public allHome {
        commitAll(jobId, 15);
        revealAll(jobId, 15);
        castVote(jobId, 0, 15); // it alone has seat 0
        castVote(jobId, 1, 14);
        castVote(jobId, 2, 14);
        nextBlock();
        settle(jobId, verdictFor(jobId, 14));
        Having memory h = havingOf(2);
        vm.expectPartialRevert(LateVotes.NotAvailable.selector);
        lateVotes.grant(jobId, 2, 0, h);
        vm.expectPartialRevert(LateVotes.NotYours.selector);
        lateVotes.lateVote(jobId, 2, 2, 1);
        vm.prank(verifier(1));
        lateVotes.lateVote(jobId, 2, 2, 1);
        h.record.available = 15;
        vm.expectPartialRevert(Reveals.WrongRecord.selector);
        lateVotes.grant(jobId, 2, 0, h);
        h.record.available = 14;
        h.has[2] = 15;
        vm.expectPartialRevert(LateVotes.WrongVotes.selector);
        lateVotes.grant(jobId, 2, 0, h);
        h.has[2] = 14;
        uint256 settled = vm.snapshotState();
        lateVotes.grant(jobId, 2, 0, h);
        (uint256 pay,,) = rounds.rowsOf(jobId, 2);
        same(pay, 15, "two of three have it");
        vm.revertToState(settled);
        vm.warp(rounds.timesOf(jobId, 2).auditEnd);
        vm.expectPartialRevert(LateVotes.TooLate.selector);
        lateVotes.grant(jobId, 2, 0, h);
    }

    function test_lateVotesGiveNoPayBackThatALeakTook() public allHome {
        Shown memory s = shownFor(jobId, 1, seat);
        bytes32 told = key();
        vm.prank(OUTSIDER);
        audits.leak(s, told);
        Having memory h = havingOf(1);
        vm.expectPartialRevert(LateVotes.WasLeaked.selector);
        lateVotes.grant(jobId, 1, seat, h);
    }

    /// @return h what the settled round's votes were, and the late ones of members 1 and 2
    function havingOf(uint32 round) internal view returns (Having memory h) {
        Said storage told = said[jobId][round];
        RoundRecord memory none;
        h = Having(told.record, none, told.record.seed, told.slots, told.has, new uint32[](2));
        (h.late[0], h.late[1]) = (1, 2);
    }

    // --- claims and slashes ---

    function test_claimsSayWhatWasRevealed() public allHome {
        vm.warp(rounds.timesOf(jobId, 1).auditEnd);
        Evidence memory e = evidenceFor(jobId, 1, seat, 3);
        Claim memory c = claims.claim(abi.encode(e));
        same(c.closing, trainer.digestOf(jobId, 1, seat, 3), "closing");
        same(c.initialState, trainer.digestOf(jobId, 1, seat, 2), "opening");
        same(c.workTag, 0, "no key, no work tag");
        same(c.modelParams, e.model.paramsRoot, "the model's parameters");
        same(c.modelExponents, e.model.exponents, "and exponents");
        e.key = key();
        same(claims.claim(abi.encode(e)).workTag, workTag(jobId, 1, seat, 3), "work tag");
        e.key = "another";
        vm.expectPartialRevert(Reveals.WrongKey.selector); // else its work tag would be one that nobody can open
        claims.claim(abi.encode(e));
        e.key = 0;
        same(c.holder, provider(seat), "holder");
        same(c.set, Hashing.setOf(jobId, Role.PROVIDER, uint32(seat) + 1), "set");
        e.segment = 8;
        vm.expectPartialRevert(Claims.NoSuchSegment.selector);
        claims.claim(abi.encode(e));
        (e.segment, e.isUpdateProof) = (7, true);
        c = claims.claim(abi.encode(e));
        same(c.updateRoot, e.shown.reveal.updateRoot, "an update proof's update");
        e.model.initialRoot = "x";
        vm.expectPartialRevert(Claims.WrongModel.selector);
        claims.claim(abi.encode(e));
    }

    function test_theFirstRoundOpensFromTheProgramsModel() public allHome {
        vm.warp(rounds.timesOf(jobId, 0).auditEnd);
        Evidence memory e;
        (e.shown, e.segment, e.header, e.programLeaves) = (shownFor(jobId, 0, seat), 3, header(), 1);
        vm.expectPartialRevert(Claims.WrongModel.selector);
        claims.claim(abi.encode(e));
        e.model = initialModel();
        Claim memory c = claims.claim(abi.encode(e));
        same(c.modelParams, e.model.paramsRoot, "its parameters");
        same(c.modelExponents, e.model.exponents, "and exponents");
    }

    function test_claimsAreTakenFromTheEndOfAuditToTheWindows() public allHome {
        Evidence memory e = evidenceFor(jobId, 1, seat, 3);
        vm.expectPartialRevert(Claims.NotOpen.selector);
        claims.claim(abi.encode(e));
        vm.warp(rounds.timesOf(jobId, 1).windowEnd);
        vm.expectPartialRevert(Claims.NotOpen.selector);
        claims.claim(abi.encode(e));
    }

    function test_anythingElseIsNoEvidence() public allHome {
        vm.warp(rounds.timesOf(jobId, 1).auditEnd);
        Evidence memory e = evidenceFor(jobId, 1, seat, 3);
        e.shown.reveal.checkpointCommitments[40] ^= 0x01;
        vm.expectPartialRevert(Reveals.NotRevealed.selector);
        claims.claim(abi.encode(e));
        e = evidenceFor(jobId, 1, seat, 3);
        e.shown.id = e.shown.id % 4 + 1;
        vm.expectPartialRevert(Reveals.NotTheHolder.selector);
        claims.claim(abi.encode(e));
        e = evidenceFor(jobId, 1, seat, 3);
        e.shown.record.model = "x";
        vm.expectPartialRevert(Reveals.WrongRecord.selector);
        claims.claim(abi.encode(e));
    }

    /// Of any other segment the state that a round was closed from would be another.
    function test_aLinkIsOfTheLastSegmentThatWasRevealed() public allHome {
        vm.warp(rounds.timesOf(jobId, 1).auditEnd);
        Evidence memory e = evidenceFor(jobId, 1, seat, 7);
        e.isUpdateProof = true;
        Claim memory c = claims.claim(abi.encode(e));
        same(c.initialState, trainer.digestOf(jobId, 1, seat, 7), "from the last state");
        for (uint32 other = 6; other <= 8; other += 2) {
            e.segment = other;
            vm.expectRevert(abi.encodeWithSelector(Claims.NoSuchSegment.selector, other, 8));
            claims.claim(abi.encode(e));
        }
    }

    function test_validIsAClaimOfItsOwn() public allHome {
        bytes memory body = honestBody(jobId, 1, auditor);
        toOpen(body);
        Evidence memory e = evidenceFor(jobId, 1, seat, 3);
        (e.member, e.body, e.key) = (auditor, body, key());
        Claim memory c = game.challenge(abi.encode(e));
        same(c.holder, account, "its author defends it");
        game.holderLoses(c, OUTSIDER);
        same(lockedOf(account, Role.VERIFIER), BOND / 2, "half of its bond");
        same(activeOf(OUTSIDER, Role.VERIFIER), BOND / 2 * 3 / 10, "a share of that to the winner");
        same(lockedOf(provider(seat), Role.PROVIDER), BOND, "P44: the seat's is another game");
        vm.expectPartialRevert(Claims.AlreadySlashed.selector);
        claims.claim(abi.encode(e));
    }

    function test_P33_P38_aSlashTakesWhatIsNotFinalAndNothingElse() public allHome {
        vm.warp(rounds.timesOf(jobId, 1).windowEnd - 1); // round 0 is final
        jobs.claim(jobId, Role.PROVIDER, uint32(seat) + 1, 1);
        Evidence memory e = evidenceFor(jobId, 1, seat, 3);
        Claim memory c = game.challenge(abi.encode(e));
        vm.warp(rounds.timesOf(jobId, 1).windowEnd + 100);
        vm.expectPartialRevert(Jobs.NotFinal.selector);
        jobs.claim(jobId, Role.PROVIDER, uint32(seat) + 1, 2);
        vm.expectPartialRevert(Members.GameOpen.selector);
        members.release(jobId, Role.PROVIDER, uint32(seat) + 1);
        game.holderLoses(c, OUTSIDER);
        same(token.balanceOf(provider(seat)), 8 * segmentPay(), "what was final is kept");
        same(activeOf(OUTSIDER, Role.VERIFIER), BOND * 3 / 10, "the share");
        same(stakes.unburnt(), BOND * 7 / 10, "the rest is burnt");
        same(jobs.escrowOf(jobId).burnt, 0, "not yet");
        jobs.claim(jobId, Role.PROVIDER, uint32(seat) + 1, 2);
        same(token.balanceOf(provider(seat)), 8 * segmentPay(), "nothing more");
        same(jobs.escrowOf(jobId).burnt, 8 * segmentPay(), "burnt");
    }

    function test_aSlashFreesTheSeatAndStopsNobody() public allHome {
        vm.warp(rounds.timesOf(jobId, 1).auditEnd);
        Claim memory c = game.challenge(abi.encode(evidenceFor(jobId, 1, seat, 3)));
        uint256 before = rounds.state(jobId).seated;
        same(before, 15, "TRAIN of round 2");
        vm.warp(rounds.timesOf(jobId, 1).auditEnd);
        game.holderLoses(c, OUTSIDER);
        same(rounds.state(jobId).seated, 15 & ~(uint256(1) << seat), "it does not count any more");
        same(rounds.state(jobId).owing, 0, "and misses nothing");
    }

    function test_P28_silenceLocksNoFunds() public allHome {
        Terms memory t = defaultTerms();
        vm.warp(rounds.absoluteEnd(jobId));
        rounds.advance(jobId);
        for (uint32 id = 1; id <= 4; id++) {
            jobs.claim(jobId, Role.PROVIDER, id, 2);
            members.release(jobId, Role.PROVIDER, id);
        }
        for (uint32 id = 1; id <= 3; id++) {
            jobs.claim(jobId, Role.VERIFIER, id, 2);
            members.release(jobId, Role.VERIFIER, id);
        }
        jobs.burn(jobId, 2);
        vm.warp(block.timestamp + t.claimSeconds);
        jobs.refund(jobId);
        same(jobs.escrowOf(jobId).balance, 0, "all is home");
    }
}
