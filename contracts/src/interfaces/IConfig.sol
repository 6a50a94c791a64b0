// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {Terms} from "../types/Types.sol";

/// Parameters that a job copies when it is created. Shares and penalties are in basis points.
struct Params {
    uint16 penaltyBps; // of a bond, for a first missed duty
    uint16 winnerShareBps; // of a slashed bond, to whoever won the game
    uint32 minWindow; // seconds that no window of a job is below
    uint32 minMove; // nor what a game leaves free for each move
    uint32 minPunishable; // nor either side's allowance in a game: so long a chain may take nobody's transaction
    uint128 minProviderBond;
    uint128 minVerifierBond;
}

/// @title The few things an owner may change, and the little that it can do with them.
/// @notice The owner can: change parameters of jobs not yet created, after a public delay and
/// within fixed bounds; allow further attestation policies, after the same delay; pause new jobs.
/// It cannot touch money, open jobs, exits or delays.
interface IConfig {
    event ParamsProposed(Params params, uint64 applicableAt);
    event ParamsApplied(Params params);
    event PolicyProposed(address policy, bool isAllowed, uint64 applicableAt);
    event PolicySet(address policy, bool isAllowed);
    event ProposalDropped();
    event PauseSet(bool paused);

    /// @custom:caller the network's owner
    function proposeParams(Params calldata proposed) external;
    /// @notice Allows a policy, or takes one back: no new job may name it then, and jobs that do go
    /// on with it.
    /// @custom:caller the network's owner
    function proposePolicy(address policy, bool isAllowed) external;
    /// @custom:caller the network's owner
    function dropProposals() external;
    /// @notice Anyone, once the delay has passed.
    /// @custom:caller anyone, once
    function applyParams() external;
    /// @custom:caller anyone, once
    function applyPolicy() external;
    /// @notice Stops new jobs. Everything in jobs that are open goes on.
    /// @custom:caller the network's owner
    function setPaused(bool paused_) external;

    /// @custom:caller anyone
    function owner() external view returns (address);
    function token() external view returns (address);
    /// @custom:caller anyone
    function paused() external view returns (bool);
    /// @custom:caller anyone
    function params() external view returns (Params memory);
    /// @notice What is proposed and from when on `applyParams` takes it; that second is 0 where
    /// nothing is.
    /// @custom:caller anyone
    function proposedParams() external view returns (Params memory proposed, uint64 applicableAt);
    /// @custom:caller anyone
    function proposedPolicy() external view returns (address policy, bool isAllowed, uint64 applicableAt);
    /// @custom:caller anyone
    function isPolicy(address policy) external view returns (bool);
    /// @notice Seconds between asking for stake back and getting it; fixed at deployment.
    function unbondingDelay() external view returns (uint64);
    /// @custom:caller anyone
    function changeDelay() external view returns (uint64);
    /// @notice Seconds that no game of the judge exceeds; fixed at deployment.
    function longestGame() external view returns (uint256);
    /// @notice Where draws come from (`IBeacon`); fixed at deployment.
    function beacon() external view returns (address);
    /// @notice Reverts where the contracts take no such terms.
    /// @return the parameters of this moment
    function admitted(Terms calldata terms) external view returns (Params memory);
    /// @notice The heads of logs (`IEventLog.logHead`), of all contracts for the first job, then for
    /// the second, and so on: one question for who compares logs with the state.
    function logHeads(address[] calldata contracts, uint256[] calldata jobIds) external view returns (bytes32[] memory);
}
