// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {IOneStep} from "../../../src/judge/IOneStep.sol";
import {Check} from "../Check.sol";
import {Replay} from "./Replay.sol";
import {deployed} from "../Deployed.sol";

/// @title A family's steps against the nodes that Python wrote (`tests/vectors/judge_family_*.json`).
abstract contract Nodes is Check {
    uint256 internal constant CODE_LIMIT = 24_576; // EIP-170

    uint256 internal constant LEAST = 250;

    Replay internal replay = Replay(deployed("Replay", ""));

    error WrongElement(string name, uint256 element, bytes found, bytes wanted);

    /// @param highest the gas that the dearest element of each operation may need, call included: the first's first, and
    /// 0 for a number that no operation has
    function compare(IOneStep step, string memory family, uint256[] memory highest) internal view {
        string memory json = vm.readFile(string.concat("../tests/vectors/judge_family_", family, ".json"));
        bytes[] memory nodes = vm.parseJsonBytesArray(json, ".node");
        string[] memory names = vm.parseJsonStringArray(json, ".name");
        uint256[] memory compared = new uint256[](highest.length);
        for (uint256 i = 0; i < nodes.length; i++) {
            (Replay.Node memory node, bytes memory wanted) = abi.decode(nodes[i], (Replay.Node, bytes));
            uint256[] memory elements = all(wanted.length / node.width);
            (bytes memory found, uint256 most) = replay.many(step, node, elements);
            if (keccak256(found) != keccak256(wanted)) revertAt(names[i], node.width, found, wanted);
            uint256 operation = (node.op & 0xff) - 1;
            atMost(most, highest[operation], string.concat("gas of ", names[i]));
            compared[operation] += elements.length;
        }
        for (uint256 i = 0; i < compared.length; i++) {
            check(highest[i] == 0 || compared[i] >= LEAST, "elements of each operation");
        }
        atMost(address(step).code.length, CODE_LIMIT, "code");
    }

    function all(uint256 count) internal pure returns (uint256[] memory elements) {
        elements = new uint256[](count);
        for (uint256 i = 0; i < count; i++) {
            elements[i] = i;
        }
    }

    function revertAt(string memory name, uint256 width, bytes memory found, bytes memory wanted) private pure {
        same(found.length, wanted.length, name);
        uint256 element;
        while (keccak256(part(found, element, width)) == keccak256(part(wanted, element, width))) element++;
        revert WrongElement(name, element, part(found, element, width), part(wanted, element, width));
    }

    function part(bytes memory data, uint256 element, uint256 width) private pure returns (bytes memory result) {
        result = new bytes(width);
        for (uint256 i = 0; i < width; i++) {
            result[i] = data[element * width + i];
        }
    }
}
