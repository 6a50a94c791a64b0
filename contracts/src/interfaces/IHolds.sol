// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

/// @title What roster and escrow ask the contract that holds claims.
interface IHolds {
    /// @return whether a game about the account's work in the job is open: then neither its bond nor its pay leaves
    function isHeld(uint256 jobId, address account) external view returns (bool);
}
