// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {GameQueue, Phase} from "../../src/judge/GameQueue.sol";
import {Claim, Outcome} from "../../src/judge/IClaims.sol";
import {Table} from "../support/Table.sol";

/// @title What a further challenge of the same account asks for, and who moves for a holder.
contract ChallengersTest is Table {
    address internal constant OTHER = address(0xbeef);
    address internal constant DELEGATE = address(0xde1e);
    uint128 internal constant LOWEST = 1 ether; // of `claimOf`

    function claimAbout(uint256 number) private pure returns (Claim memory c) {
        c = claimOf(HOLDER, number);
        c.set = claimOf(HOLDER, 1).set;
    }

    function refused(address account, Claim memory c, uint128 bond, uint256 lowest) private {
        vm.prank(account);
        vm.expectRevert(abi.encodeWithSelector(GameQueue.WrongBond.selector, bond, lowest));
        game.challenge(abi.encode(c), bond);
    }

    function openOf(address account, bytes32 set) private view returns (uint256) {
        return game.openOf(account, set);
    }

    function right() private pure returns (bytes memory) {
        return abi.encodePacked(SEED, normOf(false));
    }

    // --- n times the lowest bond ---

    function test_P64_theNthOpenGameOfAnAccountAboutABondAsksForNTimes() public {
        bytes32 set = claimAbout(1).set;
        for (uint128 n = 1; n < 5; n++) {
            same(openOf(CHALLENGER, set), n - 1, "open before");
            refused(CHALLENGER, claimAbout(n), n * LOWEST - 1, n * LOWEST);
            challengeBy(CHALLENGER, claimAbout(n), n * LOWEST);
        }
        same(openOf(CHALLENGER, set), 4, "open");
    }

    function test_P64_othersAndOtherBondsAskForTheLowest() public {
        challengeBy(CHALLENGER, claimAbout(1), LOWEST);
        challengeBy(CHALLENGER, claimAbout(2), 2 * LOWEST);
        refused(OTHER, claimAbout(1), LOWEST - 1, LOWEST);
        challengeBy(OTHER, claimAbout(1), LOWEST);
        challengeBy(CHALLENGER, claimOf(HOLDER, 2), LOWEST); // the same holder's other bond
        challengeBy(CHALLENGER, claimOf(OTHER, 1), LOWEST);
    }

    function test_P64_whatIsOverCountsNoMore() public {
        bytes32 set = claimAbout(1).set;
        uint256 first = challengeBy(CHALLENGER, claimAbout(1), LOWEST);
        uint256 second = challengeBy(CHALLENGER, claimAbout(2), 2 * LOWEST);
        playOut(first, claimAbout(1), right(), 3);
        same(uint256(game.gameOf(first).outcome), uint256(Outcome.CHALLENGER_LOST), "lost");
        same(openOf(CHALLENGER, set), 1, "one is open");
        refused(CHALLENGER, claimAbout(3), 2 * LOWEST - 1, 2 * LOWEST);
        uint256 third = challengeBy(CHALLENGER, claimAbout(3), 2 * LOWEST);
        vm.warp(game.deadlineOf(second));
        game.timeout(second); // the holder is slashed, and the third goes home
        same(uint256(game.gameOf(third).outcome), uint256(Outcome.SENT_HOME), "home");
        same(openOf(CHALLENGER, set), 0, "none is open");
    }

    function test_P64_whoIsPushedOutCountsNoMore() public {
        bytes32 set = claimAbout(1).set;
        challengeBy(OTHER, claimAbout(1), LOWEST);
        challengeBy(CHALLENGER, claimAbout(2), LOWEST);
        for (uint160 i = 1; i < 5; i++) {
            challengeBy(address(i), claimAbout(3), 2 * LOWEST);
        }
        challengeBy(address(5), claimAbout(3), 2 * LOWEST);
        same(openOf(CHALLENGER, set), 0, "pushed out");
        same(game.owed(CHALLENGER), LOWEST, "its bond is home");
        challengeBy(CHALLENGER, claimAbout(2), 2 * LOWEST + 1); // more than the smallest, as before
        same(openOf(CHALLENGER, set), 1, "open again");
    }

    /// One account that fills a holder's queue locks 21 times the lowest bond; before, six times.
    function test_P64_fillingAQueueAloneTakesTwentyOneLowestBonds() public {
        uint256 before = token.balanceOf(address(game));
        for (uint128 n = 1; n < 7; n++) {
            challengeBy(CHALLENGER, claimAbout(n), n * LOWEST);
        }
        same(token.balanceOf(address(game)) - before, 21 * uint256(LOWEST), "locked");
        refused(CHALLENGER, claimAbout(7), 6 * LOWEST, 7 * LOWEST);
    }

    // --- who moves for a holder ---

    function test_P62_aDelegateMakesTheHoldersMoves() public {
        Claim memory c = claimAbout(1);
        uint256 id = challengeBy(CHALLENGER, c, LOWEST);
        vm.prank(DELEGATE);
        vm.expectRevert(abi.encodeWithSelector(GameQueue.NotYourMove.selector, DELEGATE, HOLDER));
        game.openSteps(id, c, part(0), list(c.closing), normOf(false));
        vm.prank(HOLDER);
        game.nameDelegate(DELEGATE);
        same(game.delegateOf(HOLDER), DELEGATE, "named");
        uint256 began = block.timestamp;
        vm.warp(began + c.moveSeconds + 7);
        vm.prank(DELEGATE);
        game.openSteps(id, c, part(0), list(c.closing), normOf(false));
        same(uint256(game.gameOf(id).phase), uint256(Phase.PICK_STEP), "taken");
        same(game.gameOf(id).holderLeft, c.holderSeconds - 7, "the clock is the holder's");
        same(uint256(playOut(id, c, right(), 3)), uint256(Outcome.CHALLENGER_LOST), "both may move");
        same(game.owed(HOLDER), LOWEST / 2, "the holder's");
        same(game.owed(DELEGATE), 0, "not the delegate's");
    }

    function test_P62_aDelegateMakesNoMoveOfAChallengerOrOfAnotherHolder() public {
        Claim memory c = claimAbout(1);
        uint256 id = challengeBy(CHALLENGER, c, LOWEST);
        vm.prank(CHALLENGER);
        game.nameDelegate(DELEGATE);
        vm.prank(OTHER);
        game.nameDelegate(DELEGATE);
        vm.prank(DELEGATE);
        vm.expectRevert(abi.encodeWithSelector(GameQueue.NotYourMove.selector, DELEGATE, HOLDER));
        game.openSteps(id, c, part(0), list(c.closing), normOf(false));
        playNext(id, c, right(), 0);
        vm.prank(DELEGATE);
        vm.expectRevert(abi.encodeWithSelector(GameQueue.NotYourMove.selector, DELEGATE, CHALLENGER));
        game.pickStep(id, 0, c.initialState, pieceRoot(right()), new bytes32[](0));
    }

    function test_P62_aDelegateThatIsTakenBackMovesNoMore() public {
        Claim memory c = claimAbout(1);
        uint256 id = challengeBy(CHALLENGER, c, LOWEST);
        vm.startPrank(HOLDER);
        game.nameDelegate(DELEGATE);
        game.nameDelegate(address(0));
        vm.stopPrank();
        vm.prank(DELEGATE);
        vm.expectRevert(abi.encodeWithSelector(GameQueue.NotYourMove.selector, DELEGATE, HOLDER));
        game.openSteps(id, c, part(0), list(c.closing), normOf(false));
    }

    // --- what others ask of a game ---

    function test_P43_whatAGameIsAboutAndHowItEnded() public {
        Claim memory c = claimAbout(1);
        (bytes32 position, Outcome outcome) = game.verdictOf(1);
        same(position, 0, "no game");
        uint256 id = challengeBy(CHALLENGER, c, LOWEST);
        uint256 waits = challengeBy(OTHER, claimAbout(2), LOWEST);
        (position, outcome) = game.verdictOf(id);
        same(position, c.position, "about");
        same(uint256(outcome), uint256(Outcome.NONE), "open");
        vm.warp(game.deadlineOf(id));
        game.timeout(id);
        (, outcome) = game.verdictOf(id);
        same(uint256(outcome), uint256(Outcome.HOLDER_LOST), "lost");
        (position, outcome) = game.verdictOf(waits);
        same(position, claimAbout(2).position, "about");
        same(uint256(outcome), uint256(Outcome.SENT_HOME), "home");
    }
}
