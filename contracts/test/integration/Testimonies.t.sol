// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {Claims, Evidence} from "../../src/judge/Claims.sol";
import {Game, Part} from "../../src/judge/Game.sol";
import {GameQueue, Outcome, Phase as GamePhase} from "../../src/judge/GameQueue.sol";
import {Claim} from "../../src/judge/IClaims.sol";
import {ProgramReader} from "../../src/judge/ProgramReader.sol";
import {Testimonies, Testimony} from "../../src/judge/Testimonies.sol";
import "../../src/types/Types.sol";
import {deployed} from "../support/Deployed.sol";
import {Network} from "../support/Network.sol";

/// @title Disputes about jobs whose program has no trace: the round's pool decides, or nobody.
contract TestimoniesTest is Network {
    uint128 internal constant CHALLENGE = 20 ether;
    Game internal real;
    uint256 internal jobId;
    uint256 internal id;

    function setUp() public override {
        address token_ = deployed("AtollToken", abi.encode(address(this), 1_000_000_000 ether, uint8(18)));
        address judge = deployed("Judge", abi.encode(new address[](8)));
        real = Game(deployed("Game", abi.encode(token_, LONGEST, judge)));
        deployWith(token_, address(real));
        real.wire(address(claims));
        stepNodes = 0;
        Terms memory t = defaultTerms();
        (t.rounds, t.slots) = (6, 4);
        jobId = start(t, 4, 4);
        play(jobId);
        play(jobId);
        vm.warp(rounds.timesOf(jobId, 1).auditEnd);
        id = challenge(1);
    }

    function challenge(uint16 seat) internal returns (uint256) {
        bytes memory shown = abi.encode(evidenceFor(jobId, 1, seat, 0));
        token.transfer(OUTSIDER, CHALLENGE);
        vm.startPrank(OUTSIDER);
        token.approve(address(real), CHALLENGE);
        uint256 number = real.challenge(shown, CHALLENGE);
        vm.stopPrank();
        return number;
    }

    function claimed() internal view returns (Claim memory) {
        return claims.claim(abi.encode(evidenceFor(jobId, 1, 1, 0)));
    }

    function testimony(uint32 member, bool isRight) internal view returns (bytes memory) {
        return abi.encode(Testimony(claimed(), shownFor(jobId, 1, 1).record, member, isRight));
    }

    function say(uint256 i, bool isRight) internal {
        bytes memory said = testimony(uint32(i + 1), isRight);
        vm.prank(verifier(i));
        real.testify(id, said);
    }

    function outcome() internal view returns (Outcome) {
        return real.gameOf(id).outcome;
    }

    function test_aClaimWithoutATraceHasNoProgram() public view {
        same(claimed().program, bytes32(0), "program");
        check(real.isPools(id), "the pool's");
    }

    function test_twoThirdsOfThePoolSlash() public allHome {
        say(0, false);
        say(1, false);
        same(uint256(real.gameOf(id).phase), uint256(GamePhase.OPEN_STEPS), "half of four are no two thirds");
        say(3, true);
        say(2, false);
        same(uint256(outcome()), uint256(Outcome.HOLDER_LOST), "decided");
        real.conclude(id);
        same(lockedOf(provider(1), Role.PROVIDER), 0, "the bond");
        same(activeOf(OUTSIDER, Role.VERIFIER), 0, "nobody has a share");
        same(stakes.unburnt(), BOND, "all is burnt");
        same(real.owed(OUTSIDER), CHALLENGE, "its own bond comes home");
    }

    function test_whoDisputesWhatIsRightLosesHalf() public allHome {
        for (uint256 i = 0; i < 3; i++) {
            say(i, true);
        }
        same(uint256(outcome()), uint256(Outcome.CHALLENGER_LOST), "decided");
        real.conclude(id);
        same(lockedOf(provider(1), Role.PROVIDER), BOND, "the bond stands");
        same(real.owed(provider(1)), CHALLENGE / 2, "half");
    }

    function test_withoutTwoThirdsNobodyLoses() public allHome {
        say(0, false);
        say(1, false);
        uint256 deadline = real.deadlineOf(id);
        Terms memory t = defaultTerms();
        same(deadline, block.timestamp + t.moveSeconds + 2 * t.gameSeconds, "both allowances");
        vm.expectRevert(abi.encodeWithSelector(GameQueue.StillInTime.selector, deadline, block.timestamp));
        real.timeout(id);
        vm.warp(deadline);
        real.timeout(id);
        same(uint256(outcome()), uint256(Outcome.SENT_HOME), "as never played");
        same(lockedOf(provider(1), Role.PROVIDER), BOND, "the bond stands");
        same(real.owed(OUTSIDER), CHALLENGE, "the challenger's, too");
        check(!real.isSlashed(claimed().set), "no slash");
    }

    function test_nobodyHasAMove() public {
        Claim memory c = claimed();
        Part memory header_ = Part(header(), 0, 1, new bytes32[](0));
        vm.prank(provider(1));
        vm.expectPartialRevert(ProgramReader.NotOfTheProgram.selector);
        real.openSteps(id, c, header_, new bytes32[](10), "");
    }

    function test_whoMaySayWhat() public {
        say(0, true);
        bytes memory again = testimony(1, false);
        vm.prank(verifier(0));
        vm.expectRevert(abi.encodeWithSelector(Testimonies.SaidBefore.selector, id, 0));
        real.testify(id, again);
        vm.prank(verifier(1));
        vm.expectRevert(abi.encodeWithSelector(Testimonies.NotInThePool.selector, verifier(1), 1));
        real.testify(id, again);
        Testimony memory other = Testimony(claimed(), shownFor(jobId, 1, 1).record, 2, true);
        other.claim.segment++;
        vm.prank(verifier(1));
        vm.expectPartialRevert(Testimonies.OtherClaim.selector);
        real.testify(id, abi.encode(other));
        other = Testimony(claimed(), shownFor(jobId, 0, 1).record, 2, true);
        vm.prank(verifier(1));
        vm.expectRevert();
        real.testify(id, abi.encode(other));
        bytes memory longer = bytes.concat(testimony(2, true), bytes32(0));
        vm.prank(verifier(1));
        vm.expectRevert(abi.encodeWithSelector(Claims.WrongTestimony.selector, longer.length));
        real.testify(id, longer);
        vm.expectRevert(abi.encodeWithSelector(Claims.OnlyGame.selector, address(this)));
        claims.weigh(id, bytes32(0), verifier(1), longer);
    }
}
