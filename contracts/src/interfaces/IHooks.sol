// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import "../types/Types.sol";
import {Params} from "./IConfig.sol";

/// What the boundary between two rounds does to the members.
struct Boundary {
    uint256 rejectedSeats;
    uint256 missedSeats; // two misses in a row
    uint256 missedVerifiers; // absent twice in a row
    uint256 queuedBefore; // only providers queued before this block may sit down
}

/// @title What the contracts ask of the rounds contract.
interface IRoundsHooks {
    /// @notice Only the escrow, when a job is created.
    function open(uint256 jobId, Terms calldata terms, Params calldata params, address policy) external;
    /// @notice Only the escrow. Closes a waiting job at once, any other at its next boundary.
    function cancel(uint256 jobId) external;
    function phaseOf(uint256 jobId) external view returns (Phase);
    /// @return unix seconds when the job's last round ended; 0 while it runs
    function closedAt(uint256 jobId) external view returns (uint64);
    /// @return rounds that have settled, final or not
    function settledRounds(uint256 jobId) external view returns (uint32);
}

/// What a claim about a settled round is proved against.
struct SettledFacts {
    bytes32 facts; // Hashing.roundFacts
    uint256 accepted;
    uint64 disputeUntil;
    uint16 trainAttempt;
    bool isSettled;
}

/// @title What the contract that holds claims asks of the rounds contract.
interface IRoundsFacts {
    function settledFacts(uint256 jobId, uint32 round) external view returns (SettledFacts memory);
    /// @return the part of a slashed bond, in basis points, that whoever brought it about gets
    function finderShareOf(uint256 jobId) external view returns (uint16);
    /// @return rounds that are settled, and the one that runs
    function roundsBegun(uint256 jobId) external view returns (uint256);
}

/// @title What it asks of the roster.
interface IRosterFalls {
    /// @notice Unseats who lost a game, for good: at once while the job waits for members, else at the next boundary. Never reverts.
    function expel(uint256 jobId, address account) external;
}

/// @title What it asks of the escrow.
interface IJobsFalls {
    /// @notice So much of what claims trees give the account goes back to the submitter instead, as a credit.
    function withhold(uint256 jobId, address account, uint256 amount) external;
}

/// @title What the rounds contract asks of the roster.
interface IRosterHooks {
    /// @notice Unseats, lets leavers go, then fills free seats from the waiting list.
    function applyBoundary(uint256 jobId, Boundary calldata boundary) external;
    /// @notice Fills free seats from the whole waiting list.
    function admitAll(uint256 jobId) external;
    /// @return seats and verifiers taken by someone new since the last call
    function takeFresh(uint256 jobId) external returns (uint256 seats, uint256 verifiers);
    /// @notice A bond is not released while a fault of its owner waits for its punishment.
    function markFault(uint256 jobId, Role role, address account) external;
    function clearFault(uint256 jobId, Role role, address account) external;
    function membersOf(uint256 jobId) external view returns (uint256 seated, uint256 verifiers, uint256 ready);
    /// @return tenure differs for every holder a seat ever had; 0 for an empty seat
    function tenureOf(uint256 jobId, uint16 seat) external view returns (uint32 tenure);
}

/// @title What the rounds contract asks of the escrow.
interface IJobsHooks {
    function setStatus(uint256 jobId, JobStatus status, string calldata reason) external;
    /// @notice Sets aside what a round that ran out of attempts still owes.
    function reserveCredits(uint256 jobId, uint256 amount) external;
    function credit(uint256 jobId, address account, uint256 amount) external;
}
