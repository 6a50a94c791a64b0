// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

/// @title Binary keccak trees: leaf prefix 0x00, node prefix 0x01, an odd node is carried up, 0x02 binds the leaf count.
library Merkle {
    error IndexOutOfRange(uint256 index, uint256 count);
    error ProofLength(uint256 given, uint256 needed);

    /// @notice Whether `leaf` is leaf number `index` of the tree of `count` leaves with this root.
    /// @param proof siblings from the leaf upwards; levels where the node is carried up have none
    function verify(bytes32 root, bytes32 leaf, uint256 index, uint256 count, bytes32[] calldata proof)
        internal
        pure
        returns (bool)
    {
        if (index >= count || count > type(uint64).max) revert IndexOutOfRange(index, count);
        bytes32 node = keccak256(abi.encodePacked(bytes1(0x00), leaf));
        uint256 used;
        for (uint256 width = count; width > 1; width = (width + 1) / 2) {
            bool carried = index == width - 1 && width % 2 == 1;
            if (!carried) {
                if (used >= proof.length) revert ProofLength(proof.length, used + 1);
                node = index % 2 == 0 ? hashNode(node, proof[used]) : hashNode(proof[used], node);
                used++;
            }
            index /= 2;
        }
        if (used != proof.length) revert ProofLength(proof.length, used);
        return root == keccak256(abi.encodePacked(bytes1(0x02), uint64(count), node));
    }

    function hashNode(bytes32 left, bytes32 right) internal pure returns (bytes32) {
        return keccak256(abi.encodePacked(bytes1(0x01), left, right));
    }
}
