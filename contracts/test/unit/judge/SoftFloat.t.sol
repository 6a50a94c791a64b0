// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {SoftFloat} from "../../../src/judge/SoftFloat.sol";
import {Arithmetic} from "../../support/judge/Arithmetic.sol";
import {Check} from "../../support/Check.sol";
import {deployed} from "../../support/Deployed.sol";

/// @title The judge's arithmetic against what Python made of the same operands
/// (`tests/vectors/judge.json`).
/// @dev The file has the borders of the formats, and digests of results: the first 8 bytes of
/// keccak of each row, all of which are worked out here again. tests/judge/operands.py says which
/// operands are in a row.
contract SoftFloatTest is Check {
    uint256 internal constant ROW = 64;
    string internal json;
    Arithmetic internal arithmetic;

    error WrongRow(string operation, bool borders, uint256 row);

    function setUp() public {
        json = vm.readFile("../tests/vectors/judge.json");
        arithmetic = Arithmetic(deployed("Arithmetic", ""));
    }

    function field(uint256 operation, string memory key) internal pure returns (string memory) {
        return string.concat(".operations[", vm.toString(operation), "].", key);
    }

    function digest(uint256 operation, bytes memory operands) internal view returns (bytes8) {
        return bytes8(keccak256(arithmetic.many(operation, operands)));
    }

    function put(bytes memory operands, uint256 i, uint256 a, uint256 b) internal pure {
        assembly ("memory-safe") {
            let position := add(add(operands, 32), shl(4, i))
            let after_ := and(mload(position), 0xffffffffffffffffffffffffffffffff)
            mstore(position, or(or(shl(192, a), shl(128, b)), after_))
        }
    }

    function compare(uint256 operation, bytes memory rows, bool borders, uint256 row, bytes memory operands)
        internal
        view
    {
        bytes8 wanted;
        assembly ("memory-safe") {
            wanted := mload(add(add(rows, 32), shl(3, row)))
        }
        if (digest(operation, operands) != bytes8(wanted)) {
            revert WrongRow(vm.parseJsonString(json, field(operation, "name")), borders, row);
        }
    }

    /// All pairs of borders; of functions of one operand, all of them.
    function test_borders() public view {
        uint256 operation;
        for (; vm.keyExistsJson(json, field(operation, "name")); operation++) {
            string memory kind = vm.parseJsonString(json, field(operation, "kind"));
            uint256[] memory words = vm.parseJsonUintArray(json, string.concat(".borders.", kind));
            bytes memory rows = vm.parseJsonBytes(json, field(operation, "borders"));
            bytes memory operands = new bytes(16 * words.length);
            bool one = vm.parseJsonUint(json, field(operation, "operands")) == 1;
            same(rows.length, one ? 8 : 8 * words.length, "rows");
            for (uint256 i = 0; i < rows.length / 8; i++) {
                for (uint256 j = 0; j < words.length; j++) {
                    put(operands, j, one ? words[j] : words[i], one ? 0 : words[j]);
                }
                compare(operation, rows, true, i, operands);
            }
        }
        same(operation, 37, "operations");
    }

    /// Random operands, in the shapes that tests/judge/operands.py describes.
    function test_random() public view {
        for (uint256 operation = 0; operation < 37; operation++) {
            bytes32 kind = keccak256(bytes(vm.parseJsonString(json, field(operation, "kind"))));
            bytes memory rows = vm.parseJsonBytes(json, field(operation, "random"));
            check(rows.length >= 8, "rows");
            bytes memory operands = new bytes(16 * ROW);
            for (uint256 row = 0; row < rows.length / 8; row++) {
                for (uint256 j = 0; j < ROW; j++) {
                    uint256 i = row * ROW + j;
                    (uint256 a, uint256 b) = shaped(kind, i % 3, uint256(keccak256(abi.encode(operation, i))));
                    put(operands, j, a, b);
                }
                compare(operation, rows, false, row, operands);
            }
        }
    }

    function shaped(bytes32 kind, uint256 shape, uint256 drawn) internal pure returns (uint256 a, uint256 b) {
        a = drawn >> 192;
        b = uint64(drawn >> 128);
        uint256 t = uint64(drawn >> 64);
        uint256 sign = drawn & 1;
        if (kind == keccak256("integer")) {
            uint256 i = uint256(int256(int128(uint128(drawn >> 128))) >> (t % 128));
            return (uint64(i >> 64), uint64(i));
        }
        if (kind == keccak256("32")) {
            a = uint32(a);
            b = uint32(b);
            if (shape == 1) b = a ^ (b >> (t % 33)) ^ (sign << 31);
            if (shape == 2) (a, b) = ((a & 0x87ffffff) + 0x3c000000, (b & 0x87ffffff) + 0x3c000000);
            return (a, b);
        }
        if (shape == 1) {
            a = (a & 0x800fffffffffffff) | ((863 + (t >> 8) % 300) << 52);
            b = a ^ (b >> (t % 64)) ^ (sign << 63);
        }
        if (shape == 2) {
            a = (a & 0x80ffffffffffffff) + 0x3f80000000000000;
            b = (b & 0x80ffffffffffffff) + 0x3f80000000000000;
        }
    }

    /// The dearest of 64 ordinary operands: what the README beside the libraries says.
    function test_gasStaysWhatTheReadmeSays() public view {
        uint256[37] memory highest = [
            uint256(640),
            690,
            330,
            390,
            310,
            100,
            100,
            360,
            250,
            380,
            140,
            70,
            310,
            310,
            340,
            350,
            700,
            160,
            430,
            670,
            730,
            350,
            410,
            340,
            110,
            110,
            80,
            280,
            710,
            10880,
            20450,
            11940,
            760,
            700,
            760,
            3690,
            3310
        ];
        for (uint256 operation = 0; operation < 37; operation++) {
            string memory name = vm.parseJsonString(json, field(operation, "name"));
            bytes32 kind = keccak256(bytes(vm.parseJsonString(json, field(operation, "kind"))));
            bytes memory operands = new bytes(16 * ROW);
            for (uint256 j = 0; j < ROW; j++) {
                (uint256 a, uint256 b) = shaped(kind, 2, uint256(keccak256(abi.encode(operation, j))));
                put(operands, j, a, b);
            }
            (uint256 total, uint256 most) = arithmetic.gasOf(operation, operands);
            atMost(most, highest[operation], string.concat(name, ", mean ", vm.toString(total / ROW)));
        }
    }

    /// Integers beyond the 128 bits of the file.
    function test_widestIntegers() public pure {
        same(SoftFloat.fromInt32(type(int256).min), 0xff800000, "least, binary32");
        same(SoftFloat.fromInt32(type(int256).max), 0x7f800000, "largest, binary32");
        same(SoftFloat.fromInt32(int256(0xffffff) << 104), 0x7f7fffff, "the largest binary32");
        same(SoftFloat.fromInt32((int256(0x1ffffff) << 103) - 1), 0x7f7fffff, "just below the tie with infinity");
        same(SoftFloat.fromInt32(int256(0x1ffffff) << 103), 0x7f800000, "the tie with infinity");
        same(SoftFloat.fromIntTo64(type(int256).min), 0xcfe0000000000000, "least, binary64");
        same(SoftFloat.fromIntTo64(type(int256).max), 0x4fe0000000000000, "largest, binary64");
        same(SoftFloat.fromIntTo64((1 << 200) + (1 << 147)), 0x4c70000000000000, "a tie to even");
        same(SoftFloat.fromIntTo64((1 << 200) + (1 << 147) + 1), 0x4c70000000000001, "a digit above the tie");
    }

    function test_integersOfBinary32() public pure {
        check(SoftFloat.rint32ToInt(0x7f7fffff) == int256(0xffffff) << 104, "the largest");
        check(SoftFloat.rint32ToInt(0xff800000) == -(int256(1) << 128), "minus infinity");
        check(SoftFloat.rint32ToInt(0x40200000) == 2, "two and a half");
        check(SoftFloat.rint32ToInt(0xc0600000) == -4, "minus three and a half");
        check(SoftFloat.rint32ToInt(0xffc00001) == 0, "not a number");
    }
}
