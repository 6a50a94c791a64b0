// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {IOwners} from "./interfaces/IOwners.sol";
import {EventLog} from "./libraries/EventLog.sol";

/// @title The key that works lies on a machine that strangers talk to; stake and pay belong to one that does not.
/// @dev A part of the escrow, where a claim reads one word more for it.
abstract contract Owners is IOwners, EventLog {
    mapping(address account => address) private _owners; // zero: itself
    mapping(address account => address) private _payees; // zero: itself
    /// @inheritdoc IOwners
    mapping(address account => address) public proposedOwnerOf;

    error OnlyOwner(address caller, address owner);
    error OnlyProposed(address caller, address proposed);
    error NoPayee();

    modifier onlyOwnerOf(address account) {
        if (msg.sender != ownerOf(account)) revert OnlyOwner(msg.sender, ownerOf(account));
        _;
    }

    /// @inheritdoc IOwners
    function proposeOwner(address account, address owner) external onlyOwnerOf(account) {
        proposedOwnerOf[account] = owner;
        _log(0, abi.encode(OwnerProposed.selector, account, owner), "");
    }

    /// @inheritdoc IOwners
    /// @dev An owner before may have named a payee: that one is not the new owner's.
    function acceptOwner(address account) external {
        address proposed = proposedOwnerOf[account];
        if (msg.sender != proposed) revert OnlyProposed(msg.sender, proposed);
        proposedOwnerOf[account] = address(0);
        (_owners[account], _payees[account]) = (proposed, proposed);
        _log(0, abi.encode(OwnerAccepted.selector, account, proposed), "");
    }

    /// @inheritdoc IOwners
    function setPayee(address account, address payee) external onlyOwnerOf(account) {
        if (payee == address(0)) revert NoPayee();
        _payees[account] = payee;
        _log(0, abi.encode(PayeeSet.selector, account, payee), "");
    }

    /// @inheritdoc IOwners
    function ownerOf(address account) public view returns (address) {
        address owner = _owners[account];
        return owner == address(0) ? account : owner;
    }

    /// @inheritdoc IOwners
    function payeeOf(address account) public view returns (address) {
        address payee = _payees[account];
        return payee == address(0) ? account : payee;
    }
}
