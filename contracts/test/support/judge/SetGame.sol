// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {Game} from "../../../src/judge/Game.sol";

/// @title The game, but a test says how far it has come: so that its last move can be measured at any size.
contract SetGame is Game {
    constructor(address token_, uint256 longestGame_, address judge_) Game(token_, longestGame_, judge_) {}

    function set(uint256 id, Match calldata game) external {
        _matches[id] = game;
    }
}
