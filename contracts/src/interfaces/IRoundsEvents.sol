// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import "../types/Types.sol";

/// @title What the round state machine says; EVENTS.md tells what each event does to a job's state.
interface IRoundsEvents {
    event RoundOpened(
        uint256 indexed jobId,
        uint32 round,
        uint16 attempt,
        uint256 seated,
        uint256 verifiers,
        uint256 totalWeight,
        uint64 beaconBlock
    );
    event BeaconRearmed(uint256 indexed jobId, uint32 round, uint16 attempt, uint64 beaconBlock);
    event TrainStarted(
        uint256 indexed jobId,
        uint32 round,
        uint16 attempt,
        uint256 seated,
        uint256 verifiers,
        uint256 totalWeight,
        bytes32 dataSeed,
        uint64 deadline
    );
    event Committed(
        uint256 indexed jobId, uint32 round, uint16 attempt, uint16 seat, address account, bytes32 commitment
    );
    event RevealStarted(uint256 indexed jobId, uint32 round, uint16 attempt, uint256 committed, uint64 deadline);
    event Revealed(uint256 indexed jobId, uint32 round, uint16 attempt, uint16 seat, address account, Reveal reveal);
    event AuditArmed(
        uint256 indexed jobId, uint32 round, uint16 attempt, uint256 revealed, uint256 auditSet, uint64 beaconBlock
    );
    event AuditStarted(
        uint256 indexed jobId,
        uint32 round,
        uint16 attempt,
        bytes32 auditSeed,
        uint16 auditors,
        uint256 auditSet,
        uint64 halfTime,
        uint64 deadline
    );
    event Balloted(
        uint256 indexed jobId,
        uint32 round,
        uint16 attempt,
        uint16 verifier,
        address account,
        Finding[] findings,
        bytes32 replayRoot
    );
    event Reported(
        uint256 indexed jobId, uint32 round, uint16 attempt, uint16 index, uint16 verifier, Report report, bool assigned
    );
    event ReportSeconded(uint256 indexed jobId, uint32 round, uint16 attempt, uint16 index, uint16 verifier);
    event ChallengeWithdrawn(uint256 indexed jobId, uint32 round, uint16 attempt, uint16 index, uint16 verifier);
    /// `block_` hashes to the evidence of report `index`: whoever could not fetch it takes it from here.
    event ChallengeAnswered(
        uint256 indexed jobId, uint32 round, uint16 attempt, uint16 index, address account, bytes block_
    );
    event ConfirmStarted(uint256 indexed jobId, uint32 round, uint16 attempt, uint64 deadline);
    event Voted(
        uint256 indexed jobId,
        uint32 round,
        uint16 attempt,
        uint16 verifier,
        address account,
        uint256 agree,
        uint256 disagree,
        uint256 cannotFetch
    );
    event ReportResolved(uint256 indexed jobId, uint32 round, uint16 attempt, uint16 index, Outcome outcome);
    event AttestStarted(
        uint256 indexed jobId,
        uint32 round,
        uint16 attempt,
        uint256 accepted,
        uint256 rejected,
        uint256 unresolved,
        uint256 caught,
        uint256 dutiful,
        bytes32 evidenceRoot,
        uint64 cutBlock,
        uint64 deadline
    );
    event Attested(
        uint256 indexed jobId,
        uint32 round,
        uint16 attempt,
        uint16 verifier,
        address account,
        bytes32 verdictHash,
        uint256 weight
    );
    event RoundSettled(
        uint256 indexed jobId, uint32 round, uint16 attempt, bytes32 verdictHash, Verdict verdict, uint64 disputeUntil
    );
    /// The phase that failed runs again (`attempt` is the one that failed) unless the job closes.
    event RoundVoided(uint256 indexed jobId, uint32 round, uint16 attempt, string reason);
    event RoundFinalised(uint256 indexed jobId, uint32 round, bytes32 claimsRoot, uint256 cumulativeTotal);
    event CircuitBroken(uint256 indexed jobId, uint32 round, uint16 attempt, uint256 rejected);
    event Punished(
        uint256 indexed jobId,
        uint32 round,
        Offence offence,
        uint16 index,
        address account,
        bytes32 faultId,
        uint256 amount
    );
    /// After the last attempt without a quorum: paid from the evidence alone.
    event Credited(uint256 indexed jobId, uint32 round, address account, uint256 amount);
    event MembershipDropped(uint256 indexed jobId, uint32 round, uint256 seats, uint256 verifiers);
}
