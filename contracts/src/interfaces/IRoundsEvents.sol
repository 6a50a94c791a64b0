// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import "../types/Types.sol";

/// @title What the round state machine says; EVENTS.md tells what each event does to a job's state.
interface IRoundsEvents {
    /// @notice A round begins: its seats train.
    /// @param seed data seed of the round
    /// @param seated Bitmap: seats that train
    /// @param ready Bitmap: slots of the pool that audits the round
    /// @param committee Bitmap: slots of the committee that is to settle it
    /// @param model digest of the global state that it opens from
    /// @param deadline unix seconds at which training ends
    /// @custom:state phase TRAIN, status ACTIVE; `round`, `seed`, `seated`, `ready`, `committee`,
    /// `model`, `deadline`; `nextSeed = 0`; `waiting = seated`; `reveals = seed`; `votes` = the
    /// seed with its last 4 bytes zero; `committeeDraw = 0`; `auditSeed = 0`
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
    /// @notice A seat is bound to its work.
    /// @custom:state bit out of `waiting`
    event Committed(
        uint256 indexed jobId, address indexed account, uint16 indexed seat, uint32 round, bytes32 commitment
    );
    /// @notice Training is over.
    /// @param committed Bitmap: seats that committed, which reveal now
    /// @param deadline unix seconds at which revealing ends
    /// @custom:state phase REVEAL; seats of `seated` that are not in `committed`: in `owing`, out
    /// of `held`; `seated = waiting = committed`; `deadline`
    event RevealOpened(uint256 indexed jobId, uint32 indexed round, uint256 committed, uint64 deadline);
    /// @notice Fewer than half of the seats did in time what TRAIN or REVEAL asks of them: it goes on.
    /// @param deadline unix seconds at which it ends
    /// @custom:state `deadline`
    event PhaseRepeated(uint256 indexed jobId, uint32 indexed round, uint64 deadline);
    /// @notice A seat shows what its commitment binds.
    /// @custom:state bit out of `waiting`; `reveals`
    event Revealed(uint256 indexed jobId, address indexed account, uint16 indexed seat, uint32 round, Reveal reveal);
    /// @notice Revealing is over.
    /// @param revealed Bitmap: seats that revealed, whose updates are merged
    /// @param nextSeed data seed of the next round
    /// @param deadline unix seconds until which the committee may settle it
    /// @custom:state phase MERGE; seats of `seated` that are not in `revealed`: in `owing`, out of
    /// `held`; `seated = waiting = revealed`; `nextSeed`, `deadline`
    event MergeOpened(uint256 indexed jobId, uint32 indexed round, uint256 revealed, bytes32 nextSeed, uint64 deadline);
    /// @notice Who is audited, and by whom, is drawn.
    /// @custom:state `auditSeed`
    event AuditSeeded(uint256 indexed jobId, uint32 indexed round, bytes32 auditSeed);
    /// @notice A committee member's vote.
    /// @param committeeDraw whose member it is, from 0
    /// @param has seats whose updates it has
    /// @custom:state `votes`: the accumulator's 28 bytes, and the bit of the member's rank in the
    /// committee
    event Voted(
        uint256 indexed jobId,
        address indexed account,
        uint16 indexed slot,
        uint32 round,
        uint16 committeeDraw,
        uint256 has
    );
    /// @notice Nobody settled in time, and another committee is to.
    /// @param committeeDraw its number, from 1
    /// @param committee Bitmap: its slots
    /// @param deadline unix seconds until which it may settle the round
    /// @custom:state `committeeDraw`, `committee`, `deadline`; `votes` = the committee draw's seed
    /// (SPEC-ROUNDS.md, 3) with its last 4 bytes zero
    event CommitteeDrawn(
        uint256 indexed jobId, uint32 indexed round, uint16 committeeDraw, uint256 committee, uint64 deadline
    );
    /// @notice A round is over: what its committee says of the merge.
    /// @param digest that the certificate signs; zero where there is none
    /// @param available Bitmap: seats whose updates a majority of the committee had
    /// @param signers Bitmap: slots that signed
    /// @custom:state `round + 1`; `digest`, unless `signers` are the whole `committee` of its
    /// record; `model` = the verdict's state. Seats that were short in it, and under the same
    /// holder in one of the two settled rounds before, too: in `owing`, out of `held`; no seat,
    /// where `digest` is zero. Members of the next pool: `ready`
    event Settled(
        uint256 indexed jobId,
        uint32 indexed round,
        bytes32 digest,
        Verdict verdict,
        uint256 available,
        uint256 signers,
        RoundRecord record
    );
    /// @notice More of a committee signed the last certificate.
    /// @dev all so far, by slot
    /// @param signers Bitmap: slots that have signed so far
    event Signed(uint256 indexed jobId, uint32 indexed round, uint256 signers);
    /// @notice A seat counts no more, before its commit.
    /// @dev disagreed (root), or was slashed (0), before its commit
    /// @param root digest of the model that its holder computed instead; zero of one that was
    /// slashed
    /// @custom:state bit out of `waiting`, `seated`, `held`
    event Stopped(uint256 indexed jobId, address indexed account, uint16 indexed seat, uint32 round, bytes32 root);
    /// @notice The round that ran is void, members are too few, or a pool is noted that a committee
    /// will be drawn from.
    /// @dev void, too few members, or the pool is noted
    /// @param missed Bitmap: seats that missed the void round
    /// @custom:state (also where a pool is noted that a committee will be drawn from: then nothing
    /// changes) phase WAITING; seats of `missed`: in `owing`, out of `held`; `seated = waiting =
    /// 0`; `seed = nextSeed = 0`; `deadline = 0`. Of the next pool those are in `ready` whose
    /// slot's newest `Enrolled` has a `from` up to `round`; the others stay in the next pool
    event Waiting(uint256 indexed jobId, uint32 indexed round, uint256 missed);
    /// @notice The row of a settled round's pay as it stands.
    /// @param pay Bitmap: seats that are paid
    event PayChanged(uint256 indexed jobId, uint32 indexed round, uint256 pay);
    /// @notice What a committee certified of a round is not what its updates give: nobody is paid for
    /// having signed it, and the job ends as if cancelled.
    /// @param by the account that showed it
    /// @param signers Bitmap: slots that had signed
    /// @custom:state of the last settled round: `digest = 0`
    event MergeStruck(uint256 indexed jobId, uint32 indexed round, address indexed by, uint256 signers);
    /// @notice No round will run any more.
    /// @param rounds how many are settled
    /// @param closedAt unix seconds
    /// @custom:state phase CLOSED; `status`; `seed = nextSeed = 0`; `deadline = 0`
    event Closed(uint256 indexed jobId, JobStatus status, uint32 rounds, uint64 closedAt);
}
