// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {IERC20} from "@openzeppelin/contracts/token/ERC20/IERC20.sol";
import {SafeERC20} from "@openzeppelin/contracts/token/ERC20/utils/SafeERC20.sol";
import {ReentrancyGuard} from "@openzeppelin/contracts/utils/ReentrancyGuard.sol";
import {EventLog} from "../libraries/EventLog.sol";
import {Pull} from "../libraries/Pull.sol";
import {Wired} from "../libraries/Wired.sol";
import {Claim, IClaims, IGame} from "./IClaims.sol";

/// Whose move it is follows: the holder in OPEN_STEPS, POST_TRACE, POST_UPDATE_PROOF, REVEAL and
/// POST_LEAF, else the challenger.
enum Phase {
    NONE,
    WAITING, // for the game about the same bond that is being played
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

enum Outcome {
    NONE,
    HOLDER_LOST,
    CHALLENGER_LOST,
    SENT_HOME // never played to an end: pushed out, too late, or the holder lost another one
}

/// @title Who plays when: bonds, queues, clocks, endings.
/// @notice One game at a time about a set, which is a holder's bond in a job; at most five wait;
/// the largest bond is next, ties by order; a larger bond pushes the smallest out, which goes home;
/// nobody can withdraw. Who is to move and has no time left loses.
/// @dev Why a holder's sham games against itself do not pay. A queue is one bond's, so whatever
/// ends it is the slash of that very bond. A sham that does not end so burns half of what was bid
/// for it, and to stay before an honest challenge it has to bid more; bids have no upper bound, so
/// who was pushed out bids again, and gets its bid back. Those who wait when the window ends begin
/// before `latestStart`, unless larger bids about later rounds come in between, each of which burns
/// half: no game outlasts `longestGame`, and there are five whole games of slack for whoever calls
/// `timeout` when it can. A game that could not begin by then goes home: a holder must not lose by
/// the games of others. No token is pushed to anyone (`withdraw`), so no party can make an ending
/// revert.
abstract contract GameQueue is IGame, EventLog, Wired, ReentrancyGuard {
    using SafeERC20 for IERC20;

    struct Match {
        address challenger;
        uint64 since; // when the move that is owed began to be owed
        uint32 moveSeconds;
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
    }

    struct Queue {
        uint256 playing; // 0: nothing
        uint256[] waiting;
    }

    address public constant BURN = address(0xdead);
    uint256 public constant MAX_WAITING = 5;
    /// No game has more moves: traces below 2^40 nodes (7 layers) and tensors below 2^64 bytes (9
    /// layers).
    uint256 public constant MAX_MOVES = 40;
    uint256 public constant SLASH_GAS = 2_000_000;

    IERC20 public immutable token;
    /// Seconds that no game exceeds, both allowances and every move's own minutes together.
    uint256 public immutable longestGame;
    IClaims public claims;

    uint256 public games; // ids are 1 … games
    mapping(uint256 id => Match) internal _matches;
    mapping(uint256 id => bool) public isPools; // nobody has a move: the claim's round's pool decides
    mapping(bytes32 set => Queue) internal _queues;
    mapping(bytes32 setOrPosition => uint256) public openGames;
    mapping(bytes32 set => bool) public isSlashed;
    mapping(bytes32 said => bool) public wasChallenged; // keccak of challenger, position, segment and whether it is the update proof
    /// @notice Wei that `withdraw` sends to the account's payee.
    /// @custom:caller anyone
    mapping(address account => uint256) public owed;

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
    /// @notice A game is played, and its clocks run.
    event Began(uint256 indexed id, address indexed holder);
    /// @notice A verifier of the claim's round says whether the claim is right, in a game without moves.
    event Testified(uint256 indexed id, address indexed member, bool isRight);
    /// @notice A proof, or the round's pool, decided a game.
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
    error WrongPhase(Phase phase, Phase needed);
    error NotYourMove(address caller, address mover);
    error OutOfTime(uint256 deadline, uint256 now_);
    error StillInTime(uint256 deadline, uint256 now_);
    error AnotherClaim(bytes32 given, bytes32 played);
    error QueueHasRoom(uint256 waiting, uint256 most);
    error NotEnoughGas(uint256 left, uint256 needed);

    constructor(address token_, uint256 longestGame_) {
        token = IERC20(token_);
        longestGame = longestGame_;
    }

    function wire(address claims_) external wiring {
        claims = IClaims(claims_);
    }

    /// @notice Challenges a claim with a bond, which the caller has allowed this contract to take.
    /// @return id of the game, which begins at once unless another about the same bond is being
    /// played
    /// @custom:caller a challenger
    function challenge(bytes calldata evidence, uint128 bond) external nonReentrant returns (uint256 id) {
        Claim memory c = claims.claim(evidence);
        if (block.timestamp >= c.windowEnd) revert WindowOver(c.windowEnd, block.timestamp);
        if (isSlashed[c.set]) revert SetSlashed(c.set);
        if (bond == 0 || bond < c.lowestBond) revert WrongBond(bond, c.lowestBond);
        uint256 longest = uint256(c.holderSeconds) + c.challengerSeconds + MAX_MOVES * c.moveSeconds;
        if (longest > longestGame) revert TooLong(longest, longestGame);
        id = ++games;
        _store(_matches[id], c, bond);
        isPools[id] = c.program == 0;
        openGames[c.position]++;
        openGames[c.set]++;
        wasChallenged[_accusation(c)] = true;
        _log(0, abi.encode(Challenged.selector, id, c.holder, msg.sender), abi.encode(bond, c, evidence));
        _enqueue(_queues[c.set], id, bond);
        Pull.exactly(token, bond);
    }

    /// @notice Remembers that the caller would challenge with the least bond, for which a full
    /// queue has no room. Takes nothing.
    /// @dev Else a holder that fills its own queue until half of the window makes honest
    /// accusations look dropped.
    /// @custom:caller a challenger
    function crowdedOut(bytes calldata evidence) external {
        Claim memory c = claims.claim(evidence);
        if (block.timestamp >= c.windowEnd) revert WindowOver(c.windowEnd, block.timestamp);
        uint256 waiting = _queues[c.set].waiting.length;
        if (waiting < MAX_WAITING) revert QueueHasRoom(waiting, MAX_WAITING);
        wasChallenged[_accusation(c)] = true;
        _log(0, abi.encode(CrowdedOut.selector, msg.sender), abi.encode(c));
    }

    /// @dev About an earlier round of the reset period it is the accusation that the position's own
    /// round began with something false.
    function _accusation(Claim memory c) private view returns (bytes32) {
        bool isEarlier = c.round < uint32(uint256(c.position));
        (uint256 segment, bool isUpdateProof) = isEarlier ? (0, false) : (uint256(c.segment), c.isUpdateProof);
        return keccak256(abi.encode(msg.sender, c.position, segment, isUpdateProof));
    }

    /// @notice Says of a claim whose job has no trace whether the caller's replay gave the same. Once so many have
    /// said the same as certify a merge, the game is decided.
    /// @param testimony `abi.encode(Testimony)`
    /// @custom:caller a verifier of the claim's round
    function testify(uint256 id, bytes calldata testimony) external {
        Match storage m = _matches[id];
        if (!isPools[id] || m.phase <= Phase.WAITING || m.phase >= Phase.DECIDED) {
            revert WrongPhase(m.phase, Phase.OPEN_STEPS);
        }
        (bool isRight, bool decided) = claims.weigh(id, m.claim, msg.sender, testimony);
        _log(0, abi.encode(Testified.selector, id, msg.sender), abi.encode(isRight));
        if (decided) _decide(m, id, isRight ? Outcome.CHALLENGER_LOST : Outcome.HOLDER_LOST);
    }

    /// @notice Ends a game in which who is to move has no time left. Anyone may call.
    /// @dev Where a pool is to decide and did not, nobody lost.
    /// @custom:caller anyone, once
    function timeout(uint256 id) external nonReentrant {
        Match storage m = _matches[id];
        uint256 deadline = deadlineOf(id);
        if (deadline == 0) revert WrongPhase(m.phase, Phase.OPEN_STEPS);
        if (block.timestamp < deadline) revert StillInTime(deadline, block.timestamp);
        if (isPools[id]) return _end(id, Outcome.SENT_HOME);
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

    function gameOf(uint256 id) external view returns (Match memory) {
        return _matches[id];
    }

    function queueOf(bytes32 set) external view returns (uint256 playing, uint256[] memory waiting) {
        return (_queues[set].playing, _queues[set].waiting);
    }

    /// @return unix seconds; from then on who is to move has lost. 0 where nobody is to move
    function deadlineOf(uint256 id) public view returns (uint256) {
        Match storage m = _matches[id];
        if (m.phase <= Phase.WAITING || m.phase >= Phase.DECIDED) return 0;
        uint256 free = uint256(m.since) + m.moveSeconds;
        if (isPools[id]) return free + m.holderLeft + m.challengerLeft;
        return free + (_isHoldersMove(m.phase) ? m.holderLeft : m.challengerLeft);
    }

    /// @inheritdoc IGame
    function lowestOpen(bytes32 set) external view returns (bytes32) {
        Queue storage q = _queues[set];
        return q.playing == 0 ? bytes32(type(uint256).max) : _lowestPosition(_matches[q.playing], q);
    }

    // --- what moves share ---

    /// @dev Takes the move from who owes it: the right party, in the right phase, in time. Its
    /// clock stops.
    function _move(uint256 id, Phase phase) internal returns (Match storage m) {
        m = _matches[id];
        if (m.phase != phase) revert WrongPhase(m.phase, phase);
        bool isHolders = _isHoldersMove(phase);
        address mover = isHolders ? m.holder : m.challenger;
        if (msg.sender != mover) revert NotYourMove(msg.sender, mover);
        uint256 deadline = deadlineOf(id);
        if (block.timestamp >= deadline) revert OutOfTime(deadline, block.timestamp);
        uint256 free = uint256(m.since) + m.moveSeconds;
        uint32 charged = block.timestamp > free ? uint32(block.timestamp - free) : 0;
        if (isHolders) m.holderLeft -= charged;
        else m.challengerLeft -= charged;
        m.since = uint64(block.timestamp);
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
        _close(m, id, outcome);
        q.playing = 0;
        if (outcome == Outcome.CHALLENGER_LOST) {
            uint256 bond = m.bond;
            owed[m.holder] += bond / 2;
            owed[BURN] += bond - bond / 2;
            return _beginNext(q);
        }
        owed[m.challenger] += m.bond;
        if (outcome == Outcome.SENT_HOME) return _beginNext(q);
        isSlashed[m.set] = true;
        bytes32 lowest = _lowestPosition(m, q);
        _sendAllHome(q);
        _tell(id, m.set, lowest, isPools[id] ? address(0) : m.challenger); // a pool's word is no reason to be paid
    }

    // --- the queue ---

    function _store(Match storage m, Claim memory c, uint128 bond) private {
        (m.challenger, m.holder, m.bond) = (msg.sender, c.holder, bond);
        (m.moveSeconds, m.holderLeft, m.challengerLeft) = (c.moveSeconds, c.holderSeconds, c.challengerSeconds);
        (m.phase, m.isUpdateProof) = (Phase.WAITING, c.isUpdateProof);
        m.latestStart = uint64(c.windowEnd + MAX_WAITING * longestGame);
        (m.claim, m.set, m.position) = (keccak256(abi.encode(c)), c.set, c.position);
    }

    function _enqueue(Queue storage q, uint256 id, uint256 bond) private {
        if (q.playing == 0) return _begin(q, id);
        if (q.waiting.length < MAX_WAITING) return q.waiting.push(id);
        uint256 last = 0;
        for (uint256 i = 1; i < MAX_WAITING; i++) {
            if (!_isBefore(q.waiting[i], q.waiting[last])) last = i;
        }
        uint256 pushed = q.waiting[last];
        uint256 smallest = _matches[pushed].bond;
        if (bond <= smallest) revert QueueFull(bond, smallest);
        q.waiting[last] = id;
        _sendHome(pushed);
    }

    function _beginNext(Queue storage q) private {
        while (q.waiting.length > 0) {
            uint256 best = 0;
            for (uint256 i = 1; i < q.waiting.length; i++) {
                if (_isBefore(q.waiting[i], q.waiting[best])) best = i;
            }
            uint256 id = _takeOut(q, best);
            if (block.timestamp < _matches[id].latestStart) return _begin(q, id);
            _sendHome(id);
        }
    }

    function _begin(Queue storage q, uint256 id) private {
        Match storage m = _matches[id];
        q.playing = id;
        m.phase = m.isUpdateProof ? Phase.POST_UPDATE_PROOF : Phase.OPEN_STEPS;
        m.since = uint64(block.timestamp);
        _log(0, abi.encode(Began.selector, id, m.holder), "");
    }

    /// @return lowest position of a game and of those that wait behind it
    function _lowestPosition(Match storage m, Queue storage q) private view returns (bytes32 lowest) {
        lowest = m.position;
        for (uint256 i = 0; i < q.waiting.length; i++) {
            bytes32 position = _matches[q.waiting[i]].position;
            if (position < lowest) lowest = position;
        }
    }

    function _sendAllHome(Queue storage q) private {
        while (q.waiting.length > 0) {
            _sendHome(_takeOut(q, q.waiting.length - 1));
        }
    }

    function _sendHome(uint256 id) private {
        Match storage m = _matches[id];
        owed[m.challenger] += m.bond;
        _close(m, id, Outcome.SENT_HOME);
    }

    function _close(Match storage m, uint256 id, Outcome outcome) private {
        (m.phase, m.outcome) = (Phase.OVER, outcome);
        openGames[m.position]--;
        openGames[m.set]--;
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

    function _takeOut(Queue storage q, uint256 position) private returns (uint256 id) {
        id = q.waiting[position];
        q.waiting[position] = q.waiting[q.waiting.length - 1];
        q.waiting.pop();
    }

    /// @dev Larger bonds first, ties by order.
    function _isBefore(uint256 id, uint256 other) private view returns (bool) {
        (uint256 bond, uint256 otherBond) = (_matches[id].bond, _matches[other].bond);
        return bond == otherBond ? id < other : bond > otherBond;
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
