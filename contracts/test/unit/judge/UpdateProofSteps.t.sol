// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {IOneStep} from "../../../src/judge/IOneStep.sol";
import {UpdateProofSteps} from "../../../src/judge/UpdateProofSteps.sol";
import {Sources} from "../../support/judge/Sources.sol";
import {deployed} from "../../support/Deployed.sol";

contract UpdateProofStepsTest is Sources {
    UpdateProofSteps internal step = UpdateProofSteps(deployed("UpdateProofSteps", ""));

    function test_everyElementIsPythons() public view {
        compare(step, "judge_update_proofs", 21, 120_000);
    }

    function test_anotherFamilysOperationIsRefused() public {
        bytes4 refused = IOneStep.NoSuchOperation.selector;
        vm.expectRevert(abi.encodeWithSelector(refused, 0x06ff));
        step.need(0x06ff, new bytes(16), 0, new bytes[](0));
        vm.expectRevert(abi.encodeWithSelector(refused, 0x0600));
        step.run(0x0600, new bytes(16), 0, new bytes[](0));
    }
}
