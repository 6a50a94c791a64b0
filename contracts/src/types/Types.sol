// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

/// Every value that more than one contract, or Python, reads. Enum order is part of the ABI: append only.

enum Role {
    PROVIDER,
    VERIFIER
}

enum JobStatus {
    NONE,
    OPEN, // funded; waiting for seats and for verifiers to attest that they hold the data
    ACTIVE, // rounds are running
    HALTED, // the circuit breaker, or diverging training; slashes are pending
    DONE, // every round is final
    CANCELLED,
    EXPIRED
}

enum Phase {
    WAITING, // for the minimum of providers and verifiers, or for the verifiers' readiness
    SEEDING, // for the block that fixes the data seed
    TRAIN,
    REVEAL,
    DRAW, // for the block that fixes the audit seed
    REPORT,
    CONFIRM,
    ATTEST,
    HALTED,
    CLOSED
}

enum Fault {
    NONE,
    NO_COMMIT,
    NO_REVEAL,
    WITHHELD,
    WRONG_REPLAY,
    WRONG_LINK,
    MALFORMED,
    OUT_OF_TOLERANCE // never confirmed: its seat is not paid and not slashed while nobody refutes it
}

enum Outcome {
    OPEN,
    CONFIRMED,
    REFUTED,
    UNRESOLVED,
    UNFETCHABLE, // a quorum could not fetch what the report is about: counts as WITHHELD
    ANSWERED, // the challenged block is on the chain, and a quorum found nothing wrong with the segment
    WITHDRAWN // by everyone who had raised the challenge
}

/// What a punishment is about; `index` of `punish` is a seat, a report or a verifier accordingly.
enum Offence {
    SEAT_MISSED, // index: seat. No commit or no reveal: a small cut
    REPORT, // index: report. Confirmed: the seat's bond; refuted: the report's bond
    VERIFIER_MISSED, // index: verifier. Absent: a small cut
    VERIFIER_CONTRADICTED // index: verifier. On the losing side of a decided report: a small cut
}

struct Terms {
    uint32 rounds;
    uint16 seats; // at most 256
    uint16 minProviders;
    uint16 minVerifiers;
    uint16 maxVerifiers; // at most 32
    uint16 quorumNumerator; // reached: stake * denominator >= total * numerator; above 1/2
    uint16 quorumDenominator;
    uint16 attempts; // audits (or trainings) of one round, the first included
    uint16 auditors; // verifiers assigned to a seat (c); one more for each further attempt
    uint16 beaconDelay; // blocks between a close and the block whose hash is the beacon (L)
    uint32 trainSeconds;
    uint32 revealSeconds;
    uint32 reportSeconds;
    uint32 confirmSeconds;
    uint32 attestSeconds;
    uint32 disputeSeconds;
    uint64 expiry; // unix seconds
    uint32 steps; // inner steps of a round (H)
    uint64 tokensPerStep; // batch * sequence length
    uint128 pricePerToken; // wei per verified token
    uint128 verifierFee; // wei per verifier and round
    uint128 providerBond; // locked per seat
    uint128 verifierBond; // locked per verifier; also its weight
    uint128 reportBond; // locked per report
    bytes32 program; // root over what every operation of a step and of its link is; zero: no judge
}

struct Reveal {
    bytes32 traceRoot;
    bytes32 updateRoot; // of the tree over the update's pieces, and its size; zero for none
    bytes32 optimiserRoot; // optimiser part of the last state's digest
    uint32 steps; // steps done: fewer than Terms.steps only after divergence
    bool reset; // opened with zero optimiser state
    bytes32 salt;
    bytes updateCid;
    bytes traceCid;
}

/// "I replayed these segments of this seat and every digest matched" (bit i = segment i).
struct Finding {
    uint16 seat;
    uint64 segments;
}

struct Report {
    uint16 seat;
    uint16 segment; // 0xffff where the fault is not about one segment
    Fault fault; // WRONG_REPLAY, WRONG_LINK or MALFORMED in a ballot, WITHHELD in a challenge
    bytes32 evidence; // WITHHELD: SHA-256 of the missing block; else the digest that the verifier computed instead
}

struct Verdict {
    bytes32 evidenceRoot;
    bytes32 cutBlockHash;
    bytes32 mergedDigest; // digest of the global state that the next round starts from
    bytes mergedCid;
    bytes32 claimsRoot;
    uint256 cumulativeTotal; // sum of all leaves of the claims tree
    bytes32 tokensRoot; // keccak256(abi.encode(uint64[] verified tokens by seat, Terms.seats entries))
    uint256 tokensTotal;
    bytes32 parent; // verdict hash of the round before; zero for round 0
}

/// Everything a newcomer needs to join a running round; rebuilt from events alone by the mirror.
struct RoundState {
    JobStatus status;
    Phase phase;
    uint32 round;
    uint16 attempt;
    uint16 trainAttempt; // the attempt in the slots of this round's commits
    uint64 deadline; // unix seconds; 0 in phases that wait for a block
    uint64 beaconBlock; // SEEDING and DRAW: the block whose hash is the beacon
    uint64 cutBlock;
    uint256 seated;
    uint256 committed;
    uint256 revealed;
    uint256 auditSet; // seats that this attempt audits
    uint256 accepted;
    uint256 rejected;
    uint256 unresolved;
    uint256 caught; // rejected for wrong replay, wrong link or malformed bytes
    uint256 verifiers; // bitmap of the snapshot
    uint256 dutiful; // verifiers that balloted, voted and were not contradicted
    uint256 totalWeight;
    bytes32 dataSeed;
    bytes32 auditSeed;
    bytes32 commitAccumulator;
    bytes32 revealAccumulator;
    bytes32 evidenceRoot;
    bytes32 cutBlockHash;
    bytes32 parent;
    uint256 cumulativeTotal; // of the last settled verdict
}
