// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {IOneStep} from "../../../src/judge/IOneStep.sol";
import {AttentionSteps} from "../../../src/judge/AttentionSteps.sol";
import {Nodes} from "../../support/judge/Nodes.sol";
import {deployed} from "../../support/Deployed.sol";

contract AttentionStepsTest is Nodes {
    AttentionSteps internal step = AttentionSteps(deployed("AttentionSteps", ""));

    /// Products are short here.
    function test_everyElementIsPythons() public view {
        compare(step, "2");
    }

    /// 512 terms, the most that a program has: a transaction has a bar of 450,000.
    function test_theLongestProductsGas() public view {
        bytes[] memory opened = new bytes[](2);
        opened[0] = new bytes(2048);
        for (uint256 i = 0; i < 2048; i += 4) {
            (opened[0][i + 2], opened[0][i + 3]) = (0x34, 0xc3); // -180
        }
        opened[1] = opened[0];
        bytes memory words = abi.encodePacked(uint64(0), uint64(1), uint64(1), uint64(512), uint64(1), new bytes(48));
        uint256 before = gasleft();
        bytes memory result = step.run(0x0201, words, 0, opened);
        within(before - gasleft(), "blocks", "DOT_F32");
        check(keccak256(result) == keccak256(hex"00207d4b"), "512 products of 180 with itself");
    }

    function test_anotherFamilysOperationIsRefused() public {
        vm.expectRevert(abi.encodeWithSelector(IOneStep.NoSuchOperation.selector, 0x020a));
        step.need(0x020a, new bytes(32), 0, new bytes[](0));
        vm.expectRevert(abi.encodeWithSelector(IOneStep.NoSuchOperation.selector, 0x020a));
        step.run(0x020a, new bytes(32), 0, new bytes[](0));
    }
}
