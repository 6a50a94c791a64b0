// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {IERC20} from "@openzeppelin/contracts/token/ERC20/IERC20.sol";
import {SafeERC20} from "@openzeppelin/contracts/token/ERC20/utils/SafeERC20.sol";
import {ReentrancyGuard} from "@openzeppelin/contracts/utils/ReentrancyGuard.sol";
import {EventLog} from "../libraries/EventLog.sol";
import {Pull} from "../libraries/Pull.sol";
import {Wired} from "../libraries/Wired.sol";
import {Claim, IClaims, IGame, Outcome} from "./IClaims.sol";

/// Whose move it is follows: the holder in OPEN_STEPS, POST_TRACE, POST_UPDATE_PROOF, REVEAL and
/// POST_LEAF, else the challenger.
enum Phase {
    NONE,
    WAITING, // for games about the same bond that are being played
    OPEN_STEPS,
    PICK_STEP,
    POST_TRACE,
    POST_UPDATE_PROOF,
    PICK,
    REVEAL,
    POST_LEAF,
    PROVE,
    DECIDED, // `conclude` pays
    OVER
}

uint256 constant MAX_OPEN = 6; // games about a set
uint256 constant MAX_PLAYED = 3; // of them at once

/// @title Who plays when: bonds, queues, clocks, endings.
/// @notice Of the games about a set, which is a holder's bond in a job, three at most are played at
/// once; six are open, and a larger bond, or an owed challenge, pushes the smallest that waits out,
/// which goes home; nobody can withdraw. The holder's clock runs in one of them at a time: where it
/// owes a move in another, that one's stands. A game begins when the holder owes no move. Who is to
/// move and has no time left loses. The n-th open game of an account about a set asks for n times
/// the lowest bond, but for those that an auditor owes.
/// @dev Why many games at once do not take a holder's bond: each leaves it the whole allowance, one
/// after another. Why a holder's sham games against itself do not pay. A queue is one bond's, so
/// whatever ends it is the slash of that very bond. A sham that does not end so burns half of what
/// was bid for it. It delays another game by the moves that the holder owes in it; to stay before an
/// honest challenge that waits it has to bid more; bids have no upper bound, so who was pushed out
/// bids again, as owed where it was so, and gets its bid back. Who pushed it out cannot withdraw: it
/// is played, or pushed out by a larger bid. While games are open a clock runs in one of them, and
/// the clocks of one game run for `longestGame` at most. So all that are open are over within
/// MAX_OPEN times `longestGame`, if `timeout` is called as soon as it can be. A game that could not
/// begin before `latestStart` goes home. No token is pushed to anyone (`withdraw`), so no party can
/// make an ending revert.
abstract contract GameQueue is IGame, EventLog, Wired, ReentrancyGuard {
    using SafeERC20 for IERC20;

    struct Match {
        address challenger;
        uint48 since; // when the clock of the move that is owed began to run; 0: it stands
        uint32 moveSeconds;
        bool isOwed; // by a drawn auditor, which said so of the seat
        address holder;
        uint32 holderLeft; // seconds
        uint32 challengerLeft;
        Phase phase;
        Outcome outcome;
        bool isUpdateProof;
        bool inTensor; // the search is in the node's bytes, not in the trace any more
        uint128 bond;
        uint64 latestStart;
        uint32 step; // in the round
        uint8 level; // of the tree node in dispute, leaves being 0
        uint24 takes; // 1 + which step of the segment mixes in what was merged; 0: none
        bytes32 claim; // keccak256(abi.encode(Claim))
        bytes32 set;
        bytes32 position;
        bytes32 header; // keccak256
        bytes32 from; // root over the segment's steps; then the digest of the state that the step opens with
        bytes32 result; // piece root of the trace's last node
        bytes32 trace; // root
        bytes32 tree; // the tree node in dispute (a sealed root at the top); then the root over the words of the posted leaf
        bytes32 template; // keccak256
        uint40 nodes; // of the trace
        uint40 node; // in dispute
        uint64 index; // of the tree node in dispute, within its level
        uint64 size; // steps of the segment; then bytes of the node
        uint8 part; // of the program
        uint40 takingNodes; // of the trace of the step that mixes in
        uint40 token; // in a token's trace: its number in the step's batch
        bytes32 generated; // in a token's trace: digest of the node that the token is of
    }

    struct Queue {
        uint64[MAX_PLAYED] played; // 0: nothing
        uint64[] waiting;
    }

    address public constant BURN = address(0xdead);
    /// No game has more moves: a trace below 2^40 nodes (7 layers) and a tensor below 2^40 bytes (5
    /// layers); or a step's below 2^30 (5), its tokens below 2^28 bytes (3), a token's trace below
    /// 2^24 (4), and a tensor.
    uint256 public constant MAX_MOVES = 40;
    uint256 public constant SLASH_GAS = 2_000_000;
    uint256 private constant NO_GAME = type(uint256).max; // the number of none

    IERC20 public immutable token;
    /// Seconds that no game exceeds, both allowances and every move's own minutes together.
    uint256 public immutable longestGame;
    IClaims public claims;

    uint256 public games; // ids are 1 … games
    mapping(uint256 id => Match) internal _matches;
    mapping(bytes32 set => Queue) internal _queues;
    mapping(bytes32 set => bool) public isSlashed;
    /// By keccak of challenger, position, segment and whether it is the update proof: its last owed
    /// game; NO_GAME: it was challenged or crowded out, and never as owed; 0: neither.
    mapping(bytes32 said => uint256 id) private _owedGames;
    /// @notice Wei that `withdraw` sends to the account's payee.
    /// @custom:caller anyone
    mapping(address account => uint256) public owed;
    /// @notice Who may make a holder's moves beside itself; zero for nobody.
    /// @custom:caller anyone
    mapping(address holder => address) public delegateOf;

    /// @notice Somebody says that a claim is false.
    /// @param id of the game, from 1
    /// @param holder who made the claim
    /// @param bond wei
    /// @param evidence what shows the claim
    event Challenged(
        uint256 indexed id,
        address indexed holder,
        address indexed challenger,
        uint256 bond,
        Claim claim,
        bytes evidence
    );
    /// @notice A drawn auditor owes this challenge, so it comes before those that nobody owes.
    event Owed(uint256 indexed id);
    /// @notice A game is played, and its clocks run.
    event Began(uint256 indexed id, address indexed holder);
    /// @notice A proof decided a game.
    event Decided(uint256 indexed id, Outcome outcome);
    /// @notice A game is over, and paid.
    event Ended(uint256 indexed id, Outcome outcome);
    /// @notice Somebody would challenge a claim, and the queue is full.
    event CrowdedOut(address indexed challenger, Claim claim);
    /// @notice A game ended of which the contract of claims could not be told.
    /// @param set the bond that the claim stood on
    event NotTold(uint256 indexed id, bytes32 set);
    /// @notice An account's payee has what games owed the account.
    /// @param amount wei
    event BondReturned(address indexed account, uint256 amount);

    error WindowOver(uint256 windowEnd, uint256 now_);
    error WrongBond(uint256 bond, uint256 lowest);
    error TooLong(uint256 seconds_, uint256 longest);
    error SetSlashed(bytes32 set);
    error QueueFull(uint256 bond, uint256 smallest);
    error NotOwed(address challenger, uint32 auditor);
    error WrongPhase(Phase phase, Phase needed);
    error NotYourMove(address caller, address mover);
    error OutOfTime(uint256 deadline, uint256 now_);
    error StillInTime(uint256 deadline, uint256 now_);
    error AnotherClaim(bytes32 given, bytes32 played);
    error QueueHasRoom(uint256 open, uint256 most);
    error NotEnoughGas(uint256 left, uint256 needed);

    constructor(address token_, uint256 longestGame_) {
        token = IERC20(token_);
        longestGame = longestGame_;
    }

    function wire(address claims_) external wiring {
        claims = IClaims(claims_);
    }

    /// @notice Challenges a claim with a bond, which the caller has allowed this contract to take.
    /// @return id of the game, which begins as soon as the holder owes no move in another one about
    /// the same bond
    /// @custom:caller a challenger
    function challenge(bytes calldata evidence, uint128 bond) external nonReentrant returns (uint256 id) {
        return _challenge(claims.claim(evidence), evidence, bond, false);
    }

    /// @notice The same by a drawn auditor whose opened audit report accuses just that: for the
    /// lowest bond however many it has open, and before all that nobody owes. Once, and again where
    /// its game was sent home.
    /// @param auditor its id
    /// @param body what it opened
    /// @custom:caller the slot's holder
    function challengeOwed(bytes calldata evidence, uint128 bond, uint32 auditor, bytes calldata body)
        external
        nonReentrant
        returns (uint256 id)
    {
        Claim memory c = claims.claim(evidence);
        Match storage m = _matches[_owedGames[_accusation(c)]];
        bool isLeft = m.phase == Phase.NONE || m.outcome == Outcome.SENT_HOME;
        if (!isLeft || !claims.isOwed(c, msg.sender, auditor, body)) revert NotOwed(msg.sender, auditor);
        return _challenge(c, evidence, bond, true);
    }

    function _challenge(Claim memory c, bytes calldata evidence, uint128 bond, bool isOwed)
        private
        returns (uint256 id)
    {
        if (block.timestamp >= c.windowEnd) revert WindowOver(c.windowEnd, block.timestamp);
        if (isSlashed[c.set]) revert SetSlashed(c.set);
        uint256 lowest = isOwed ? c.lowestBond : (openOf(msg.sender, c.set) + 1) * c.lowestBond;
        if (bond == 0 || bond < lowest) revert WrongBond(bond, lowest);
        uint256 longest = uint256(c.holderSeconds) + c.challengerSeconds + MAX_MOVES * c.moveSeconds;
        if (longest > longestGame) revert TooLong(longest, longestGame);
        id = ++games;
        _store(_matches[id], c, bond, isOwed);
        _remember(c, isOwed ? id : NO_GAME);
        _log(0, abi.encode(Challenged.selector, id, c.holder, msg.sender), abi.encode(bond, c, evidence));
        if (isOwed) _logOf(id, Owed.selector, "");
        _enqueue(_queues[c.set], id);
        Pull.exactly(token, bond);
    }

    /// @notice Remembers that the caller would challenge, for which a queue that is full of owed
    /// games has no room. Takes nothing.
    /// @dev Else a holder whose friends fill its queue until half of the window makes honest
    /// accusations look dropped.
    /// @custom:caller a challenger
    function crowdedOut(bytes calldata evidence) external {
        Claim memory c = claims.claim(evidence);
        if (block.timestamp >= c.windowEnd) revert WindowOver(c.windowEnd, block.timestamp);
        uint256 unowed = MAX_OPEN - openGames(c.set);
        uint64[] storage waiting = _queues[c.set].waiting;
        for (uint256 i = 0; i < waiting.length; i++) {
            if (!_matches[waiting[i]].isOwed) unowed++;
        }
        if (unowed > 0) revert QueueHasRoom(MAX_OPEN - unowed, MAX_OPEN);
        _remember(c, NO_GAME);
        _log(0, abi.encode(CrowdedOut.selector, msg.sender), abi.encode(c));
    }

    function _remember(Claim memory c, uint256 id) private {
        bytes32 said = _accusation(c);
        if (id != NO_GAME || _owedGames[said] == 0) _owedGames[said] = id;
    }

    /// @dev About an earlier round of the reset period it is the accusation that the position's own
    /// round began with something false.
    function _accusation(Claim memory c) private view returns (bytes32) {
        bool isEarlier = c.round < uint32(uint256(c.position));
        (uint256 segment, bool isUpdateProof) = isEarlier ? (0, false) : (uint256(c.segment), c.isUpdateProof);
        return keccak256(abi.encode(msg.sender, c.position, segment, isUpdateProof));
    }

    /// @notice Ends a game in which who is to move has no time left. Anyone may call.
    /// @custom:caller anyone, once
    function timeout(uint256 id) external nonReentrant {
        Match storage m = _matches[id];
        uint256 deadline = deadlineOf(id);
        if (deadline == 0) revert WrongPhase(m.phase, Phase.OPEN_STEPS);
        if (block.timestamp < deadline) revert StillInTime(deadline, block.timestamp);
        _end(id, _isHoldersMove(m.phase) ? Outcome.HOLDER_LOST : Outcome.CHALLENGER_LOST);
    }

    /// @notice Ends a game that a proof decided: pays, slashes, and lets the next one begin. Anyone
    /// may call.
    /// @dev Apart from the proof, so that this does not come on top of the dearest transaction.
    /// @custom:caller anyone, once
    function conclude(uint256 id) external nonReentrant {
        Match storage m = _matches[id];
        if (m.phase != Phase.DECIDED) revert WrongPhase(m.phase, Phase.DECIDED);
        _end(id, m.outcome);
    }

    /// @notice Sends what an account is owed to its payee. Anyone may call.
    /// @dev What the token refuses stays owed, until the account's owner names another payee.
    /// @custom:caller anyone, once
    function withdraw(address account) external nonReentrant {
        uint256 amount = owed[account];
        owed[account] = 0;
        _log(0, abi.encode(BondReturned.selector, account), abi.encode(amount));
        if (amount > 0) token.safeTransfer(claims.payeeOf(account), amount);
    }

    /// @notice The caller names who may make its moves where others dispute what it said, beside
    /// itself; zero for nobody.
    /// @dev Its own machine may be gone. A delegate can lose a game, as a holder that is silent
    /// does, and take nothing.
    /// @custom:caller a holder
    function nameDelegate(address delegate) external {
        delegateOf[msg.sender] = delegate;
    }

    function gameOf(uint256 id) external view returns (Match memory) {
        return _matches[id];
    }

    /// @param place the first MAX_PLAYED are of games that are played, the others of those that wait
    /// @return id of the game; 0: none
    function gameAt(bytes32 set, uint256 place) external view returns (uint256) {
        return _at(_queues[set], place);
    }

    /// @inheritdoc IGame
    function openGames(bytes32 set) public view returns (uint256 count) {
        Queue storage q = _queues[set];
        count = q.waiting.length;
        for (uint256 i = 0; i < MAX_PLAYED; i++) {
            if (q.played[i] != 0) count++;
        }
    }

    /// @return count of an account's open games about a set that it did not owe
    function openOf(address account, bytes32 set) public view returns (uint256 count) {
        Queue storage q = _queues[set];
        for (uint256 i = 0; i < MAX_PLAYED + q.waiting.length; i++) {
            Match storage m = _matches[_at(q, i)];
            if (m.challenger == account && !m.isOwed) count++;
        }
    }

    /// @return unix seconds; from then on who is to move has lost. 0 where nobody is to move, or the
    /// clock stands
    function deadlineOf(uint256 id) public view returns (uint256) {
        Match storage m = _matches[id];
        if (m.since == 0 || m.phase >= Phase.DECIDED) return 0;
        uint256 free = uint256(m.since) + m.moveSeconds;
        return free + (_isHoldersMove(m.phase) ? m.holderLeft : m.challengerLeft);
    }

    /// @inheritdoc IGame
    function verdictOf(uint256 id) external view returns (bytes32 position, Outcome outcome) {
        return (_matches[id].position, _matches[id].outcome);
    }

    /// @inheritdoc IGame
    function wasChallenged(bytes32 said) external view returns (bool) {
        return _owedGames[said] != 0;
    }

    /// @inheritdoc IGame
    function lowestOpen(bytes32 set) external view returns (bytes32) {
        return _lowestPosition(_queues[set]);
    }

    // --- what moves share ---

    /// @dev Takes the move from who owes it: the right party, in the right phase, in time. Its
    /// clock stops, and after a holder's the next of its clocks begins.
    function _move(uint256 id, Phase phase) internal returns (Match storage m) {
        m = _matches[id];
        if (m.phase != phase) revert WrongPhase(m.phase, phase);
        bool isHolders = _isHoldersMove(phase);
        address mover = isHolders ? m.holder : m.challenger;
        bool isTheirs = msg.sender == mover || (isHolders && msg.sender == delegateOf[mover]);
        if (!isTheirs) revert NotYourMove(msg.sender, mover);
        if (m.since != 0) _charge(m, id, isHolders); // else nobody waits for it yet
        m.since = uint48(block.timestamp);
        if (isHolders) _advance(_queues[m.set], id);
    }

    function _charge(Match storage m, uint256 id, bool isHolders) private {
        uint256 deadline = deadlineOf(id);
        if (block.timestamp >= deadline) revert OutOfTime(deadline, block.timestamp);
        uint256 free = uint256(m.since) + m.moveSeconds;
        uint32 charged = block.timestamp > free ? uint32(block.timestamp - free) : 0;
        if (isHolders) m.holderLeft -= charged;
        else m.challengerLeft -= charged;
    }

    /// @dev The holder owes a move now. Its clock stands while one of another game runs.
    function _ask(Match storage m, uint256 id, Phase phase) internal {
        m.phase = phase;
        (bool isBusy,) = _owes(_queues[m.set], id);
        if (isBusy) m.since = 0;
    }

    function _requireClaim(Match storage m, Claim calldata claim) internal view {
        bytes32 given = keccak256(abi.encode(claim));
        if (given != m.claim) revert AnotherClaim(given, m.claim);
    }

    function _decide(Match storage m, uint256 id, Outcome outcome) internal {
        (m.phase, m.outcome) = (Phase.DECIDED, outcome);
        _logOf(id, Decided.selector, abi.encode(outcome));
    }

    /// @dev Pays, ends what falls with it, or lets the next game begin; and tells the claims
    /// contract at the very end.
    function _end(uint256 id, Outcome outcome) internal {
        Match storage m = _matches[id];
        Queue storage q = _queues[m.set];
        if (outcome == Outcome.CHALLENGER_LOST) {
            _leave(q, id);
            _closeLost(m, id);
            return _advance(q, id);
        }
        isSlashed[m.set] = true;
        bytes32 lowest = _lowestPosition(q);
        _leave(q, id);
        _closeWhole(m, id, Outcome.HOLDER_LOST);
        _endOthers(q);
        _tell(id, m.set, lowest, m.challenger);
    }

    // --- the queue ---

    function _store(Match storage m, Claim memory c, uint128 bond, bool isOwed) private {
        (m.challenger, m.holder, m.bond, m.isOwed) = (msg.sender, c.holder, bond, isOwed);
        (m.moveSeconds, m.holderLeft, m.challengerLeft) = (c.moveSeconds, c.holderSeconds, c.challengerSeconds);
        (m.phase, m.isUpdateProof) = (Phase.WAITING, c.isUpdateProof);
        m.latestStart = uint64(c.windowEnd + (MAX_OPEN - 1) * longestGame);
        (m.claim, m.set, m.position) = (keccak256(abi.encode(c)), c.set, c.position);
    }

    function _enqueue(Queue storage q, uint256 id) private {
        (bool isBusy,) = _owes(q, 0);
        uint256 room = _room(q);
        if (!isBusy && room < MAX_PLAYED) return _begin(q, id, room); // then none waits
        if (openGames(_matches[id].set) < MAX_OPEN) return q.waiting.push(uint64(id));
        uint256 last = 0;
        for (uint256 i = 1; i < q.waiting.length; i++) {
            if (!_isBefore(q.waiting[i], q.waiting[last])) last = i;
        }
        uint256 pushed = q.waiting[last];
        if (!_isBefore(id, pushed)) revert QueueFull(_matches[id].bond, _matches[pushed].bond);
        q.waiting[last] = uint64(id);
        _sendHome(pushed);
    }

    /// @dev The holder moved in a game, or it ended: the oldest clock of the holder's that stands
    /// begins to run; where none does, the next game begins.
    function _advance(Queue storage q, uint256 moved) private {
        (bool isBusy, uint256 next) = _owes(q, moved);
        if (isBusy) return;
        if (next != 0) {
            _matches[next].since = uint48(block.timestamp);
            return;
        }
        uint256 room = _room(q);
        while (q.waiting.length > 0 && room < MAX_PLAYED) {
            uint256 best = 0;
            for (uint256 i = 1; i < q.waiting.length; i++) {
                if (_isBefore(q.waiting[i], q.waiting[best])) best = i;
            }
            uint256 id = q.waiting[best];
            q.waiting[best] = q.waiting[q.waiting.length - 1];
            q.waiting.pop();
            if (block.timestamp < _matches[id].latestStart) return _begin(q, id, room);
            _sendHome(id);
        }
    }

    /// @param but a game that is not asked
    /// @return isBusy whether the holder owes a move whose clock runs
    /// @return next the oldest game whose clock of the holder's stands; 0: none
    function _owes(Queue storage q, uint256 but) private view returns (bool isBusy, uint256 next) {
        for (uint256 i = 0; i < MAX_PLAYED; i++) {
            uint256 id = q.played[i];
            if (id == 0 || id == but || !_isHoldersMove(_matches[id].phase)) continue;
            if (_matches[id].since != 0) return (true, 0);
            if (next == 0 || id < next) next = id;
        }
    }

    /// @return room among those that are played; MAX_PLAYED: none
    function _room(Queue storage q) private view returns (uint256 room) {
        while (room < MAX_PLAYED && q.played[room] != 0) room++;
    }

    function _begin(Queue storage q, uint256 id, uint256 room) private {
        Match storage m = _matches[id];
        q.played[room] = uint64(id);
        m.phase = m.isUpdateProof ? Phase.POST_UPDATE_PROOF : Phase.OPEN_STEPS;
        m.since = uint48(block.timestamp);
        _log(0, abi.encode(Began.selector, id, m.holder), "");
    }

    function _leave(Queue storage q, uint256 id) private {
        for (uint256 i = 0; i < MAX_PLAYED; i++) {
            if (q.played[i] == id) q.played[i] = 0;
        }
    }

    /// @return id of a game that is played or, from MAX_PLAYED, waits; 0: none
    function _at(Queue storage q, uint256 i) private view returns (uint256) {
        return i < MAX_PLAYED ? q.played[i] : q.waiting[i - MAX_PLAYED];
    }

    /// @return lowest position of the open games; the largest word where there are none
    function _lowestPosition(Queue storage q) private view returns (bytes32 lowest) {
        lowest = bytes32(type(uint256).max);
        for (uint256 i = 0; i < MAX_PLAYED + q.waiting.length; i++) {
            uint256 id = _at(q, i);
            if (id != 0 && _matches[id].position < lowest) lowest = _matches[id].position;
        }
    }

    /// @dev What a proof decided stays so: else a sham would cost nothing.
    function _endOthers(Queue storage q) private {
        for (uint256 i = 0; i < MAX_PLAYED + q.waiting.length; i++) {
            uint256 id = _at(q, i);
            if (id == 0) continue;
            Match storage m = _matches[id];
            if (m.phase != Phase.DECIDED) _sendHome(id);
            else if (m.outcome == Outcome.CHALLENGER_LOST) _closeLost(m, id);
            else _closeWhole(m, id, Outcome.HOLDER_LOST);
        }
        delete q.played;
        delete q.waiting;
    }

    function _closeLost(Match storage m, uint256 id) private {
        uint256 bond = m.bond;
        owed[m.holder] += bond / 2;
        owed[BURN] += bond - bond / 2;
        _close(m, id, Outcome.CHALLENGER_LOST);
    }

    function _sendHome(uint256 id) private {
        _closeWhole(_matches[id], id, Outcome.SENT_HOME);
    }

    function _closeWhole(Match storage m, uint256 id, Outcome outcome) private {
        owed[m.challenger] += m.bond;
        _close(m, id, outcome);
    }

    function _close(Match storage m, uint256 id, Outcome outcome) private {
        (m.phase, m.outcome) = (Phase.OVER, outcome);
        _logOf(id, Ended.selector, abi.encode(outcome));
    }

    /// @dev The gas is checked first, so that nobody can end a game and starve what it tells.
    function _tell(uint256 id, bytes32 set, bytes32 lowest, address challenger) private {
        uint256 needed = SLASH_GAS * 64 / 63 + 10_000;
        if (gasleft() < needed) revert NotEnoughGas(gasleft(), needed);
        try claims.slash{gas: SLASH_GAS}(set, lowest, challenger) {}
        catch {
            _logOf(id, NotTold.selector, abi.encode(set));
        }
    }

    /// @dev Owed ones first, then larger bonds, ties by order.
    function _isBefore(uint256 id, uint256 other) private view returns (bool) {
        (Match storage m, Match storage o) = (_matches[id], _matches[other]);
        if (m.isOwed != o.isOwed) return m.isOwed;
        return m.bond == o.bond ? id < other : m.bond > o.bond;
    }

    /// @dev An event whose one topic is the game.
    function _logOf(uint256 id, bytes32 selector, bytes memory data) internal {
        _log(0, abi.encode(selector, id), data);
    }

    function _isHoldersMove(Phase phase) private pure returns (bool) {
        return phase == Phase.OPEN_STEPS || phase == Phase.POST_TRACE || phase == Phase.POST_UPDATE_PROOF
            || phase == Phase.REVEAL || phase == Phase.POST_LEAF;
    }
}
