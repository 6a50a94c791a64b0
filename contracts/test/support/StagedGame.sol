// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {Claim, IClaims, IGame} from "../../src/judge/IClaims.sol";

/// @title A game whose outcome a test decides: what claims, stakes and escrow do with it is what is tested.
contract StagedGame is IGame {
    IClaims private immutable _claims;
    mapping(bytes32 key => uint256) public openGames;
    mapping(bytes32 set => bool) public hasFallen;

    constructor(IClaims claims) {
        _claims = claims;
    }

    function challenge(bytes calldata evidence) external returns (Claim memory c) {
        c = _claims.claim(evidence);
        openGames[c.set]++;
    }

    function holderWins(Claim calldata c) external {
        openGames[c.set]--;
    }

    function holderFalls(Claim calldata c, address challenger) external {
        openGames[c.set]--;
        hasFallen[c.set] = true;
        _claims.fell(c.set, c.place, challenger);
    }
}
