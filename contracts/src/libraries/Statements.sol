// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {Bits} from "./Bits.sol";
import {MergeShape} from "./MergeShapes.sol";
import "../types/Types.sol";

/// What is read of a merge statement.
struct Stated {
    bool isSound; // else no merge has it, and nothing else here says anything
    uint256 f;
    uint256 mergeable; // seats
    uint256 merged;
    uint256 heard; // merged seats whose first moments are
    uint256 groups; // where those of Δ begin
    uint256 momentGroups; // and those of first moments
    bytes32 updateRoot; // of the merged update
}

/// @title The bytes of a merge statement: SPEC-MERGE.md, 9.
library Statements {
    using Bits for uint256;

    bytes24 private constant TAG = "atoll.merge-statement.v1";
    uint256 internal constant LONGEST = 1 << 20;
    uint256 private constant FIXED = 158; // bytes, before what is said of sections
    uint256 private constant TAIL = 5 * 32 + 32 + 36; // parts of the next state's digest, root and CID

    /// @return s sound where the statement is of this round's chain and certificate, as far as these say
    function read(
        bytes calldata data,
        MergeShape memory shape,
        uint32 round,
        uint256 f,
        RoundRecord calldata record,
        Verdict calldata verdict
    ) internal pure returns (Stated memory s) {
        if (data.length < FIXED + TAIL || bytes24(data) != TAG) return s;
        if (uint32(bytes4(data[24:])) != round || uint16(bytes2(data[28:])) != f) return s;
        s.f = f;
        if (!_readSeats(s, data, record.available, verdict)) return s;
        if (!_place(s, data.length, shape)) return s;
        bytes calldata tail = data[data.length - TAIL:];
        s.updateRoot = bytes32(tail[160:]);
        s.isSound = stateOf(uint256(round) + 1, tail[:160]) == verdict.state;
    }

    /// @param parts five words
    /// @return digest of a round's global state
    function stateOf(uint256 round, bytes calldata parts) internal pure returns (bytes32 digest) {
        digest = sha256(abi.encodePacked("atoll.global-state.v2", uint64(round), parts));
    }

    /// @return whether they are within one another, and what chain and certificate say of them
    function _readSeats(Stated memory s, bytes calldata data, uint256 available, Verdict calldata verdict)
        private
        pure
        returns (bool)
    {
        (s.mergeable, s.merged) = (_word(data, 30), _word(data, 94));
        (uint256 excluded, uint256 unheard) = (_word(data, 62), _word(data, 126));
        s.heard = s.merged & ~unheard;
        bool isNested = excluded & ~s.mergeable == 0 && s.merged == s.mergeable & ~excluded && unheard & ~s.merged == 0;
        bool isCertified =
            s.mergeable & ~available == 0 && excluded == verdict.excluded && s.merged.popcount() == verdict.merged;
        bool isBorne = excluded.popcount() <= s.f && unheard.popcount() <= s.f && s.heard.popcount() >= 2 * s.f + 1;
        return isNested && isCertified && isBorne;
    }

    function _word(bytes calldata data, uint256 from) private pure returns (uint256) {
        return uint256(bytes32(data[from:]));
    }

    /// @return bytes of the longest statement of so many seats
    function most(MergeShape memory shape, uint256 seats) internal pure returns (uint256) {
        return FIXED + TAIL + _sectionBytes(seats, seats, shape.tensors)
            + (shape.momentTensors == 0 ? 0 : _sectionBytes(seats, seats, shape.momentTensors));
    }

    /// @return whether the statement is as long as its seats make it
    function _place(Stated memory s, uint256 length, MergeShape memory shape) private pure returns (bool) {
        (uint256 n, uint256 rows) = (s.mergeable.popcount(), s.merged.popcount());
        uint256 triangle = 4 * n * (n + 1);
        s.groups = FIXED + triangle;
        uint256 end = FIXED + _sectionBytes(n, rows, shape.tensors);
        if (shape.momentTensors != 0) {
            s.momentGroups = end + triangle;
            end += _sectionBytes(n, s.heard.popcount(), shape.momentTensors);
        }
        return length == end + TAIL;
    }

    /// Inner products; of each row a group, and a vote a tensor; exponents.
    function _sectionBytes(uint256 n, uint256 rows, uint256 tensors) private pure returns (uint256) {
        return 4 * n * (n + 1) + (32 + tensors) * rows + 2 * tensors;
    }
}
