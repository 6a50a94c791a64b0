// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {IBlsKeys} from "./interfaces/IBlsKeys.sol";
import {Bits} from "./libraries/Bits.sol";
import {Bls} from "./libraries/Bls.sol";

/// @title Whose key is whose, each with a proof that its owner has the secret; and what a committee's keys add up to.
/// @dev Without the proof a key made from others' keys would sign for them; with it every sum of keys is of keys whose
/// secrets somebody has. The proof names the account, so nobody can take another's key. An account has one key for ever,
/// so what is kept of a list of accounts is right for ever: the contract has added it up itself, and whoever fills its
/// storage pays for that.
abstract contract BlsKeys is IBlsKeys {
    using Bits for uint256;

    /// x ‖ y, 48 bytes each. Where something is kept the first word is not zero.
    struct Point {
        bytes32 first;
        bytes32 second;
        bytes32 third;
    }

    uint256 public constant MAX_ACCOUNTS = 32; // of a committee
    bytes32 private constant PROOF = keccak256("atoll.bls-key.v1");

    mapping(address account => Point) private _keys;
    mapping(bytes32 accountsHash => Point) private _sums;

    error WrongLength(uint256 given, uint256 needed);
    error ZeroKey();
    error NotProven(address account);
    error HasKey(address account);
    error NoKey(address account);
    error TooManyAccounts(uint256 given, uint256 highest);
    error AlreadyKept(bytes32 accountsHash);

    /// @inheritdoc IBlsKeys
    function register(bytes calldata key, bytes calldata proof) external {
        if (key.length != Bls.KEY_BYTES) revert WrongLength(key.length, Bls.KEY_BYTES);
        if (proof.length != Bls.SIGNATURE_BYTES) revert WrongLength(proof.length, Bls.SIGNATURE_BYTES);
        Point memory made = Point(bytes32(key[:32]), bytes32(key[32:64]), bytes32(key[64:]));
        // The point at infinity signs everything. Of other keys one in 2^253 begins so, and is refused with it.
        if (made.first == 0) revert ZeroKey();
        if (_keys[msg.sender].first != 0) revert HasKey(msg.sender);
        bytes32[8] memory points;
        (points[0], points[1], points[2], points[3]) = _widened(made.first, made.second, made.third);
        bool isProven = Bls.isSigned(points, proofOf(msg.sender, key), Bls.PROVE, proof);
        if (!isProven) revert NotProven(msg.sender);
        _keys[msg.sender] = made;
        emit KeyRegistered(msg.sender, key);
    }

    /// @inheritdoc IBlsKeys
    function keep(address[] calldata accounts) external {
        if (accounts.length > MAX_ACCOUNTS) revert TooManyAccounts(accounts.length, MAX_ACCOUNTS);
        bytes32 accountsHash = _hashOf(accounts);
        if (_sums[accountsHash].first != 0) revert AlreadyKept(accountsHash);
        bytes32[8] memory points;
        _add(points, accounts, accounts.length.firstBits(), false);
        Point memory made = Point(points[0] << 128 | points[1] >> 128, points[1] << 128 | points[2], points[3]);
        if (made.first == 0) revert ZeroKey(); // of keys that cancel out
        _sums[accountsHash] = made;
        emit SumKept(accountsHash, accounts);
    }

    /// @inheritdoc IBlsKeys
    function keyOf(address account) external view returns (bytes memory) {
        return _shown(_keys[account]);
    }

    /// @inheritdoc IBlsKeys
    function sumOf(address[] calldata accounts) external view returns (bytes memory) {
        return _shown(_sums[_hashOf(accounts)]);
    }

    /// @inheritdoc IBlsKeys
    function proofOf(address account, bytes calldata key) public view returns (bytes32) {
        return keccak256(abi.encode(PROOF, block.chainid, address(this), account, keccak256(key)));
    }

    function _hasKey(address account) internal view returns (bool) {
        return _keys[account].first != 0;
    }

    /// @dev From the sum that is kept, less the keys of who did not sign, where that is fewer words to read.
    /// @param signers bit i: the account i, of which there are at most 256
    /// @return points in the first four words the sum of the signers' keys, which all have one
    function _sumOf(address[] calldata accounts, uint256 signers) internal view returns (bytes32[8] memory points) {
        uint256 silent = accounts.length.firstBits() ^ signers;
        if (silent.popcount() + 1 < signers.popcount()) {
            Point storage kept = _sums[_hashOf(accounts)];
            bytes32 first = kept.first;
            if (first != 0) {
                (points[0], points[1], points[2], points[3]) = _widened(first, kept.second, kept.third);
                _add(points, accounts, silent, true);
                return points;
            }
        }
        _add(points, accounts, signers, false);
    }

    /// @param points in the first four words the sum so far; one more goes into the others
    /// @param isLess whether the keys are taken away
    function _add(bytes32[8] memory points, address[] calldata accounts, uint256 bitmap, bool isLess) private view {
        for (uint256 i = 0; bitmap != 0; (bitmap >>= 1, i++)) {
            if (bitmap & 1 == 0) continue;
            Point storage key = _keys[accounts[i]];
            bytes32 first = key.first;
            if (first == 0) revert NoKey(accounts[i]);
            (points[4], points[5], points[6], points[7]) = _widened(first, key.second, key.third);
            if (isLess) (points[6], points[7]) = Bls.negated(points[6], points[7]);
            Bls.accumulate(points);
        }
    }

    /// @return keccak256 of the accounts, a word each
    function _hashOf(address[] calldata accounts) private pure returns (bytes32) {
        return keccak256(abi.encodePacked(accounts));
    }

    function _shown(Point storage p) private view returns (bytes memory) {
        (bytes32 first, bytes32 second, bytes32 third) = (p.first, p.second, p.third);
        return first == 0 ? bytes("") : abi.encodePacked(first, second, third);
    }

    /// @return the coordinates with 16 zero bytes before each
    function _widened(bytes32 first, bytes32 second, bytes32 third)
        private
        pure
        returns (bytes32, bytes32, bytes32, bytes32)
    {
        return (first >> 128, first << 128 | second >> 128, second << 128 >> 128, third);
    }
}
