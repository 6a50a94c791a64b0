// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {IOneStep} from "../../../src/judge/IOneStep.sol";
import {FloatSteps} from "../../../src/judge/FloatSteps.sol";
import {Nodes} from "../../support/judge/Nodes.sol";
import {deployed} from "../../support/Deployed.sol";

contract FloatStepsTest is Nodes {
    FloatSteps internal step = FloatSteps(deployed("FloatSteps", ""));

    /// The gas is that of the README beside the contracts.
    function test_everyElementIsPythons() public view {
        compare(step, "3");
    }

    function test_anotherFamilysOperationIsRefused() public {
        vm.expectRevert(abi.encodeWithSelector(IOneStep.NoSuchOperation.selector, 0x031d));
        step.need(0x031d, new bytes(16), 0, new bytes[](0));
        vm.expectRevert(abi.encodeWithSelector(IOneStep.NoSuchOperation.selector, 0x031d));
        step.run(0x031d, new bytes(16), 0, new bytes[](0));
    }
}
