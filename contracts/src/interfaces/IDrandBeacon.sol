// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

/// @title What anybody may post of drand's rounds, and what has been.
interface IDrandBeacon {
    /// @notice Costs its sender the gas alone, and nothing is paid for it; who needs a draw posts the round that draws it.
    /// @param signature x ‖ y of a point of G1, 48 bytes each, big-endian
    /// @custom:caller anyone, once
    function post(uint64 round, bytes calldata signature) external;

    /// @return the round that draws what was fixed in a block; 0 where nothing was, where somebody has posted it, and where
    /// the block's hash is lost, so that it draws nothing any more
    /// @custom:caller anyone
    function awaited(uint256 number) external view returns (uint64);
    /// @return the round that draws what was fixed in a block; 0 where nothing was
    function roundOf(uint256 number) external view returns (uint64);
    /// @return what drand publishes as the round's randomness; 0 where nobody has posted its signature
    /// @custom:caller anyone
    function randomness(uint64 round) external view returns (bytes32);
    /// @return the first round that is later than the margin after these unix seconds
    function roundAfter(uint256 time) external view returns (uint64);
    /// @return unix seconds of round 1
    /// @custom:caller anyone
    function genesis() external view returns (uint256);
    /// @return seconds from a round to the next
    /// @custom:caller anyone
    function period() external view returns (uint256);
    /// @return seconds that a block may be made after its time, without its maker knowing what it draws
    function margin() external view returns (uint256);
    /// @return x.c0 ‖ x.c1 ‖ y.c0 ‖ y.c1 of a point of G2, 48 bytes each, big-endian
    function key() external view returns (bytes memory);
}
