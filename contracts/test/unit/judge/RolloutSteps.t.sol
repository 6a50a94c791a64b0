// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {IOneStep} from "../../../src/judge/IOneStep.sol";
import {RolloutSteps} from "../../../src/judge/RolloutSteps.sol";
import {Sources} from "../../support/judge/Sources.sol";
import {deployed} from "../../support/Deployed.sol";

contract RolloutStepsTest is Sources {
    RolloutSteps internal step = RolloutSteps(deployed("RolloutSteps", ""));

    function test_everyElementIsPythons() public view {
        compare(step, "judge_rollouts", 15, 60_000);
    }

    function test_anotherFamilysOperationIsRefused() public {
        bytes4 refused = IOneStep.NoSuchOperation.selector;
        vm.expectRevert(abi.encodeWithSelector(refused, 0x07ff));
        step.need(0x07ff, new bytes(32), 0, new bytes[](0));
        vm.expectRevert(abi.encodeWithSelector(refused, 0x0701));
        step.run(0x0701, new bytes(32), 0, new bytes[](0));
    }
}
