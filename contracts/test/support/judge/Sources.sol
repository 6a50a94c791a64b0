// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {IOneStep} from "../../../src/judge/IOneStep.sol";
import {Check} from "../Check.sol";
import {Replay} from "./Replay.sol";
import {deployed} from "../Deployed.sol";

/// @title Steps that read sources or tails against the nodes that Python wrote (`tests/vectors/judge_*.json`).
/// @dev Several small nodes of each operation, of all of which every element is compared.
abstract contract Sources is Check {
    uint256 internal constant CODE_LIMIT = 24_576 - 1_024; // EIP-170, less the room for a mend

    Replay internal replay = Replay(deployed("Replay", ""));

    error NodeDiffers(string name, uint256 number, bytes found, bytes wanted);

    /// @param operations how many there are
    /// @param highest the gas that the dearest element of all may need, call included
    function compare(IOneStep step, string memory file, uint256 operations, uint256 highest) internal view {
        string memory json = vm.readFile(string.concat("../tests/vectors/", file, ".json"));
        bytes[] memory nodes = vm.parseJsonBytesArray(json, ".node");
        string[] memory names = vm.parseJsonStringArray(json, ".name");
        same(nodes.length, 6 * operations, "nodes");
        for (uint256 i = 0; i < nodes.length; i++) {
            (Replay.Node memory node, bytes memory wanted) = abi.decode(nodes[i], (Replay.Node, bytes));
            uint256[] memory elements = new uint256[](wanted.length / node.width);
            check(elements.length > 0, names[i]);
            for (uint256 e = 0; e < elements.length; e++) {
                elements[e] = e;
            }
            (bytes memory found, uint256 most) = replay.many(step, node, elements);
            if (keccak256(found) != keccak256(wanted)) revert NodeDiffers(names[i], i, found, wanted);
            atMost(most, highest, string.concat("gas of ", names[i]));
        }
        atMost(address(step).code.length, CODE_LIMIT, "code");
    }
}
