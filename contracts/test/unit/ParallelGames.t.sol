// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {GameQueue, Phase} from "../../src/judge/GameQueue.sol";
import {Claim, Outcome} from "../../src/judge/IClaims.sol";
import {Table} from "../support/Table.sol";

/// @title Several games about one bond: whose clock runs, who has a place, and what the friends of
/// a cheat, or the enemies of an honest holder, get by many of them.
contract ParallelGamesTest is Table {
    address internal constant AUDITOR = address(0xaad1);
    uint128 internal constant LOWEST = 1 ether; // of `claimOf`
    uint256 internal constant SHAMS = 14;
    uint256 internal constant REPLAY = 1_000; // seconds that a machine takes for one trace: the allowance

    bytes32 internal set = claimOf(HOLDER, 1).set;

    function about(uint256 number) internal view returns (Claim memory c) {
        c = claimOf(HOLDER, number);
        c.set = set;
    }

    function falseAbout(uint256 number) internal view returns (Claim memory c) {
        c = wrongClaimOf(HOLDER, number);
        c.set = set;
    }

    function right() internal pure returns (bytes memory) {
        return abi.encodePacked(SEED, normOf(false));
    }

    function wrong() internal pure returns (bytes memory) {
        return abi.encodePacked(SEED, normOf(true));
    }

    function stranger(uint256 i) internal pure returns (address) {
        return address(uint160(0x5000 + i));
    }

    /// @return id of a game about a right claim, by an account that has no other
    function sham(uint256 number) internal returns (uint256 id) {
        return challengeBy(stranger(number), about(number), LOWEST);
    }

    function phaseOf(uint256 id) internal view returns (Phase) {
        return game.gameOf(id).phase;
    }

    function isAt(uint256 id, Phase phase) internal view {
        same(uint256(phaseOf(id)), uint256(phase), "phase");
    }

    function ended(uint256 id, Outcome outcome) internal view {
        isAt(id, Phase.OVER);
        same(uint256(game.gameOf(id).outcome), uint256(outcome), "outcome");
    }

    function stands(uint256 id) internal view {
        same(game.deadlineOf(id), 0, "its clock stands");
        check(phaseOf(id) > Phase.WAITING && phaseOf(id) < Phase.DECIDED, "it is played");
    }

    function stall(uint256 id) internal {
        vm.warp(game.deadlineOf(id));
        game.timeout(id);
    }

    // --- clocks ---

    function test_P63_aHoldersClockRunsInOneGameAtATime() public {
        (uint256 first, uint256 second) = (sham(1), sham(2));
        playNext(first, about(1), right(), 0); // the second begins
        isAt(second, Phase.OPEN_STEPS);
        playNext(first, about(1), right(), 0); // a trace is asked for
        stands(first);
        vm.expectRevert(abi.encodeWithSelector(GameQueue.WrongPhase.selector, Phase.POST_TRACE, Phase.OPEN_STEPS));
        game.timeout(first);
        vm.warp(game.deadlineOf(second) - 1);
        playNext(second, about(2), right(), 0);
        same(game.deadlineOf(first), block.timestamp + 60 + 1_000, "the whole allowance, from then on");
        playNext(second, about(2), right(), 0);
        stands(second);
        playNext(first, about(1), right(), 0);
        same(game.deadlineOf(second), block.timestamp + 60 + 1, "what the second has left");
    }

    function test_P63_theOldestOfTheClocksThatStandIsNext() public {
        uint256 first = sham(1);
        (uint256 second, uint256 third) = (sham(2), sham(3));
        playNext(first, about(1), right(), 0);
        playNext(second, about(2), right(), 0); // the third begins, and is owed
        playNext(second, about(2), right(), 0);
        playNext(first, about(1), right(), 0);
        stands(first);
        stands(second);
        playNext(third, about(3), right(), 0);
        check(game.deadlineOf(first) != 0, "the older one");
        stands(second);
        stall(third); // a challenger's, which runs beside it
        ended(third, Outcome.CHALLENGER_LOST);
        stands(second);
    }

    function test_P63_aHolderMayMoveWhereItsClockStands() public {
        (uint256 first, uint256 second) = (sham(1), sham(2));
        playNext(first, about(1), right(), 0);
        playNext(first, about(1), right(), 0);
        vm.warp(block.timestamp + 500);
        stands(first);
        playNext(first, about(1), right(), 0);
        same(game.gameOf(first).holderLeft, 1_000, "nothing is charged");
        same(game.deadlineOf(first), block.timestamp + 60 + 500, "the challenger's runs");
        same(game.gameOf(second).holderLeft, 1_000, "nor in the other one yet");
        check(game.deadlineOf(second) != 0, "which runs as before");
    }

    /// Hostile challengers about different rounds, that pick at once and go silent when a trace is
    /// there; an honest holder whose trace takes all of its allowance. Had all clocks run at once, it
    /// would have lost its bond to the second.
    function test_P63_shamsAboutFourteenRoundsDoNotTakeAnHonestBond() public {
        (uint256 next, uint256 over) = (0, 0);
        while (over < SHAMS) {
            while (next < SHAMS && game.openGames(set) < 6) sham(++next);
            over = 0;
            for (uint256 id = 1; id <= next; id++) {
                Phase phase = phaseOf(id);
                if (phase == Phase.OVER) over++;
                if (phase == Phase.OPEN_STEPS || phase == Phase.PICK_STEP) playNext(id, about(id), right(), 0);
                if (phase == Phase.PICK && block.timestamp >= game.deadlineOf(id)) game.timeout(id);
                if (phase != Phase.POST_TRACE || game.deadlineOf(id) == 0) continue;
                vm.warp(block.timestamp + REPLAY);
                playNext(id, about(id), right(), 0);
            }
            vm.warp(block.timestamp + 1);
        }
        for (uint256 id = 1; id <= SHAMS; id++) {
            ended(id, Outcome.CHALLENGER_LOST);
        }
        check(!game.isSlashed(set), "nobody is slashed");
        same(game.owed(HOLDER), SHAMS * LOWEST / 2, "half of every bond");
    }

    /// The same about one round, each of another of its steps.
    function test_P63_threeTracesOfOneRoundAreOwedOneAfterAnother() public {
        for (uint256 i = 1; i <= 3; i++) {
            challengeBy(stranger(i), about(1), LOWEST);
        }
        for (uint256 i = 1; i <= 3; i++) {
            playNext(i, about(1), right(), 0);
        }
        for (uint256 i = 1; i <= 3; i++) {
            playNext(i, about(1), right(), 0);
        }
        for (uint256 i = 1; i <= 3; i++) {
            vm.warp(block.timestamp + REPLAY);
            playNext(i, about(1), right(), 0);
            isAt(i, Phase.PICK);
        }
    }

    // --- a friend of the holder's ---

    /// It came first and is silent: the real one begins at once beside it, and wins.
    function test_P64_aFriendThatIsSilentHoldsUpNobody() public {
        Claim memory c = falseAbout(1);
        uint256 friend = challengeBy(stranger(1), c, LOWEST);
        uint256 real = challengeBy(CHALLENGER, c, LOWEST);
        uint256 began = block.timestamp;
        playNext(friend, c, wrong(), 0);
        same(uint256(playOut(real, c, wrong(), 9)), uint256(Outcome.HOLDER_LOST), "the real one");
        same(block.timestamp, began, "nobody waited");
        ended(friend, Outcome.SENT_HOME);
        same(claims.lastChallenger(), CHALLENGER, "who has the share");
    }

    /// It asks for every move at once, and the holder takes all of its time for each.
    function test_P64_aSlowGameOfAFriendsDelaysByItsOwnClockAlone() public {
        Claim memory c = falseAbout(1);
        uint256 friend = challengeBy(stranger(1), c, LOWEST);
        uint256 real = challengeBy(CHALLENGER, c, LOWEST);
        uint256 began = block.timestamp;
        while (game.gameOf(friend).phase != Phase.PROVE) {
            uint256 deadline = game.deadlineOf(friend);
            if (deadline == 0) playNext(real, c, wrong(), 9); // its own clock: the other's stands meanwhile
            else vm.warp(deadline - 1);
            if (deadline != 0) playNext(friend, c, wrong(), 9);
        }
        atMost(block.timestamp - began, game.longestGame(), "what one game may last");
        same(uint256(playOut(real, c, wrong(), 9)), uint256(Outcome.HOLDER_LOST), "the real one");
    }

    /// A sham that was proved wrong is paid for, though nobody ended it before the real one.
    function test_P64_whatAProofDecidedStaysSoAtASlash() public {
        (Claim memory good, Claim memory bad) = (about(1), falseAbout(2));
        uint256 friend = challengeBy(stranger(1), good, LOWEST);
        uint256 real = challengeBy(CHALLENGER, bad, LOWEST);
        uint256 other = challengeBy(stranger(2), bad, LOWEST);
        while (phaseOf(friend) != Phase.DECIDED) playNext(friend, good, right(), 3);
        while (phaseOf(real) != Phase.DECIDED) playNext(real, bad, wrong(), 9);
        while (phaseOf(other) != Phase.DECIDED) playNext(other, bad, wrong(), 9);
        game.conclude(other);
        ended(friend, Outcome.CHALLENGER_LOST);
        same(game.owed(stranger(1)), 0, "its bond is lost");
        same(game.owed(HOLDER), LOWEST / 2, "as ever");
        ended(real, Outcome.HOLDER_LOST);
        same(game.owed(CHALLENGER), LOWEST, "home");
        same(claims.toldCount(), 1, "one slash");
        same(claims.lastChallenger(), stranger(2), "the first that was ended has the share");
    }

    // --- places ---

    function test_P64_threeAreAtMostPlayedAtOnce() public {
        for (uint256 i = 1; i <= 4; i++) {
            sham(i);
        }
        for (uint256 i = 1; i <= 3; i++) {
            playNext(i, about(i), right(), 0);
        }
        isAt(4, Phase.WAITING); // though the holder owes no move
        for (uint256 i = 0; i < 4; i++) {
            same(game.gameAt(set, i), i + 1, "its place");
        }
        same(game.openGames(set), 4, "open");
        stall(1);
        isAt(4, Phase.OPEN_STEPS);
    }

    /// All six for the least, by accounts of one each: who is drawn has a place for the least, and
    /// anybody else for a wei more.
    function test_P64_whoTakesAllPlacesKeepsNobodyOut() public {
        for (uint256 i = 1; i <= 6; i++) {
            sham(i);
        }
        uint256 drawn = challengeOwedBy(AUDITOR, falseAbout(7), LOWEST);
        ended(6, Outcome.SENT_HOME);
        uint256 watcher = challengeBy(CHALLENGER, falseAbout(7), LOWEST + 1);
        ended(5, Outcome.SENT_HOME);
        playNext(1, about(1), right(), 0);
        isAt(drawn, Phase.OPEN_STEPS); // before those of larger bonds
        playNext(drawn, falseAbout(7), wrong(), 0);
        isAt(watcher, Phase.OPEN_STEPS);
        same(uint256(playOut(drawn, falseAbout(7), wrong(), 9)), uint256(Outcome.HOLDER_LOST), "and wins");
    }

    function test_P64_whatIsOwedIsPushedOutByWhatIsOwedAlone() public {
        sham(1);
        for (uint256 i = 2; i <= 6; i++) {
            challengeOwedBy(stranger(i), about(i), LOWEST);
        }
        Claim memory c = about(9);
        vm.expectRevert(abi.encodeWithSelector(GameQueue.QueueFull.selector, 1_000 ether, LOWEST));
        game.challenge(abi.encode(c), 1_000 ether);
        challengeOwedBy(AUDITOR, c, LOWEST + 1);
        ended(6, Outcome.SENT_HOME);
    }

    // --- what is owed ---

    /// An auditor of a seat that lied in six rounds binds six of the lowest bonds, and not 21.
    function test_P64_owedChallengesAskForTheLowestBondEach() public {
        for (uint256 n = 1; n <= 6; n++) {
            challengeOwedBy(AUDITOR, about(n), LOWEST);
        }
        same(token.balanceOf(address(game)), 6 * uint256(LOWEST), "bound");
        same(game.openOf(AUDITOR, set), 0, "none that it did not owe");
    }

    function test_P64_owedOnesDoNotCountAndOthersDo() public {
        challengeOwedBy(AUDITOR, about(1), LOWEST);
        challengeBy(AUDITOR, about(2), LOWEST);
        challengeOwedBy(AUDITOR, about(3), LOWEST);
        same(game.openOf(AUDITOR, set), 1, "one");
        Claim memory c = about(4);
        vm.expectRevert(abi.encodeWithSelector(GameQueue.WrongBond.selector, LOWEST, 2 * LOWEST));
        vm.prank(AUDITOR);
        game.challenge(abi.encode(c), LOWEST);
    }

    function test_P64_anAccusationIsOwedOnceByWhoMadeIt() public {
        Claim memory c = about(1);
        challengeOwedBy(AUDITOR, c, LOWEST);
        vm.prank(AUDITOR);
        vm.expectRevert(abi.encodeWithSelector(GameQueue.NotOwed.selector, AUDITOR, 1));
        game.challengeOwed(abi.encode(c), LOWEST, 1, "");
        vm.prank(CHALLENGER);
        vm.expectRevert(abi.encodeWithSelector(GameQueue.NotOwed.selector, CHALLENGER, 1));
        game.challengeOwed(abi.encode(c), LOWEST, 1, "");
        c = about(2);
        vm.prank(AUDITOR);
        vm.expectRevert(abi.encodeWithSelector(GameQueue.WrongBond.selector, LOWEST - 1, LOWEST));
        game.challengeOwed(abi.encode(c), LOWEST - 1, 1, "");
    }

    function refusedOwed(Claim memory c) internal {
        vm.prank(AUDITOR);
        vm.expectRevert(abi.encodeWithSelector(GameQueue.NotOwed.selector, AUDITOR, 1));
        game.challengeOwed(abi.encode(c), 2 * LOWEST, 1, "");
    }

    /// Five that are owed, of which the first is played.
    function owedByFive(uint128 bond) internal {
        for (uint256 i = 1; i <= 5; i++) {
            challengeOwedBy(stranger(i), about(i), bond);
        }
    }

    function test_P64_whoIsPushedOutOfWhatIsOwedComesAgainAsOwed() public {
        owedByFive(LOWEST + 1);
        Claim memory c = falseAbout(9);
        uint256 before = challengeOwedBy(AUDITOR, c, LOWEST);
        refusedOwed(c); // while it waits
        challengeOwedBy(stranger(7), about(7), LOWEST + 1);
        ended(before, Outcome.SENT_HOME);
        uint256 again = challengeOwedBy(AUDITOR, c, LOWEST + 2); // not n times the lowest: it counts for no n
        check(game.gameOf(again).isOwed, "as owed");
        ended(7, Outcome.SENT_HOME); // who pushed it out, as the last of the smallest
        same(game.openOf(AUDITOR, set), 0, "none that it did not owe");
        playNext(1, about(1), right(), 0);
        isAt(again, Phase.OPEN_STEPS); // before the others
        refusedOwed(c); // while it is played
        same(uint256(playOut(again, c, wrong(), 9)), uint256(Outcome.HOLDER_LOST), "and wins");
    }

    function test_P64_whatIsOwedIsNotOwedAgainOnceItWasPlayed() public {
        Claim memory c = about(1);
        uint256 lost = challengeOwedBy(AUDITOR, c, LOWEST);
        while (phaseOf(lost) != Phase.DECIDED) playNext(lost, c, right(), 3);
        refusedOwed(c);
        game.conclude(lost);
        ended(lost, Outcome.CHALLENGER_LOST);
        refusedOwed(c);
        // One that it does not owe and that is pushed out leaves that as it was.
        for (uint256 i = 1; i <= 5; i++) {
            sham(i);
        }
        uint256 unowed = challengeBy(AUDITOR, c, LOWEST);
        challengeOwedBy(stranger(9), about(9), LOWEST);
        ended(unowed, Outcome.SENT_HOME);
        refusedOwed(c);
    }

    /// What it did not owe, and that it found no room, leave it what it owes.
    function test_P64_whatIsOwedIsOwedAfterWhatIsNot() public {
        Claim memory c = about(9);
        challengeBy(AUDITOR, c, LOWEST);
        owedByFive(LOWEST);
        challengeOwedBy(AUDITOR, c, LOWEST + 1);
        refusedOwed(c);
        c = about(8);
        vm.prank(CHALLENGER);
        game.crowdedOut(abi.encode(c));
        challengeOwedBy(CHALLENGER, c, LOWEST + 1);
    }

    /// Who pushes an accuser out again and again bids more each time, and cannot withdraw: what it
    /// bids at last is played, and half of it is burnt, while the accuser has its own bond back.
    function test_P64_pushingOutAgainAndAgainCostsWhoDoesIt() public {
        (address friend, Claim memory sham_, Claim memory real) = (stranger(7), about(7), falseAbout(9));
        owedByFive(10 ether);
        uint128 bond = LOWEST;
        for (uint256 i = 0; i < 4; i++) {
            uint256 pushed = challengeOwedBy(AUDITOR, real, bond);
            claims.owe(friend, 1);
            vm.expectRevert(abi.encodeWithSelector(GameQueue.QueueFull.selector, bond, bond));
            vm.prank(friend);
            game.challengeOwed(abi.encode(sham_), bond, 1, "");
            challengeOwedBy(friend, sham_, ++bond);
            ended(pushed, Outcome.SENT_HOME);
            bond++;
        }
        same(game.owed(AUDITOR), 4 * uint256(LOWEST) + 12, "every bond of the accuser's");
        uint256 last = game.games();
        for (uint256 id = 1; id <= 5; id++) {
            while (phaseOf(id) != Phase.DECIDED) playNext(id, about(id), right(), 3);
            game.conclude(id);
        }
        uint256 burnt = game.owed(game.BURN());
        same(uint256(playOut(last, sham_, right(), 3)), uint256(Outcome.CHALLENGER_LOST), "the pusher's");
        same(game.owed(game.BURN()) - burnt, (bond - 1) - (bond - 1) / 2, "half of its last bid");
        uint256 again = challengeOwedBy(AUDITOR, real, LOWEST);
        same(uint256(playOut(again, real, wrong(), 9)), uint256(Outcome.HOLDER_LOST), "the accuser's");
    }

    /// Room there is for an accusation as long as anything waits that nobody owes.
    function test_P64_aQueueIsFullOfWhatIsOwed() public {
        Claim memory c = about(9);
        sham(1);
        for (uint256 i = 2; i <= 5; i++) {
            challengeOwedBy(stranger(i), about(i), LOWEST);
        }
        vm.expectRevert(abi.encodeWithSelector(GameQueue.QueueHasRoom.selector, 5, 6));
        game.crowdedOut(abi.encode(c));
        sham(6);
        vm.expectRevert(abi.encodeWithSelector(GameQueue.QueueHasRoom.selector, 5, 6));
        game.crowdedOut(abi.encode(c));
        challengeOwedBy(stranger(7), about(7), LOWEST);
        vm.prank(AUDITOR);
        game.crowdedOut(abi.encode(c));
        check(game.wasChallenged(keccak256(abi.encode(AUDITOR, c.position, c.segment, false))), "it would have");
        same(game.openGames(set), 6, "and holds nothing up");
    }
}
