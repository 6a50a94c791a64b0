// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

/// Every value that more than one contract, or Python, reads. Enum order is part of the ABI: append
/// only.

enum Role {
    PROVIDER,
    VERIFIER
}

enum JobStatus {
    NONE,
    OPEN, // funded; waiting for seats and for verifiers that are ready
    ACTIVE, // rounds are running
    DONE, // every round is settled
    CANCELLED,
    EXPIRED
}

enum Phase {
    WAITING,
    TRAIN,
    REVEAL,
    MERGE,
    CLOSED
}

/// What somebody did not do; part of a fault's id.
enum MissedDuty {
    SEAT, // no commit, no reveal, or short in two of three rounds running
    KEY,
    SILENCE, // no vote by the end of a committee draw's votes
    AUDIT, // no audit report, not opened, or a duty excluded
    DIGEST,
    DROPPED, // an accusation that was not played
    EQUIVOCATED,
    MISMERGED // it signed a merge that is not what the updates give
}

struct Terms {
    uint32 rounds;
    uint16 seats; // at most 256
    uint16 minProviders;
    uint16 slots; // of the verifiers' pool, at most 256
    uint16 minVerifiers;
    uint8 f; // seats that the rule bears; 3f < seats
    uint8 auditRate; // of the table: the chance of each revealed seat to be audited
    uint8 lastRate; // in the last round
    uint8 rateSteps; // of the table, that a seat comes down by as pay is retained of it; 0: none is
    uint32 trainSeconds;
    uint32 revealSeconds;
    uint32 mergeSeconds; // of each committee draw
    uint32 auditSeconds;
    uint32 openSeconds;
    uint32 keySeconds;
    uint32 windowSeconds;
    uint32 readySeconds;
    uint32 gameSeconds; // allowance of either side for a whole game
    uint32 moveSeconds; // of each of its moves, not charged
    uint32 claimSeconds; // after the absolute end
    uint64 expiry; // unix seconds
    uint32 steps; // inner steps of a round (H)
    uint32 segmentSteps; // of a segment (k); divides steps
    uint64 tokensPerStep; // batch * sequence length
    uint128 segmentPay; // units of the token per segment done
    uint128 signFee; // per round signed
    uint128 dutyFee; // per duty done
    uint128 providerBond; // locked per seat
    uint128 verifierBond; // the least that a slot locks
    bytes32 program; // root over what every operation of a step and of its update proof is
}

/// What a seat shows. The commitment binds all of it but the CID, which is a hint.
struct Reveal {
    bytes32 updateRoot;
    bytes32 keyHash; // keccak of the key of the work tags' masks
    bytes32 salt;
    bytes checkpointCommitments; // state digest and blinded tag of each segment done
    bytes updateCid;
}

/// What a commitment binds beside round, seat and model: a reveal without what no merge reads.
struct Commitment {
    address account;
    bytes32 checkpoints; // keccak of the checkpoint commitments
    bytes32 updateRoot;
    bytes32 keyHash;
    bytes32 salt;
}

/// What a committee's certificate says beside the round id, the seed and the votes.
struct Verdict {
    uint256 excluded; // available seats that were not merged: accused or named
    uint16 merged; // updates that were; 0: nothing, the model stays
    bytes32 state; // digest of the global state that the next round opens from
    bytes cid;
    bytes8 loss; // held-out, of the model before
    bytes32 statement; // SHA-256 of the merge statement; zero where the merge has none
}

/// A verdict, and a certificate by which some of these accounts signed it.
struct Certified {
    Verdict verdict;
    address[] accounts;
    bytes certificate;
}

/// All that a proof about a settled round needs; the contract keeps its hash.
struct RoundRecord {
    bytes32 seed;
    bytes32 auditSeed;
    bytes32 reveals; // accumulator
    bytes32 votes; // accumulator
    bytes32 model; // digest of the state that the round opened from; zero in round 0
    uint256 revealed;
    uint256 available;
    uint256 excluded;
    uint256 ready; // the pool
    uint256 committee;
    uint256 drawn; // seats that are audited
    bytes32 certificate; // digest that the committee signed; zero where there is none
}

/// Unix seconds of a settled round; zeros before.
struct Times {
    uint64 settledAt;
    uint64 auditEnd;
    uint64 openEnd;
    uint64 keysEnd;
    uint64 half;
    uint64 windowEnd;
}

/// What audits ask of a settled round; zeros before.
struct Audit {
    uint64 settledAt;
    uint64 auditEnd;
    uint64 openEnd;
    uint64 windowEnd;
    bytes32 record;
    bool hasPartials; // somebody ever revealed fewer than all segments
}

/// Who holds a seat or a slot, from round `from` up to, not including, `to`. One word, which a
/// claim reads and writes.
struct Holder {
    address account;
    uint8 index;
    uint24 from;
    uint24 to;
    uint24 claimedTo; // pay of its rounds before this one is claimed
    bool isReleased;
    bool isSlashed;
}

/// What anybody may read of a job's round that runs.
struct RoundState {
    JobStatus status;
    Phase phase;
    uint32 round; // also: how many are settled
    uint16 committeeDraw;
    uint64 deadline;
    bytes32 seed; // zero while no round runs
    bytes32 nextSeed; // of the next round, while this one merges; else zero
    bytes32 auditSeed; // zero until it is fixed
    uint256 held; // seats that the next round may count on
    uint256 seated; // seats that count; committed ones from REVEAL, revealed ones from MERGE on
    uint256 waiting; // seats that have still to commit or to reveal
    uint256 owing; // seats whose penalty is due
    uint256 ready;
    uint256 committee;
    bytes32 reveals;
    bytes32 votes; // 28 bytes of the accumulator, and which of the committee have spoken
    bytes32 model;
    bytes32 digest; // of the last certificate that not all of its committee had signed
}
