// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

/// @title Signatures of drand's scheme bls-unchained-g1-rfc9380, by the precompiles of EIP-2537.
/// @dev Keys are points of G2, signatures of G1; what is signed is the SHA-256 of a round's number. The pairing refuses
/// what encodes no point of the subgroup, so that a key signs a round in one way only.
library Drand {
    uint256 internal constant KEY_BYTES = 192;
    uint256 internal constant SIGNATURE_BYTES = 96;
    /// With its length behind it, as RFC 9380 (5.3.1) has it.
    bytes private constant DOMAIN = "BLS_SIG_BLS12381G1_XMD:SHA-256_SSWU_RO_NUL_\x2b";
    bytes32 private constant P_HIGH = 0x000000000000000000000000000000001a0111ea397fe69a4b1ba7b6434bacd7;
    bytes32 private constant P_LOW = 0x64774b84f38512bf6730d2a0f6b0f6241eabfffeb153ffffb9feffffffffaaab;
    uint256 private constant HALF_HIGH = 0x0d0088f51cbff34d258dd3db21a5d66b; // of (p − 1) / 2
    uint256 private constant HALF_LOW = 0xb23ba5c279c2895fb39869507b587b120f55ffff58a9ffffdcff7fffffffd555;
    address private constant MODEXP = address(0x05);
    address private constant G1_ADD = address(0x0b);
    address private constant PAIRING = address(0x0f);
    address private constant MAP_TO_G1 = address(0x10);

    error PrecompileRefused(address precompile);

    /// @notice Whether `signature` is the key's of the round: e(H(round), key) · e(signature, −generator) = 1.
    /// @param key x.c0 ‖ x.c1 ‖ y.c0 ‖ y.c1, 48 bytes each, big-endian
    /// @param signature x ‖ y, likewise
    function isSigned(bytes32[6] memory key, uint64 round, bytes calldata signature) internal view returns (bool) {
        bytes memory given = abi.encodePacked(bytes16(0), signature[:48], bytes16(0), signature[48:]);
        bytes memory generator = abi.encode(
            0x00000000000000000000000000000000024aa2b2f08f0a91260805272dc51051,
            0xc6e47ad4fa403b02b4510b647ae3d1770bac0326a805bbefd48056c8c121bdb8,
            0x0000000000000000000000000000000013e02b6052719f607dacd3a088274f65,
            0x596bd0d09920b61ab5da61bbdc7f5049334cf11213945d57e5ac7d055d042b7e,
            0x000000000000000000000000000000000d1b3cc2c7027888be51d9ef691d77bc,
            0xb679afda66c73f17f9ee3837a55024f78c71363275a75d75d86bab79f74782aa,
            0x0000000000000000000000000000000013fa4d4a0ad8b1ce186ed5061789213d,
            0x993923066dddaf1040bc3ff59f825c78df74f2d75467e25e0f55f8a00fa030ed
        );
        bytes memory pairs = bytes.concat(hashToG1(sha256(abi.encodePacked(round))), _wide(key), given, generator);
        return abi.decode(_ask(PAIRING, pairs, 32), (uint256)) == 1;
    }

    /// @return what drand publishes as the round's randomness: the SHA-256 of the signature's compressed form
    /// @param signature as above, of the subgroup
    function randomnessOf(bytes calldata signature) internal pure returns (bytes32) {
        (uint256 high, uint256 low) = (uint128(bytes16(signature[48:64])), uint256(bytes32(signature[64:96])));
        bool isLarger = high > HALF_HIGH || (high == HALF_HIGH && low > HALF_LOW);
        bytes1 flags = isLarger ? bytes1(0xa0) : bytes1(0x80);
        return sha256(abi.encodePacked(signature[0] | flags, signature[1:48]));
    }

    /// @notice RFC 9380, hash_to_curve of the suite BLS12381G1_XMD:SHA-256_SSWU_RO_.
    function hashToG1(bytes32 message) internal view returns (bytes memory) {
        bytes32 zeroth = sha256(abi.encodePacked(bytes32(0), bytes32(0), message, uint16(128), uint8(0), DOMAIN));
        bytes32 first = sha256(abi.encodePacked(zeroth, uint8(1), DOMAIN));
        bytes32 second = sha256(abi.encodePacked(zeroth ^ first, uint8(2), DOMAIN));
        bytes32 third = sha256(abi.encodePacked(zeroth ^ second, uint8(3), DOMAIN));
        bytes32 fourth = sha256(abi.encodePacked(zeroth ^ third, uint8(4), DOMAIN));
        return _ask(G1_ADD, bytes.concat(_mapped(first, second), _mapped(third, fourth)), 128);
    }

    /// @dev 16 zero bytes stay before each coordinate.
    function _wide(bytes32[6] memory k) private pure returns (bytes memory) {
        bytes memory x = abi.encodePacked(bytes16(0), k[0], bytes16(k[1]), bytes16(0), bytes16(k[1] << 128), k[2]);
        return abi.encodePacked(x, bytes16(0), k[3], bytes16(k[4]), bytes16(0), bytes16(k[4] << 128), k[5]);
    }

    /// @return the point of a number of 64 bytes, modulo the field's prime
    function _mapped(bytes32 high, bytes32 low) private view returns (bytes memory) {
        bytes memory power = abi.encodePacked(uint256(64), uint256(1), uint256(64), high, low, uint8(1), P_HIGH, P_LOW);
        return _ask(MAP_TO_G1, _ask(MODEXP, power, 64), 128);
    }

    /// @dev Where a precompile is missing, a call of its address succeeds with nothing.
    function _ask(address precompile, bytes memory input, uint256 length) private view returns (bytes memory) {
        (bool isAnswered, bytes memory output) = precompile.staticcall(input);
        if (!isAnswered || output.length != length) revert PrecompileRefused(precompile);
        return output;
    }
}
