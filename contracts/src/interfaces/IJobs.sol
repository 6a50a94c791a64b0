// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {IConfig, Params} from "./IConfig.sol";
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
    /// @notice A job exists, and is funded.
    /// @param specDigest SHA-256 digest in the manifest's CID
    /// @param specCid the manifest's binary CID
    /// @param policy the contract that checks its certificates
    /// @param funded wei
    /// @custom:state everything zero; phase WAITING, status OPEN
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
    /// @notice Somebody adds to a job's escrow.
    /// @param amount wei
    event JobFunded(uint256 indexed jobId, address indexed funder, uint256 amount);
    /// @notice No round opens any more once the one that runs has ended.
    event CancelRequested(uint256 indexed jobId);
    /// @notice A holder's payee has its pay, but for what of it is retained.
    /// @param to the first round that is not paid yet
    /// @param amount wei
    /// @param burnt wei that a slash took of it
    event Claimed(
        uint256 indexed jobId,
        address indexed account,
        Role role,
        uint32 indexed id,
        uint32 to,
        uint256 amount,
        uint256 burnt
    );
    /// @notice An account is owed something by a contest or for a key.
    /// @param amount wei
    event Credited(uint256 indexed jobId, address indexed account, uint256 amount);
    /// @notice An account's payee has what the account was credited.
    /// @param amount wei
    event CreditClaimed(uint256 indexed jobId, address indexed account, uint256 amount);
    /// @notice An account's payee could not be sent its pay or its refund.
    /// @param amount wei
    event Kept(address indexed account, uint256 amount);
    /// @notice An account's payee has what it could not be sent before.
    /// @param amount wei
    event Collected(address indexed account, uint256 amount);
    /// @notice What was earned in rounds and is not paid is burnt.
    /// @param to the first round that is not burnt yet
    /// @param amount wei
    event Burnt(uint256 indexed jobId, uint32 to, uint256 amount);
    /// @notice What cannot be earned any more goes back to the submitter's payee.
    /// @param amount wei
    event Refunded(uint256 indexed jobId, address indexed to, uint256 amount);

    /// @notice Opens a job and takes its funding. The parameters of this moment hold for all of the
    /// job's life.
    /// @param specDigest SHA-256 digest in the manifest's CID
    /// @param specCid the manifest's binary CID
    /// @param funding must cover the terms' budget: every round at its dearest
    /// @custom:caller the submitter
    function create(bytes32 specDigest, bytes calldata specCid, Terms calldata terms, address policy, uint256 funding)
        external
        returns (uint256 jobId);
    /// @notice Anyone may add to a job's escrow; what is not earned goes to the submitter.
    /// @custom:caller anyone
    function fund(uint256 jobId, uint256 amount) external;
    /// @notice Only the submitter. At once while the job waits for members; otherwise when its
    /// round ends.
    /// @custom:caller the submitter
    function cancel(uint256 jobId) external;
    /// @notice Anyone: pays a holder's payee for its rounds from the last claimed one up to, not
    /// including, `to`, which must be FINAL. What is retained of a seat's pay joins its bond; what
    /// a slash took is burnt; what the payee cannot be sent waits for `collect`.
    /// @custom:caller anyone, once
    function claim(uint256 jobId, Role role, uint32 id, uint32 to) external;
    /// @notice Anyone: several of these, of one job or of many. What somebody else has claimed
    /// meanwhile is passed over; any other that cannot be paid reverts all. Claims of one account
    /// that follow each other are paid by one transfer.
    /// @custom:caller anyone, once
    function claimMany(Due[] calldata dues) external;
    /// @notice Anyone: pays an account's payee what it got by contests or by showing a key; what
    /// it cannot be sent waits for `collect`.
    /// @custom:caller anyone, once
    function claimCredit(uint256 jobId, address account) external;
    /// @notice Anyone: sends an account's payee what could not be sent when it was due.
    /// @custom:caller anyone, once
    function collect(address account) external;
    /// @notice Anyone: burns what was earned and is not paid, of the rounds up to, not including,
    /// `to`.
    /// @custom:caller anyone, once
    function burn(uint256 jobId, uint32 to) external;
    /// @notice Anyone: sends the submitter's payee what can no longer be earned; after the claim
    /// deadline all that is left. What it cannot be sent waits for `collect`.
    /// @custom:caller anyone, once
    function refund(uint256 jobId) external;
    /// @notice Anyone: sends what was burnt to the sink.
    function sink() external;

    /// @return wei that the job can cost at most
    /// @custom:caller anyone
    function budget(Terms calldata terms) external pure returns (uint256);
    /// @custom:caller anyone
    function termsOf(uint256 jobId) external view returns (Terms memory);
    function paramsOf(uint256 jobId) external view returns (Params memory);
    function submitterOf(uint256 jobId) external view returns (address);
    /// @custom:caller anyone
    function escrowOf(uint256 jobId) external view returns (Escrow memory);
    /// @return RoundIndex: the first round that the holder has not claimed
    /// @custom:caller anyone
    function claimedTo(uint256 jobId, Role role, uint32 id) external view returns (uint32);
    /// @custom:caller anyone
    function refundable(uint256 jobId) external view returns (uint256);
    /// @return wei of all jobs that were claimed for an account and could not be sent; no job's any
    /// more
    /// @custom:caller anyone
    function keptOf(address account) external view returns (uint256);

    /// @return where the contracts stand that the escrow asks
    function config() external view returns (IConfig);
    function rounds() external view returns (address);
    function members() external view returns (address);
    function audits() external view returns (address);
}
