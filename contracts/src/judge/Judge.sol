// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {Claim} from "./IClaims.sol";
import {IOneStep, Need} from "./IOneStep.sol";
import {MoveChecks, OpenedToken, TokenPick} from "./MoveChecks.sol";
import {Op} from "./Op.sol";
import {Openings} from "./Openings.sol";
import {Input, ProgramReader, Source} from "./ProgramReader.sol";

/// Whole pieces of 1 KiB (of a state's tensor, chunks of 4 KiB) of an input, and where they lie.
struct Opening {
    bytes data;
    bytes32[] siblings; // of the range, in the tensor's tree
    bytes32[] path; // of the tensor's digest, in the trace; else empty
}

/// What the challenger shows in the last move.
struct Proof {
    uint256 element; // of the output, by its number in the whole tensor
    bytes32 word; // of the posted leaf, which holds the element
    bytes32[] wordPath;
    bytes32[4] roots; // params, optimiser, buffers, RNG: of the state that the step opens with
    bytes header;
    bytes template;
    Opening[] openings; // in the order in which the operation asks for them
}

/// The node in dispute, as the game has come to know it.
struct Disputed {
    bytes32 from; // digest of the state that the step opens with
    bytes32 trace;
    uint256 nodes;
    uint256 node;
    uint256 step; // in the round
    bytes32 header; // keccak256
    bytes32 template; // keccak256
    bytes32 words; // root over the words of the posted leaf
    uint256 leafFrom; // bytes of the node before that leaf
    uint256 leafBytes;
    uint256 part; // of the program
    bytes32 generated; // in a token's trace the digest of the node that the token is of; else 0
    uint256 token; // its number in the step's batch
}

/// @title What a game asks of its moves, and the last of them: one element of one node, computed from what is opened of
/// its inputs.
/// @notice Nothing here trusts who calls: every opened byte hangs on the holder's own trace, on the claim or on the program.
/// @dev Without storage but for the list of families. Apart from the game, whose code has a size limit.
contract Judge is MoveChecks {
    uint256 public constant MAX_OPENINGS = 8;
    uint256 private constant TOKEN_BYTES = 16;

    /// By op >> 8; zero where a family is unknown.
    address[] public families;

    error UnknownFamily(uint256 family);
    error WrongOpenings(uint256 given, uint256 needed);
    error BeyondInput(uint256 offset, uint256 length, uint256 size);
    error NotShown(uint256 offset, uint256 length);
    error WrongRoot(Source source, bytes32 root);
    error NotTheState(bytes32 digest, bytes32 wanted);
    error OtherBytes(bytes32 given, bytes32 wanted);
    error NotInTheLeaf(uint256 offset);
    error NotGenerated(uint16 op);
    error OtherSteps(uint256 given, uint256 needed);

    constructor(address[] memory families_) {
        families = families_;
    }

    /// @notice Whether the element that the holder posted is what the program computes from the inputs. Reverts where
    /// they are not opened as it needs them.
    function isRight(Disputed calldata disputed, Claim calldata claim, Proof calldata proof)
        external
        view
        returns (bool)
    {
        _requireSame(disputed, proof.header, proof.template);
        uint256 length = ProgramReader.elementBytes(proof.template);
        bytes32 posted = _posted(disputed, proof.element * length, proof.word, proof.wordPath);
        bytes memory computed = _compute(disputed, claim, proof);
        return computed.length == length && keccak256(computed) == keccak256(_first(posted, length));
    }

    /// @notice The token that the challenger disputes is of a node without a formula, and as the holder posted it.
    function openToken(Disputed calldata disputed, TokenPick calldata pick)
        external
        pure
        returns (OpenedToken memory opened)
    {
        _requireSame(disputed, pick.header, pick.template);
        uint16 op = ProgramReader.op(pick.template);
        if (op != Op.GENERATED) revert NotGenerated(op);
        bytes32 trace = Openings.rootFrom(pick.digest, disputed.node, disputed.nodes, pick.path);
        if (trace != disputed.trace) revert WrongRoot(Source.TRACE, trace);
        bytes32 posted = _posted(disputed, pick.token * TOKEN_BYTES, pick.word, pick.wordPath);
        uint256 size = ProgramReader.outputBytes(pick.template);
        _requireAtMost(disputed.nodes, MOST_STEP_NODES);
        _requireAtMost(size, MOST_TOKENS_BYTES);
        opened.number = ProgramReader.iteration(pick.template, disputed.node) * (size / TOKEN_BYTES) + pick.token;
        (opened.result, opened.generated) = (Openings.pieceRoot(_first(posted, TOKEN_BYTES)), pick.digest);
        (opened.nodes, opened.part) = ProgramReader.generation(pick.header, disputed.part);
        _requireAtMost(opened.nodes, MOST_TOKEN_NODES);
    }

    function _requireSame(Disputed calldata disputed, bytes calldata header, bytes calldata template) private pure {
        if (keccak256(header) != disputed.header) revert OtherBytes(keccak256(header), disputed.header);
        if (keccak256(template) != disputed.template) revert OtherBytes(keccak256(template), disputed.template);
    }

    /// @return the element as the program computes it
    function _compute(Disputed calldata disputed, Claim calldata claim, Proof calldata proof)
        private
        view
        returns (bytes memory)
    {
        uint16 op = ProgramReader.op(proof.template);
        if (op >> 8 >= families.length || families[op >> 8] == address(0)) revert UnknownFamily(op >> 8);
        if (proof.openings.length > MAX_OPENINGS) revert WrongOpenings(proof.openings.length, MAX_OPENINGS);
        IOneStep family = IOneStep(families[op >> 8]);
        uint256 iteration = ProgramReader.iteration(proof.template, disputed.node);
        bytes memory attributes = ProgramReader.attributes(proof.template, iteration);
        bytes memory context = _context(disputed, claim, proof);
        bytes[] memory opened = new bytes[](proof.openings.length);
        uint256 k;
        for (; k <= proof.openings.length; k++) {
            _setLength(opened, k);
            Need memory need = family.need(op, attributes, proof.element, opened);
            if (need.length == 0) break;
            if (k == proof.openings.length) revert WrongOpenings(k, k + 1);
            _setLength(opened, k + 1);
            Input memory input = ProgramReader.input(proof.template, need.input, iteration);
            if (need.offset > input.size || need.length > input.size - need.offset) {
                revert BeyondInput(need.offset, need.length, input.size);
            }
            opened[k] = input.source == Source.CONTEXT
                ? _slice(context, need.offset, need.length)
                : _open(disputed, claim, proof, proof.openings[k], input, need);
        }
        if (k != proof.openings.length) revert WrongOpenings(proof.openings.length, k);
        return family.run(op, attributes, proof.element, opened);
    }

    function _open(
        Disputed calldata disputed,
        Claim calldata claim,
        Proof calldata proof,
        Opening calldata opening,
        Input memory input,
        Need memory need
    ) private pure returns (bytes memory) {
        if (input.source == Source.TRACE) return _openNode(disputed, opening, input, need);
        if (input.source == Source.TOKENS) {
            bytes32 data = ProgramReader.dataRoot(proof.header);
            return _openPieces(data, ProgramReader.dataBytes(proof.header), opening, input, need);
        }
        if (input.source == Source.TABLES) {
            bytes32 tables = ProgramReader.tablesRoot(proof.header);
            return _openPieces(tables, ProgramReader.tablesBytes(proof.header), opening, input, need);
        }
        if (input.source == Source.EXPONENTS) {
            if (sha256(opening.data) != claim.modelExponents) revert WrongRoot(input.source, sha256(opening.data));
            return _shown(opening.data, 0, need);
        }
        if (input.source == Source.BASE) {
            return _openChunks(ProgramReader.baseRoot(proof.header), proof.template, opening, input, need);
        }
        if (input.source == Source.MODEL) {
            return _openChunks(claim.modelParams, proof.template, opening, input, need);
        }
        if (input.source == Source.GENERATED) {
            return _openPieces(disputed.generated, input.size, opening, input, need);
        }
        if (input.source == Source.SAMPLED) {
            return _openSampled(disputed.step, proof.roots[2], proof.template, opening, need);
        }
        uint256 which = ProgramReader.word(proof.template, 2);
        if (which == 1 && proof.roots[1] == 0) return new bytes(need.length); // moments that nobody has moved yet
        return _openChunks(proof.roots[which], proof.template, opening, input, need);
    }

    /// @return what the holder posted from that byte of the node on, at the beginning of a word
    function _posted(Disputed calldata disputed, uint256 offset, bytes32 word, bytes32[] calldata path)
        private
        pure
        returns (bytes32)
    {
        uint256 start = disputed.leafFrom;
        uint256 length = disputed.leafBytes;
        if (offset < start || offset >= start + length) revert NotInTheLeaf(offset);
        uint256 inLeaf = offset - start;
        bytes32 root = Openings.rootFrom(word, inLeaf / 32, (length + 31) / 32, path);
        if (root != disputed.words) revert WrongPath(root, disputed.words);
        return word << 8 * (inLeaf % 32);
    }

    function _first(bytes32 word, uint256 length) private pure returns (bytes memory part) {
        part = new bytes(length);
        for (uint256 i = 0; i < length; i++) {
            part[i] = word[i];
        }
    }

    function _openNode(Disputed calldata disputed, Opening calldata opening, Input memory input, Need memory need)
        private
        pure
        returns (bytes memory)
    {
        uint256 first = need.offset / Openings.PIECE;
        bytes32 digest = Openings.pieceRoot(opening.data, first, input.size, opening.siblings);
        bytes32 trace = Openings.rootFrom(digest, input.node, disputed.nodes, opening.path);
        if (trace != disputed.trace) revert WrongRoot(input.source, trace);
        return _shown(opening.data, first * Openings.PIECE, need);
    }

    function _openPieces(bytes32 root, uint256 size, Opening calldata opening, Input memory input, Need memory need)
        private
        pure
        returns (bytes memory)
    {
        uint256 first = need.offset / Openings.PIECE;
        bytes32 shown = Openings.pieceRoot(opening.data, first, size, opening.siblings);
        if (shown != root) revert WrongRoot(input.source, shown);
        return _shown(opening.data, first * Openings.PIECE, need);
    }

    /// @dev The template's first words are the tensor's first leaf in the tree and the tree's leaves; its tail is the prefix.
    function _openChunks(
        bytes32 root,
        bytes calldata template,
        Opening calldata opening,
        Input memory input,
        Need memory need
    ) private pure returns (bytes memory) {
        uint256 first = need.offset / Openings.CHUNK;
        Openings.Chunks memory tensor =
            Openings.Chunks(ProgramReader.word(template, 0), ProgramReader.word(template, 1), input.size);
        bytes calldata prefix = ProgramReader.tail(template);
        bytes32 shown = Openings.chunkRoot(opening.data, first, tensor, prefix, opening.siblings);
        if (shown != root) revert WrongRoot(input.source, shown);
        return _shown(opening.data, first * Openings.CHUNK, need);
    }

    /// @dev The state has a chain over the roots of each step's ids. The opening's path is the chain before the step,
    /// and the roots of the steps behind it, whose number says which step it is.
    function _openSampled(
        uint256 steps,
        bytes32 sampled,
        bytes calldata template,
        Opening calldata opening,
        Need memory need
    ) private pure returns (bytes memory) {
        uint256 size = ProgramReader.word(template, 0); // of a step's ids, one tensor
        uint256 step = need.offset / size;
        if (step + opening.path.length != steps) revert OtherSteps(step + opening.path.length, steps);
        uint256 first = (need.offset % size) / Openings.CHUNK;
        Openings.Chunks memory tensor = Openings.Chunks(0, (size + Openings.CHUNK - 1) / Openings.CHUNK, size);
        bytes32 root = Openings.chunkRoot(opening.data, first, tensor, ProgramReader.tail(template), opening.siblings);
        bytes32 chain = sha256(abi.encodePacked("atoll.rollouts.v1", opening.path[0], root));
        for (uint256 i = 1; i < opening.path.length; i++) {
            chain = sha256(abi.encodePacked("atoll.rollouts.v1", chain, opening.path[i]));
        }
        if (chain != sampled) revert WrongRoot(Source.SAMPLED, chain);
        return _shown(opening.data, step * size + first * Openings.CHUNK, need);
    }

    /// @dev `data` begins at byte `start` of the input, which is not after what is needed.
    function _shown(bytes calldata data, uint256 start, Need memory need) private pure returns (bytes memory) {
        uint256 from = need.offset - start;
        if (from + need.length > data.length) revert NotShown(need.offset, need.length);
        return data[from:from + need.length];
    }

    /// @dev Twelve words, thirteen in a token's trace: JUDGE's CONTEXT (SPEC-GAME.md, chapter 1).
    function _context(Disputed calldata disputed, Claim calldata claim, Proof calldata proof)
        private
        pure
        returns (bytes memory)
    {
        bytes32 digest = sha256(abi.encodePacked("atoll.state.v1", proof.roots));
        if (digest != disputed.from) revert NotTheState(digest, disputed.from);
        uint256 globalStep = claim.round * ProgramReader.steps(proof.header) + disputed.step;
        bytes memory words = bytes.concat(
            abi.encode(claim.dataSeed, claim.seat, claim.round, disputed.step, globalStep, disputed.from),
            abi.encode(proof.roots, claim.modelParams, claim.modelExponents)
        );
        return disputed.generated == 0 ? words : bytes.concat(words, abi.encode(disputed.token));
    }

    function _slice(bytes memory data, uint256 from, uint256 length) private pure returns (bytes memory part) {
        if (from + length > data.length) revert NotShown(from, length);
        part = new bytes(length);
        for (uint256 i = 0; i < length; i += 32) {
            assembly ("memory-safe") {
                // Both have whole words of memory; what is copied beyond `length` is zeroed below.
                mstore(add(add(part, 32), i), mload(add(add(data, 32), add(from, i))))
            }
        }
    }

    function _setLength(bytes[] memory list, uint256 length) private pure {
        assembly ("memory-safe") {
            mstore(list, length)
        }
    }
}
