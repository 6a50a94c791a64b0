// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {JobStatus, Phase} from "../types/Types.sol";

/// One word: what every message looks at.
struct Head {
    Phase phase;
    JobStatus status;
    uint32 round; // also: how many are settled
    uint40 deadline;
    uint16 committeeDraw;
    uint8 streak; // of rounds that merged nothing
    bool isCancelled;
    bool isSeeded; // the audit seed is fixed
    uint40 noted; // block whose seed draws: in MERGE the audit, in WAITING the first committee (0: none yet)
    uint16 segments; // of a whole round; as in the shape
    uint32 signing; // of a committee draw: the seconds before its deadline in which no vote is taken any more
    uint32 train; // seconds; as in the windows
    bool hasMoved; // some seat or slot came, became ready or left since the last settlement
}

/// The head as it lies in storage: a message looks at four of its fields, and need not lay out the
/// others in memory.
type HeadWord is uint256;

using {phaseIn, roundIn, deadlineIn, committeeIn, isSeededIn, segmentsIn, votesEndIn} for HeadWord global;

function phaseIn(HeadWord h) pure returns (Phase) {
    return Phase(uint8(HeadWord.unwrap(h)));
}

function roundIn(HeadWord h) pure returns (uint32) {
    return uint32(HeadWord.unwrap(h) >> 16);
}

function deadlineIn(HeadWord h) pure returns (uint256) {
    return uint40(HeadWord.unwrap(h) >> 48);
}

function committeeIn(HeadWord h) pure returns (uint16) {
    return uint16(HeadWord.unwrap(h) >> 88);
}

function isSeededIn(HeadWord h) pure returns (bool) {
    return uint8(HeadWord.unwrap(h) >> 120) != 0;
}

function segmentsIn(HeadWord h) pure returns (uint256) {
    return uint16(HeadWord.unwrap(h) >> 168);
}

/// @return unix seconds from which on a committee draw's votes are fixed
function votesEndIn(HeadWord h) pure returns (uint256) {
    return deadlineIn(h) - uint32(HeadWord.unwrap(h) >> 184); // signing
}

struct Windows {
    uint32 train;
    uint32 reveal;
    uint32 merge;
    uint32 audit;
    uint32 open;
    uint32 key;
    uint32 window;
    uint24 repeatedRound; // whose phases were repeated last, and
    uint8 repeats; // how often
}

struct Shape {
    uint40 expiry;
    uint32 rounds;
    uint16 seats;
    uint16 minProviders;
    uint16 slots;
    uint16 minVerifiers;
    uint8 f;
    uint8 auditRate;
    uint8 lastRate;
    uint16 segments;
    uint16 seatBits; // width of a row of seats
    uint16 slotBits;
    bool hasPartials; // somebody ever revealed fewer than all segments
    uint24 finalAfter; // seconds from a settlement to the end of its window, where AUDIT takes one auditSeconds
    bool isSeasoned; // somebody was ever drawn more rarely
}

/// One word of a settled round.
struct Settlement {
    uint40 settledAt;
    uint8 audits; // how many times auditSeconds AUDIT takes
    bytes26 record; // the beginning of their hash
}

/// @title What of a job lies in one word each, read and written at once.
/// @dev The compiler reads a packed struct field by field, a warm read of the same word each: 1,700
/// gas for twelve of them, and `Rounds` would be 2,500 bytes larger than a contract may be. The first
/// field lies in the lowest bits. Values in memory are within their types, since the compiler cleans
/// them.
library Packed {
    function peek(Head storage at_) internal view returns (HeadWord h) {
        assembly ("memory-safe") {
            h := sload(at_.slot)
        }
    }

    function load(Head storage at_) internal view returns (Head memory h) {
        assembly ("memory-safe") {
            let word := sload(at_.slot)
            mstore(h, and(word, 0xff)) // phase
            mstore(add(h, 32), and(shr(8, word), 0xff)) // status
            mstore(add(h, 64), and(shr(16, word), 0xffffffff)) // round
            mstore(add(h, 96), and(shr(48, word), 0xffffffffff)) // deadline
            mstore(add(h, 128), and(shr(88, word), 0xffff)) // committee draw
            mstore(add(h, 160), and(shr(104, word), 0xff)) // streak
            mstore(add(h, 192), and(shr(112, word), 0xff)) // isCancelled
            mstore(add(h, 224), and(shr(120, word), 0xff)) // isSeeded
            mstore(add(h, 256), and(shr(128, word), 0xffffffffff)) // noted
            mstore(add(h, 288), and(shr(168, word), 0xffff)) // segments
            mstore(add(h, 320), and(shr(184, word), 0xffffffff)) // signing
            mstore(add(h, 352), and(shr(216, word), 0xffffffff)) // train
            mstore(add(h, 384), shr(248, word)) // hasMoved
        }
    }

    function store(Head storage at_, Head memory h) internal {
        assembly ("memory-safe") {
            let word := mload(h) // phase
            word := or(word, shl(8, mload(add(h, 32)))) // status
            word := or(word, shl(16, mload(add(h, 64)))) // round
            word := or(word, shl(48, mload(add(h, 96)))) // deadline
            word := or(word, shl(88, mload(add(h, 128)))) // committee draw
            word := or(word, shl(104, mload(add(h, 160)))) // streak
            word := or(word, shl(112, mload(add(h, 192)))) // isCancelled
            word := or(word, shl(120, mload(add(h, 224)))) // isSeeded
            word := or(word, shl(128, mload(add(h, 256)))) // noted
            word := or(word, shl(168, mload(add(h, 288)))) // segments
            word := or(word, shl(184, mload(add(h, 320)))) // signing
            word := or(word, shl(216, mload(add(h, 352)))) // train
            word := or(word, shl(248, mload(add(h, 384)))) // hasMoved
            sstore(at_.slot, word)
        }
    }

    function load(Shape storage at_) internal view returns (Shape memory s) {
        assembly ("memory-safe") {
            let word := sload(at_.slot)
            mstore(s, and(word, 0xffffffffff)) // expiry
            mstore(add(s, 32), and(shr(40, word), 0xffffffff)) // rounds
            mstore(add(s, 64), and(shr(72, word), 0xffff)) // seats
            mstore(add(s, 96), and(shr(88, word), 0xffff)) // minProviders
            mstore(add(s, 128), and(shr(104, word), 0xffff)) // slots
            mstore(add(s, 160), and(shr(120, word), 0xffff)) // minVerifiers
            mstore(add(s, 192), and(shr(136, word), 0xff)) // f
            mstore(add(s, 224), and(shr(144, word), 0xff)) // auditRate
            mstore(add(s, 256), and(shr(152, word), 0xff)) // lastRate
            mstore(add(s, 288), and(shr(160, word), 0xffff)) // segments
            mstore(add(s, 320), and(shr(176, word), 0xffff)) // seatBits
            mstore(add(s, 352), and(shr(192, word), 0xffff)) // slotBits
            mstore(add(s, 384), and(shr(208, word), 0xff)) // hasPartials
            mstore(add(s, 416), and(shr(216, word), 0xffffff)) // finalAfter
            mstore(add(s, 448), shr(240, word)) // isSeasoned
        }
    }

    function load(Windows storage at_) internal view returns (Windows memory w) {
        assembly ("memory-safe") {
            let word := sload(at_.slot)
            mstore(w, and(word, 0xffffffff)) // train
            mstore(add(w, 32), and(shr(32, word), 0xffffffff)) // reveal
            mstore(add(w, 64), and(shr(64, word), 0xffffffff)) // merge
            mstore(add(w, 96), and(shr(96, word), 0xffffffff)) // audit
            mstore(add(w, 128), and(shr(128, word), 0xffffffff)) // open
            mstore(add(w, 160), and(shr(160, word), 0xffffffff)) // key
            mstore(add(w, 192), and(shr(192, word), 0xffffffff)) // window
            mstore(add(w, 224), and(shr(224, word), 0xffffff)) // repeatedRound
            mstore(add(w, 256), shr(248, word)) // repeats
        }
    }
}
