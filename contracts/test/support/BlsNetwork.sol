// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {BlsPolicy} from "../../src/BlsPolicy.sol";
import {Bits} from "../../src/libraries/Bits.sol";
import {Bls} from "../../src/libraries/Bls.sol";
import "../../src/types/Types.sol";
import {BlsSigner} from "./BlsSigner.sol";
import {Network} from "./Network.sol";
import {deployed} from "./Deployed.sol";

/// @title The network whose jobs want certificates in BLS12-381.
abstract contract BlsNetwork is Network {
    using Bits for uint256;

    BlsPolicy internal keys;

    function deployPolicies() internal override returns (address[] memory policies) {
        keys = BlsPolicy(deployed("BlsPolicy", ""));
        policy = keys;
        policies = new address[](1);
        policies[0] = address(policy);
    }

    function secretOf(address account) internal pure returns (uint256) {
        return uint256(keccak256(abi.encode(account))) % BlsSigner.ORDER;
    }

    function proofFor(address account, uint256 secret) internal view returns (bytes memory key, bytes memory proof) {
        key = BlsSigner.keyOf(secret);
        proof = BlsSigner.sign(secret, keys.proofOf(account, key), Bls.PROVE);
    }

    function registerAll(uint256 verifiers) internal {
        for (uint256 i = 0; i < verifiers; i++) {
            address account = verifier(i);
            (bytes memory key, bytes memory proof) = proofFor(account, secretOf(account));
            vm.prank(account);
            keys.register(key, proof);
        }
    }

    function certificate(uint256 jobId, bytes32 digest, uint256 committee, uint256 ranks)
        internal
        view
        override
        returns (bytes memory)
    {
        // Signatures of one message add up as their secrets do.
        uint256 secrets;
        for (uint256 rank = 0; committee != 0; (committee &= committee - 1, rank++)) {
            if (!ranks.has(rank)) continue;
            secrets = addmod(secrets, secretOf(memberAt(jobId, committee.lowest())), BlsSigner.ORDER);
        }
        return bytes.concat(bytes4(uint32(ranks)), BlsSigner.sign(secrets, digest));
    }
}
