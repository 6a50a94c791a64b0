// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {G1} from "../libraries/Bls.sol";

/// @title The keys under which accounts sign certificates in BLS12-381. SPEC-ROUNDS.md, 7.
interface IBlsKeys {
    event KeyRegistered(address indexed account, bytes key);

    /// @notice Makes it the caller's key. The first one whenever the caller likes; another only while no bond of the
    /// caller as a verifier is locked, and not within a day of the last.
    /// @param key x ‖ y, 48 bytes each
    /// @param proof the key's own signature of `proofOf`, under the suite's domain for proofs of possession
    function register(bytes calldata key, bytes calldata proof) external;
    /// @return key x ‖ y; nothing where the account has none
    function keyOf(address account) external view returns (bytes memory key);
    /// @return message what a key has to sign before it is an account's
    function proofOf(address account, bytes calldata key) external view returns (bytes32 message);
    /// @return the sum of the keys of the accounts whose bit is set, which all have one
    function sum(address[] calldata accounts, uint256 bitmap) external view returns (G1 memory);
}
