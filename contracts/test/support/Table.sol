// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {AtollToken} from "../../src/AtollToken.sol";
import {Claim} from "../../src/judge/IClaims.sol";
import {Game} from "../../src/judge/Game.sol";
import {Judge} from "../../src/judge/Judge.sol";
import {Check} from "./Check.sol";
import {ToyClaims} from "./ToyClaims.sol";
import {ToySteps} from "./ToySteps.sol";

/// @title A game's contract with toy claims and the toy family, and people with tokens.
abstract contract Table is Check {
    uint256 internal constant LONGEST = 10_000;
    address internal constant HOLDER = address(0xa11cE);
    address internal constant CHALLENGER = address(0xc0c0);

    AtollToken internal token;
    ToyClaims internal claims;
    Judge internal judge;
    Game internal game;
    uint256 internal challengeGas;

    function setUp() public virtual {
        token = new AtollToken(address(this), 1_000_000 ether);
        address[] memory families = new address[](8);
        families[7] = address(new ToySteps());
        judge = new Judge(families);
        fresh();
    }

    function fresh() internal {
        game = new Game(address(token), LONGEST, address(judge));
        claims = new ToyClaims();
        game.wire(address(claims));
    }

    function challengeBy(address account, Claim memory c, uint128 bond) internal returns (uint256 id) {
        token.transfer(account, bond);
        vm.startPrank(account);
        token.approve(address(game), bond);
        uint256 before = gasleft();
        id = game.challenge(abi.encode(c), bond);
        challengeGas = before - gasleft() + 21_000 + 16 * 32 * 23;
        vm.stopPrank();
    }

    /// @return c a claim of that holder; sets and places differ by number
    function claimOf(address holder, uint256 number) internal pure returns (Claim memory c) {
        c.holder = holder;
        c.set = keccak256(abi.encode("set", holder, number));
        c.place = keccak256(abi.encode("place", holder, number));
        c.program = "program";
        c.windowEnd = 100_000;
        c.lowestBond = 1 ether;
        c.highestBond = 100 ether;
        c.holderSeconds = 1_000;
        c.challengerSeconds = 500;
        c.moveSeconds = 60;
    }
}
