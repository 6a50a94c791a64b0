// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

/// A point over the base field, as EIP-2537 encodes it: x and y, 64 bytes each.
struct G1 {
    bytes32 xHigh;
    bytes32 xLow;
    bytes32 yHigh;
    bytes32 yLow;
}

/// @title BLS12-381 signatures of the suite BLS_SIG_BLS12381G2_XMD:SHA-256_SSWU_RO_POP_, by the precompiles of EIP-2537.
/// @dev Keys are points of G1, signatures of G2. Every call checks that the precompile answered: elsewhere calls to its address succeed with nothing.
library Bls {
    uint256 internal constant KEY_BYTES = 96;
    uint256 internal constant SIGNATURE_BYTES = 192;
    bytes internal constant SIGN = "BLS_SIG_BLS12381G2_XMD:SHA-256_SSWU_RO_POP_";
    bytes internal constant PROVE = "BLS_POP_BLS12381G2_XMD:SHA-256_SSWU_RO_POP_";

    uint256 private constant COORDINATE_BYTES = 48;
    address private constant MODEXP = address(0x05);
    address private constant G2_ADD = address(0x0d);
    address private constant PAIRING = address(0x0f);
    address private constant MAP_TO_G2 = address(0x11);
    bytes32 private constant P_HIGH = bytes32(uint256(0x1a0111ea397fe69a4b1ba7b6434bacd7));
    bytes32 private constant P_LOW = 0x64774b84f38512bf6730d2a0f6b0f6241eabfffeb153ffffb9feffffffffaaab;

    error PrecompileRefused(address precompile);

    /// @notice Whether `signature` is the key's of the message.
    /// @param key in the subgroup or not: the pairing refuses what is not
    /// @param signature x.c0 ‖ x.c1 ‖ y.c0 ‖ y.c1, 48 bytes each, big-endian
    /// @param domain separates what is signed for one purpose from what is signed for another
    /// @dev e(key, H(message)) · e(−generator, signature) = 1. Reverts on what encodes no point of the subgroup.
    function isSigned(G1 memory key, bytes32 message, bytes memory domain, bytes calldata signature)
        internal
        view
        returns (bool)
    {
        bytes memory pairs =
            abi.encodePacked(abi.encode(key), hashToG2(message, domain), _negativeGenerator(), _widened(signature));
        return abi.decode(_call(PAIRING, pairs, 32), (uint256)) == 1;
    }

    /// @notice Adds the second of two points to the first: of points on the curve, whatever their subgroup.
    /// @param points x and y of each, 64 bytes a coordinate
    function accumulate(bytes32[8] memory points) internal view {
        bool isAdded;
        assembly ("memory-safe") {
            isAdded := staticcall(gas(), 0x0b, points, 256, points, 128)
            isAdded := and(isAdded, eq(returndatasize(), 128))
        }
        if (!isAdded) revert PrecompileRefused(address(0x0b));
    }

    /// @notice RFC 9380, hash_to_curve of the suite BLS12381G2_XMD:SHA-256_SSWU_RO_.
    /// @return point 256 bytes
    function hashToG2(bytes32 message, bytes memory domain) internal view returns (bytes memory point) {
        bytes32[8] memory b = _expand(message, domain);
        bytes memory first = _call(MAP_TO_G2, bytes.concat(_reduce(b[0], b[1]), _reduce(b[2], b[3])), 256);
        bytes memory second = _call(MAP_TO_G2, bytes.concat(_reduce(b[4], b[5]), _reduce(b[6], b[7])), 256);
        return _call(G2_ADD, bytes.concat(first, second), 256);
    }

    /// @dev expand_message_xmd (RFC 9380, 5.3.1) to 256 bytes.
    function _expand(bytes32 message, bytes memory domain) private pure returns (bytes32[8] memory b) {
        bytes memory suffix = abi.encodePacked(domain, uint8(domain.length));
        bytes32 zero = sha256(abi.encodePacked(bytes32(0), bytes32(0), message, uint16(256), uint8(0), suffix));
        bytes32 last;
        for (uint256 i = 0; i < 8; i++) {
            last = sha256(abi.encodePacked(zero ^ last, uint8(i + 1), suffix));
            b[i] = last;
        }
    }

    /// @return element of 64 bytes modulo the field's prime
    function _reduce(bytes32 high, bytes32 low) private view returns (bytes memory element) {
        bytes memory sizes = abi.encode(64, 1, 64);
        return _call(MODEXP, abi.encodePacked(sizes, high, low, uint8(1), P_HIGH, P_LOW), 64);
    }

    /// @return wide the coordinates with 16 zero bytes before each, as the precompiles want them
    function _widened(bytes calldata narrow) private pure returns (bytes memory wide) {
        for (uint256 start = 0; start < narrow.length; start += COORDINATE_BYTES) {
            wide = abi.encodePacked(wide, bytes16(0), narrow[start:start + COORDINATE_BYTES]);
        }
    }

    function _negativeGenerator() private pure returns (bytes memory) {
        return abi.encode(
            0x0000000000000000000000000000000017f1d3a73197d7942695638c4fa9ac0f,
            0xc3688c4f9774b905a14e3a3f171bac586c55e83ff97a1aeffb3af00adb22c6bb,
            0x00000000000000000000000000000000114d1d6855d545a8aa7d76c8cf2e21f2,
            0x67816aef1db507c96655b9d5caac42364e6f38ba0ecb751bad54dcd6b939c2ca
        );
    }

    function _call(address precompile, bytes memory input, uint256 size) private view returns (bytes memory output) {
        bool succeeded;
        (succeeded, output) = precompile.staticcall(input);
        if (!succeeded || output.length != size) revert PrecompileRefused(precompile);
    }
}
