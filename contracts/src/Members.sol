// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {IAttestationPolicy} from "./interfaces/IAttestationPolicy.sol";
import {ICustody, Slash} from "./interfaces/ICustody.sol";
import {IMembersHooks, IRoundsHooks, Earned} from "./interfaces/IHooks.sol";
import {IJobs} from "./interfaces/IJobs.sol";
import {IMembers} from "./interfaces/IMembers.sol";
import {IRounds} from "./interfaces/IRounds.sol";
import {IGame} from "./judge/IClaims.sol";
import {Bits} from "./libraries/Bits.sol";
import {Hashing} from "./libraries/Hashing.sol";
import {EventLog} from "./libraries/EventLog.sol";
import {Rows} from "./libraries/Rows.sol";
import {Placed} from "./libraries/Placed.sol";
import {Seasoning} from "./libraries/Seasoning.sol";
import {TypedData, TypedDomain} from "./libraries/TypedData.sol";
import {Wired} from "./libraries/Wired.sol";
import {Holders, HolderWord} from "./types/Holders.sol";
import "./types/Types.sol";

/// @title Holders of seats and slots. Each has an id that is never used again, a bond, and the
/// rounds that it counts in.
/// @dev What the rounds contract has to know of members lies there; here lies what they owe.
contract Members is IMembers, IMembersHooks, EventLog, TypedDomain, Wired {
    using Bits for uint256;
    using Holders for Holder;

    /// What is kept of a seat's or a slot's holder.
    struct Kept {
        Holder holder;
        uint32 lostFrom;
        uint40 readyUntil; // of a member that has not said so
        uint40 boundUntil; // of a provider that disagreed
        uint128 penalties; // wei that missed duties took
        uint128 retained; // wei of its pay that its bond holds
        uint8 steps; // that it is drawn more rarely by
    }

    /// What is retained of a job's seats. Zeros: nothing.
    struct Retention {
        uint128 bond; // wei of it that a slash burns
        uint128 most; // wei that are retained of a seat
    }

    /// From when on a slot of a full pool may change hands again.
    struct Still {
        uint32 round;
        uint40 time;
    }

    struct Mine {
        Role role;
        uint32 id;
    }

    uint256 public constant MAX_URL_BYTES = 512;
    uint256 private constant BPS = 10_000;
    uint256 private constant PENALTY_PART = 8; // of a bond, which all penalties of a holder together do not exceed
    uint256 private constant MEMORY = 8; // rounds that a missed duty makes others dearer for
    uint256 private constant COUNT_BITS = 4; // of an account's missed duties in a round
    uint16 private constant HALF_BPS = 5_000;
    uint256 private constant RETAINED_PART = 2; // of a seat's pay
    uint24 private constant FOREVER = type(uint24).max; // of a holder's rounds
    uint32 private constant NEVER = type(uint32).max;

    ICustody public immutable stakes;
    IJobs public immutable jobs;
    address public rounds;
    address public audits;
    address public lateVotes;
    address public claims;
    address public strikes;
    IGame public game;

    mapping(uint256 jobId => mapping(Role => uint32)) private _ids;
    mapping(bytes32 set => Kept) private _kept;
    mapping(uint256 jobId => mapping(address => Mine)) private _mine;
    mapping(bytes32 account => mapping(uint256 word => uint256)) private _misses; // of a job and role, by round
    mapping(uint256 jobId => uint256) private _taken; // slots that somebody holds for the next round
    mapping(uint256 jobId => mapping(uint16 slot => uint32)) private _memberAt; // the one of them, by id
    mapping(uint256 jobId => Still) private _still;
    mapping(uint256 jobId => uint256) public openSlashes;
    mapping(uint256 jobId => Retention) private _retention;

    error NotAllowed(address caller);
    error AlreadyMember(uint256 jobId, address account);
    error NotMember(uint256 jobId, Role role, address account);
    error AlreadyLeaving(uint256 jobId, Role role, uint32 id);
    error AlreadyReady(uint256 jobId, uint32 id);
    error CannotSign(address account, bytes32 digest);
    error BondTooSmall(uint256 bond, uint256 lowest);
    error SlotTaken(uint16 slot);
    error NotTheSmallest(uint16 slot, uint16 smallest);
    error PoolStill(uint32 round, uint256 until);
    error NotNow(uint256 jobId, Phase phase);
    error WrongSeed(bytes32 given, bytes32 current);
    error NotAbsent(uint32 id, uint32 round);
    error WindowOver(uint256 windowEnd, uint256 now_);
    error StillBound(uint256 releasableAt, uint256 now_);
    error StillMember(uint256 jobId, Role role, uint32 id);
    error PenaltyDue(uint256 jobId, uint16 seat);
    error GameOpen(uint256 jobId, Role role, uint32 id);
    error NoRoot();
    error UrlLength(uint256 length, uint256 highest);
    error UrlByte(uint256 position, bytes1 value);

    constructor(address stakes_, address jobs_) {
        (stakes, jobs) = (ICustody(stakes_), IJobs(jobs_));
        Placed.requireHere(IJobs(jobs_).members());
    }

    function wire(
        address rounds_,
        address audits_,
        address lateVotes_,
        address claims_,
        address strikes_,
        address game_
    ) external wiring {
        (rounds, audits, lateVotes, claims) = (rounds_, audits_, lateVotes_, claims_);
        (strikes, game) = (strikes_, IGame(game_));
    }

    // --- seats ---

    /// @inheritdoc IMembers
    function join(uint256 jobId, uint16 seat) external returns (uint32 id) {
        Terms memory terms = jobs.termsOf(jobId);
        if (terms.rateSteps != 0) _noteRetention(jobId, terms);
        id = _newHolder(jobId, Role.PROVIDER, seat, terms.providerBond);
        uint32 from = IRoundsHooks(rounds).join(jobId, seat, msg.sender, id);
        _kept[Hashing.setOf(jobId, Role.PROVIDER, id)].holder.from = uint24(from);
        _log(jobId, abi.encode(Seated.selector, jobId, msg.sender, seat), abi.encode(id, from));
    }

    /// @inheritdoc IMembers
    function leaveSeat(uint256 jobId) external {
        (bytes32 set, Holder memory m, uint32 id) = _own(jobId, Role.PROVIDER);
        uint32 to = IRoundsHooks(rounds).unseat(jobId, m.index);
        _endSeat(jobId, set, m, id, to);
    }

    /// @inheritdoc IMembers
    function disagree(uint256 jobId, bytes32 seed, bytes32 root) external {
        (bytes32 set, Holder memory m, uint32 id) = _own(jobId, Role.PROVIDER);
        RoundState memory s = IRounds(rounds).state(jobId);
        if (s.seed != seed) revert WrongSeed(seed, s.seed);
        // Until the deadline: else who has missed it could still leave without its penalty, before
        // anybody advances.
        bool isDue = s.phase == Phase.TRAIN && block.timestamp < s.deadline && s.waiting.has(m.index);
        if (!isDue) revert NotNow(jobId, s.phase);
        if (root == 0) revert NoRoot();
        uint32 to = IRoundsHooks(rounds).stop(jobId, m.index, msg.sender, root);
        _endSeat(jobId, set, m, id, to);
        // As long as an audit takes: else one bond could join and disagree in every round of a job.
        Terms memory t = jobs.termsOf(jobId);
        _kept[set].boundUntil =
            uint40(block.timestamp) + t.auditSeconds + t.openSeconds + t.keySeconds + t.windowSeconds;
    }

    /// @inheritdoc IMembers
    function penaliseSeat(uint256 jobId, uint16 seat) external {
        (uint32 id, uint32 to, uint32 next) = IRoundsHooks(rounds).clearOwing(jobId, seat);
        bytes32 set = Hashing.setOf(jobId, Role.PROVIDER, id);
        Holder memory m = _kept[set].holder.load();
        if (m.to > to) _endSeat(jobId, set, m, id, to);
        uint32 round = next == 0 ? 0 : next - 1;
        _penalise(jobId, Role.PROVIDER, id, round < m.from ? m.from : round, MissedDuty.SEAT);
    }

    // --- slots ---

    /// @inheritdoc IMembers
    function enrol(uint256 jobId, uint16 slot, uint128 bond, bytes calldata signature) external returns (uint32 id) {
        Terms memory terms = jobs.termsOf(jobId);
        if (bond < terms.verifierBond) revert BondTooSmall(bond, terms.verifierBond);
        _requireSigner(jobId, slot, bond, signature);
        uint256 taken = _taken[jobId];
        bool isOutbid = false;
        if (slot < terms.slots && taken.has(slot)) isOutbid = _makeRoom(jobId, slot, bond, taken, terms);
        id = _newHolder(jobId, Role.VERIFIER, slot, bond);
        uint32 from = IRoundsHooks(rounds).enter(jobId, slot, msg.sender, id);
        bytes32 set = Hashing.setOf(jobId, Role.VERIFIER, id);
        _kept[set].holder.from = uint24(from);
        uint64 readyUntil = uint64(block.timestamp) + terms.readySeconds;
        if (!isOutbid) _kept[set].readyUntil = uint40(readyUntil);
        _taken[jobId] |= Bits.bit(slot);
        _memberAt[jobId][slot] = id;
        _log(jobId, abi.encode(Enrolled.selector, jobId, msg.sender, slot), abi.encode(id, from, bond, readyUntil));
        if (isOutbid) _setReady(jobId, slot, id);
    }

    /// @inheritdoc IMembers
    function ready(uint256 jobId) external {
        (bytes32 set, Holder memory m, uint32 id) = _own(jobId, Role.VERIFIER);
        if (_kept[set].readyUntil == 0) revert AlreadyReady(jobId, id);
        _kept[set].readyUntil = 0;
        _setReady(jobId, m.index, id);
    }

    /// @inheritdoc IMembers
    function leavePool(uint256 jobId) external {
        (bytes32 set, Holder memory m, uint32 id) = _own(jobId, Role.VERIFIER);
        // Where a committee draw has settled nothing, others may never sign.
        if (IRounds(rounds).state(jobId).committeeDraw == 0) _requireNoMerge(jobId);
        _endSlot(jobId, set, m, id);
    }

    /// @inheritdoc IMembers
    function penaliseMember(uint256 jobId, uint32 round, uint32 id) external {
        Holder memory m = _kept[Hashing.setOf(jobId, Role.VERIFIER, id)].holder.load();
        bool isIts = m.from <= round && round < m.to;
        if (!isIts || !IRounds(rounds).absentOf(jobId, round).has(m.index)) revert NotAbsent(id, round);
        uint256 end = IRounds(rounds).timesOf(jobId, round).windowEnd;
        if (end == 0) end = IRounds(rounds).absoluteEnd(jobId); // it has not settled, and may never
        if (block.timestamp >= end) revert WindowOver(end, block.timestamp);
        _missed(jobId, Role.VERIFIER, id, round, MissedDuty.SILENCE);
    }

    // --- bonds ---

    /// @inheritdoc IMembers
    function release(uint256 jobId, Role role, uint32 id) external {
        bytes32 set = Hashing.setOf(jobId, role, id);
        Holder memory m = _kept[set].holder.load();
        if (m.account == address(0) || m.isReleased) revert NotMember(jobId, role, m.account);
        if (block.timestamp < IRounds(rounds).absoluteEnd(jobId)) _requireFree(jobId, role, id, m, set);
        _free(jobId, role, id, m, set);
    }

    /// @inheritdoc IMembers
    function announceGateway(string calldata url) external {
        bytes calldata text = bytes(url);
        uint256 length = text.length;
        if (length == 0 || length > MAX_URL_BYTES) revert UrlLength(length, MAX_URL_BYTES);
        for (uint256 i = 0; i < length; i++) {
            if (text[i] < 0x21 || text[i] > 0x7e) revert UrlByte(i, text[i]);
        }
        _log(0, abi.encode(GatewayAnnounced.selector, msg.sender), abi.encode(url));
    }

    // --- what other contracts ask for ---

    /// @inheritdoc IMembersHooks
    function penalise(uint256 jobId, Role role, uint32 id, uint32 round, MissedDuty kind) external {
        if (msg.sender != audits) revert NotAllowed(msg.sender);
        _missed(jobId, role, id, round, kind);
    }

    /// @inheritdoc IMembersHooks
    function slashDropped(uint256 jobId, uint32 id, uint32 round, uint16 seat) external {
        if (msg.sender != audits) revert NotAllowed(msg.sender);
        bytes32 fault = Hashing.fault(address(this), jobId, Role.VERIFIER, id, round, MissedDuty.DROPPED, seat);
        _slashVerifier(jobId, id, round, MissedDuty.DROPPED, fault, HALF_BPS, address(0));
    }

    /// @inheritdoc IMembersHooks
    function slashEquivocated(uint256 jobId, uint32 id, uint32 round) external {
        if (msg.sender != lateVotes) revert NotAllowed(msg.sender);
        bytes32 fault = Hashing.fault(address(this), jobId, Role.VERIFIER, id, round, MissedDuty.EQUIVOCATED, 0);
        _slashVerifier(jobId, id, round, MissedDuty.EQUIVOCATED, fault, BPS, address(0));
    }

    /// @inheritdoc IMembersHooks
    function slashMismerged(uint256 jobId, uint32 id, uint32 round, address by) external {
        if (msg.sender != strikes) revert NotAllowed(msg.sender);
        bytes32 fault = Hashing.fault(address(this), jobId, Role.VERIFIER, id, round, MissedDuty.MISMERGED, 0);
        _slashVerifier(jobId, id, round, MissedDuty.MISMERGED, fault, HALF_BPS, by);
    }

    /// @inheritdoc IMembersHooks
    function slash(uint256 jobId, Role role, uint32 id, uint32 lowestRound, address winner) external {
        if (msg.sender != claims) revert NotAllowed(msg.sender);
        bytes32 set = Hashing.setOf(jobId, role, id);
        Kept storage k = _kept[set];
        (k.holder.isSlashed, k.lostFrom) = (true, NEVER);
        if (role == Role.PROVIDER) {
            k.lostFrom = _firstOpen(jobId, k.holder.from, lowestRound);
            openSlashes[jobId]++;
        }
        _leave(jobId, role, id, set, true);
        uint256 slashed = _takeSlashed(jobId, role, id, winner);
        _log(
            jobId,
            abi.encode(HolderSlashed.selector, jobId, k.holder.account, winner),
            abi.encode(role, id, k.lostFrom, slashed)
        );
    }

    /// @inheritdoc IMembersHooks
    function closeSlash(uint256 jobId) external {
        if (msg.sender != address(jobs)) revert NotAllowed(msg.sender);
        openSlashes[jobId]--;
    }

    /// @inheritdoc IMembersHooks
    function noteClaim(uint256 jobId, Role role, uint32 id, uint32 to) external returns (HolderWord before) {
        if (msg.sender != address(jobs)) revert NotAllowed(msg.sender);
        Holder storage m = _kept[Hashing.setOf(jobId, role, id)].holder;
        before = m.peek();
        if (to > before.claimedToIn()) m.claimedTo = uint24(to); // what is beyond the holder's rounds the escrow refuses
    }

    /// @inheritdoc IMembersHooks
    /// @dev Not of who is slashed or has its bond again: nothing of it can be taken any more.
    function retain(uint256 jobId, uint32 id, uint256 earned) external returns (address custody, uint256 retained) {
        if (msg.sender != address(jobs)) revert NotAllowed(msg.sender);
        Retention memory r = _retention[jobId];
        Kept storage k = _kept[Hashing.setOf(jobId, Role.PROVIDER, id)];
        Holder memory m = k.holder.load();
        if (r.most == 0 || m.isSlashed || m.isReleased) return (address(0), 0);
        (uint256 before, uint256 part) = (k.retained, earned / RETAINED_PART);
        retained = part < r.most - before ? part : r.most - before;
        if (retained == 0) return (address(0), 0);
        custody = address(stakes);
        k.retained = uint128(before + retained);
        stakes.retain(m.account, Role.PROVIDER, Hashing.bondLock(jobId, Role.PROVIDER, id), retained);
        _log(jobId, abi.encode(Retained.selector, jobId, m.account, id), abi.encode(retained));
        if (m.to == FOREVER) _season(jobId, id, k, r, m);
    }

    /// @inheritdoc IMembersHooks
    function holderOf(uint256 jobId, Role role, uint32 id) external view returns (Holder memory) {
        return _kept[Hashing.setOf(jobId, role, id)].holder.load();
    }

    /// @inheritdoc IMembersHooks
    function lostFrom(uint256 jobId, Role role, uint32 id) external view returns (uint32) {
        return _kept[Hashing.setOf(jobId, role, id)].lostFrom;
    }

    /// @inheritdoc IMembers
    function idOf(uint256 jobId, address account) external view returns (Role, uint32) {
        Mine memory own = _mine[jobId][account];
        return (own.role, own.id);
    }

    /// @inheritdoc IMembers
    function enrolmentHash(uint256 jobId, uint16 slot, uint128 bond, address account) external view returns (bytes32) {
        return TypedData.enrolment(address(this), jobId, slot, bond, account);
    }

    /// @inheritdoc IMembers
    function bondOf(uint256 jobId, Role role, uint32 id) public view returns (uint256) {
        Holder storage m = _kept[Hashing.setOf(jobId, role, id)].holder;
        return stakes.lockOf(m.account, role, Hashing.bondLock(jobId, role, id));
    }

    // --- holders ---

    function _newHolder(uint256 jobId, Role role, uint16 index, uint256 bond) private returns (uint32 id) {
        if (_mine[jobId][msg.sender].id != 0) revert AlreadyMember(jobId, msg.sender);
        id = ++_ids[jobId][role];
        _mine[jobId][msg.sender] = Mine(role, id);
        _kept[Hashing.setOf(jobId, role, id)].holder = Holder(msg.sender, uint8(index), 0, FOREVER, 0, false, false);
        stakes.lock(msg.sender, role, Hashing.bondLock(jobId, role, id), bond);
    }

    /// @return set of the caller, which holds a seat or a slot and is not leaving it
    function _own(uint256 jobId, Role role) private view returns (bytes32 set, Holder memory m, uint32 id) {
        Mine memory own = _mine[jobId][msg.sender];
        if (own.id == 0 || own.role != role) revert NotMember(jobId, role, msg.sender);
        id = own.id;
        set = Hashing.setOf(jobId, role, id);
        m = _kept[set].holder.load();
        if (m.to != FOREVER) revert AlreadyLeaving(jobId, role, id);
    }

    function _endSeat(uint256 jobId, bytes32 set, Holder memory m, uint32 id, uint32 to) private {
        _kept[set].holder.to = m.to = to < m.from ? m.from : uint24(to);
        _log(jobId, abi.encode(SeatLeaving.selector, jobId, m.account, m.index), abi.encode(id, m.to));
    }

    function _endSlot(uint256 jobId, bytes32 set, Holder memory m, uint32 id) private {
        uint32 to = IRoundsHooks(rounds).vacate(jobId, m.index);
        _kept[set].holder.to = m.to = to < m.from ? m.from : uint24(to);
        _taken[jobId] &= ~Bits.bit(m.index);
        _log(jobId, abi.encode(SlotLeaving.selector, jobId, m.account, m.index), abi.encode(id, m.to));
    }

    /// @dev Unless it is leaving already; a seat that is counts until its last round is over,
    /// unless `atOnce`.
    /// @param atOnce whether a seat that has not committed does not count any more in the round
    /// that runs
    function _leave(uint256 jobId, Role role, uint32 id, bytes32 set, bool atOnce) private {
        Holder memory m = _kept[set].holder.load();
        bool isLeaving = m.to != FOREVER;
        if (role == Role.VERIFIER) {
            if (!isLeaving) _endSlot(jobId, set, m, id);
            return;
        }
        if (isLeaving && !(atOnce && _seatId(jobId, m.index) == id)) return; // somebody else may have it
        IRoundsHooks r = IRoundsHooks(rounds);
        uint32 to = atOnce ? r.stop(jobId, m.index, m.account, 0) : r.unseat(jobId, m.index);
        // Also of who is leaving: the round may be void, and open again with somebody else in the
        // seat.
        if (to < m.to) _endSeat(jobId, set, m, id, to);
    }

    function _setReady(uint256 jobId, uint16 slot, uint32 id) private {
        IRoundsHooks(rounds).setReady(jobId, slot);
        _log(jobId, abi.encode(Ready.selector, jobId, msg.sender, slot), abi.encode(id));
    }

    /// @dev Two members that can sign nothing would keep a job from ever being settled: a contract that knows no keys, or
    /// that is not there yet. One that answers now and not later is no worse than a member that never signs.
    function _requireSigner(uint256 jobId, uint16 slot, uint128 bond, bytes calldata signature) private view {
        IAttestationPolicy policy = IAttestationPolicy(IRounds(rounds).policyOf(jobId));
        bytes32 digest = TypedData.enrolment(address(this), jobId, slot, bond, msg.sender);
        if (!policy.isSigner(msg.sender, digest, signature)) revert CannotSign(msg.sender, digest);
    }

    /// @dev Of a slot that somebody holds: it was not ready in time, or the pool is full and it is
    /// the cheapest.
    /// @return isOutbid whether it is that of a bond: who takes it is ready, or pools could be
    /// emptied for nothing
    function _makeRoom(uint256 jobId, uint16 slot, uint128 bond, uint256 taken, Terms memory terms)
        private
        returns (bool isOutbid)
    {
        uint32 id = _memberAt[jobId][slot];
        bytes32 set = Hashing.setOf(jobId, Role.VERIFIER, id);
        Holder memory m = _kept[set].holder.load();
        uint64 readyUntil = _kept[set].readyUntil;
        if (readyUntil != 0 && block.timestamp >= readyUntil) {
            _endSlot(jobId, set, m, id);
            _free(jobId, Role.VERIFIER, id, m, set);
            return false;
        }
        if (taken != Bits.firstBits(terms.slots)) revert SlotTaken(slot);
        _requireNoMerge(jobId);
        (uint16 smallest, uint256 lowest) = _smallest(jobId, terms.slots);
        if (slot != smallest) revert NotTheSmallest(slot, smallest);
        if (uint256(bond) * 10 < lowest * 11) revert BondTooSmall(bond, (lowest * 11 + 9) / 10);
        _takeTurn(jobId, terms.windowSeconds);
        _endSlot(jobId, set, m, id);
        return true;
    }

    /// @dev Else a tenth more than its bonds buys a whole pool at once, and with it the pay of honest
    /// seats. Who is outbid has a window to bid again, and does its duties to the round's end.
    function _takeTurn(uint256 jobId, uint32 windowSeconds) private {
        Still memory still = _still[jobId];
        uint32 round = IRounds(rounds).state(jobId).round;
        if (round < still.round || block.timestamp < still.time) revert PoolStill(still.round, still.time);
        _still[jobId] = Still(round + 1, uint40(block.timestamp) + windowSeconds);
    }

    function _smallest(uint256 jobId, uint16 slots) private view returns (uint16 smallest, uint256 lowest) {
        lowest = type(uint256).max;
        for (uint16 slot = 0; slot < slots; slot++) {
            uint256 bond = bondOf(jobId, Role.VERIFIER, _memberAt[jobId][slot]);
            if (bond < lowest) (smallest, lowest) = (slot, bond);
        }
    }

    function _requireNoMerge(uint256 jobId) private view {
        Phase phase = IRounds(rounds).state(jobId).phase;
        if (phase == Phase.MERGE) revert NotNow(jobId, phase);
    }

    // --- what is retained ---

    /// @dev Once a job: parameters and terms do not change.
    function _noteRetention(uint256 jobId, Terms memory t) private {
        if (_retention[jobId].most != 0) return;
        uint256 bond = uint256(t.providerBond) * (BPS - jobs.paramsOf(jobId).winnerShareBps) / BPS;
        uint256 most = Seasoning.stakeFor(bond, t.rateSteps) - bond;
        if (most > type(uint128).max) most = type(uint128).max;
        _retention[jobId] = Retention(uint128(bond), uint128(most));
    }

    /// @dev Penalties do not raise the rate again: whoever has one leaves.
    function _season(uint256 jobId, uint32 id, Kept storage k, Retention memory r, Holder memory m) private {
        uint8 steps = uint8(Seasoning.stepsOf(r.bond, k.retained, k.steps));
        if (steps == k.steps) return;
        k.steps = steps;
        uint32 from = IRoundsHooks(rounds).season(jobId, m.index, steps);
        _log(jobId, abi.encode(Seasoned.selector, jobId, m.account, id), abi.encode(from, steps));
    }

    // --- releases ---

    function _requireFree(uint256 jobId, Role role, uint32 id, Holder memory m, bytes32 set) private view {
        if (game.openGames(set) != 0) revert GameOpen(jobId, role, id);
        uint64 boundUntil = _kept[set].boundUntil;
        if (block.timestamp < boundUntil) revert StillBound(boundUntil, block.timestamp);
        RoundState memory s = IRounds(rounds).state(jobId);
        bool isClosed = s.phase == Phase.CLOSED;
        if (m.to == FOREVER && !isClosed) revert StillMember(jobId, role, id);
        if (role == Role.PROVIDER && s.owing.has(m.index) && _seatId(jobId, m.index) == id) {
            revert PenaltyDue(jobId, m.index);
        }
        uint32 to = m.to < s.round || !isClosed ? m.to : s.round;
        if (to <= m.from) return;
        uint256 end = IRounds(rounds).timesOf(jobId, to - 1).windowEnd;
        if (end == 0 || block.timestamp < end) revert StillBound(end, block.timestamp);
    }

    function _seatId(uint256 jobId, uint16 seat) private view returns (uint32 id) {
        (, id,) = IRounds(rounds).seatHolder(jobId, seat);
    }

    function _free(uint256 jobId, Role role, uint32 id, Holder memory m, bytes32 set) private {
        _kept[set].holder.isReleased = true;
        delete _mine[jobId][m.account];
        stakes.unlock(m.account, role, Hashing.bondLock(jobId, role, id));
        _log(jobId, abi.encode(Released.selector, jobId, m.account, id), abi.encode(role));
    }

    // --- missed duties and slashes ---

    /// @dev A missed duty that audits or late votes show: the holder also goes.
    function _missed(uint256 jobId, Role role, uint32 id, uint32 round, MissedDuty kind) private {
        _penalise(jobId, role, id, round, kind);
        _leave(jobId, role, id, Hashing.setOf(jobId, role, id), false);
    }

    /// @param bps of what is left of a member's bond
    /// @param by who has a winner's share of it; zero: all is burnt
    function _slashVerifier(
        uint256 jobId,
        uint32 id,
        uint32 round,
        MissedDuty kind,
        bytes32 fault,
        uint256 bps,
        address by
    ) private {
        uint256 amount = bondOf(jobId, Role.VERIFIER, id) * bps / BPS;
        Slash memory order = _orderOf(jobId, Role.VERIFIER, id, fault, amount);
        if (by != address(0)) {
            (order.shared, order.beneficiary) = (amount, by);
            order.beneficiaryBps = jobs.paramsOf(jobId).winnerShareBps;
        }
        _log(
            jobId,
            abi.encode(Missed.selector, jobId, order.account, id),
            abi.encode(Role.VERIFIER, round, kind, stakes.slash(order))
        );
        _leave(jobId, Role.VERIFIER, id, Hashing.setOf(jobId, Role.VERIFIER, id), false);
    }

    /// @dev Of the bond, of which all that a holder misses takes an eighth at most: who stands still
    /// for a night misses many duties, and is no cheat.
    function _penalise(uint256 jobId, Role role, uint32 id, uint32 round, MissedDuty kind) private {
        Kept storage k = _kept[Hashing.setOf(jobId, role, id)];
        address account = k.holder.account;
        (uint256 amount, uint256 highest) = _priceOf(jobId, role, account, round, kind);
        if (amount > highest - k.penalties) amount = highest - k.penalties;
        uint256 left = bondOf(jobId, role, id);
        if (amount > left) amount = left;
        k.penalties += uint128(amount);
        bytes32 fault = Hashing.fault(address(this), jobId, role, id, round, kind, 0);
        amount = stakes.slash(_orderOf(jobId, role, id, fault, amount));
        _log(jobId, abi.encode(Missed.selector, jobId, account, id), abi.encode(role, round, kind, amount));
    }

    /// @dev Counts the missed duty.
    /// @return amount wei that it costs
    /// @return highest wei that a holder's penalties take together
    function _priceOf(uint256 jobId, Role role, address account, uint32 round, MissedDuty kind)
        private
        returns (uint256 amount, uint256 highest)
    {
        Terms memory terms = jobs.termsOf(jobId);
        uint256 bond = role == Role.PROVIDER ? terms.providerBond : terms.verifierBond;
        uint256 first = (bond * jobs.paramsOf(jobId).penaltyBps + BPS - 1) / BPS;
        highest = bond / PENALTY_PART;
        amount = _countMiss(keccak256(abi.encode(jobId, role, account)), round, first, highest);
        if (kind == MissedDuty.KEY) amount += _feesAbove(terms, first);
    }

    /// @dev A missed duty costs twice as much for each other one of the MEMORY rounds before it.
    /// One that is reported behind later ones pays for what those would have cost with it: the sum
    /// follows from what was missed, in whatever order it is reported.
    function _countMiss(bytes32 account, uint32 round, uint256 first, uint256 highest)
        private
        returns (uint256 amount)
    {
        mapping(uint256 => uint256) storage words = _misses[account];
        (uint256 word, uint256 shift) = Rows.locate(COUNT_BITS, round); // a round's count lies MEMORY further up
        uint256 counts = words[word] >> shift;
        if (shift != 0) counts |= words[word + 1] << (256 - shift);
        uint256 earlier = 0; // of the MEMORY rounds before the one that is looked at
        for (uint256 i = 0; i < MEMORY; i++) {
            earlier += Rows.part(counts, COUNT_BITS, i * COUNT_BITS);
        }
        uint256 same = Rows.part(counts, COUNT_BITS, MEMORY * COUNT_BITS);
        amount = _doubled(first, earlier + same, highest);
        for (uint256 i = 0; i < MEMORY; i++) {
            earlier += Rows.part(counts, COUNT_BITS, (i + MEMORY) * COUNT_BITS);
            earlier -= Rows.part(counts, COUNT_BITS, i * COUNT_BITS);
            uint256 later = Rows.part(counts, COUNT_BITS, (i + MEMORY + 1) * COUNT_BITS);
            if (later != 0) amount += _doubled(first, earlier + later, highest) - _doubled(first, earlier, highest);
        }
        Rows.set(words, COUNT_BITS, round + MEMORY, same + 1);
    }

    function _doubled(uint256 first, uint256 times, uint256 highest) private pure returns (uint256) {
        return times > 10 || first << times > highest ? highest : first << times;
    }

    /// @return wei that the fee of a seat's duty is above a first penalty: nobody can score what
    /// its auditor said, and it is paid
    function _feesAbove(Terms memory t, uint256 first) private pure returns (uint256) {
        return t.dutyFee > first ? t.dutyFee - first : 0;
    }

    /// @dev A seat's whole bond, half of what a member still has. What is retained of a seat is nobody's gain: who wins may
    /// be the cheat's other account.
    function _takeSlashed(uint256 jobId, Role role, uint32 id, address winner) private returns (uint256) {
        uint256 bond = bondOf(jobId, role, id);
        bytes32 set = Hashing.setOf(jobId, role, id);
        bytes32 fault = Hashing.slash(address(this), set);
        Slash memory order = _orderOf(jobId, role, id, fault, role == Role.PROVIDER ? bond : bond / 2);
        order.shared = order.amount - _kept[set].retained;
        (order.beneficiary, order.beneficiaryBps) = (winner, jobs.paramsOf(jobId).winnerShareBps);
        return stakes.slash(order);
    }

    /// @return order that takes so much of the bond, and burns it unless somebody is named
    function _orderOf(uint256 jobId, Role role, uint32 id, bytes32 fault, uint256 amount)
        private
        view
        returns (Slash memory order)
    {
        (order.account, order.role) = (_kept[Hashing.setOf(jobId, role, id)].holder.account, role);
        (order.lockId, order.faultId, order.amount) = (Hashing.bondLock(jobId, role, id), fault, amount);
        order.beneficiaryRole = Role.VERIFIER;
    }

    /// @return the first round from `from` on that is not FINAL: of an open game, or with an open
    /// window
    function _firstOpen(uint256 jobId, uint32 from, uint32 lowest) private view returns (uint32) {
        (, uint32 high,) = IRoundsHooks(rounds).statusOf(jobId);
        uint32 low = from;
        while (low < high) {
            uint32 middle = low + (high - low) / 2;
            if (IRounds(rounds).timesOf(jobId, middle).windowEnd > block.timestamp) high = middle;
            else low = middle + 1;
        }
        return low < lowest ? low : lowest;
    }
}
