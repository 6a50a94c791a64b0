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
        uint16[10] memory highest = [uint16(8300), 8800, 17100, 8800, 10100, 8600, 5000, 10000, 12100, 10900];
        uint256[] memory gas = new uint256[](highest.length);
        for (uint256 i = 0; i < highest.length; i++) {
            gas[i] = highest[i];
        }
        compare(step, "4", gas);
    }

    function test_anotherFamilysOperationIsRefused() public {
        vm.expectRevert(abi.encodeWithSelector(IOneStep.NoSuchOperation.selector, 0x040b));
        step.need(0x040b, new bytes(16), 0, new bytes[](0));
        vm.expectRevert(abi.encodeWithSelector(IOneStep.NoSuchOperation.selector, 0x040b));
        step.run(0x040b, new bytes(16), 0, new bytes[](0));
    }
}
