// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

/// @title Whose an account is. An account works and signs; its owner alone moves its stake; its payee gets its pay.
/// @notice An account is its own owner and payee until another one accepts. No owner is needed to sit, speak or be slashed.
interface IOwners {
    event OwnerProposed(address indexed account, address indexed owner);
    event OwnerAccepted(address indexed account, address indexed owner);
    event PayeeSet(address indexed account, address indexed payee);

    /// @notice Only the account's owner: who shall be the next one; zero takes a proposal back. Nothing changes before that
    /// one accepts, so that an address nobody has the key of becomes no owner.
    function proposeOwner(address account, address owner) external;
    /// @notice Only who is proposed: it is the owner from now on, and the payee. Exits under way are its own, at their dates.
    function acceptOwner(address account) external;
    /// @notice Only the account's owner: where pay goes. Warning: nobody accepts it, and what was paid to it is gone.
    function setPayee(address account, address payee) external;

    /// @return who may unbond, withdraw, propose and name a payee: the account itself, unless another one accepted
    function ownerOf(address account) external view returns (address);
    /// @return whom pay, credits and what games bring a holder are sent to
    function payeeOf(address account) external view returns (address);
    /// @return who may accept; zero for nobody
    function proposedOwnerOf(address account) external view returns (address);
}
