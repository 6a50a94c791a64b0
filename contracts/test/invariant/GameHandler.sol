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
    mapping(uint256 id => uint256 number) internal numbers; // of the game's claim
    mapping(bytes32 set => uint256 bond) internal bonds; // numbered, holder by holder
    bytes32[2][BONDS] internal positions; // of the two claims on each

    constructor() {
        setUp();
        for (uint256 bond = 0; bond < BONDS; bond++) {
            address account = holder(2 * bond / CLAIMS);
            uint256 number = 2 * bond % CLAIMS;
            bonds[setOf(account, number)] = bond;
            positions[bond] = [claimOf(account, number).position, claimOf(account, number + 1).position];
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
        uint128 amount = uint128(within(bond, c.lowestBond, 100 ether));
        if (block.timestamp >= c.windowEnd || game.isSlashed(c.set)) return;
        (, uint256[] memory waiting) = game.queueOf(c.set);
        if (waiting.length == 5 && amount <= smallest(waiting)) return;
        uint256 id = challengeBy(challenger(who), c, amount);
        numbers[id] = number % CLAIMS;
        bondsIn += amount;
    }

    function moveOne(uint256 whom, uint256 number, uint256 element) external {
        (uint256 id,) = game.queueOf(setOf(holder(whom), number));
        if (id == 0) return;
        if (game.gameOf(id).phase == Phase.DECIDED) return game.conclude(id);
        if (block.timestamp >= game.deadlineOf(id)) return game.timeout(id);
        bool isWrong = numbers[id] % 2 == 1;
        Claim memory c = claimNumber(game.gameOf(id).holder, numbers[id]);
        playNext(id, c, abi.encodePacked(SEED, normOf(isWrong)), isWrong ? 9 : element % 10);
    }

    function timeoutOne(uint256 whom, uint256 number) external {
        (uint256 id,) = game.queueOf(setOf(holder(whom), number));
        uint256 deadline = game.deadlineOf(id);
        if (deadline != 0 && block.timestamp >= deadline) game.timeout(id);
    }

    function wait(uint16 time) external {
        vm.warp(block.timestamp + within(time, 1, 900));
    }

    function withdrawOne(uint256 who) external {
        address account = who % 7 == 0 ? game.BURN() : who % 3 == 0 ? holder(who / 7) : challenger(who / 7);
        uint256 before = token.balanceOf(account);
        game.withdraw(account);
        paidOut += token.balanceOf(account) - before;
    }

    // --- what the invariants ask ---

    function smallest(uint256[] memory waiting) internal view returns (uint256 least) {
        least = type(uint256).max;
        for (uint256 i = 0; i < waiting.length; i++) {
            uint256 bond = game.gameOf(waiting[i]).bond;
            if (bond < least) least = bond;
        }
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
            open[bond] = game.openGames(positions[bond][0]) + game.openGames(positions[bond][1]);
        }
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

    function latestEnd() external pure returns (uint256) {
        return 100_000 + 6 * LONGEST;
    }

    function anyClockBeyond(uint256 end) external view returns (bool) {
        for (uint256 id = 1; id <= game.games(); id++) {
            if (game.deadlineOf(id) > end) return true;
        }
        return false;
    }
}
