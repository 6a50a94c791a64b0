// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {Claim} from "./IClaims.sol";
import {Openings} from "./Openings.sol";
import {ProgramReader} from "./ProgramReader.sol";

/// Bytes of the program, and where they lie in its tree.
struct Part {
    bytes data;
    uint256 index; // 0 the header, then templates
    uint256 count; // of the tree's leaves
    bytes32[] path;
}

/// What the holder's first move about a segment fixes.
struct OpenedSteps {
    bytes32 header; // keccak256
    bytes32 root; // over the segment's steps
    uint256 first; // step of the segment, in the round
    uint256 nodes; // of a step's trace
    uint256 takes; // 1 + which step of the segment mixes in what was merged; 0: none
    uint256 takingNodes; // of that step's trace
    uint256 part; // of the program, which that step is of; else 0
}

/// What the challenger's choice of a token fixes.
struct OpenedToken {
    bytes32 result; // piece root of the token, as the holder has it
    bytes32 generated; // digest of the node that has it
    uint256 number; // of the token in the step's batch
    uint256 nodes; // of the token's trace
    uint256 part; // of the program
}

/// A token of a node that has no formula, shown from the leaf that the holder posted.
struct TokenPick {
    bytes header; // of the program
    bytes template; // of the node
    uint256 token; // within the node
    bytes32 word; // of the leaf, which holds it
    bytes32[] wordPath;
    bytes32 digest; // of the node
    bytes32[] path; // of that, in the trace
}

/// What the holder's first move about an update proof fixes.
struct OpenedUpdate {
    bytes32 header; // keccak256
    uint256 steps; // of the round that were done
    uint256 nodes; // of the trace; 0 where the job has no update proof that could be wrong
    uint256 part; // of the program
}

/// The tree node in dispute.
struct Search {
    bytes32 node; // a sealed root at the top
    uint256 level; // leaves being 0
    uint256 count; // leaves of the tree
    uint256 index; // within its level
}

/// @title What a move of a game has to show.
/// @notice Nothing is kept here and nobody is trusted: the game asks with what it has kept.
abstract contract MoveChecks {
    uint256 private constant LAYER_LEVELS = 6;
    uint256 private constant MOST_BYTES = 1 << 40; // of a tensor; these are what `MAX_MOVES` follows from
    uint256 internal constant MOST_STEP_NODES = 1 << 30; // where a token's trace follows
    uint256 internal constant MOST_TOKENS_BYTES = 1 << 28;
    uint256 internal constant MOST_TOKEN_NODES = 1 << 24;
    bytes32 private constant UPDATE = keccak256("atoll.update.v1");

    error WrongSegment(uint256 segment, uint256 steps);
    error WrongLength(uint256 given, uint256 needed);
    error WrongClosing(bytes32 given, bytes32 claimed);
    error WrongWork(bytes32 given, bytes32 claimed);
    error WrongPath(bytes32 given, bytes32 wanted);
    error WrongRoots(bytes32 given, bytes32 claimed);
    error WrongUpdate(bytes32 given, bytes32 claimed);
    error WrongChild(uint256 child);
    error NotFinite(uint256 step);
    error TooLarge(uint256 size, uint256 most);

    /// @notice The states of a segment and the work of its steps are the claim's: whole, and
    /// finite.
    function openSteps(Claim calldata claim, Part calldata header, bytes32[] calldata states, bytes calldata works)
        external
        pure
        returns (OpenedSteps memory opened)
    {
        opened.header = _requireHeader(claim, header);
        uint256 count = ProgramReader.segment(header.data);
        uint256 steps = ProgramReader.steps(header.data);
        if (count == 0 || (claim.segment + 1) * count > steps) revert WrongSegment(claim.segment, steps);
        if (states.length != count) revert WrongLength(states.length, count);
        if (states[count - 1] != claim.closing) revert WrongClosing(states[count - 1], claim.closing);
        bool isAsSaid = claim.workTag == 0 || keccak256(works) == claim.workTag;
        if (!isAsSaid) revert WrongWork(keccak256(works), claim.workTag);
        opened.root = _stepsRoot(claim.initialState, states, works, header.data);
        (opened.first, opened.nodes) = (claim.segment * count, ProgramReader.stepNodes(header.data));
        _setTaking(opened, header.data, claim, count);
    }

    /// @notice The last node of the update proof's trace is the claim's update.
    /// @param template of that node; its size is that of the update
    /// @param roots params, optimiser, buffers, RNG: of the last state
    /// @param pieces piece root of the update
    function openUpdate(
        Claim calldata claim,
        Part calldata header,
        Part calldata template,
        bytes32[4] calldata roots,
        bytes32 pieces
    ) external pure returns (OpenedUpdate memory opened) {
        bytes32 digest = sha256(abi.encodePacked("atoll.state.v1", roots));
        if (digest != claim.initialState) revert WrongRoots(digest, claim.initialState);
        opened.header = _requireHeader(claim, header);
        opened.steps = (claim.segment + 1) * ProgramReader.segment(header.data);
        uint256 steps = ProgramReader.steps(header.data);
        if (opened.steps > steps) revert WrongSegment(claim.segment, steps); // fewer: it ended early
        (opened.nodes, opened.part) = ProgramReader.updateProof(header.data, claim.round);
        if (opened.nodes == 0) return opened;
        _requireTemplate(claim.program, template, opened.part, opened.nodes - 1);
        bytes32 update = keccak256(abi.encode(UPDATE, uint64(ProgramReader.outputBytes(template.data)), pieces));
        if (update != claim.updateRoot) revert WrongUpdate(update, claim.updateRoot);
    }

    /// @notice A step of the opened segment leads from `from` to `result`.
    function requireStep(
        bytes32 root,
        uint256 steps,
        uint256 step,
        bytes32 from,
        bytes32 result,
        bytes32[] calldata path
    ) external pure {
        bytes32 given = Openings.rootFrom(keccak256(abi.encode(from, result)), step, steps, path);
        if (given != root) revert WrongPath(given, root);
    }

    /// @notice The last node of the trace and the layer below its top hang on one root.
    /// @param path of that node
    function traceRoot(bytes32 result, uint256 nodes, bytes32[] calldata path, bytes32[] calldata layer)
        external
        pure
        returns (bytes32 root)
    {
        root = Openings.rootFrom(result, nodes - 1, nodes, path);
        bytes32 above = _above(Search(root, Openings.height(nodes), nodes, 0), layer, 0, Openings.none());
        if (above != root) revert WrongPath(above, root);
    }

    /// @notice The node in dispute is above the layer; of leaves, above their digests.
    function requireLayer(Search calldata search, bytes32[] calldata layer) external pure {
        bytes32 above = _above(search, layer, search.index << _levelsOf(search.level), Openings.none());
        if (above != search.node) revert WrongPath(above, search.node);
    }

    /// @notice The node in dispute is above this child of the layer.
    /// @return level of the child
    /// @return index of the child
    function requireChild(Search calldata search, uint256 child, bytes32 node, bytes32[] calldata path)
        external
        pure
        returns (uint256 level, uint256 index)
    {
        uint256 levels = _levelsOf(search.level);
        if (child >> levels != 0) revert WrongChild(child);
        (level, index) = (search.level - levels, (search.index << levels) + child);
        bytes32 above = _above(search, Openings.single(node), index, path);
        if (above != search.node) revert WrongPath(above, search.node);
    }

    /// @notice The template is the node's.
    /// @return digest keccak256 of the template
    /// @return size bytes of the node's output
    function requireTemplate(bytes32 program, Part calldata template, uint256 part, uint256 node)
        external
        pure
        returns (bytes32 digest, uint256 size)
    {
        _requireTemplate(program, template, part, node);
        size = ProgramReader.outputBytes(template.data);
        _requireAtMost(size, MOST_BYTES);
        return (keccak256(template.data), size);
    }

    function _requireAtMost(uint256 size, uint256 most) internal pure {
        if (size > most) revert TooLarge(size, most);
    }

    /// @param isWhole whether the leaf is all of its tree
    /// @return node that the leaf is in its tree
    /// @return words root over the leaf's words
    function openLeaf(bytes calldata leaf, bool isWhole) external pure returns (bytes32 node, bytes32 words) {
        node = keccak256(leaf);
        if (isWhole) node = Openings.seal(1, Openings.leafNode(node));
        words = Openings.wordsRoot(leaf);
    }

    function _requireHeader(Claim calldata claim, Part calldata header) private pure returns (bytes32) {
        ProgramReader.requirePart(claim.program, header.data, 0, header.count, header.path);
        ProgramReader.requireHeader(header.data);
        return keccak256(header.data);
    }

    /// @dev One step of a round is of another part: the one that mixes in what the round before
    /// merged.
    function _setTaking(OpenedSteps memory opened, bytes calldata header, Claim calldata claim, uint256 count)
        private
        pure
    {
        (uint256 nodes, uint256 part) = ProgramReader.taking(header, claim.round);
        if (nodes == 0) return;
        uint256 step = ProgramReader.overlap(header);
        if (step / count != claim.segment) return;
        (opened.takes, opened.takingNodes, opened.part) = (step % count + 1, nodes, part);
    }

    function _requireTemplate(bytes32 program, Part calldata template, uint256 part, uint256 node) private pure {
        if (template.index == 0) revert ProgramReader.NotItsTemplate(node);
        ProgramReader.requirePart(program, template.data, template.index, template.count, template.path);
        if (ProgramReader.partOf(template.data) != part) revert ProgramReader.NotItsTemplate(node);
        ProgramReader.iteration(template.data, node);
    }

    /// @dev Leaf i of the tree is keccak of the state that step i opens with and of what it results
    /// in.
    function _stepsRoot(bytes32 initialState, bytes32[] calldata states, bytes calldata works, bytes calldata header)
        private
        pure
        returns (bytes32)
    {
        uint256 lossBytes = ProgramReader.lossBytes(header);
        uint256 workBytes = 8 + lossBytes * ProgramReader.microBatches(header);
        if (works.length != states.length * workBytes) revert WrongLength(works.length, states.length * workBytes);
        bytes32[] memory leaves = new bytes32[](states.length);
        bytes32 from = initialState;
        for (uint256 i = 0; i < states.length; i++) {
            bytes calldata work = works[i * workBytes:(i + 1) * workBytes];
            if (states[i] == 0) revert NotFinite(i); // what RESULT gives of such a step
            _requireFinite(work, i, lossBytes);
            leaves[i] = keccak256(abi.encode(from, Openings.pieceRoot(bytes.concat(states[i], work))));
            from = states[i];
        }
        return Openings.rootOf(leaves);
    }

    function _requireFinite(bytes calldata work, uint256 step, uint256 lossBytes) private pure {
        if (uint64(bytes8(work[:8])) >> 52 & 0x7ff == 0x7ff) revert NotFinite(step);
        for (uint256 i = 8; i < work.length; i += lossBytes) {
            if (uint32(bytes4(work[i:i + 4])) >> 23 & 0xff == 0xff) revert NotFinite(step);
        }
    }

    /// @return so many levels above a layer the node is that it is revealed of
    function _levelsOf(uint256 level) private pure returns (uint256) {
        return level < LAYER_LEVELS ? level : LAYER_LEVELS;
    }

    /// @dev The node in dispute, from some of the layer below it.
    function _above(Search memory search, bytes32[] memory nodes, uint256 first, bytes32[] calldata siblings)
        private
        pure
        returns (bytes32)
    {
        uint256 levels = _levelsOf(search.level);
        uint256 below = search.level - levels;
        if (below == 0) {
            for (uint256 i = 0; i < nodes.length; i++) {
                nodes[i] = Openings.leafNode(nodes[i]);
            }
        }
        bytes32 node = Openings.fold(nodes, first, Openings.widthAt(search.count, below), levels, siblings);
        return search.level == Openings.height(search.count) ? Openings.seal(search.count, node) : node;
    }
}
