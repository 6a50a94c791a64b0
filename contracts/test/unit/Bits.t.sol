// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {Bits} from "../../src/libraries/Bits.sol";
import {Check} from "../support/Check.sol";

/// @title Bitmaps against the plainest reference there is.
contract BitsTest is Check {
    function countSlowly(uint256 bitmap) internal pure returns (uint256 total) {
        for (uint256 i = 0; i < 256; i++) {
            total += (bitmap >> i) & 1;
        }
    }

    function testFuzz_popcount(uint256 bitmap) public pure {
        same(Bits.popcount(bitmap), countSlowly(bitmap), "popcount");
    }

    function test_popcountAtTheEdges() public pure {
        same(Bits.popcount(0), 0, "none");
        same(Bits.popcount(type(uint256).max), 256, "all");
        same(Bits.popcount(type(uint256).max - 1), 255, "all but one");
    }

    function testFuzz_lowest(uint256 bitmap, uint8 index) public pure {
        uint256 shifted = (bitmap | 1) << index;
        same(Bits.lowest(shifted), index, "lowest");
    }

    function testFuzz_firstBits(uint16 count) public pure {
        uint256 n = count % 257;
        same(Bits.popcount(Bits.firstBits(n)), n, "as many as asked for");
    }
}
