// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {Ownable} from "@openzeppelin/contracts/access/Ownable.sol";
import {Ownable2Step} from "@openzeppelin/contracts/access/Ownable2Step.sol";
import {IConfig, Params} from "./interfaces/IConfig.sol";
import {IEventLog} from "./libraries/EventLog.sol";
import {TermsCheck} from "./libraries/TermsCheck.sol";
import {Terms} from "./types/Types.sol";

/// @title Parameters behind a delay and bounds.
contract Config is IConfig, Ownable2Step {
    uint16 public constant MAX_PENALTY_BPS = 1_250;
    uint16 public constant MAX_SHARE_BPS = 5_000;
    /// A seat could else buy its auditor's silence with what a game would pay the auditor, and save more.
    uint256 private constant MIN_SHARE_BPS = 2_300;
    uint32 public constant MAX_MIN_WINDOW = 1 days;
    uint32 public constant MAX_MIN_MOVE = 1 hours;
    uint32 public constant MAX_MIN_PUNISHABLE = 3 days;
    uint128 public constant LOWEST_BOND = 80; // an eighth of it is something
    uint128 public constant MAX_MIN_BOND = 1e30;

    /// @inheritdoc IConfig
    address public immutable override token;
    /// @inheritdoc IConfig
    uint64 public immutable override unbondingDelay;
    /// @inheritdoc IConfig
    uint64 public immutable override changeDelay;
    /// @inheritdoc IConfig
    uint256 public immutable override longestGame;
    /// @inheritdoc IConfig
    address public immutable override beacon;
    /// @inheritdoc IConfig
    bool public override paused;
    /// @inheritdoc IConfig
    mapping(address => bool) public override isPolicy;

    Params private _params;
    Params private _proposedParams;
    uint64 private _paramsApplicableAt;
    uint64 private _policyApplicableAt;
    address private _proposedPolicy;
    bool private _isToBeAllowed;

    error OutOfBounds(string name, uint256 value, uint256 lowest, uint256 highest);
    error NothingProposed();
    error TooEarly(uint256 availableAt, uint256 now_);

    constructor(
        address token_,
        address owner_,
        Params memory params_,
        uint64 unbondingDelay_,
        uint64 changeDelay_,
        uint256 longestGame_,
        address beacon_,
        address[] memory policies
    ) Ownable(owner_) {
        _requireBetween("unbondingDelay", unbondingDelay_, 1 hours, 365 days);
        _requireBetween("changeDelay", changeDelay_, 1 hours, 30 days);
        _requireBetween("longestGame", longestGame_, 1, 365 days);
        _requireValid(params_);
        token = token_;
        unbondingDelay = unbondingDelay_;
        changeDelay = changeDelay_;
        longestGame = longestGame_;
        beacon = beacon_;
        _params = params_;
        emit ParamsApplied(params_);
        for (uint256 i = 0; i < policies.length; i++) {
            isPolicy[policies[i]] = true;
            emit PolicySet(policies[i], true);
        }
    }

    /// @inheritdoc IConfig
    function proposeParams(Params calldata params_) external onlyOwner {
        _requireValid(params_);
        _proposedParams = params_;
        _paramsApplicableAt = uint64(block.timestamp) + changeDelay;
        emit ParamsProposed(params_, _paramsApplicableAt);
    }

    /// @inheritdoc IConfig
    function proposePolicy(address policy, bool isAllowed) external onlyOwner {
        (_proposedPolicy, _isToBeAllowed) = (policy, isAllowed);
        _policyApplicableAt = uint64(block.timestamp) + changeDelay;
        emit PolicyProposed(policy, isAllowed, _policyApplicableAt);
    }

    /// @inheritdoc IConfig
    function dropProposals() external onlyOwner {
        _paramsApplicableAt = 0;
        _policyApplicableAt = 0;
        emit ProposalDropped();
    }

    /// @inheritdoc IConfig
    function applyParams() external {
        _requireDue(_paramsApplicableAt);
        _paramsApplicableAt = 0;
        _params = _proposedParams;
        emit ParamsApplied(_params);
    }

    /// @inheritdoc IConfig
    function applyPolicy() external {
        _requireDue(_policyApplicableAt);
        _policyApplicableAt = 0;
        isPolicy[_proposedPolicy] = _isToBeAllowed;
        emit PolicySet(_proposedPolicy, _isToBeAllowed);
    }

    /// @inheritdoc IConfig
    function setPaused(bool paused_) external onlyOwner {
        paused = paused_;
        emit PauseSet(paused_);
    }

    /// @inheritdoc IConfig
    function params() external view returns (Params memory) {
        return _params;
    }

    /// @inheritdoc IConfig
    function admitted(Terms calldata terms) external view returns (Params memory) {
        TermsCheck.requireValid(terms, _params, longestGame);
        return _params;
    }

    /// @inheritdoc IConfig
    function proposedParams() external view returns (Params memory proposed, uint64 applicableAt) {
        return (_proposedParams, _paramsApplicableAt);
    }

    /// @inheritdoc IConfig
    function proposedPolicy() external view returns (address policy, bool isAllowed, uint64 applicableAt) {
        return (_proposedPolicy, _isToBeAllowed, _policyApplicableAt);
    }

    /// @inheritdoc IConfig
    function owner() public view override(IConfig, Ownable) returns (address) {
        return super.owner();
    }

    /// @inheritdoc IConfig
    function logHeads(address[] calldata contracts, uint256[] calldata jobIds)
        external
        view
        returns (bytes32[] memory heads)
    {
        heads = new bytes32[](contracts.length * jobIds.length);
        for (uint256 i = 0; i < heads.length; i++) {
            heads[i] = IEventLog(contracts[i % contracts.length]).logHead(jobIds[i / contracts.length]);
        }
    }

    function _requireValid(Params memory params_) private pure {
        _requireBetween("penaltyBps", params_.penaltyBps, 1, MAX_PENALTY_BPS);
        _requireBetween("winnerShareBps", params_.winnerShareBps, MIN_SHARE_BPS, MAX_SHARE_BPS);
        _requireBetween("minWindow", params_.minWindow, 1, MAX_MIN_WINDOW);
        _requireBetween("minMove", params_.minMove, 1, MAX_MIN_MOVE);
        _requireBetween("minPunishable", params_.minPunishable, 1, MAX_MIN_PUNISHABLE);
        _requireBetween("minProviderBond", params_.minProviderBond, LOWEST_BOND, MAX_MIN_BOND);
        _requireBetween("minVerifierBond", params_.minVerifierBond, LOWEST_BOND, MAX_MIN_BOND);
    }

    function _requireBetween(string memory name, uint256 value, uint256 lowest, uint256 highest) private pure {
        if (value < lowest || value > highest) revert OutOfBounds(name, value, lowest, highest);
    }

    function _requireDue(uint64 applicableAt) private view {
        if (applicableAt == 0) revert NothingProposed();
        if (block.timestamp < applicableAt) revert TooEarly(applicableAt, block.timestamp);
    }
}
