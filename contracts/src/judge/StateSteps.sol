// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {IOneStep, Need} from "./IOneStep.sol";
import {Op} from "./Op.sol";
import {Operands} from "./Operands.sol";

/// @title Family 5: the digest of the state after a step, and what the step comes to.
/// @notice sdk/atoll/numerics/trace/states.py has the same operations on whole tensors, and opcodes.py their words and
/// inputs. The trees are SPEC.md 9's, a level a node; a digest of zero says that a parameter is not bounded (S8) or that
/// the step is not finite (S5), and stays zero upwards.
/// An element of the first five is a byte of a digest, of RESULT a word of 4 bytes.
contract StateSteps is IOneStep {
    uint256 private constant CHUNK = 4096;
    // Of the context: the step is its word 3, the buffers' root word 8.
    uint256 private constant STEP_AT = 96;
    uint256 private constant STEP_TO_BUFFERS = 192;
    // Of RESULT: eight words of the digest, then two of the norm.
    uint256 private constant NORM_AT = 8;
    uint256 private constant LOSSES_AT = 10;

    // ---- what is opened -------------------------------------------------------------------------------------------

    /// @inheritdoc IOneStep
    function need(uint16 op, bytes calldata attributes, uint256 element, bytes[] calldata opened)
        external
        pure
        returns (Need memory)
    {
        uint256 k = opened.length;
        if (op == Op.STATE_DIGEST || op == Op.SAMPLED_DIGEST) {
            uint256 roots = op == Op.STATE_DIGEST ? 2 : 3;
            if (k < roots) return Need(k, 0, 32);
            return k == roots ? Need(roots, STEP_AT, STEP_TO_BUFFERS) : Need(0, 0, 0);
        }
        if (op == Op.RESULT || op == Op.SAMPLED_RESULT) return _resultNeed(element, k, op == Op.SAMPLED_RESULT);
        if (op < Op.CHUNKS || op > Op.RESULT) revert NoSuchOperation(op);
        if (k > 0) return Need(0, 0, 0);
        uint256 digest = element / 32;
        if (op == Op.CHUNKS) {
            uint256 left = Operands.word(attributes, 0) - CHUNK * digest;
            return Need(0, CHUNK * digest, left < CHUNK ? left : CHUNK);
        }
        if (op == Op.TREE_LEVEL) {
            return Need(0, 64 * digest, 2 * digest + 1 < Operands.word(attributes, 0) ? 64 : 32);
        }
        return Need(0, 32 * digest, 32);
    }

    /// Of a word of the digest also what says whether the step is finite.
    function _resultNeed(uint256 element, uint256 k, bool isSampled) private pure returns (Need memory) {
        if (element >= NORM_AT) {
            if (k > 0) return Need(0, 0, 0);
            if (element < LOSSES_AT) return Need(1, 0, 8);
            element -= LOSSES_AT;
            if (!isSampled) return Need(2, 4 * element, 4);
            return element % 3 == 0 ? Need(2, 4 * (element / 3), 4) : Need(4, 8 * (element / 3), 8);
        }
        if (k == 0) return Need(0, 4 * element, 4);
        if (k == 1) return Need(1, 0, 8);
        if (k == 2) return Need(3, 0, 4);
        return k == 3 && isSampled ? Need(5, 0, 8) : Need(0, 0, 0);
    }

    // ---- what it gives --------------------------------------------------------------------------------------------

    /// @inheritdoc IOneStep
    function run(uint16 op, bytes calldata attributes, uint256 element, bytes[] calldata opened)
        external
        pure
        returns (bytes memory)
    {
        if (op == Op.RESULT || op == Op.SAMPLED_RESULT) return _result(op, element, opened);
        bytes32 digest;
        if (op == Op.CHUNKS) digest = _chunk(attributes, element / 32, opened[0]);
        else if (op == Op.TREE_LEAVES) digest = _above(0, opened[0]);
        else if (op == Op.TREE_LEVEL) digest = opened[0].length == 32 ? bytes32(opened[0]) : _above(1, opened[0]);
        else if (op == Op.TREE_ROOT) digest = _root(Operands.word(attributes, 0), bytes32(opened[0]));
        else if (op == Op.STATE_DIGEST || op == Op.SAMPLED_DIGEST) digest = _state(opened);
        else revert NoSuchOperation(op);
        return abi.encodePacked(digest[element % 32]);
    }

    function _chunk(bytes calldata attributes, uint256 number, bytes calldata chunk) private pure returns (bytes32) {
        if (Operands.word(attributes, 1) == 1 && !_isBounded(chunk)) return 0;
        return sha256(abi.encodePacked(attributes[24:], uint64(number), chunk)); // behind iteration and two words: the prefix
    }

    /// @return whether every binary32 is between −2⁶⁴ and 2⁶⁴: its exponent's eight bits are below 191
    function _isBounded(bytes calldata numbers) private pure returns (bool) {
        uint256 beyond;
        assembly ("memory-safe") {
            let ones := 0x0000000100000001000000010000000100000001000000010000000100000001
            let end := add(numbers.offset, numbers.length)
            for { let at := numbers.offset } lt(at, end) { at := add(at, 32) } {
                let word := calldataload(at)
                let over := sub(add(at, 32), end)
                if sgt(over, 0) { word := shl(shl(3, over), shr(shl(3, over), word)) }
                // Of a little-endian number the last byte has sign and seven bits, the one before it the eighth.
                let exponents := or(shl(1, and(word, mul(ones, 0x7f))), and(shr(15, word), ones))
                beyond := or(beyond, add(exponents, mul(ones, 65))) // 191 + 65 is 256
            }
            beyond := and(beyond, mul(ones, 256))
        }
        return beyond == 0;
    }

    /// @return the node above one leaf (tag 0) or two nodes (tag 1); 0 where one of them is
    function _above(uint8 tag, bytes calldata below) private pure returns (bytes32) {
        if (bytes32(below) == 0 || below.length == 64 && bytes32(below[32:]) == 0) return 0;
        return sha256(abi.encodePacked(tag, below));
    }

    function _root(uint256 leaves, bytes32 top) private pure returns (bytes32) {
        return top == 0 ? bytes32(0) : sha256(abi.encodePacked(uint8(2), uint64(leaves), top));
    }

    /// @param opened roots of params and optimiser; where ids were sampled their root; the context from the step to the
    /// buffers' root
    function _state(bytes[] calldata opened) private pure returns (bytes32) {
        bytes32 params = bytes32(opened[0]);
        if (params == 0) return 0;
        bytes calldata context = opened[opened.length - 1];
        uint64 batches = uint64(uint256(bytes32(context))) + 1;
        bytes32 buffers = bytes32(context[160:192]);
        if (opened.length == 4) {
            if (batches == 1) buffers = 0; // a state that goes on has those of the round before
            buffers = sha256(abi.encodePacked("atoll.rollouts.v1", buffers, bytes32(opened[2])));
        }
        bytes32 rng = sha256(abi.encodePacked("atoll.rng.v1", batches));
        return sha256(abi.encodePacked("atoll.state.v1", params, bytes32(opened[1]), buffers, rng));
    }

    function _result(uint256 op, uint256 element, bytes[] calldata opened) private pure returns (bytes memory) {
        uint256 first = Operands.load(opened[0]);
        if (element >= LOSSES_AT) {
            bool isHigh = op == Op.SAMPLED_RESULT && (element - LOSSES_AT) % 3 == 1; // of what was drawn
            return abi.encodePacked(uint32(isHigh ? first >> 32 : first));
        }
        if (element >= NORM_AT) return abi.encodePacked(uint32(element == NORM_AT ? first >> 32 : first));
        bool isFinite =
            (Operands.load(opened[1]) >> 52) & 0x7ff != 0x7ff && (Operands.load(opened[2]) >> 23) & 0xff != 0xff;
        if (op == Op.SAMPLED_RESULT) isFinite = isFinite && Operands.load(opened[3]) == 0;
        return isFinite ? bytes(opened[0]) : new bytes(4);
    }
}
