// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {IAttestationPolicy} from "./interfaces/IAttestationPolicy.sol";
import {IAudits} from "./interfaces/IAudits.sol";
import {IMembersHooks, IRoundsHooks} from "./interfaces/IHooks.sol";
import {IRounds} from "./interfaces/IRounds.sol";
import {Having, ILateVotes} from "./interfaces/ILateVotes.sol";
import {Bits} from "./libraries/Bits.sol";
import {EventLog, IEventLog} from "./libraries/EventLog.sol";
import {Hashing} from "./libraries/Hashing.sol";
import {Reveals} from "./libraries/Reveals.sol";
import "./types/Types.sol";

/// @title Late votes, for the pay of updates that a committee did not have; and members that
/// certified two models.
contract LateVotes is ILateVotes, EventLog {
    using Bits for uint256;

    IRounds public immutable rounds;
    IMembersHooks public immutable members;
    IAudits public immutable audits;

    mapping(uint256 jobId => mapping(uint32 round => mapping(uint32 id => uint256))) private _late;

    error TooLate(uint256 auditEnd, uint256 now_);
    error NotYours(uint32 id, address account, address caller);
    error NotThen(uint32 id, uint32 round);
    error WasLeaked(uint16 seat);
    error WrongVotes(bytes32 given, bytes32 kept);
    error NotAvailable(uint16 seat, uint256 has, uint256 electors);
    error NotSigned(address account, bytes32 digest);
    error NoContradiction(uint32 id);

    constructor(address rounds_, address members_, address audits_) {
        (rounds, members, audits) = (IRounds(rounds_), IMembersHooks(members_), IAudits(audits_));
    }

    /// @inheritdoc ILateVotes
    function lateVote(uint256 jobId, uint32 round, uint32 id, uint256 has) external {
        _requireBefore(rounds.timesOf(jobId, round).auditEnd);
        Holder memory m = members.holderOf(jobId, Role.VERIFIER, id);
        if (msg.sender != m.account) revert NotYours(id, m.account, msg.sender);
        if (m.from > round + 1 || m.to <= round) revert NotThen(id, round);
        _late[jobId][round][id] |= has;
        bytes32 after_ = IEventLog(address(rounds)).logHead(jobId); // it may have been settled in this block
        _logAfter(jobId, after_, abi.encode(LateVote.selector, jobId, msg.sender, id), abi.encode(round, has));
    }

    /// @inheritdoc ILateVotes
    function grant(uint256 jobId, uint32 round, uint16 seat, Having calldata h) external {
        _requireBefore(rounds.timesOf(jobId, round).auditEnd);
        Reveals.requireRecord(rounds, jobId, round, h.record);
        if (audits.leakedOf(jobId, round).has(seat)) revert WasLeaked(seat);
        (bytes32 votes, uint256 having) = _votesOf(h.committeeSeed, h.slots, h.has, seat);
        if (votes != h.record.votes) revert WrongVotes(votes, h.record.votes);
        uint256 own = h.record.committee;
        uint256 electors = own | _nextCommittee(jobId, round, h.next);
        for (uint256 i = 0; i < h.late.length; i++) {
            if (!_late[jobId][round][h.late[i]].has(seat)) continue;
            Holder memory m = members.holderOf(jobId, Role.VERIFIER, h.late[i]);
            // A slot of both committees is its holder's in the round itself.
            uint32 when = own.has(m.index) ? round : round + 1;
            if (m.from <= when && when < m.to) having |= Bits.bit(m.index) & electors;
        }
        bool isAvailable = having.popcount() * 2 > electors.popcount();
        if (!isAvailable) revert NotAvailable(seat, having.popcount(), electors.popcount());
        IRoundsHooks(address(rounds)).setPay(jobId, round, seat, true);
    }

    /// @inheritdoc ILateVotes
    function equivocated(
        uint256 jobId,
        uint32 round,
        uint32 id,
        bytes32 seed,
        bytes32 votes,
        Certified[2] calldata shown
    ) external {
        Holder memory m = members.holderOf(jobId, Role.VERIFIER, id);
        if (round < m.from || round >= m.to) revert NotThen(id, round);
        bytes32 first = _signed(jobId, round, m.account, seed, votes, shown[0]);
        bytes32 second = _signed(jobId, round, m.account, seed, votes, shown[1]);
        if (first == second) revert NoContradiction(id);
        members.slashEquivocated(jobId, id, round);
    }

    /// @return votes the accumulator that they give
    /// @return having slots whose vote has the seat
    function _votesOf(bytes32 committeeSeed, bytes calldata slots, uint256[] calldata has, uint16 seat)
        private
        pure
        returns (bytes32 votes, uint256 having)
    {
        votes = Hashing.noVotes(committeeSeed);
        for (uint256 i = 0; i < has.length; i++) {
            votes = Hashing.accumulateVote(votes, uint8(slots[i]), has[i]);
            if (has[i].has(seat)) having |= Bits.bit(uint8(slots[i]));
        }
    }

    function _nextCommittee(uint256 jobId, uint32 round, RoundRecord calldata next) private view returns (uint256) {
        if (rounds.recordOf(jobId, round + 1) != 0) {
            Reveals.requireRecord(rounds, jobId, round + 1, next);
            return next.committee;
        }
        RoundState memory s = rounds.state(jobId);
        bool isRunning = s.round == round + 1 && s.phase != Phase.WAITING && s.phase != Phase.CLOSED;
        return isRunning ? s.committee : 0;
    }

    /// @return digest that the account signed, alone or with others
    function _signed(
        uint256 jobId,
        uint32 round,
        address account,
        bytes32 seed,
        bytes32 votes,
        Certified calldata shown
    ) private view returns (bytes32 digest) {
        Hashing.RoundId memory roundId = Hashing.RoundId(address(rounds), jobId, round);
        digest = Hashing.certificate(roundId, seed, votes, shown.verdict);
        IAttestationPolicy policy = IAttestationPolicy(rounds.policyOf(jobId));
        uint256 signers = policy.certify(Hashing.roundIdHash(roundId), shown.accounts, digest, shown.certificate);
        for (uint256 i = 0; i < shown.accounts.length; i++) {
            if (signers.has(i) && shown.accounts[i] == account) return digest;
        }
        revert NotSigned(account, digest);
    }

    /// @dev A round that is not settled has no times at all.
    function _requireBefore(uint256 auditEnd) private view {
        if (block.timestamp >= auditEnd) revert TooLate(auditEnd, block.timestamp);
    }
}
