// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {IAudits} from "./interfaces/IAudits.sol";
import {IAuditsHooks, IJobsHooks, IMembersHooks, IRoundsHooks} from "./interfaces/IHooks.sol";
import {IJobs} from "./interfaces/IJobs.sol";
import {IMembers} from "./interfaces/IMembers.sol";
import {IRounds} from "./interfaces/IRounds.sol";
import {IGame, Outcome} from "./judge/IClaims.sol";
import {Bits} from "./libraries/Bits.sol";
import {Draws} from "./libraries/Draws.sol";
import {Hashing} from "./libraries/Hashing.sol";
import {EventLog, IEventLog} from "./libraries/EventLog.sol";
import {Placed} from "./libraries/Placed.sol";
import {Reveals, Shown} from "./libraries/Reveals.sol";
import {Wired} from "./libraries/Wired.sol";
import "./types/Types.sol";

/// @title Behind the training: who looked at what, and proved it.
/// @notice A digest of a verifier changes its own fee and nobody's pay or bond. All that is claimed
/// here can be recomputed.
contract Audits is IAudits, IAuditsHooks, EventLog, Wired {
    using Bits for uint256;

    /// A fee that waits until the seat's round is FINAL: its digest is wrong, or a game is about what
    /// it called valid. Nobody earns by it, since whoever sees a report first can send it first.
    struct Contest {
        address by; // who showed the wrong digest; zero where nobody did
        uint16 seat;
        bool isSettled;
        uint64 game; // about the seat's round; 0 for none
    }

    /// How many of those who owe it did it, in a round.
    struct Done {
        uint16 opened; // audit reports
        uint16 keys; // shown in time
    }

    /// Which round's duties are looked at.
    struct Where {
        uint256 jobId;
        uint32 round;
    }

    uint256 private constant ENTRY_BYTES = 35;
    uint256 private constant MAX_EXCUSES = 3; // of an account in a job
    uint256 private constant TIME_BITS = 40;
    uint16 private constant VALID = type(uint16).max;
    uint256 private constant HASH = type(uint256).max << 48; // 26 bytes of the audit report, of the opened body's or the key's hash;
    uint256 private constant OPENED = 1 << 47; // then whether it is opened;
    uint256 private constant MISSED = 1 << 46; // whether a wrong digest of it was a missed duty;
    uint256 private constant REST = (1 << 46) - 1; // then how many duties earn, or when it was sealed or shown

    IRounds public immutable rounds;
    IMembersHooks public immutable members;
    IJobs public immutable jobs;
    IGame public game;

    mapping(uint256 jobId => mapping(uint32 round => mapping(address => bytes32))) public auditReportOf;
    mapping(uint256 jobId => mapping(uint32 round => uint256)) public leakedOf; // seats
    mapping(uint256 jobId => mapping(uint32 round => uint256)) public struckOf; // seats
    mapping(uint256 jobId => mapping(uint32 round => mapping(address => bytes32))) private _keys;
    mapping(bytes32 duty => Contest) private _contests;
    mapping(uint256 jobId => mapping(uint32 round => Done)) private _done;
    mapping(uint256 jobId => mapping(address => uint256)) private _excuses; // ends of OPEN, unix seconds

    error NotOpen(uint256 from, uint256 to, uint256 now_);
    error NotYours(uint32 id, address account, address caller);
    error NotThen(uint32 id, uint32 round);
    error AlreadyOpened(address account, uint32 round);
    error NotInTime(uint256 sealedAt, uint256 from, uint256 to);
    error WrongAuditReport(bytes32 given, bytes32 sealed_);
    error WrongBody(bytes32 given, bytes32 opened);
    error BodyLength(uint256 length);
    error NotADuty(uint16 seat, uint32 id);
    error NotInPool(uint16 slot, uint256 ready);
    error ZeroKey();
    error AlreadyStruck(uint16 seat, uint32 round);
    error KeyShownAlready(address account, uint32 round);
    error OwnKey(address account);
    error NotPaid(uint16 seat, uint256 pay);
    error NotValid(uint16 seat, uint16 from);
    error DigestIsRight(bytes32 digest);
    error WasLeaked(uint16 seat);
    error AlreadySlashed(uint32 id);
    error AlreadyContested(uint32 id, uint16 seat);
    error NotContested(uint32 id, uint16 seat);
    error NotAboutIt(uint64 game, bytes32 position);
    error NotFinal(uint32 round, uint256 openPosition);
    error NotDrawn(uint16 seat, uint32 round);
    error WasAudited(uint16 seat, uint32 id);
    error Standstill(uint256 done, uint256 owing);
    error AlreadyExcused(address account, uint256 openEnd);
    error NotDropped(uint16 seat, uint32 id);
    error NotProven(uint16 seat, uint32 id);

    constructor(address rounds_, address members_, address jobs_) {
        (rounds, members, jobs) = (IRounds(rounds_), IMembersHooks(members_), IJobs(jobs_));
        Placed.requireHere(IJobs(jobs_).audits());
    }

    function wire(address game_) external wiring {
        game = IGame(game_);
    }

    // --- audit reports ---

    /// @inheritdoc IAudits
    /// @dev Whether the caller is a member, and in time, is asked when it opens: what a stranger
    /// seals harms nobody.
    function sealAuditReport(uint256 jobId, uint32 round, bytes32 auditReport_) external {
        bytes32 stored = auditReportOf[jobId][round][msg.sender];
        if (uint256(stored) & OPENED != 0) revert AlreadyOpened(msg.sender, round);
        auditReportOf[jobId][round][msg.sender] = bytes32(uint256(auditReport_) & HASH | block.timestamp);
        _log(jobId, abi.encode(AuditReportSealed.selector, jobId, msg.sender, round), abi.encode(auditReport_));
    }

    /// @inheritdoc IAudits
    function open(
        uint256 jobId,
        uint32 round,
        uint32 id,
        RoundRecord calldata record,
        bytes calldata body,
        bytes32 salt
    ) external {
        Audit memory a = rounds.auditOf(jobId, round);
        _requireBetween(a.auditEnd, a.openEnd);
        _requireRecord(a, record);
        Holder memory m = _requireMember(jobId, round, id);
        if (msg.sender != m.account) revert NotYours(id, m.account, msg.sender);
        bytes32 hash = keccak256(body);
        _requireSealed(
            a, jobId, round, Hashing.auditReport(_roundId(jobId, round), record.auditSeed, id, msg.sender, hash, salt)
        );
        uint256 valid = _requireDuties(a, Where(jobId, round), m.index, record, body);
        auditReportOf[jobId][round][msg.sender] = bytes32(uint256(hash) & HASH | OPENED | valid);
        _done[jobId][round].opened++;
        _log(jobId, abi.encode(Opened.selector, jobId, msg.sender, id), abi.encode(round, body));
    }

    /// @inheritdoc IAudits
    function absent(
        uint256 jobId,
        uint32 round,
        uint32 id,
        uint16 seat,
        RoundRecord calldata record,
        bytes calldata body
    ) external {
        Audit memory a = rounds.auditOf(jobId, round);
        _requireBetween(a.openEnd, a.windowEnd);
        _requireRecord(a, record);
        Holder memory m = _requireMember(jobId, round, id);
        _requireInPool(record, m.index);
        if (!_isDutyOf(a, Where(jobId, round), m.index, record, seat)) revert NotADuty(seat, id);
        bytes32 stored = auditReportOf[jobId][round][m.account];
        if (uint256(stored) & OPENED != 0) {
            _requireBody(stored, body);
            if (_find(body, seat) < body.length) revert WasAudited(seat, id);
        }
        bool isStandstill = 2 * uint256(_done[jobId][round].opened) < _auditors(record);
        if (isStandstill && _excuse(Where(jobId, round), id, m.account, record.drawn.popcount())) return;
        members.penalise(jobId, Role.VERIFIER, id, round, MissedDuty.AUDIT);
    }

    /// @dev Most auditors were away: of one or two that says little. The chain stood still if most
    /// keys are missing, too. Else it moved again before KEYS was over, so what stopped it is behind
    /// each OPEN that ended within the length of KEYS of this one: one excuse is for all of these.
    /// @return whether the account had one left
    function _excuse(Where memory where, uint32 id, address account, uint256 drawn) private returns (bool) {
        Times memory t = rounds.timesOf(where.jobId, where.round);
        _requireBetween(t.keysEnd, t.windowEnd);
        uint256 keys = _done[where.jobId][where.round].keys;
        if (2 * keys < drawn) revert Standstill(keys, drawn);
        uint256 excuses = _excuses[where.jobId][account];
        uint256 shift = 0;
        for (; excuses >> shift != 0; shift += TIME_BITS) {
            uint256 other = uint40(excuses >> shift);
            uint256 apart = other > t.openEnd ? other - t.openEnd : t.openEnd - other;
            if (apart < t.keysEnd - t.openEnd) revert AlreadyExcused(account, other);
        }
        if (shift == MAX_EXCUSES * TIME_BITS) return false;
        _excuses[where.jobId][account] = excuses | uint256(t.openEnd) << shift;
        _log(where.jobId, abi.encode(Excused.selector, where.jobId, account, id), abi.encode(where.round));
        return true;
    }

    /// @inheritdoc IAudits
    function dropped(uint256 jobId, uint32 round, uint32 id, uint16 seat, uint32 seatId, bytes calldata body) external {
        Times memory t = rounds.timesOf(jobId, round);
        _requireBetween(t.half, t.windowEnd);
        (uint16 from,) = saidOf(jobId, round, id, seat, body);
        bool isSlashed = _requireSeat(jobId, round, seatId, seat).isSlashed;
        bytes32 set = Hashing.setOf(jobId, Role.PROVIDER, seatId);
        bool isPlayed = isSlashed || game.wasChallenged(_accusation(jobId, round, id, seat, from, set));
        if (from == VALID || isPlayed) revert NotDropped(seat, id);
        members.slashDropped(jobId, id, round, seat);
        _log(jobId, abi.encode(Dropped.selector, jobId, id, seat), abi.encode(round));
    }

    /// @inheritdoc IAudits
    /// @dev Else no *mismatch* earns: it says nothing that only a replay tells, before the judge
    /// has heard it.
    function proven(uint256 jobId, uint32 round, uint32 id, uint32 seatId, bytes calldata body) external {
        uint16 seat = members.holderOf(jobId, Role.PROVIDER, seatId).index;
        bool isSlashed = _requireSeat(jobId, round, seatId, seat).isSlashed;
        (uint16 from,) = saidOf(jobId, round, id, seat, body);
        if (from == VALID || !isSlashed) revert NotProven(seat, id);
        Contest storage c = _contests[_dutyOf(jobId, round, id, seat)];
        if (c.isSettled) revert AlreadyContested(id, seat);
        c.isSettled = true;
        _log(jobId, abi.encode(Proven.selector, jobId, id, seat), abi.encode(round));
        _creditFee(jobId, id);
    }

    function _creditFee(uint256 jobId, uint32 id) private {
        address auditor = members.holderOf(jobId, Role.VERIFIER, id).account;
        IJobsHooks(address(jobs)).credit(jobId, auditor, jobs.termsOf(jobId).dutyFee);
    }

    // --- keys ---

    /// @inheritdoc IAudits
    function key(uint256 jobId, uint32 round, bytes32 key_) external {
        if (key_ == 0) revert ZeroKey();
        bytes32 before = _keys[jobId][round][msg.sender];
        _keys[jobId][round][msg.sender] = _shownAt(key_, block.timestamp);
        _countKey(jobId, round, uint256(before) & REST);
        _log(jobId, abi.encode(KeyShown.selector, jobId, msg.sender, round), abi.encode(key_));
    }

    /// @inheritdoc IAudits
    function leak(Shown calldata s, bytes32 key_) external {
        _requireBetween(0, rounds.timesOf(s.jobId, s.round).auditEnd);
        Holder memory m = Reveals.requireShown(rounds, members, s);
        Reveals.requireKey(s.reveal, key_);
        if (msg.sender == m.account) revert OwnKey(msg.sender);
        _requirePaid(s.jobId, s.round, s.seat);
        _keys[s.jobId][s.round][m.account] = _shownAt(key_, block.timestamp + 1); // after the settlement, if in its block
        leakedOf[s.jobId][s.round] |= Bits.bit(s.seat);
        bytes32 after_ = IEventLog(address(rounds)).logHead(s.jobId); // it may have been settled in this block
        bytes memory topics = abi.encode(Leaked.selector, s.jobId, msg.sender, s.seat);
        _logAfter(s.jobId, after_, topics, abi.encode(s.round, key_));
        IRoundsHooks(address(rounds)).setPay(s.jobId, s.round, s.seat, false);
    }

    /// @inheritdoc IAudits
    function reportMissingKey(Shown calldata s) external {
        Times memory t = rounds.timesOf(s.jobId, s.round);
        _requireBetween(t.keysEnd, t.windowEnd);
        _requireKeyless(s, t.settledAt, t.keysEnd);
        (uint256 pay,,) = rounds.rowsOf(s.jobId, s.round);
        if (struckOf[s.jobId][s.round].has(s.seat)) revert AlreadyStruck(s.seat, s.round);
        struckOf[s.jobId][s.round] |= Bits.bit(s.seat);
        if (pay.has(s.seat)) IRoundsHooks(address(rounds)).setPay(s.jobId, s.round, s.seat, false);
        _log(s.jobId, abi.encode(Struck.selector, s.jobId, s.round, s.seat), "");
        if (2 * uint256(_done[s.jobId][s.round].keys) < s.record.drawn.popcount()) return;
        members.penalise(s.jobId, Role.PROVIDER, s.id, s.round, MissedDuty.KEY);
    }

    /// @dev Of the holders of seats in the round, each once.
    /// @param shownBefore when the caller showed one before; 0 for never
    function _countKey(uint256 jobId, uint32 round, uint256 shownBefore) private {
        Times memory t = rounds.timesOf(jobId, round);
        bool isCounted = shownBefore >= t.openEnd && shownBefore < t.keysEnd;
        if (isCounted || block.timestamp < t.openEnd || block.timestamp >= t.keysEnd) return;
        (Role role, uint32 id) = IMembers(address(members)).idOf(jobId, msg.sender);
        if (role != Role.PROVIDER || id == 0) return;
        Holder memory m = members.holderOf(jobId, role, id);
        if (m.from <= round && round < m.to) _done[jobId][round].keys++;
    }

    // --- contests of digests ---

    /// @inheritdoc IAudits
    function contest(Shown calldata s, uint32 id, bytes calldata body, bytes32 key_) external {
        _requireContestable(s);
        _requireWrong(s, id, body, key_);
        Contest storage c = _contests[_dutyOf(s.jobId, s.round, id, s.seat)];
        if (c.by != address(0)) revert AlreadyContested(id, s.seat);
        if (c.game == 0) _takeBack(s.jobId, s.round, id);
        (c.by, c.seat) = (msg.sender, s.seat);
        _log(s.jobId, abi.encode(Contested.selector, s.jobId, msg.sender, s.seat), abi.encode(id, s.round));
    }

    /// @inheritdoc IAudits
    /// @dev Before the window is over, since fees may be claimed from then on. A game that the seat
    /// did not lose gives way to another, so that a sham keeps no fee.
    function withhold(uint256 jobId, uint32 round, uint32 id, uint32 seatId, uint64 gameId, bytes calldata body)
        external
    {
        uint16 seat = members.holderOf(jobId, Role.PROVIDER, seatId).index;
        _requireSeat(jobId, round, seatId, seat);
        (uint16 from,) = saidOf(jobId, round, id, seat, body);
        if (from != VALID) revert NotValid(seat, from);
        _requireAbout(Hashing.positionOf(Hashing.setOf(jobId, Role.PROVIDER, seatId), round), gameId);
        _withhold(Where(jobId, round), id, seat, gameId);
        _log(jobId, abi.encode(Withheld.selector, jobId, id, seat), abi.encode(round, gameId));
    }

    function _withhold(Where memory where, uint32 id, uint16 seat, uint64 gameId) private {
        Contest storage c = _contests[_dutyOf(where.jobId, where.round, id, seat)];
        if (c.isSettled || (c.game != 0 && !_isOver(_outcomeOf(c.game)))) revert AlreadyContested(id, seat);
        if (c.game == 0 && c.by == address(0)) {
            _requireBetween(0, rounds.timesOf(where.jobId, where.round).windowEnd);
            _takeBack(where.jobId, where.round, id);
        }
        (c.seat, c.game) = (seat, gameId);
    }

    function _requireAbout(bytes32 position, uint64 gameId) private view {
        (bytes32 theirs, Outcome outcome) = game.verdictOf(gameId);
        if (theirs != position || _isOver(outcome)) revert NotAboutIt(gameId, position);
    }

    function _outcomeOf(uint64 gameId) private view returns (Outcome outcome) {
        (, outcome) = game.verdictOf(gameId);
    }

    /// @return whether the holder has not lost it, and will not
    function _isOver(Outcome outcome) private pure returns (bool) {
        return outcome == Outcome.CHALLENGER_LOST || outcome == Outcome.SENT_HOME;
    }

    /// @dev One duty less of the auditor's earns.
    function _takeBack(uint256 jobId, uint32 round, uint32 id) private {
        address auditor = members.holderOf(jobId, Role.VERIFIER, id).account;
        bytes32 stored = auditReportOf[jobId][round][auditor];
        auditReportOf[jobId][round][auditor] = bytes32(uint256(stored) - 1);
    }

    /// @inheritdoc IAudits
    /// @dev A *valid* about a round that its seat lost a game about earns nothing, whatever its digest is: who replayed
    /// it knew better. Of rounds that went with another's game it earns, and no digest is wrong.
    function settleContest(uint256 jobId, uint32 round, uint32 id, uint32 seatId) external {
        Holder memory holder = members.holderOf(jobId, Role.PROVIDER, seatId);
        Contest storage c = _contests[_dutyOf(jobId, round, id, holder.index)];
        if ((c.by == address(0) && c.game == 0) || c.isSettled) revert NotContested(id, holder.index);
        _requireSeat(jobId, round, seatId, c.seat);
        _requireFinal(jobId, round, seatId);
        c.isSettled = true;
        bool isLost = holder.isSlashed && members.lostFrom(jobId, Role.PROVIDER, seatId) <= round;
        bool isFalse = c.game != 0 && _outcomeOf(c.game) == Outcome.HOLDER_LOST;
        bool isWrong = c.by != address(0) && !isLost;
        _log(jobId, abi.encode(ContestSettled.selector, jobId, id, c.seat), abi.encode(round, isFalse || isWrong));
        if (isFalse) return;
        if (!isWrong) return _creditFee(jobId, id);
        address auditor = members.holderOf(jobId, Role.VERIFIER, id).account;
        uint256 stored = uint256(auditReportOf[jobId][round][auditor]);
        if (stored & MISSED != 0) return;
        auditReportOf[jobId][round][auditor] = bytes32(stored | MISSED);
        members.penalise(jobId, Role.VERIFIER, id, round, MissedDuty.DIGEST);
    }

    function _requireContestable(Shown calldata s) private view {
        Times memory t = rounds.timesOf(s.jobId, s.round);
        _requireBetween(t.openEnd, t.windowEnd);
        if (Reveals.requireShown(rounds, members, s).isSlashed) revert AlreadySlashed(s.id);
        if (leakedOf[s.jobId][s.round].has(s.seat)) revert WasLeaked(s.seat);
    }

    function _requireWrong(Shown calldata s, uint32 id, bytes calldata body, bytes32 key_) private view {
        Reveals.requireKey(s.reveal, key_);
        (uint16 from, bytes32 digest) = saidOf(s.jobId, s.round, id, s.seat, body);
        if (from != VALID) revert NotValid(s.seat, from);
        address auditor = members.holderOf(s.jobId, Role.VERIFIER, id).account;
        if (digest == Reveals.validDigest(s.reveal, key_, auditor)) revert DigestIsRight(digest);
    }

    // --- views ---

    /// @inheritdoc IAuditsHooks
    function dutiesOf(uint256 jobId, address account, uint32 from, uint32 to) external view returns (uint256 total) {
        mapping(uint32 => mapping(address => bytes32)) storage auditReports = auditReportOf[jobId];
        for (uint32 round = from; round < to; round++) {
            uint256 stored = uint256(auditReports[round][account]);
            if (stored & OPENED != 0) total += stored & REST;
        }
    }

    /// @inheritdoc IAudits
    function saidOf(uint256 jobId, uint32 round, uint32 id, uint16 seat, bytes calldata body)
        public
        view
        returns (uint16 from, bytes32 digest)
    {
        // An account has an audit report a round, and may have had other ids: only one of them
        // counts in the round.
        bytes32 stored = auditReportOf[jobId][round][_requireMember(jobId, round, id).account];
        if (uint256(stored) & OPENED == 0) revert WrongBody(keccak256(body), stored);
        _requireBody(stored, body);
        uint256 offset = _find(body, seat);
        if (offset == body.length) revert NotADuty(seat, id);
        return (uint16(bytes2(body[offset + 1:])), bytes32(body[offset + 3:]));
    }

    // --- duties ---

    /// @return valid how many of the duties are called so, each of which earns unless it is
    /// contested
    function _requireDuties(
        Audit memory a,
        Where memory where,
        uint16 slot,
        RoundRecord calldata record,
        bytes calldata body
    ) private view returns (uint256 valid) {
        if (body.length == 0 || body.length % ENTRY_BYTES != 0) {
            revert BodyLength(body.length);
        }
        _requireInPool(record, slot);
        uint256 least;
        for (uint256 i = 0; i < body.length; i += ENTRY_BYTES) {
            uint16 seat = uint8(body[i]);
            if (seat < least || !_isDutyOf(a, where, slot, record, seat)) revert NotADuty(seat, slot);
            least = uint256(seat) + 1;
            if (uint16(bytes2(body[i + 1:])) == VALID) valid++;
        }
    }

    function _requireInPool(RoundRecord calldata record, uint16 slot) private pure {
        if (!record.ready.has(slot)) revert NotInPool(slot, record.ready);
    }

    function _isDutyOf(Audit memory a, Where memory where, uint16 slot, RoundRecord calldata record, uint16 seat)
        private
        view
        returns (bool)
    {
        if (!record.drawn.has(seat)) return false;
        if (!Draws.isAuditor(record.auditSeed, record.drawn, record.ready, seat, slot)) return false;
        return !a.hasPartials || rounds.segmentsOf(where.jobId, where.round, seat) != 0;
    }

    /// @return slots that have duties: drawn seats go round the pool
    function _auditors(RoundRecord calldata record) private pure returns (uint256) {
        (uint256 duties, uint256 ready) = (record.drawn.popcount(), record.ready.popcount());
        return duties < ready ? duties : ready;
    }

    /// @dev The reveal is shown because a wrong key is none, whenever it came.
    function _requireKeyless(Shown calldata s, uint256 settledAt, uint256 keysEnd) private view {
        Holder memory m = Reveals.requireShown(rounds, members, s);
        if (!s.record.drawn.has(s.seat) || s.reveal.checkpointCommitments.length == 0) {
            revert NotDrawn(s.seat, s.round);
        }
        bytes32 stored = _keys[s.jobId][s.round][m.account];
        bool isIt = (stored ^ s.reveal.keyHash) & bytes32(HASH) == 0;
        uint256 shownAt = uint256(stored) & REST;
        if (isIt && shownAt > settledAt && shownAt < keysEnd) revert KeyShownAlready(m.account, s.round);
    }

    /// @return stored of a key: 26 bytes of its hash, and when it was shown
    function _shownAt(bytes32 key_, uint256 time) private pure returns (bytes32 stored) {
        return bytes32(uint256(keccak256(abi.encode(key_))) & HASH | time);
    }

    /// @return what the game remembers of a challenge by the member about the first segment that it
    /// says differs
    function _accusation(uint256 jobId, uint32 round, uint32 id, uint16 seat, uint16 from, bytes32 set)
        private
        view
        returns (bytes32)
    {
        address author = members.holderOf(jobId, Role.VERIFIER, id).account;
        bool isUpdateProof = from == rounds.segmentsOf(jobId, round, seat);
        uint256 segment = isUpdateProof && from > 0 ? from - 1 : from;
        return keccak256(abi.encode(author, Hashing.positionOf(set, round), segment, isUpdateProof));
    }

    // --- bodies ---

    function _requireBody(bytes32 stored, bytes calldata body) private pure {
        bytes32 given = keccak256(body);
        if ((given ^ stored) & bytes32(HASH) != 0) revert WrongBody(given, stored);
    }

    /// @return offset of the seat's duty; the body's length where there is none
    function _find(bytes calldata body, uint16 seat) private pure returns (uint256 offset) {
        for (; offset < body.length; offset += ENTRY_BYTES) {
            if (uint8(body[offset]) == seat) return offset;
        }
    }

    function _dutyOf(uint256 jobId, uint32 round, uint32 id, uint16 seat) private pure returns (bytes32) {
        return keccak256(abi.encode(jobId, round, id, seat));
    }

    /// @dev Sealed while AUDIT was open: not before the seed was settled, not after its end.
    function _requireSealed(Audit memory a, uint256 jobId, uint32 round, bytes32 given) private view {
        bytes32 stored = auditReportOf[jobId][round][msg.sender];
        bool isOpened = uint256(stored) & OPENED != 0;
        if (isOpened || (given ^ stored) & bytes32(HASH) != 0) revert WrongAuditReport(given, stored);
        uint256 sealedAt = uint256(stored) & REST;
        bool isInTime = sealedAt >= a.settledAt && sealedAt < a.auditEnd;
        if (!isInTime) revert NotInTime(sealedAt, a.settledAt, a.auditEnd);
    }

    function _roundId(uint256 jobId, uint32 round) private view returns (Hashing.RoundId memory) {
        return Hashing.RoundId(address(rounds), jobId, round);
    }

    // --- who and when ---

    function _requireMember(uint256 jobId, uint32 round, uint32 id) private view returns (Holder memory m) {
        m = members.holderOf(jobId, Role.VERIFIER, id);
        if (round < m.from || round >= m.to) revert NotThen(id, round);
    }

    function _requireSeat(uint256 jobId, uint32 round, uint32 id, uint16 seat) private view returns (Holder memory m) {
        m = members.holderOf(jobId, Role.PROVIDER, id);
        if (m.index != seat || round < m.from || round >= m.to) revert NotThen(id, round);
    }

    function _requirePaid(uint256 jobId, uint32 round, uint16 seat) private view {
        (uint256 pay,,) = rounds.rowsOf(jobId, round);
        if (!pay.has(seat)) revert NotPaid(seat, pay);
    }

    function _requireFinal(uint256 jobId, uint32 round, uint32 seatId) private view {
        _requireBetween(rounds.timesOf(jobId, round).windowEnd, type(uint256).max);
        bytes32 set = Hashing.setOf(jobId, Role.PROVIDER, seatId);
        if (game.openGames(set) == 0) return;
        uint256 open_ = uint256(game.lowestOpen(set));
        if (open_ < uint256(Hashing.positionOf(set, round + 1))) revert NotFinal(round, open_);
    }

    /// @dev A round that is not settled has no times from all.
    function _requireBetween(uint256 from, uint256 to) private view {
        if (to == 0 || block.timestamp < from || block.timestamp >= to) revert NotOpen(from, to, block.timestamp);
    }

    function _requireRecord(Audit memory a, RoundRecord calldata record) private pure {
        bytes32 given = Hashing.keptOf(Hashing.shownRecordHash(record));
        if (given != a.record) revert Reveals.WrongRecord(given, a.record);
    }
}
