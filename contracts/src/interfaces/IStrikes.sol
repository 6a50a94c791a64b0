// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {Later} from "../libraries/Reveals.sol";
import "../types/Types.sol";

/// What a strike is about: a settled round, and what its committee certified of it.
struct Case {
    uint256 jobId;
    uint32 round;
    bytes32 salt; // of the announcement
    RoundRecord record;
    Verdict verdict;
    bytes statement; // the merge statement
    bytes shape; // the last leaf of the job's program: how updates are merged, and how long they are
    uint256 leaves; // of the program
    bytes32[] path; // of that leaf
    uint32[] signers; // ids of all who signed, in any order; others of the committee, who may sign yet, are passed over
}

/// A piece of a file, and its path in the file's tree.
struct Piece {
    bytes data;
    bytes32[] path;
}

/// What a seat revealed, and the pieces of its update that have one coordinate: of codecs with steps
/// for blocks that of the step, then that of the code.
struct Opened {
    uint16 seat;
    Commitment committed;
    uint64 size; // bytes of the update, as its root says
    Piece[] pieces;
}

/// What some updates of a settled round have at one coordinate.
struct ShownRows {
    uint256 jobId;
    uint32 round;
    RoundRecord record;
    bytes shape; // as a case has it
    uint256 leaves;
    bytes32[] path;
    uint8 section; // 0 of Δ, 1 of first moments, 2 of factored second moments
    uint64 index;
    Later[] reveals; // of the round, in the chain's order
    Opened[] updates;
}

/// The merged update at one coordinate.
struct Coordinate {
    uint8 section;
    uint64 index;
    uint64 size; // bytes of the merged update, as its root says
    Piece merged;
}

/// The state that a round opened with, as far as next exponents follow from it.
struct RoundOpening {
    bytes parts; // the five of its digest, 32 bytes each
    bytes exponents; // under the third of them
    bytes header; // of the program, in round 0: it has the digest; else empty
    bytes32[] path; // of the header; else none
}

/// @title Strikes against a merge that is not what the updates give. SPEC-ROUNDS.md, 7.
interface IStrikes {
    /// @notice Anyone: notes a strike to come, so that who copies one at a coordinate comes later. Strikes elsewhere,
    /// at a statement, a seat, what is derived or nothing merged, can be announced for every round beforehand.
    /// @param commitment `commitmentOf` of the strike
    /// @custom:caller anyone, once
    function announce(bytes32 commitment) external;
    /// @notice Anyone, in the same time: nothing was merged, although 2f + 1 updates that the committee had, whose seats did
    /// enough and were not slashed, were there.
    /// @param ids HolderId: of these seats' holders
    /// @custom:caller anyone, once
    function strikeNothing(Case calldata c, uint32[] calldata ids) external;
    /// @notice Anyone, in the same time: nothing was merged, and the state is another than that which the round opened
    /// from, a round on.
    /// @param parts five words of the digest of that state
    /// @param header of the job's program, and its path: of round 0 alone
    /// @custom:caller anyone, once
    function strikeCarried(Case calldata c, bytes calldata parts, bytes calldata header, bytes32[] calldata path)
        external;
    /// @notice Anyone, of a settled round: keeps what updates have at a coordinate, so that a strike there needs them no
    /// more. In as many calls as it takes, by whoever; a row is the same whoever shows it.
    /// @custom:caller anyone
    function showRows(ShownRows calldata r) external;
    /// @notice Anyone, from 16 blocks after the announcement to the window's end: a certificate
    /// without a statement that it must have, a statement that contradicts itself or the chain, or either a statement or
    /// excluded seats where nothing was merged.
    /// @custom:caller anyone, once
    function strikeStatement(Case calldata c) external;
    /// @notice Anyone, in the same time: the merged update is not what the rule gives at one
    /// coordinate, where all merged rows were shown, or one that was shown is not canonical.
    /// @custom:caller anyone, once
    function strikeCoordinate(Case calldata c, Coordinate calldata p) external;

    /// @notice Anyone, in the same time: an update that the committee had, whose seat did enough and was not slashed, is
    /// neither merged nor excluded.
    /// @param id of the seat's holder
    /// @custom:caller anyone, once
    function strikeMissing(Case calldata c, uint16 seat, uint32 id) external;

    /// @notice Anyone, in the same time: groups of the statement are not what its inner products give, or next exponents
    /// not what its votes make of those of the state that the round opened with.
    /// @param o read only where groups are right
    /// @custom:caller anyone, once
    function strikeDerived(Case calldata c, RoundOpening calldata o) external;

    /// @return block_ in which a strike was announced; 0 for none
    /// @custom:caller anyone
    function announcedIn(bytes32 commitment) external view returns (uint256 block_);
    /// @param what as `commitmentOf` has it
    /// @return seats Bitmap: whose rows were shown there
    /// @custom:caller anyone
    function shownOf(uint256 jobId, uint32 round, uint256 what) external view returns (uint256 seats);

    /// @param what 0 of a statement; 1 of a round that merged nothing, or of what is derived in the statement of another; 2 + the seat that is missing; of a coordinate 2^64 · (section + 1) + its index
    function commitmentOf(address by, uint256 jobId, uint32 round, uint256 what, bytes32 salt)
        external
        view
        returns (bytes32);
}
