// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {Audits} from "../../src/Audits.sol";
import {Members} from "../../src/Members.sol";
import {IAudits} from "../../src/interfaces/IAudits.sol";
import {Stakes} from "../../src/Stakes.sol";
import {Bits} from "../../src/libraries/Bits.sol";
import {Shown} from "../../src/libraries/Reveals.sol";
import "../../src/types/Types.sol";
import {BlacklistToken, SixDecimalsToken} from "../support/HostileTokens.sol";
import {Network} from "../support/Network.sol";

/// @title Who stands still, is on a blocklist or is reported late loses what it missed, and no more.
contract NobodyIsRobbedTest is Network {
    using Bits for uint256;

    uint32 private constant SILENT_ROUNDS = 30;

    /// @return jobId in which member 3 was silent in every `each`-th of so many rounds
    function _silent(uint32 count, uint32 each) private returns (uint256 jobId) {
        Terms memory t = defaultTerms();
        (t.rounds, t.windowSeconds) = (count + 5, 9_000);
        jobId = start(t, 4, 3);
        stakeUp(verifier(2), Role.VERIFIER, 900 ether);
        for (uint32 n = 0; n < count; n++) {
            uint256 seated = toMerge(jobId);
            castVote(jobId, 0, seated);
            castVote(jobId, 1, seated);
            if (n % each != 0) castVote(jobId, 2, seated);
            nextBlock();
            if (n % each == 0) vm.warp(rounds.state(jobId).deadline - 25);
            settleBy(jobId, verdictFor(jobId, seated), 3);
        }
    }

    /// A bond is what a member put in: free stake behind it is not.
    function test_penaltiesTakeNothingBeyondTheBond() public allHome {
        uint256 jobId = _silent(SILENT_ROUNDS, 1);
        for (uint32 round = 0; round < SILENT_ROUNDS; round++) {
            blame(verifier(2));
            members.penaliseMember(jobId, round, 3);
        }
        same(lockedOf(verifier(2), Role.VERIFIER), BOND - BOND / 8, "an eighth of the bond");
        same(activeOf(verifier(2), Role.VERIFIER), 1_000 ether - BOND / 8, "nothing of the 900 beside it");
    }

    /// Where a chain splits in two, under another number, a missed duty that was punished stays so.
    function test_S2_nothingIsPunishedAgainAfterAFork() public allHome {
        uint256 jobId = _silent(3, 1);
        blame(verifier(2));
        for (uint32 round = 0; round < 3; round++) {
            members.penaliseMember(jobId, round, 3);
        }
        uint256 left = lockedOf(verifier(2), Role.VERIFIER);
        vm.chainId(9_999);
        for (uint32 round = 0; round < 3; round++) {
            vm.expectPartialRevert(Stakes.FaultUsed.selector);
            members.penaliseMember(jobId, round, 3);
        }
        same(lockedOf(verifier(2), Role.VERIFIER), left, "once");
    }

    /// The same missed duties cost the same, in whatever order somebody reports them.
    function test_whoReportsDoesNotChooseThePrice() public allHome {
        uint256 jobId = _silent(31, 10);
        uint256 snapshot = vm.snapshotState();
        uint256[4] memory up = [uint256(0), 10, 20, 30];
        uint256[4] memory down = [uint256(30), 20, 10, 0];
        uint256[4] memory mixed = [uint256(20), 0, 30, 10];
        uint256 ascending = _penalised(jobId, up);
        vm.revertToState(snapshot);
        uint256 descending = _penalised(jobId, down);
        vm.revertToState(snapshot);
        same(ascending, 4 ether, "far apart, a first penalty each");
        same(descending, ascending, "backwards");
        same(_penalised(jobId, mixed), ascending, "in between");
    }

    function test_whoReportsNeighboursDoesNotChooseThePrice() public allHome {
        uint256 jobId = _silent(7, 2);
        uint256 snapshot = vm.snapshotState();
        uint256 ascending = _penalised(jobId, [uint256(0), 2, 4, 6]);
        vm.revertToState(snapshot);
        uint256 descending = _penalised(jobId, [uint256(6), 4, 2, 0]);
        vm.revertToState(snapshot);
        same(ascending, BOND / 8, "1 + 2 + 4 + 8, of which an eighth");
        same(descending, ascending, "backwards");
        snapshot = vm.snapshotState();
        ascending = _penalised(jobId, [uint256(2), 4, 6, 6]);
        vm.revertToState(snapshot);
        same(ascending, 7 ether, "1 + 2 + 4");
        same(_penalised(jobId, [uint256(4), 6, 2, 2]), ascending, "the middle one first");
    }

    /// @param order of the rounds; one that comes twice is refused
    function _penalised(uint256 jobId, uint256[4] memory order) private returns (uint256) {
        blame(verifier(2));
        for (uint256 i = 0; i < 4; i++) {
            if (i > 0 && order[i] == order[i - 1]) vm.expectPartialRevert(bytes4(keccak256("FaultUsed(bytes32)")));
            members.penaliseMember(jobId, uint32(order[i]), 3);
        }
        return BOND - members.bondOf(jobId, Role.VERIFIER, 3);
    }

    /// @dev For so long nobody can send anything; then the first block comes.
    function _standsStill(uint256 jobId, uint256 time) private {
        vm.roll(block.number + 1);
        vm.warp(block.timestamp + time);
        rounds.advance(jobId);
    }

    /// In TRAIN, in REVEAL and while a round merges: all stay, and have as long again.
    function _roundThatStandsStill(uint256 jobId, uint256 time) private returns (uint32 round) {
        round = rounds.state(jobId).round;
        _standsStill(jobId, time);
        inPhase(jobId, Phase.TRAIN);
        same(rounds.state(jobId).deadline, block.timestamp + jobs.termsOf(jobId).trainSeconds, "as long again");
        commitSeat(jobId, 0, revealFor(jobId, 0, 8));
        _standsStill(jobId, time);
        commitAll(jobId, 14);
        nextBlock();
        _standsStill(jobId, time);
        inPhase(jobId, Phase.REVEAL);
        revealAll(jobId, 15);
        nextBlock();
        _standsStill(jobId, time);
        inPhase(jobId, Phase.MERGE);
        sayAll(jobId, 15);
        settle(jobId);
        same(rounds.absentOf(jobId, round), 0, "no vote is missed");
        same(said[jobId][round].record.available, 15, "everybody is paid");
    }

    /// Of AUDIT, OPEN and KEYS nothing was done in time: that costs the drawn their round's pay.
    function _auditThatStandsStill(uint256 jobId, uint32 round, uint256 time) private {
        Times memory t = rounds.timesOf(jobId, round);
        vm.warp(t.keysEnd > block.timestamp + time ? t.keysEnd : block.timestamp + time);
        if (block.timestamp >= t.windowEnd) return; // nothing can be reported any more
        RoundRecord memory r = said[jobId][round].record;
        for (uint32 id = 1; id <= 3; id++) {
            uint256 duties = dutiesOf(jobId, round, uint16(id - 1));
            if (duties == 0) continue;
            vm.expectPartialRevert(Audits.Standstill.selector);
            audits.absent(jobId, round, id, duties.lowest(), r, "");
        }
        for (uint256 left = drawn(jobId, round); left != 0; left &= left - 1) {
            vm.prank(OUTSIDER);
            audits.reportMissingKey(shownFor(jobId, round, left.lowest()));
        }
        same(activeOf(OUTSIDER, Role.VERIFIER), 0, "nobody earns by it");
    }

    function _chainThatStandsStill(uint256 time) private {
        Terms memory t = defaultTerms();
        (t.rounds, t.windowSeconds) = (3, 9_000);
        uint256 jobId = start(t, 4, 3);
        for (uint256 n = 0; n < 3; n++) {
            _auditThatStandsStill(jobId, _roundThatStandsStill(jobId, time), time);
        }
        for (uint32 id = 1; id <= 4; id++) {
            Holder memory m = members.holderOf(jobId, Role.PROVIDER, id);
            check(!m.isSlashed && m.to > 3, "no id ends");
        }
    }

    function test_aChainThatStandsStillForFortyMinutesTakesNoBond() public allHome onlyTheGuiltyPay {
        _chainThatStandsStill(40 minutes);
    }

    function test_aChainThatStandsStillForTwoHoursTakesNoBond() public allHome onlyTheGuiltyPay {
        _chainThatStandsStill(2 hours);
    }

    /// @return jobId whose pool is one verifier, which settled so many rounds, so far apart, and
    /// audited none
    function _alone(uint32 count, uint256 apart) private returns (uint256 jobId) {
        Terms memory t = defaultTerms();
        (t.rounds, t.f, t.slots, t.minVerifiers) = (count + 1, 0, 1, 1);
        (t.trainSeconds, t.windowSeconds) = (5_000, 9_000);
        jobId = start(t, 4, 1);
        for (uint32 n = 0; n < count; n++) {
            play(jobId);
            vm.warp(block.timestamp + apart);
        }
    }

    function _showKeys(uint256 jobId, uint32 round) private {
        vm.warp(rounds.timesOf(jobId, round).openEnd);
        for (uint16 seat = 0; seat < 4; seat++) {
            showKey(jobId, round, seat);
        }
    }

    function _absent(uint256 jobId, uint32 round) private {
        audits.absent(jobId, round, 1, 0, said[jobId][round].record, "");
    }

    /// A verifier that is alone in its rounds and stays away: its silence says no chain stood still.
    function test_aLoneAuditorIsExcusedThreeTimesAJob() public allHome onlyTheGuiltyPay {
        uint256 jobId = _alone(5, 100);
        for (uint32 round = 0; round < 5; round++) {
            _showKeys(jobId, round);
            vm.expectPartialRevert(Audits.NotOpen.selector);
            _absent(jobId, round);
            if (round == 3) blame(verifier(0));
            vm.warp(rounds.timesOf(jobId, round).keysEnd);
            if (round < 3) {
                vm.expectEmit();
                emit IAudits.Excused(jobId, verifier(0), 1, round);
            }
            if (round < 4) _absent(jobId, round);
            same(BOND - members.bondOf(jobId, Role.VERIFIER, 1), round < 3 ? 0 : 1 ether, "the fourth costs");
            bool isLeaving = members.holderOf(jobId, Role.VERIFIER, 1).to != type(uint24).max;
            check(isLeaving == (round >= 3), "and the slot");
        }
    }

    /// While a chain stands still many rounds' OPEN may end: for all of them that is one excuse.
    function test_aStandstillIsOneExcuseForAllOfItsRounds() public allHome onlyTheGuiltyPay {
        uint256 jobId = _alone(20, 0);
        vm.warp(rounds.timesOf(jobId, 19).openEnd); // it stood still since the first one's AUDIT
        for (uint32 round = 0; round < 20; round++) {
            for (uint16 seat = 0; seat < 4; seat++) {
                showKey(jobId, round, seat);
            }
        }
        vm.warp(rounds.timesOf(jobId, 19).keysEnd);
        uint256 excuses = 0;
        for (uint32 round = 20; round > 0; round--) {
            try audits.absent(jobId, round - 1, 1, 0, said[jobId][round - 1].record, "") {
                excuses++;
            } catch {}
        }
        same(excuses, 1, "whatever is reported first");
    }

    /// Where it stands in KEYS, too, the seats' keys show it, and no excuse is used.
    function test_whereKeysAreMissingTooNoExcuseIsUsed() public allHome onlyTheGuiltyPay {
        uint256 jobId = _alone(7, 100);
        for (uint32 round = 0; round < 7; round++) {
            if (round % 2 == 1) _showKeys(jobId, round);
            vm.warp(rounds.timesOf(jobId, round).keysEnd);
            if (round % 2 == 0) vm.expectPartialRevert(Audits.Standstill.selector);
            _absent(jobId, round);
        }
    }

    /// A majority of seats that does nothing holds a round up three times, and no longer.
    function test_aPhaseIsRepeatedThreeTimesInARound() public allHome {
        uint256 jobId = start();
        for (uint256 n = 0; n < 3; n++) {
            commitSeat(jobId, uint16(n == 0 ? 0 : 1), revealFor(jobId, uint16(n == 0 ? 0 : 1), 8));
            if (n == 1) break;
            _standsStill(jobId, 600);
        }
        commitAll(jobId, 12);
        for (uint256 n = 0; n < 2; n++) {
            _standsStill(jobId, 100);
            inPhase(jobId, Phase.REVEAL);
        }
        revealSeat(jobId, 0, revealFor(jobId, 0, 8));
        _standsStill(jobId, 100);
        inPhase(jobId, Phase.MERGE);
        same(rounds.state(jobId).owing, 14, "the others miss");
    }

    /// Who sees a report copies it, and sends it first; a culprit's second account needs not even see
    /// it. So neither has anything of it, nor has who found it: that costs gas, as other reports do.
    function test_aReportIsNobodysGain() public allHome {
        uint256 jobId = start();
        uint32 round = play(jobId);
        Shown memory s = shownFor(jobId, round, 0);
        bytes32 key = keyOf(jobId, round, 0);
        address friend = address(0xF1E7D);
        vm.prank(friend);
        audits.leak(s, key);
        vm.prank(OUTSIDER);
        vm.expectPartialRevert(Audits.NotPaid.selector);
        audits.leak(s, key);
        vm.warp(rounds.timesOf(jobId, round).windowEnd);
        vm.expectPartialRevert(Audits.NotContested.selector);
        audits.settleContest(jobId, round, 0, s.id);
        jobs.burn(jobId, round + 1);
        same(jobs.escrowOf(jobId).burnt, 8 * segmentPay(), "the seat's whole pay is burnt");
        same(jobs.creditOf(jobId, friend) + jobs.creditOf(jobId, OUTSIDER), 0, "nothing of it for either");
    }

    /// A submitter that the token refuses names another payee, before its refund or after it.
    function test_aRefusedSubmittersEscrowArrives() public {
        BlacklistToken hostile = new BlacklistToken(address(this), 1_000_000_000 ether);
        deploy(address(hostile));
        _refused(hostile, create(defaultTerms()));
    }

    function test_aRefusedSubmittersEscrowArrivesInSixDecimals() public {
        BlacklistToken hostile = new SixDecimalsToken(address(this), 1_000_000_000 ether);
        deploy(address(hostile));
        _refused(hostile, create(_aHundredthAMillion()));
    }

    /// A hundredth of a token for a million: nothing in units of tokens, a hundred in segments of ten thousand.
    function test_sixDecimalsPayAHundredthAMillion() public allHome {
        deploy(address(new SixDecimalsToken(address(this), 1_000_000_000 ether)));
        uint256 jobId = start(_aHundredthAMillion(), 4, 3);
        play(jobId);
        play(jobId);
        audit(jobId, 0);
        audit(jobId, 1);
        vm.warp(rounds.timesOf(jobId, 1).windowEnd);
        for (uint32 id = 1; id <= 4; id++) {
            jobs.claim(jobId, Role.PROVIDER, id, 2);
            same(token.balanceOf(provider(id - 1)), 2 * 8 * 100, "two rounds of eight segments");
        }
    }

    function _aHundredthAMillion() private view returns (Terms memory t) {
        t = defaultTerms();
        (t.segmentPay, t.signFee, t.dutyFee) = (100, 80, 880);
    }

    function _refused(BlacklistToken hostile, uint256 jobId) private {
        vm.prank(SUBMITTER);
        jobs.cancel(jobId);
        hostile.refuse(SUBMITTER);
        uint256 escrow = jobs.escrowOf(jobId).balance;
        jobs.refund(jobId);
        same(jobs.keptOf(SUBMITTER), escrow, "kept");
        same(jobs.escrowOf(jobId).balance, 0, "not in the escrow any more");
        vm.expectPartialRevert(BlacklistToken.Refused.selector);
        jobs.collect(SUBMITTER);
        address payee = address(0xbeef);
        vm.prank(SUBMITTER);
        jobs.setPayee(SUBMITTER, payee);
        jobs.collect(SUBMITTER);
        same(hostile.balanceOf(payee), escrow, "all of it");
    }

    function test_aRefundIsThePayees() public {
        uint256 jobId = create(defaultTerms());
        uint256 escrow = jobs.escrowOf(jobId).balance;
        vm.startPrank(SUBMITTER);
        jobs.cancel(jobId);
        jobs.setPayee(SUBMITTER, address(0xbeef));
        vm.stopPrank();
        jobs.refund(jobId);
        same(token.balanceOf(address(0xbeef)), escrow, "the payee has it");
    }

    /// A whale that outbids three ready verifiers by a tenth has one slot, and honest seats their pay.
    function test_aPoolIsNotForSaleByATenth() public allHome {
        Terms memory t = defaultTerms();
        (t.rounds, t.slots, t.minVerifiers, t.trainSeconds) = (6, 3, 3, 5_000);
        uint256 jobId = start(t, 4, 3);
        for (uint16 slot = 0; slot < 3; slot++) {
            stakeUp(verifier(10 + slot), Role.VERIFIER, 2 * BOND);
        }
        vm.prank(verifier(10));
        members.enrol(jobId, 0, uint128(BOND * 11 / 10), enrolment(10, jobId, 0, BOND * 11 / 10));
        uint256 until = block.timestamp + t.windowSeconds;
        _bidInVain(jobId, 1, 1, until);
        play(jobId);
        same(said[jobId][0].record.committee, 7, "who was outbid votes to the round's end");
        same(memberAt(jobId, 1) == verifier(1) ? 1 : 0, 1, "the others stay");
        _bidInVain(jobId, 1, 1, until);
        vm.warp(until);
        play(jobId);
        uint32 round = rounds.state(jobId).round;
        vm.prank(verifier(11));
        members.enrol(jobId, 1, uint128(BOND * 11 / 10), enrolment(11, jobId, 1, BOND * 11 / 10));
        vm.warp(block.timestamp + t.windowSeconds);
        _bidInVain(jobId, 2, round + 1, block.timestamp);
        play(jobId);
        same(said[jobId][round].record.available, 15, "honest seats are paid");
    }

    function _bidInVain(uint256 jobId, uint16 slot, uint32 round, uint256 until) private {
        vm.prank(verifier(10 + slot));
        vm.expectRevert(abi.encodeWithSelector(Members.PoolStill.selector, round, until));
        members.enrol(jobId, slot, uint128(BOND * 11 / 10), enrolment(10 + slot, jobId, slot, BOND * 11 / 10));
    }
}
