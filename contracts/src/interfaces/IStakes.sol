// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.24;

import "../types/Types.sol";

/// @title Custody of stakes, per role: active, locked for a job, thawing (still slashable), withdrawn.
interface IStakes {
    event Deposited(address indexed account, Role role, uint256 amount);
    event ThawStarted(address indexed account, Role role, uint256 id, uint256 amount, uint64 availableAt);
    event Withdrawn(address indexed account, Role role, uint256 id, uint256 amount);
    event Locked(address indexed account, Role role, bytes32 lockId, uint256 amount);
    event Unlocked(address indexed account, Role role, bytes32 lockId, uint256 amount);
    event Slashed(
        address indexed account,
        Role role,
        bytes32 faultId,
        uint256 amount,
        address beneficiary,
        uint256 beneficiaryAmount,
        uint256 burned
    );

    function deposit(Role role, uint256 amount) external;
    function depositWithPermit(Role role, uint256 amount, uint256 deadline, uint8 v, bytes32 r, bytes32 s) external;
    function thaw(Role role, uint256 amount) external returns (uint256 id);
    function withdraw(Role role, uint256 id) external;
    function stakeOf(address account, Role role) external view returns (uint256 active, uint256 locked, uint256 thawing);
}
