// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {ICustody, Slash} from "../interfaces/ICustody.sol";
import {IJobsFalls, IRosterFalls, IRoundsFacts, SettledFacts} from "../interfaces/IHooks.sol";
import {IHolds} from "../interfaces/IHolds.sol";
import {IJobs} from "../interfaces/IJobs.sol";
import {Bits} from "../libraries/Bits.sol";
import {Hashing} from "../libraries/Hashing.sol";
import {Merkle} from "../libraries/Merkle.sol";
import {Wired} from "../libraries/Wired.sol";
import "../types/Types.sol";
import {Claim, IClaims, IGame} from "./IClaims.sol";

/// A reveal that came after the seat's, as the reveal accumulator takes it in.
struct Later {
    uint16 seat;
    bytes32 commitment;
    bytes32 opening;
}

/// A leaf of a trace. Its slot, seat and number are those of its place.
struct Leaf {
    uint32 firstStep;
    uint32 lastStep;
    uint8 kind;
    bytes32 stateDigest;
    bytes32 batchDigest;
    uint32 lossBits;
    bytes32 workWord;
    bytes32 previous;
}

/// What a global state's digest is made of, beside the round.
struct Model {
    bytes32 paramsRoot;
    bytes32 outerRoot;
    bytes32 exponents; // their SHA-256
    bytes32 momentsRoot; // of the merged moments; zero where there are none
    bytes32 openingRoot; // optimiser root of the state that its round opens with
}

/// What shows that the holder of a seat said something about its training in a settled round.
struct Evidence {
    uint256 jobId;
    uint32 round;
    uint16 seat;
    bool isLink;
    uint32 segment; // of a link the last one
    bytes32 dataSeed;
    bytes32 before; // the reveal accumulator before the seat's reveal
    Later[] later; // the reveals after it, in the chain's order
    address holder;
    bytes32 opening; // the optimiser root that the chain has for the seat, as the accumulator took it in
    Reveal reveal;
    Verdict parent; // the verdict before; nothing in round 0
    uint16 parentAttempt;
    Model model; // of the global state that the round began with
    bytes header; // of the program, in round 0; else empty
    uint256 programLeaves;
    bytes32[] headerProof;
    uint256 leaves; // of the trace
    Leaf leaf;
    bytes32[] leafProof;
    Leaf previous; // the leaf before; nothing for a link and for segment 0
    bytes32[] previousProof;
}

/// @title What holders of seats said in settled rounds, proved from one word a round, and what a lost game costs them.
/// @notice A challenge is about one segment, or the link, of an accepted seat, while its round's dispute window is open. Until
/// its game has ended neither the holder's bond nor its pay of the job leaves; nobody else waits. Nothing is stored here.
contract Claims is IClaims, IHolds, Wired {
    using Bits for uint256;

    bytes32 private constant LEAF = keccak256("atoll.leaf.v1");
    bytes32 private constant FALL = keccak256("atoll.fall.v1");
    uint8 private constant KIND_OK = 0;
    uint32 public constant LONGEST_MOVE = 15 minutes;
    uint128 public constant BOND_SHARE = 10; // a challenge takes at least so small a part of what the holder may lose
    uint256 private constant INITIAL_AT = 151; // bytes of a program's header before round 0's digest

    ICustody public immutable stakes;
    IJobs public immutable jobs;
    IRosterFalls public immutable roster;
    IRoundsFacts public rounds;
    IGame public game;

    event Fell(
        uint256 indexed jobId,
        address indexed account,
        uint32 round,
        uint16 seat,
        address challenger,
        uint256 slashed,
        uint256 withheld
    );

    error NoJudge(uint256 jobId);
    error NotSettled(uint256 jobId, uint32 round);
    error WindowOver(uint64 disputeUntil, uint256 now_);
    error NotAccepted(uint16 seat, uint256 accepted);
    error WrongFacts(bytes32 given, bytes32 expected);
    error WrongVerdict(bytes32 given, bytes32 expected);
    error WrongHeader(bytes32 program);
    error WrongModel(bytes32 given, bytes32 expected);
    error WrongLeaf(uint256 index, bytes32 traceRoot);
    error NotOk(uint8 kind);
    error NotLast(uint32 segment, uint256 leaves);
    error OnlyGame(address caller);

    constructor(address stakes_, address jobs_, address roster_) {
        stakes = ICustody(stakes_);
        jobs = IJobs(jobs_);
        roster = IRosterFalls(roster_);
    }

    function wire(address rounds_, address game_) external wiring {
        rounds = IRoundsFacts(rounds_);
        game = IGame(game_);
    }

    /// @inheritdoc IHolds
    function isHeld(uint256 jobId, address account) external view returns (bool) {
        return game.openGames(setOf(jobId, account)) != 0;
    }

    /// @inheritdoc IClaims
    /// @param evidence `abi.encode(Evidence)`
    function claim(bytes calldata evidence) external view returns (Claim memory c) {
        Evidence calldata e = _read(evidence);
        Terms memory terms = jobs.termsOf(e.jobId);
        if (terms.program == 0) revert NoJudge(e.jobId);
        SettledFacts memory facts = rounds.settledFacts(e.jobId, e.round);
        _requireRevealed(e, facts);
        _setPlace(c, e, terms);
        _setRound(c, e, terms);
        _setWork(c, e, facts.trainAttempt, terms.steps);
        _setStakes(c, terms, facts.disputeUntil);
    }

    /// @inheritdoc IClaims
    function fell(bytes32 set, bytes32 place, address challenger) external {
        if (msg.sender != address(game)) revert OnlyGame(msg.sender);
        (uint256 jobId, address account) = (uint256(set) >> 160, address(uint160(uint256(set))));
        Terms memory terms = jobs.termsOf(jobId);
        uint256 withheld = _forfeited(jobId, place, terms);
        roster.expel(jobId, account);
        IJobsFalls(address(jobs)).withhold(jobId, account, withheld);
        uint256 slashed = _slash(set, challenger, terms.providerBond);
        (uint32 round, uint16 seat) = (uint32(uint256(place) >> 48), uint16(uint256(place) >> 32));
        emit Fell(jobId, account, round, seat, challenger, slashed, withheld);
    }

    /// @return the bond of an account's seat in a job: job number and address, side by side
    function setOf(uint256 jobId, address account) public pure returns (bytes32) {
        return bytes32(jobId << 160 | uint160(account));
    }

    /// @return the pay of a seat's round: job, round, seat and the steps that it revealed, side by side
    function placeOf(uint256 jobId, uint32 round, uint16 seat, uint32 steps) public pure returns (bytes32) {
        return bytes32(jobId << 80 | uint256(round) << 48 | uint256(seat) << 32 | steps);
    }

    /// @dev Read where it lies: what a wrong offset reads hashes to something else, or lies beyond the call and reverts.
    function _read(bytes calldata evidence) private pure returns (Evidence calldata e) {
        assembly ("memory-safe") {
            e := add(evidence.offset, calldataload(evidence.offset))
        }
    }

    // --- what the chain knows of the round ---

    function _requireRevealed(Evidence calldata e, SettledFacts memory facts) private view {
        if (!facts.isSettled) revert NotSettled(e.jobId, e.round);
        if (block.timestamp >= facts.disputeUntil) revert WindowOver(facts.disputeUntil, block.timestamp);
        if (e.seat > type(uint8).max || !facts.accepted.has(e.seat)) revert NotAccepted(e.seat, facts.accepted);
        Hashing.Slot memory slot = Hashing.Slot(address(rounds), e.jobId, e.round, facts.trainAttempt);
        bytes32 commitment = Hashing.commitment(slot, e.seat, e.holder, e.reveal);
        bytes32 reveals = Hashing.accumulateReveal(e.before, e.seat, commitment, e.opening);
        for (uint256 i = 0; i < e.later.length; i++) {
            Later calldata next = e.later[i];
            reveals = Hashing.accumulateReveal(reveals, next.seat, next.commitment, next.opening);
        }
        bytes32 given = Hashing.roundFacts(e.dataSeed, reveals, _parentHash(e));
        if (given != facts.facts) revert WrongFacts(given, facts.facts);
    }

    function _parentHash(Evidence calldata e) private view returns (bytes32) {
        if (e.round == 0) return 0;
        Hashing.Slot memory slot = Hashing.Slot(address(rounds), e.jobId, e.round - 1, e.parentAttempt);
        return Hashing.verdictHash(slot, e.parent);
    }

    function _setPlace(Claim memory c, Evidence calldata e, Terms memory terms) private pure {
        (c.holder, c.program) = (e.holder, terms.program);
        c.set = setOf(e.jobId, e.holder);
        c.place = placeOf(e.jobId, e.round, e.seat, e.reveal.steps);
        (c.isLink, c.seat, c.round, c.segment) = (e.isLink, e.seat, e.round, e.segment);
        c.dataSeed = e.dataSeed;
    }

    /// @dev The model that a round begins with is the last verdict's, and before there is one the program's.
    function _setRound(Claim memory c, Evidence calldata e, Terms memory terms) private pure {
        bytes32 digest = sha256(
            abi.encodePacked(
                "atoll.global-state.v2",
                uint64(e.round),
                abi.encode(e.model) // five words
            )
        );
        bytes32 wanted = e.round == 0 ? _initial(e, terms.program) : e.parent.mergedDigest;
        if (digest != wanted) revert WrongModel(digest, wanted);
        (c.modelParams, c.modelExponents) = (e.model.paramsRoot, e.model.exponents);
    }

    function _initial(Evidence calldata e, bytes32 program) private pure returns (bytes32) {
        bytes32 leaf = keccak256(e.header);
        if (!Merkle.verify(program, leaf, 0, e.programLeaves, e.headerProof)) revert WrongHeader(program);
        return bytes32(e.header[INITIAL_AT:INITIAL_AT + 32]);
    }

    // --- what the holder said ---

    /// @dev A job with a program shares its moments: every round of it opens with those that were merged, and none with a
    /// seat's own, whatever it revealed. Only the last leaf of a seat that revealed fewer steps may be of another kind: elsewhere that would be a shield.
    function _setWork(Claim memory c, Evidence calldata e, uint16 attempt, uint32 steps) private view {
        bytes32 leaf = _leafHash(e, attempt, e.segment, e.leaf);
        _requireLeaf(e, leaf, e.segment, e.leafProof);
        bool mayDiverge = e.reveal.steps < steps && e.segment + 1 == e.leaves;
        if (mayDiverge && e.leaf.kind != KIND_OK) revert NotOk(e.leaf.kind);
        if (e.isLink) {
            if (e.segment + 1 != e.leaves) revert NotLast(e.segment, e.leaves);
            (c.opening, c.closing) = (e.leaf.stateDigest, e.reveal.optimiserRoot);
            c.updateRoot = e.reveal.updateRoot;
            return;
        }
        (c.closing, c.workWord) = (e.leaf.stateDigest, e.leaf.workWord);
        if (e.segment == 0) {
            c.opening = _openingDigest(e.model.paramsRoot, e.model.openingRoot);
            return;
        }
        _requireLeaf(e, _leafHash(e, attempt, e.segment - 1, e.previous), e.segment - 1, e.previousProof);
        c.opening = e.previous.stateDigest;
    }

    function _requireLeaf(Evidence calldata e, bytes32 leaf, uint256 index, bytes32[] calldata proof) private pure {
        bool isOpened = Merkle.verify(e.reveal.traceRoot, leaf, index, e.leaves, proof);
        if (!isOpened) revert WrongLeaf(index, e.reveal.traceRoot);
    }

    function _leafHash(Evidence calldata e, uint16 attempt, uint32 index, Leaf calldata leaf)
        private
        view
        returns (bytes32)
    {
        return keccak256(
            bytes.concat(
                abi.encode(LEAF, block.chainid, address(rounds), e.jobId, e.round, attempt, e.seat, index),
                abi.encode(
                    leaf.firstStep,
                    leaf.lastStep,
                    leaf.kind,
                    leaf.stateDigest,
                    leaf.batchDigest,
                    leaf.lossBits,
                    leaf.workWord,
                    leaf.previous
                )
            )
        );
    }

    /// @return the digest of the state that a round opens with: the model, the shared moments, no batch drawn
    function _openingDigest(bytes32 paramsRoot, bytes32 optimiserRoot) private pure returns (bytes32) {
        bytes32 drawn = sha256(abi.encodePacked("atoll.rng.v1", uint64(0)));
        return sha256(abi.encodePacked("atoll.state.v1", paramsRoot, optimiserRoot, bytes32(0), drawn));
    }

    // --- what is at stake ---

    /// @dev A replay of a round and a tape take the time that training it does; a report's window is for what delays them.
    function _setStakes(Claim memory c, Terms memory terms, uint64 disputeUntil) private pure {
        c.windowEnd = disputeUntil;
        c.lowestBond = terms.providerBond / BOND_SHARE;
        if (c.lowestBond < terms.reportBond) c.lowestBond = terms.reportBond;
        (c.holderSeconds, c.challengerSeconds) = (_clock(terms), _clock(terms));
        c.moveSeconds = terms.revealSeconds < LONGEST_MOVE ? terms.revealSeconds : LONGEST_MOVE;
    }

    /// @dev Terms were refused whose windows do not fit half the unbonding delay, which is at most a year.
    function _clock(Terms memory terms) private pure returns (uint32) {
        return terms.trainSeconds + terms.reportSeconds;
    }

    /// @return wei of the disputed round, by the steps revealed, and of each that was settled or begun since, by all steps
    function _forfeited(uint256 jobId, bytes32 place, Terms memory terms) private view returns (uint256) {
        uint256 since = rounds.roundsBegun(jobId) - uint32(uint256(place) >> 48) - 1;
        uint256 steps = uint32(uint256(place)) + since * terms.steps;
        return steps * terms.tokensPerStep * terms.pricePerToken;
    }

    function _slash(bytes32 set, address challenger, uint256 bond) private returns (uint256) {
        (uint256 jobId, address account) = (uint256(set) >> 160, address(uint160(uint256(set))));
        Slash memory order;
        (order.account, order.role, order.lockId) = (account, Role.PROVIDER, Hashing.bondLock(jobId));
        order.faultId = keccak256(abi.encode(FALL, block.chainid, address(this), set));
        order.amount = bond;
        (order.beneficiary, order.beneficiaryRole) = (challenger, Role.VERIFIER);
        order.beneficiaryBps = rounds.finderShareOf(jobId);
        return stakes.slash(order);
    }
}
