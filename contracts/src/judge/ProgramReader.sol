// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {Openings} from "./Openings.sol";

/// Where an input's bytes are opened: `law/program.py` has the same list.
enum Source {
    TAPE, // another node
    STATE, // the state that the step opens with
    TOKENS, // the training data
    TABLES,
    BASE, // the frozen model
    MODEL, // the global parameters of the round
    CONTEXT, // what the game knows itself
    EXPONENTS // of the round's global state
}

struct Input {
    Source source;
    uint256 node; // of this iteration, where the source is the tape
    uint256 size; // of the whole input, in bytes
}

/// @title The bytes of a program: its header, and the template of a node. `law/program.py` writes them.
library ProgramReader {
    uint256 internal constant HEADER_BYTES = 183;
    uint256 private constant INPUTS_AT = 26;
    uint256 private constant INPUT_BYTES = 17;

    error NotOfTheProgram(bytes32 root, bytes32 program);
    error NotAHeader(uint256 length);
    error ShortTemplate(uint256 length);
    error NotItsTemplate(uint256 node);
    error NoSuchInput(uint256 input);

    /// @notice Reverts unless these bytes are part number `index` (0 the header, then templates) of the program.
    function requirePart(bytes32 program, bytes calldata part, uint256 index, uint256 count, bytes32[] calldata path)
        internal
        pure
    {
        bytes32 root = Openings.rootFrom(keccak256(part), index, count, path);
        if (root != program) revert NotOfTheProgram(root, program);
    }

    // --- the header ---

    function requireHeader(bytes calldata header) internal pure {
        if (header.length != HEADER_BYTES || header[0] != 0x01) revert NotAHeader(header.length);
    }

    function stepNodes(bytes calldata header) internal pure returns (uint256) {
        return _number(header, 1, 8);
    }

    function linkNodes(bytes calldata header) internal pure returns (uint256) {
        return _number(header, 9, 8);
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

    function isLink(bytes calldata template) internal pure returns (bool) {
        return _number(template, 0, 1) == 1;
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

    function _number(bytes calldata data, uint256 start, uint256 length) private pure returns (uint256 value) {
        if (start + length > data.length) revert ShortTemplate(data.length);
        assembly ("memory-safe") {
            value := shr(sub(256, mul(8, length)), calldataload(add(data.offset, start)))
        }
    }
}
