// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {IOneStep} from "../../../src/judge/IOneStep.sol";
import {OptimiserSteps} from "../../../src/judge/OptimiserSteps.sol";
import {Nodes} from "../../support/judge/Nodes.sol";
import {deployed} from "../../support/Deployed.sol";

contract OptimiserStepsTest is Nodes {
    OptimiserSteps internal step = OptimiserSteps(deployed("OptimiserSteps", ""));

    /// The gas is that of the README beside the contracts.
    function test_everyElementIsPythons() public view {
        compare(step, "4");
    }

    function test_anotherFamilysOperationIsRefused() public {
        vm.expectRevert(abi.encodeWithSelector(IOneStep.NoSuchOperation.selector, 0x040b));
        step.need(0x040b, new bytes(16), 0, new bytes[](0));
        vm.expectRevert(abi.encodeWithSelector(IOneStep.NoSuchOperation.selector, 0x040b));
        step.run(0x040b, new bytes(16), 0, new bytes[](0));
    }
}
