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
        uint16[27] memory highest = [
            uint16(6700),
            6700,
            6200,
            7300,
            7200,
            7300,
            7600,
            10000,
            9500,
            10500,
            8300,
            10200,
            26600,
            31100,
            26600,
            6300,
            8700,
            11800,
            17200,
            5700,
            29600,
            10400,
            9400,
            11600,
            9700,
            5900,
            6600
        ];
        uint256[] memory gas = new uint256[](highest.length);
        for (uint256 i = 0; i < highest.length; i++) {
            gas[i] = highest[i];
        }
        compare(step, "3", gas);
    }

    function test_anotherFamilysOperationIsRefused() public {
        vm.expectRevert(abi.encodeWithSelector(IOneStep.NoSuchOperation.selector, 0x031c));
        step.need(0x031c, new bytes(16), 0, new bytes[](0));
        vm.expectRevert(abi.encodeWithSelector(IOneStep.NoSuchOperation.selector, 0x031c));
        step.run(0x031c, new bytes(16), 0, new bytes[](0));
    }
}
