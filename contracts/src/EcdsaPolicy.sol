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
        view
        returns (uint256 signers)
    {
        if (certificate.length < MAP_BYTES) revert WrongLength(certificate.length, MAP_BYTES);
        signers = uint32(bytes4(certificate[:MAP_BYTES]));
        if (signers >> committee.length != 0) revert NotInCommittee(signers, committee.length);
        uint256 needed = MAP_BYTES + Bits.popcount(signers) * SIGNATURE_BYTES;
        if (certificate.length != needed) revert WrongLength(certificate.length, needed);
        uint256 offset = MAP_BYTES;
        for (uint256 i = 0; i < committee.length; i++) {
            if ((signers >> i) & 1 == 0) continue;
            address recovered = _recover(digest, certificate, offset);
            bool isIts = recovered != address(0) && recovered == committee[i];
            if (!isIts) revert WrongSignature(i, recovered, committee[i]);
            offset += SIGNATURE_BYTES;
        }
    }

    /// @return recovered the zero address where s is not low, or nothing can be recovered
    /// @param offset where the signature begins, of which all is there
    function _recover(bytes32 digest, bytes calldata certificate, uint256 offset)
        private
        view
        returns (address recovered)
    {
        (uint256 highest, bool isHigh) = (HALF_ORDER, false);
        assembly ("memory-safe") {
            let from := add(certificate.offset, offset)
            let s := calldataload(add(from, 32))
            isHigh := gt(s, highest)
            let free := mload(64)
            mstore(free, digest)
            mstore(add(free, 32), byte(0, calldataload(add(from, 64)))) // v
            mstore(add(free, 64), calldataload(from)) // r
            mstore(add(free, 96), s)
            mstore(0, 0) // what is read where nothing can be recovered, since nothing is returned then
            pop(staticcall(gas(), 1, free, 128, 0, 32))
            recovered := mload(0)
        }
        if (isHigh) return address(0);
    }
}
