// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {IOneStep} from "../../../src/judge/IOneStep.sol";
import {Check} from "../Check.sol";
import {Replay} from "./Replay.sol";
import {deployed} from "../Deployed.sol";

/// @title A family's steps against the nodes that Python wrote (`tests/vectors/judge_family_*.json`).
abstract contract Nodes is Check {
    uint256 internal constant CODE_LIMIT = 24_576 - 1_024; // EIP-170, less the room for a mend

    string private constant GAS = "test/unit/judge/gas.json";

    uint256 internal constant LEAST = 250;
    uint256 internal constant OPERATIONS = 256; // of a family, at most

    Replay internal replay = Replay(deployed("Replay", ""));

    error WrongElement(string name, uint256 element, bytes found, bytes wanted);

    /// No element may need more gas than its operation has in `gas.json`, call included.
    function compare(IOneStep step, string memory family) internal view {
        string memory json = vm.readFile(string.concat("../tests/vectors/judge_family_", family, ".json"));
        bytes[] memory nodes = vm.parseJsonBytesArray(json, ".node");
        string[] memory names = vm.parseJsonStringArray(json, ".name");
        uint256[] memory compared = new uint256[](OPERATIONS);
        for (uint256 i = 0; i < nodes.length; i++) {
            (Replay.Node memory node, bytes memory wanted) = abi.decode(nodes[i], (Replay.Node, bytes));
            uint256[] memory elements = all(wanted.length / node.width);
            (bytes memory found, uint256 most) = replay.many(step, node, elements);
            if (keccak256(found) != keccak256(wanted)) revertAt(names[i], node.width, found, wanted);
            uint256 operation = node.op & 0xff;
            within(most, "steps", names[i]);
            compared[operation] += elements.length;
        }
        for (uint256 i = 0; i < compared.length; i++) {
            check(compared[i] == 0 || compared[i] >= LEAST, "elements of each operation");
        }
        atMost(address(step).code.length, CODE_LIMIT, "code");
    }

    /// @param kind `steps` of the vectors' elements, or `blocks` of a program's whole block
    function within(uint256 gas, string memory kind, string memory name) internal view {
        atMost(gas, vm.parseJsonUint(vm.readFile(GAS), string.concat(".", kind, ".", name)), name);
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
