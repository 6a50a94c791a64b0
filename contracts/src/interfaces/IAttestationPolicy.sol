// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

/// @title How a job counts its verifiers' attestations; one interface for counted transactions and for BLS.
interface IAttestationPolicy {
    /// @notice Records one attestation. Only the rounds contract calls it.
    /// @param slot keccak256(abi.encode(chainid, rounds, jobId, round, attempt))
    /// @return total weight behind `verdictHash` after this attestation
    function record(bytes32 slot, bytes32 verdictHash, uint16 verifier, uint256 weight, bytes calldata proof)
        external
        returns (uint256 total);
    /// @return weight behind the verdict, and the bitmap of verifiers that signed it
    function tally(bytes32 slot, bytes32 verdictHash) external view returns (uint256 weight, uint256 signers);
}
