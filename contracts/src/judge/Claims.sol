// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {IAudits} from "../interfaces/IAudits.sol";
import {IMembersHooks} from "../interfaces/IHooks.sol";
import {IJobs} from "../interfaces/IJobs.sol";
import {IRounds} from "../interfaces/IRounds.sol";
import {Bits} from "../libraries/Bits.sol";
import {Hashing} from "../libraries/Hashing.sol";
import {Merkle} from "../libraries/Merkle.sol";
import {Reveals, Shown} from "../libraries/Reveals.sol";
import {Wired} from "../libraries/Wired.sol";
import "../types/Types.sol";
import {Claim, IClaims} from "./IClaims.sol";
import {ProgramReader} from "./ProgramReader.sol";

/// What a global state's digest is made of, beside the round.
struct Model {
    bytes32 paramsRoot;
    bytes32 outerRoot;
    bytes32 exponents; // their SHA-256
    bytes32 momentsRoot;
    bytes32 initialRoot; // optimiser root of the state that everybody opens with
}

/// What shows that somebody said something about a seat's training in a settled round.
struct Evidence {
    Shown shown;
    bool isUpdateProof;
    uint32 segment; // of an update proof the last one
    bytes32 key; // of the masks of that round's work tags whose window is open; zero where it is not known
    uint32 member; // whose *valid* it is; zero for the seat's own claim
    bytes body; // what that member opened
    Model model; // of the global state that the round opened from
    bytes header; // of the program
    uint256 programLeaves;
    bytes32[] headerProof;
    uint32 throughRound; // the round whose window is open: the same, or a later one of its reset period that the holder counts in
    Shown before; // of segment 0, where the holder may go on with its state: the round before; where it did not reveal, its record
    Shown[] onwards; // of a *valid* of a later round: the rounds behind this one up to that one, whose states come from this one's
}

/// @title What holders of seats, and auditors that called them valid, said in settled rounds; and
/// what a lost game costs.
/// @notice A claim can be challenged from the end of AUDIT, since a game shows the work, to the end
/// of the window. Nothing is stored.
contract Claims is IClaims, Wired {
    using Bits for uint256;

    bytes32 private constant NOBODYS_TAG = bytes32(uint256(1)); // no hash that anybody could open
    uint128 public constant BOND_SHARE = 10; // a challenge takes at least so small a part of what the holder may lose
    uint16 private constant VALID = type(uint16).max;

    IRounds public immutable rounds;
    IMembersHooks public immutable members;
    IJobs public immutable jobs;
    IAudits public immutable audits;
    address public game;

    error NoJudge(uint256 jobId);
    error NotOpen(uint256 from, uint256 to, uint256 now_);
    error AlreadySlashed(uint32 id);
    error WrongHeader(bytes32 program);
    error WrongModel(bytes32 given, bytes32 expected);
    error NoSuchSegment(uint256 segment, uint256 segments);
    error NotValid(uint16 seat, uint16 from);
    error OtherDigest(bytes32 given, bytes32 said);
    error OnlyGame(address caller);
    error AnotherResetPeriod(uint256 round, uint256 throughRound);
    error NotTheRoundBefore(uint256 round);

    constructor(address rounds_, address members_, address jobs_, address audits_) {
        (rounds, members) = (IRounds(rounds_), IMembersHooks(members_));
        (jobs, audits) = (IJobs(jobs_), IAudits(audits_));
    }

    function wire(address game_) external wiring {
        game = game_;
    }

    /// @inheritdoc IClaims
    /// @param evidence `abi.encode(Evidence)`
    function claim(bytes calldata evidence) external view returns (Claim memory c) {
        Evidence calldata e = _read(evidence);
        Shown calldata s = e.shown;
        Times memory t = rounds.timesOf(s.jobId, e.throughRound);
        bool isOpen = t.auditEnd != 0 && block.timestamp >= t.auditEnd && block.timestamp < t.windowEnd;
        if (!isOpen) revert NotOpen(t.auditEnd, t.windowEnd, block.timestamp);
        Terms memory terms = jobs.termsOf(s.jobId);
        if (terms.program == 0) revert NoJudge(s.jobId);
        Holder memory holder = Reveals.requireShown(rounds, members, s);
        _requireHeader(e, terms.program);
        if (e.throughRound != s.round) _requireSameResetPeriod(e, holder);
        c.program = terms.program;
        (c.seat, c.round, c.segment) = (s.seat, s.round, e.segment);
        (c.isUpdateProof, c.dataSeed, c.windowEnd) = (e.isUpdateProof, s.record.seed, t.windowEnd);
        (c.holderSeconds, c.challengerSeconds) = (terms.gameSeconds, terms.gameSeconds);
        c.moveSeconds = terms.moveSeconds;
        _setModel(c, e);
        _setWork(c, e, holder);
        _setAuthor(c, e, terms, holder);
    }

    /// @inheritdoc IClaims
    function slash(bytes32 set, bytes32 position, address challenger) external {
        if (msg.sender != game) revert OnlyGame(msg.sender);
        uint256 who = uint256(set);
        members.slash(who >> 40, Role(uint8(who >> 32)), uint32(who), uint32(uint256(position)), challenger);
    }

    /// @inheritdoc IClaims
    /// @dev Of an earlier round of the reset period it is owed as the beginning of the position's own.
    function isOwed(Claim calldata c, address account, uint32 auditor, bytes calldata body)
        external
        view
        returns (bool)
    {
        (uint256 who, uint32 round) = (uint256(c.set), uint32(uint256(c.position)));
        if (Role(uint8(who >> 32)) != Role.PROVIDER) return false;
        if (members.holderOf(who >> 40, Role.VERIFIER, auditor).account != account) return false;
        (uint16 from,) = audits.saidOf(who >> 40, round, auditor, c.seat, body);
        uint256 said = c.round < round ? 0 : uint256(c.segment) + (c.isUpdateProof ? 1 : 0);
        return from == said;
    }

    /// @inheritdoc IClaims
    function payeeOf(address account) external view returns (address) {
        return jobs.payeeOf(account);
    }

    /// @dev Read where it lies: what a wrong offset reads hashes to something else, or lies beyond
    /// the call and reverts.
    function _read(bytes calldata evidence) private pure returns (Evidence calldata e) {
        assembly ("memory-safe") {
            e := add(evidence.offset, calldataload(evidence.offset))
        }
    }

    function _requireHeader(Evidence calldata e, bytes32 program) private pure {
        bool isIts = Merkle.verify(program, keccak256(e.header), 0, e.programLeaves, e.headerProof);
        if (!isIts) revert WrongHeader(program);
        ProgramReader.requirePlayable(e.header);
    }

    /// @dev Who is audited in a round is so for what its state came from, too.
    function _requireSameResetPeriod(Evidence calldata e, Holder memory holder) private pure {
        uint256 resetPeriod = ProgramReader.resetPeriod(e.header);
        uint256 round = e.shown.round;
        bool isIts =
            e.throughRound > round && e.throughRound / resetPeriod == round / resetPeriod && e.throughRound < holder.to;
        if (!isIts) revert AnotherResetPeriod(round, e.throughRound);
    }

    /// @dev The model that a round opens from is the last certificate's, and before there is one
    /// the program's.
    function _setModel(Claim memory c, Evidence calldata e) private pure {
        Model calldata m = e.model;
        bytes32 digest = sha256(
            abi.encodePacked(
                "atoll.global-state.v2",
                uint64(c.round),
                m.paramsRoot,
                m.outerRoot,
                m.exponents,
                m.momentsRoot,
                m.initialRoot
            )
        );
        bytes32 wanted = e.shown.record.model;
        if (wanted == 0) wanted = ProgramReader.initialModel(e.header);
        if (digest != wanted) revert WrongModel(digest, wanted);
        (c.modelParams, c.modelExponents) = (m.paramsRoot, m.exponents);
    }

    function _setWork(Claim memory c, Evidence calldata e, Holder memory holder) private view {
        Reveal calldata r = e.shown.reveal;
        uint256 segments = Reveals.segments(r);
        if (e.segment >= segments) revert NoSuchSegment(e.segment, segments);
        if (e.isUpdateProof) {
            if (e.segment + 1 != segments) revert NoSuchSegment(e.segment, segments);
            (c.initialState, c.updateRoot) = (Reveals.digestAt(r, e.segment), r.updateRoot);
            return;
        }
        c.closing = Reveals.digestAt(r, e.segment);
        c.initialState = e.segment == 0 ? _initialState(e, holder) : Reveals.digestAt(r, e.segment - 1);
        if (e.key == 0 || e.throughRound != e.shown.round) return; // words are owed of the round whose window is open, and shown in it
        Reveals.requireKey(r, e.key);
        c.workTag = Reveals.workTagAt(r, e.segment, e.key);
        if (c.workTag == 0) c.workTag = NOBODYS_TAG; // zero is for no word, and nobody opens either
    }

    /// @dev A member's *valid* says what the seat said, of its round and of all that its state came
    /// from. Its work tags show it, which takes the key.
    function _setAuthor(Claim memory c, Evidence calldata e, Terms memory terms, Holder memory holder) private view {
        Shown calldata s = e.shown;
        if (e.member == 0) {
            if (holder.isSlashed) revert AlreadySlashed(s.id);
            (c.holder, c.set) = (holder.account, Hashing.setOf(s.jobId, Role.PROVIDER, s.id));
            c.lowestBond = terms.providerBond / BOND_SHARE;
        } else {
            Holder memory m = members.holderOf(s.jobId, Role.VERIFIER, e.member);
            if (m.isSlashed) revert AlreadySlashed(e.member);
            (uint16 from, bytes32 word) = audits.saidOf(s.jobId, e.throughRound, e.member, s.seat, e.body);
            if (from != VALID) revert NotValid(s.seat, from);
            Reveal calldata called = e.throughRound == s.round ? s.reveal : _requireOnwards(e);
            Reveals.requireKey(called, e.key);
            bytes32 given = Reveals.validDigest(called, e.key, m.account);
            if (given != word) revert OtherDigest(given, word);
            (c.holder, c.set) = (m.account, Hashing.setOf(s.jobId, Role.VERIFIER, e.member));
            c.lowestBond = terms.verifierBond / BOND_SHARE;
        }
        c.position = Hashing.positionOf(c.set, e.throughRound);
    }

    /// @return the state that the holder went on with, if it did all of the round before; else the
    /// public initial state's
    function _initialState(Evidence calldata e, Holder memory holder) private view returns (bytes32) {
        Shown calldata s = e.shown;
        bytes32 own;
        if (s.round % ProgramReader.resetPeriod(e.header) != 0 && holder.from < s.round) own = _carriedState(e);
        return own != 0 ? own : _initialDigest(e.model.paramsRoot, e.model.initialRoot);
    }

    /// @dev Who joined while a round ran may count from that one on, in case it is void, and has
    /// revealed nothing in it.
    /// @return what the holder goes on with; zero where it opens from public data
    function _carriedState(Evidence calldata e) private view returns (bytes32) {
        Shown calldata b = e.before;
        _requireNext(b, e.shown);
        Reveals.requireRecord(rounds, b.jobId, b.round, b.record);
        if (!b.record.revealed.has(b.seat)) return 0;
        Reveals.requireShown(rounds, members, b);
        return _closing(e, b.reveal);
    }

    /// @dev Whoever replayed the state of a later round from its public initial state has replayed
    /// this one, if all between went on.
    /// @return what was revealed in the round that was called valid
    function _requireOnwards(Evidence calldata e) private view returns (Reveal calldata) {
        Shown calldata last = e.shown;
        if (e.onwards.length != e.throughRound - last.round) revert AnotherResetPeriod(last.round, e.throughRound);
        for (uint256 i = 0; i < e.onwards.length; i++) {
            Shown calldata next = e.onwards[i];
            _requireNext(last, next);
            if (_closing(e, last.reveal) == 0) revert NotTheRoundBefore(next.round);
            Reveals.requireShown(rounds, members, next);
            last = next;
        }
        return last.reveal;
    }

    function _requireNext(Shown calldata b, Shown calldata s) private pure {
        bool isIts = b.jobId == s.jobId && b.round + 1 == s.round && b.seat == s.seat && b.id == s.id;
        if (!isIts) revert NotTheRoundBefore(s.round);
    }

    /// @return digest of the state that the holder goes on with; zero where it did less than the
    /// round, or has no update
    function _closing(Evidence calldata e, Reveal calldata r) private pure returns (bytes32) {
        uint256 all = ProgramReader.steps(e.header) / ProgramReader.segment(e.header);
        bool isWhole = Reveals.segments(r) == all && r.updateRoot != 0;
        return isWhole ? Reveals.digestAt(r, all - 1) : bytes32(0);
    }

    /// @return the digest of the state that a round opens with: the model, its moments, no batch
    /// drawn
    function _initialDigest(bytes32 paramsRoot, bytes32 optimiserRoot) private pure returns (bytes32) {
        bytes32 drawn = sha256(abi.encodePacked("atoll.rng.v1", uint64(0)));
        return sha256(abi.encodePacked("atoll.state.v1", paramsRoot, optimiserRoot, bytes32(0), drawn));
    }
}
