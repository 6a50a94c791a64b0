// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {Bls} from "../../src/libraries/Bls.sol";

/// @title Keys and signatures of BLS12-381 from secrets, by the precompiles that multiply points.
/// @dev Points are narrow here: coordinates of 48 bytes, as contracts take them.
library BlsSigner {
    address private constant G1_MSM = address(0x0c);
    address private constant G2_ADD = address(0x0d);
    address private constant G2_MSM = address(0x0e);
    uint256 internal constant ORDER = 0x73eda753299d7d483339d80809a1d80553bda402fffe5bfeffffffff00000001;

    function keyOf(uint256 secret) internal view returns (bytes memory) {
        bytes memory generator = abi.encode(
            0x0000000000000000000000000000000017f1d3a73197d7942695638c4fa9ac0f,
            0xc3688c4f9774b905a14e3a3f171bac586c55e83ff97a1aeffb3af00adb22c6bb,
            0x0000000000000000000000000000000008b3f481e3aaa0f1a09e30ed741d8ae4,
            0xfcf5e095d5d00af600db18cb2c04b3edd03cc744a2888ae40caa232946c5e7e1
        );
        return narrow(call(G1_MSM, bytes.concat(generator, bytes32(secret))));
    }

    function sign(uint256 secret, bytes32 message, bytes32 domain) internal view returns (bytes memory) {
        return narrow(call(G2_MSM, bytes.concat(Bls.hashToG2(message, domain), bytes32(secret))));
    }

    function sign(uint256 secret, bytes32 message) internal view returns (bytes memory) {
        return sign(secret, message, Bls.SIGN);
    }

    function sum(bytes memory a, bytes memory b) internal view returns (bytes memory) {
        return narrow(call(G2_ADD, bytes.concat(wide(a), wide(b))));
    }

    function narrow(bytes memory point) internal pure returns (bytes memory out) {
        for (uint256 start = 0; start < point.length; start += 64) {
            out = bytes.concat(out, slice(point, start + 16, 48));
        }
    }

    function wide(bytes memory point) internal pure returns (bytes memory out) {
        for (uint256 start = 0; start < point.length; start += 48) {
            out = bytes.concat(out, bytes16(0), slice(point, start, 48));
        }
    }

    function slice(bytes memory from, uint256 start, uint256 size) internal pure returns (bytes memory out) {
        out = new bytes(size);
        for (uint256 i = 0; i < size; i++) {
            out[i] = from[start + i];
        }
    }

    function call(address precompile, bytes memory input) private view returns (bytes memory) {
        (bool succeeded, bytes memory output) = precompile.staticcall(input);
        require(succeeded && output.length != 0, "precompile");
        return output;
    }
}
