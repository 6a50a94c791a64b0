// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {IERC1271} from "@openzeppelin/contracts/interfaces/IERC1271.sol";
import {IAttestationPolicy} from "./interfaces/IAttestationPolicy.sol";

/// @title A certificate is a map of signers, and each one's own signature of the digest: its key's, or what a contract
/// takes for its own (ERC-1271).
/// @dev OpenZeppelin's SignatureChecker needs an opcode that Shanghai lacks (MCOPY), and leaves a contract all gas.
/// The key is tried first: an account that has one signs with it, whatever code it was given later (EIP-7702). A
/// contract may answer today what it does not tomorrow, and its code may be gone by then. So what is no signature is left
/// out, and a certificate in which enough others have signed stands.
contract EcdsaPolicy is IAttestationPolicy {
    /// What a contract has to answer in. Who settles pays no more for one that eats it.
    uint256 public constant ANSWER_GAS = 100_000;
    uint256 private constant MAP_BYTES = 4;
    uint256 private constant LENGTH_BYTES = 2;
    uint256 private constant SIGNATURE_BYTES = 65; // of a key's
    uint256 private constant LEAST_GAS = ANSWER_GAS * 64 / 63 + 1_000; // a call gets at most 63 of 64 parts
    /// Half the order of secp256k1: of the two signatures that verify, the one with the smaller s counts.
    uint256 private constant HALF_ORDER = 0x7fffffffffffffffffffffffffffffff5d576e7357a4501ddfe92f46681b20a0;

    error WrongLength(uint256 given, uint256 needed);
    error NotInCommittee(uint256 signers, uint256 members);
    error TooLittleGas(uint256 left, uint256 needed);

    /// @inheritdoc IAttestationPolicy
    /// @param certificate uint32 map ‖ uint16 length ‖ signature of each signer, by ascending number
    function certify(bytes32, address[] calldata committee, bytes32 digest, bytes calldata certificate)
        external
        view
        returns (uint256 signers)
    {
        if (certificate.length < MAP_BYTES) revert WrongLength(certificate.length, MAP_BYTES);
        signers = uint32(bytes4(certificate[:MAP_BYTES]));
        if (signers >> committee.length != 0) revert NotInCommittee(signers, committee.length);
        uint256 offset = MAP_BYTES;
        unchecked {
            for (uint256 i = 0; signers >> i != 0; i++) {
                if ((signers >> i) & 1 == 0) continue;
                uint256 from = offset + LENGTH_BYTES;
                uint256 length;
                length = uint16(bytes2(certificate[offset:]));
                offset = from + length;
                address recovered = _recover(digest, certificate, from, length);
                bool isIts = recovered != address(0) && recovered == committee[i];
                if (isIts) continue;
                if (offset > certificate.length) revert WrongLength(certificate.length, offset);
                if (!_isAnswered(committee[i], digest, certificate[from:offset])) signers ^= 1 << i;
            }
        }
        if (certificate.length != offset) revert WrongLength(certificate.length, offset);
    }

    /// @inheritdoc IAttestationPolicy
    function isSigner(address account, bytes32 digest, bytes calldata signature) external view returns (bool) {
        address recovered = _recover(digest, signature, 0, signature.length);
        if (recovered != address(0) && recovered == account) return true;
        return _isAnswered(account, digest, signature);
    }

    /// @return recovered the zero address where s is not low, or nothing can be recovered
    /// @param from where in the certificate the signature begins, of which all is there if its key made it
    function _recover(bytes32 digest, bytes calldata certificate, uint256 from, uint256 length)
        private
        view
        returns (address recovered)
    {
        if (length != SIGNATURE_BYTES) return address(0);
        (uint256 highest, bool isHigh) = (HALF_ORDER, false);
        assembly ("memory-safe") {
            let r := add(certificate.offset, from)
            let s := calldataload(add(r, 32))
            isHigh := gt(s, highest)
            let free := mload(64)
            mstore(free, digest)
            mstore(add(free, 32), byte(0, calldataload(add(r, 64)))) // v
            mstore(add(free, 64), calldataload(r))
            mstore(add(free, 96), s)
            mstore(0, 0) // what is read where nothing can be recovered, since nothing is returned then
            pop(staticcall(gas(), 1, free, 128, 0, 32))
            recovered := mload(0)
        }
        if (isHigh) return address(0);
    }

    /// @dev Whoever settles cannot have a member left out by sending less gas than its answer may take, and an estimate
    /// of gas does not find that by itself.
    function _isAnswered(address account, bytes32 digest, bytes calldata signature) private view returns (bool isYes) {
        if (account.code.length == 0) return false;
        bytes memory question = abi.encodeCall(IERC1271.isValidSignature, (digest, signature));
        (bytes4 yes, uint256 limit) = (IERC1271.isValidSignature.selector, ANSWER_GAS);
        if (gasleft() < LEAST_GAS) revert TooLittleGas(gasleft(), LEAST_GAS);
        assembly ("memory-safe") {
            let ended := staticcall(limit, account, add(question, 32), mload(question), 0, 32)
            isYes := and(and(ended, gt(returndatasize(), 31)), eq(mload(0), yes))
        }
    }
}
