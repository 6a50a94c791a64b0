// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {Claim} from "../../src/judge/IClaims.sol";
import {Game} from "../../src/judge/Game.sol";
import {GameQueue, Outcome, Phase} from "../../src/judge/GameQueue.sol";
import {MoveChecks, Part} from "../../src/judge/MoveChecks.sol";
import {SafeERC20} from "@openzeppelin/contracts/token/ERC20/utils/SafeERC20.sol";
import {Wired} from "../../src/libraries/Wired.sol";
import {Pull} from "../../src/libraries/Pull.sol";
import {deployed} from "../support/Deployed.sol";
import {BlacklistToken, FeeToken, RefusingToken, ReentrantToken} from "../support/HostileTokens.sol";
import {Table} from "../support/Table.sol";
import {ToyClaims} from "../support/ToyClaims.sol";

/// @title Bonds, queues and clocks of the judge's game, and whole games about a program of one
/// node.
contract GamesTest is Table {
    address internal constant OTHER = address(0xbeef);
    address internal constant THIRD = address(0xcafe);
    uint128 internal constant BOND = 2 ether;

    function begun(uint256 number) internal returns (uint256) {
        return challengeBy(CHALLENGER, sameBond(number), BOND);
    }

    /// @return c the holder's claim of that number, which stands on the bond of its claim number 1
    function sameBond(uint256 number) internal pure returns (Claim memory c) {
        c = claimOf(HOLDER, number);
        c.set = claimOf(HOLDER, 1).set;
        c.lowestBond = BOND / 10; // several of an account are open here
    }

    /// @dev The holder answers, and then the challenger runs out of time.
    function defended(uint256 id, uint256 number) internal {
        playNext(id, sameBond(number), result(false), 0);
        stall(id);
        isOver(id, Outcome.CHALLENGER_LOST);
    }

    function result(bool isWrong) internal pure returns (bytes memory) {
        return abi.encodePacked(SEED, normOf(isWrong));
    }

    function phaseOf(uint256 id) internal view returns (Phase) {
        return game.gameOf(id).phase;
    }

    function isOver(uint256 id, Outcome outcome) internal view {
        same(uint256(phaseOf(id)), uint256(Phase.OVER), "over");
        same(uint256(game.gameOf(id).outcome), uint256(outcome), "outcome");
    }

    /// @dev Zero: nobody is.
    function isPlaying(uint256 id) internal view {
        for (uint256 i = 0; i < 3; i++) {
            uint256 played = game.gameAt(claimOf(HOLDER, 1).set, i);
            if (played == id && id != 0) return;
            check(played == 0 || id != 0, "nobody plays");
        }
        check(id == 0, "playing");
    }

    function isWaiting(uint256 id) internal view {
        same(uint256(phaseOf(id)), uint256(Phase.WAITING), "waits");
    }

    /// @dev Lets the game's mover run out of time.
    function stall(uint256 id) internal {
        vm.warp(game.deadlineOf(id));
        game.timeout(id);
    }

    // --- whole games ---

    function test_P34_P62_aWrongHolderLoses() public {
        Claim memory c = wrongClaimOf(HOLDER, 1);
        uint256 id = challengeBy(CHALLENGER, c, BOND);
        same(uint256(playOut(id, c, result(true), 9)), uint256(Outcome.HOLDER_LOST), "outcome");
        same(game.owed(CHALLENGER), BOND, "the bond goes home");
        same(claims.told(0), c.set, "told");
        same(claims.lastChallenger(), CHALLENGER, "who won");
        check(game.isSlashed(c.set), "slash");
        same(game.openGames(c.set), 0, "nothing is open");
    }

    function testFuzz_P34_P62_aRightHolderStands(uint8 element) public {
        Claim memory c = claimOf(HOLDER, 1);
        uint256 id = challengeBy(CHALLENGER, c, BOND + 1);
        Outcome outcome = playOut(id, c, result(false), within(element, 0, 9));
        same(uint256(outcome), uint256(Outcome.CHALLENGER_LOST), "outcome");
        same(game.owed(HOLDER), BOND / 2, "half to the holder");
        same(game.owed(game.BURN()), BOND / 2 + 1, "half burnt, rounded up");
        same(claims.toldCount(), 0, "nobody was slashed");
    }

    /// Every position of the node's bytes can be the wrong one.
    function testFuzz_P34_P62_anyWrongByteLoses(uint8 position, uint8 bit) public {
        uint256 at_ = within(position, 0, 39);
        bytes memory shown = result(false);
        shown[at_] ^= bytes1(uint8(1 << within(bit, 0, 5))); // the two high bits of a norm could make it infinite
        Claim memory c = claimOf(HOLDER, 1);
        (c.closing, c.workTag) = (word(shown, 0), keccak256(tail(shown)));
        uint256 id = challengeBy(CHALLENGER, c, BOND);
        same(uint256(playOut(id, c, shown, at_ / 4)), uint256(Outcome.HOLDER_LOST), "outcome");
    }

    function test_P62_onlyWhoseMoveItIs() public {
        Claim memory c = claimOf(HOLDER, 1);
        uint256 id = challengeBy(CHALLENGER, c, BOND);
        vm.prank(CHALLENGER);
        vm.expectRevert(abi.encodeWithSelector(GameQueue.NotYourMove.selector, CHALLENGER, HOLDER));
        game.openSteps(id, c, part(0), list(c.closing), normOf(false));
        vm.prank(HOLDER);
        vm.expectPartialRevert(GameQueue.WrongPhase.selector);
        game.postLeaf(id, "leaf");
        vm.expectPartialRevert(GameQueue.WrongPhase.selector);
        game.conclude(id);
        Claim memory other = claimOf(HOLDER, 2);
        vm.prank(HOLDER);
        vm.expectPartialRevert(GameQueue.AnotherClaim.selector);
        game.openSteps(id, other, part(0), list(c.closing), normOf(false));
    }

    function test_P62_whatIsNotFiniteIsNotOpened() public {
        bytes[2] memory norms = [bytes(hex"7ff0000000000000"), hex"fff8000000000001"];
        for (uint256 i = 0; i < norms.length; i++) {
            Claim memory c = claimOf(HOLDER, i);
            c.workTag = keccak256(norms[i]);
            uint256 id = challengeBy(CHALLENGER, c, BOND);
            vm.prank(HOLDER);
            vm.expectRevert(abi.encodeWithSelector(MoveChecks.NotFinite.selector, 0));
            game.openSteps(id, c, part(0), list(c.closing), norms[i]);
            stall(id);
            isOver(id, Outcome.HOLDER_LOST);
        }
    }

    /// Of a micro-batch's loss it is the exponent alone that says so.
    function test_P62_aLossThatIsNotFiniteIsNotOpened() public {
        bytes4[4] memory infinite = [bytes4(0x7f800000), 0xff800000, 0x7fc00000, 0xffffffff];
        for (uint256 i = 0; i < infinite.length; i++) {
            opensLoss(i, infinite[i], true);
        }
        opensLoss(10, 0x7f7fffff, false);
        opensLoss(11, 0xff7fffff, false);
    }

    function opensLoss(uint256 number, bytes4 loss, bool isRefused) private {
        Claim memory c = claimOf(HOLDER, number);
        bytes memory h = shaped(1, 2);
        bytes memory works = bytes.concat(normOf(false), bytes4(0x40000000), loss);
        c.program = keccak256(abi.encodePacked(bytes1(0x02), uint64(1), leafNode(h)));
        c.workTag = keccak256(works);
        uint256 id = challengeBy(CHALLENGER, c, BOND);
        vm.prank(HOLDER);
        if (isRefused) vm.expectRevert(abi.encodeWithSelector(MoveChecks.NotFinite.selector, 0));
        game.openSteps(id, c, Part(h, 0, 1, new bytes32[](0)), list(c.closing), works);
    }

    /// The step behind a state of zero could not be proved wrong: nobody knows roots whose digest
    /// is zero.
    function test_P62_aStateOfZeroIsNotOpened() public {
        bytes memory header = headerBytes();
        (header[20], header[24]) = (0x02, 0x02); // two steps, in one segment
        bytes memory works = bytes.concat(normOf(false), normOf(false));
        Part memory p = part(0);
        p.data = header;
        for (uint256 zero = 0; zero < 2; zero++) {
            bytes32[] memory states = new bytes32[](2);
            states[1 - zero] = SEED;
            Claim memory c = claimOf(HOLDER, zero);
            bytes32 top = keccak256(abi.encodePacked(bytes1(0x01), leafNode(header), p.path[0]));
            c.program = keccak256(abi.encodePacked(bytes1(0x02), uint64(2), top));
            (c.closing, c.workTag) = (states[1], keccak256(works));
            uint256 id = challengeBy(CHALLENGER, c, BOND);
            vm.prank(HOLDER);
            vm.expectRevert(abi.encodeWithSelector(MoveChecks.NotFinite.selector, zero));
            game.openSteps(id, c, p, states, works);
            stall(id);
            isOver(id, Outcome.HOLDER_LOST);
        }
    }

    function test_P62_aJobWithoutALinkHasNoneToBeWrong() public {
        Claim memory c = claimOf(HOLDER, 1);
        c.isUpdateProof = true;
        uint256 id = challengeBy(CHALLENGER, c, BOND);
        bytes32[] memory none = new bytes32[](0);
        vm.prank(HOLDER);
        game.postUpdateProof(id, c, part(0), part(0), roots(), 0, none, none);
        game.conclude(id);
        isOver(id, Outcome.CHALLENGER_LOST);
    }

    function test_P62_aLinkIsNotOfAnotherStatesRoots() public {
        Claim memory c = claimOf(HOLDER, 1);
        c.isUpdateProof = true;
        uint256 id = challengeBy(CHALLENGER, c, BOND);
        bytes32[] memory none = new bytes32[](0);
        bytes32[4] memory others = roots();
        others[1] = keccak256("other moments");
        bytes32 digest = sha256(abi.encodePacked("atoll.state.v1", others));
        vm.prank(HOLDER);
        vm.expectRevert(abi.encodeWithSelector(MoveChecks.WrongRoots.selector, digest, c.initialState));
        game.postUpdateProof(id, c, part(0), part(0), others, 0, none, none);
        stall(id);
        isOver(id, Outcome.HOLDER_LOST);
    }

    // --- clocks ---

    function test_P27_P63_theHoldersLastSecond() public {
        Claim memory c = claimOf(HOLDER, 1);
        uint256 id = challengeBy(CHALLENGER, c, BOND);
        uint256 deadline = block.timestamp + c.moveSeconds + c.holderSeconds;
        same(game.deadlineOf(id), deadline, "deadline");
        vm.warp(deadline - 1);
        vm.expectRevert(abi.encodeWithSelector(GameQueue.StillInTime.selector, deadline, deadline - 1));
        game.timeout(id);
        vm.warp(deadline);
        vm.prank(HOLDER);
        vm.expectRevert(abi.encodeWithSelector(GameQueue.OutOfTime.selector, deadline, deadline));
        game.openSteps(id, c, part(0), list(c.closing), normOf(false));
        game.timeout(id);
        isOver(id, Outcome.HOLDER_LOST);
        vm.expectPartialRevert(GameQueue.WrongPhase.selector);
        game.timeout(id);
    }

    function test_P27_P63_theChallengersLastSecond() public {
        Claim memory c = claimOf(HOLDER, 1);
        uint256 id = challengeBy(CHALLENGER, c, BOND);
        vm.warp(game.deadlineOf(id) - 1);
        playNext(id, c, result(false), 0);
        uint256 deadline = block.timestamp + c.moveSeconds + c.challengerSeconds;
        same(game.deadlineOf(id), deadline, "the challenger's clock is its own");
        vm.warp(deadline - 1);
        playNext(id, c, result(false), 0);
        same(game.deadlineOf(id), block.timestamp + c.moveSeconds + 1, "a second of the holder's is left");
        vm.warp(block.timestamp + c.moveSeconds);
        playNext(id, c, result(false), 0); // within the move's own minute: not charged
        same(game.deadlineOf(id), block.timestamp + c.moveSeconds + 1, "a second of the challenger's is left");
        vm.warp(block.timestamp + c.moveSeconds + 1);
        game.timeout(id);
        isOver(id, Outcome.CHALLENGER_LOST);
    }

    function testFuzz_P63_onlyTimeBeyondTheMovesOwnIsCharged(uint16 wait) public {
        Claim memory c = claimOf(HOLDER, 1);
        uint256 id = challengeBy(CHALLENGER, c, BOND);
        uint256 waited = within(wait, 0, c.moveSeconds + c.holderSeconds - 1);
        vm.warp(block.timestamp + waited);
        playNext(id, c, result(false), 0);
        uint256 charged = waited > c.moveSeconds ? waited - c.moveSeconds : 0;
        same(game.gameOf(id).holderLeft, c.holderSeconds - charged, "left");
        same(game.gameOf(id).challengerLeft, c.challengerSeconds, "the other's stands");
    }

    function test_P63_theWindow() public {
        Claim memory c = claimOf(HOLDER, 1);
        vm.warp(c.windowEnd - 1);
        begun(1);
        vm.warp(c.windowEnd);
        vm.expectRevert(abi.encodeWithSelector(GameQueue.WindowOver.selector, c.windowEnd, c.windowEnd));
        game.challenge(abi.encode(c), BOND);
    }

    function test_P63_aWaitingGameBeginsUntilItsLatestStart() public {
        uint256 latest = 100_000 + 5 * LONGEST;
        uint256 first = begun(1);
        for (uint256 n = 2; n < 6; n++) {
            begun(n);
        }
        for (uint256 n = 0; n < 3; n++) {
            playNext(first + n, sameBond(n + 1), result(false), 0); // and the challenger is silent
        }
        vm.warp(latest - 1);
        isWaiting(first + 3);
        game.timeout(first);
        isPlaying(first + 3);
        playNext(first + 3, sameBond(4), result(false), 0);
        vm.warp(latest);
        isWaiting(first + 4);
        game.timeout(first + 1);
        isOver(first + 4, Outcome.SENT_HOME);
        game.timeout(first + 2);
        stall(first + 3);
        isPlaying(0);
        same(game.owed(CHALLENGER), BOND, "its bond is home");
    }

    // --- queues ---

    function test_P64_aGameBeginsWhenTheHolderOwesNoMove() public {
        (uint256 first, uint256 second) = (begun(1), begun(2));
        uint256 elsewhere = challengeBy(CHALLENGER, claimOf(OTHER, 1), BOND);
        same(uint256(phaseOf(first)), uint256(Phase.OPEN_STEPS), "first");
        same(uint256(phaseOf(second)), uint256(Phase.WAITING), "second");
        same(uint256(phaseOf(elsewhere)), uint256(Phase.OPEN_STEPS), "games about others hold up nobody");
        same(game.deadlineOf(second), 0, "no clock runs");
        vm.expectPartialRevert(GameQueue.WrongPhase.selector);
        game.timeout(second);
        vm.warp(block.timestamp + 100);
        playNext(first, sameBond(1), result(false), 0);
        same(uint256(game.gameOf(second).since), block.timestamp, "its clock begins with its turn");
        same(game.deadlineOf(second), block.timestamp + 1_060, "and all of its time");
    }

    function test_P35_payWaitsForTheLowestPositionThatIsPlayedAboutOrWaits() public {
        (Claim memory played_, Claim memory waiting) = (sameBond(1), sameBond(2));
        (played_.position, waiting.position) = (bytes32(uint256(20)), bytes32(uint256(10)));
        same(uint256(game.lowestOpen(played_.set)), type(uint256).max, "none");
        uint256 id = challengeBy(CHALLENGER, played_, BOND);
        same(uint256(game.lowestOpen(played_.set)), 20, "the one that is played");
        challengeBy(CHALLENGER, waiting, BOND);
        same(uint256(game.lowestOpen(played_.set)), 10, "the one that waits");
        same(uint256(game.lowestOpen(claimOf(OTHER, 1).set)), type(uint256).max, "of this bond only");
        stall(id);
        same(uint256(game.lowestOpen(played_.set)), type(uint256).max, "a slash ends both");
    }

    /// What an auditor has to show who said that a work tag differs: that it challenged it, itself.
    function test_P64_whoChallengedWhatIsKept() public {
        Claim memory c = claimOf(HOLDER, 1);
        (c.round, c.segment, c.position) = (7, 3, bytes32(uint256(7)));
        check(!game.wasChallenged(said(CHALLENGER, c.position, 3, false)), "not before");
        challengeBy(CHALLENGER, c, BOND);
        check(game.wasChallenged(said(CHALLENGER, c.position, 3, false)), "its segment");
        check(!game.wasChallenged(said(CHALLENGER, c.position, 3, true)), "not the update proof");
        check(!game.wasChallenged(said(CHALLENGER, c.position, 0, false)), "not the first");
        check(!game.wasChallenged(said(OTHER, c.position, 3, false)), "by nobody else");
        c.isUpdateProof = true;
        challengeBy(OTHER, c, BOND);
        check(game.wasChallenged(said(OTHER, c.position, 3, true)), "the update proof");
        // About a round of the reset period before the position's own: that it began with something
        // false.
        c.round = 6;
        challengeBy(THIRD, c, BOND);
        check(game.wasChallenged(said(THIRD, c.position, 0, false)), "the beginning");
        check(!game.wasChallenged(said(THIRD, c.position, 3, true)), "and nothing else");
    }

    function said(address challenger, bytes32 position, uint256 segment, bool isUpdateProof)
        private
        pure
        returns (bytes32)
    {
        return keccak256(abi.encode(challenger, position, segment, isUpdateProof));
    }

    /// What is lost begins with the lowest position, whichever game was won.
    function test_P38_aFallIsToldWithTheLowestPositionThatWasPlayedAboutOrWaited() public {
        uint8[3][2] memory orders = [[20, 10, 30], [10, 20, 30]];
        for (uint256 i = 0; i < 2; i++) {
            Claim memory c = claimOf(HOLDER, 7 + i);
            c.lowestBond = BOND / 3;
            uint256 first;
            for (uint256 k = 0; k < 3; k++) {
                c.position = bytes32(uint256(orders[i][k]));
                uint256 id = challengeBy(CHALLENGER, c, BOND);
                if (k == 0) first = id;
            }
            stall(first);
            isOver(first, Outcome.HOLDER_LOST);
            same(uint256(claims.lastLowest()), 10, "the lowest");
        }
    }

    function test_P64_theLargestIsNextAndTiesGoByOrder() public {
        uint256 first = begun(1);
        uint256 small = challengeBy(CHALLENGER, sameBond(2), BOND);
        uint256 large = challengeBy(CHALLENGER, sameBond(3), BOND + 1);
        uint256 later = challengeBy(CHALLENGER, sameBond(4), BOND + 1);
        defended(first, 1);
        isPlaying(large);
        isWaiting(later);
        defended(large, 3);
        isPlaying(later);
        isWaiting(small);
        defended(later, 4);
        isPlaying(small);
        defended(small, 2);
        isPlaying(0);
    }

    function test_P64_aLargerBondPushesTheSmallestOut() public {
        begun(0);
        uint256[5] memory waiting;
        for (uint256 i = 0; i < 5; i++) {
            waiting[i] = challengeBy(OTHER, sameBond(i + 1), i == 0 ? BOND + 1 : BOND);
        }
        Claim memory c = sameBond(9);
        vm.expectRevert(abi.encodeWithSelector(GameQueue.QueueFull.selector, BOND, BOND));
        game.challenge(abi.encode(c), BOND);
        uint256 pushing = challengeBy(CHALLENGER, c, BOND + 1);
        isOver(waiting[4], Outcome.SENT_HOME); // of equal ones the latest
        same(uint256(phaseOf(pushing)), uint256(Phase.WAITING), "in its position");
        same(game.owed(OTHER), BOND, "home");
        same(game.openGames(c.set), 6, "as many as before");
    }

    /// The largest that terms and programs allow: many steps, or one of many micro-batches.
    function test_P13_theFirstMoveOfTheLargestSegment() public {
        opensLarge(744, 1);
        opensLarge(1, 8_182);
        opensLarge(36, 217);
    }

    function opensLarge(uint32 steps, uint32 micro) private {
        check(steps * (40 + 4 * micro) <= 32_768, "within what is played");
        bytes memory h = shaped(steps, micro);
        Claim memory c = claimOf(HOLDER, 1_000 + steps);
        c.program = keccak256(abi.encodePacked(bytes1(0x02), uint64(1), leafNode(h)));
        bytes32[] memory states = new bytes32[](steps);
        for (uint256 i = 0; i < steps; i++) {
            states[i] = keccak256(abi.encode(i));
        }
        bytes memory works = new bytes(uint256(steps) * (8 + 4 * uint256(micro)));
        for (uint256 i = 0; i < works.length; i++) {
            works[i] = 0x3f;
        }
        (c.closing, c.workTag) = (states[steps - 1], keccak256(works));
        uint256 id = challengeBy(CHALLENGER, c, 2 ether);
        bytes memory data = abi.encodeCall(game.openSteps, (id, c, Part(h, 0, 1, new bytes32[](0)), states, works));
        atMost(data.length, 128 * 1024, "bytes of calldata");
        vm.prank(HOLDER);
        uint256 before = gasleft();
        (bool isTaken,) = address(game).call(data);
        check(isTaken, "taken");
        atMost(before - gasleft() + 21_000 + 16 * data.length, 6_000_000, "gas");
    }

    /// @return header of a program whose one segment has so many steps, and each so many
    /// micro-batches
    function shaped(uint32 steps, uint32 micro) private pure returns (bytes memory) {
        return bytes.concat(
            abi.encodePacked(uint8(1), uint64(1), uint64(0), steps, steps, micro),
            abi.encodePacked(bytes32(0), uint64(0), uint8(4), uint8(0), uint32(1), uint32(1)),
            abi.encodePacked(bytes32(0), uint64(0), bytes32(0), bytes32(0))
        );
    }

    function test_P64_nobodyTakesAWaitingBondBack() public {
        begun(1);
        challengeBy(OTHER, sameBond(2), BOND);
        game.withdraw(OTHER);
        same(token.balanceOf(OTHER), 0, "nothing is owed");
    }

    function test_P64_aSlashEndsTheGamesOfItsSetOnly() public {
        uint256 first = begun(1);
        Claim memory c = claimOf(HOLDER, 1);
        c.position = "another position of the same set";
        uint256 sameSet = challengeBy(OTHER, c, BOND + 2);
        uint256 otherSet = challengeBy(OTHER, claimOf(HOLDER, 2), BOND);
        uint256 again = challengeBy(OTHER, claimOf(HOLDER, 1), BOND + 1);
        stall(first);
        isOver(sameSet, Outcome.SENT_HOME);
        isOver(again, Outcome.SENT_HOME);
        same(uint256(phaseOf(otherSet)), uint256(Phase.OPEN_STEPS), "another bond's game goes on");
        same(game.owed(OTHER), 2 * BOND + 3, "home");
        vm.expectRevert(abi.encodeWithSelector(GameQueue.SetSlashed.selector, c.set));
        game.challenge(abi.encode(c), BOND);
    }

    function test_P64_theSameClaimTwiceIsTwoGames() public {
        Claim memory c = claimOf(HOLDER, 1);
        uint256 first = challengeBy(CHALLENGER, c, BOND);
        uint256 second = challengeBy(CHALLENGER, c, BOND); // twice the lowest
        same(game.openGames(c.set), 2, "both count");
        playOut(first, c, result(false), 3);
        isOver(first, Outcome.CHALLENGER_LOST);
        isPlaying(second);
        playOut(second, c, result(false), 3);
        same(game.owed(HOLDER), BOND, "half of each");
    }

    /// A cheat challenges itself with the highest bonds before an outsider comes; every sham lasts
    /// as long as it can. A challenge is public before it is mined. Whoever copies it in front of
    /// the finder's has bought a game.
    function test_P64_whoCopiesAChallengeHasToPlayItItself() public {
        Claim memory c = wrongClaimOf(HOLDER, 1);
        uint256 copied = challengeBy(OTHER, c, BOND);
        uint256 own = challengeBy(CHALLENGER, c, BOND);
        playNext(copied, c, result(true), 0);
        stall(copied); // it has no run from which to find the step
        isOver(copied, Outcome.CHALLENGER_LOST);
        same(uint256(playOut(own, c, result(true), 9)), uint256(Outcome.HOLDER_LOST), "the finder's game");
        same(claims.lastChallenger(), CHALLENGER, "to whom the share goes");
        same(game.owed(OTHER), 0, "the copier has lost its bond");
    }

    function test_P64_shamsNeitherExhaustTheWindowNorPay() public {
        Claim memory c = wrongClaimOf(HOLDER, 1);
        uint128 highest = 100 ether;
        vm.warp(c.windowEnd - 1);
        uint256[5] memory shams;
        for (uint256 i = 0; i < 5; i++) {
            shams[i] = challengeBy(OTHER, c, highest);
        }
        uint256 honest = challengeBy(CHALLENGER, c, highest);
        for (uint256 i = 0; i < 5; i++) {
            vm.warp(game.deadlineOf(shams[i]) - 1);
            playNext(shams[i], c, result(true), 9); // the holder moves in its last second, the sham never
            stall(shams[i]);
            isOver(shams[i], Outcome.CHALLENGER_LOST);
        }
        isPlaying(honest);
        check(block.timestamp < c.windowEnd + 5 * LONGEST, "in time");
        atMost(2 * uint256(highest), game.owed(game.BURN()), "burnt: more than the bond that was to be saved");
        same(uint256(playOut(honest, c, result(true), 9)), uint256(Outcome.HOLDER_LOST), "and it is slashed");
    }

    /// The same cheat has a seat in a job of its own, and lets that bond be slashed so that its
    /// shams about it go home whole.
    function test_P64_shamsAboutAnotherBondHoldUpNobody() public {
        Claim memory c = wrongClaimOf(HOLDER, 1);
        for (uint256 i = 2; i < 8; i++) {
            Claim memory own = claimOf(HOLDER, i);
            own.set = "a bond in its own job";
            challengeBy(OTHER, own, 100 ether);
        }
        uint256 honest = challengeBy(CHALLENGER, c, BOND);
        isPlaying(honest);
        same(uint256(playOut(honest, c, result(true), 9)), uint256(Outcome.HOLDER_LOST), "and it is slashed");
    }

    function test_P64_whoWasPushedOutBidsAgain() public {
        for (uint256 i = 0; i < 6; i++) {
            challengeBy(OTHER, sameBond(i), 100 ether);
        }
        Claim memory c = sameBond(7);
        vm.expectRevert(abi.encodeWithSelector(GameQueue.QueueFull.selector, 100 ether, 100 ether));
        game.challenge(abi.encode(c), 100 ether);
        uint256 honest = challengeBy(CHALLENGER, c, 1_000 ether);
        same(uint256(phaseOf(honest)), uint256(Phase.WAITING), "no bid is too high");
    }

    // --- bonds and claims ---

    function test_P65_bondsBelowTheLowestAreRefused() public {
        Claim memory c = claimOf(HOLDER, 1);
        vm.expectPartialRevert(GameQueue.WrongBond.selector);
        game.challenge(abi.encode(c), c.lowestBond - 1);
        c.lowestBond = 0;
        vm.expectPartialRevert(GameQueue.WrongBond.selector);
        game.challenge(abi.encode(c), 0);
    }

    function test_P65_noGameIsLongerThanTheLongest() public {
        Claim memory c = claimOf(HOLDER, 1);
        c.holderSeconds = uint32(LONGEST - c.challengerSeconds - 40 * c.moveSeconds);
        challengeBy(CHALLENGER, c, BOND);
        c.holderSeconds++;
        vm.expectRevert(abi.encodeWithSelector(GameQueue.TooLong.selector, LONGEST + 1, LONGEST));
        game.challenge(abi.encode(c), BOND);
    }

    function test_P65_aClaimThatEndsMeanwhileTakesNoNewGames() public {
        Claim memory c = claimOf(HOLDER, 1);
        uint256 id = challengeBy(CHALLENGER, c, BOND);
        claims.close(c.set);
        vm.expectRevert(abi.encodeWithSelector(ToyClaims.Closed.selector, c.set));
        game.challenge(abi.encode(c), BOND);
        same(uint256(playOut(id, c, result(false), 1)), uint256(Outcome.CHALLENGER_LOST), "what runs is played out");
    }

    function test_P65_aClaimsContractThatRevertsOrEatsGasEndsNoGame() public {
        ToyClaims.Mood[2] memory moods = [ToyClaims.Mood.REVERTING, ToyClaims.Mood.GREEDY];
        for (uint256 i = 0; i < moods.length; i++) {
            claims.setMood(moods[i]);
            uint256 id = challengeBy(CHALLENGER, claimOf(HOLDER, i), BOND);
            stall(id);
            isOver(id, Outcome.HOLDER_LOST);
            same(game.owed(CHALLENGER), (i + 1) * BOND, "home");
        }
        same(claims.toldCount(), 0, "not told");
    }

    function test_P65_nobodyStarvesWhatASlashTells() public {
        uint256 id = begun(1);
        vm.warp(game.deadlineOf(id));
        (bool ok, bytes memory answer) = address(game).call{gas: 1_000_000}(abi.encodeCall(game.timeout, (id)));
        check(!ok && bytes4(answer) == GameQueue.NotEnoughGas.selector, "too little gas");
        same(uint256(phaseOf(id)), uint256(Phase.OPEN_STEPS), "nothing happened");
        game.timeout(id);
        same(claims.toldCount(), 1, "told");
    }

    /// What games owe an account goes where its pay goes, whoever its payee is by then.
    function test_P45_whatGamesOweIsThePayees() public {
        address payee = address(0xc01d);
        claims.payTo(payee);
        uint256 id = begun(1);
        playNext(id, sameBond(1), result(false), 0);
        stall(id);
        same(game.owed(HOLDER), BOND / 2, "half");
        game.withdraw(HOLDER);
        same(token.balanceOf(payee), BOND / 2, "not to the key that works");
        uint256 other = begun(2);
        stall(other);
        game.withdraw(CHALLENGER);
        same(token.balanceOf(payee), BOND / 2 + BOND, "and the challenger's bond");
    }

    function test_P65_whatIsOwedIsPulledOnce() public {
        uint256 id = begun(1);
        playNext(id, sameBond(1), result(false), 0);
        stall(id);
        game.withdraw(HOLDER);
        game.withdraw(game.BURN());
        game.withdraw(HOLDER);
        same(token.balanceOf(HOLDER), BOND / 2, "half");
        same(token.balanceOf(game.BURN()), BOND / 2, "half");
        same(token.balanceOf(address(game)), 0, "nothing stays");
    }

    function test_P65_onlyTheDeployerWiresOnce() public {
        vm.expectRevert(Wired.AlreadyWired.selector);
        game.wire(address(claims));
        Game other = new Game(address(token), LONGEST, address(judge));
        vm.prank(OTHER);
        vm.expectPartialRevert(Wired.OnlyDeployer.selector);
        other.wire(address(claims));
    }

    // --- hostile tokens ---

    function gameWith(address coin) internal returns (Game table) {
        table = Game(deployed("Game", abi.encode(coin, LONGEST, judge)));
        table.wire(address(claims));
    }

    function test_P65_aTokenThatKeepsAFeeOrReturnsFalseTakesNoBond() public {
        bytes memory evidence = abi.encode(claimOf(HOLDER, 1));
        FeeToken fee = new FeeToken(address(this), 100 ether);
        Game table = gameWith(address(fee));
        fee.approve(address(table), BOND);
        vm.expectPartialRevert(Pull.TransferFee.selector);
        table.challenge(evidence, BOND);
        table = gameWith(address(new RefusingToken()));
        vm.expectPartialRevert(SafeERC20.SafeERC20FailedOperation.selector);
        table.challenge(evidence, BOND);
        same(table.games(), 0, "no game");
    }

    function test_P65_whoTheTokenRefusesEndsNoGame() public {
        BlacklistToken black = new BlacklistToken(address(this), 100 ether);
        Game table = gameWith(address(black));
        black.approve(address(table), BOND);
        uint256 id = table.challenge(abi.encode(claimOf(HOLDER, 1)), BOND);
        black.refuse(address(this));
        vm.warp(table.deadlineOf(id));
        table.timeout(id);
        same(uint256(table.gameOf(id).phase), uint256(Phase.OVER), "over");
        vm.expectPartialRevert(BlacklistToken.Refused.selector);
        table.withdraw(address(this));
        same(table.owed(address(this)), BOND, "still owed");
        claims.payTo(address(0xc01d));
        table.withdraw(address(this));
        same(black.balanceOf(address(0xc01d)), BOND, "another payee has it");
    }

    function test_P65_aTokenThatCallsBackGetsNowhere() public {
        ReentrantToken coin = new ReentrantToken(address(this), 100 ether);
        Game table = gameWith(address(coin));
        coin.approve(address(table), 2 * BOND);
        coin.arm(address(table), abi.encodeCall(table.challenge, (abi.encode(claimOf(HOLDER, 1)), BOND)));
        uint256 id = table.challenge(abi.encode(claimOf(HOLDER, 1)), BOND);
        check(coin.wasRefused(), "challenge");
        same(table.games(), 1, "one game");
        vm.warp(table.deadlineOf(id));
        table.timeout(id);
        coin.arm(address(table), abi.encodeCall(table.withdraw, (address(this))));
        table.withdraw(address(this));
        check(coin.wasRefused(), "withdraw");
        same(coin.balanceOf(address(this)), 100 ether, "paid once");
    }
}
