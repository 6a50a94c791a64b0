// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {BlsKeys} from "./BlsKeys.sol";
import {IAttestationPolicy} from "./interfaces/IAttestationPolicy.sol";
import {Bls} from "./libraries/Bls.sol";

/// @title A certificate is a map of signers, and the sum of their BLS12-381 signatures of the digest.
contract BlsPolicy is BlsKeys, IAttestationPolicy {
    uint256 private constant MAP_BYTES = 4;

    error NotInCommittee(uint256 signers, uint256 members);
    error WrongSignature(uint256 signers);

    /// @inheritdoc IAttestationPolicy
    /// @param certificate uint32 map ‖ the signatures' sum, 192 bytes
    /// @dev Keys that cancel each other out sign everything, and nobody would be shown to have signed: refused.
    function certify(bytes32, address[] calldata committee, bytes32 digest, bytes calldata certificate)
        external
        view
        returns (uint256 signers)
    {
        uint256 needed = MAP_BYTES + Bls.SIGNATURE_BYTES;
        if (certificate.length != needed) revert WrongLength(certificate.length, needed);
        signers = uint32(bytes4(certificate[:MAP_BYTES]));
        if (signers >> committee.length != 0) revert NotInCommittee(signers, committee.length);
        bytes32[8] memory key = _sumOf(committee, signers);
        bool isKey = key[0] | key[1] | key[2] | key[3] != 0;
        bool isIts = isKey && Bls.isSigned(key, digest, Bls.SIGN, certificate[MAP_BYTES:]);
        if (!isIts) revert WrongSignature(signers);
    }

    /// @inheritdoc IAttestationPolicy
    /// @dev The proof with which its key was registered has shown it, so no signature is asked for.
    function isSigner(address account, bytes32, bytes calldata) external view returns (bool) {
        return _hasKey(account);
    }
}
