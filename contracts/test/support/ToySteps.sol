// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {IOneStep, Need} from "../../src/judge/IOneStep.sol";

/// @title Operations on uint32, little-endian, for a program small enough for a test, as in `tests/support/games.py`.
contract ToySteps is IOneStep {
    uint16 internal constant COPY = 0x0701;
    uint16 internal constant ADD = 0x0702;
    uint16 internal constant GATHER = 0x0703; // [entries of the table]
    uint16 internal constant SUM = 0x0704; // [numbers a sum]
    uint16 internal constant ROOTS = 0x0705;
    uint16 internal constant DIGEST = 0x0706;
    uint16 internal constant RESULT = 0x0707;
    uint16 internal constant COPY_WORDS = 0x0708;

    function need(uint16 op, bytes calldata attributes, uint256 element, bytes[] calldata opened)
        external
        pure
        returns (Need memory)
    {
        if (opened.length == 0) return _first(op, attributes, element);
        if (opened.length == 1 && op == ADD) return Need(1, 4 * element, 4);
        if (opened.length == 1 && op == GATHER) return Need(1, 4 * (_u32(opened[0]) % _word(attributes)), 4);
        return Need(0, 0, 0);
    }

    function run(uint16 op, bytes calldata, uint256 element, bytes[] calldata opened)
        external
        pure
        returns (bytes memory)
    {
        if (op == ADD) return _le(uint256(_u32(opened[0])) + _u32(opened[1]));
        if (op == GATHER) return opened[1];
        if (op == SUM) return _sum(opened[0]);
        if (op == DIGEST) return abi.encodePacked(sha256(abi.encodePacked("atoll.state.v1", opened[0])));
        bytes32 mixed = keccak256(abi.encodePacked(opened[0], uint64(element)));
        if (op == ROOTS && element >= 2) return abi.encodePacked(mixed);
        if (op == RESULT && element >= 8) return abi.encodePacked(uint32(bytes4(mixed)) & 0x3fffffff);
        return opened[0];
    }

    function _first(uint16 op, bytes calldata attributes, uint256 element) private pure returns (Need memory) {
        if (op == SUM) return Need(0, 4 * _word(attributes) * element, 4 * _word(attributes));
        if (op == ROOTS) return element < 2 ? Need(0, 32 * (6 + element), 32) : Need(1, 0, 4);
        if (op == DIGEST) return Need(0, 0, 128);
        if (op == RESULT && element >= 8) return Need(1, 0, 4);
        if (op == COPY_WORDS) return Need(0, 32 * element, 32);
        return Need(0, 4 * element, 4);
    }

    function _sum(bytes calldata data) private pure returns (bytes memory) {
        uint256 sum;
        for (uint256 i = 0; i < data.length; i += 4) {
            sum += _u32(data[i:i + 4]);
        }
        return _le(sum);
    }

    function _word(bytes calldata attributes) private pure returns (uint256) {
        return uint64(bytes8(attributes[8:16]));
    }

    function _u32(bytes calldata data) private pure returns (uint32) {
        return uint32(_swap(uint32(bytes4(data[:4]))));
    }

    function _le(uint256 value) private pure returns (bytes memory) {
        return abi.encodePacked(uint32(_swap(uint32(value))));
    }

    function _swap(uint32 x) private pure returns (uint32) {
        return (x >> 24) | (x >> 8 & 0xff00) | (x << 8 & 0xff0000) | (x << 24);
    }
}
