// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import "../types/Types.sol";

/// @title What is said about a committee's words after they settled. SPEC-ROUNDS.md, 7 and 8.
interface IWords {
    event LateWord(uint256 indexed jobId, address indexed account, uint32 indexed round, uint16 place, uint256 has);

    /// @notice A member of the round's pool, or of the next one's: "I have these updates now", for their pay. Before auditEnd.
    function lateWord(uint256 jobId, uint32 round, uint32 id, uint256 has) external;
    /// @notice Anyone, before auditEnd: more than half of both committees have the seat's update; so it is paid.
    /// @param next facts of the next round if that is settled; else ignored
    /// @param has the words of the lot that settled, with their places, in the chain's order
    /// @param lotSeed of that lot
    function grant(
        uint256 jobId,
        uint32 round,
        uint16 seat,
        Facts calldata facts,
        Facts calldata next,
        bytes32 lotSeed,
        bytes calldata places,
        uint256[] calldata has
    ) external;
    /// @notice Anyone: one member signed two verdicts about the same words, each alone or with others.
    function equivocated(
        uint256 jobId,
        uint32 round,
        uint32 id,
        bytes32 seed,
        bytes32 words,
        Certified[2] calldata shown
    ) external;
}
