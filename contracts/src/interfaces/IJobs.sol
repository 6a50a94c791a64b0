// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {Params} from "./IConfig.sol";
import {IOwners} from "./IOwners.sol";
import "../types/Types.sol";

/// What of a job's escrow went where; `funded` is the sum of the others and of the balance.
struct Escrow {
    uint256 funded;
    uint256 claimed;
    uint256 refunded;
    uint256 burnt;
    uint256 balance;
}

/// A holder, and up to which of its rounds it is to be paid.
struct Due {
    uint256 jobId;
    Role role;
    uint32 id;
    uint32 to;
}

/// @title Escrow: what a submitter pays in, what was earned, what is burnt, what goes back.
interface IJobs is IOwners {
    event JobCreated(
        uint256 indexed jobId,
        address indexed submitter,
        bytes32 specDigest,
        bytes specCid,
        bytes32 termsHash,
        Terms terms,
        Params params,
        address policy,
        uint256 funded
    );
    event JobFunded(uint256 indexed jobId, address indexed funder, uint256 amount);
    event CancelRequested(uint256 indexed jobId);
    event Claimed(
        uint256 indexed jobId,
        address indexed account,
        Role role,
        uint32 indexed id,
        uint32 to,
        uint256 amount,
        uint256 burnt
    );
    event Credited(uint256 indexed jobId, address indexed account, uint256 amount);
    event CreditClaimed(uint256 indexed jobId, address indexed account, uint256 amount);
    event Kept(address indexed account, uint256 amount); // its payee could not be sent it
    event Collected(address indexed account, uint256 amount);
    event Burnt(uint256 indexed jobId, uint32 to, uint256 amount);
    event Refunded(uint256 indexed jobId, address indexed to, uint256 amount);

    /// @notice Opens a job and takes its funding. The parameters of this moment hold for all of the job's life.
    /// @param specDigest SHA-256 digest in the manifest's CID
    /// @param specCid the manifest's binary CID
    /// @param funding must cover the terms' budget: every round at its dearest
    function create(bytes32 specDigest, bytes calldata specCid, Terms calldata terms, address policy, uint256 funding)
        external
        returns (uint256 jobId);
    /// @notice Anyone may add to a job's escrow; what is not earned goes to the submitter.
    function fund(uint256 jobId, uint256 amount) external;
    /// @notice Only the submitter. At once while the job waits for members; otherwise when its round ends.
    function cancel(uint256 jobId) external;
    /// @notice Anyone: pays a holder's payee for its rounds from the last claimed one up to, not including, `to`, which must be FINAL.
    /// What a fall took of them is burnt; what the payee cannot be sent waits for `collect`.
    function claim(uint256 jobId, Role role, uint32 id, uint32 to) external;
    /// @notice Anyone: several of these, of one job or of many. What somebody else has claimed meanwhile is passed over; any other
    /// that cannot be paid reverts all. Claims of one account that follow each other are paid by one transfer.
    function claimMany(Due[] calldata dues) external;
    /// @notice Anyone: pays an account's payee what it got by contests or by showing a key.
    function claimCredit(uint256 jobId, address account) external;
    /// @notice Anyone: sends an account's payee what could not be sent when it was claimed.
    function collect(address account) external;
    /// @notice Anyone: burns what was earned and is not paid, of the rounds up to, not including, `to`.
    function burn(uint256 jobId, uint32 to) external;
    /// @notice Anyone: sends the submitter what can no longer be earned; after the claim deadline all that is left.
    function refund(uint256 jobId) external;
    /// @notice Anyone: sends what was burnt to the sink.
    function sink() external;

    /// @return wei that the job can cost at most
    function budget(Terms calldata terms) external pure returns (uint256);
    function termsOf(uint256 jobId) external view returns (Terms memory);
    function paramsOf(uint256 jobId) external view returns (Params memory);
    function submitterOf(uint256 jobId) external view returns (address);
    function escrowOf(uint256 jobId) external view returns (Escrow memory);
    /// @return the first round that the holder has not claimed
    function claimedTo(uint256 jobId, Role role, uint32 id) external view returns (uint32);
    function refundable(uint256 jobId) external view returns (uint256);
    /// @return wei of all jobs that were claimed for an account and could not be sent; no job's any more
    function keptOf(address account) external view returns (uint256);

    /// @return where the contracts stand that the escrow asks
    function rounds() external view returns (address);
    function members() external view returns (address);
    function audits() external view returns (address);
}
