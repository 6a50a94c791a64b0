// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {IOneStep} from "../../../src/judge/IOneStep.sol";
import {Replay} from "./Replay.sol";

/// @title Elements of many nodes by one call. Of one node's the tests measure the gas, so this stands apart.
contract Replays is Replay {
    /// @return outputs of each node the elements of its numbers, one behind the other
    function whole(IOneStep step, Node[] calldata nodes, uint256[][] calldata elements)
        external
        view
        returns (bytes[] memory outputs)
    {
        outputs = new bytes[](nodes.length);
        for (uint256 n; n < nodes.length; ++n) {
            (outputs[n],) = this.many(step, nodes[n], elements[n]);
        }
    }
}
