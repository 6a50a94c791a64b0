// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {Openings} from "./Openings.sol";

/// Where an input's bytes are opened: `protocol/program.py` has the same list.
enum Source {
    TRACE, // another node
    STATE, // the state that the step opens with
    TOKENS, // the training data
    TABLES,
    BASE, // the frozen model
    MODEL, // the global parameters of the round
    CONTEXT, // what the game knows itself
    EXPONENTS, // of the round's global state
    GENERATED, // the node that a token's trace is about
    SAMPLED // ids of the round's steps, which the seat's state has the digest of
}

struct Input {
    Source source;
    uint256 node; // of this iteration, where the source is the trace
    uint256 size; // of the whole input, in bytes
}

/// @title The bytes of a program: its header, and the template of a node. `protocol/program.py`
/// writes them.
library ProgramReader {
    uint256 internal constant HEADER_BYTES = 183; // of jobs whose seats keep no parameters; else these follow
    /// Bytes that a game's first move may show of a segment: 5M gas, a quarter of what a
    /// transaction may carry.
    uint256 internal constant MOST_SHOWN = 32_768;
    uint256 private constant INITIAL_AT = 151;
    uint256 private constant RESET_PERIOD_AT = 183;
    uint256 private constant OVERLAP_AT = 187;
    uint256 private constant FRAGMENTS_AT = 191;
    uint256 private constant PAIRS_AT = 195;
    uint256 private constant PAIR_BYTES = 16;
    uint256 private constant INPUTS_AT = 26;
    uint256 private constant INPUT_BYTES = 17;

    error NotOfTheProgram(bytes32 root, bytes32 program);
    error NotAHeader(uint256 length);
    error ShortTemplate(uint256 length);
    error NotItsTemplate(uint256 node);
    error NoSuchInput(uint256 input);
    error SegmentTooLarge(uint256 shown, uint256 most);
    error NoNodes();

    /// @notice Reverts unless these bytes are part number `index` (0 the header, then templates) of
    /// the program.
    function requirePart(bytes32 program, bytes calldata part, uint256 index, uint256 count, bytes32[] calldata path)
        internal
        pure
    {
        bytes32 root = Openings.rootFrom(keccak256(part), index, count, path);
        if (root != program) revert NotOfTheProgram(root, program);
    }

    // --- the header ---

    function requireHeader(bytes calldata header) internal pure {
        uint256 length = HEADER_BYTES;
        if (header.length > HEADER_BYTES) {
            length = _generationsAt(header);
            if (header.length > length) length += 8 * (1 + fragments(header));
        }
        if (header.length != length || header[0] != 0x01) revert NotAHeader(header.length);
    }

    /// @return whether the job's steps sample what they learn
    function isSampled(bytes calldata header) internal pure returns (bool) {
        return header.length > HEADER_BYTES && header.length > _generationsAt(header);
    }

    /// @return bytes of a micro-batch in a step's result: its loss, and what was drawn
    function lossBytes(bytes calldata header) internal pure returns (uint256) {
        return isSampled(header) ? 12 : 4;
    }

    /// @return nodes of the trace of a token, of a step of this part
    /// @return part that its templates are of: behind all others
    function generation(bytes calldata header, uint256 stepPart) internal pure returns (uint256 nodes, uint256 part) {
        uint256 count = fragments(header);
        uint256 mixesIn = stepPart == 0 ? 0 : stepPart - count;
        nodes = _number(header, _generationsAt(header) + 8 * mixesIn, 8);
        part = 1 + (count == 0 ? 1 : 2 * count) + mixesIn;
    }

    function _generationsAt(bytes calldata header) private pure returns (uint256) {
        return PAIRS_AT + PAIR_BYTES * fragments(header);
    }

    /// @notice Reverts where a segment is more than its holder could open, of each step a digest, a
    /// norm and the losses; and where a step has no trace that it could post.
    /// @dev Whoever made such a job could take the bond of everybody who joined in it.
    function requirePlayable(bytes calldata header) internal pure {
        uint256 shown = segment(header) * (40 + lossBytes(header) * microBatches(header));
        if (shown > MOST_SHOWN) revert SegmentTooLarge(shown, MOST_SHOWN);
        if (stepNodes(header) == 0) revert NoNodes();
    }

    function stepNodes(bytes calldata header) internal pure returns (uint256) {
        return _number(header, 1, 8);
    }

    /// @return how many nodes the update proof's trace of a round has; 0 where a job has no update
    /// proof
    /// @return part that its templates are of: behind the step's, number 0, each fragment has one
    function updateProof(bytes calldata header, uint256 round) internal pure returns (uint256, uint8 part) {
        uint256 count = fragments(header);
        if (count == 0) return (_number(header, 9, 8), 1);
        uint256 fragment = round % count;
        return (_number(header, PAIRS_AT + PAIR_BYTES * fragment, 8), uint8(1 + fragment));
    }

    /// @return nodes of the step of the round that mixes in what the round before merged; 0 where
    /// none does
    /// @return part that its templates are of
    function taking(bytes calldata header, uint256 round) internal pure returns (uint256 nodes, uint8 part) {
        uint256 count = fragments(header);
        if (count == 0 || round == 0) return (0, 0);
        uint256 fragment = (round - 1) % count;
        return (_number(header, PAIRS_AT + PAIR_BYTES * fragment + 8, 8), uint8(1 + count + fragment));
    }

    /// @return digest of the state that round 0 opens from
    function initialModel(bytes calldata header) internal pure returns (bytes32) {
        return bytes32(header[INITIAL_AT:INITIAL_AT + 32]);
    }

    /// @return so many rounds open publicly once
    function resetPeriod(bytes calldata header) internal pure returns (uint256) {
        return header.length > HEADER_BYTES ? _number(header, RESET_PERIOD_AT, 4) : 1;
    }

    /// @return which step of a round mixes in
    function overlap(bytes calldata header) internal pure returns (uint256) {
        return _number(header, OVERLAP_AT, 4);
    }

    function fragments(bytes calldata header) internal pure returns (uint256) {
        return header.length > HEADER_BYTES ? _number(header, FRAGMENTS_AT, 4) : 0;
    }

    function steps(bytes calldata header) internal pure returns (uint256) {
        return _number(header, 17, 4);
    }

    function segment(bytes calldata header) internal pure returns (uint256) {
        return _number(header, 21, 4);
    }

    function microBatches(bytes calldata header) internal pure returns (uint256) {
        return _number(header, 25, 4);
    }

    function dataRoot(bytes calldata header) internal pure returns (bytes32) {
        return bytes32(_number(header, 29, 32));
    }

    function dataBytes(bytes calldata header) internal pure returns (uint256) {
        return _number(header, 61, 8) * _number(header, 69, 1);
    }

    function tablesRoot(bytes calldata header) internal pure returns (bytes32) {
        return bytes32(_number(header, 79, 32));
    }

    function tablesBytes(bytes calldata header) internal pure returns (uint256) {
        return _number(header, 111, 8);
    }

    function baseRoot(bytes calldata header) internal pure returns (bytes32) {
        return bytes32(_number(header, 119, 32));
    }

    // --- a template ---

    function partOf(bytes calldata template) internal pure returns (uint256) {
        return _number(template, 0, 1);
    }

    function op(bytes calldata template) internal pure returns (uint16) {
        return uint16(_number(template, 1, 2));
    }

    /// @return bytes of an element of the output
    function elementBytes(bytes calldata template) internal pure returns (uint256) {
        return _number(template, 3, 1);
    }

    /// @return bytes of the output
    function outputBytes(bytes calldata template) internal pure returns (uint256) {
        return _number(template, 4, 8);
    }

    /// @return i which of the template's nodes that is; reverts where it is none of them
    function iteration(bytes calldata template, uint256 node) internal pure returns (uint256 i) {
        (uint256 first, uint256 count, uint256 stride) =
            (_number(template, 12, 4), _number(template, 16, 4), _number(template, 20, 4));
        if (node < first) revert NotItsTemplate(node);
        if (stride > 0) i = (node - first) / stride;
        if (i >= count || first + i * stride != node) revert NotItsTemplate(node);
    }

    function input(bytes calldata template, uint256 number, uint256 iteration_) internal pure returns (Input memory) {
        if (number >= _number(template, 24, 2)) revert NoSuchInput(number);
        uint256 start = INPUTS_AT + INPUT_BYTES * number;
        uint256 node = _number(template, start + 1, 4) + iteration_ * _number(template, start + 5, 4);
        return Input(Source(_number(template, start, 1)), node, _number(template, start + 9, 8));
    }

    /// @notice What `IOneStep` is told: iteration, words, tail.
    function attributes(bytes calldata template, uint256 iteration_) internal pure returns (bytes memory) {
        return abi.encodePacked(uint64(iteration_), template[_wordsAt(template):]);
    }

    function word(bytes calldata template, uint256 number) internal pure returns (uint256) {
        return _number(template, _wordsAt(template) + 8 * number, 8);
    }

    /// @return what follows the words
    function tail(bytes calldata template) internal pure returns (bytes calldata) {
        uint256 start = _wordsAt(template);
        return template[start + 8 * _number(template, start - 2, 2):];
    }

    function _wordsAt(bytes calldata template) private pure returns (uint256) {
        return INPUTS_AT + INPUT_BYTES * _number(template, 24, 2) + 2;
    }

    function _number(bytes calldata data, uint256 start, uint256 length) private pure returns (uint256) {
        if (start + length > data.length) revert ShortTemplate(data.length);
        return uint256(bytes32(data[start:start + length])) >> (256 - 8 * length);
    }
}
