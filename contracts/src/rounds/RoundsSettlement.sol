// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {IAttestationPolicy} from "../interfaces/IAttestationPolicy.sol";
import {Slash} from "../interfaces/ICustody.sol";
import {IRoster} from "../interfaces/IRoster.sol";
import {Bits} from "../libraries/Bits.sol";
import {Hashing} from "../libraries/Hashing.sol";
import "../types/Types.sol";
import {RoundsBase} from "./RoundsBase.sol";

/// @title From the evidence to money: attestations, verdicts, final rounds, punishments and credits.
/// @dev Runs by delegate call from `Rounds`; called directly it knows no job.
contract RoundsSettlement is RoundsBase {
    using Bits for uint256;

    error SameBlockAsCut(uint64 cutBlock);
    error EmptyVerdict();
    error NoQuorum(uint256 weight, uint256 totalWeight);
    error WrongEvidence(bytes32 given, bytes32 expected);
    error WrongCutBlock(bytes32 given, bytes32 expected);
    error WrongParent(bytes32 given, bytes32 expected);
    error EmptyClaimsRoot();
    error CidTooLong(uint256 length, uint256 highest);
    error TooManyTokens(uint256 given, uint256 highest);
    error WrongTotal(uint256 given, uint256 expected);
    error NothingToFinalise(uint32 final_, uint32 settled);
    error DisputeOpen(uint64 disputeUntil, uint256 now_);
    error RoundRunning(uint32 round);
    error NoFault(uint32 round, Offence offence, uint16 index);
    error AlreadyPunished(bytes32 faultId);
    error NotCreditable(uint32 round, Role role, uint16 index);

    constructor(address config_, address stakes_, address jobs_, address roster_)
        RoundsBase(config_, stakes_, jobs_, roster_)
    {}

    /// @dev A verdict that has its quorum gets as long again to be settled before the attempt counts as failed.
    function poke(uint256 jobId) external {
        Job storage j = _job(jobId);
        RoundState storage s = j.state;
        _requireDeadlinePassed(s);
        uint64 grace = j.work.quorumVerdict == 0 ? 0 : j.terms.attestSeconds;
        if (block.timestamp < s.deadline + grace) revert NothingToDo(s.phase, s.deadline + grace, 0);
        if (s.attempt + 1 >= j.terms.attempts) _recordAuditFaults(jobId, j);
        _void(jobId, s, "NoQuorum");
        if (s.attempt >= j.terms.attempts) return _exhaust(jobId, j);
        j.work.epoch++;
        _armDraw(jobId, j, s.revealed & ~s.rejected);
    }

    function attest(uint256 jobId, uint32 round, uint16 attempt, bytes32 verdictHash_, bytes calldata proof) external {
        Job storage j = _job(jobId);
        RoundState storage s = j.state;
        _requireWindow(s, round, attempt, Phase.ATTEST);
        if (verdictHash_ == 0) revert EmptyVerdict();
        if (block.number <= s.cutBlock) revert SameBlockAsCut(s.cutBlock);
        uint16 verifier = _requireVerifier(jobId, s.verifiers);
        if (s.cutBlockHash == 0) s.cutBlockHash = blockhash(s.cutBlock);
        uint256 weight = j.terms.verifierBond;
        bytes32 slot = Hashing.slotHash(_slot(jobId, s));
        uint256 total = IAttestationPolicy(j.policy).record(slot, verdictHash_, verifier, weight, proof);
        if (_isWeightQuorum(j, total)) j.work.quorumVerdict = verdictHash_;
        emit Attested(jobId, round, attempt, verifier, msg.sender, verdictHash_, weight);
    }

    function settle(uint256 jobId, Verdict calldata verdict) external {
        Job storage j = _job(jobId);
        RoundState storage s = j.state;
        if (s.phase != Phase.ATTEST) revert WrongPhase(s.phase, Phase.ATTEST);
        bytes32 hash = Hashing.verdictHash(_slot(jobId, s), verdict);
        _requireAgreed(jobId, j, hash);
        _requireSound(j, verdict);
        uint64 disputeUntil = _storeSettled(jobId, j, hash, verdict);
        emit RoundSettled(jobId, s.round, s.attempt, hash, verdict, disputeUntil);
        _recordAuditFaults(jobId, j);
        _next(jobId, j);
    }

    function finalise(uint256 jobId) external {
        Job storage j = _job(jobId);
        uint32 round = j.finalRounds;
        if (round >= j.settledRounds) revert NothingToFinalise(round, j.settledRounds);
        RoundRecord storage r = _records[jobId][round];
        _requireUndisputable(r);
        j.finalRounds = round + 1;
        emit RoundFinalised(jobId, round, r.claimsRoot, r.cumulativeTotal);
        if (j.finalRounds < j.terms.rounds) return;
        j.state.status = JobStatus.DONE;
        jobs.setStatus(jobId, JobStatus.DONE, "Done");
    }

    function punish(uint256 jobId, uint32 round, Offence offence, uint16 index) external {
        Job storage j = _job(jobId);
        RoundRecord storage r = _records[jobId][round];
        if (r.disputeUntil == 0) revert RoundRunning(round);
        _requireUndisputable(r);
        bytes32 faultId = Hashing.faultId(address(this), jobId, round, offence, index);
        FaultRecord storage fault = _faults[faultId];
        if (fault.isPunished) revert AlreadyPunished(faultId);
        fault.isPunished = true;
        (address account, uint256 amount) = offence == Offence.REPORT
            ? _punishReport(jobId, j, round, index, faultId)
            : _punishAbsence(jobId, j, r, fault.account, offence, faultId);
        if (account == address(0)) revert NoFault(round, offence, index);
        emit Punished(jobId, round, offence, index, account, faultId, amount);
    }

    function credit(uint256 jobId, uint32 round, Role role, uint16 index) external {
        Job storage j = _job(jobId);
        uint256 due = role == Role.PROVIDER ? j.creditableSeats : j.creditableVerifiers;
        bool creditable = round == j.state.round && index <= type(uint8).max && due.has(index);
        if (!creditable) revert NotCreditable(round, role, index);
        address account;
        uint256 amount;
        if (role == Role.PROVIDER) {
            j.creditableSeats = due & ~Bits.bit(index);
            (account, amount) = (_seatHolder(jobId, index), _seatPay(jobId, j, index));
        } else {
            j.creditableVerifiers = due & ~Bits.bit(index);
            (account,) = IRoster(address(roster)).verifierHolder(jobId, index);
            amount = j.terms.verifierFee;
        }
        emit Credited(jobId, round, account, amount);
        jobs.credit(jobId, account, amount);
    }

    // --- settling ---

    function _isWeightQuorum(Job storage j, uint256 weight) private view returns (bool) {
        return weight * j.terms.quorumDenominator >= j.state.totalWeight * j.terms.quorumNumerator;
    }

    function _requireAgreed(uint256 jobId, Job storage j, bytes32 hash) private view {
        bytes32 slot = Hashing.slotHash(_slot(jobId, j.state));
        (uint256 weight,) = IAttestationPolicy(j.policy).tally(slot, hash);
        if (!_isWeightQuorum(j, weight)) revert NoQuorum(weight, j.state.totalWeight);
    }

    /// @dev Whatever a quorum signs, it cannot claim more than the evidence supports.
    /// A cut block that left the last 256 before anyone attested cannot be checked here; the quorum signed it.
    function _requireSound(Job storage j, Verdict calldata v) private view {
        RoundState storage s = j.state;
        if (v.evidenceRoot != s.evidenceRoot) revert WrongEvidence(v.evidenceRoot, s.evidenceRoot);
        bool cutMatches = s.cutBlockHash == 0 || v.cutBlockHash == s.cutBlockHash;
        if (!cutMatches) revert WrongCutBlock(v.cutBlockHash, s.cutBlockHash);
        if (v.parent != s.parent) revert WrongParent(v.parent, s.parent);
        if (v.claimsRoot == 0) revert EmptyClaimsRoot();
        if (v.mergedCid.length > MAX_CID_BYTES) revert CidTooLong(v.mergedCid.length, MAX_CID_BYTES);
        uint256 highest = s.accepted.popcount() * j.terms.steps * j.terms.tokensPerStep;
        if (v.tokensTotal > highest) revert TooManyTokens(v.tokensTotal, highest);
        uint256 earned = v.tokensTotal * j.terms.pricePerToken + s.dutiful.popcount() * j.terms.verifierFee;
        if (v.cumulativeTotal != s.cumulativeTotal + earned) {
            revert WrongTotal(v.cumulativeTotal, s.cumulativeTotal + earned);
        }
    }

    function _storeSettled(uint256 jobId, Job storage j, bytes32 hash, Verdict calldata verdict)
        private
        returns (uint64 disputeUntil)
    {
        RoundState storage s = j.state;
        disputeUntil = uint64(block.timestamp) + j.terms.disputeSeconds;
        RoundRecord storage r = _records[jobId][s.round];
        (r.disputeUntil, r.isSettled, r.trainAttempt) = (disputeUntil, true, s.trainAttempt);
        (r.accepted, r.claimsRoot, r.cumulativeTotal) = (s.accepted, verdict.claimsRoot, verdict.cumulativeTotal);
        r.facts = Hashing.roundFacts(s.dataSeed, s.revealAccumulator, s.parent);
        (s.parent, s.cumulativeTotal) = (hash, verdict.cumulativeTotal);
        j.settledRounds++;
    }

    /// @dev The boundary: members change here and nowhere else while a job runs.
    function _next(uint256 jobId, Job storage j) private {
        RoundState storage s = j.state;
        bool diverged = _isDiverged(j);
        uint32 missedVerifiers = j.work.absent & j.work.absentBefore;
        if (s.round + 1 < j.terms.rounds) {
            if (diverged) return _closeSettled(jobId, j, JobStatus.EXPIRED, "Diverged");
            if (j.cancelRequested) return _closeSettled(jobId, j, JobStatus.CANCELLED, "Cancelled");
            if (block.timestamp >= j.terms.expiry) return _closeSettled(jobId, j, JobStatus.EXPIRED, "Expired");
        }
        uint256 armedBlock = j.work.armedBlock;
        bytes32 seedSource = j.work.firstAuditSeed;
        bool isLast = s.round + 1 == j.terms.rounds;
        if (!isLast) _applyBoundary(jobId, j, missedVerifiers, armedBlock);
        _advance(j);
        if (isLast) {
            s.phase = Phase.CLOSED;
            j.closedAt = uint64(block.timestamp);
        } else if (_hasEnough(jobId, j)) {
            _openRound(jobId, j, 0);
            _startTrain(jobId, j, seedSource, 0);
        } else {
            roster.admitAll(jobId);
        }
    }

    /// @dev Advances the round as after every settlement, then closes.
    function _closeSettled(uint256 jobId, Job storage j, JobStatus status, string memory reason) private {
        _advance(j);
        _close(jobId, j, status, reason);
    }

    function _advance(Job storage j) private {
        RoundState storage s = j.state;
        (s.round, s.attempt, s.trainAttempt) = (s.round + 1, 0, 0);
        (s.phase, s.deadline, s.beaconBlock) = (Phase.WAITING, 0, 0);
        Work storage w = j.work;
        (w.absentBefore, w.absent, w.contradicted) = (w.absent, 0, 0);
    }

    /// @return whether at least a quarter of the revealed seats stopped early and were verified in that
    function _isDiverged(Job storage j) private view returns (bool) {
        uint256 short = (j.work.shortSeats & j.state.accepted).popcount();
        return short != 0 && 4 * short >= j.state.revealed.popcount();
    }

    function _requireUndisputable(RoundRecord storage r) private view {
        if (r.disputeUntil > block.timestamp) revert DisputeOpen(r.disputeUntil, block.timestamp);
    }

    // --- punishing ---

    function _punishAbsence(
        uint256 jobId,
        Job storage j,
        RoundRecord storage r,
        address account,
        Offence offence,
        bytes32 faultId
    ) private returns (address, uint256 amount) {
        if (account == address(0)) return (account, 0);
        bool isSeat = offence == Offence.SEAT_MISSED;
        Role role = isSeat ? Role.PROVIDER : Role.VERIFIER;
        uint256 cutUp =
            isSeat ? _cutUp(j.terms.providerBond, j.missCutBps) : _cutUp(j.terms.verifierBond, j.verifierCutBps);
        roster.clearFault(jobId, role, account);
        if (r.isForgiven) return (account, 0);
        bytes32 lockId = Hashing.bondLock(jobId);
        amount = stakes.slash(Slash(account, role, lockId, faultId, cutUp, address(0), Role.PROVIDER, 0));
        return (account, amount);
    }

    function _punishReport(uint256 jobId, Job storage j, uint32 round, uint16 index, bytes32 faultId)
        private
        returns (address account, uint256 amount)
    {
        ReportEntry storage e = _reports[jobId][round][index];
        if (e.outcome == Outcome.WITHDRAWN) return (address(0), 0);
        bytes32 lockId = Hashing.reportLock(jobId, round, index);
        Outcome outcome = index < _records[jobId][round].annulledBelow ? Outcome.UNRESOLVED : e.outcome;
        if (outcome == Outcome.REFUTED && !e.isWithdrawn) {
            uint16 share = j.accusedShareBps;
            uint256 bond = j.terms.reportBond;
            amount =
                stakes.slash(Slash(e.reporter, Role.VERIFIER, lockId, faultId, bond, e.accused, Role.PROVIDER, share));
            return (e.reporter, amount);
        }
        stakes.unlock(e.reporter, Role.VERIFIER, lockId);
        if (outcome != Outcome.CONFIRMED && outcome != Outcome.UNFETCHABLE) return (e.reporter, 0);
        if (e.carriesBond) amount = _slashSeat(jobId, j, e, faultId);
        return (e.accused, amount);
    }

    function _slashSeat(uint256 jobId, Job storage j, ReportEntry storage e, bytes32 faultId)
        private
        returns (uint256)
    {
        roster.clearFault(jobId, Role.PROVIDER, e.accused);
        Slash memory order;
        (order.account, order.role, order.lockId) = (e.accused, Role.PROVIDER, Hashing.bondLock(jobId));
        (order.faultId, order.amount) = (faultId, j.terms.providerBond);
        if (e.assigned) {
            (order.beneficiary, order.beneficiaryRole) = (e.reporter, Role.VERIFIER);
            order.beneficiaryBps = j.finderShareBps;
        }
        return stakes.slash(order);
    }

    function _cutUp(uint256 bond, uint256 bps) private pure returns (uint256) {
        return (bond * bps + BPS - 1) / BPS;
    }
}
