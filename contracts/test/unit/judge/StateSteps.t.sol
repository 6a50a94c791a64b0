// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {IOneStep} from "../../../src/judge/IOneStep.sol";
import {StateSteps} from "../../../src/judge/StateSteps.sol";
import {Sources} from "../../support/judge/Sources.sol";
import {deployed} from "../../support/Deployed.sol";

contract StateStepsTest is Sources {
    StateSteps internal step = StateSteps(deployed("StateSteps", ""));

    function test_everyElementIsPythons() public view {
        compare(step, "judge_states", 8, 50_000);
    }

    /// What stands behind a chunk in the call is none of its numbers.
    function test_aChunkEndsWhereItEnds() public view {
        bytes[] memory opened = new bytes[](2);
        bytes memory attributes = abi.encodePacked(uint64(0), uint64(36), uint64(1), "prefix");
        opened[0] = new bytes(36);
        bytes memory plain = step.run(0x0501, attributes, 0, opened);
        opened[1] = abi.encodePacked(type(uint256).max);
        same(bytes32(step.run(0x0501, attributes, 0, opened)), bytes32(plain), "byte");
        same(bytes32(plain), bytes32(sha256(abi.encodePacked("prefix", uint64(0), new bytes(36)))[0]), "digest");
    }

    function test_anotherFamilysOperationIsRefused() public {
        bytes4 refused = IOneStep.NoSuchOperation.selector;
        vm.expectRevert(abi.encodeWithSelector(refused, 0x0509));
        step.need(0x0509, new bytes(16), 0, new bytes[](0));
        vm.expectRevert(abi.encodeWithSelector(refused, 0x0500));
        step.run(0x0500, new bytes(16), 0, new bytes[](0));
    }
}
