// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

/// @title How a committee's certificate shows who of it signed.
interface IAttestationPolicy {
    /// @notice Reverts unless the certificate is exactly one valid signature of `digest` by each
    /// member that it names.
    /// @param roundId hash of chain, contract, job and round; `digest` binds it already
    /// @param committee at most 32 accounts
    /// @return signers bit i: the committee's member i
    function certify(bytes32 roundId, address[] calldata committee, bytes32 digest, bytes calldata certificate)
        external
        view
        returns (uint256 signers);
}
