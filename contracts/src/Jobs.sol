// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {IERC20} from "@openzeppelin/contracts/token/ERC20/IERC20.sol";
import {SafeERC20} from "@openzeppelin/contracts/token/ERC20/utils/SafeERC20.sol";
import {ReentrancyGuard} from "@openzeppelin/contracts/utils/ReentrancyGuard.sol";
import {IConfig, Params} from "./interfaces/IConfig.sol";
import {Earned, IAuditsHooks, IJobsHooks, IMembersHooks, IRoundsHooks} from "./interfaces/IHooks.sol";
import {Due, Escrow, IJobs} from "./interfaces/IJobs.sol";
import {IRounds} from "./interfaces/IRounds.sol";
import {IGame} from "./judge/IClaims.sol";
import {Draws} from "./libraries/Draws.sol";
import {Hashing} from "./libraries/Hashing.sol";
import {Pull} from "./libraries/Pull.sol";
import {Owners} from "./Owners.sol";
import {HolderWord} from "./types/Holders.sol";
import "./types/Types.sol";

/// @title Escrow. Always: funded = claimed + refunded + burnt + balance, for every job.
/// @notice Nobody signs money: what a holder earned is counted from bits of settled rounds.
/// @dev It is created before the contracts that it asks, at whose addresses they have to come: read
/// from its code, they cost a claim nothing. Each of them looks whether it stands where the escrow
/// expects it.
contract Jobs is IJobs, IJobsHooks, Owners, ReentrancyGuard {
    using SafeERC20 for IERC20;

    struct Job {
        address submitter;
        uint32 burntTo; // rounds whose lost pay is burnt
        uint128 left; // funded, and neither claimed, refunded nor burnt; beside what a claim reads with it
        uint128 segmentPay; // wei for one segment
        uint128 signFee; // as in the terms, where the two lie in different words
        uint128 dutyFee;
        uint128 funded;
        uint128 refunded;
        uint128 burnt;
    }

    uint256 public constant MAX_CID_BYTES = 128;
    uint256 private constant COMMITTEE = 32;
    address public constant BURN = address(0xdead);

    /// @inheritdoc IJobs
    IConfig public immutable override config;
    IERC20 public immutable token;
    address public immutable rounds;
    address public immutable members;
    address public immutable audits;
    IGame public immutable game;
    uint256 public jobCount;
    uint256 public unburnt; // of all jobs; nobody's, until `sink` sends it away

    mapping(uint256 jobId => Job) private _jobs;
    mapping(uint256 jobId => Terms) private _terms;
    mapping(uint256 jobId => Params) private _params;
    mapping(bytes32 set => bool) public isSlashClosed; // all that it lost is burnt
    /// @notice Wei that the account got by contests or by showing a key, and has not taken.
    /// @custom:caller anyone
    mapping(uint256 jobId => mapping(address account => uint256)) public creditOf;
    /// @inheritdoc IJobs
    mapping(address account => uint256) public keptOf;

    error UnknownJob(uint256 jobId);
    error Paused();
    error PolicyNotAllowed(address policy);
    error CidTooLong(uint256 length, uint256 highest);
    error Underfunded(uint256 given, uint256 needed);
    error TooMuch(uint256 amount, uint256 highest);
    error WrongStatus(uint256 jobId, JobStatus status);
    error OnlySubmitter(address caller, address submitter);
    error NotAllowed(address caller);
    error NoSuchRounds(uint32 from, uint32 to, uint32 last);
    error NotFinal(uint32 to, uint256 openPosition);
    error NothingLeft(uint256 amount, uint256 left);

    constructor(address config_, address rounds_, address members_, address audits_, address game_) {
        config = IConfig(config_);
        token = IERC20(config.token());
        (rounds, members, audits, game) = (rounds_, members_, audits_, IGame(game_));
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
        Params memory params = config.admitted(terms);
        if (funding < budget(terms)) revert Underfunded(funding, budget(terms));
        if (funding > type(uint128).max) revert TooMuch(funding, type(uint128).max);

        jobId = ++jobCount;
        Job storage job = _jobs[jobId];
        (job.submitter, job.funded, job.left) = (msg.sender, uint128(funding), uint128(funding));
        (_terms[jobId], _params[jobId]) = (terms, params);
        (job.segmentPay, job.signFee, job.dutyFee) = (terms.segmentPay, terms.signFee, terms.dutyFee);
        IRoundsHooks(rounds).open(jobId, terms, policy);
        bytes32 termsHash = keccak256(abi.encode(terms));
        _log(
            0,
            abi.encode(JobCreated.selector, jobId, msg.sender),
            abi.encode(specDigest, specCid, termsHash, terms, params, policy, funding)
        );
        Pull.exactly(token, funding);
    }

    /// @inheritdoc IJobs
    function fund(uint256 jobId, uint256 amount) external nonReentrant {
        Job storage job = _job(jobId);
        (JobStatus status,,) = IRoundsHooks(rounds).statusOf(jobId);
        if (_isClosed(status)) revert WrongStatus(jobId, status);
        uint256 highest = type(uint128).max - job.funded;
        if (amount > highest) revert TooMuch(amount, highest);
        job.funded += uint128(amount);
        job.left += uint128(amount);
        _log(jobId, abi.encode(JobFunded.selector, jobId, msg.sender), abi.encode(amount));
        Pull.exactly(token, amount);
    }

    /// @inheritdoc IJobs
    function cancel(uint256 jobId) external {
        Job storage job = _job(jobId);
        (JobStatus status,,) = IRoundsHooks(rounds).statusOf(jobId);
        if (_isClosed(status)) revert WrongStatus(jobId, status);
        if (msg.sender != job.submitter) revert OnlySubmitter(msg.sender, job.submitter);
        _log(jobId, abi.encode(CancelRequested.selector, jobId), "");
        IRoundsHooks(rounds).cancel(jobId);
    }

    /// @inheritdoc IJobs
    function claim(uint256 jobId, Role role, uint32 id, uint32 to) external nonReentrant {
        (address account, uint256 amount) = _claim(Due(jobId, role, id, to), true);
        _pay(account, amount);
    }

    /// @inheritdoc IJobs
    function claimMany(Due[] calldata dues) external nonReentrant {
        (address account, uint256 amount) = (address(0), 0);
        for (uint256 i = 0; i < dues.length; i++) {
            (address next, uint256 pay) = _claim(dues[i], false);
            if (next != account) {
                _pay(account, amount);
                (account, amount) = (next, 0);
            }
            amount += pay;
        }
        _pay(account, amount);
    }

    /// @inheritdoc IJobs
    function claimCredit(uint256 jobId, address account) external nonReentrant {
        uint256 amount = creditOf[jobId][account];
        creditOf[jobId][account] = 0;
        _spend(_jobs[jobId], amount);
        _log(jobId, abi.encode(CreditClaimed.selector, jobId, account), abi.encode(amount));
        _pay(account, amount);
    }

    /// @inheritdoc IJobs
    function collect(address account) external nonReentrant {
        uint256 amount = keptOf[account];
        keptOf[account] = 0;
        _log(0, abi.encode(Collected.selector, account), abi.encode(amount));
        if (amount > 0) token.safeTransfer(payeeOf(account), amount);
    }

    /// @inheritdoc IJobs
    function burn(uint256 jobId, uint32 to) external {
        Job storage job = _job(jobId);
        uint32 from = job.burntTo;
        if (from >= to) revert NoSuchRounds(from, to, type(uint32).max);
        uint256 lost = IRoundsHooks(rounds).segmentsUnpaid(jobId, from, to) * _jobs[jobId].segmentPay;
        job.burntTo = to;
        _burn(job, lost);
        _log(jobId, abi.encode(Burnt.selector, jobId), abi.encode(to, lost));
    }

    /// @inheritdoc IJobs
    function refund(uint256 jobId) external nonReentrant {
        Job storage job = _job(jobId);
        uint256 amount = refundable(jobId);
        job.refunded += uint128(amount);
        job.left -= uint128(amount);
        _log(jobId, abi.encode(Refunded.selector, jobId, job.submitter), abi.encode(amount));
        _pay(job.submitter, amount);
    }

    /// @inheritdoc IJobs
    function sink() external nonReentrant {
        uint256 amount = unburnt;
        unburnt = 0;
        if (amount > 0) token.safeTransfer(BURN, amount);
    }

    /// @inheritdoc IJobsHooks
    function credit(uint256 jobId, address account, uint256 amount) external {
        if (msg.sender != audits) revert NotAllowed(msg.sender);
        creditOf[jobId][account] += amount;
        _log(jobId, abi.encode(Credited.selector, jobId, account), abi.encode(amount));
    }

    /// @inheritdoc IJobs
    function budget(Terms calldata t) public pure returns (uint256) {
        return t.rounds * _roundBudget(t) + _spare(t, Draws.mostDuties(t));
    }

    /// @inheritdoc IJobs
    function refundable(uint256 jobId) public view returns (uint256) {
        Job storage job = _jobs[jobId];
        (JobStatus status, uint32 settled, Earned memory earned) = IRoundsHooks(rounds).statusOf(jobId);
        Terms memory t = _terms[jobId];
        bool isClosed = _isClosed(status);
        if (isClosed && job.burntTo >= settled && IMembersHooks(members).openSlashes(jobId) == 0) {
            if (block.timestamp >= IRounds(rounds).absoluteEnd(jobId) + t.claimSeconds) return job.left;
        }
        uint256 owed = earned.segments * _jobs[jobId].segmentPay + uint256(earned.signatures) * t.signFee
            + uint256(earned.duties) * t.dutyFee;
        if (!isClosed) owed += (t.rounds - settled) * _roundBudget(t) + _spare(t, earned.dutiesLeft);
        uint256 kept = uint256(job.funded) - job.refunded;
        return kept > owed ? kept - owed : 0;
    }

    /// @inheritdoc IJobs
    function termsOf(uint256 jobId) external view returns (Terms memory) {
        _job(jobId);
        return _terms[jobId];
    }

    /// @inheritdoc IJobs
    function paramsOf(uint256 jobId) external view returns (Params memory) {
        return _params[jobId];
    }

    /// @inheritdoc IJobs
    function submitterOf(uint256 jobId) external view returns (address) {
        return _jobs[jobId].submitter;
    }

    /// @inheritdoc IJobs
    function escrowOf(uint256 jobId) external view returns (Escrow memory e) {
        Job storage job = _jobs[jobId];
        (e.funded, e.refunded, e.burnt, e.balance) = (job.funded, job.refunded, job.burnt, job.left);
        e.claimed = e.funded - e.refunded - e.burnt - e.balance; // credits included
    }

    /// @inheritdoc IJobs
    function claimedTo(uint256 jobId, Role role, uint32 id) external view returns (uint32) {
        return IMembersHooks(members).holderOf(jobId, role, id).claimedTo;
    }

    function _job(uint256 jobId) private view returns (Job storage job) {
        job = _jobs[jobId];
        if (job.submitter == address(0)) revert UnknownJob(jobId);
    }

    function _isClosed(JobStatus status) private pure returns (bool) {
        return status == JobStatus.DONE || status == JobStatus.CANCELLED || status == JobStatus.EXPIRED;
    }

    /// @param isAlone whether it reverts where there is nothing to claim any more
    /// @return account that is to get it
    function _claim(Due memory due, bool isAlone) private returns (address account, uint256 amount) {
        (uint256 jobId, uint32 to) = (due.jobId, due.to);
        HolderWord m = IMembersHooks(members).noteClaim(jobId, due.role, due.id, to);
        bytes32 set = Hashing.setOf(jobId, due.role, due.id);
        uint32 from = m.claimedToIn() > m.fromIn() ? m.claimedToIn() : m.fromIn();
        bool endsSlash = m.isSlashedIn() && due.role == Role.PROVIDER && !isSlashClosed[set] && _isLast(jobId, m, to);
        account = m.accountIn();
        if (to > m.toIn() || from > to || (from == to && !endsSlash)) {
            if (isAlone || to > m.toIn()) revert NoSuchRounds(from, to, m.toIn());
            return (account, 0);
        }
        Job storage job = _jobs[jobId];
        uint256 lost = 0;
        if (due.role == Role.PROVIDER) (amount, lost) = _payOfSeat(job, due, set, m, from);
        else amount = _payOfMember(job, jobId, m, from, to);
        if (endsSlash) {
            isSlashClosed[set] = true;
            IMembersHooks(members).closeSlash(jobId);
        }
        _spend(job, amount);
        if (lost > 0) _burn(job, lost);
        _logClaimed(due, account, amount, lost);
        if (due.role == Role.PROVIDER && amount > 0) amount -= _retain(due, amount);
    }

    /// @dev It leaves the escrow for the holder's bond, which goes home when nothing can take it any more.
    /// @return retained wei of the holder's pay
    function _retain(Due memory due, uint256 amount) private returns (uint256 retained) {
        address custody;
        (custody, retained) = IMembersHooks(members).retain(due.jobId, due.id, amount);
        if (retained > 0) token.safeTransfer(custody, retained);
    }

    function _logClaimed(Due memory due, address account, uint256 amount, uint256 lost) private {
        bytes memory data = abi.encode(due.role, due.to, amount, lost);
        _log(due.jobId, abi.encode(Claimed.selector, due.jobId, account, due.id), data);
    }

    /// @return whether no round of a holder comes after those before `to`
    function _isLast(uint256 jobId, HolderWord m, uint32 to) private view returns (bool) {
        if (to == m.toIn()) return true;
        (JobStatus status, uint32 settled,) = IRoundsHooks(rounds).statusOf(jobId);
        return _isClosed(status) && to == settled;
    }

    /// @dev Of a job whose rest was refunded there is nothing to claim: another job's tokens are
    /// not its own.
    function _spend(Job storage job, uint256 amount) private {
        uint256 left = job.left;
        if (amount > left) revert NothingLeft(amount, left);
        job.left = uint128(left - amount);
    }

    /// @dev What a payee cannot be sent waits here: a slash is closed, and the escrow of a submitter
    /// on the token's blocklist leaves the job, all the same. Another payee collects it.
    function _pay(address account, uint256 amount) private {
        if (amount == 0 || token.trySafeTransfer(payeeOf(account), amount)) return;
        keptOf[account] += amount;
        _log(0, abi.encode(Kept.selector, account), abi.encode(amount));
    }

    function _burn(Job storage job, uint256 amount) private {
        uint256 left = job.left;
        if (amount > left) amount = left;
        (job.left, job.burnt) = (uint128(left - amount), job.burnt + uint128(amount));
        unburnt += amount;
    }

    /// @dev A game about an earlier round may still take a later one.
    function _payOfSeat(Job storage job, Due memory due, bytes32 set, HolderWord m, uint32 from)
        private
        view
        returns (uint256 amount, uint256 lost)
    {
        if (game.openGames(set) != 0) {
            uint256 open = uint256(game.lowestOpen(set));
            if (open < uint256(Hashing.positionOf(set, due.to))) revert NotFinal(due.to, open);
        }
        uint32 lostFrom = type(uint32).max;
        if (m.isSlashedIn()) lostFrom = IMembersHooks(members).lostFrom(due.jobId, Role.PROVIDER, due.id);
        (amount, lost) = IRoundsHooks(rounds).segmentsPaid(due.jobId, m.indexIn(), from, due.to, lostFrom);
        uint256 pay = job.segmentPay;
        return (amount * pay, lost * pay);
    }

    function _payOfMember(Job storage job, uint256 jobId, HolderWord m, uint32 from, uint32 to)
        private
        view
        returns (uint256)
    {
        uint256 signatures = IRoundsHooks(rounds).signaturesOf(jobId, m.indexIn(), from, to);
        return signatures * job.signFee + IAuditsHooks(audits).dutiesOf(jobId, m.accountIn(), from, to) * job.dutyFee;
    }

    /// @param duties that seeds may still draw
    /// @return wei for them, and for one committee more
    function _spare(Terms memory t, uint256 duties) private pure returns (uint256) {
        uint256 committee = t.slots < COMMITTEE ? t.slots : COMMITTEE;
        return duties * t.dutyFee + committee * t.signFee;
    }

    /// @return wei that a round costs at most, but for the audits that its seed draws: of the
    /// excluded one is audited in any case
    function _roundBudget(Terms memory t) private pure returns (uint256) {
        uint256 committee = t.slots < COMMITTEE ? t.slots : COMMITTEE;
        uint256 pay = uint256(t.steps / t.segmentSteps) * t.segmentPay;
        return t.seats * pay + committee * t.signFee + (t.f == 0 ? 0 : t.dutyFee);
    }
}
