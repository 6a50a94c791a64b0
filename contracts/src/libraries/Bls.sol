// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

/// @title BLS12-381 signatures of the suite BLS_SIG_BLS12381G2_XMD:SHA-256_SSWU_RO_POP_, by the precompiles of EIP-2537.
/// @dev Keys are points of G1, signatures of G2. Every call checks that the precompile answered: elsewhere calls to its
/// address succeed with nothing.
library Bls {
    uint256 internal constant KEY_BYTES = 96;
    uint256 internal constant SIGNATURE_BYTES = 192;
    /// What signs, and what proves that a key has its owner: each domain's first 32 bytes, in which alone they differ.
    bytes32 internal constant SIGN = "BLS_SIG_BLS12381G2_XMD:SHA-256_S";
    bytes32 internal constant PROVE = "BLS_POP_BLS12381G2_XMD:SHA-256_S";
    /// "SWU_RO_POP_", the rest of both, and how long they are, in a byte.
    bytes12 private constant DOMAIN_END = hex"5357555f524f5f504f505f2b";

    uint256 private constant COORDINATE_BYTES = 48;
    address private constant MODEXP = address(0x05);
    address private constant G1_ADD = address(0x0b);
    address private constant G2_ADD = address(0x0d);
    address private constant PAIRING = address(0x0f);
    address private constant MAP_TO_G2 = address(0x11);
    uint256 private constant P_HIGH = 0x1a0111ea397fe69a4b1ba7b6434bacd7;
    uint256 private constant P_LOW = 0x64774b84f38512bf6730d2a0f6b0f6241eabfffeb153ffffb9feffffffffaaab;

    bytes private constant MINUS_GENERATOR =
        hex"0000000000000000000000000000000017f1d3a73197d7942695638c4fa9ac0fc3688c4f9774b905a14e3a3f171bac586c55e83ff97a1aeffb3af00adb22c6bb00000000000000000000000000000000114d1d6855d545a8aa7d76c8cf2e21f267816aef1db507c96655b9d5caac42364e6f38ba0ecb751bad54dcd6b939c2ca";

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
        bytes memory point;
        for (uint256 i = 0; i < SIGNATURE_BYTES; i += COORDINATE_BYTES) {
            point = bytes.concat(point, bytes16(0), signature[i:i + COORDINATE_BYTES]);
        }
        bytes memory keyPoint = abi.encodePacked(key[0], key[1], key[2], key[3]);
        bytes memory pairs = bytes.concat(keyPoint, hashToG2(message, domain), MINUS_GENERATOR, point);
        return uint256(bytes32(_ask(PAIRING, pairs, 32))) == 1;
    }

    /// @notice Adds the second of two points to the first: of points on the curve, whatever their subgroup.
    /// @param points x and y of each, 64 bytes a coordinate
    function accumulate(bytes32[8] memory points) internal view {
        (address precompile, bool isAnswered) = (G1_ADD, false);
        // In place: once for each member of a committee, for a third of the gas of bytes laid out anew.
        assembly ("memory-safe") {
            isAnswered := staticcall(gas(), precompile, points, 256, points, 128)
            isAnswered := and(isAnswered, eq(returndatasize(), 128))
        }
        if (!isAnswered) revert PrecompileRefused(precompile);
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
    /// @return x.c0, x.c1, y.c0 and y.c1, 64 bytes each
    function hashToG2(bytes32 message, bytes32 domain) internal view returns (bytes memory) {
        bytes32[8] memory uniform = _expand(message, domain);
        bytes memory first = _ask(MAP_TO_G2, bytes.concat(_reduced(uniform, 0), _reduced(uniform, 2)), 256);
        bytes memory second = _ask(MAP_TO_G2, bytes.concat(_reduced(uniform, 4), _reduced(uniform, 6)), 256);
        return _ask(G2_ADD, bytes.concat(first, second), 256);
    }

    /// @dev expand_message_xmd (RFC 9380, 5.3.1), to 256 bytes.
    function _expand(bytes32 message, bytes32 domain) private pure returns (bytes32[8] memory uniform) {
        // Behind as many zeros as SHA-256 takes in at once.
        bytes memory first = abi.encodePacked(bytes32(0), bytes32(0), message, uint16(256), uint8(0));
        bytes32 zeroth = sha256(bytes.concat(first, domain, DOMAIN_END));
        bytes32 last;
        for (uint8 i = 0; i < 8; i++) {
            last = sha256(abi.encodePacked(zeroth ^ last, i + 1, domain, DOMAIN_END));
            uniform[i] = last;
        }
    }

    /// @return the 64 bytes that begin with this word, modulo the field's prime, by their first power
    function _reduced(bytes32[8] memory words, uint256 at_) private view returns (bytes memory) {
        bytes memory lengths = abi.encode(64, 1, 64);
        bytes memory numbers = abi.encodePacked(words[at_], words[at_ + 1], uint8(1), P_HIGH, P_LOW);
        return _ask(MODEXP, bytes.concat(lengths, numbers), 64);
    }

    function _ask(address precompile, bytes memory input, uint256 size) private view returns (bytes memory) {
        (bool isAnswered, bytes memory answer) = precompile.staticcall(input);
        if (!isAnswered || answer.length != size) revert PrecompileRefused(precompile);
        return answer;
    }
}
