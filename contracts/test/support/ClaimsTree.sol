// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {Merkle} from "../../src/libraries/Merkle.sol";

/// @title A claims tree as a verifier builds it: the reference the contract's proofs are checked against.
library ClaimsTree {
    function root(bytes32[] memory leaves) internal pure returns (bytes32) {
        bytes32[] memory level = nodes(leaves);
        while (level.length > 1) {
            level = above(level);
        }
        return keccak256(abi.encodePacked(bytes1(0x02), uint64(leaves.length), level[0]));
    }

    /// @return proof word 0 packs index and count, then siblings bottom up
    function proof(bytes32[] memory leaves, uint256 index) internal pure returns (bytes32[] memory) {
        bytes32[] memory found = new bytes32[](65);
        found[0] = bytes32(index << 128 | leaves.length);
        uint256 used = 1;
        for (bytes32[] memory level = nodes(leaves); level.length > 1; level = above(level)) {
            if (index ^ 1 < level.length) found[used++] = level[index ^ 1];
            index /= 2;
        }
        bytes32[] memory trimmed = new bytes32[](used);
        for (uint256 i = 0; i < used; i++) {
            trimmed[i] = found[i];
        }
        return trimmed;
    }

    function nodes(bytes32[] memory leaves) private pure returns (bytes32[] memory level) {
        level = new bytes32[](leaves.length);
        for (uint256 i = 0; i < leaves.length; i++) {
            level[i] = keccak256(abi.encodePacked(bytes1(0x00), leaves[i]));
        }
    }

    function above(bytes32[] memory level) private pure returns (bytes32[] memory next) {
        next = new bytes32[]((level.length + 1) / 2);
        for (uint256 i = 0; i < next.length; i++) {
            bool carried = 2 * i + 1 == level.length;
            next[i] = carried ? level[2 * i] : Merkle.hashNode(level[2 * i], level[2 * i + 1]);
        }
    }
}
