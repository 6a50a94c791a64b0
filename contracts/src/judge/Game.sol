// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {Claim} from "./IClaims.sol";
import {GameQueue, Outcome, Phase} from "./GameQueue.sol";
import {Openings} from "./Openings.sol";
import {ProgramReader} from "./ProgramReader.sol";
import {Disputed, Judge, Proof} from "./Judge.sol";

/// Bytes of the program, and where they lie in its tree.
struct Part {
    bytes data;
    uint256 index; // 0 the header, then templates
    uint256 count; // of the tree's leaves
    bytes32[] path;
}

/// @title The judge: two parties search for the first thing that they computed otherwise, and the
/// EVM computes it.
/// @notice A segment: `openSteps`, `pickStep`, `postTrace`; an update proof: `postUpdateProof`.
/// Then `pick` and `reveal` down the trace's tree, 64 nodes a layer; `pickNode`; `reveal` and
/// `pick` down that node's bytes; `postLeaf`; `prove`. The challenger picks what differs first, so
/// that it knows all inputs of what it disputes. SPEC-GAME.md is the rule; `protocol/games` does
/// the same.
/// @dev A move of another chain's history cannot hurt: claim, steps, results, layers and picks are
/// bound by hashes of this game.
contract Game is GameQueue {
    uint256 private constant LAYER_LEVELS = 6;
    bytes32 private constant UPDATE = keccak256("atoll.update.v1");

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
    /// @notice The holder shows the bytes in dispute.
    event LeafPosted(uint256 indexed id, bytes leaf);

    error WrongSegment(uint256 segment, uint256 steps);
    error WrongLength(uint256 given, uint256 needed);
    error WrongClosing(bytes32 given, bytes32 claimed);
    error WrongWork(bytes32 given, bytes32 claimed);
    error WrongPath(bytes32 given, bytes32 wanted);
    error WrongRoots(bytes32 given, bytes32 claimed);
    error WrongUpdate(bytes32 given, bytes32 claimed);
    error WrongChild(uint256 child);
    error OtherBytes(bytes32 given, bytes32 wanted);
    error NotInTheLeaf(uint256 element);

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
        _takeHeader(m, claim, header);
        uint256 count = ProgramReader.segment(header.data);
        uint256 steps = ProgramReader.steps(header.data);
        if (count == 0 || (claim.segment + 1) * count > steps) revert WrongSegment(claim.segment, steps);
        if (states.length != count) revert WrongLength(states.length, count);
        if (states[count - 1] != claim.closing) revert WrongClosing(states[count - 1], claim.closing);
        bool isAsSaid = claim.workTag == 0 || keccak256(works) == claim.workTag;
        if (!isAsSaid) revert WrongWork(keccak256(works), claim.workTag);
        uint256 workBytes = 8 + 4 * ProgramReader.microBatches(header.data);
        m.from = judge.stepsRoot(claim.initialState, states, works, workBytes);
        m.nodes = uint40(ProgramReader.stepNodes(header.data));
        (m.size, m.step) = (uint64(count), uint32(claim.segment * count));
        _setTaking(m, header.data, claim);
        m.phase = Phase.PICK_STEP;
        _logOf(id, StepsOpened.selector, abi.encode(states, works));
    }

    /// @notice Challenger: the first step whose result differs from its own.
    /// @param from digest of the state that the step opens with
    /// @param result piece root of the step's last node, see `resultOf`
    /// @param path of both in the tree over the opened steps
    function pickStep(uint256 id, uint256 step, bytes32 from, bytes32 result, bytes32[] calldata path) external {
        Match storage m = _move(id, Phase.PICK_STEP);
        bytes32 root = Openings.rootFrom(keccak256(abi.encode(from, result)), step, m.size, path);
        if (root != m.from) revert WrongPath(root, m.from);
        (m.from, m.result) = (from, result);
        m.step += uint32(step);
        if (m.takes == step + 1) m.nodes = m.takingNodes;
        else m.part = 0;
        m.phase = Phase.POST_TRACE;
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
        _requireRoots(claim, roots);
        _takeHeader(m, claim, header);
        uint256 steps = (claim.segment + 1) * ProgramReader.segment(header.data);
        if (steps > ProgramReader.steps(header.data)) revert WrongSegment(claim.segment, steps); // fewer: it ended early
        _setUpdateProof(m, header.data, claim.round);
        if (m.nodes == 0) return _decide(m, id, Outcome.CHALLENGER_LOST); // this job has no update proof that could be wrong
        _requireTemplate(m, claim, template, m.nodes - 1);
        bytes32 update = keccak256(abi.encode(UPDATE, uint64(ProgramReader.outputBytes(template.data)), pieces));
        if (update != claim.updateRoot) revert WrongUpdate(update, claim.updateRoot);
        (m.from, m.result, m.step) = (claim.initialState, pieces, uint32(steps));
        _takeTrace(m, id, path, layer);
    }

    /// @notice Holder: the nodes six levels below the one in dispute (fewer, where there are not
    /// six); of leaves, their digests.
    function reveal(uint256 id, bytes32[] calldata layer) external {
        Match storage m = _move(id, Phase.REVEAL);
        bytes32 above = _above(m, layer, uint256(m.index) << _levels(m), Openings.none());
        if (above != m.tree) revert WrongPath(above, m.tree);
        m.phase = Phase.PICK;
        _logOf(id, LayerRevealed.selector, abi.encode(layer));
    }

    /// @notice Challenger: the first node of the revealed layer that differs from its own.
    /// @param path of the node up to the one above the layer
    function pick(uint256 id, uint256 child, bytes32 node, bytes32[] calldata path) external {
        Match storage m = _move(id, Phase.PICK);
        if (m.level <= LAYER_LEVELS && !m.inTensor) revert WrongChild(child); // that is a node of the trace
        _takeChild(m, child, node, path);
        m.phase = m.level == 0 ? Phase.POST_LEAF : Phase.REVEAL;
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
        _requireTemplate(m, claim, template, m.node);
        m.template = keccak256(template.data);
        m.size = uint64(ProgramReader.outputBytes(template.data));
        (m.inTensor, m.index) = (true, 0);
        m.level = uint8(Openings.height(_count(m)));
        m.phase = m.level == 0 ? Phase.POST_LEAF : Phase.REVEAL;
        _logOf(id, NodePicked.selector, abi.encode(m.node, digest, m.size));
    }

    /// @notice Holder: the bytes of the leaf in dispute.
    function postLeaf(uint256 id, bytes calldata leaf) external {
        Match storage m = _move(id, Phase.POST_LEAF);
        uint256 needed = _leafBytes(m);
        if (leaf.length != needed) revert WrongLength(leaf.length, needed);
        bytes32 digest = keccak256(leaf);
        if (_count(m) == 1) digest = Openings.seal(1, Openings.leafNode(digest));
        if (digest != m.tree) revert OtherBytes(digest, m.tree);
        m.tree = judge.wordsRoot(leaf);
        m.phase = Phase.PROVE;
        _logOf(id, LeafPosted.selector, abi.encode(leaf));
    }

    /// @notice Challenger: one element of the posted leaf, and all that it is computed from. This
    /// decides the game.
    function prove(uint256 id, Claim calldata claim, Proof calldata proof) external {
        Match storage m = _move(id, Phase.PROVE);
        _requireClaim(m, claim);
        if (keccak256(proof.header) != m.header) revert OtherBytes(keccak256(proof.header), m.header);
        if (keccak256(proof.template) != m.template) revert OtherBytes(keccak256(proof.template), m.template);
        bytes32 posted = _posted(m, proof);
        bytes memory computed = judge.compute(Disputed(m.from, m.trace, m.nodes, m.node, m.step), claim, proof);
        bool isRight = computed.length == ProgramReader.elementBytes(proof.template)
            && keccak256(computed) == keccak256(_first(posted, computed.length));
        _decide(m, id, isRight ? Outcome.CHALLENGER_LOST : Outcome.HOLDER_LOST);
    }

    // --- steps and traces ---

    function _setUpdateProof(Match storage m, bytes calldata header, uint32 round) private {
        (uint256 nodes, uint8 part) = ProgramReader.updateProof(header, round);
        (m.nodes, m.part) = (uint40(nodes), part);
    }

    /// @dev One step of a round is of another part: the one that mixes in what the round before
    /// merged.
    function _setTaking(Match storage m, bytes calldata header, Claim calldata claim) private {
        (uint256 nodes, uint8 part) = ProgramReader.taking(header, claim.round);
        if (nodes == 0) return;
        (uint256 step, uint256 count) = (ProgramReader.overlap(header), ProgramReader.segment(header));
        if (step / count != claim.segment) return;
        (m.takes, m.takingNodes, m.part) = (uint24(step % count + 1), uint40(nodes), part);
    }

    function _takeHeader(Match storage m, Claim calldata claim, Part calldata header) private {
        ProgramReader.requirePart(claim.program, header.data, 0, header.count, header.path);
        ProgramReader.requireHeader(header.data);
        m.header = keccak256(header.data);
    }

    function _requireRoots(Claim calldata claim, bytes32[4] calldata roots) private pure {
        bytes32 digest = sha256(abi.encodePacked("atoll.state.v1", roots));
        if (digest != claim.initialState) revert WrongRoots(digest, claim.initialState);
    }

    function _requireTemplate(Match storage m, Claim calldata claim, Part calldata template, uint256 node)
        private
        view
    {
        if (template.index == 0) revert ProgramReader.NotItsTemplate(node);
        ProgramReader.requirePart(claim.program, template.data, template.index, template.count, template.path);
        if (ProgramReader.partOf(template.data) != m.part) revert ProgramReader.NotItsTemplate(node);
        ProgramReader.iteration(template.data, node);
    }

    function _takeTrace(Match storage m, uint256 id, bytes32[] calldata path, bytes32[] calldata layer) private {
        uint256 nodes = m.nodes;
        m.level = uint8(Openings.height(nodes));
        m.index = 0;
        bytes32 root = Openings.rootFrom(m.result, nodes - 1, nodes, path);
        bytes32 above = _above(m, layer, 0, Openings.none());
        if (above != root) revert WrongPath(above, root);
        (m.trace, m.tree) = (root, root);
        m.phase = Phase.PICK;
        _logOf(id, TracePosted.selector, abi.encode(root, nodes, layer));
    }

    // --- the search ---

    function _takeChild(Match storage m, uint256 child, bytes32 node, bytes32[] calldata path) private {
        uint256 levels = _levels(m);
        if (child >> levels != 0) revert WrongChild(child);
        uint256 index = (uint256(m.index) << levels) + child;
        bytes32 above = _above(m, Openings.single(node), index, path);
        if (above != m.tree) revert WrongPath(above, m.tree);
        (m.tree, m.index, m.level) = (node, uint64(index), uint8(m.level - levels));
    }

    /// @dev The node in dispute, from some of the layer below it.
    function _above(Match storage m, bytes32[] memory nodes, uint256 first, bytes32[] calldata siblings)
        private
        view
        returns (bytes32)
    {
        (uint256 levels, uint256 count) = (_levels(m), _count(m));
        uint256 below = m.level - levels;
        if (below == 0) {
            for (uint256 i = 0; i < nodes.length; i++) {
                nodes[i] = Openings.leafNode(nodes[i]);
            }
        }
        bytes32 node = Openings.fold(nodes, first, Openings.widthAt(count, below), levels, siblings);
        return m.level == Openings.height(count) ? Openings.seal(count, node) : node;
    }

    function _levels(Match storage m) private view returns (uint256) {
        return m.level < LAYER_LEVELS ? m.level : LAYER_LEVELS;
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

    /// @return the element that the holder posted, at the beginning of a word
    function _posted(Match storage m, Proof calldata proof) private view returns (bytes32) {
        uint256 offset = proof.element * ProgramReader.elementBytes(proof.template);
        uint256 start = m.index * Openings.PIECE;
        uint256 length = _leafBytes(m);
        if (offset < start || offset >= start + length) revert NotInTheLeaf(proof.element);
        uint256 inLeaf = offset - start;
        bytes32 root = Openings.rootFrom(proof.word, inLeaf / 32, (length + 31) / 32, proof.wordPath);
        if (root != m.tree) revert WrongPath(root, m.tree);
        return proof.word << 8 * (inLeaf % 32);
    }

    function _first(bytes32 word, uint256 length) private pure returns (bytes memory part) {
        part = new bytes(length);
        for (uint256 i = 0; i < length; i++) {
            part[i] = word[i];
        }
    }
}
