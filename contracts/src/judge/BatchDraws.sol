// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

/// @title What a seat draws for its batches (`protocol/draws.py`).
library BatchDraws {
    uint256 private constant SEAT_AT = 32; // of the context, whose first five words are the seed, seat, round, step, global step
    uint256 private constant STEP_AT = 96;

    /// @param context at least its first four words
    /// @return drawn number `index` below `limit` of a step's draws
    function draw(bytes calldata context, uint256 index, uint256 limit) internal pure returns (uint256 drawn) {
        bytes memory key = abi.encodePacked(
            "atoll.batch.v1",
            context[0:SEAT_AT],
            uint16(uint256(bytes32(context[SEAT_AT:SEAT_AT + 32]))),
            uint32(uint256(bytes32(context[STEP_AT:STEP_AT + 32])))
        );
        uint256 end = (1 << 64) - (1 << 64) % limit;
        bytes memory message = abi.encodePacked(key, uint32(0));
        uint256 last;
        assembly ("memory-safe") {
            last := mload(add(message, mload(message))) // its last 32 bytes, of which four count
        }
        for (uint256 i;; ++i) {
            assembly ("memory-safe") {
                mstore(add(message, mload(message)), or(last, i))
            }
            uint256 words = uint256(sha256(message));
            for (uint256 shift = 256; shift > 0;) {
                unchecked {
                    shift -= 64;
                    drawn = (words >> shift) & type(uint64).max;
                    if (drawn >= end) continue;
                    if (index == 0) return drawn % limit;
                    --index;
                }
            }
        }
    }

    /// @return key of Philox, of the seat's words of a stream
    function philoxKey(string memory tag, bytes calldata context) internal pure returns (uint256 key) {
        uint16 seat = uint16(uint256(bytes32(context[SEAT_AT:SEAT_AT + 32])));
        uint256 words = uint256(sha256(abi.encodePacked(tag, context[0:SEAT_AT], seat, uint32(0))));
        return uint32(words >> 192) | uint256(uint32(words >> 128)) << 32;
    }
}
