// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {Audits} from "../../src/Audits.sol";
import {Evidence} from "../../src/judge/Claims.sol";
import {Bits} from "../../src/libraries/Bits.sol";
import {Hashing} from "../../src/libraries/Hashing.sol";
import {Reveals, Shown} from "../../src/libraries/Reveals.sol";
import "../../src/types/Types.sol";
import {AuditedRound} from "../support/AuditedRound.sol";

/// @title Keys that are shown late, early, wrong, never, or by somebody else.
contract KeysTest is AuditedRound {
    using Bits for uint256;

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
}
