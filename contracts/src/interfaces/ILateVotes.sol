// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import "../types/Types.sol";

/// What shows that a seat's update was available after all.
struct Having {
    RoundRecord record;
    RoundRecord next; // of the next round, if that is settled; else ignored
    bytes32 committeeSeed; // of the committee draw that settled
    bytes slots; // of its votes, in the chain's order
    uint256[] has; // those votes
    uint32[] late; // ids of members that said late votes
}

/// @title What is said about a committee's votes after they settled. SPEC-ROUNDS.md, 7 and 8.
interface ILateVotes {
    /// @notice A member of the pool has these updates by now, for their pay.
    /// @param has seats whose updates it has
    event LateVote(uint256 indexed jobId, address indexed account, uint32 round, uint32 indexed id, uint256 has);

    /// @notice A member of the round's pool, or of the next one's: "I have these updates now", for
    /// their pay. Before auditEnd.
    /// @param has their seats
    /// @custom:caller the slot's holder
    function lateVote(uint256 jobId, uint32 round, uint32 id, uint256 has) external;
    /// @notice Anyone, before auditEnd: more than half of both committees have the seat's update;
    /// so it is paid.
    /// @custom:caller anyone, once
    function grant(uint256 jobId, uint32 round, uint16 seat, Having calldata having) external;
    /// @notice Anyone: one member signed two verdicts about the same votes, each alone or with
    /// others.
    /// @custom:caller anyone, once
    function equivocated(
        uint256 jobId,
        uint32 round,
        uint32 id,
        bytes32 seed,
        bytes32 votes,
        Certified[2] calldata shown
    ) external;
}
