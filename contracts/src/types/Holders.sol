// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {Holder} from "./Types.sol";

/// A holder as it lies in storage: a claim looks at its fields once each, and hands it from
/// contract to contract as one word.
type HolderWord is uint256;

using {accountIn, indexIn, fromIn, toIn, claimedToIn, isSlashedIn} for HolderWord global;

function accountIn(HolderWord h) pure returns (address) {
    return address(uint160(HolderWord.unwrap(h)));
}

function indexIn(HolderWord h) pure returns (uint16) {
    return uint8(HolderWord.unwrap(h) >> 160);
}

function fromIn(HolderWord h) pure returns (uint32) {
    return uint24(HolderWord.unwrap(h) >> 168);
}

function toIn(HolderWord h) pure returns (uint32) {
    return uint24(HolderWord.unwrap(h) >> 192);
}

function claimedToIn(HolderWord h) pure returns (uint32) {
    return uint24(HolderWord.unwrap(h) >> 216);
}

function isSlashedIn(HolderWord h) pure returns (bool) {
    return HolderWord.unwrap(h) >> 248 != 0;
}

/// @title Holders, read from their one word: whole, or laid out in memory.
library Holders {
    function peek(Holder storage at_) internal view returns (HolderWord h) {
        assembly ("memory-safe") {
            h := sload(at_.slot)
        }
    }

    function load(Holder storage at_) internal view returns (Holder memory h) {
        assembly ("memory-safe") {
            let word := sload(at_.slot)
            mstore(h, shr(96, shl(96, word))) // account
            mstore(add(h, 32), and(shr(160, word), 0xff)) // index
            mstore(add(h, 64), and(shr(168, word), 0xffffff)) // from
            mstore(add(h, 96), and(shr(192, word), 0xffffff)) // to
            mstore(add(h, 128), and(shr(216, word), 0xffffff)) // claimedTo
            mstore(add(h, 160), and(shr(240, word), 0xff)) // isReleased
            mstore(add(h, 192), shr(248, word)) // isSlashed
        }
    }
}
