// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

/// @title Showing a part of a large byte string, or a node within a tree, against a root that is
/// known.
/// @dev The trees are those of Merkle.sol (and of `protocol/merkle.py`): leaf prefix 0x00, node
/// prefix 0x01, an odd node is carried up, 0x02 binds the leaf count. A range proof has siblings
/// from below upwards, at each level the left one first.
library Openings {
    uint256 internal constant PIECE = 1024;
    uint256 internal constant CHUNK = 4096;

    error OutOfRange(uint256 first, uint256 length, uint256 width);
    error NoSuchRange(uint256 left, uint256 unused);
    error PartialPiece(uint256 from, uint256 length, uint256 size);
    error NothingToHash();

    /// @notice Levels of a tree over so many leaves above its leaves.
    function height(uint256 count) internal pure returns (uint256 levels) {
        for (uint256 width = count; width > 1; width = (width + 1) / 2) {
            levels++;
        }
    }

    /// @notice How many nodes a tree has at a level, leaves being level 0.
    function widthAt(uint256 count, uint256 level) internal pure returns (uint256) {
        return (count + (1 << level) - 1) >> level;
    }

    /// @notice The node so many levels above a range of nodes. Reverts unless range and siblings
    /// make exactly one.
    /// @param nodes those from number `first` on, of a level with `width` nodes; overwritten
    function fold(bytes32[] memory nodes, uint256 first, uint256 width, uint256 levels, bytes32[] calldata siblings)
        internal
        pure
        returns (bytes32)
    {
        return _fold(nodes, first, width, levels, siblings, false);
    }

    /// @notice The root of a whole tree over these checkpoint commitments (not yet hashed as leaf
    /// nodes); overwrites them.
    function rootOf(bytes32[] memory leaves) internal pure returns (bytes32) {
        uint256 count = leaves.length;
        if (count == 0) revert NothingToHash();
        for (uint256 i = 0; i < count; i++) {
            leaves[i] = leafNode(leaves[i]);
        }
        return seal(count, _fold(leaves, 0, count, height(count), none(), false));
    }

    /// @notice The root that a leaf and its path lead to.
    function rootFrom(bytes32 leaf, uint256 index, uint256 count, bytes32[] calldata path)
        internal
        pure
        returns (bytes32)
    {
        return seal(count, fold(single(leafNode(leaf)), index, count, height(count), path));
    }

    /// @notice The piece root of `size` bytes of which these are shown, from piece number `first`
    /// on.
    function pieceRoot(bytes calldata shown, uint256 first, uint256 size, bytes32[] calldata siblings)
        internal
        pure
        returns (bytes32)
    {
        uint256 count = widthAt(size, 10);
        bytes32[] memory nodes = new bytes32[](_parts(shown, first, size, PIECE));
        for (uint256 i = 0; i < nodes.length; i++) {
            nodes[i] = leafNode(keccak256(_part(shown, i, PIECE)));
        }
        return seal(count, fold(nodes, first, count, height(count), siblings));
    }

    /// @notice The piece root of bytes that are all here.
    function pieceRoot(bytes memory whole) internal pure returns (bytes32) {
        bytes32[] memory leaves = new bytes32[](widthAt(whole.length, 10));
        for (uint256 i = 0; i < leaves.length; i++) {
            uint256 length = whole.length - i * PIECE < PIECE ? whole.length - i * PIECE : PIECE;
            bytes32 piece;
            assembly ("memory-safe") {
                piece := keccak256(add(add(whole, 32), mul(i, 1024)), length)
            }
            leaves[i] = piece;
        }
        return rootOf(leaves);
    }

    /// Where a tensor lies in the SHA-256 tree of a state (SPEC.md, section 9).
    struct Chunks {
        uint256 first; // its first leaf in the tree
        uint256 leaves; // of the whole tree
        uint256 size; // of the tensor, in bytes
    }

    /// @notice The root of a state's tree of which these chunks of one tensor are shown, from its
    /// chunk `first` on.
    /// @param prefix what the tensor's chunks are hashed behind
    function chunkRoot(
        bytes calldata shown,
        uint256 first,
        Chunks memory tensor,
        bytes calldata prefix,
        bytes32[] calldata siblings
    ) internal pure returns (bytes32) {
        bytes32[] memory nodes = new bytes32[](_parts(shown, first, tensor.size, CHUNK));
        for (uint256 i = 0; i < nodes.length; i++) {
            nodes[i] = _chunkNode(prefix, first + i, _part(shown, i, CHUNK));
        }
        bytes32 top = _fold(nodes, tensor.first + first, tensor.leaves, height(tensor.leaves), siblings, true);
        return sha256(abi.encodePacked(bytes1(0x02), uint64(tensor.leaves), top));
    }

    /// @notice The root over the 32-byte words of these bytes, the last one filled up with zeros.
    function wordsRoot(bytes calldata data) internal pure returns (bytes32) {
        bytes32[] memory words = new bytes32[]((data.length + 31) / 32);
        for (uint256 i = 0; i < words.length; i++) {
            words[i] = bytes32(_part(data, i, 32));
        }
        return rootOf(words);
    }

    function leafNode(bytes32 leaf) internal pure returns (bytes32) {
        return keccak256(abi.encodePacked(bytes1(0x00), leaf));
    }

    function seal(uint256 count, bytes32 top) internal pure returns (bytes32) {
        return keccak256(abi.encodePacked(bytes1(0x02), uint64(count), top));
    }

    function single(bytes32 node) internal pure returns (bytes32[] memory nodes) {
        nodes = new bytes32[](1);
        nodes[0] = node;
    }

    function none() internal pure returns (bytes32[] calldata empty) {
        assembly ("memory-safe") {
            empty.offset := 0
            empty.length := 0
        }
    }

    function _chunkNode(bytes calldata prefix, uint256 number, bytes calldata chunk) private pure returns (bytes32) {
        bytes32 leaf = sha256(abi.encodePacked(prefix, uint64(number), chunk));
        return sha256(abi.encodePacked(bytes1(0x00), leaf));
    }

    /// @return part number i of these bytes, which may be shorter if it is the last
    function _part(bytes calldata data, uint256 i, uint256 length) private pure returns (bytes calldata) {
        uint256 end = (i + 1) * length;
        return data[i * length:end < data.length ? end : data.length];
    }

    /// @dev Pieces, or chunks, that are shown: whole ones, but for the last of all.
    function _parts(bytes calldata shown, uint256 first, uint256 size, uint256 part) private pure returns (uint256) {
        if (first > size || shown.length == 0) revert PartialPiece(first * part, shown.length, size);
        uint256 end = first * part + shown.length;
        if (end > size || (end < size && shown.length % part != 0)) {
            revert PartialPiece(first * part, shown.length, size);
        }
        return (shown.length + part - 1) / part;
    }

    function _fold(
        bytes32[] memory nodes,
        uint256 first,
        uint256 width,
        uint256 levels,
        bytes32[] calldata siblings,
        bool sha
    ) private pure returns (bytes32) {
        uint256 length = nodes.length;
        if (length == 0 || first >= width || length > width - first) revert OutOfRange(first, length, width);
        uint256 used;
        for (; levels > 0; levels--) {
            if (length == 1 && !sha) return _climb(nodes[0], first, width, levels, siblings[used:]);
            uint256 i = first % 2;
            uint256 above = i;
            if (i == 1) nodes[0] = _hash(siblings[used++], nodes[0], sha);
            above += _pairs(nodes, i, length, sha);
            if ((length - i) % 2 == 1) {
                bytes32 last = nodes[length - 1];
                nodes[above++] = first + length < width ? _hash(last, siblings[used++], sha) : last;
            }
            (first, width, length) = (first / 2, (width + 1) / 2, above);
        }
        if (length != 1 || used != siblings.length) revert NoSuchRange(length, siblings.length - used);
        return nodes[0];
    }

    /// @notice `_fold` of one node, which most levels have: a third of the gas.
    function _climb(bytes32 node, uint256 first, uint256 width, uint256 levels, bytes32[] calldata siblings)
        private
        pure
        returns (bytes32)
    {
        uint256 left = siblings.length;
        assembly ("memory-safe") {
            let free := mload(0x40)
            let from := siblings.offset
            mstore8(free, 1)
            for {} levels { levels := sub(levels, 1) } {
                let odd := and(first, 1)
                // The last node of an odd level is carried up.
                if or(odd, lt(add(first, 1), width)) {
                    mstore(add(free, add(1, shl(5, odd))), node)
                    mstore(add(free, sub(33, shl(5, odd))), calldataload(from))
                    node := keccak256(free, 65)
                    from := add(from, 32)
                    left := sub(left, 1) // below zero where siblings are missing, which is refused at the end
                }
                first := shr(1, first)
                width := shr(1, add(width, 1))
            }
        }
        if (left != 0) revert NoSuchRange(1, left);
        return node;
    }

    /// @dev Hashes pairs of the nodes from number `i` on, which is 0 or 1 (then node 0 is done),
    /// into the positions from `i` on.
    /// @return pairs how many there are
    function _pairs(bytes32[] memory nodes, uint256 i, uint256 length, bool sha) private pure returns (uint256 pairs) {
        pairs = (length - i) / 2;
        if (sha) {
            for (uint256 k = 0; k < pairs; k++) {
                nodes[i + k] = _hash(nodes[i + 2 * k], nodes[i + 2 * k + 1], true);
            }
            return pairs;
        }
        assembly ("memory-safe") {
            let free := mload(0x40)
            mstore8(free, 1)
            let to := add(add(nodes, 32), mul(i, 32))
            let from := to
            for { let end := add(to, mul(pairs, 32)) } lt(to, end) { to := add(to, 32) } {
                mstore(add(free, 1), mload(from))
                mstore(add(free, 33), mload(add(from, 32)))
                mstore(to, keccak256(free, 65))
                from := add(from, 64)
            }
        }
    }

    function _hash(bytes32 left, bytes32 right, bool sha) private pure returns (bytes32 node) {
        if (sha) return sha256(abi.encodePacked(bytes1(0x01), left, right));
        return keccak256(abi.encodePacked(bytes1(0x01), left, right));
    }
}
