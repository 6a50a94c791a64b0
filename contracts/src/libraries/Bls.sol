// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

/// @title BLS12-381 signatures of the suite BLS_SIG_BLS12381G2_XMD:SHA-256_SSWU_RO_POP_, by the precompiles of EIP-2537.
/// @dev Keys are points of G1, signatures of G2. Every call checks that the precompile answered: elsewhere calls to its
/// address succeed with nothing. Precompiles read where others have written; nothing is copied in between.
library Bls {
    uint256 internal constant KEY_BYTES = 96;
    uint256 internal constant SIGNATURE_BYTES = 192;
    /// What signs, and what proves that a key has its owner: each domain's first 32 bytes, in which alone they differ.
    bytes32 internal constant SIGN = "BLS_SIG_BLS12381G2_XMD:SHA-256_S";
    bytes32 internal constant PROVE = "BLS_POP_BLS12381G2_XMD:SHA-256_S";
    /// "SWU_RO_POP_", the rest of both, and how long they are, in a byte.
    bytes32 private constant DOMAIN_END = hex"5357555f524f5f504f505f2b";

    uint256 private constant COORDINATE_BYTES = 48;
    address private constant SHA256 = address(0x02);
    address private constant MODEXP = address(0x05);
    address private constant G1_ADD = address(0x0b);
    address private constant G2_ADD = address(0x0d);
    address private constant PAIRING = address(0x0f);
    address private constant MAP_TO_G2 = address(0x11);
    uint256 private constant P_HIGH = 0x1a0111ea397fe69a4b1ba7b6434bacd7;
    uint256 private constant P_LOW = 0x64774b84f38512bf6730d2a0f6b0f6241eabfffeb153ffffb9feffffffffaaab;

    error PrecompileRefused(address precompile);

    /// @notice Whether `signature` is the key's of the message.
    /// @param key x and y, 64 bytes each, in the first four words; the pairing refuses what is not in the subgroup
    /// @param domain separates what is signed for one purpose from what is signed for another
    /// @param signature x.c0 ‖ x.c1 ‖ y.c0 ‖ y.c1, 48 bytes each, big-endian
    /// @dev e(key, H(message)) · e(−generator, signature) = 1. Reverts on what encodes no point of the subgroup.
    function isSigned(bytes32[8] memory key, bytes32 message, bytes32 domain, bytes calldata signature)
        internal
        view
        returns (bool isIts)
    {
        bytes32[24] memory pairs;
        (pairs[0], pairs[1], pairs[2], pairs[3]) = (key[0], key[1], key[2], key[3]);
        pairs[12] = 0x0000000000000000000000000000000017f1d3a73197d7942695638c4fa9ac0f;
        pairs[13] = 0xc3688c4f9774b905a14e3a3f171bac586c55e83ff97a1aeffb3af00adb22c6bb;
        pairs[14] = 0x00000000000000000000000000000000114d1d6855d545a8aa7d76c8cf2e21f2;
        pairs[15] = 0x67816aef1db507c96655b9d5caac42364e6f38ba0ecb751bad54dcd6b939c2ca;
        uint256 start;
        assembly ("memory-safe") {
            start := pairs
            // 16 zero bytes stay before each coordinate
            for { let i := 0 } lt(i, 4) { i := add(i, 1) } {
                let from := add(signature.offset, mul(i, 48))
                calldatacopy(add(add(pairs, 528), shl(6, i)), from, 48)
            }
        }
        _hashTo(start + 128, message, domain);
        _ask(PAIRING, start, 768, start, 32);
        return uint256(pairs[0]) == 1;
    }

    /// @notice Adds the second of two points to the first: of points on the curve, whatever their subgroup.
    /// @param points x and y of each, 64 bytes a coordinate
    function accumulate(bytes32[8] memory points) internal view {
        uint256 start;
        assembly ("memory-safe") {
            start := points
        }
        _ask(G1_ADD, start, 256, start, 128);
    }

    /// @return high and low word of the other y that a point with this x has
    /// @param high and low word of a y that is neither zero nor p or more, which no point of the subgroup has
    function negated(bytes32 high, bytes32 low) internal pure returns (bytes32, bytes32) {
        unchecked {
            uint256 borrowed = uint256(low) > P_LOW ? 1 : 0;
            return (bytes32(P_HIGH - uint256(high) - borrowed), bytes32(P_LOW - uint256(low)));
        }
    }

    /// @notice RFC 9380, hash_to_curve of the suite BLS12381G2_XMD:SHA-256_SSWU_RO_.
    function hashToG2(bytes32 message, bytes32 domain) internal view returns (bytes32[8] memory point) {
        uint256 start;
        assembly ("memory-safe") {
            start := point
        }
        _hashTo(start, message, domain);
    }

    /// @param to where 256 bytes of memory are for the point
    function _hashTo(uint256 to, bytes32 message, bytes32 domain) private view {
        bytes32[24] memory room; // four numbers; then two points, and before those what the numbers are made from
        uint256 start;
        assembly ("memory-safe") {
            start := room
        }
        _expand(start, start + 256, message, domain);
        _reduce(start, start + 256);
        _ask(MAP_TO_G2, start, 128, start + 256, 256);
        _ask(MAP_TO_G2, start + 128, 128, start + 512, 256);
        _ask(G2_ADD, start + 256, 512, to, 256);
    }

    /// @dev expand_message_xmd (RFC 9380, 5.3.1).
    /// @param to where 256 bytes go
    /// @param asked 160 bytes, all zero, for what is hashed
    function _expand(uint256 to, uint256 asked, bytes32 message, bytes32 domain) private view {
        bytes32 end = DOMAIN_END;
        assembly ("memory-safe") {
            mstore(add(asked, 64), message) // behind as many zeros as SHA-256 takes in at once
            mstore8(add(asked, 96), 1) // 256 in two bytes; then a zero
            mstore(add(asked, 99), domain)
            mstore(add(asked, 131), end)
        }
        _ask(SHA256, asked, 143, to, 32);
        bytes32 zeroth;
        bytes32 last;
        assembly ("memory-safe") {
            zeroth := mload(to)
            mstore(add(asked, 33), domain)
            mstore(add(asked, 65), end)
        }
        for (uint256 i = 1; i <= 8; i++) {
            assembly ("memory-safe") {
                mstore(asked, xor(zeroth, last))
                mstore8(add(asked, 32), i)
            }
            _ask(SHA256, asked, 77, to, 32);
            assembly ("memory-safe") {
                last := mload(to)
                to := add(to, 32)
            }
        }
    }

    /// @dev Each of four numbers modulo the field's prime, by its first power.
    /// @param numbers of 64 bytes
    /// @param asked 225 bytes for what the precompile reads
    function _reduce(uint256 numbers, uint256 asked) private view {
        assembly ("memory-safe") {
            mstore(asked, 64)
            mstore(add(asked, 32), 1)
            mstore(add(asked, 64), 64)
            mstore8(add(asked, 160), 1)
            mstore(add(asked, 161), P_HIGH)
            mstore(add(asked, 193), P_LOW)
        }
        for (uint256 i = 0; i < 4; i++) {
            assembly ("memory-safe") {
                mstore(add(asked, 96), mload(numbers))
                mstore(add(asked, 128), mload(add(numbers, 32)))
            }
            _ask(MODEXP, asked, 225, numbers, 64);
            numbers += 64;
        }
    }

    /// @dev From `size` bytes of memory at `from` to `answer` bytes at `to`.
    function _ask(address precompile, uint256 from, uint256 size, uint256 to, uint256 answer) private view {
        bool isAnswered;
        assembly ("memory-safe") {
            isAnswered := staticcall(gas(), precompile, from, size, to, answer)
            isAnswered := and(isAnswered, eq(returndatasize(), answer))
        }
        if (!isAnswered) revert PrecompileRefused(precompile);
    }
}
