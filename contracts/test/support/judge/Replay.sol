// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {IOneStep, Need} from "../../../src/judge/IOneStep.sol";

/// @title Elements of one node worked out as a game does it: what is asked for is cut out of the
/// inputs, and shown.
contract Replay {
    uint256 private constant MOST_OPENINGS = 8;

    struct Node {
        uint16 op;
        uint256 width; // bytes of an element
        bytes attributes;
        bytes[] inputs;
    }

    error InputEnds(uint256 input, uint256 offset, uint256 length);
    error TooManyOpenings();
    error WidthDiffers(uint256 width);

    /// @return output the elements of these numbers, one behind the other
    /// @return most gas of `run` for the dearest of them
    function many(IOneStep step, Node calldata node, uint256[] calldata elements)
        external
        view
        returns (bytes memory output, uint256 most)
    {
        output = new bytes(elements.length * node.width + 32);
        for (uint256 i; i < elements.length; ++i) {
            uint256 free;
            assembly ("memory-safe") {
                free := mload(0x40)
            }
            bytes[] memory opened = openings(step, node, elements[i]);
            uint256 used = gasleft();
            bytes memory result = step.run(node.op, node.attributes, elements[i], opened);
            used -= gasleft();
            if (used > most) most = used;
            if (result.length != node.width) revert WidthDiffers(result.length);
            uint256 position = i * node.width;
            assembly ("memory-safe") {
                mstore(add(add(output, 32), position), mload(add(result, 32)))
                mstore(0x40, free) // nothing of this element is read again
            }
        }
        assembly ("memory-safe") {
            mstore(output, sub(mload(output), 32))
        }
    }

    function openings(IOneStep step, Node calldata node, uint256 element)
        internal
        pure
        returns (bytes[] memory opened)
    {
        opened = new bytes[](MOST_OPENINGS);
        for (uint256 k;; ++k) {
            assembly ("memory-safe") {
                mstore(opened, k)
            }
            Need memory next = step.need(node.op, node.attributes, element, opened);
            if (next.length == 0) return opened;
            if (k == MOST_OPENINGS) revert TooManyOpenings();
            bytes calldata input = node.inputs[next.input];
            if (next.offset + next.length > input.length) revert InputEnds(next.input, next.offset, next.length);
            bytes memory part = input[next.offset:next.offset + next.length];
            assembly ("memory-safe") {
                mstore(opened, add(k, 1))
            }
            opened[k] = part;
        }
    }
}
