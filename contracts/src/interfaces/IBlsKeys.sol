// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

/// @title The keys under which accounts sign certificates in BLS12-381. SPEC-ROUNDS.md, 7.
interface IBlsKeys {
    event KeyRegistered(address indexed account, bytes key);
    event SumKept(bytes32 indexed accountsHash, address[] accounts);

    /// @notice Makes it the caller's key, once and for ever.
    /// @param key x ‖ y, 48 bytes each
    /// @param proof the key's own signature of `proofOf`, under the suite's domain for proofs of possession
    /// @custom:caller the account
    function register(bytes calldata key, bytes calldata proof) external;
    /// @notice Anyone: keeps the sum of the keys of these accounts, in this order, which certificates of theirs are then
    /// checked with. Nothing waits for it: without it each signer's key is read.
    /// @param accounts at most 32, which all have a key
    /// @custom:caller anyone, once
    function keep(address[] calldata accounts) external;
    /// @return key of the account, x ‖ y; nothing where it has none
    /// @custom:caller anyone
    function keyOf(address account) external view returns (bytes memory key);
    /// @return sum of the keys, x ‖ y, as kept of these accounts in this order; nothing where none is
    /// @custom:caller anyone
    function sumOf(address[] calldata accounts) external view returns (bytes memory sum);
    /// @return message what a key has to sign before it is an account's
    function proofOf(address account, bytes calldata key) external view returns (bytes32 message);
}
