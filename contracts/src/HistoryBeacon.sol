// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {IBeacon} from "./interfaces/IBeacon.sol";
import {History} from "./libraries/History.sol";

/// @title Draws by the hash of the block itself, as long as the chain keeps it.
/// @dev Whoever makes the block can try as many hashes as it computes.
contract HistoryBeacon is IBeacon {
    /// @inheritdoc IBeacon
    function note() external pure {}

    /// @inheritdoc IBeacon
    function seedOf(uint256 number) external view returns (bytes32 seed, bool isLost) {
        seed = History.hashOf(number);
        isLost = seed == 0 && number < block.number;
    }
}
