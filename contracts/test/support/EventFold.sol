// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {IJobs} from "../../src/interfaces/IJobs.sol";
import {IRoster} from "../../src/interfaces/IRoster.sol";
import {IRoundsEvents} from "../../src/interfaces/IRoundsEvents.sol";
import {Bits} from "../../src/libraries/Bits.sol";
import {Hashing} from "../../src/libraries/Hashing.sol";
import "../../src/types/Types.sol";
import {Vm} from "./Vm.sol";

/// @title A job's state folded from its events alone, as EVENTS.md says; nothing here reads a contract.
contract EventFold {
    using Bits for uint256;

    RoundState internal s;
    mapping(uint256 round => mapping(uint256 index => Report)) internal reports;
    bytes32 internal cutHash; // of the block that carried AttestStarted
    bool internal hasAttestation;
    mapping(uint256 seat => bytes32) internal commitments;
    mapping(uint256 seat => bytes32) internal optimiserRoots; // last accepted; zero for a new holder
    mapping(uint256 seat => bytes32) internal revealedRoots;

    function folded() external view returns (RoundState memory) {
        return s;
    }

    /// @param blockHash of the log's block, known to any reader once the next block exists
    function apply_(Vm.Log calldata log, bytes32 blockHash) external {
        bytes32 topic = log.topics[0];
        if (topic == IJobs.JobCreated.selector) s.status = JobStatus.OPEN;
        else if (topic == IJobs.JobStatusChanged.selector) _status(log.data);
        else if (topic == IRoster.ProviderSeated.selector) _seated(log.data);
        else if (topic == IRoundsEvents.RoundOpened.selector) _opened(log.data);
        else if (topic == IRoundsEvents.BeaconRearmed.selector) _rearmed(log.data);
        else if (topic == IRoundsEvents.TrainStarted.selector) _train(log.data);
        else if (topic == IRoundsEvents.Committed.selector) _committed(log.data);
        else if (topic == IRoundsEvents.RevealStarted.selector) _reveal(log.data);
        else if (topic == IRoundsEvents.Revealed.selector) _revealed(log.data);
        else if (topic == IRoundsEvents.AuditArmed.selector) _armed(log.data);
        else if (topic == IRoundsEvents.AuditStarted.selector) _audit(log.data);
        else if (topic == IRoundsEvents.Reported.selector) _reported(log.data);
        else if (topic == IRoundsEvents.ConfirmStarted.selector) _confirm(log.data);
        else if (topic == IRoundsEvents.ReportResolved.selector) _resolved(log.data);
        else if (topic == IRoundsEvents.AttestStarted.selector) _attest(log.data, blockHash);
        else if (topic == IRoundsEvents.Attested.selector) _attested();
        else if (topic == IRoundsEvents.RoundSettled.selector) _settled(log.data);
        else if (topic == IRoundsEvents.RoundVoided.selector) _voided();
        else if (topic == IRoundsEvents.CircuitBroken.selector) (s.phase, s.deadline) = (Phase.HALTED, 0);
    }

    uint32 private _rounds;

    function setRounds(uint32 rounds_) external {
        _rounds = rounds_;
    }

    function _seated(bytes calldata data) private {
        (uint16 seat,) = abi.decode(data, (uint16, address));
        optimiserRoots[seat] = 0;
    }

    function _status(bytes calldata data) private {
        (s.status,) = abi.decode(data, (JobStatus, string));
        bool closes = s.status == JobStatus.CANCELLED || s.status == JobStatus.EXPIRED;
        if (closes) (s.phase, s.deadline, s.beaconBlock) = (Phase.CLOSED, 0, 0);
    }

    function _opened(bytes calldata data) private {
        RoundState memory fresh;
        (fresh.status, fresh.parent, fresh.cumulativeTotal) = (s.status, s.parent, s.cumulativeTotal);
        fresh.phase = Phase.SEEDING;
        (fresh.round, fresh.attempt, fresh.seated, fresh.verifiers, fresh.totalWeight, fresh.beaconBlock) =
            abi.decode(data, (uint32, uint16, uint256, uint256, uint256, uint64));
        fresh.trainAttempt = fresh.attempt;
        s = fresh;
    }

    function _rearmed(bytes calldata data) private {
        (,, s.beaconBlock) = abi.decode(data, (uint32, uint16, uint64));
    }

    function _train(bytes calldata data) private {
        (s.phase, s.beaconBlock) = (Phase.TRAIN, 0);
        (,,,,, s.dataSeed, s.deadline) = abi.decode(data, (uint32, uint16, uint256, uint256, uint256, bytes32, uint64));
    }

    function _committed(bytes calldata data) private {
        (,, uint16 seat,, bytes32 commitment) = abi.decode(data, (uint32, uint16, uint16, address, bytes32));
        s.committed |= Bits.bit(seat);
        s.commitAccumulator = Hashing.accumulateCommit(s.commitAccumulator, seat, commitment);
        commitments[seat] = commitment;
    }

    function _reveal(bytes calldata data) private {
        s.phase = Phase.REVEAL;
        (,,, s.deadline) = abi.decode(data, (uint32, uint16, uint256, uint64));
    }

    function _revealed(bytes calldata data) private {
        (,, uint16 seat,, Reveal memory r) = abi.decode(data, (uint32, uint16, uint16, address, Reveal));
        s.revealed |= Bits.bit(seat);
        bytes32 opening = r.reset ? bytes32(0) : optimiserRoots[seat];
        s.revealAccumulator = Hashing.accumulateReveal(s.revealAccumulator, seat, commitments[seat], opening);
        revealedRoots[seat] = r.optimiserRoot;
    }

    function _armed(bytes calldata data) private {
        if (s.phase == Phase.HALTED) (s.rejected, s.caught) = (0, 0);
        (s.phase, s.deadline) = (Phase.DRAW, 0);
        (, s.attempt, s.revealed, s.auditSet, s.beaconBlock) =
            abi.decode(data, (uint32, uint16, uint256, uint256, uint64));
    }

    function _audit(bytes calldata data) private {
        (s.phase, s.beaconBlock) = (Phase.REPORT, 0);
        (,, s.auditSeed,,,, s.deadline) = abi.decode(data, (uint32, uint16, bytes32, uint16, uint256, uint64, uint64));
    }

    function _reported(bytes calldata data) private {
        (uint32 round,, uint16 index,, Report memory report,) =
            abi.decode(data, (uint32, uint16, uint16, uint16, Report, bool));
        reports[round][index] = report;
    }

    function _confirm(bytes calldata data) private {
        s.phase = Phase.CONFIRM;
        (,, s.deadline) = abi.decode(data, (uint32, uint16, uint64));
    }

    function _resolved(bytes calldata data) private {
        (uint32 round,, uint16 index, Outcome outcome) = abi.decode(data, (uint32, uint16, uint16, Outcome));
        Report memory report = reports[round][index];
        if (outcome != Outcome.CONFIRMED && outcome != Outcome.UNFETCHABLE) return;
        s.rejected |= Bits.bit(report.seat);
        if (outcome == Outcome.CONFIRMED && report.fault != Fault.WITHHELD) s.caught |= Bits.bit(report.seat);
    }

    function _attest(bytes calldata data, bytes32 blockHash) private {
        (s.phase, s.cutBlockHash) = (Phase.ATTEST, 0);
        (cutHash, hasAttestation) = (blockHash, false);
        uint256[11] memory words = abi.decode(abi.encodePacked(data, bytes32(0)), (uint256[11]));
        (s.accepted, s.rejected, s.unresolved) = (words[2], words[3], words[4]);
        (s.caught, s.dutiful, s.evidenceRoot) = (words[5], words[6], bytes32(words[7]));
        (s.cutBlock, s.deadline) = (uint64(words[8]), uint64(words[9]));
    }

    function _attested() private {
        if (!hasAttestation) s.cutBlockHash = cutHash;
        hasAttestation = true;
    }

    function _settled(bytes calldata data) private {
        (uint32 round,, bytes32 hash, Verdict memory verdict,) =
            abi.decode(data, (uint32, uint16, bytes32, Verdict, uint64));
        (s.parent, s.cumulativeTotal) = (hash, verdict.cumulativeTotal);
        for (uint256 rest = s.accepted; rest != 0; rest &= rest - 1) {
            optimiserRoots[rest.lowest()] = revealedRoots[rest.lowest()];
        }
        (s.round, s.attempt, s.trainAttempt) = (round + 1, 0, 0);
        s.phase = round + 1 == _rounds ? Phase.CLOSED : Phase.WAITING;
        (s.deadline, s.beaconBlock) = (0, 0);
    }

    function _voided() private {
        s.attempt++;
        (s.phase, s.deadline, s.beaconBlock) = (Phase.WAITING, 0, 0);
    }
}
