// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {Claim} from "./IClaims.sol";
import {IOneStep, Need} from "./IOneStep.sol";
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
}

/// @title Computing one element of one node from what is opened of its inputs.
/// @notice Nothing here trusts who calls: every opened byte hangs on the holder's own trace, on the claim or on the program.
/// @dev Without storage but for the list of families, so the game and whoever prepares a proof ask the same code.
contract Judge {
    uint256 public constant MAX_OPENINGS = 8;

    /// By op >> 8; zero where a family is unknown.
    address[] public families;

    error UnknownFamily(uint256 family);
    error WrongOpenings(uint256 given, uint256 needed);
    error BeyondInput(uint256 offset, uint256 length, uint256 size);
    error NotShown(uint256 offset, uint256 length);
    error WrongRoot(Source source, bytes32 root);
    error NotTheState(bytes32 digest, bytes32 wanted);
    error WrongLength(uint256 given, uint256 needed);
    error NotFinite(uint256 step);

    constructor(address[] memory families_) {
        families = families_;
    }

    /// @notice The root over what a holder opens of a segment's steps: whole, and finite.
    /// @dev Leaf i of the tree is keccak of the state that step i opens with and of what it results
    /// in.
    function stepsRoot(bytes32 initialState, bytes32[] calldata states, bytes calldata works, uint256 workBytes)
        external
        pure
        returns (bytes32)
    {
        if (works.length != states.length * workBytes) {
            revert WrongLength(works.length, states.length * workBytes);
        }
        bytes32[] memory leaves = new bytes32[](states.length);
        bytes32 from = initialState;
        for (uint256 i = 0; i < states.length; i++) {
            bytes calldata work = works[i * workBytes:(i + 1) * workBytes];
            if (states[i] == 0) revert NotFinite(i); // what RESULT gives of such a step
            _requireFinite(work, i);
            leaves[i] = keccak256(abi.encode(from, Openings.pieceRoot(bytes.concat(states[i], work))));
            from = states[i];
        }
        return Openings.rootOf(leaves);
    }

    /// @notice The root over the words of a posted leaf.
    function wordsRoot(bytes calldata leaf) external pure returns (bytes32) {
        return Openings.wordsRoot(leaf);
    }

    /// @notice The element as the program computes it from the inputs. Reverts where they are not opened as it needs them.
    function compute(Disputed calldata disputed, Claim calldata claim, Proof calldata proof)
        external
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
        uint256 which = ProgramReader.word(proof.template, 2);
        if (which == 1 && proof.roots[1] == 0) return new bytes(need.length); // moments that nobody has moved yet
        return _openChunks(proof.roots[which], proof.template, opening, input, need);
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

    /// @dev `data` begins at byte `start` of the input, which is not after what is needed.
    function _shown(bytes calldata data, uint256 start, Need memory need) private pure returns (bytes memory) {
        uint256 from = need.offset - start;
        if (from + need.length > data.length) revert NotShown(need.offset, need.length);
        return data[from:from + need.length];
    }

    /// @dev Twelve words: JUDGE's CONTEXT (SPEC-GAME.md, chapter 1).
    function _context(Disputed calldata disputed, Claim calldata claim, Proof calldata proof)
        private
        pure
        returns (bytes memory)
    {
        bytes32 digest = sha256(abi.encodePacked("atoll.state.v1", proof.roots));
        if (digest != disputed.from) revert NotTheState(digest, disputed.from);
        uint256 globalStep = claim.round * ProgramReader.steps(proof.header) + disputed.step;
        return bytes.concat(
            abi.encode(claim.dataSeed, claim.seat, claim.round, disputed.step, globalStep, disputed.from),
            abi.encode(proof.roots, claim.modelParams, claim.modelExponents)
        );
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

    function _requireFinite(bytes calldata work, uint256 step) private pure {
        if (uint64(bytes8(work[:8])) >> 52 & 0x7ff == 0x7ff) revert NotFinite(step);
        for (uint256 i = 8; i < work.length; i += 4) {
            if (uint32(bytes4(work[i:i + 4])) >> 23 & 0xff == 0xff) revert NotFinite(step);
        }
    }
}
