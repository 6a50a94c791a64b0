// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {Vm} from "./Vm.sol";

/// @title Assertions that say what they compared.
abstract contract Check {
    Vm internal constant vm = Vm(address(uint160(uint256(keccak256("hevm cheat code")))));

    error NotEqual(string what, uint256 got, uint256 wanted);
    error NotEqualWord(string what, bytes32 got, bytes32 wanted);
    error NotTrue(string what);
    error NotBelow(string what, uint256 got, uint256 highest);

    function same(uint256 got, uint256 wanted, string memory what) internal pure {
        if (got != wanted) revert NotEqual(what, got, wanted);
    }

    function same(bytes32 got, bytes32 wanted, string memory what) internal pure {
        if (got != wanted) revert NotEqualWord(what, got, wanted);
    }

    function same(address got, address wanted, string memory what) internal pure {
        if (got != wanted) revert NotEqual(what, uint160(got), uint160(wanted));
    }

    function check(bool condition, string memory what) internal pure {
        if (!condition) revert NotTrue(what);
    }

    function atMost(uint256 got, uint256 highest, string memory what) internal pure {
        if (got > highest) revert NotBelow(what, got, highest);
    }

    /// @return x folded into [lowest, highest]
    function within(uint256 x, uint256 lowest, uint256 highest) internal pure returns (uint256) {
        return lowest + x % (highest - lowest + 1);
    }
}
