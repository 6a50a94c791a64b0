// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {IERC1271} from "@openzeppelin/contracts/interfaces/IERC1271.sol";

/// @title An account that is a contract: it does what it is told, and says what it takes for its own signature.
abstract contract Wallet is IERC1271 {
    function send(address to, bytes calldata data) external {
        (bool isDone, bytes memory why) = to.call(data);
        if (isDone) return;
        assembly ("memory-safe") {
            revert(add(why, 32), mload(why))
        }
    }
}

/// @title Owners of whom so many sign, by ascending address, as Safe's: they sign a `SafeMessage` of the digest under
/// the wallet's own domain, so that what one Safe's owners signed is nothing to another Safe of theirs.
contract SafeLike is Wallet {
    bytes32 private constant DOMAIN = keccak256("EIP712Domain(uint256 chainId,address verifyingContract)");
    bytes32 private constant MESSAGE = keccak256("SafeMessage(bytes message)");
    uint256 private constant SIGNATURE_BYTES = 65;

    mapping(address => bool) public isOwner;
    uint256 public immutable threshold;

    constructor(address[] memory owners, uint256 threshold_) {
        threshold = threshold_;
        for (uint256 i = 0; i < owners.length; i++) {
            isOwner[owners[i]] = true;
        }
    }

    function isValidSignature(bytes32 digest, bytes calldata signatures) external view returns (bytes4) {
        bytes32 message = messageHash(digest);
        address last = address(0);
        for (uint256 i = 0; i < threshold; i++) {
            bytes calldata one = signatures[i * SIGNATURE_BYTES:(i + 1) * SIGNATURE_BYTES];
            address owner = ecrecover(message, uint8(one[64]), bytes32(one[:32]), bytes32(one[32:64]));
            if (owner <= last || !isOwner[owner]) return 0xffffffff;
            last = owner;
        }
        return IERC1271.isValidSignature.selector;
    }

    function messageHash(bytes32 digest) public view returns (bytes32) {
        bytes32 domain = keccak256(abi.encode(DOMAIN, block.chainid, address(this)));
        bytes32 content = keccak256(abi.encode(MESSAGE, keccak256(abi.encode(digest))));
        return keccak256(abi.encodePacked(hex"1901", domain, content));
    }
}

enum Mood {
    YES,
    NO,
    REVERTS,
    EATS, // all gas it gets
    BOMB, // returns as much as its gas pays for
    SHORT, // returns the right four bytes, and nothing behind them
    LOUD, // reverts with as much as its gas pays for
    DIRTY // the right four bytes, and others behind them
}

/// @title A wallet that answers as it likes.
contract Moody is Wallet {
    Mood public mood;

    function set(Mood mood_) external {
        mood = mood_;
    }

    function isValidSignature(bytes32, bytes calldata) external view returns (bytes4) {
        Mood m = mood;
        bytes32 yes = bytes32(IERC1271.isValidSignature.selector);
        if (m == Mood.REVERTS) revert("not today");
        while (m == Mood.EATS) {}
        if (m == Mood.BOMB || m == Mood.LOUD) {
            uint256 size = 150_000; // of zeros, whose memory costs 57,000 gas
            assembly ("memory-safe") {
                mstore(size, 0)
                if eq(m, 4) { return(0, size) }
                revert(0, size)
            }
        }
        if (m == Mood.SHORT || m == Mood.DIRTY) {
            assembly ("memory-safe") {
                mstore(0, or(yes, 1))
                return(0, add(4, mul(28, eq(m, 7))))
            }
        }
        return m == Mood.YES ? bytes4(yes) : bytes4(0);
    }
}

/// @title A contract that enrols before it has any code, by which it would look like an account with a key.
contract Unborn {
    constructor(address members, bytes memory enrolment, function(address) external fund) {
        fund(address(this));
        (bool isDone, bytes memory why) = members.call(enrolment);
        if (isDone) return;
        assembly ("memory-safe") {
            revert(add(why, 32), mload(why))
        }
    }
}
