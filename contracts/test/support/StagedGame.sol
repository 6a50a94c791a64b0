// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {GameQueue, Outcome} from "../../src/judge/GameQueue.sol";
import {Claim, IClaims, IGame} from "../../src/judge/IClaims.sol";

/// @title A game whose outcome a test decides: what claims, stakes and escrow do with it is what is
/// tested.
contract StagedGame is IGame {
    IClaims private _claims;
    mapping(bytes32 key => uint256) public openGames;
    mapping(bytes32 set => bytes32 position) private _lost; // by a game about it
    mapping(bytes32 said => bool) public wasChallenged;
    mapping(bytes32 set => bytes32[]) private _open;
    mapping(uint256 id => GameQueue.Match) private _matches;
    uint256 public games;

    function wire(address claims) external {
        _claims = IClaims(claims);
    }

    function challenge(bytes calldata evidence) external returns (Claim memory c) {
        c = _claims.claim(evidence);
        openGames[c.set]++;
        _open[c.set].push(c.position);
        GameQueue.Match storage m = _matches[++games];
        (m.set, m.position) = (c.set, c.position);
        wasChallenged[keccak256(abi.encode(msg.sender, c.position, c.segment, c.isUpdateProof))] = true;
    }

    function isSlashed(bytes32 set) external view returns (bool) {
        return _lost[set] != 0;
    }

    /// @return m of which the set, the position and the outcome are known
    function gameOf(uint256 id) external view returns (GameQueue.Match memory m) {
        m = _matches[id];
        bytes32 lost = _lost[m.set];
        if (m.outcome != Outcome.NONE || lost == 0) return m;
        m.outcome = m.position == lost ? Outcome.HOLDER_LOST : Outcome.SENT_HOME;
    }

    function holderWins(Claim calldata c) external {
        for (uint256 id = 1; id <= games; id++) {
            GameQueue.Match storage m = _matches[id];
            if (m.position == c.position) m.outcome = Outcome.CHALLENGER_LOST;
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
