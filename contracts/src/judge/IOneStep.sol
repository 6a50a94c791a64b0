// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

/// Bytes offset … offset + length − 1 of the tensor that is input number `input`; length 0: nothing more is needed.
struct Need {
    uint256 input;
    uint256 offset;
    uint256 length;
}

/// @title One element of one operation of the training: stateless, one contract for each family of operations (op >> 8).
/// @notice `attributes` is the iteration (u64 big-endian), then the template's words (u64 big-endian each), then its tail.
/// `opened` are the bytes that were asked for so far, in the order in which they were asked for: at most eight.
interface IOneStep {
    error NoSuchOperation(uint256 op);

    /// @return what has to be opened next, which may depend on what was opened before
    function need(uint16 op, bytes calldata attributes, uint256 element, bytes[] calldata opened)
        external
        pure
        returns (Need memory);

    /// @return the element of the output, little-endian as in the tensor
    function run(uint16 op, bytes calldata attributes, uint256 element, bytes[] calldata opened)
        external
        pure
        returns (bytes memory);
}
