// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {Need} from "../../../src/judge/IOneStep.sol";
import {IOneStep} from "../../../src/judge/IOneStep.sol";
import {ImportSteps} from "../../../src/judge/ImportSteps.sol";
import {Sources} from "../../support/judge/Sources.sol";
import {deployed} from "../../support/Deployed.sol";

contract ImportStepsTest is Sources {
    ImportSteps internal step = ImportSteps(deployed("ImportSteps", ""));

    function test_everyElementIsPythons() public view {
        compare(step, "judge_imports", 14, 10_000);
    }

    /// Nearly half of the words are beyond the last multiple of the limit: none of them is a draw.
    function test_rejectedWordsAreNoDraws() public view {
        string memory json = vm.readFile("../tests/vectors/judge_draws.json");
        uint256[] memory drawn = vm.parseJsonUintArray(json, ".drawn");
        bytes[] memory opened = new bytes[](1);
        opened[0] = vm.parseJsonBytes(json, ".context");
        uint64 limit = uint64(vm.parseJsonUint(json, ".limit"));
        for (uint256 i = 0; i < drawn.length; i++) {
            // Sequences of one token, four in a micro-batch, and of each its second word.
            bytes memory attributes =
                abi.encodePacked(uint64(i / 4), uint64(4), uint64(1), uint64(2), uint64(0), limit, uint64(1));
            Need memory next = step.need(0x0002, attributes, 2 * (i % 4) + 1, opened);
            same(next.input, 0, "input");
            same(next.offset, 2 * (drawn[i] + 1), "offset");
            same(next.length, 2, "length");
        }
    }

    /// The last sequence of a batch of 512, which takes every draw before it.
    function test_aLateDrawFitsItsGas() public view {
        bytes[] memory opened = new bytes[](1);
        opened[0] = new bytes(128);
        bytes memory attributes =
            abi.encodePacked(uint64(511), uint64(1), uint64(1), uint64(2), uint64(0), uint64(1_000_000), uint64(1));
        uint256 before = gasleft();
        step.need(0x0002, attributes, 0, opened);
        atMost(before - gasleft(), 180_000, "gas");
    }

    function test_anotherFamilysOperationIsRefused() public {
        bytes4 refused = IOneStep.NoSuchOperation.selector;
        vm.expectRevert(abi.encodeWithSelector(refused, 0x000f));
        step.need(0x000f, new bytes(16), 0, new bytes[](0));
        vm.expectRevert(abi.encodeWithSelector(refused, 0x000f));
        step.run(0x000f, new bytes(16), 0, new bytes[](0));
    }
}
