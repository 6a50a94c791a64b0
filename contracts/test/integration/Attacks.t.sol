// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {Audits} from "../../src/Audits.sol";
import {Members} from "../../src/Members.sol";
import {RoundsSettlement} from "../../src/rounds/RoundsSettlement.sol";
import {IAudits} from "../../src/interfaces/IAudits.sol";
import {Evidence} from "../../src/judge/Claims.sol";
import {Claim} from "../../src/judge/IClaims.sol";
import {Shown} from "../../src/libraries/Reveals.sol";
import {TermsCheck} from "../../src/libraries/TermsCheck.sol";
import {Bits} from "../../src/libraries/Bits.sol";
import "../../src/types/Types.sol";
import {BlacklistToken} from "../support/HostileTokens.sol";
import {Network} from "../support/Network.sol";

/// @title Twenty attacks that succeeded on the second design's contracts, each staged against
/// these, where it fails. The number of each is in the name of its test; 16 is with 2 and 17 with
/// 1, which are one attack here. README.md lists them.
contract AttacksTest is Network {
    using Bits for uint256;

    function many() internal view returns (Terms memory t) {
        t = defaultTerms();
        (t.slots, t.rounds) = (8, 4);
    }

    function stakeSum(address account) internal view returns (uint256 sum) {
        for (uint256 r = 0; r < 2; r++) {
            (uint256 active,, uint256 unbonding) = stakes.stakeOf(account, Role(r));
            sum += active + unbonding;
        }
    }

    /// @dev Votes of a round in which some of the committee do not have some seats.
    function toVotesWith(uint256 jobId, uint256[] memory has) internal {
        toMerge(jobId);
        for (uint16 slot = 0; slot < has.length; slot++) {
            castVote(jobId, slot, has[slot]);
        }
        nextBlock();
    }

    function same8(uint256 has) internal pure returns (uint256[] memory list) {
        list = new uint256[](8);
        for (uint256 i = 0; i < 8; i++) {
            list[i] = has;
        }
    }

    /// 1, 17. There are no challenge slots to fill, and nothing has to be accepted: a seat that
    /// withholds its update is not available to those who lack it, and two who say they have it
    /// change nothing.
    function test_poc01_withholdingIsNotPaidWhoeverVouches() public allHome onlyTheGuiltyPay {
        uint256 jobId = start(many(), 4, 8);
        uint256[] memory has = same8(13);
        (has[0], has[1]) = (15, 15); // the colluders
        toVotesWith(jobId, has);
        settle(jobId, verdictFor(jobId, 13));
        (uint256 pay, uint256 lost,) = rounds.rowsOf(jobId, 0);
        same(pay, 13, "the others are paid");
        same(lost, 2, "the withholding seat is not");
        vm.warp(rounds.timesOf(jobId, 0).windowEnd);
        jobs.burn(jobId, 1);
        same(jobs.escrowOf(jobId).burnt, 8 * segmentPay(), "and its pay is burnt, not refunded");
    }

    /// 2, 16. An audit report takes no room from another: two colluders cannot say anything about
    /// seats that are not theirs, and the member whose duty a seat is always can.
    function test_poc02_nobodyTakesAnothersDuty() public allHome onlyTheGuiltyPay {
        uint256 jobId = start(many(), 4, 8);
        play(jobId);
        uint16 seat = drawn(jobId, 0).lowest();
        uint32 honest = auditorOf(jobId, 0, seat);
        uint32 colluder = honest == 1 ? 2 : 1;
        address account = members.holderOf(jobId, Role.VERIFIER, colluder).account;
        bytes memory body = validBody(jobId, 0, Bits.bit(seat), account);
        auditReportBody(jobId, 0, colluder, body);
        auditReportBody(jobId, 0, honest, honestBody(jobId, 0, honest));
        vm.warp(rounds.timesOf(jobId, 0).auditEnd);
        RoundRecord memory record = said[jobId][0].record;
        vm.prank(account);
        vm.expectPartialRevert(Audits.NotADuty.selector);
        audits.open(jobId, 0, colluder, record, body, "salt");
        openBody(jobId, 0, honest, honestBody(jobId, 0, honest));
    }

    function auditorOf(uint256 jobId, uint32 round, uint16 seat) internal view returns (uint32) {
        for (uint16 slot = 0; slot < 8; slot++) {
            if (dutiesOf(jobId, round, slot).has(seat)) return uint32(slot) + 1;
        }
        revert NotTrue("a duty has an auditor");
    }

    /// 3. A submitter that is all verifiers can leave honest seats unpaid for a round; it gets
    ///    nothing for it, and no bond is slashed.
    function test_poc03_aCommitteeOfTheSubmittersOwnGainsNothing() public allHome onlyTheGuiltyPay {
        uint256 jobId = start(defaultTerms(), 4, 3);
        uint256[] memory has = new uint256[](3);
        toVotesWith(jobId, has);
        settle(jobId, verdictFor(jobId, 0));
        uint256 before = jobs.escrowOf(jobId).funded;
        vm.warp(rounds.timesOf(jobId, 0).windowEnd);
        jobs.burn(jobId, 1);
        same(jobs.escrowOf(jobId).burnt, 4 * 8 * segmentPay(), "what it withheld is burnt");
        vm.prank(SUBMITTER);
        jobs.cancel(jobId);
        vm.warp(rounds.state(jobId).deadline);
        rounds.advance(jobId);
        jobs.refund(jobId);
        atMost(jobs.escrowOf(jobId).refunded, before - 4 * 8 * segmentPay(), "never refunded");
        for (uint256 i = 0; i < 4; i++) {
            same(lockedOf(provider(i), Role.PROVIDER), BOND, "an honest bond");
        }
    }

    /// 4. Three cheats of four seats are slashed one by one. The job, and the honest seat's bond,
    ///    go on and end.
    function test_poc04_aMajorityOfCheatsIsSlashed() public allHome onlyTheGuiltyPay {
        uint256 jobId = start(many(), 4, 8);
        play(jobId);
        play(jobId);
        vm.warp(rounds.timesOf(jobId, 1).auditEnd);
        for (uint16 seat = 0; seat < 3; seat++) {
            blame(provider(seat));
            Claim memory c = challenge(jobId, 1, seat);
            game.holderLoses(c, OUTSIDER);
            same(lockedOf(provider(seat), Role.PROVIDER), 0, "a cheat's bond");
        }
        same(rounds.state(jobId).held, 8, "only the honest seat is held");
        vm.warp(rounds.timesOf(jobId, 1).windowEnd);
        jobs.claim(jobId, Role.PROVIDER, 4, 2);
        same(token.balanceOf(provider(3)), 2 * 8 * segmentPay(), "the honest seat is paid");
        same(stakeSum(OUTSIDER), 3 * 30 ether, "the outsider has its shares");
    }

    function challenge(uint256 jobId, uint32 round, uint16 seat) internal returns (Claim memory) {
        Evidence memory e = evidenceFor(jobId, round, seat, 0);
        vm.prank(OUTSIDER);
        return game.challenge(abi.encode(e));
    }

    /// 5. No audit report, an empty one, a guessed one: no fee.
    function test_poc05_onlyAReplayEarnsAFee() public allHome onlyTheGuiltyPay {
        uint256 jobId = start(many(), 4, 8);
        play(jobId);
        uint16 seat = drawn(jobId, 0).lowest();
        uint32 idle = auditorOf(jobId, 0, seat);
        address account = members.holderOf(jobId, Role.VERIFIER, idle).account;
        blame(account);
        bytes memory guess = abi.encodePacked(uint8(seat), type(uint16).max, keccak256("a guess"));
        auditReportBody(jobId, 0, idle, guess);
        vm.warp(rounds.timesOf(jobId, 0).auditEnd);
        openBody(jobId, 0, idle, guess);
        vm.warp(rounds.timesOf(jobId, 0).openEnd);
        showKey(jobId, 0, seat);
        Shown memory s = shownFor(jobId, 0, seat);
        bytes32 key = keyOf(jobId, 0, seat);
        vm.prank(OUTSIDER);
        audits.contest(s, idle, guess, key);
        vm.warp(rounds.timesOf(jobId, 0).windowEnd);
        jobs.claim(jobId, Role.VERIFIER, idle, 1);
        same(token.balanceOf(account), 1 ether, "it signed, and that is all it is paid for");
        audits.settleContest(jobId, 0, idle, uint32(seat) + 1);
        same(jobs.creditOf(jobId, OUTSIDER), 0, "whoever shows it has nothing of it");
        same(lockedOf(account, Role.VERIFIER), BOND - 1 ether, "a missed duty");
    }

    /// 6. Three of eight that speak and never sign stop a committee draw, are penalised for nothing
    ///    that they gain, and stop no pay.
    function test_poc06_silentSignersStopNoPay() public allHome onlyTheGuiltyPay {
        uint256 jobId = start(many(), 4, 8);
        toVotes(jobId);
        RoundState memory s = rounds.state(jobId);
        Verdict memory v = verdictFor(jobId, 15);
        bytes memory few = certificate(jobId, digestFor(jobId, v), s.committee, 31);
        noteRecord(jobId, v);
        bytes memory slots = said[jobId][0].slots;
        uint256[] memory has = said[jobId][0].has;
        vm.expectPartialRevert(RoundsSettlement.TooFewSigners.selector);
        rounds.settle(jobId, slots, has, bare(v, few));
        vm.warp(defaultTerms().expiry + 1); // at the latest
        rounds.settleLate(jobId, slots, has);
        hasStatus(jobId, JobStatus.EXPIRED);
        vm.warp(rounds.timesOf(jobId, 0).windowEnd);
        jobs.claim(jobId, Role.PROVIDER, 1, 1);
        same(token.balanceOf(provider(0)), 8 * segmentPay(), "what was available is paid");
        jobs.claim(jobId, Role.VERIFIER, 8, 1);
        same(token.balanceOf(verifier(7)), 0, "and no fee for signing nothing");
    }

    /// 7. A false accusation that its author does not play costs half of its bond, each time.
    function test_poc07_falseAccusationsCost() public allHome onlyTheGuiltyPay {
        uint256 jobId = start(many(), 4, 8);
        play(jobId);
        uint16 seat = drawn(jobId, 0).lowest();
        uint32 liar = auditorOf(jobId, 0, seat);
        address account = members.holderOf(jobId, Role.VERIFIER, liar).account;
        blame(account);
        bytes memory body = abi.encodePacked(uint8(seat), uint16(3), keccak256("my own digest"));
        auditReportBody(jobId, 0, liar, body);
        vm.warp(rounds.timesOf(jobId, 0).auditEnd);
        openBody(jobId, 0, liar, body);
        vm.warp(rounds.timesOf(jobId, 0).half);
        vm.expectEmit();
        emit IAudits.Dropped(jobId, liar, 0, seat);
        audits.dropped(jobId, 0, liar, seat, uint32(seat) + 1, body);
        same(lockedOf(account, Role.VERIFIER), BOND / 2, "half of the bond");
        same(lockedOf(provider(seat), Role.PROVIDER), BOND, "nothing of the accused's");
    }

    /// 8. Every missed duty costs its account, twice as much as the one before, whoever sits there
    ///    next.
    function test_poc08_everyMissedDutyCosts() public allHome onlyTheGuiltyPay {
        uint256 jobId = start(defaultTerms(), 4, 3);
        uint256 lost;
        for (uint256 i = 0; i < 4; i++) {
            blame(provider(i));
        }
        for (uint256 i = 0; i < 3; i++) {
            endPhase(jobId);
            inPhase(jobId, Phase.WAITING);
            for (uint16 seat = 0; seat < 4; seat++) {
                members.penaliseSeat(jobId, seat);
                vm.expectPartialRevert(bytes4(keccak256("NoMissedDuty(uint16,uint256)")));
                members.penaliseSeat(jobId, seat);
            }
            uint256 all;
            for (uint16 seat = 0; seat < 4; seat++) {
                members.release(jobId, Role.PROVIDER, uint32(4 * i + seat + 1));
                all += BOND * (i + 1) - stakeSum(provider(seat));
            }
            check(all - lost == 4 * (1 ether << i), "each costs double");
            lost = all;
            for (uint16 seat = 0; seat < 4; seat++) {
                join(jobId, seat, seat);
            }
            nextBlock();
            rounds.advance(jobId);
        }
    }

    /// 9. Who missed has no slot any more; whoever wants one has to lock a whole bond again.
    function test_poc09_whoMissedLosesItsSlot() public allHome onlyTheGuiltyPay {
        uint256 jobId = start(many(), 4, 8);
        commitAll(jobId, 15);
        nextBlock();
        revealAll(jobId, 15);
        nextBlock();
        for (uint16 slot = 0; slot < 7; slot++) {
            castVote(jobId, slot, 15);
        }
        vm.warp(rounds.state(jobId).deadline - 25); // until then the eighth may cast its vote
        settleBy(jobId, verdictFor(jobId, 15), 127);
        blame(verifier(7));
        members.penaliseMember(jobId, 0, 8);
        same(lockedOf(verifier(7), Role.VERIFIER), BOND - 1 ether, "cut");
        play(jobId);
        same(rounds.state(jobId).ready, 127, "its slot is nobody's");
    }

    /// 10. A body names its author, so a copied one is wrong digests; the share of a slash goes to
    ///     who won the game.
    function test_poc10_copiedDigestsAreWrong() public allHome onlyTheGuiltyPay {
        uint256 jobId = start(many(), 4, 8);
        play(jobId);
        uint16 seat = drawn(jobId, 0).lowest();
        uint32 thief = auditorOf(jobId, 0, seat);
        bytes memory stolen = validBody(jobId, 0, Bits.bit(seat), address(0xf00d)); // somebody else's digests
        auditReportBody(jobId, 0, thief, stolen);
        vm.warp(rounds.timesOf(jobId, 0).auditEnd);
        openBody(jobId, 0, thief, stolen);
        vm.warp(rounds.timesOf(jobId, 0).openEnd);
        Shown memory s = shownFor(jobId, 0, seat);
        bytes32 key = keyOf(jobId, 0, seat);
        audits.contest(s, thief, stolen, key);
    }

    /// 11. Nobody signs money: a later committee's certificate leaves earlier rounds' rows as they
    ///     are.
    function test_poc11_laterRoundsDoNotTouchEarlierPay() public allHome onlyTheGuiltyPay {
        uint256 jobId = start(many(), 4, 8);
        play(jobId);
        (uint256 pay,, uint256 signed) = rounds.rowsOf(jobId, 0);
        toVotesWith(jobId, same8(0));
        settle(jobId, verdictFor(jobId, 0));
        (uint256 payNow,, uint256 signedNow) = rounds.rowsOf(jobId, 0);
        same(pay, payNow, "pay of round 0");
        same(signed, signedNow, "signatures of round 0");
        (payNow,,) = rounds.rowsOf(jobId, 1);
        same(payNow, 0, "its own round is all that it can leave unpaid");
    }

    /// 12. An account is not both; accounts of one person are, and one outsider with a bond has its
    ///     seats slashed.
    function test_poc12_onePersonIsEveryone() public allHome onlyTheGuiltyPay {
        uint256 jobId = start(many(), 4, 8);
        stakeUp(verifier(0), Role.PROVIDER, BOND);
        vm.prank(verifier(0));
        vm.expectPartialRevert(Members.AlreadyMember.selector);
        members.join(jobId, 3);
        play(jobId);
        play(jobId);
        audit(jobId, 1); // all its verifiers call all its seats valid
        blame(provider(2));
        game.holderLoses(challenge(jobId, 1, 2), OUTSIDER);
        same(lockedOf(provider(2), Role.PROVIDER), 0, "slashed all the same");
    }

    /// 13. Nothing holds a bond beyond the absolute end, whatever was or was not called.
    function test_poc13_noBondIsTrapped() public allHome onlyTheGuiltyPay {
        uint256 jobId = start(defaultTerms(), 4, 3);
        commitAll(jobId, 3);
        vm.warp(rounds.state(jobId).deadline);
        rounds.advance(jobId);
        revealAll(jobId, 1); // and nobody ever comes back
        vm.warp(rounds.absoluteEnd(jobId) - 1);
        vm.expectPartialRevert(Members.StillMember.selector);
        members.release(jobId, Role.PROVIDER, 1);
        vm.warp(rounds.absoluteEnd(jobId));
        for (uint32 id = 1; id <= 4; id++) {
            members.release(jobId, Role.PROVIDER, id);
            same(lockedOf(provider(id - 1), Role.PROVIDER), 0, "a seat's bond");
        }
        for (uint32 id = 1; id <= 3; id++) {
            members.release(jobId, Role.VERIFIER, id);
            same(lockedOf(verifier(id - 1), Role.VERIFIER), 0, "a member's bond");
        }
        rounds.advance(jobId);
        hasStatus(jobId, JobStatus.EXPIRED);
        vm.warp(rounds.absoluteEnd(jobId) + 10_000);
        jobs.refund(jobId);
        same(jobs.escrowOf(jobId).balance, 0, "and the escrow is home");
    }

    /// 14. A member that never says that it is ready is replaced for nothing, and holds nobody up.
    function test_poc14_neverReady() public allHome onlyTheGuiltyPay {
        Terms memory t = defaultTerms();
        uint256 jobId = create(t);
        for (uint16 i = 0; i < 3; i++) {
            stakeUp(verifier(i), Role.VERIFIER, BOND);
            vm.prank(verifier(i));
            members.enrol(jobId, i, uint128(BOND), enrolment(i, jobId, i, BOND));
        }
        stakeUp(verifier(4), Role.VERIFIER, BOND);
        vm.prank(verifier(4));
        vm.expectPartialRevert(Members.NotTheSmallest.selector); // the pool is full, and time is not over
        members.enrol(jobId, 1, uint128(BOND), enrolment(4, jobId, 1, BOND));
        vm.warp(block.timestamp + t.readySeconds);
        vm.prank(verifier(4));
        members.enrol(jobId, 1, uint128(BOND), enrolment(4, jobId, 1, BOND));
        same(memberAt(jobId, 1), verifier(4), "it has the slot");
        same(lockedOf(verifier(1), Role.VERIFIER), 0, "the other's bond is home");
    }

    /// 15. Who is not served says so in its vote, which costs nothing; nobody votes on it.
    function test_poc15_selectiveServiceCostsTheVictimNothing() public allHome onlyTheGuiltyPay {
        uint256 jobId = start(many(), 4, 8);
        uint256[] memory has = same8(15);
        has[5] = 13;
        toVotesWith(jobId, has);
        Verdict memory v = verdictFor(jobId, 15);
        bytes memory signed = certificate(jobId, digestFor(jobId, v), 255, 255 - 32);
        noteRecord(jobId, v);
        rounds.settle(jobId, said[jobId][0].slots, said[jobId][0].has, bare(v, signed));
        play(jobId);
        vm.expectPartialRevert(Members.NotAbsent.selector);
        members.penaliseMember(jobId, 0, 6);
    }

    /// 18. A minority cannot keep a seat from its pay: more than half of the votes is enough, and
    ///     no report exists.
    function test_poc18_aBlockingMinorityDeniesNoPay() public allHome onlyTheGuiltyPay {
        uint256 jobId = start(many(), 4, 8);
        uint256[] memory has = same8(15);
        (has[0], has[1], has[2]) = (13, 13, 13);
        toVotesWith(jobId, has);
        settle(jobId);
        (uint256 pay,,) = rounds.rowsOf(jobId, 0);
        same(pay, 15, "all are paid");
    }

    /// 19. A sink that refuses stops no penalty, no slash and no release.
    function test_poc19_aSinkThatRefusesStopsNothing() public allHome onlyTheGuiltyPay {
        BlacklistToken hostile = new BlacklistToken(address(this), 1e9 ether);
        deploy(address(hostile));
        uint256 jobId = start();
        hostile.refuse(stakes.BURN());
        blame(provider(3));
        commitAll(jobId, 7);
        vm.warp(rounds.state(jobId).deadline);
        rounds.advance(jobId);
        members.penaliseSeat(jobId, 3);
        same(lockedOf(provider(3), Role.PROVIDER), BOND - 1 ether, "cut");
        same(stakes.unburnt(), 1 ether, "set aside");
        vm.expectPartialRevert(BlacklistToken.Refused.selector);
        stakes.burn();
        vm.warp(rounds.absoluteEnd(jobId));
        members.release(jobId, Role.PROVIDER, 4);
        same(lockedOf(provider(3), Role.PROVIDER), 0, "and released");
    }

    /// 20. Windows in which nobody honest can answer are refused.
    function test_poc20_oneSecondWindowsAreRefused() public allHome onlyTheGuiltyPay {
        Terms memory t = defaultTerms();
        t.revealSeconds = 9;
        bytes memory refusal =
            abi.encodeWithSelector(TermsCheck.TermOutOfRange.selector, "revealSeconds", 9, 10, type(uint32).max);
        vm.prank(SUBMITTER);
        vm.expectRevert(refusal);
        jobs.create("spec", "cid", t, address(policy), 1e24);
    }

    /// One seat that serves half of a committee, and one member that speaks in the last second,
    /// kept every committee draw open until its deadline, when anyone may replace it. Votes end
    /// earlier, so there is time to sign over what was said.
    function test_aLastVoteReplacesNoCommitteeDraw() public allHome onlyTheGuiltyPay {
        uint256 jobId = start(many(), 4, 8);
        uint256[] memory has = new uint256[](7);
        for (uint256 i = 0; i < 7; i++) {
            has[i] = i < 4 ? 15 : 13;
        }
        toVotesWith(jobId, has);
        uint256 deadline = rounds.state(jobId).deadline;
        bytes32 seed = rounds.state(jobId).seed;
        vm.warp(deadline - 25);
        vm.prank(verifier(7));
        vm.expectPartialRevert(bytes4(keccak256("DeadlinePassed(uint256,uint256)")));
        rounds.vote(jobId, 7, seed, 15);
        vm.warp(deadline - 1);
        vm.expectPartialRevert(bytes4(keccak256("NothingToDo(uint8,uint256)")));
        rounds.advance(jobId);
        settle(jobId, verdictFor(jobId, 13));
        inPhase(jobId, Phase.TRAIN);
    }

    /// Outbidding ready members without ever being ready emptied the pool for nothing: every bond
    /// went home.
    function test_whoOutbidsIsReady() public allHome onlyTheGuiltyPay {
        Terms memory t = many();
        (t.slots, t.minVerifiers) = (3, 3);
        uint256 jobId = start(t, 4, 3);
        stakeUp(verifier(11), Role.VERIFIER, 2 * BOND);
        vm.prank(verifier(11));
        members.enrol(jobId, 0, uint128(2 * BOND), enrolment(11, jobId, 0, 2 * BOND));
        play(jobId);
        inPhase(jobId, Phase.TRAIN);
        same(memberAt(jobId, 0), verifier(11), "the new one is in the pool, and owes what its members owe");
    }
}
