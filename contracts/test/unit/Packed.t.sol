// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {Head, Packed, Shape, Windows} from "../../src/rounds/Packed.sol";
import {JobStatus, Phase} from "../../src/types/Types.sol";
import {Check} from "../support/Check.sol";

/// @title Words that are read and written at once lie as the compiler lays structs out.
contract PackedTest is Check {
    using Packed for Head;
    using Packed for Shape;
    using Packed for Windows;

    Head private head;
    Head private other;
    Shape private shape;
    Windows private windows;

    /// @dev Of numbers, since most are no value of an enum.
    function headOf(uint256[10] memory n, bool[3] memory flags) private pure returns (Head memory h) {
        (h.phase, h.status, h.round) = (Phase(uint8(n[0] % 5)), JobStatus(uint8(n[1] % 6)), uint32(n[2]));
        (h.deadline, h.committeeDraw, h.streak) = (uint40(n[3]), uint16(n[4]), uint8(n[5]));
        (h.isCancelled, h.isSeeded, h.hasMoved) = (flags[0], flags[1], flags[2]);
        (h.noted, h.segments) = (uint40(n[6]), uint16(n[7]));
        (h.signing, h.train) = (uint32(n[8]), uint32(n[9]));
    }

    function testFuzz_aHeadIsTheStruct(uint256[10] memory numbers, bool[3] memory flags) public {
        Head memory given = headOf(numbers, flags);
        head = given;
        same(keccak256(abi.encode(head.load())), keccak256(abi.encode(given)), "read");
        other.store(given);
        Head memory kept = other;
        same(keccak256(abi.encode(kept)), keccak256(abi.encode(given)), "written");
    }

    function testFuzz_aShapeIsTheStruct(Shape memory given) public {
        shape = given;
        same(keccak256(abi.encode(shape.load())), keccak256(abi.encode(given)), "read");
    }

    function testFuzz_windowsAreTheStruct(Windows memory given) public {
        windows = given;
        same(keccak256(abi.encode(windows.load())), keccak256(abi.encode(given)), "read");
    }
}
