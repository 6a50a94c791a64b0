// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {Audits} from "../../src/Audits.sol";
import {Bits} from "../../src/libraries/Bits.sol";
import {Draws} from "../../src/libraries/Draws.sol";
import {Shown} from "../../src/libraries/Reveals.sol";
import {Members} from "../../src/Members.sol";
import {Rounds} from "../../src/Rounds.sol";
import {RoundsSettlement} from "../../src/rounds/RoundsSettlement.sol";
import "../../src/types/Types.sol";
import {Network} from "../support/Network.sol";

/// @title An account that is a contract, and does what its owner says.
contract Hand {
    function send(address to, bytes calldata data) external {
        (bool isDone, bytes memory why) = to.call(data);
        if (isDone) return;
        assembly ("memory-safe") {
            revert(add(why, 32), mload(why))
        }
    }

    /// @dev It takes anything for its own (ERC-1271).
    function isValidSignature(bytes32, bytes calldata) external pure returns (bytes4) {
        return this.isValidSignature.selector;
    }
}

/// @title One transaction: a seat's reveal, which is the last one, and an accomplice's vote; undone
/// where the seat is drawn by then.
contract Chooser {
    using Bits for uint256;

    error Drawn();

    function go(Rounds rounds, uint256 jobId, Hand seat, Hand member, Reveal calldata r, uint256 has) external {
        RoundState memory s = rounds.state(jobId);
        seat.send(address(rounds), abi.encodeCall(rounds.reveal, (jobId, 3, s.seed, r)));
        member.send(address(rounds), abi.encodeCall(rounds.vote, (jobId, 2, s.seed, has)));
        s = rounds.state(jobId);
        bool isDrawn = s.auditSeed != 0 && Draws.seats(s.auditSeed, s.seated, 2).has(3);
        if (isDrawn) revert Drawn();
    }
}

/// @title What people in several roles try together, or one person again and again.
contract ColludersTest is Network {
    using Bits for uint256;

    function longer(uint16 slots) internal view returns (Terms memory t) {
        t = defaultTerms();
        (t.slots, t.rounds) = (slots, 8);
    }

    function auditorOf(uint256 jobId, uint32 round, uint16 seat) internal view returns (uint32) {
        for (uint16 slot = 0; slot < 3; slot++) {
            if (dutiesOf(jobId, round, slot).has(seat)) return uint32(slot) + 1;
        }
        revert NotTrue("a duty has an auditor");
    }

    function lose(uint256 jobId, uint32 round, uint16 seat) internal {
        vm.warp(rounds.timesOf(jobId, round).auditEnd);
        game.holderLoses(game.challenge(abi.encode(evidenceFor(jobId, round, seat, 3))), OUTSIDER);
    }

    /// A seat that loses a game of its own making takes neither bond nor fee of the auditor that
    /// called it valid.
    function test_losingOnPurposeTakesNothingFromTheAuditor() public allHome onlyTheGuiltyPay {
        uint256 jobId = start(longer(3), 4, 3);
        play(jobId);
        play(jobId);
        uint16 seat = drawn(jobId, 1).lowest();
        uint32 id = auditorOf(jobId, 1, seat);
        address account = members.holderOf(jobId, Role.VERIFIER, id).account;
        bytes memory body = honestBody(jobId, 1, id);
        auditReportBody(jobId, 1, id, body);
        vm.warp(rounds.timesOf(jobId, 1).auditEnd);
        openBody(jobId, 1, id, body);
        blame(provider(seat));
        lose(jobId, 1, seat);
        same(lockedOf(provider(seat), Role.PROVIDER), 0, "the seat's bond");
        vm.warp(rounds.timesOf(jobId, 1).openEnd);
        bytes32 key = keyOf(jobId, 1, seat);
        Shown memory shown = shownFor(jobId, 1, seat);
        vm.expectPartialRevert(Audits.AlreadySlashed.selector);
        audits.contest(shown, id, body, key);
        same(lockedOf(account, Role.VERIFIER), BOND, "the auditor's bond");
        vm.warp(rounds.timesOf(jobId, 1).windowEnd);
        jobs.claim(jobId, Role.VERIFIER, id, 2);
        same(token.balanceOf(account), 2 * 1 ether + body.length / 35 * 10 ether, "signatures, and all its duties");
    }

    /// The last one to reveal could try in every block whether it would be drawn, if a vote in its
    /// own transaction told it.
    function test_nobodyRevealsInATransactionThatKnowsWhoIsDrawn() public allHome onlyTheGuiltyPay {
        Terms memory t = longer(3);
        t.rounds = 30;
        uint256 jobId = create(t);
        for (uint16 i = 0; i < 3; i++) {
            join(jobId, i, i);
            if (i < 2) enrol(jobId, i, i);
        }
        (Hand seat, Hand member, Chooser chooser) = (new Hand(), new Hand(), new Chooser());
        stakeUp(address(seat), Role.PROVIDER, BOND);
        stakeUp(address(member), Role.VERIFIER, BOND);
        seat.send(address(members), abi.encodeCall(members.join, (jobId, 3)));
        member.send(address(members), abi.encodeCall(members.enrol, (jobId, 2, uint128(BOND), "")));
        member.send(address(members), abi.encodeCall(members.ready, (jobId)));
        nextBlock();
        rounds.advance(jobId);
        uint256 times;
        for (uint32 round = 0; round < 24; round++) {
            revealLast(jobId, seat, member, chooser);
            nextBlock();
            castVote(jobId, 0, 15);
            castVote(jobId, 1, 15);
            settleByTwo(jobId);
            if (drawn(jobId, round).has(3)) times++;
        }
        check(times > 6 && times < 18, "half of the rounds, more or less");
    }

    function settleByTwo(uint256 jobId) private {
        settleBy(jobId, verdictFor(jobId, 15), 3);
    }

    /// @dev As soon as it is not drawn, or the next block is too late.
    function revealLast(uint256 jobId, Hand seat, Hand member, Chooser chooser) private {
        commitAll(jobId, 15);
        nextBlock();
        revealAll(jobId, 7);
        RoundState memory s = rounds.state(jobId);
        Reveal memory r = revealFor(jobId, 3, 8);
        said[jobId][s.round].seats.push(3);
        said[jobId][s.round].commitments.push(commitmentFor(jobId, 3, r));
        said[jobId][s.round].slots.push(bytes1(uint8(2)));
        said[jobId][s.round].has.push(7);
        for (uint256 left = 6; left > 0; left--) {
            vm.roll(block.number + 1);
            vm.warp(block.timestamp + 12);
            try chooser.go(rounds, jobId, seat, member, r, 7) {
                return;
            } catch (bytes memory) {}
        }
        seat.send(address(rounds), abi.encodeCall(rounds.reveal, (jobId, 3, s.seed, r)));
        member.send(address(rounds), abi.encodeCall(rounds.vote, (jobId, 2, s.seed, 7)));
    }

    /// Each time another bond, of which the larger part is burnt, and never any pay.
    function test_whoJoinsAgainAfterEachSlashPaysAStakeEachTime() public allHome onlyTheGuiltyPay {
        uint256 jobId = start(longer(3), 4, 3);
        play(jobId);
        for (uint32 i = 1; i <= 3; i++) {
            uint32 round = play(jobId);
            address account = accountOf(jobId, 0);
            uint32 id = i == 1 ? 1 : 3 + i;
            same(lockedOf(account, Role.PROVIDER), BOND, "a bond");
            blame(account);
            lose(jobId, round, 0);
            same(lockedOf(account, Role.PROVIDER), 0, "is gone");
            same(stakes.unburnt(), i * BOND * 7 / 10, "burnt, but for the winner's share");
            same(join(jobId, 9 + i, 0), 4 + i, "somebody of theirs joins again");
            vm.warp(rounds.timesOf(jobId, round).windowEnd);
            jobs.claim(jobId, Role.PROVIDER, id, round + 1);
            same(token.balanceOf(account), 0, "and what was not final is not paid");
            vm.warp(rounds.state(jobId).deadline - 1);
            play(jobId); // a new holder counts from the next round on
        }
        same(activeOf(OUTSIDER, Role.VERIFIER), 3 * BOND * 3 / 10, "who found it, each time");
    }

    /// More than half of a committee, but not two thirds, say that they have what nobody serves:
    /// nobody honest can merge that, so the committee draw ends without a certificate, and the next
    /// one speaks for itself.
    function test_aMajoritysLieAboutAnUpdateEndsWithItsCommitteeDraw() public allHome onlyTheGuiltyPay {
        uint256 jobId = start(longer(8), 4, 8);
        toMerge(jobId);
        for (uint16 slot = 0; slot < 8; slot++) {
            castVote(jobId, slot, slot < 5 ? 15 : 7);
        }
        nextBlock();
        Verdict memory lie = verdictFor(jobId, 15);
        bytes memory theirs = certificate(jobId, digestFor(jobId, lie), 255, 31);
        bytes memory slots = said[jobId][0].slots;
        uint256[] memory has = said[jobId][0].has;
        vm.expectPartialRevert(RoundsSettlement.TooFewSigners.selector);
        rounds.settle(jobId, slots, has, bare(lie, theirs));
        nextCommittee(jobId);
        same(rounds.state(jobId).committeeDraw, 1, "the next committee draw");
        sayAll(jobId, 7);
        nextBlock();
        settle(jobId, verdictFor(jobId, 7));
        (uint256 pay, uint256 lost,) = rounds.rowsOf(jobId, 0);
        same(pay, 7, "who served its update is paid");
        same(lost, 8, "who did not is not");
        same(rounds.absentOf(jobId, 0), 0, "and nobody misses anything");
    }

    // --- two thirds of a committee against the rest ---

    /// They settle a round a block, or before a third member has fetched what nobody gives it.
    function test_twoThirdsInAHurryTakeNobodysBond() public allHome onlyTheGuiltyPay {
        for (uint256 speaks = 0; speaks < 2; speaks++) {
            Terms memory t = longer(3);
            t.rounds = 12;
            uint256 jobId = start(t, 4, 3);
            for (uint32 round = 0; round < 12; round++) {
                toTwoVotes(jobId);
                if (speaks == 1) castVote(jobId, 2, 15);
                nextBlock();
                settleBy(jobId, verdictFor(jobId, 15), 3);
                missesNothing(jobId, round);
            }
            vm.warp(rounds.timesOf(jobId, 11).auditEnd);
            missesNothing(jobId, 11);
        }
    }

    /// They certify the true model with another loss, which the third member cannot sign and nobody
    /// objects to.
    function test_whoKnowsBetterThanTwoThirdsLosesAFeeAndNoBond() public allHome onlyTheGuiltyPay {
        uint256 jobId = start(longer(3), 4, 3);
        toVotes(jobId);
        nextBlock();
        Verdict memory v = verdictFor(jobId, 15);
        v.loss = bytes8(uint64(2));
        settleBy(jobId, v, 3);
        play(jobId);
        missesNothing(jobId, 0);
        (,, uint256 signed) = rounds.rowsOf(jobId, 0);
        same(signed, 3, "who has not signed is not paid");
    }

    /// Where nothing is available, no vote lacks anything; a member that cannot have the model said
    /// so all the same.
    function test_aRoundOfNothingTakesNobodysBond() public allHome onlyTheGuiltyPay {
        uint256 jobId = start(longer(3), 4, 3);
        toMerge(jobId);
        sayAll(jobId, 0);
        nextBlock();
        settleBy(jobId, verdictFor(jobId, 0), 3);
        vm.warp(rounds.timesOf(jobId, 0).auditEnd);
        missesNothing(jobId, 0);
    }

    function test_whoSaysNothingMissesOnceVotesAreOver() public {
        for (uint256 late = 0; late < 2; late++) {
            uint256 jobId = start(longer(3), 4, 3);
            toTwoVotes(jobId);
            vm.warp(rounds.state(jobId).deadline - 26 + late);
            settleBy(jobId, verdictFor(jobId, 15), 3);
            same(rounds.absentOf(jobId, 0), late == 1 ? 4 : 0, "a missed duty, or not");
        }
    }

    function missesNothing(uint256 jobId, uint32 round) private {
        same(rounds.absentOf(jobId, round), 0, "nobody misses anything");
        vm.expectRevert(abi.encodeWithSelector(Members.NotAbsent.selector, 3, round));
        members.penaliseMember(jobId, round, 3);
    }

    function toTwoVotes(uint256 jobId) private {
        toMerge(jobId);
        castVote(jobId, 0, 15);
        castVote(jobId, 1, 15);
    }
}
