// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {BlsSigner} from "./BlsSigner.sol";
import {Drand} from "../../src/libraries/Drand.sol";

/// @title A drand of our own: its key and its rounds' signatures from a secret, by the precompiles that multiply points.
library DrandSigner {
    address private constant G1_MSM = address(0x0c);
    address private constant G2_MSM = address(0x0e);

    function keyOf(uint256 secret) internal view returns (bytes memory) {
        bytes memory generator = abi.encode(
            0x00000000000000000000000000000000024aa2b2f08f0a91260805272dc51051,
            0xc6e47ad4fa403b02b4510b647ae3d1770bac0326a805bbefd48056c8c121bdb8,
            0x0000000000000000000000000000000013e02b6052719f607dacd3a088274f65,
            0x596bd0d09920b61ab5da61bbdc7f5049334cf11213945d57e5ac7d055d042b7e,
            0x000000000000000000000000000000000ce5d527727d6e118cc9cdc6da2e351a,
            0xadfd9baa8cbdd3a76d429a695160d12c923ac9cc3baca289e193548608b82801,
            0x000000000000000000000000000000000606c4a02ea734cc32acd2b02bc28b99,
            0xcb3e287e85a763af267492ab572e99ab3f370d275cec1da1aaa9075ff05f79be
        );
        return BlsSigner.narrow(multiplied(G2_MSM, generator, secret));
    }

    function sign(uint256 secret, uint64 round) internal view returns (bytes memory) {
        bytes memory point = Drand.hashToG1(sha256(abi.encodePacked(round)));
        return BlsSigner.narrow(multiplied(G1_MSM, point, secret));
    }

    function multiplied(address precompile, bytes memory point, uint256 secret) private view returns (bytes memory) {
        (bool isAnswered, bytes memory product) = precompile.staticcall(bytes.concat(point, bytes32(secret)));
        require(isAnswered && product.length == point.length, "precompile");
        return product;
    }
}
