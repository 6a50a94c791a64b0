// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import "../types/Types.sol";

/// @title Custody of stakes, per role: active, locked for a job, unbonding (still slashable), withdrawn.
/// @notice Only the members contract locks, unlocks and slashes, and only by the rules of a job that the account joined itself. Nobody can change a running exit.
interface IStakes {
    /// @notice An account has more stake.
    /// @param amount wei
    event Deposited(address indexed account, Role role, uint256 amount);
    /// @notice Stake is on its way out.
    /// @param id of the exit, from 0 of an account's role
    /// @param amount wei
    /// @param availableAt unix seconds after which it can be withdrawn
    event UnbondStarted(address indexed account, Role role, uint256 id, uint256 amount, uint64 availableAt);
    /// @notice An exit is paid out.
    /// @param id of the exit
    /// @param amount wei
    event Withdrawn(address indexed account, Role role, uint256 id, uint256 amount);
    /// @notice Stake is a bond.
    /// @param lockId of the bond
    /// @param amount wei
    event Locked(address indexed account, Role role, bytes32 lockId, uint256 amount);
    /// @notice A bond is free stake again.
    /// @param lockId of the bond
    /// @param amount wei
    event Unlocked(address indexed account, Role role, bytes32 lockId, uint256 amount);
    /// @notice Stake is gone.
    /// @param faultId of what it was slashed for, once
    /// @param amount wei, of which the rest went to the beneficiary or was burnt
    /// @param beneficiaryAmount wei
    /// @param burned wei
    event Slashed(
        address indexed account,
        Role role,
        bytes32 faultId,
        uint256 amount,
        address indexed beneficiary,
        uint256 beneficiaryAmount,
        uint256 burned
    );

    /// @notice Adds to the caller's active stake.
    /// @custom:caller the account
    function deposit(Role role, uint256 amount) external;
    /// @notice The same by the account's owner, so that stake never lies in the wallet of the key that works.
    /// @dev Nobody else: what is paid into an account that belongs to another would be that one's.
    /// @custom:caller the account's owner
    function depositFor(address account, Role role, uint256 amount) external;
    /// @notice The caller's own, with an EIP-2612 signature instead of an allowance.
    function depositWithPermit(Role role, uint256 amount, uint256 deadline, uint8 v, bytes32 r, bytes32 s) external;
    /// @notice Only the account's owner: starts an exit of stake that no lock holds. It can be withdrawn strictly after the unbonding delay.
    /// @dev Warning: it stays slashable until withdrawn; a slash is shared by all of the account's exits alike.
    /// @custom:caller the account's owner
    function unbond(address account, Role role, uint256 amount) external returns (uint256 id);
    /// @notice Only the account's owner, and to it: pays out one exit, whoever began it.
    /// @custom:caller the account's owner
    function withdraw(address account, Role role, uint256 id) external;
    /// @return active stake that is not leaving, locked stake included
    /// @return locked the part of it that jobs hold
    /// @return unbonding stake on its way out
    /// @custom:caller anyone
    function stakeOf(address account, Role role)
        external
        view
        returns (uint256 active, uint256 locked, uint256 unbonding);
}
