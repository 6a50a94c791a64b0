// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

/// @title How a committee's certificate shows who of it signed.
interface IAttestationPolicy {
    /// @notice Who of the members that the certificate names has signed `digest`. Reverts on what is
    /// no certificate; one that is a sum is of all whom it names, or none.
    /// @param roundId hash of chain, contract, job and round; `digest` binds it already
    /// @param committee at most 32 accounts
    /// @return signers bit i: the committee's member i
    function certify(bytes32 roundId, address[] calldata committee, bytes32 digest, bytes calldata certificate)
        external
        view
        returns (uint256 signers);

    /// @notice Whether an account can sign certificates: asked when it enrols.
    /// @param digest of its enrolment
    /// @param signature of that, as a certificate has it; of no account whose key is registered
    function isSigner(address account, bytes32 digest, bytes calldata signature) external view returns (bool);
}
