// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {IConfig} from "./interfaces/IConfig.sol";
import {ICustody} from "./interfaces/ICustody.sol";
import {IHolds} from "./interfaces/IHolds.sol";
import {Boundary, IRosterFalls, IRosterHooks, IRoundsHooks} from "./interfaces/IHooks.sol";
import {IJobs} from "./interfaces/IJobs.sol";
import {IRoster} from "./interfaces/IRoster.sol";
import {Bits} from "./libraries/Bits.sol";
import {Hashing} from "./libraries/Hashing.sol";
import {Wired} from "./libraries/Wired.sol";
import "./types/Types.sol";

/// @title Members of every job. While a round runs, joins and leaves wait for its boundary.
contract Roster is IRoster, IRosterHooks, IRosterFalls, Wired {
    using Bits for uint256;

    enum Standing {
        NONE,
        QUEUED,
        MEMBER,
        LEFT // the bond is still held
    }

    struct Member {
        Standing standing;
        bool leaving;
        uint16 index; // seat or verifier index
        uint32 tenure;
        uint32 faults; // waiting for their punishment
        uint64 releasableAt; // once it has left
    }

    struct Queued {
        address account;
        uint64 block_;
    }

    struct Members {
        uint256 seated;
        uint256 leavingSeats;
        uint256 freshSeats;
        uint32 verifiers;
        uint32 leavingVerifiers;
        uint32 freshVerifiers;
        uint32 ready;
        uint32 tenures;
        Queued[] queue;
    }

    uint256 public constant MAX_QUEUE = 64;
    uint256 public constant MAX_URL_BYTES = 512;

    IConfig public immutable config;
    ICustody public immutable stakes;
    IJobs public immutable jobs;
    IRoundsHooks public rounds;
    IHolds public claims;

    mapping(uint256 jobId => Members) private _members;
    mapping(uint256 jobId => mapping(Role => mapping(address => Member))) private _member;
    mapping(uint256 jobId => mapping(Role => mapping(uint16 index => address))) private _holders;

    error Paused();
    error NotJoinable(uint256 jobId, JobStatus status);
    error JobClosed(uint256 jobId);
    error AlreadyMember(uint256 jobId, Role role, address account);
    error NotMember(uint256 jobId, Role role, address account);
    error AlreadyLeaving(uint256 jobId, Role role, address account);
    error AlreadyReady(uint256 jobId, uint16 verifier);
    error QueueFull(uint256 length, uint256 highest);
    error NoVerifierPlace(uint256 highest);
    error UrlLength(uint256 length, uint256 highest);
    error UrlByte(uint256 position, bytes1 value);
    error StillBound(uint256 releasableAt, uint256 now_);
    error StillMember(uint256 jobId, Role role, address account);
    error FaultsPending(uint256 count);
    error GameOpen(uint256 jobId, address account);
    error OnlyRounds(address caller);
    error OnlyClaims(address caller);

    constructor(address config_, address stakes_, address jobs_) {
        config = IConfig(config_);
        stakes = ICustody(stakes_);
        jobs = IJobs(jobs_);
    }

    function wire(address rounds_, address claims_) external wiring {
        (rounds, claims) = (IRoundsHooks(rounds_), IHolds(claims_));
    }

    modifier onlyRounds() {
        if (msg.sender != address(rounds)) revert OnlyRounds(msg.sender);
        _;
    }

    /// @inheritdoc IRoster
    function joinAsProvider(uint256 jobId) external {
        _requireJoinable(jobId);
        Terms memory terms = jobs.termsOf(jobId);
        _requireStranger(jobId, Role.PROVIDER);
        Members storage all = _members[jobId];
        bool free = all.seated != Bits.firstBits(terms.seats);
        if (free && rounds.phaseOf(jobId) == Phase.WAITING) _seat(jobId, msg.sender, terms.seats);
        else _queue(jobId);
        stakes.lock(msg.sender, Role.PROVIDER, Hashing.bondLock(jobId), terms.providerBond);
    }

    /// @inheritdoc IRoster
    function leaveAsProvider(uint256 jobId) external {
        Phase phase = _requireNotClosed(jobId);
        Member storage m = _member[jobId][Role.PROVIDER][msg.sender];
        if (m.standing == Standing.QUEUED) return _unqueue(jobId, msg.sender);
        _requireStaying(jobId, Role.PROVIDER);
        if (phase == Phase.WAITING) {
            _unseat(jobId, m.index, "Left");
            _admit(jobId, jobs.termsOf(jobId).seats, type(uint256).max);
        } else {
            m.leaving = true;
            _members[jobId].leavingSeats |= Bits.bit(m.index);
            emit ProviderLeaving(jobId, m.index, msg.sender);
        }
    }

    /// @inheritdoc IRoster
    function joinAsVerifier(uint256 jobId) external {
        _requireJoinable(jobId);
        Terms memory terms = jobs.termsOf(jobId);
        _requireStranger(jobId, Role.VERIFIER);
        Members storage all = _members[jobId];
        uint256 free = ~uint256(all.verifiers) & Bits.firstBits(terms.maxVerifiers);
        if (free == 0) revert NoVerifierPlace(terms.maxVerifiers);
        uint16 index = free.lowest();
        Member storage m = _member[jobId][Role.VERIFIER][msg.sender];
        (m.standing, m.index) = (Standing.MEMBER, index);
        _holders[jobId][Role.VERIFIER][index] = msg.sender;
        all.verifiers |= uint32(1) << index;
        all.freshVerifiers |= uint32(1) << index;
        emit VerifierJoined(jobId, index, msg.sender, terms.verifierBond);
        stakes.lock(msg.sender, Role.VERIFIER, Hashing.bondLock(jobId), terms.verifierBond);
    }

    /// @inheritdoc IRoster
    function leaveAsVerifier(uint256 jobId) external {
        Phase phase = _requireNotClosed(jobId);
        Member storage m = _requireStaying(jobId, Role.VERIFIER);
        if (phase == Phase.WAITING) {
            _dropVerifier(jobId, m.index, "Left");
        } else {
            m.leaving = true;
            _members[jobId].leavingVerifiers |= uint32(1) << m.index;
            emit VerifierLeaving(jobId, m.index, msg.sender);
        }
    }

    /// @inheritdoc IRoster
    function attestReady(uint256 jobId) external {
        _requireNotClosed(jobId);
        Member storage m = _requireStaying(jobId, Role.VERIFIER);
        uint32 mark = uint32(1) << m.index;
        if (_members[jobId].ready & mark != 0) revert AlreadyReady(jobId, m.index);
        _members[jobId].ready |= mark;
        emit VerifierReady(jobId, m.index, msg.sender);
    }

    /// @inheritdoc IRoster
    function announceGateway(string calldata url) external {
        bytes calldata text = bytes(url);
        uint256 length = text.length;
        if (length == 0 || length > MAX_URL_BYTES) revert UrlLength(length, MAX_URL_BYTES);
        for (uint256 i = 0; i < length; i++) {
            if (text[i] < 0x21 || text[i] > 0x7e) revert UrlByte(i, text[i]);
        }
        emit GatewayAnnounced(msg.sender, url);
    }

    /// @inheritdoc IRoster
    /// @dev Not before the dispute window of the last round it took part in is over, nor while a fault is unpunished or a
    /// game about it is open.
    function releaseBond(uint256 jobId, Role role, address account) external {
        Member memory m = _member[jobId][role][account];
        if (m.standing == Standing.NONE) revert NotMember(jobId, role, account);
        if (m.faults != 0) revert FaultsPending(m.faults);
        uint64 releasableAt = m.standing == Standing.LEFT ? m.releasableAt : _releasableWhenClosed(jobId, role, account);
        if (block.timestamp < releasableAt) revert StillBound(releasableAt, block.timestamp);
        if (role == Role.PROVIDER && claims.isHeld(jobId, account)) revert GameOpen(jobId, account);
        delete _member[jobId][role][account];
        stakes.unlock(account, role, Hashing.bondLock(jobId));
    }

    /// @inheritdoc IRosterHooks
    function applyBoundary(uint256 jobId, Boundary calldata b) external onlyRounds {
        Members storage all = _members[jobId];
        uint256 going = (b.rejectedSeats | b.missedSeats | all.leavingSeats) & all.seated;
        for (; going != 0; going &= going - 1) {
            uint16 seat = going.lowest();
            if (b.rejectedSeats.has(seat)) _unseat(jobId, seat, "Rejected");
            else _unseat(jobId, seat, b.missedSeats.has(seat) ? "Missed" : "Left");
        }
        uint256 dropped = (b.missedVerifiers | all.leavingVerifiers) & all.verifiers;
        for (; dropped != 0; dropped &= dropped - 1) {
            uint16 verifier = dropped.lowest();
            _dropVerifier(jobId, verifier, b.missedVerifiers.has(verifier) ? "Missed" : "Left");
        }
        _admit(jobId, jobs.termsOf(jobId).seats, b.queuedBefore);
    }

    /// @inheritdoc IRosterHooks
    function admitAll(uint256 jobId) external onlyRounds {
        _admit(jobId, jobs.termsOf(jobId).seats, type(uint256).max);
    }

    /// @inheritdoc IRosterHooks
    function takeFresh(uint256 jobId) external onlyRounds returns (uint256 seats, uint256 verifiers) {
        Members storage all = _members[jobId];
        (seats, verifiers) = (all.freshSeats, all.freshVerifiers);
        if (seats != 0) all.freshSeats = 0;
        if (verifiers != 0) all.freshVerifiers = 0;
    }

    /// @inheritdoc IRosterHooks
    function markFault(uint256 jobId, Role role, address account) external onlyRounds {
        _member[jobId][role][account].faults++;
    }

    /// @inheritdoc IRosterHooks
    function clearFault(uint256 jobId, Role role, address account) external onlyRounds {
        _member[jobId][role][account].faults--;
    }

    /// @inheritdoc IRosterFalls
    /// @dev The fault is never cleared: without a bond to lose, nobody who fell sits down in the job again.
    function expel(uint256 jobId, address account) external {
        if (msg.sender != address(claims)) revert OnlyClaims(msg.sender);
        Member storage m = _member[jobId][Role.PROVIDER][account];
        m.faults++;
        if (m.standing != Standing.MEMBER) return;
        Phase phase = rounds.phaseOf(jobId);
        if (phase == Phase.WAITING) {
            _unseat(jobId, m.index, "Fallen");
        } else if (phase != Phase.CLOSED && !m.leaving) {
            m.leaving = true;
            _members[jobId].leavingSeats |= Bits.bit(m.index);
            emit ProviderLeaving(jobId, m.index, account);
        }
    }

    /// @inheritdoc IRosterHooks
    function membersOf(uint256 jobId) external view returns (uint256 seated, uint256 verifiers, uint256 ready) {
        Members storage all = _members[jobId];
        return (all.seated, all.verifiers, all.ready);
    }

    /// @inheritdoc IRosterHooks
    function tenureOf(uint256 jobId, uint16 seat) external view returns (uint32) {
        if (!_members[jobId].seated.has(seat)) return 0;
        return _member[jobId][Role.PROVIDER][_holders[jobId][Role.PROVIDER][seat]].tenure;
    }

    /// @inheritdoc IRoster
    function seatOf(uint256 jobId, address account) external view returns (bool seated, uint16 seat) {
        Member storage m = _member[jobId][Role.PROVIDER][account];
        return (m.standing == Standing.MEMBER, m.index);
    }

    /// @inheritdoc IRoster
    function verifierOf(uint256 jobId, address account) external view returns (bool joined, uint16 verifier) {
        Member storage m = _member[jobId][Role.VERIFIER][account];
        return (m.standing == Standing.MEMBER, m.index);
    }

    /// @inheritdoc IRoster
    /// @dev Names the last holder of a seat that is empty now.
    function seatHolder(uint256 jobId, uint16 seat) external view returns (address) {
        return _holders[jobId][Role.PROVIDER][seat];
    }

    /// @inheritdoc IRoster
    /// @dev Names the last holder, with weight 0, of a place that is empty now.
    function verifierHolder(uint256 jobId, uint16 verifier) external view returns (address account, uint256 weight) {
        account = _holders[jobId][Role.VERIFIER][verifier];
        weight = uint256(_members[jobId].verifiers).has(verifier) ? jobs.termsOf(jobId).verifierBond : 0;
    }

    /// @return accounts in the order in which they will sit down
    function waitingList(uint256 jobId) external view returns (address[] memory accounts) {
        Queued[] storage queue = _members[jobId].queue;
        accounts = new address[](queue.length);
        for (uint256 i = 0; i < accounts.length; i++) {
            accounts[i] = queue[i].account;
        }
    }

    function _requireJoinable(uint256 jobId) private view {
        if (config.paused()) revert Paused();
        JobStatus status = jobs.statusOf(jobId);
        if (status != JobStatus.OPEN && status != JobStatus.ACTIVE) revert NotJoinable(jobId, status);
        _requireNotClosed(jobId);
    }

    function _requireNotClosed(uint256 jobId) private view returns (Phase phase) {
        phase = rounds.phaseOf(jobId);
        if (phase == Phase.CLOSED) revert JobClosed(jobId);
    }

    function _requireStranger(uint256 jobId, Role role) private view {
        if (_member[jobId][role][msg.sender].standing != Standing.NONE) revert AlreadyMember(jobId, role, msg.sender);
    }

    function _requireStaying(uint256 jobId, Role role) private view returns (Member storage m) {
        m = _member[jobId][role][msg.sender];
        if (m.standing != Standing.MEMBER) revert NotMember(jobId, role, msg.sender);
        if (m.leaving) revert AlreadyLeaving(jobId, role, msg.sender);
    }

    function _releasableWhenClosed(uint256 jobId, Role role, address account) private view returns (uint64) {
        uint64 closedAt = rounds.closedAt(jobId);
        if (closedAt == 0) revert StillMember(jobId, role, account);
        return closedAt + jobs.termsOf(jobId).disputeSeconds;
    }

    function _seat(uint256 jobId, address account, uint256 seats) private {
        Members storage all = _members[jobId];
        uint16 seat = (~all.seated & Bits.firstBits(seats)).lowest();
        Member storage m = _member[jobId][Role.PROVIDER][account];
        (m.standing, m.index, m.tenure) = (Standing.MEMBER, seat, ++all.tenures);
        _holders[jobId][Role.PROVIDER][seat] = account;
        all.seated |= Bits.bit(seat);
        all.freshSeats |= Bits.bit(seat);
        emit ProviderSeated(jobId, seat, account);
    }

    function _queue(uint256 jobId) private {
        Queued[] storage queue = _members[jobId].queue;
        if (queue.length >= MAX_QUEUE) revert QueueFull(queue.length, MAX_QUEUE);
        queue.push(Queued(msg.sender, uint64(block.number)));
        _member[jobId][Role.PROVIDER][msg.sender].standing = Standing.QUEUED;
        emit ProviderQueued(jobId, msg.sender);
    }

    function _unqueue(uint256 jobId, address account) private {
        Queued[] storage queue = _members[jobId].queue;
        bool found;
        for (uint256 i = 0; i < queue.length; i++) {
            if (found) queue[i - 1] = queue[i];
            else found = queue[i].account == account;
        }
        queue.pop();
        delete _member[jobId][Role.PROVIDER][account];
        emit ProviderUnqueued(jobId, account);
        stakes.unlock(account, Role.PROVIDER, Hashing.bondLock(jobId));
    }

    /// @dev The list is in order of arrival, so the admitted are its first entries.
    function _admit(uint256 jobId, uint256 seats, uint256 queuedBefore) private {
        Members storage all = _members[jobId];
        uint256 waiting = all.queue.length;
        uint256 admitted;
        while (admitted < waiting && all.seated != Bits.firstBits(seats) && all.queue[admitted].block_ < queuedBefore) {
            _seat(jobId, all.queue[admitted].account, seats);
            admitted++;
        }
        if (admitted == 0) return;
        for (uint256 i = admitted; i < waiting; i++) {
            all.queue[i - admitted] = all.queue[i];
        }
        for (uint256 i = 0; i < admitted; i++) {
            all.queue.pop();
        }
    }

    function _unseat(uint256 jobId, uint16 seat, string memory reason) private {
        Members storage all = _members[jobId];
        address account = _holders[jobId][Role.PROVIDER][seat];
        all.seated &= ~Bits.bit(seat);
        all.leavingSeats &= ~Bits.bit(seat);
        _setLeft(jobId, Role.PROVIDER, account);
        emit ProviderUnseated(jobId, seat, account, reason);
    }

    function _dropVerifier(uint256 jobId, uint16 verifier, string memory reason) private {
        Members storage all = _members[jobId];
        address account = _holders[jobId][Role.VERIFIER][verifier];
        uint32 keep = ~(uint32(1) << verifier);
        all.verifiers &= keep;
        all.leavingVerifiers &= keep;
        all.ready &= keep;
        _setLeft(jobId, Role.VERIFIER, account);
        emit VerifierLeft(jobId, verifier, account, reason);
    }

    function _setLeft(uint256 jobId, Role role, address account) private {
        Member storage m = _member[jobId][role][account];
        m.standing = Standing.LEFT;
        m.leaving = false;
        bool everRan = jobs.statusOf(jobId) != JobStatus.OPEN;
        m.releasableAt = uint64(block.timestamp) + (everRan ? jobs.termsOf(jobId).disputeSeconds : 0);
    }
}
