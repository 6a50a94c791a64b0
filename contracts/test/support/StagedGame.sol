// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {Claim, IClaims, IGame, Outcome} from "../../src/judge/IClaims.sol";

/// @title A game whose outcome a test decides: what claims, stakes and escrow do with it is what is
/// tested.
contract StagedGame is IGame {
    struct Staged {
        bytes32 set;
        bytes32 position;
        Outcome outcome;
    }

    IClaims private _claims;
    mapping(bytes32 key => uint256) public openGames;
    mapping(bytes32 set => bytes32 position) private _lost; // by a game about it
    mapping(bytes32 said => bool) public wasChallenged;
    mapping(bytes32 set => bytes32[]) private _open;
    mapping(uint256 id => Staged) private _games;
    uint256 public games;

    function wire(address claims) external {
        _claims = IClaims(claims);
    }

    function challenge(bytes calldata evidence) external returns (Claim memory c) {
        c = _claims.claim(evidence);
        openGames[c.set]++;
        _open[c.set].push(c.position);
        _games[++games] = Staged(c.set, c.position, Outcome.NONE);
        wasChallenged[keccak256(abi.encode(msg.sender, c.position, c.segment, c.isUpdateProof))] = true;
    }

    function isSlashed(bytes32 set) external view returns (bool) {
        return _lost[set] != 0;
    }

    function verdictOf(uint256 id) external view returns (bytes32 position, Outcome outcome) {
        (position, outcome) = (_games[id].position, _games[id].outcome);
        bytes32 lost = _lost[_games[id].set];
        if (outcome != Outcome.NONE || lost == 0) return (position, outcome);
        return (position, position == lost ? Outcome.HOLDER_LOST : Outcome.SENT_HOME);
    }

    function holderWins(Claim calldata c) external {
        for (uint256 id = 1; id <= games; id++) {
            if (_games[id].position == c.position) _games[id].outcome = Outcome.CHALLENGER_LOST;
        }
        openGames[c.set]--;
        bytes32[] storage open = _open[c.set];
        for (uint256 i = 0; i < open.length; i++) {
            if (open[i] == c.position) {
                open[i] = open[open.length - 1];
                open.pop();
                return;
            }
        }
    }

    function holderLoses(Claim calldata c, address challenger) external {
        bytes32 lowest = lowestOpen(c.set);
        openGames[c.set] = 0;
        delete _open[c.set];
        _lost[c.set] = c.position;
        _claims.slash(c.set, lowest, challenger);
    }

    function lowestOpen(bytes32 set) public view returns (bytes32 lowest) {
        lowest = bytes32(type(uint256).max);
        bytes32[] storage open = _open[set];
        for (uint256 i = 0; i < open.length; i++) {
            if (open[i] < lowest) lowest = open[i];
        }
    }
}
