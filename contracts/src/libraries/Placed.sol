// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

/// @title Contracts whose addresses stand in the code of one that is created before them.
library Placed {
    error Misplaced(address expected, address here);

    /// @dev In a constructor: a deployment in another order ends there, and not with an escrow that asks nobody.
    function requireHere(address expected) internal view {
        if (expected != address(this)) revert Misplaced(expected, address(this));
    }
}
