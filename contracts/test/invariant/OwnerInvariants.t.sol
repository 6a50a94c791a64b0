// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {Check} from "../support/Check.sol";
import {deployed} from "../support/Deployed.sol";
import {OwnerHandler} from "./OwnerHandler.sol";

/// @title P45 after any sequence of actions.
contract OwnerInvariantsTest is Check {
    OwnerHandler internal handler;

    function setUp() public {
        handler = OwnerHandler(deployed("OwnerHandler", ""));
    }

    function targetContracts() external view returns (address[] memory targets) {
        targets = new address[](1);
        targets[0] = address(handler);
    }

    struct FuzzSelector {
        address addr;
        bytes4[] selectors;
    }

    function targetSelectors() external view returns (FuzzSelector[] memory targets) {
        bytes4[] memory s = new bytes4[](9);
        (s[0], s[1], s[2]) = (OwnerHandler.hand.selector, OwnerHandler.name.selector, OwnerHandler.steal.selector);
        (s[3], s[4]) = (OwnerHandler.add.selector, OwnerHandler.unbondSome.selector);
        (s[5], s[6]) = (OwnerHandler.withdrawOne.selector, OwnerHandler.bind.selector);
        (s[7], s[8]) = (OwnerHandler.free.selector, OwnerHandler.cut.selector);
        targets = new FuzzSelector[](1);
        targets[0] = FuzzSelector(address(handler), s);
    }

    function invariant_P45_nothingIsStolenAndEveryTokenIsCounted() external view {
        (uint256 sum, uint256 stolen) = handler.held();
        same(stolen, 0, "of thieves");
        same(sum + handler.took() + handler.slashed(), handler.put(), "staked, taken out, slashed");
    }

    function afterInvariant() external {
        handler.drain();
    }
}
