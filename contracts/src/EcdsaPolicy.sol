// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {IAttestationPolicy} from "./interfaces/IAttestationPolicy.sol";
import {Bits} from "./libraries/Bits.sol";

/// @title A certificate is a map of signers, and one ECDSA signature of each over the digest itself.
contract EcdsaPolicy is IAttestationPolicy {
    uint256 private constant MAP_BYTES = 4;
    uint256 private constant SIGNATURE_BYTES = 65;
    /// Half the order of secp256k1: of the two signatures that verify, the one with the smaller s counts.
    uint256 private constant HALF_ORDER = 0x7fffffffffffffffffffffffffffffff5d576e7357a4501ddfe92f46681b20a0;

    error WrongLength(uint256 given, uint256 needed);
    error NotInCommittee(uint256 signers, uint256 members);
    error WrongSignature(uint256 member, address recovered, address wanted);

    /// @inheritdoc IAttestationPolicy
    /// @param certificate uint32 map ‖ r ‖ s ‖ v of each signer, by ascending number
    function certify(bytes32, address[] calldata committee, bytes32 digest, bytes calldata certificate)
        external
        pure
        returns (uint256 signers)
    {
        if (certificate.length < MAP_BYTES) revert WrongLength(certificate.length, MAP_BYTES);
        signers = uint32(bytes4(certificate[:MAP_BYTES]));
        if (signers >> committee.length != 0) revert NotInCommittee(signers, committee.length);
        uint256 needed = MAP_BYTES + Bits.popcount(signers) * SIGNATURE_BYTES;
        if (certificate.length != needed) revert WrongLength(certificate.length, needed);
        uint256 offset = MAP_BYTES;
        for (uint256 i = 0; i < committee.length; i++) {
            if (!Bits.has(signers, i)) continue;
            address recovered = _recover(digest, certificate[offset:offset + SIGNATURE_BYTES]);
            bool isIts = recovered != address(0) && recovered == committee[i];
            if (!isIts) revert WrongSignature(i, recovered, committee[i]);
            offset += SIGNATURE_BYTES;
        }
    }

    /// @return the zero address where s is not low, or nothing can be recovered
    function _recover(bytes32 digest, bytes calldata signature) private pure returns (address) {
        bytes32 s = bytes32(signature[32:64]);
        if (uint256(s) > HALF_ORDER) return address(0);
        return ecrecover(digest, uint8(signature[64]), bytes32(signature[:32]), s);
    }
}
