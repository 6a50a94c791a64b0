// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {Audits} from "../../src/Audits.sol";
import {Jobs} from "../../src/Jobs.sol";
import {IAudits} from "../../src/interfaces/IAudits.sol";
import {Claims, Evidence} from "../../src/judge/Claims.sol";
import {Game} from "../../src/judge/Game.sol";
import {GameQueue, Outcome} from "../../src/judge/GameQueue.sol";
import {Bits} from "../../src/libraries/Bits.sol";
import {Hashing} from "../../src/libraries/Hashing.sol";
import "../../src/types/Types.sol";
import {deployed} from "../support/Deployed.sol";
import {ReentrantToken} from "../support/HostileTokens.sol";
import {Network} from "../support/Network.sol";

/// @title The real game wired to rounds, members and escrow. What is played within it is the games'
/// own tests'.
contract JudgeTest is Network {
    using Bits for uint256;

    Game internal real;
    uint256 internal jobId;

    function setUp() public override {
        address token_ = address(new ReentrantToken(address(this), 1_000_000_000 ether)); // plain until it is armed
        address judge = deployed("Judge", abi.encode(new address[](8)));
        real = Game(deployed("Game", abi.encode(token_, LONGEST, judge)));
        deployWith(token_, address(real));
        real.wire(address(claims));
        Terms memory t = defaultTerms();
        t.rounds = 6;
        resetPeriod = 2; // rounds 2 and 3 are one
        t.program = program();
        jobId = start(t, 4, 3);
        for (uint256 r = 0; r < 4; r++) {
            play(jobId);
        }
        vm.warp(rounds.timesOf(jobId, 2).auditEnd);
    }

    function challenge(uint32 round, uint16 seat, uint128 bond, address by) internal returns (uint256) {
        Evidence memory e = evidenceFor(jobId, round, seat, 0);
        token.transfer(by, bond);
        vm.startPrank(by);
        token.approve(address(real), bond);
        uint256 id = real.challenge(abi.encode(e), bond);
        vm.stopPrank();
        return id;
    }

    function test_P29_P30_silenceLosesTheBondAndAllThatIsNotFinal() public allHome {
        uint256 first = challenge(2, 1, 20 ether, OUTSIDER);
        uint256 second = challenge(1, 1, 10 ether, address(0xbee)); // waits behind it
        challenge(2, 0, 10 ether, OUTSIDER); // about another: held up by nobody
        vm.warp(real.deadlineOf(first));
        real.timeout(first);
        same(uint256(real.gameOf(first).outcome), uint256(Outcome.HOLDER_LOST), "slash");
        same(uint256(real.gameOf(second).outcome), uint256(Outcome.SENT_HOME), "its bond goes home");
        same(lockedOf(provider(1), Role.PROVIDER), 0, "the bond");
        same(activeOf(OUTSIDER, Role.VERIFIER), 30 ether, "the share");
        same(members.lostFrom(jobId, Role.PROVIDER, 2), 0, "the windows are all open: all of it is lost");
        bytes memory again = abi.encode(evidenceFor(jobId, 2, 1, 0));
        vm.expectPartialRevert(Claims.AlreadySlashed.selector);
        real.challenge(again, 10 ether);
    }

    function test_aChallengeTakesATenthOfTheBondAtLeast() public allHome {
        bytes memory claim = abi.encode(evidenceFor(jobId, 2, 1, 0));
        uint128 lowest = uint128(BOND) / claims.BOND_SHARE();
        vm.expectRevert(abi.encodeWithSelector(GameQueue.WrongBond.selector, lowest - 1, lowest));
        real.challenge(claim, lowest - 1);
        challenge(2, 1, lowest, OUTSIDER);
    }

    /// @dev Whoever moves stake while the token calls back could else end its own game where no
    /// slash is taken.
    function test_P12_aLostGameCostsTheBondWhereverItIsEnded() public allHome {
        ReentrantToken coin = ReentrantToken(address(token));
        uint256 first = challenge(2, 1, 20 ether, OUTSIDER);
        uint256 second = challenge(2, 3, 20 ether, OUTSIDER);
        vm.warp(real.deadlineOf(first));
        token.approve(address(stakes), 1 ether);
        coin.arm(address(real), abi.encodeCall(real.timeout, (first)));
        stakes.deposit(Role.PROVIDER, 1 ether);
        check(!coin.wasRefused(), "ended within a deposit");
        same(lockedOf(provider(1), Role.PROVIDER), 0, "the bond");
        uint256 id = stakes.unbond(address(this), Role.PROVIDER, 1 ether);
        vm.warp(block.timestamp + config.unbondingDelay() + 1);
        coin.arm(address(real), abi.encodeCall(real.timeout, (second)));
        stakes.withdraw(address(this), Role.PROVIDER, id);
        check(!coin.wasRefused(), "ended within a withdrawal");
        same(lockedOf(provider(3), Role.PROVIDER), 0, "the other one's");
        same(activeOf(OUTSIDER, Role.VERIFIER), 60 ether, "both shares");
        same(stakes.unburnt(), 140 ether, "and the rest of both bonds");
    }

    function test_P30_aWaitingGameAboutAnEarlierRoundKeepsThatRoundFromBeingFinal() public allHome {
        uint256 first = challenge(2, 1, 20 ether, OUTSIDER);
        challenge(1, 1, 10 ether, address(0xbee));
        vm.warp(rounds.timesOf(jobId, 2).windowEnd);
        vm.expectPartialRevert(Jobs.NotFinal.selector);
        jobs.claim(jobId, Role.PROVIDER, 2, 2);
        jobs.claim(jobId, Role.PROVIDER, 2, 1); // round 0 is
        vm.warp(real.deadlineOf(first) > block.timestamp ? real.deadlineOf(first) : block.timestamp);
        real.timeout(first);
        same(members.lostFrom(jobId, Role.PROVIDER, 2), 1, "from the earliest open game on");
        jobs.claim(jobId, Role.PROVIDER, 2, 3);
        same(token.balanceOf(provider(1)), 8 * segmentPay(), "round 0 alone is paid");
        same(jobs.escrowOf(jobId).burnt, 2 * 8 * segmentPay(), "the others are burnt");
    }

    function test_P28_shamsHoldUpNobodyElse() public allHome {
        for (uint256 i = 0; i < 6; i++) {
            challenge(1, 3, 10 ether, address(uint160(0x100 + i)));
        }
        Evidence memory e = evidenceFor(jobId, 1, 3, 0);
        token.transfer(OUTSIDER, 100 ether);
        vm.startPrank(OUTSIDER);
        token.approve(address(real), 100 ether);
        vm.expectPartialRevert(GameQueue.QueueFull.selector);
        real.challenge(abi.encode(e), 10 ether);
        real.challenge(abi.encode(e), 11 ether); // an honest one pushes the smallest out
        vm.stopPrank();
        vm.warp(rounds.timesOf(jobId, 2).windowEnd);
        for (uint32 id = 1; id <= 3; id++) {
            jobs.claim(jobId, Role.PROVIDER, id, 3);
        }
        same(token.balanceOf(provider(2)), 3 * 8 * segmentPay(), "all others are paid");
    }

    /// Who accuses a round of beginning with something false plays an earlier one of its reset
    /// period.
    function test_anAccusationIsPlayedByAChallengeThroughItsRound() public allHome {
        vm.warp(rounds.timesOf(jobId, 3).auditEnd);
        Evidence memory e = evidenceFor(jobId, 2, 1, 5);
        e.throughRound = 3;
        token.transfer(OUTSIDER, 30 ether);
        vm.startPrank(OUTSIDER);
        token.approve(address(real), 30 ether);
        real.challenge(abi.encode(e), 10 ether);
        bytes32 position = Hashing.positionOf(Hashing.setOf(jobId, Role.PROVIDER, 2), 3);
        check(real.wasChallenged(keccak256(abi.encode(OUTSIDER, position, uint32(0), false))), "its beginning");
        check(!real.wasChallenged(keccak256(abi.encode(OUTSIDER, position, uint32(5), false))), "not its segment");
        real.challenge(abi.encode(evidenceFor(jobId, 3, 1, 5)), 20 ether);
        check(real.wasChallenged(keccak256(abi.encode(OUTSIDER, position, uint32(5), false))), "its own segment");
        vm.stopPrank();
    }

    /// @return seat of another job, in which everybody is audited
    /// @return id whose it is, in round 3
    /// @return body that it opened
    function calledValid() private returns (uint16 seat, uint32 id, bytes memory body) {
        Terms memory t = defaultTerms();
        (t.rounds, t.f, t.program) = (6, 0, program());
        jobId = start(t, 4, 3);
        for (uint256 r = 0; r < 4; r++) {
            play(jobId);
        }
        (seat, id) = (1, 1);
        while (!dutiesOf(jobId, 3, uint16(id - 1)).has(seat)) id++;
        body = honestBody(jobId, 3, id);
        auditReportBody(jobId, 3, id, body);
        vm.warp(rounds.timesOf(jobId, 3).auditEnd);
        openBody(jobId, 3, id, body);
    }

    /// The seat falls by another round's game: what its auditor called valid was not shown to be false.
    function test_aValidsFeeStandsWhereAnotherRoundWasFalse() public allHome {
        (uint16 seat, uint32 id, bytes memory body) = calledValid();
        uint64 another = uint64(challenge(2, seat, 20 ether, address(0xbee)));
        vm.expectPartialRevert(Audits.NotAboutIt.selector);
        audits.withhold(jobId, 3, id, uint32(seat) + 1, another, body);
        vm.warp(real.deadlineOf(another) - 1);
        Evidence memory e = evidenceFor(jobId, 3, seat, 5);
        token.approve(address(real), 20 ether);
        uint64 about = uint64(real.challenge(abi.encode(e), 20 ether));
        audits.withhold(jobId, 3, id, uint32(seat) + 1, about, body);
        vm.expectPartialRevert(Audits.AlreadyContested.selector);
        audits.withhold(jobId, 3, id, uint32(seat) + 1, about, body);
        vm.warp(real.deadlineOf(another));
        real.timeout(another);
        vm.warp(rounds.timesOf(jobId, 3).windowEnd);
        vm.expectEmit();
        emit IAudits.ContestSettled(jobId, id, 3, seat, false);
        audits.settleContest(jobId, 3, id, uint32(seat) + 1); // it fell by another round's game
        same(jobs.creditOf(jobId, verifier(id - 1)), 10 ether, "the fee");
    }

    function test_aValidAboutWhatAGameShowedFalseEarnsNothing() public allHome {
        (uint16 seat, uint32 id, bytes memory body) = calledValid();
        token.approve(address(real), 20 ether);
        uint64 about = uint64(real.challenge(abi.encode(evidenceFor(jobId, 3, seat, 5)), 20 ether));
        audits.withhold(jobId, 3, id, uint32(seat) + 1, about, body);
        vm.warp(real.deadlineOf(about));
        real.timeout(about);
        vm.warp(rounds.timesOf(jobId, 3).windowEnd);
        vm.expectEmit();
        emit IAudits.ContestSettled(jobId, id, 3, seat, true);
        audits.settleContest(jobId, 3, id, uint32(seat) + 1);
        same(jobs.creditOf(jobId, verifier(id - 1)), 0, "no fee");
    }

    /// @return seat of another job, in which everybody is audited
    /// @return id of its auditor in round 3
    /// @return body that it opened: it accuses the seat
    function accused() private returns (uint16 seat, uint32 id, bytes memory body) {
        Terms memory t = defaultTerms();
        (t.rounds, t.f, t.program) = (6, 0, program());
        jobId = start(t, 4, 3);
        for (uint256 r = 0; r < 4; r++) {
            play(jobId);
        }
        (seat, id) = (1, 1);
        while (!dutiesOf(jobId, 3, uint16(id - 1)).has(seat)) id++;
        body = abi.encodePacked(uint8(seat), uint16(5), keccak256("mine"));
        auditReportBody(jobId, 3, id, body);
        vm.warp(rounds.timesOf(jobId, 3).auditEnd);
        openBody(jobId, 3, id, body);
    }

    function owes(address by, bytes memory e, uint32 id, bytes memory body, bytes4 refused) private {
        token.transfer(by, 10 ether);
        vm.startPrank(by);
        token.approve(address(real), 10 ether);
        if (refused != 0) vm.expectPartialRevert(refused);
        real.challengeOwed(e, 10 ether, id, body);
        vm.stopPrank();
    }

    /// What a drawn auditor said of a seat has room before whatever anybody bid.
    function test_anAccusationHasRoomInAFullQueue() public allHome {
        (uint16 seat, uint32 id, bytes memory body) = accused();
        for (uint256 i = 0; i < 6; i++) {
            challenge(2, seat, 100 ether, address(uint160(0x100 + i)));
        }
        bytes memory e = abi.encode(evidenceFor(jobId, 3, seat, 5));
        vm.expectRevert(abi.encodeWithSelector(GameQueue.QueueHasRoom.selector, 1, 6));
        real.crowdedOut(e);
        address account = verifier(id - 1);
        bytes4 notOwed = GameQueue.NotOwed.selector;
        owes(OUTSIDER, e, id, body, notOwed);
        owes(account, abi.encode(evidenceFor(jobId, 3, seat, 4)), id, body, notOwed);
        owes(account, abi.encode(evidenceFor(jobId, 2, seat, 5)), id, body, Audits.WrongBody.selector);
        owes(account, e, id, body, 0);
        bytes32 set = Hashing.setOf(jobId, Role.PROVIDER, uint32(seat) + 1);
        check(real.wasChallenged(keccak256(abi.encode(account, Hashing.positionOf(set, 3), uint32(5), false))), "it");
        same(real.openGames(set), 6, "one was pushed out");
        owes(account, e, id, body, notOwed);
    }

    function drawnSeat() internal view returns (uint256 seat) {
        while (drawn(jobId, 2) >> seat & 1 == 0) seat++;
    }
}
