// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import "../types/Types.sol";

/// @title What the round state machine says; EVENTS.md tells what each event does to a job's state.
interface IRoundsEvents {
    event RoundOpened(
        uint256 indexed jobId,
        uint32 indexed round,
        bytes32 seed,
        uint256 seated,
        uint256 ready,
        uint256 committee,
        bytes32 model,
        uint64 deadline
    );
    event Committed(
        uint256 indexed jobId, address indexed account, uint16 indexed seat, uint32 round, bytes32 commitment
    );
    event RevealOpened(uint256 indexed jobId, uint32 indexed round, uint256 committed, uint64 deadline);
    event Revealed(uint256 indexed jobId, address indexed account, uint16 indexed seat, uint32 round, Reveal reveal);
    event MergeOpened(uint256 indexed jobId, uint32 indexed round, uint256 revealed, bytes32 nextSeed, uint64 deadline);
    event AuditSeeded(uint256 indexed jobId, uint32 indexed round, bytes32 auditSeed);
    event Said(
        uint256 indexed jobId,
        address indexed account,
        uint16 indexed place,
        uint32 round,
        uint16 committeeDraw,
        uint256 has
    );
    event CommitteeDrawn(
        uint256 indexed jobId, uint32 indexed round, uint16 committeeDraw, uint256 committee, uint64 deadline
    );
    event Settled(
        uint256 indexed jobId,
        uint32 indexed round,
        bytes32 digest,
        Verdict verdict,
        uint256 available,
        uint256 signers,
        Facts facts
    );
    /// All places that have signed so far.
    event Signed(uint256 indexed jobId, uint32 indexed round, uint256 signers);
    /// A seat that counts no more, before its commit: its holder computed the root, or fell (zero).
    event Stopped(uint256 indexed jobId, address indexed account, uint16 indexed seat, uint32 round, bytes32 root);
    event Waiting(uint256 indexed jobId, uint32 indexed round, uint256 missed);
    event PayChanged(uint256 indexed jobId, uint32 indexed round, uint256 pay);
    event Closed(uint256 indexed jobId, JobStatus status, uint32 rounds, uint64 closedAt);
}
