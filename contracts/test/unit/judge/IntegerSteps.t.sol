// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {IOneStep} from "../../../src/judge/IOneStep.sol";
import {IntegerSteps} from "../../../src/judge/IntegerSteps.sol";
import {Nodes} from "../../support/judge/Nodes.sol";
import {deployed} from "../../support/Deployed.sol";

contract IntegerStepsTest is Nodes {
    IntegerSteps internal step = IntegerSteps(deployed("IntegerSteps", ""));

    /// Blocks are small here; test_aWholeBlocksGas has those of a program.
    function test_everyElementIsPythons() public view {
        compare(step, "1");
    }

    /// @return data so many bytes of random numbers: f32 of magnitudes from 2^-8 to 1
    function numbers(uint256 length, bytes1 kind) private pure returns (bytes memory data) {
        data = new bytes(length);
        for (uint256 i = 0; i < length; i += 4) {
            uint256 drawn = uint256(keccak256(abi.encode(kind, i)));
            uint256 word = ((drawn & 0x807fffff) | ((119 + (drawn >> 32) % 8) << 23));
            for (uint256 j = 0; j < 4; j++) {
                data[i + j] = bytes1(uint8(word >> (8 * j)));
            }
        }
    }

    function gasOf(uint16 op, bytes memory words, uint256 element, bytes[] memory opened)
        private
        view
        returns (uint256)
    {
        bytes memory attributes = abi.encodePacked(uint64(0), words);
        uint256 before = gasleft();
        step.run(op, attributes, element, opened);
        return before - gasleft();
    }

    /// What a program's blocks cost (`integers.py` has their sizes): a transaction has a bar of 450,000.
    function test_aWholeBlocksGas() public view {
        bytes[] memory one = new bytes[](1);
        one[0] = numbers(4096, "x");
        bytes memory block_ = abi.encodePacked(uint64(1024), uint64(1024));
        within(gasOf(0x0103, block_, 0, one), "blocks", "MAX_ABS");
        within(gasOf(0x0104, block_, 0, one), "blocks", "MAX");
        within(gasOf(0x010c, block_, 0, one), "blocks", "SUM_I32");
        within(gasOf(0x010d, abi.encodePacked(uint64(512), uint64(512)), 0, one), "blocks", "SUM_I64");
        within(gasOf(0x0118, block_, 0, one), "blocks", "COUNT_TARGETS");
        bytes[] memory two = new bytes[](2);
        two[0] = numbers(1024, "x");
        two[1] = hex"cdcc8c49"; // 1.1 · 2^20
        block_ = abi.encodePacked(uint64(256), uint64(256));
        within(gasOf(0x010e, block_, 0, two), "blocks", "SUM_GRID");
        two[1] = hex"cdcc8c47"; // 1.1 · 2^16
        within(gasOf(0x010f, block_, 0, two), "blocks", "SUM_SQUARES");
        one[0] = two[0];
        within(gasOf(0x0110, abi.encodePacked(block_, uint64(0x4b000000)), 0, one), "blocks", "SUM_ROUND");
        within(gasOf(0x0115, abi.encodePacked(uint64(128), uint64(128)), 127, one), "blocks", "PREFIX");
        two[0] = numbers(2048, "x");
        two[1] = numbers(2048, "y");
        within(gasOf(0x010b, abi.encodePacked(uint64(1), uint64(2048), uint64(2048)), 0, two), "blocks", "DOT_I8");
    }

    function test_anotherFamilysOperationIsRefused() public {
        vm.expectRevert(abi.encodeWithSelector(IOneStep.NoSuchOperation.selector, 0x0121));
        step.need(0x0121, new bytes(16), 0, new bytes[](0));
        vm.expectRevert(abi.encodeWithSelector(IOneStep.NoSuchOperation.selector, 0x0121));
        step.run(0x0121, new bytes(16), 0, new bytes[](0));
    }
}
