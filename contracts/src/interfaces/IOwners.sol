// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

/// @title Whose an account is. An account works and signs; its owner alone moves its stake; its
/// payee gets its pay.
/// @notice An account is its own owner and payee until another one accepts. No owner is needed to
/// join, speak or be slashed.
interface IOwners {
    /// @notice An account's owner names the next one, or zero for nobody.
    event OwnerProposed(address indexed account, address indexed owner);
    /// @notice An account has another owner, which has its pay, too.
    event OwnerAccepted(address indexed account, address indexed owner);
    /// @notice An account's pay goes elsewhere.
    event PayeeSet(address indexed account, address indexed payee);

    /// @notice Only the account's owner: who shall be the next one; zero takes a proposal back.
    /// Nothing changes before that one accepts, so that an address nobody has the key of becomes no
    /// owner.
    /// @custom:caller the account's owner
    function proposeOwner(address account, address owner) external;
    /// @notice Only who is proposed: it is the owner from now on, and the payee. Exits under way
    /// are its own, at their dates.
    /// @custom:caller the proposed owner
    function acceptOwner(address account) external;
    /// @notice Only the account's owner: where pay goes. Warning: nobody accepts it, and what was
    /// paid to it is gone.
    /// @custom:caller the account's owner
    function setPayee(address account, address payee) external;

    /// @return who may unbond, withdraw, propose and name a payee: the account itself, unless
    /// another one accepted
    /// @custom:caller anyone
    function ownerOf(address account) external view returns (address);
    /// @return whom pay, credits and what games bring a holder are sent to
    /// @custom:caller anyone
    function payeeOf(address account) external view returns (address);
    /// @return who may accept; zero for nobody
    /// @custom:caller anyone
    function proposedOwnerOf(address account) external view returns (address);
}
