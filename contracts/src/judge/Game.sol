// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {Claim} from "./IClaims.sol";
import {GameQueue, Outcome, Phase} from "./GameQueue.sol";
import {Disputed, Judge, Proof} from "./Judge.sol";
import {OpenedSteps, OpenedToken, OpenedUpdate, Part, Search, TokenPick} from "./MoveChecks.sol";
import {Openings} from "./Openings.sol";

/// @title The judge: two parties search for the first thing that they computed otherwise, and the
/// EVM computes it.
/// @notice A segment: `openSteps`, `pickStep`, `postTrace`; an update proof: `postUpdateProof`.
/// Then `pick` and `reveal` down the trace's tree, 64 nodes a layer; `pickNode`; `reveal` and
/// `pick` down that node's bytes; `postLeaf`; `prove`. Of a node without a formula, whose tokens a
/// step sampled, `pickToken` comes instead of `prove`, and the search goes on in the token's own
/// trace, from `postTrace`. The challenger picks what differs first, so
/// that it knows all inputs of what it disputes. SPEC-GAME.md is the rule; `protocol/games` does
/// the same.
/// @dev A move of another chain's history cannot hurt: claim, steps, results, layers and picks are
/// bound by hashes of this game.
contract Game is GameQueue {
    uint256 private constant LAYER_LEVELS = 6;

    Judge public immutable judge;

    /// @notice The holder shows the states of a segment.
    /// @param states digests after each step
    /// @param works of each step the norm and every micro-batch's loss
    event StepsOpened(uint256 indexed id, bytes32[] states, bytes works);
    /// @notice The challenger names the first step that differs.
    /// @param step within the segment
    event StepPicked(uint256 indexed id, uint256 step);
    /// @notice The holder shows the top of the tree over a step's operations.
    /// @param nodes how many operations the step has
    /// @param layer six levels below the top
    event TracePosted(uint256 indexed id, bytes32 root, uint256 nodes, bytes32[] layer);
    /// @notice The holder shows the layer below the tree node in dispute.
    event LayerRevealed(uint256 indexed id, bytes32[] layer);
    /// @notice The challenger names the first tree node of a layer that differs.
    /// @param level leaves being 0
    /// @param index within the level
    event Picked(uint256 indexed id, uint256 level, uint256 index);
    /// @notice The challenger names the first operation that differs.
    /// @param node its number in the trace
    /// @param digest of its result
    /// @param size bytes of it
    event NodePicked(uint256 indexed id, uint256 node, bytes32 digest, uint256 size);
    /// @notice The challenger names the first generated token that differs: the search goes on in
    /// its trace.
    /// @param token its number in the step's batch
    event TokenPicked(uint256 indexed id, uint256 token);
    /// @notice The holder shows the bytes in dispute.
    event LeafPosted(uint256 indexed id, bytes leaf);

    error WrongLength(uint256 given, uint256 needed);
    error WrongChild(uint256 child);
    error OtherBytes(bytes32 given, bytes32 wanted);

    constructor(address token_, uint256 longestGame_, address judge_) GameQueue(token_, longestGame_) {
        judge = Judge(judge_);
    }

    /// @notice Holder: the digest of the state after every step, and what the work tag hashes, all
    /// finite.
    /// @param header part 0 of the program
    /// @param states after each step; the last is the claim's closing digest
    /// @param works of each step the norm (binary64) and every micro-batch's loss (binary32),
    /// big-endian
    function openSteps(
        uint256 id,
        Claim calldata claim,
        Part calldata header,
        bytes32[] calldata states,
        bytes calldata works
    ) external {
        Match storage m = _move(id, Phase.OPEN_STEPS);
        _requireClaim(m, claim);
        OpenedSteps memory opened = judge.openSteps(claim, header, states, works);
        (m.header, m.from) = (opened.header, opened.root);
        (m.nodes, m.size, m.step) = (uint40(opened.nodes), uint64(states.length), uint32(opened.first));
        (m.takes, m.takingNodes, m.part) = (uint24(opened.takes), uint40(opened.takingNodes), uint8(opened.part));
        m.phase = Phase.PICK_STEP;
        _logOf(id, StepsOpened.selector, abi.encode(states, works));
    }

    /// @notice Challenger: the first step whose result differs from its own.
    /// @param from digest of the state that the step opens with
    /// @param result piece root of the step's last node, see `resultOf`
    /// @param path of both in the tree over the opened steps
    function pickStep(uint256 id, uint256 step, bytes32 from, bytes32 result, bytes32[] calldata path) external {
        Match storage m = _move(id, Phase.PICK_STEP);
        judge.requireStep(m.from, m.size, step, from, result, path);
        (m.from, m.result) = (from, result);
        m.step += uint32(step);
        if (m.takes == step + 1) m.nodes = m.takingNodes;
        else m.part = 0;
        _ask(m, id, Phase.POST_TRACE);
        _logOf(id, StepPicked.selector, abi.encode(m.step));
    }

    /// @notice Holder: the step's trace, whose last node is the result that it opened.
    /// @param path of that node in the trace
    /// @param layer the nodes of the trace's tree six levels below its top; of leaves, the digests
    function postTrace(uint256 id, bytes32[] calldata path, bytes32[] calldata layer) external {
        Match storage m = _move(id, Phase.POST_TRACE);
        _takeTrace(m, id, path, layer);
    }

    /// @notice Holder: the update proof's trace, whose last node are the update's bytes.
    /// @param template of the last node; its size is that of the update
    /// @param roots params, optimiser, buffers, RNG: of the last state
    /// @param pieces piece root of the update
    function postUpdateProof(
        uint256 id,
        Claim calldata claim,
        Part calldata header,
        Part calldata template,
        bytes32[4] calldata roots,
        bytes32 pieces,
        bytes32[] calldata path,
        bytes32[] calldata layer
    ) external {
        Match storage m = _move(id, Phase.POST_UPDATE_PROOF);
        _requireClaim(m, claim);
        OpenedUpdate memory opened = judge.openUpdate(claim, header, template, roots, pieces);
        (m.header, m.nodes, m.part) = (opened.header, uint40(opened.nodes), uint8(opened.part));
        if (m.nodes == 0) return _decide(m, id, Outcome.CHALLENGER_LOST); // this job has no update proof that could be wrong
        (m.from, m.result, m.step) = (claim.initialState, pieces, uint32(opened.steps));
        _takeTrace(m, id, path, layer);
    }

    /// @notice Holder: the nodes six levels below the one in dispute (fewer, where there are not
    /// six); of leaves, their digests.
    function reveal(uint256 id, bytes32[] calldata layer) external {
        Match storage m = _move(id, Phase.REVEAL);
        judge.requireLayer(_search(m), layer);
        m.phase = Phase.PICK;
        _logOf(id, LayerRevealed.selector, abi.encode(layer));
    }

    /// @notice Challenger: the first node of the revealed layer that differs from its own.
    /// @param path of the node up to the one above the layer
    function pick(uint256 id, uint256 child, bytes32 node, bytes32[] calldata path) external {
        Match storage m = _move(id, Phase.PICK);
        if (m.level <= LAYER_LEVELS && !m.inTensor) revert WrongChild(child); // that is a node of the trace
        _takeChild(m, child, node, path);
        _ask(m, id, m.level == 0 ? Phase.POST_LEAF : Phase.REVEAL);
        _logOf(id, Picked.selector, abi.encode(m.level, m.index));
    }

    /// @notice Challenger: the first node of the trace that differs, with its template.
    function pickNode(
        uint256 id,
        uint256 child,
        bytes32 digest,
        bytes32[] calldata path,
        Claim calldata claim,
        Part calldata template
    ) external {
        Match storage m = _move(id, Phase.PICK);
        _requireClaim(m, claim);
        if (m.level > LAYER_LEVELS || m.inTensor) revert WrongChild(child); // not yet, or not any more
        _takeChild(m, child, digest, path);
        m.node = uint40(m.index);
        uint256 size;
        (m.template, size) = judge.requireTemplate(claim.program, template, m.part, m.node);
        m.size = uint64(size);
        (m.inTensor, m.index) = (true, 0);
        m.level = uint8(Openings.height(_count(m)));
        _ask(m, id, m.level == 0 ? Phase.POST_LEAF : Phase.REVEAL);
        _logOf(id, NodePicked.selector, abi.encode(m.node, digest, m.size));
    }

    /// @notice Holder: the bytes of the leaf in dispute.
    function postLeaf(uint256 id, bytes calldata leaf) external {
        Match storage m = _move(id, Phase.POST_LEAF);
        uint256 needed = _leafBytes(m);
        if (leaf.length != needed) revert WrongLength(leaf.length, needed);
        (bytes32 node, bytes32 words) = judge.openLeaf(leaf, _count(m) == 1);
        if (node != m.tree) revert OtherBytes(node, m.tree);
        m.tree = words;
        m.phase = Phase.PROVE;
        _logOf(id, LeafPosted.selector, abi.encode(leaf));
    }

    /// @notice Challenger: one element of the posted leaf, and all that it is computed from. This
    /// decides the game.
    function prove(uint256 id, Claim calldata claim, Proof calldata proof) external {
        Match storage m = _move(id, Phase.PROVE);
        _requireClaim(m, claim);
        bool isRight = judge.isRight(_disputed(m), claim, proof);
        _decide(m, id, isRight ? Outcome.CHALLENGER_LOST : Outcome.HOLDER_LOST);
    }

    /// @notice Challenger: the first token of the posted leaf that differs, of a node without a
    /// formula. The holder then posts the token's trace, which ends with what it said of it.
    function pickToken(uint256 id, TokenPick calldata pick_) external {
        Match storage m = _move(id, Phase.PROVE);
        OpenedToken memory opened = judge.openToken(_disputed(m), pick_);
        (m.result, m.generated, m.token) = (opened.result, opened.generated, uint40(opened.number));
        (m.nodes, m.part, m.node) = (uint40(opened.nodes), uint8(opened.part), 0);
        m.inTensor = false;
        _ask(m, id, Phase.POST_TRACE);
        _logOf(id, TokenPicked.selector, abi.encode(opened.number));
    }

    // --- steps and traces ---

    function _takeTrace(Match storage m, uint256 id, bytes32[] calldata path, bytes32[] calldata layer) private {
        uint256 nodes = m.nodes;
        bytes32 root = judge.traceRoot(m.result, nodes, path, layer);
        (m.level, m.index) = (uint8(Openings.height(nodes)), 0);
        (m.trace, m.tree) = (root, root);
        m.phase = Phase.PICK;
        _logOf(id, TracePosted.selector, abi.encode(root, nodes, layer));
    }

    // --- the search ---

    function _takeChild(Match storage m, uint256 child, bytes32 node, bytes32[] calldata path) private {
        (uint256 level, uint256 index) = judge.requireChild(_search(m), child, node, path);
        (m.tree, m.index, m.level) = (node, uint64(index), uint8(level));
    }

    function _search(Match storage m) private view returns (Search memory) {
        return Search(m.tree, m.level, _count(m), m.index);
    }

    /// @return leaves of the tree that is searched
    function _count(Match storage m) private view returns (uint256) {
        return m.inTensor ? Openings.widthAt(m.size, 10) : m.nodes;
    }

    // --- the leaf ---

    function _leafBytes(Match storage m) private view returns (uint256) {
        uint256 left = m.size - m.index * Openings.PIECE;
        return left < Openings.PIECE ? left : Openings.PIECE;
    }

    function _disputed(Match storage m) private view returns (Disputed memory) {
        uint256 leafFrom = m.index * Openings.PIECE;
        return Disputed(
            m.from,
            m.trace,
            m.nodes,
            m.node,
            m.step,
            m.header,
            m.template,
            m.tree,
            leafFrom,
            _leafBytes(m),
            m.part,
            m.generated,
            m.token
        );
    }
}
