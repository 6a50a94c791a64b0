// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import "../types/Types.sol";

/// @title Who sits in a job: provider seats and their waiting list, verifiers, and where each serves its blocks.
/// @notice A change takes effect when the next round opens; a running round's members never change.
interface IRoster {
    event ProviderSeated(uint256 indexed jobId, uint16 seat, address account);
    event ProviderQueued(uint256 indexed jobId, address account);
    event ProviderUnqueued(uint256 indexed jobId, address account);
    event ProviderLeaving(uint256 indexed jobId, uint16 seat, address account);
    event ProviderUnseated(uint256 indexed jobId, uint16 seat, address account, string reason);
    event VerifierJoined(uint256 indexed jobId, uint16 verifier, address account, uint256 weight);
    event VerifierReady(uint256 indexed jobId, uint16 verifier, address account);
    event VerifierLeaving(uint256 indexed jobId, uint16 verifier, address account);
    event VerifierLeft(uint256 indexed jobId, uint16 verifier, address account, string reason);
    event GatewayAnnounced(address indexed account, string url);

    /// @notice Takes a seat, or a place in the waiting list; locks Terms.providerBond.
    function joinAsProvider(uint256 jobId) external;
    /// @notice Leaves the waiting list at once, a seat at the next boundary (at once while the job waits for members).
    function leaveAsProvider(uint256 jobId) external;
    /// @notice Locks Terms.verifierBond, which is also the verifier's weight.
    function joinAsVerifier(uint256 jobId) external;
    /// @notice Leaves at the next boundary; at once while the job waits for members.
    function leaveAsVerifier(uint256 jobId) external;
    /// @notice "I hold the manifest and every shard." A quorum of these opens the job.
    function attestReady(uint256 jobId) external;
    /// @notice Says where the caller serves its blocks; the last one said counts.
    /// @dev Visible ASCII only (RFC 3986), so that everybody can read the event. Whether it is an address, nobody checks.
    function announceGateway(string calldata url) external;
    /// @notice Unlocks what a party that left, or whose job closed, no longer owes.
    function releaseBond(uint256 jobId, Role role, address account) external;

    function seatOf(uint256 jobId, address account) external view returns (bool seated, uint16 seat);
    function verifierOf(uint256 jobId, address account) external view returns (bool joined, uint16 verifier);
    function seatHolder(uint256 jobId, uint16 seat) external view returns (address);
    function verifierHolder(uint256 jobId, uint16 verifier) external view returns (address account, uint256 weight);
}
