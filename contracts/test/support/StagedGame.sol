// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {Claim, IClaims, IGame} from "../../src/judge/IClaims.sol";

/// @title A game whose outcome a test decides: what claims, stakes and escrow do with it is what is
/// tested.
contract StagedGame is IGame {
    IClaims private _claims;
    mapping(bytes32 key => uint256) public openGames;
    mapping(bytes32 set => bool) public isSlashed;
    mapping(bytes32 said => bool) public wasChallenged;
    mapping(bytes32 set => bytes32[]) private _open;

    function wire(address claims) external {
        _claims = IClaims(claims);
    }

    function challenge(bytes calldata evidence) external returns (Claim memory c) {
        c = _claims.claim(evidence);
        openGames[c.set]++;
        _open[c.set].push(c.position);
        wasChallenged[keccak256(abi.encode(msg.sender, c.position, c.segment, c.isUpdateProof))] = true;
    }

    function holderWins(Claim calldata c) external {
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
        isSlashed[c.set] = true;
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
