// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {IERC20} from "@openzeppelin/contracts/token/ERC20/IERC20.sol";
import {SafeERC20} from "@openzeppelin/contracts/token/ERC20/utils/SafeERC20.sol";
import {ReentrancyGuard} from "@openzeppelin/contracts/utils/ReentrancyGuard.sol";
import {IConfig, Params} from "./interfaces/IConfig.sol";
import {IHolds} from "./interfaces/IHolds.sol";
import {IJobsFalls, IJobsHooks, IRoundsHooks} from "./interfaces/IHooks.sol";
import {IJobs} from "./interfaces/IJobs.sol";
import {IRounds} from "./interfaces/IRounds.sol";
import {Hashing} from "./libraries/Hashing.sol";
import {Merkle} from "./libraries/Merkle.sol";
import {Pull} from "./libraries/Pull.sol";
import {TermsCheck} from "./libraries/TermsCheck.sol";
import {Wired} from "./libraries/Wired.sol";
import "./types/Types.sol";

/// @title Escrow. Always: funded = claimed + refunded + balance, for every job.
contract Jobs is IJobs, IJobsHooks, IJobsFalls, Wired, ReentrancyGuard {
    using SafeERC20 for IERC20;

    struct Job {
        address submitter;
        JobStatus status;
        bool cancelRequested;
        bool isRefunded;
        address policy;
        uint256 funded;
        uint256 claimed; // by claims trees and by credits
        uint256 claimedByTree;
        uint256 refunded;
        uint256 creditReserve; // all that may ever be credited
        uint256 credited;
    }

    uint256 public constant MAX_CID_BYTES = 128;

    IConfig public immutable config;
    IERC20 public immutable token;
    address public rounds;
    IHolds public claims;
    uint256 public jobCount;

    mapping(uint256 jobId => Job) private _jobs;
    mapping(uint256 jobId => Terms) private _terms;
    mapping(uint256 jobId => mapping(address => uint256)) private _claimedByTree;
    mapping(uint256 jobId => mapping(address => uint256)) private _credits;
    mapping(uint256 jobId => mapping(address => uint256)) private _withheld; // of what trees will still give

    error UnknownJob(uint256 jobId);
    error Paused();
    error PolicyNotAllowed(address policy);
    error CidTooLong(uint256 length, uint256 highest);
    error Underfunded(uint256 given, uint256 needed);
    error WrongStatus(uint256 jobId, JobStatus status);
    error OnlySubmitter(address caller, address submitter);
    error OnlyRounds(address caller);
    error OnlyClaims(address caller);
    error GameOpen(uint256 jobId, address account);
    error CancelAlreadyRequested(uint256 jobId);
    error AlreadyRefunded(uint256 jobId);
    error RoundsNotFinal(uint32 final_, uint32 settled);
    error NothingFinal(uint256 jobId);
    error BadProof(address account, uint256 cumulative);
    error CreditsExceeded(uint256 credited, uint256 reserve);

    constructor(address config_) {
        config = IConfig(config_);
        token = IERC20(config.token());
    }

    function wire(address rounds_, address claims_) external wiring {
        (rounds, claims) = (rounds_, IHolds(claims_));
    }

    modifier onlyRounds() {
        if (msg.sender != rounds) revert OnlyRounds(msg.sender);
        _;
    }

    /// @inheritdoc IJobs
    function create(bytes32 specDigest, bytes calldata specCid, Terms calldata terms, address policy, uint256 funding)
        external
        nonReentrant
        returns (uint256 jobId)
    {
        if (config.paused()) revert Paused();
        if (!config.isPolicy(policy)) revert PolicyNotAllowed(policy);
        if (specCid.length > MAX_CID_BYTES) revert CidTooLong(specCid.length, MAX_CID_BYTES);
        Params memory params = config.params();
        TermsCheck.requireValid(terms, params, config.unbondingDelay());
        if (funding < budget(terms)) revert Underfunded(funding, budget(terms));

        jobId = ++jobCount;
        Job storage job = _jobs[jobId];
        (job.submitter, job.status, job.policy, job.funded) = (msg.sender, JobStatus.OPEN, policy, funding);
        _terms[jobId] = terms;
        IRoundsHooks(rounds).open(jobId, terms, params, policy);

        emit JobCreated(jobId, msg.sender, specDigest, specCid, keccak256(abi.encode(terms)), terms, policy, funding);
        Pull.exactly(token, msg.sender, funding);
    }

    /// @inheritdoc IJobs
    function fund(uint256 jobId, uint256 amount) external nonReentrant {
        Job storage job = _job(jobId);
        if (_isClosed(job.status)) revert WrongStatus(jobId, job.status);
        job.funded += amount;
        emit JobFunded(jobId, msg.sender, amount);
        Pull.exactly(token, msg.sender, amount);
    }

    /// @inheritdoc IJobs
    function cancel(uint256 jobId) external {
        Job storage job = _job(jobId);
        if (_isClosed(job.status)) revert WrongStatus(jobId, job.status);
        if (msg.sender != job.submitter) revert OnlySubmitter(msg.sender, job.submitter);
        if (job.cancelRequested) revert CancelAlreadyRequested(jobId);
        job.cancelRequested = true;
        emit CancelRequested(jobId);
        IRoundsHooks(rounds).cancel(jobId);
    }

    /// @inheritdoc IJobs
    function refund(uint256 jobId) external nonReentrant {
        Job storage job = _job(jobId);
        if (!_isClosed(job.status)) revert WrongStatus(jobId, job.status);
        if (job.isRefunded) revert AlreadyRefunded(jobId);
        (uint32 final_,, uint256 earned) = IRounds(rounds).finalRounds(jobId);
        uint32 settled = IRoundsHooks(rounds).settledRounds(jobId);
        if (final_ != settled) revert RoundsNotFinal(final_, settled);
        job.isRefunded = true;
        uint256 amount = job.funded - earned - job.creditReserve;
        job.refunded = amount;
        emit Refunded(jobId, job.submitter, amount);
        if (amount > 0) token.safeTransfer(job.submitter, amount);
    }

    /// @inheritdoc IJobs
    /// @dev Pays what the final claims tree adds to earlier claims, up to the sum of final rounds, and all credits.
    /// Word 0 of the proof is index << 128 | leaf count; an empty proof claims credits alone.
    function claim(uint256 jobId, address account, uint256 cumulative, bytes32[] calldata proof) external nonReentrant {
        Job storage job = _job(jobId);
        uint256 byTree = proof.length == 0 ? 0 : _dueByTree(jobId, account, cumulative, proof);
        _claimedByTree[jobId][account] += byTree;
        job.claimedByTree += byTree;
        uint256 own = byTree - _takeBack(jobId, account, byTree);
        uint256 amount = own + _credits[jobId][account];
        if (byTree == 0 && amount == 0) return;
        _credits[jobId][account] = 0;
        job.claimed += amount;
        emit Claimed(jobId, account, amount, _claimedByTree[jobId][account]);
        if (amount > 0) token.safeTransfer(account, amount);
    }

    /// @inheritdoc IJobsFalls
    function withhold(uint256 jobId, address account, uint256 amount) external {
        if (msg.sender != address(claims)) revert OnlyClaims(msg.sender);
        _withheld[jobId][account] += amount;
        emit PayWithheld(jobId, account, amount);
    }

    /// @inheritdoc IJobsHooks
    function setStatus(uint256 jobId, JobStatus status, string calldata reason) external onlyRounds {
        _jobs[jobId].status = status;
        emit JobStatusChanged(jobId, status, reason);
    }

    /// @inheritdoc IJobsHooks
    function reserveCredits(uint256 jobId, uint256 amount) external onlyRounds {
        _jobs[jobId].creditReserve = amount;
    }

    /// @inheritdoc IJobsHooks
    function credit(uint256 jobId, address account, uint256 amount) external onlyRounds {
        Job storage job = _jobs[jobId];
        job.credited += amount;
        if (job.credited > job.creditReserve) revert CreditsExceeded(job.credited, job.creditReserve);
        _credits[jobId][account] += amount;
    }

    /// @inheritdoc IJobs
    function budget(Terms calldata terms) public pure returns (uint256) {
        uint256 tokens = uint256(terms.seats) * terms.steps * terms.tokensPerStep;
        return terms.rounds * (tokens * terms.pricePerToken + uint256(terms.maxVerifiers) * terms.verifierFee);
    }

    /// @inheritdoc IJobs
    function termsOf(uint256 jobId) external view returns (Terms memory) {
        _job(jobId);
        return _terms[jobId];
    }

    /// @inheritdoc IJobs
    function statusOf(uint256 jobId) external view returns (JobStatus) {
        return _jobs[jobId].status;
    }

    /// @inheritdoc IJobs
    function escrowOf(uint256 jobId)
        external
        view
        returns (uint256 funded, uint256 claimed, uint256 refunded, uint256 balance)
    {
        Job storage job = _jobs[jobId];
        return (job.funded, job.claimed, job.refunded, job.funded - job.claimed - job.refunded);
    }

    function policyOf(uint256 jobId) external view returns (address) {
        return _jobs[jobId].policy;
    }

    function submitterOf(uint256 jobId) external view returns (address) {
        return _jobs[jobId].submitter;
    }

    /// @return what the account has been paid from claims trees
    function paidTo(uint256 jobId, address account) external view returns (uint256) {
        return _claimedByTree[jobId][account];
    }

    /// @return what the account may claim without a proof
    function creditOf(uint256 jobId, address account) external view returns (uint256) {
        return _credits[jobId][account];
    }

    function _job(uint256 jobId) private view returns (Job storage job) {
        job = _jobs[jobId];
        if (job.status == JobStatus.NONE) revert UnknownJob(jobId);
    }

    function _isClosed(JobStatus status) private pure returns (bool) {
        return status == JobStatus.DONE || status == JobStatus.CANCELLED || status == JobStatus.EXPIRED;
    }

    /// @return back what of `due` a lost game withholds: the submitter's, who may claim it without a proof
    function _takeBack(uint256 jobId, address account, uint256 due) private returns (uint256 back) {
        uint256 withheld = _withheld[jobId][account];
        back = due < withheld ? due : withheld;
        if (back == 0) return 0;
        address submitter = _jobs[jobId].submitter;
        _withheld[jobId][account] = withheld - back;
        _credits[jobId][submitter] += back;
        emit PayReturned(jobId, account, back, submitter);
    }

    function _dueByTree(uint256 jobId, address account, uint256 cumulative, bytes32[] calldata proof)
        private
        view
        returns (uint256)
    {
        (, bytes32 root, uint256 cap) = IRounds(rounds).finalRounds(jobId);
        if (root == 0) revert NothingFinal(jobId);
        bytes32 leaf = Hashing.claimLeaf(address(this), jobId, account, cumulative);
        uint256 index = uint256(proof[0]) >> 128;
        uint256 count = uint128(uint256(proof[0]));
        if (!Merkle.verify(root, leaf, index, count, proof[1:])) revert BadProof(account, cumulative);
        if (claims.isHeld(jobId, account)) revert GameOpen(jobId, account);
        uint256 before = _claimedByTree[jobId][account];
        if (cumulative <= before) return 0;
        uint256 left = cap - _jobs[jobId].claimedByTree;
        return cumulative - before < left ? cumulative - before : left;
    }
}
