// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {Bits} from "./Bits.sol";

/// @title Which verifiers audit which seat: a shuffle drawn from the audit seed.
/// @dev Words are the big-endian 64-bit quarters of sha256(tag ‖ key ‖ uint32 block), in order; rejected above the largest
/// multiple of n, so that no remainder is favoured.
library Sampling {
    struct Stream {
        bytes prefix;
        bytes32 current;
        uint32 block_;
        uint8 left;
    }

    /// @return order the verifiers of the bitmap (at most 32), shuffled for this seat
    function verifierOrder(bytes32 auditSeed, uint16 seat, uint256 verifiers)
        internal
        pure
        returns (uint16[] memory order)
    {
        order = listBits(verifiers);
        Stream memory stream;
        stream.prefix = abi.encodePacked("atoll.order.v1", auditSeed, seat);
        for (uint256 i = order.length; i > 1; i--) {
            uint256 j = draw(stream, uint64(i));
            (order[i - 1], order[j]) = (order[j], order[i - 1]);
        }
    }

    /// @return whether `verifier` is among the first `auditors` of the seat's order
    function isAssigned(bytes32 auditSeed, uint16 seat, uint256 verifiers, uint256 auditors, uint16 verifier)
        internal
        pure
        returns (bool)
    {
        uint16[] memory order = verifierOrder(auditSeed, seat, verifiers);
        for (uint256 i = 0; i < auditors && i < order.length; i++) {
            if (order[i] == verifier) return true;
        }
        return false;
    }

    /// @return uniform in [0, n)
    /// @param n at least 1
    function draw(Stream memory stream, uint64 n) internal pure returns (uint256) {
        uint256 limit = 2 ** 64 - (2 ** 64 % n);
        while (true) {
            uint256 word = nextWord(stream);
            if (word < limit) return word % n;
        }
        return 0;
    }

    function nextWord(Stream memory stream) private pure returns (uint256 word) {
        if (stream.left == 0) {
            stream.current = sha256(abi.encodePacked(stream.prefix, stream.block_));
            stream.block_++;
            stream.left = 4;
        }
        word = uint256(stream.current) >> 192;
        stream.current <<= 64;
        stream.left--;
    }

    function listBits(uint256 bitmap) private pure returns (uint16[] memory list) {
        list = new uint16[](Bits.popcount(bitmap));
        for (uint256 i = 0; i < list.length; i++) {
            list[i] = Bits.lowest(bitmap);
            bitmap &= bitmap - 1;
        }
    }
}
