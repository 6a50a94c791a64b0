// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import "../types/Types.sol";

/// @title Escrow: what a submitter pays in, what was earned, what goes back.
interface IJobs {
    event JobCreated(
        uint256 indexed jobId,
        address indexed submitter,
        bytes32 specDigest,
        bytes specCid,
        bytes32 termsHash,
        Terms terms,
        address policy,
        uint256 funded
    );
    event JobFunded(uint256 indexed jobId, address funder, uint256 amount);
    event CancelRequested(uint256 indexed jobId);
    event JobStatusChanged(uint256 indexed jobId, JobStatus status, string reason);
    event Claimed(uint256 indexed jobId, address indexed account, uint256 amount, uint256 cumulative);
    /// The account lost a game: so much less of what claims trees give it will be its own.
    event PayWithheld(uint256 indexed jobId, address indexed account, uint256 amount);
    event PayReturned(uint256 indexed jobId, address indexed account, uint256 amount, address submitter);
    event Refunded(uint256 indexed jobId, address to, uint256 amount);

    /// @notice Opens a job and takes its funding. The parameters of this moment hold for all of the job's life.
    /// @dev Warning: choose the policy with care; who controls it controls the job's verdicts (never anyone's stake).
    /// @param specDigest SHA-256 digest in the manifest's CID
    /// @param specCid the manifest's binary CID
    /// @param funding must cover the terms' budget: every round at its dearest
    function create(bytes32 specDigest, bytes calldata specCid, Terms calldata terms, address policy, uint256 funding)
        external
        returns (uint256 jobId);
    /// @notice Anyone may add to a running job's escrow; what is not earned goes to the submitter.
    function fund(uint256 jobId, uint256 amount) external;
    /// @notice Only the submitter. At once while the job waits for members; otherwise at the next round's boundary.
    function cancel(uint256 jobId) external;
    /// @notice Returns what was not earned, once, when the job is done, cancelled or expired.
    function refund(uint256 jobId) external;
    /// @notice Anyone may pay an account what is final and not yet paid. A second claim pays nothing. What claims trees give
    /// waits while a game about the account's work in the job is open.
    /// @param cumulative the account's value in the claims tree of the last final round
    /// @param proof word 0 is index << 128 | leaf count, then the siblings; empty to claim credits alone
    function claim(uint256 jobId, address account, uint256 cumulative, bytes32[] calldata proof) external;

    /// @return wei that the job can cost at most
    function budget(Terms calldata terms) external pure returns (uint256);
    function termsOf(uint256 jobId) external view returns (Terms memory);
    function statusOf(uint256 jobId) external view returns (JobStatus);
    /// funded = claimed + refunded + balance, always
    function escrowOf(uint256 jobId)
        external
        view
        returns (uint256 funded, uint256 claimed, uint256 refunded, uint256 balance);
}
