// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

/// @title Contracts in several pieces of code, each below EIP-170's limit.
library Modules {
    /// @dev Runs the same call on a module with this contract's storage, and ends it with the
    /// module's answer.
    function delegate(address module) internal {
        assembly ("memory-safe") {
            calldatacopy(0, 0, calldatasize())
            let ok := delegatecall(gas(), module, 0, calldatasize(), 0, 0)
            returndatacopy(0, 0, returndatasize())
            if iszero(ok) { revert(0, returndatasize()) }
            return(0, returndatasize())
        }
    }
}
