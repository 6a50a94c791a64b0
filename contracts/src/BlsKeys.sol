// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {IBlsKeys} from "./interfaces/IBlsKeys.sol";
import {IStakes} from "./interfaces/IStakes.sol";
import {Bits} from "./libraries/Bits.sol";
import {Bls, G1} from "./libraries/Bls.sol";
import {Wired} from "./libraries/Wired.sol";
import "./types/Types.sol";

/// @title Whose key is whose, each with a proof that its owner has the secret.
/// @dev Without the proof a key made from others' keys would sign for them; with it every sum of keys is of keys whose
/// secrets somebody has. The proof names the account, so nobody can take another's key.
contract BlsKeys is IBlsKeys, Wired {
    using Bits for uint256;

    /// 96 bytes, and when they became the account's: what no bond holds any more can change a running round at most
    /// once so often.
    struct Key {
        bytes32 first;
        bytes32 second;
        bytes32 third;
        uint256 since;
    }

    uint256 public constant CHANGE_DELAY = 1 days;
    bytes32 private constant PROOF = keccak256("atoll.bls-key.v1");

    address public stakes;
    mapping(address account => Key) private _keys;

    error WrongLength(uint256 given, uint256 needed);
    error ZeroKey();
    error NotProven(address account);
    error BondLocked(address account, uint256 locked);
    error TooEarly(uint256 availableAt, uint256 now_);
    error NoKey(address account);

    function wire(address stakes_) external wiring {
        stakes = stakes_;
    }

    /// @inheritdoc IBlsKeys
    function register(bytes calldata key, bytes calldata proof) external {
        if (key.length != Bls.KEY_BYTES) revert WrongLength(key.length, Bls.KEY_BYTES);
        if (proof.length != Bls.SIGNATURE_BYTES) revert WrongLength(proof.length, Bls.SIGNATURE_BYTES);
        Key memory made = Key(bytes32(key[:32]), bytes32(key[32:64]), bytes32(key[64:]), block.timestamp);
        // The point at infinity signs everything.
        if (made.first | made.second | made.third == 0) revert ZeroKey();
        _requireChangeable(_keys[msg.sender].since);
        G1 memory point;
        (point.xHigh, point.xLow, point.yHigh, point.yLow) = _widened(made.first, made.second, made.third);
        bool isProven = Bls.isSigned(point, proofOf(msg.sender, key), Bls.PROVE, proof);
        if (!isProven) revert NotProven(msg.sender);
        _keys[msg.sender] = made;
        emit KeyRegistered(msg.sender, key);
    }

    /// @inheritdoc IBlsKeys
    function keyOf(address account) external view returns (bytes memory) {
        Key memory k = _keys[account];
        return k.since == 0 ? bytes("") : abi.encodePacked(k.first, k.second, k.third);
    }

    /// @inheritdoc IBlsKeys
    function proofOf(address account, bytes calldata key) public view returns (bytes32) {
        return keccak256(abi.encode(PROOF, block.chainid, address(this), account, keccak256(key)));
    }

    /// @inheritdoc IBlsKeys
    function sum(address[] calldata accounts, uint256 bitmap) external view returns (G1 memory) {
        bytes32[8] memory points; // the sum so far, and one more
        for (uint256 i = 0; i < accounts.length; i++) {
            if (!bitmap.has(i)) continue;
            Key storage k = _keys[accounts[i]];
            (bytes32 first, bytes32 second, bytes32 third) = (k.first, k.second, k.third);
            if (first | second | third == 0) revert NoKey(accounts[i]);
            (points[4], points[5], points[6], points[7]) = _widened(first, second, third);
            Bls.accumulate(points);
        }
        return G1(points[0], points[1], points[2], points[3]);
    }

    /// @dev Whoever could still be counted or slashed has a bond locked, so its key stays.
    function _requireChangeable(uint256 since) private view {
        if (since == 0) return;
        (, uint256 locked,) = IStakes(stakes).stakeOf(msg.sender, Role.VERIFIER);
        if (locked != 0) revert BondLocked(msg.sender, locked);
        uint256 availableAt = since + CHANGE_DELAY;
        if (block.timestamp < availableAt) revert TooEarly(availableAt, block.timestamp);
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
