// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.24;

import {IRoundsEvents} from "./IRoundsEvents.sol";
import "../types/Types.sol";

/// @title The round state machine: who may say what, when, and what follows from it.
/// @notice Anyone may call `poke`, `settle`, `finalise` and `punish`; they only do what the rules already say.
interface IRounds is IRoundsEvents {
    /// @notice Moves a job whose deadline has passed, or whose beacon block is known, to its next phase.
    /// @dev Reverts with NothingToDo when nothing is due.
    function poke(uint256 jobId) external;
    function commit(uint256 jobId, uint32 round, uint16 attempt, bytes32 commitment) external;
    function reveal(uint256 jobId, uint32 round, uint16 attempt, Reveal calldata reveal_) external;
    /// @notice One ballot a verifier and attempt, and from half time on one supplement to it that only adds.
    function ballot(
        uint256 jobId,
        uint32 round,
        uint16 attempt,
        Finding[] calldata findings,
        Report[] calldata reports,
        bytes32 replayRoot
    ) external;
    /// @notice One vote a verifier and attempt. Bit i speaks of report i; the three maps are disjoint.
    function vote(uint256 jobId, uint32 round, uint16 attempt, uint256 agree, uint256 disagree, uint256 cannotFetch)
        external;
    /// @param proof what the job's attestation policy asks for; empty for counted transactions
    function attest(uint256 jobId, uint32 round, uint16 attempt, bytes32 verdictHash, bytes calldata proof) external;
    function settle(uint256 jobId, Verdict calldata verdict) external;
    function finalise(uint256 jobId) external;
    function punish(uint256 jobId, uint32 round, Offence offence, uint16 index) external;
    /// @notice Credits one seat (or verifier) of a round that ran out of attempts. See PROTOCOL, void.
    function credit(uint256 jobId, uint32 round, Role role, uint16 index) external;

    function state(uint256 jobId) external view returns (RoundState memory);
    function lastOptimiserRoot(uint256 jobId, uint16 seat) external view returns (bytes32);
    function finalRounds(uint256 jobId)
        external
        view
        returns (uint32 count, bytes32 claimsRoot, uint256 cumulativeTotal);
    function commitmentOf(
        uint256 jobId,
        uint32 round,
        uint16 attempt,
        uint16 seat,
        address sender,
        Reveal calldata reveal_
    ) external view returns (bytes32);
    function verdictHash(uint256 jobId, uint32 round, uint16 attempt, Verdict calldata verdict)
        external
        view
        returns (bytes32);
}
