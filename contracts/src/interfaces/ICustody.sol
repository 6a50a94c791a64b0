// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import "../types/Types.sol";

/// A slash as the members contract orders it.
struct Slash {
    address account;
    Role role;
    bytes32 lockId; // the lock the amount is taken from first
    bytes32 faultId;
    uint256 amount; // what the rules ask for; what is there may be less
    uint256 shared; // of the amount: the rest is burnt whole
    address beneficiary; // zero: everything is burnt
    Role beneficiaryRole; // the share becomes stake of this role, so that nothing is pushed to anyone
    uint16 beneficiaryBps; // of what is shared; at most one half
}

/// @title What only the members contract may do with stakes.
interface ICustody {
    /// @notice Reserves free active stake. Reverts when there is not enough.
    function lock(address account, Role role, bytes32 lockId, uint256 amount) external;
    /// @notice Adds to a lock what the escrow sends in the same transaction.
    function retain(address account, Role role, bytes32 lockId, uint256 amount) external;
    /// @notice Frees what is left of a lock. Does nothing for a lock that is not there.
    function unlock(address account, Role role, bytes32 lockId) external;
    /// @notice Takes up to the amount: from the lock, then from free active stake, then from unbonding stake.
    /// @dev Never reverts because of anything the victim did. A fault id works once.
    /// @return taken what was there
    function slash(Slash calldata order) external returns (uint256 taken);
    function lockOf(address account, Role role, bytes32 lockId) external view returns (uint256);
}
