// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

/// @title How rarely a seat may be drawn that has more to lose than its bond. SPEC-ROUNDS.md, 9.
/// @dev A step is one entry of the table of rates: the chance is √2 smaller, and deters as well where the stake is √2 times
/// as large. Chances are rounded up, and so is what a step takes: no rounding favours a cheat.
library Seasoning {
    uint256 private constant ROOT = 0xB504F334; // 2^31 · √2, rounded up

    /// @param bond wei of the bond that a slash burns
    /// @return wei that are to be at stake in its place, for a rate so many steps lower
    function stakeFor(uint256 bond, uint256 steps) internal pure returns (uint256) {
        if (steps & 1 == 1) bond = (bond * ROOT >> 31) + 1;
        return bond << steps / 2;
    }

    /// @param steps that it has come down before
    /// @return that what is retained, besides the bond, is enough for
    function stepsOf(uint256 bond, uint256 retained, uint256 steps) internal pure returns (uint256) {
        while (stakeFor(bond, steps + 1) <= bond + retained) {
            steps++;
        }
        return steps;
    }
}
