// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {Claim} from "../../src/judge/IClaims.sol";
import {GameQueue, Outcome, Phase} from "../../src/judge/GameQueue.sol";
import {Table} from "../support/Table.sol";

/// @title Holders, right and wrong, and challengers that do whatever the fuzzer draws. A revert
/// here is a failure.
contract GameHandler is Table {
    uint256 internal constant HOLDERS = 2;
    uint256 internal constant CLAIMS = 6;
    uint256 internal constant CHALLENGERS = 4;
    uint256 internal constant BONDS = HOLDERS * CLAIMS / 2;

    uint256 public bondsIn;
    uint256 public paidOut;
    uint256 public slack; // seconds in which somebody let a game that was over go on
    mapping(uint256 id => uint256 number) internal numbers; // of the game's claim
    mapping(address account => mapping(address holder => mapping(uint256 number => uint256[]))) internal owedIds;
    mapping(bytes32 set => uint256 bond) internal bonds; // numbered, holder by holder

    constructor() {
        setUp();
        for (uint256 bond = 0; bond < BONDS; bond++) {
            address account = holder(2 * bond / CLAIMS);
            uint256 number = 2 * bond % CLAIMS;
            bonds[setOf(account, number)] = bond;
        }
    }

    function holder(uint256 i) public pure returns (address) {
        return address(uint160(0x1000 + i % HOLDERS));
    }

    function challenger(uint256 i) public pure returns (address) {
        return address(uint160(0x2000 + i % CHALLENGERS));
    }

    /// @dev Odd claims are wrong; two stand on one bond.
    function claimNumber(address account, uint256 number) internal pure returns (Claim memory c) {
        c = number % 2 == 1 ? wrongClaimOf(account, number) : claimOf(account, number);
        c.set = setOf(account, number);
    }

    function setOf(address account, uint256 number) internal pure returns (bytes32) {
        return keccak256(abi.encode("bond", account, number % CLAIMS / 2));
    }

    function challengeOne(uint256 who, uint256 whom, uint256 number, uint128 bond) external {
        Claim memory c = claimNumber(holder(whom), number % CLAIMS);
        uint256 lowest = (game.openOf(challenger(who), c.set) + 1) * c.lowestBond;
        uint128 amount = uint128(within(bond, lowest, 100 ether));
        if (block.timestamp >= c.windowEnd || game.isSlashed(c.set)) return;
        if (game.openGames(c.set) == 6 && amount <= smallest(c.set, false)) return;
        took(challengeBy(challenger(who), c, amount), number, amount);
    }

    /// @dev Where no owed game of the account's about the claim is open or was played.
    function owedOne(uint256 who, uint256 whom, uint256 number, uint128 bond) external {
        Claim memory c = claimNumber(holder(whom), number % CLAIMS);
        uint128 amount = uint128(within(bond, c.lowestBond, 100 ether));
        if (block.timestamp >= c.windowEnd || game.isSlashed(c.set)) return;
        if (owedCount(who, whom, number) > 0) return;
        if (game.openGames(c.set) == 6 && amount <= smallest(c.set, true)) return;
        uint256 id = challengeOwedBy(challenger(who), c, amount);
        owedIds[challenger(who)][holder(whom)][number % CLAIMS].push(id);
        took(id, number, amount);
    }

    function took(uint256 id, uint256 number, uint128 amount) private {
        numbers[id] = number % CLAIMS;
        bondsIn += amount;
    }

    /// @dev A holder names one of the challengers, or nobody, who then makes its moves.
    function nameOne(uint256 whom, uint256 who) external {
        vm.prank(holder(whom));
        game.nameDelegate(who % 3 == 0 ? address(0) : challenger(who));
    }

    function moveOne(uint256 whom, uint256 number, uint256 element) external {
        uint256 id = playedOne(setOf(holder(whom), number), element / 10);
        if (id == 0) return;
        if (game.gameOf(id).phase == Phase.DECIDED) return game.conclude(id);
        uint256 deadline = game.deadlineOf(id);
        if (deadline != 0 && block.timestamp >= deadline) return game.timeout(id);
        bool isWrong = numbers[id] % 2 == 1;
        Claim memory c = claimNumber(game.gameOf(id).holder, numbers[id]);
        playNext(id, c, abi.encodePacked(SEED, normOf(isWrong)), isWrong ? 9 : element % 10);
    }

    /// @return one of the games that are played about a bond; 0 where none is
    function playedOne(bytes32 set, uint256 which) internal view returns (uint256) {
        for (uint256 i = 0; i < 3; i++) {
            uint256 id = game.gameAt(set, (which % 3 + i) % 3);
            if (id != 0) return id;
        }
        return 0;
    }

    function timeoutOne(uint256 whom, uint256 number) external {
        uint256 id = playedOne(setOf(holder(whom), number), number / CLAIMS);
        uint256 deadline = game.deadlineOf(id);
        if (deadline != 0 && block.timestamp >= deadline) game.timeout(id);
    }

    function wait(uint16 time) external {
        uint256 waited = within(time, 1, 900);
        vm.warp(block.timestamp + waited);
        if (anyOverdue()) slack += waited;
    }

    /// @return whether somebody could end a game
    function anyOverdue() internal view returns (bool) {
        for (uint256 id = 1; id <= game.games(); id++) {
            uint256 deadline = game.deadlineOf(id);
            bool isOver = deadline != 0 && block.timestamp >= deadline;
            if (isOver || game.gameOf(id).phase == Phase.DECIDED) return true;
        }
        return false;
    }

    function withdrawOne(uint256 who) external {
        address account = who % 7 == 0 ? game.BURN() : who % 3 == 0 ? holder(who / 7) : challenger(who / 7);
        uint256 before = token.balanceOf(account);
        game.withdraw(account);
        paidOut += token.balanceOf(account) - before;
    }

    // --- what the invariants ask ---

    /// @return count of an account's owed games about a claim that are open or were played
    function owedCount(uint256 who, uint256 whom, uint256 number) internal view returns (uint256 count) {
        uint256[] storage ids = owedIds[challenger(who)][holder(whom)][number % CLAIMS];
        for (uint256 i = 0; i < ids.length; i++) {
            if (game.gameOf(ids[i]).outcome != Outcome.SENT_HOME) count++;
        }
    }

    /// @return whether somebody has what it owes played, or open, twice
    function anyOwedTwice() external view returns (bool) {
        for (uint256 who = 0; who < CHALLENGERS; who++) {
            for (uint256 whom = 0; whom < HOLDERS; whom++) {
                for (uint256 number = 0; number < CLAIMS; number++) {
                    if (owedCount(who, whom, number) > 1) return true;
                }
            }
        }
        return false;
    }

    /// @return least bond that waits; of what is owed where all is, and one asks who owes; the
    /// largest number where only that waits, and one asks who does not
    function smallest(bytes32 set, bool isOwed) internal view returns (uint256 least) {
        bool isAll = true;
        least = type(uint256).max;
        for (uint256 place = 3; place < 3 + waitingFor(set); place++) {
            GameQueue.Match memory m = game.gameOf(game.gameAt(set, place));
            if (!m.isOwed) isAll = false;
            if (m.isOwed == isOwed && m.bond < least) least = m.bond;
        }
        if (isOwed && !isAll) return 0;
    }

    function held() external view returns (uint256) {
        return token.balanceOf(address(game));
    }

    /// @return sum bonds of open games, and what anybody is owed
    function due() external view returns (uint256 sum) {
        for (uint256 id = 1; id <= game.games(); id++) {
            GameQueue.Match memory m = game.gameOf(id);
            if (m.phase != Phase.OVER) sum += m.bond;
        }
        for (uint256 i = 0; i < CHALLENGERS; i++) {
            sum += game.owed(challenger(i));
        }
        for (uint256 i = 0; i < HOLDERS; i++) {
            sum += game.owed(holder(i));
        }
        sum += game.owed(game.BURN());
    }

    /// @return played at once about each bond
    /// @return waiting about it
    /// @return open games about it as the game counts them, by position
    function queues()
        external
        view
        returns (uint256[BONDS] memory played, uint256[BONDS] memory waiting, uint256[BONDS] memory open)
    {
        for (uint256 id = 1; id <= game.games(); id++) {
            GameQueue.Match memory m = game.gameOf(id);
            if (m.phase == Phase.OVER) continue;
            if (m.phase == Phase.WAITING) waiting[bonds[m.set]]++;
            else played[bonds[m.set]]++;
        }
        for (uint256 bond = 0; bond < BONDS; bond++) {
            open[bond] = game.openGames(setOf(holder(2 * bond / CLAIMS), 2 * bond % CLAIMS));
        }
    }

    /// @return whether the game counts an account's open games about a bond otherwise than they are
    function anyMiscount() external view returns (bool) {
        for (uint256 who = 0; who < CHALLENGERS; who++) {
            uint256[BONDS] memory open;
            for (uint256 id = 1; id <= game.games(); id++) {
                GameQueue.Match memory m = game.gameOf(id);
                if (m.phase == Phase.OVER || m.isOwed || m.challenger != challenger(who)) continue;
                open[bonds[m.set]]++;
            }
            for (uint256 bond = 0; bond < BONDS; bond++) {
                uint256 counted = game.openOf(challenger(who), setOf(holder(2 * bond / CLAIMS), 2 * bond % CLAIMS));
                if (counted != open[bond]) return true;
            }
        }
        return false;
    }

    /// @return whether a right claim lost though its holder had time, or a wrong one stood though
    /// it was played out
    function anyWrongVerdict() external view returns (bool) {
        for (uint256 id = 1; id <= game.games(); id++) {
            GameQueue.Match memory m = game.gameOf(id);
            bool wasProven = m.template != 0 && m.tree != 0 && m.phase == Phase.DECIDED;
            if (!wasProven) continue;
            if ((m.outcome == Outcome.HOLDER_LOST) != (numbers[id] % 2 == 1)) return true;
        }
        return false;
    }

    function latestEnd() external view returns (uint256) {
        return 100_000 + 6 * LONGEST + slack;
    }

    /// @return whether two clocks of one holder's run about a bond, or none though it owes a move, or
    /// a game waits that could be played
    function anyWrongClock() external view returns (bool) {
        for (uint256 bond = 0; bond < BONDS; bond++) {
            bytes32 set = setOf(holder(2 * bond / CLAIMS), 2 * bond % CLAIMS);
            (uint256 running, uint256 standing, uint256 free) = (0, 0, 0);
            for (uint256 place = 0; place < 3; place++) {
                uint256 id = game.gameAt(set, place);
                if (id == 0) free++;
                else if (!isHolders(game.gameOf(id).phase)) continue;
                else if (game.deadlineOf(id) == 0) standing++;
                else running++;
            }
            if (running > 1 || (running == 0 && standing > 0)) return true;
            if (running == 0 && free > 0 && waitingFor(set) > 0) return true;
        }
        return false;
    }

    function waitingFor(bytes32 set) internal view returns (uint256 count) {
        count = game.openGames(set);
        for (uint256 place = 0; place < 3; place++) {
            if (game.gameAt(set, place) != 0) count--;
        }
    }

    function isHolders(Phase phase) internal pure returns (bool) {
        return
            phase == Phase.OPEN_STEPS || phase == Phase.POST_TRACE || phase == Phase.REVEAL || phase == Phase.POST_LEAF;
    }

    function anyClockBeyond(uint256 end) external view returns (bool) {
        for (uint256 id = 1; id <= game.games(); id++) {
            if (game.deadlineOf(id) > end) return true;
        }
        return false;
    }
}
