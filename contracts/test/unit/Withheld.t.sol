// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {Audits} from "../../src/Audits.sol";
import {Claim} from "../../src/judge/IClaims.sol";
import {Bits} from "../../src/libraries/Bits.sol";
import "../../src/types/Types.sol";
import {Network} from "../support/Network.sol";

/// @title When the fee of a *valid* waits for a game, and what that costs: about round 1 of a job in
/// which every seat is drawn.
contract WithheldTest is Network {
    using Bits for uint256;

    uint256 internal jobId;
    uint16 internal seat; // one of two or more that the auditor calls valid
    uint32 internal auditor; // id
    address internal account; // the auditor's
    bytes internal body;

    function setUp() public override {
        super.setUp();
        Terms memory t = defaultTerms();
        (t.rounds, t.auditRate) = (5, 0);
        jobId = start(t, 4, 3);
        play(jobId);
        play(jobId);
        auditor = 1;
        while (dutiesOf(jobId, 1, uint16(auditor - 1)).popcount() < 2) auditor++;
        seat = dutiesOf(jobId, 1, uint16(auditor - 1)).lowest();
        account = members.holderOf(jobId, Role.VERIFIER, auditor).account;
        body = honestBody(jobId, 1, auditor);
    }

    function opened() private {
        auditReportBody(jobId, 1, auditor, body);
        vm.warp(rounds.timesOf(jobId, 1).auditEnd);
        openBody(jobId, 1, auditor, body);
        vm.warp(rounds.timesOf(jobId, 1).openEnd);
    }

    function disputed() private returns (Claim memory) {
        return game.challenge(abi.encode(evidenceFor(jobId, 1, seat, 0)));
    }

    function withhold(uint64 gameId) private {
        audits.withhold(jobId, 1, auditor, uint32(seat) + 1, gameId, body);
    }

    /// @return how many duties of the auditor's earn in the round
    function earning() private view returns (uint256) {
        return audits.dutiesOf(jobId, account, 1, 2);
    }

    function settleContest() private {
        audits.settleContest(jobId, 1, auditor, uint32(seat) + 1);
    }

    function test_P43_oneDutyWaitsAndTheOthersEarn() public {
        opened();
        uint256 duties = dutiesOf(jobId, 1, uint16(auditor - 1)).popcount();
        same(earning(), duties, "all");
        Claim memory c = disputed();
        withhold(1);
        same(earning(), duties - 1, "but one");
        game.holderWins(c);
        disputed();
        withhold(2); // in the sham's place
        same(earning(), duties - 1, "and no second one");
    }

    /// @return wrong the body with another digest of the seat
    function otherDigest() private view returns (bytes memory wrong) {
        wrong = bytes.concat(body);
        for (uint256 k = 0; k < wrong.length; k += 35) {
            if (uint8(wrong[k]) == seat) wrong[k + 34] ^= 0x01;
        }
    }

    function test_P43_aContestAndAGameTakeOneDutyInEitherOrder() public {
        body = otherDigest();
        uint256 before = vm.snapshotState();
        for (uint256 order = 0; order < 2; order++) {
            opened();
            uint256 duties = earning();
            disputed();
            if (order == 0) withhold(1);
            audits.contest(shownFor(jobId, 1, seat), auditor, body, keyOf(jobId, 1, seat));
            same(earning(), duties - 1, "one is taken");
            if (order == 1) withhold(1);
            same(earning(), duties - 1, "and no other");
            check(vm.revertToState(before), "again");
        }
    }

    function test_P43_theLastSecondInWhichAFeeBeginsToWait() public {
        opened();
        disputed();
        uint256 windowEnd = rounds.timesOf(jobId, 1).windowEnd;
        vm.warp(windowEnd);
        vm.expectPartialRevert(Audits.NotOpen.selector);
        withhold(1);
        vm.warp(windowEnd - 1);
        withhold(1);
    }

    function test_P43_anOpenGameGivesWayToNoOther() public {
        opened();
        disputed();
        withhold(1);
        disputed();
        vm.expectPartialRevert(Audits.AlreadyContested.selector);
        withhold(2);
    }

    function test_P43_aGameThatIsOverIsNoReasonToWait() public {
        opened();
        game.holderWins(disputed());
        vm.expectPartialRevert(Audits.NotAboutIt.selector);
        withhold(1);
        same(earning(), dutiesOf(jobId, 1, uint16(auditor - 1)).popcount(), "all earn");
    }

    function test_P43_aGameThatWentHomeWithAnotherIsNone() public {
        play(jobId);
        opened();
        vm.warp(rounds.timesOf(jobId, 2).auditEnd);
        disputed();
        Claim memory c = game.challenge(abi.encode(evidenceFor(jobId, 2, seat, 0)));
        game.holderLoses(c, OUTSIDER);
        vm.expectPartialRevert(Audits.NotAboutIt.selector);
        withhold(1);
    }

    /// A game that the seat has lost is one, though it is over.
    function test_P43_aLostGameTakesTheFeeWhenItIsNamedLater() public {
        opened();
        game.holderLoses(disputed(), OUTSIDER);
        withhold(1);
        vm.warp(rounds.timesOf(jobId, 1).windowEnd);
        settleContest();
        same(jobs.creditOf(jobId, account), 0, "no fee");
        vm.expectPartialRevert(Audits.AlreadyContested.selector);
        withhold(1);
    }

    function test_P43_aFeeThatCameBackWaitsNoMore() public {
        opened();
        game.holderWins(disputed());
        Claim memory c = disputed();
        withhold(2);
        game.holderWins(c);
        vm.warp(rounds.timesOf(jobId, 1).windowEnd);
        settleContest();
        same(jobs.creditOf(jobId, account), 10 ether, "the fee");
        vm.expectPartialRevert(Audits.NotAboutIt.selector);
        withhold(2);
        vm.expectPartialRevert(Audits.NotContested.selector);
        settleContest();
        same(jobs.creditOf(jobId, account), 10 ether, "once");
    }

    function test_P43_onlyAValidOfThatSeatAndItsHolderWaits() public {
        bytes memory accusing = bytes.concat(body);
        (accusing[1], accusing[2]) = (0x00, 0x03); // of its first seat: mismatch at 3
        body = accusing;
        seat = uint16(uint8(accusing[0]));
        opened();
        disputed();
        vm.expectRevert(abi.encodeWithSelector(Audits.NotValid.selector, seat, 3));
        withhold(1);
    }

    function test_P43_aFeeWaitsForAGameAboutItsOwnSeat() public {
        opened();
        uint16 other = (dutiesOf(jobId, 1, uint16(auditor - 1)) & ~Bits.bit(seat)).lowest();
        game.challenge(abi.encode(evidenceFor(jobId, 1, other, 0)));
        vm.expectPartialRevert(Audits.NotAboutIt.selector);
        withhold(1);
        audits.withhold(jobId, 1, auditor, uint32(other) + 1, 1, body);
    }

    function test_P43_aGameThatIsNotThereIsNone() public {
        opened();
        disputed();
        vm.expectPartialRevert(Audits.NotAboutIt.selector);
        withhold(2); // there is none
        withhold(1);
    }

    function test_P43_whatWaitsIsNotPaidBeforeItIsFinal() public {
        opened();
        Claim memory c = disputed();
        withhold(1);
        vm.warp(rounds.timesOf(jobId, 1).windowEnd - 1);
        vm.expectPartialRevert(Audits.NotOpen.selector);
        settleContest();
        vm.warp(rounds.timesOf(jobId, 1).windowEnd);
        vm.expectPartialRevert(Audits.NotFinal.selector);
        settleContest(); // its game is open
        game.holderWins(c);
        settleContest();
        same(jobs.creditOf(jobId, account), 10 ether, "the fee");
    }
}
