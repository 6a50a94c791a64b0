// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

/// @title Where the randomness of draws comes from: of who is audited, of committees, and of larger pools' first ones.
/// @dev What draws is fixed in a block, and asked for by that block's number. Nobody who acts in it or before knows the
/// seed, and nothing that anybody does later changes it.
interface IBeacon {
    /// @notice What is fixed in this block will be drawn by a seed to come.
    function note() external;

    /// @param number of a block in which `note` was called
    /// @return seed zero where it is not known yet
    /// @return isLost whether it never will be known: what was fixed has to be noted anew
    function seedOf(uint256 number) external view returns (bytes32 seed, bool isLost);
}
