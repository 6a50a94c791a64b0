// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {Params} from "./interfaces/IConfig.sol";
import {IRoundsFacts, IRoundsHooks, SettledFacts} from "./interfaces/IHooks.sol";
import {IRounds} from "./interfaces/IRounds.sol";
import {Bits} from "./libraries/Bits.sol";
import {Hashing} from "./libraries/Hashing.sol";
import "./types/Types.sol";
import {RoundsBase} from "./rounds/RoundsBase.sol";

/// @title The round state machine: the one entry to it, and its first half (waiting, seeding, training, revealing).
/// @dev The rest of the code lies in two modules at fixed addresses, run by delegate call: one contract would exceed the
/// size limit. Nothing can replace a module, and no tokens are held here.
contract Rounds is RoundsBase, IRounds, IRoundsHooks, IRoundsFacts {
    using Bits for uint256;

    address public immutable auditModule;
    address public immutable settlementModule;

    error ModuleMismatch(address module);
    error OnlyJobs(address caller);
    error EmptyCommitment();
    error AlreadyCommitted(uint16 seat);
    error NotCommitted(uint16 seat);
    error AlreadyRevealed(uint16 seat);
    error WrongReveal(bytes32 given, bytes32 committed);
    error TooManySteps(uint32 given, uint32 highest);
    error CidTooLong(uint256 length, uint256 highest);

    constructor(address config_, address stakes_, address jobs_, address roster_, address audit, address settlement)
        RoundsBase(config_, stakes_, jobs_, roster_)
    {
        auditModule = audit;
        settlementModule = settlement;
        if (RoundsBase(audit).links() != links()) revert ModuleMismatch(audit);
        if (RoundsBase(settlement).links() != links()) revert ModuleMismatch(settlement);
    }

    modifier onlyJobs() {
        if (msg.sender != address(jobs)) revert OnlyJobs(msg.sender);
        _;
    }

    /// @inheritdoc IRoundsHooks
    function open(uint256 jobId, Terms calldata terms, Params calldata params, address policy) external onlyJobs {
        Job storage j = _jobs[jobId];
        j.state.status = JobStatus.OPEN;
        j.terms = terms;
        j.policy = policy;
        (j.missCutBps, j.verifierCutBps) = (params.missCutBps, params.verifierCutBps);
        (j.finderShareBps, j.accusedShareBps) = (params.finderShareBps, params.accusedShareBps);
    }

    /// @inheritdoc IRoundsHooks
    function cancel(uint256 jobId) external onlyJobs {
        Job storage j = _job(jobId);
        j.cancelRequested = true;
        if (j.state.phase == Phase.WAITING) _close(jobId, j, JobStatus.CANCELLED, "Cancelled");
    }

    /// @inheritdoc IRounds
    function poke(uint256 jobId) external {
        Job storage j = _job(jobId);
        Phase phase = j.state.phase;
        if (phase == Phase.WAITING) _pokeWaiting(jobId, j);
        else if (phase == Phase.SEEDING) _pokeSeeding(jobId, j);
        else if (phase == Phase.TRAIN) _pokeTrain(jobId, j);
        else if (phase == Phase.REVEAL) _pokeReveal(jobId, j);
        else if (phase == Phase.ATTEST) _delegate(settlementModule);
        else if (phase == Phase.CLOSED) revert NothingToDo(phase, 0, 0);
        else _delegate(auditModule);
    }

    /// @inheritdoc IRounds
    function commit(uint256 jobId, uint32 round, uint16 attempt, bytes32 commitment) external {
        Job storage j = _job(jobId);
        RoundState storage s = j.state;
        if (commitment == 0) revert EmptyCommitment();
        _requireWindow(s, round, attempt, Phase.TRAIN);
        uint16 seat = _requireSeat(jobId, s.seated);
        if (s.committed.has(seat)) revert AlreadyCommitted(seat);
        s.committed |= Bits.bit(seat);
        s.commitAccumulator = Hashing.accumulateCommit(s.commitAccumulator, seat, commitment);
        _seats[jobId][seat].commitment = commitment;
        emit Committed(jobId, round, attempt, seat, msg.sender, commitment);
        if (s.committed == s.seated) _startReveal(jobId, j);
    }

    /// @inheritdoc IRounds
    function reveal(uint256 jobId, uint32 round, uint16 attempt, Reveal calldata reveal_) external {
        Job storage j = _job(jobId);
        RoundState storage s = j.state;
        _requireReveal(j, reveal_);
        _requireWindow(s, round, attempt, Phase.REVEAL);
        uint16 seat = _requireSeat(jobId, s.seated);
        if (!s.committed.has(seat)) revert NotCommitted(seat);
        if (s.revealed.has(seat)) revert AlreadyRevealed(seat);
        bytes32 given = Hashing.commitment(_slot(jobId, s), seat, msg.sender, reveal_);
        if (given != _seats[jobId][seat].commitment) revert WrongReveal(given, _seats[jobId][seat].commitment);

        s.revealed |= Bits.bit(seat);
        if (reveal_.steps < j.terms.steps) j.work.shortSeats |= Bits.bit(seat);
        bytes32 opening = _storeReveal(jobId, s, seat, reveal_);
        s.revealAccumulator = Hashing.accumulateReveal(s.revealAccumulator, seat, given, opening);
        emit Revealed(jobId, round, attempt, seat, msg.sender, reveal_);
        if (s.revealed == s.committed) _endReveal(jobId, j);
    }

    /// @inheritdoc IRounds
    function ballot(uint256, uint32, uint16, Finding[] calldata, Report[] calldata, bytes32) external {
        _delegate(auditModule);
    }

    /// @inheritdoc IRounds
    function vote(uint256, uint32, uint16, uint256, uint256, uint256) external {
        _delegate(auditModule);
    }

    /// @inheritdoc IRounds
    function challenge(uint256, uint32, uint16, uint16, uint16, bytes32) external {
        _delegate(auditModule);
    }

    /// @inheritdoc IRounds
    function withdrawChallenge(uint256, uint32, uint16, uint16) external {
        _delegate(auditModule);
    }

    /// @inheritdoc IRounds
    function answerChallenge(uint256, uint32, uint16, uint16, bytes calldata) external {
        _delegate(auditModule);
    }

    /// @notice Clears a halted round's audits and starts them again. Only the owner of the configuration.
    function reaudit(uint256) external {
        _delegate(auditModule);
    }

    /// @inheritdoc IRounds
    function attest(uint256, uint32, uint16, bytes32, bytes calldata) external {
        _delegate(settlementModule);
    }

    /// @inheritdoc IRounds
    function settle(uint256, Verdict calldata) external {
        _delegate(settlementModule);
    }

    /// @inheritdoc IRounds
    function finalise(uint256) external {
        _delegate(settlementModule);
    }

    /// @inheritdoc IRounds
    function punish(uint256, uint32, Offence, uint16) external {
        _delegate(settlementModule);
    }

    /// @inheritdoc IRounds
    function credit(uint256, uint32, Role, uint16) external {
        _delegate(settlementModule);
    }

    /// @inheritdoc IRounds
    function state(uint256 jobId) external view returns (RoundState memory) {
        return _job(jobId).state;
    }

    /// @inheritdoc IRounds
    function lastOptimiserRoot(uint256 jobId, uint16 seat) external view returns (bytes32) {
        SeatRecord storage record = _seats[jobId][seat];
        uint32 tenure = roster.tenureOf(jobId, seat);
        return tenure == 0 || tenure != record.tenure ? bytes32(0) : _optimiserRoot(jobId, seat);
    }

    /// @inheritdoc IRounds
    function finalRounds(uint256 jobId)
        external
        view
        returns (uint32 count, bytes32 claimsRoot, uint256 cumulativeTotal)
    {
        count = _jobs[jobId].finalRounds;
        if (count == 0) return (0, 0, 0);
        RoundRecord storage r = _records[jobId][count - 1];
        return (count, r.claimsRoot, r.cumulativeTotal);
    }

    /// @inheritdoc IRounds
    function commitmentOf(
        uint256 jobId,
        uint32 round,
        uint16 attempt,
        uint16 seat,
        address sender,
        Reveal calldata reveal_
    ) external view returns (bytes32) {
        return Hashing.commitment(Hashing.Slot(address(this), jobId, round, attempt), seat, sender, reveal_);
    }

    /// @inheritdoc IRounds
    function verdictHash(uint256 jobId, uint32 round, uint16 attempt, Verdict calldata verdict)
        external
        view
        returns (bytes32)
    {
        return Hashing.verdictHash(Hashing.Slot(address(this), jobId, round, attempt), verdict);
    }

    /// @inheritdoc IRoundsHooks
    function phaseOf(uint256 jobId) external view returns (Phase) {
        return _job(jobId).state.phase;
    }

    /// @inheritdoc IRoundsHooks
    function closedAt(uint256 jobId) external view returns (uint64) {
        return _jobs[jobId].closedAt;
    }

    /// @inheritdoc IRoundsHooks
    function settledRounds(uint256 jobId) external view returns (uint32) {
        return _jobs[jobId].settledRounds;
    }

    /// @inheritdoc IRoundsFacts
    function settledFacts(uint256 jobId, uint32 round) external view returns (SettledFacts memory) {
        RoundRecord storage r = _records[jobId][round];
        return SettledFacts(r.facts, r.accepted, r.disputeUntil, r.trainAttempt, r.isSettled);
    }

    /// @inheritdoc IRoundsFacts
    function finderShareOf(uint256 jobId) external view returns (uint16) {
        return _jobs[jobId].finderShareBps;
    }

    /// @inheritdoc IRoundsFacts
    function roundsBegun(uint256 jobId) external view returns (uint256) {
        Phase phase = _jobs[jobId].state.phase;
        bool runs = phase != Phase.WAITING && phase != Phase.CLOSED;
        return _jobs[jobId].settledRounds + (runs ? 1 : 0);
    }

    /// @return unix seconds; from then on the round may be made final and its faults punished. 0 while it runs
    function disputeUntil(uint256 jobId, uint32 round) external view returns (uint64) {
        return _records[jobId][round].disputeUntil;
    }

    /// @return what was reported, and who agreed, disagreed or could not fetch
    function reportOf(uint256 jobId, uint32 round, uint16 index) external view returns (ReportEntry memory) {
        return _reports[jobId][round][index];
    }

    /// @return seats and verifiers of an exhausted round that `credit` has still to credit
    function creditable(uint256 jobId) external view returns (uint256 seats, uint256 verifiers) {
        return (_jobs[jobId].creditableSeats, _jobs[jobId].creditableVerifiers);
    }

    // --- phases ---

    function _pokeWaiting(uint256 jobId, Job storage j) private {
        if (j.cancelRequested) return _close(jobId, j, JobStatus.CANCELLED, "Cancelled");
        if (block.timestamp >= j.terms.expiry) return _close(jobId, j, JobStatus.EXPIRED, "Expired");
        (, uint256 verifiers, uint256 ready) = roster.membersOf(jobId);
        bool open_ = _hasEnough(jobId, j) && _isQuorum(j, ready, verifiers);
        if (!open_) revert NothingToDo(Phase.WAITING, 0, 0);
        if (j.state.status == JobStatus.OPEN) {
            j.state.status = JobStatus.ACTIVE;
            jobs.setStatus(jobId, JobStatus.ACTIVE, "Opened");
        }
        _openSeeding(jobId, j);
    }

    function _pokeSeeding(uint256 jobId, Job storage j) private {
        RoundState storage s = j.state;
        if (block.number <= s.beaconBlock) revert NothingToDo(s.phase, 0, s.beaconBlock);
        bytes32 beacon = blockhash(s.beaconBlock);
        if (beacon == 0) {
            s.beaconBlock = uint64(block.number) + j.terms.beaconDelay;
            emit BeaconRearmed(jobId, s.round, s.attempt, s.beaconBlock);
            return;
        }
        _startTrain(jobId, j, beacon, s.attempt);
    }

    function _pokeTrain(uint256 jobId, Job storage j) private {
        _requireDeadlinePassed(j.state);
        if (j.state.committed != 0) return _startReveal(jobId, j);
        _recordMisses(jobId, j, j.state.seated);
        _retrain(jobId, j, "NoCommits");
    }

    function _startReveal(uint256 jobId, Job storage j) private {
        RoundState storage s = j.state;
        s.phase = Phase.REVEAL;
        s.deadline = uint64(block.timestamp) + j.terms.revealSeconds;
        emit RevealStarted(jobId, s.round, s.attempt, s.committed, s.deadline);
    }

    function _pokeReveal(uint256 jobId, Job storage j) private {
        _requireDeadlinePassed(j.state);
        _endReveal(jobId, j);
    }

    function _endReveal(uint256 jobId, Job storage j) private {
        RoundState storage s = j.state;
        _recordMisses(jobId, j, s.seated & ~s.revealed);
        if (s.revealed == 0) _retrain(jobId, j, "NoReveals");
        else _armDraw(jobId, j, s.revealed);
    }

    // --- reveals ---

    function _requireReveal(Job storage j, Reveal calldata r) private view {
        if (r.steps > j.terms.steps) revert TooManySteps(r.steps, j.terms.steps);
        if (r.updateCid.length > MAX_CID_BYTES) revert CidTooLong(r.updateCid.length, MAX_CID_BYTES);
        if (r.traceCid.length > MAX_CID_BYTES) revert CidTooLong(r.traceCid.length, MAX_CID_BYTES);
    }

    /// @return opening the optimiser root that the seat's round opens with
    function _storeReveal(uint256 jobId, RoundState storage s, uint16 seat, Reveal calldata reveal_)
        private
        returns (bytes32 opening)
    {
        SeatRecord storage record = _seats[jobId][seat];
        uint32 tenure = roster.tenureOf(jobId, seat);
        bytes32 accepted = record.tenure == tenure ? _optimiserRoot(jobId, seat) : bytes32(0);
        record.optimiserRoot = accepted;
        opening = reveal_.reset ? bytes32(0) : accepted;
        (record.tenure, record.steps) = (tenure, reveal_.steps);
        (record.hasPending, record.pendingRoot) = (true, reveal_.optimiserRoot);
        (record.pendingRound, record.pendingAttempt) = (s.round, s.trainAttempt);
    }

    /// @dev A pending root counts from the moment its round settled with the seat accepted.
    function _optimiserRoot(uint256 jobId, uint16 seat) private view returns (bytes32) {
        SeatRecord storage record = _seats[jobId][seat];
        RoundRecord storage r = _records[jobId][record.pendingRound];
        bool isAccepted =
            record.hasPending && r.isSettled && r.trainAttempt == record.pendingAttempt && r.accepted.has(seat);
        return isAccepted ? record.pendingRoot : record.optimiserRoot;
    }

    /// @dev Runs the same call on a module with this contract's storage, and ends it with the module's answer.
    function _delegate(address module) private {
        assembly ("memory-safe") {
            calldatacopy(0, 0, calldatasize())
            let ok := delegatecall(gas(), module, 0, calldatasize(), 0, 0)
            returndatacopy(0, 0, returndatasize())
            if iszero(ok) { revert(0, returndatasize()) }
            return(0, returndatasize())
        }
    }
}
