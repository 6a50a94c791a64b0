// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {IERC20} from "@openzeppelin/contracts/token/ERC20/IERC20.sol";
import {IERC20Permit} from "@openzeppelin/contracts/token/ERC20/extensions/IERC20Permit.sol";
import {SafeERC20} from "@openzeppelin/contracts/token/ERC20/utils/SafeERC20.sol";
import {Math} from "@openzeppelin/contracts/utils/math/Math.sol";
import {ReentrancyGuard} from "@openzeppelin/contracts/utils/ReentrancyGuard.sol";
import {IConfig} from "./interfaces/IConfig.sol";
import {ICustody, Slash} from "./interfaces/ICustody.sol";
import {IOwners} from "./interfaces/IOwners.sol";
import {IStakes} from "./interfaces/IStakes.sol";
import {EventLog} from "./libraries/EventLog.sol";
import {Pull} from "./libraries/Pull.sol";
import {Wired} from "./libraries/Wired.sol";
import "./types/Types.sol";

/// @title Custody of stakes. Always: balance ≥ sum of active + unbonding + unburnt, and locked ≤
/// active for every account.
contract Stakes is IStakes, ICustody, EventLog, Wired, ReentrancyGuard {
    using SafeERC20 for IERC20;

    struct Account {
        uint128 active; // includes `locked`
        uint128 locked;
        uint128 unbonding; // tokens of the current unbond pool
        uint64 generation; // of the unbond pool: a pool slashed to nothing, or nearly, starts anew
        uint256 unbondShares; // shares of the pool; a slash lowers the tokens, not the shares
    }

    struct Unbond {
        uint256 shares;
        uint64 generation;
        uint64 availableAt;
    }

    address public constant BURN = address(0xdead);
    uint16 public constant MAX_SHARE_BPS = 5_000;
    uint256 private constant BPS = 10_000;
    uint256 private constant MAX_SHARES_PER_TOKEN = 2 ** 127; // tokens are below 2^128, so shares fit a word

    IConfig public immutable config;
    IERC20 public immutable token;
    uint64 public immutable unbondingDelay;
    address public members;
    IOwners public jobs; // which knows the accounts' owners
    uint256 public unburnt; // of slashes; nobody's, until `burn` sends it away

    mapping(address account => mapping(Role => Account)) private _accounts;
    mapping(bytes32 key => uint256 amount) private _locks;
    mapping(bytes32 key => Unbond) private _unbonds;
    mapping(bytes32 faultId => bool) public isSlashed;
    uint256 private _nextUnbond;

    error NotAllowed(address caller);
    error NotItsOwner(address caller, address owner);
    error ZeroAmount();
    error InsufficientStake(address account, Role role, uint256 free, uint256 needed);
    error LockExists(bytes32 lockId);
    error UnknownUnbond(address account, uint256 id);
    error StillUnbonding(uint256 availableAt, uint256 now_);
    error FaultUsed(bytes32 faultId);
    error ShareTooLarge(uint256 bps, uint256 highest);

    constructor(address config_) {
        config = IConfig(config_);
        token = IERC20(config.token());
        unbondingDelay = config.unbondingDelay();
    }

    function wire(address members_, address jobs_) external wiring {
        (members, jobs) = (members_, IOwners(jobs_));
    }

    modifier onlyCustodian() {
        if (msg.sender != members) revert NotAllowed(msg.sender);
        _;
    }

    modifier onlyOwnerOf(address account) {
        address owner = jobs.ownerOf(account);
        if (msg.sender != owner) revert NotItsOwner(msg.sender, owner);
        _;
    }

    /// @inheritdoc IStakes
    function deposit(Role role, uint256 amount) external nonReentrant {
        _deposit(msg.sender, role, amount);
    }

    /// @inheritdoc IStakes
    function depositFor(address account, Role role, uint256 amount) external nonReentrant onlyOwnerOf(account) {
        _deposit(account, role, amount);
    }

    /// @inheritdoc IStakes
    /// @dev Someone may have spent the signature already; then the allowance is there and the
    /// deposit goes on.
    function depositWithPermit(Role role, uint256 amount, uint256 deadline, uint8 v, bytes32 r, bytes32 s)
        external
        nonReentrant
    {
        try IERC20Permit(address(token)).permit(msg.sender, address(this), amount, deadline, v, r, s) {} catch {}
        _deposit(msg.sender, role, amount);
    }

    /// @inheritdoc IStakes
    function unbond(address account, Role role, uint256 amount) external onlyOwnerOf(account) returns (uint256 id) {
        Account storage a = _accounts[account][role];
        if (amount == 0) revert ZeroAmount();
        uint256 free = a.active - a.locked;
        if (free < amount) revert InsufficientStake(account, role, free, amount);
        id = _nextUnbond++;
        uint256 sharesDown = a.unbonding == 0 ? amount : Math.mulDiv(amount, a.unbondShares, a.unbonding);
        uint64 availableAt = uint64(block.timestamp) + unbondingDelay;
        _unbonds[_unbondKey(account, role, id)] = Unbond(sharesDown, a.generation, availableAt);
        a.active -= uint128(amount);
        a.unbonding += uint128(amount);
        a.unbondShares += sharesDown;
        _log(0, abi.encode(UnbondStarted.selector, account), abi.encode(role, id, amount, availableAt));
    }

    /// @inheritdoc IStakes
    /// @dev To the caller: who accepted an account has shown that it can send.
    function withdraw(address account, Role role, uint256 id) external nonReentrant onlyOwnerOf(account) {
        bytes32 key = _unbondKey(account, role, id);
        Unbond memory entry = _unbonds[key];
        if (entry.availableAt == 0) revert UnknownUnbond(account, id);
        if (block.timestamp <= entry.availableAt) revert StillUnbonding(entry.availableAt, block.timestamp);
        delete _unbonds[key];
        uint256 amount = _takeFromPoolDown(_accounts[account][role], entry);
        _log(0, abi.encode(Withdrawn.selector, account), abi.encode(role, id, amount));
        if (amount > 0) token.safeTransfer(msg.sender, amount);
    }

    /// @inheritdoc ICustody
    function lock(address account, Role role, bytes32 lockId, uint256 amount) external onlyCustodian {
        Account storage a = _accounts[account][role];
        bytes32 key = _lockKey(account, role, lockId);
        if (_locks[key] != 0) revert LockExists(lockId);
        uint256 free = a.active - a.locked;
        if (free < amount) revert InsufficientStake(account, role, free, amount);
        _locks[key] = amount;
        a.locked += uint128(amount);
        _log(0, abi.encode(Locked.selector, account), abi.encode(role, lockId, amount));
    }

    /// @inheritdoc ICustody
    function retain(address account, Role role, bytes32 lockId, uint256 amount) external onlyCustodian {
        Account storage a = _accounts[account][role];
        _locks[_lockKey(account, role, lockId)] += amount;
        (a.active, a.locked) = (a.active + uint128(amount), a.locked + uint128(amount));
        _log(0, abi.encode(Deposited.selector, account), abi.encode(role, amount));
        _log(0, abi.encode(Locked.selector, account), abi.encode(role, lockId, amount));
    }

    /// @inheritdoc ICustody
    function unlock(address account, Role role, bytes32 lockId) external onlyCustodian {
        bytes32 key = _lockKey(account, role, lockId);
        uint256 amount = _locks[key];
        if (amount == 0) return;
        delete _locks[key];
        _accounts[account][role].locked -= uint128(amount);
        _log(0, abi.encode(Unlocked.selector, account), abi.encode(role, lockId, amount));
    }

    /// @inheritdoc ICustody
    /// @dev It calls nobody, and is taken within any call here: else a token that calls back lets a
    /// holder end its own game within a deposit, where the slash would revert and the game ends all
    /// the same.
    function slash(Slash calldata order) external onlyCustodian returns (uint256 taken) {
        if (isSlashed[order.faultId]) revert FaultUsed(order.faultId);
        if (order.beneficiaryBps > MAX_SHARE_BPS) revert ShareTooLarge(order.beneficiaryBps, MAX_SHARE_BPS);
        isSlashed[order.faultId] = true;
        taken = _take(order);
        uint256 shared = order.beneficiary == address(0) ? 0 : _min(taken, order.shared);
        uint256 shareDown = shared * order.beneficiaryBps / BPS;
        if (shareDown > 0) _accounts[order.beneficiary][order.beneficiaryRole].active += uint128(shareDown);
        _log(
            0,
            abi.encode(Slashed.selector, order.account, order.beneficiary),
            abi.encode(order.role, order.faultId, taken, shareDown, taken - shareDown)
        );
        unburnt += taken - shareDown;
    }

    /// @notice Sends what slashes took to the sink. Anyone; apart from the slash, so that no sink
    /// can make that revert.
    function burn() external nonReentrant {
        uint256 amount = unburnt;
        unburnt = 0;
        if (amount > 0) token.safeTransfer(BURN, amount);
    }

    /// @inheritdoc IStakes
    function stakeOf(address account, Role role)
        external
        view
        returns (uint256 active, uint256 locked, uint256 unbonding)
    {
        Account storage a = _accounts[account][role];
        return (a.active, a.locked, a.unbonding);
    }

    /// @inheritdoc ICustody
    function lockOf(address account, Role role, bytes32 lockId) external view returns (uint256) {
        return _locks[_lockKey(account, role, lockId)];
    }

    function _deposit(address account, Role role, uint256 amount) private {
        if (amount == 0 || amount > type(uint128).max) revert ZeroAmount();
        _accounts[account][role].active += uint128(amount);
        _log(0, abi.encode(Deposited.selector, account), abi.encode(role, amount));
        Pull.exactly(token, amount);
    }

    function _take(Slash calldata order) private returns (uint256 taken) {
        Account storage a = _accounts[order.account][order.role];
        bytes32 key = _lockKey(order.account, order.role, order.lockId);
        uint256 fromLock = _min(order.amount, _locks[key]);
        _locks[key] -= fromLock;
        a.locked -= uint128(fromLock);
        uint256 fromActive = _min(order.amount, a.active - a.locked);
        a.active -= uint128(fromActive);
        uint256 fromUnbonding = _min(order.amount - fromActive, a.unbonding);
        if (fromUnbonding > 0) {
            a.unbonding -= uint128(fromUnbonding);
            if (a.unbondShares / MAX_SHARES_PER_TOKEN >= a.unbonding) {
                a.active += a.unbonding; // nothing, but after several penalties of nearly everything
                _endPool(a);
            }
        }
        return fromActive + fromUnbonding;
    }

    /// @return amount the entry's part of the pool, rounded down; the last entry takes all that is
    /// left
    function _takeFromPoolDown(Account storage a, Unbond memory entry) private returns (uint256 amount) {
        if (entry.generation != a.generation) return 0;
        amount = entry.shares == a.unbondShares ? a.unbonding : Math.mulDiv(entry.shares, a.unbonding, a.unbondShares);
        a.unbonding -= uint128(amount);
        a.unbondShares -= entry.shares;
        if (a.unbonding == 0) _endPool(a);
    }

    /// Shares of an ended pool are worth nothing.
    function _endPool(Account storage a) private {
        (a.generation, a.unbonding, a.unbondShares) = (a.generation + 1, 0, 0);
    }

    function _lockKey(address account, Role role, bytes32 lockId) private pure returns (bytes32) {
        return keccak256(abi.encode(account, role, lockId));
    }

    function _unbondKey(address account, Role role, uint256 id) private pure returns (bytes32) {
        return keccak256(abi.encode(account, role, id));
    }

    function _min(uint256 a, uint256 b) private pure returns (uint256) {
        return a < b ? a : b;
    }
}
