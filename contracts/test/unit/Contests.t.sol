// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {Audits} from "../../src/Audits.sol";
import {Claims, Evidence} from "../../src/judge/Claims.sol";
import {IAudits} from "../../src/interfaces/IAudits.sol";
import {Claim} from "../../src/judge/IClaims.sol";
import {Bits} from "../../src/libraries/Bits.sol";
import {Reveals, Shown} from "../../src/libraries/Reveals.sol";
import "../../src/types/Types.sol";
import {AuditedRound} from "../support/AuditedRound.sol";

/// @title Digests that are wrong, fees that wait for a game, and duties that are missed.
contract ContestsTest is AuditedRound {
    using Bits for uint256;

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
}
