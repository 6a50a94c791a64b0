// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {Case, RoundOpening} from "../interfaces/IStrikes.sol";
import {ProgramReader} from "../judge/ProgramReader.sol";
import {Bits} from "./Bits.sol";
import {MergeShape, MergeShapes} from "./MergeShapes.sol";
import {Stated} from "./Statements.sol";

/// What is read of one of the two sections that the rule merges.
struct Section {
    uint256 gram; // byte of the statement at which its inner products begin
    uint256 groups; // and its groups
    uint256 mergeable; // seats
    uint256 merged;
    uint256 values;
    uint256 tensors;
}

/// Where in calldata what is said of the next tensor's exponent begins.
struct Votes {
    uint256 first; // the first row's vote
    uint256 moved; // the next exponent
    uint256 rows;
    uint256 tensors; // between a row's vote and the next row's
}

/// @title What in a merge statement follows from the rest of it, and from the state that its round opened with: groups
/// from inner products, next exponents from votes. SPEC-MERGE.md, 4, 5 and 9.
library Derived {
    using Bits for uint256;

    uint256 private constant MOST_SQUARE = 127 * 127; // of a value
    uint256 private constant MOST_VOTE = 4;
    uint256 private constant COUNT_BITS = 16; // of votes that are alike, of which there are at most 256
    uint256 private constant TAIL = 5 * 32 + 32 + 36;
    uint256 private constant EXPONENTS = 2 * 32; // bytes before their digest, among parts of a state's
    uint256 private constant INITIAL_AT = 151; // bytes of a program's header before round 0's digest

    error WrongOpening(bytes32 given, bytes32 wanted);
    error WrongExponents(bytes32 given, bytes32 wanted);
    error WrongLength(uint256 given);

    // --- groups ---

    /// @return whether these can be vectors' inner products, and groups are what follows from them
    function areGroups(bytes calldata statement, MergeShape memory shape, Stated memory s)
        internal
        pure
        returns (bool)
    {
        bool isRight = _areGroups(statement, shape, s, _section(shape, s, 0));
        return isRight && (shape.momentTensors == 0 || _areGroups(statement, shape, s, _section(shape, s, 1)));
    }

    function _section(MergeShape memory shape, Stated memory s, uint256 number)
        private
        pure
        returns (Section memory of_)
    {
        (of_.mergeable, of_.merged, of_.groups) = (s.mergeable, s.merged, s.groups);
        (of_.values, of_.tensors) = (shape.values, shape.tensors);
        if (number == 1) {
            (of_.merged, of_.groups) = (s.heard, s.momentGroups);
            (of_.values, of_.tensors) = (shape.momentValues, shape.momentTensors);
        }
        uint256 n = of_.mergeable.popcount();
        of_.gram = of_.groups - 4 * n * (n + 1);
    }

    function _areGroups(bytes calldata statement, MergeShape memory shape, Stated memory s, Section memory of_)
        private
        pure
        returns (bool)
    {
        bytes calldata gram = statement[of_.gram:];
        if (!_isGram(gram, of_.mergeable.popcount(), MOST_SQUARE * of_.values)) return false;
        (uint256[] memory rows, uint256[] memory marks) = _rowsOf(of_);
        uint256 size = shape.mixes && rows.length > 2 ? rows.length - s.f : 1;
        for (uint256 i = 0; i < rows.length; i++) {
            uint256 group = uint256(bytes32(statement[of_.groups + 32 * i:]));
            bool isRight =
                size == 1 ? group == marks[i] : group.popcount() == size && _isNearest(gram, rows, marks, i, group);
            if (!isRight) return false;
        }
        return true;
    }

    /// @return rows of the inner products, in ascending order of seat
    /// @return marks of the seats
    function _rowsOf(Section memory of_) private pure returns (uint256[] memory rows, uint256[] memory marks) {
        uint256 left = of_.merged;
        (rows, marks) = (new uint256[](left.popcount()), new uint256[](left.popcount()));
        for (uint256 i = 0; i < rows.length; (i++, left &= left - 1)) {
            marks[i] = left & (~left + 1);
            rows[i] = (of_.mergeable & (marks[i] - 1)).popcount();
        }
    }

    /// @return whether no square is negative or too large, and no angle impossible
    function _isGram(bytes calldata gram, uint256 n, uint256 most) private pure returns (bool) {
        unchecked {
            uint256[] memory squares = new uint256[](n);
            for (uint256 i = 0; i < n; i++) {
                squares[i] = uint256(_product(gram, i, i)); // a negative one is too large then
                if (squares[i] > most) return false;
                for (uint256 j = 0; j < i; j++) {
                    int256 product = _product(gram, i, j);
                    if (uint256(product * product) > squares[i] * squares[j]) return false;
                }
            }
        }
        return true;
    }

    /// @return whether the group has merged rows only, and none that is farther from row i than one that it lacks
    /// @dev Of equal distances the earlier row is nearer.
    function _isNearest(bytes calldata gram, uint256[] memory rows, uint256[] memory marks, uint256 i, uint256 group)
        private
        pure
        returns (bool)
    {
        (int256 farthest, int256 nearest) = (type(int256).min, type(int256).max);
        unchecked {
            for (uint256 j = 0; j < rows.length; j++) {
                int256 distance = _distance(gram, rows[i], rows[j]) * 256 + int256(j);
                uint256 mark = group & marks[j];
                group ^= mark;
                if (mark == 0) {
                    if (distance < nearest) nearest = distance;
                } else if (distance > farthest) {
                    farthest = distance;
                }
            }
        }
        return group == 0 && farthest < nearest;
    }

    /// @return the squared distance of row j from row i, less what all of them have in common
    function _distance(bytes calldata gram, uint256 i, uint256 j) private pure returns (int256) {
        unchecked {
            int256 product = i < j ? _product(gram, j, i) : _product(gram, i, j);
            return _product(gram, j, j) - 2 * product;
        }
    }

    /// @param j at most i
    function _product(bytes calldata gram, uint256 i, uint256 j) private pure returns (int256 product) {
        assembly ("memory-safe") {
            let before := add(shr(1, mul(i, add(i, 1))), j)
            product := sar(192, calldataload(add(gram.offset, shl(3, before))))
        }
    }

    // --- exponents ---

    /// @notice Reverts unless that is the state which the round opened with.
    function requireOpening(Case calldata c, RoundOpening calldata o, bytes32 program) internal pure {
        bytes32 model = c.record.model; // zero in round 0, whose digest the program's header has
        if (model == 0) {
            ProgramReader.requirePart(program, o.header, 0, c.leaves, o.path);
            model = bytes32(o.header[INITIAL_AT:INITIAL_AT + 32]);
        }
        bytes32 given = sha256(abi.encodePacked("atoll.global-state.v2", uint64(c.round), o.parts));
        if (given != model) revert WrongOpening(given, model);
        (given, model) = (sha256(o.exponents), bytes32(o.parts[EXPONENTS:]));
        if (given != model) revert WrongExponents(given, model);
    }

    /// @return whether the statement's exponents, and those of the next state's digest, follow from the votes
    /// @dev The opening has exponents of tensors, of first moments that updates tell, and of those that were merged
    /// before, if there are any.
    function areExponents(Case calldata c, RoundOpening calldata o, MergeShape memory shape, Stated memory s)
        internal
        pure
        returns (bool)
    {
        (uint256 fragment, bytes calldata fragments) = MergeShapes.fragmentsOf(c.shape, c.round);
        uint256 all = fragments.length;
        bytes memory next = _nextOf(o.exponents, 2 * all, 2 * shape.momentTensors);
        Votes memory v = _votes(c.statement, _section(shape, s, 0));
        for (uint256 i = 0; i < all; i++) {
            if (uint8(fragments[i]) == fragment && !_moves(v, shape, next, i)) return false;
        }
        if (shape.momentTensors != 0) {
            v = _votes(c.statement, _section(shape, s, 1));
            for (uint256 i = all; i < all + shape.momentTensors; i++) {
                if (!_moves(v, shape, next, i)) return false;
            }
        }
        return sha256(next) == bytes32(c.statement[c.statement.length - TAIL + EXPONENTS:]);
    }

    /// @param own bytes of tensors' exponents
    /// @param moments bytes of those of first moments
    /// @return next what they are where no vote moves any: merged moments are in steps that the round's had
    function _nextOf(bytes calldata before, uint256 own, uint256 moments) private pure returns (bytes memory next) {
        bool isIts = before.length == own + moments || before.length == own + 2 * moments;
        if (!isIts) revert WrongLength(before.length);
        next = bytes.concat(before[:own + moments], before[own:own + moments]);
    }

    function _votes(bytes calldata statement, Section memory of_) private pure returns (Votes memory v) {
        (v.rows, v.tensors) = (of_.merged.popcount(), of_.tensors);
        uint256 from = of_.groups + 32 * v.rows;
        assembly ("memory-safe") {
            mstore(v, add(statement.offset, from))
        }
        v.moved = v.first + v.rows * v.tensors;
    }

    /// @notice Moves exponent i by the votes about the next tensor.
    /// @return whether the statement has that, too
    function _moves(Votes memory v, MergeShape memory shape, bytes memory next, uint256 i) private pure returns (bool) {
        (int256 vote, bool isVote) = _middle(v);
        if (!isVote) return false;
        (uint256 first, int256 stated) = (v.moved, 0);
        assembly ("memory-safe") {
            stated := sar(240, calldataload(first))
        }
        (v.first, v.moved) = (v.first + 1, v.moved + 2);
        int256 moved = int256(int16(uint16(uint8(next[2 * i])) << 8 | uint8(next[2 * i + 1]))) + vote;
        if (moved < shape.low) moved = shape.low;
        if (moved > shape.high) moved = shape.high;
        (next[2 * i], next[2 * i + 1]) = (bytes1(uint8(uint256(moved) >> 8)), bytes1(uint8(uint256(moved))));
        return moved == stated;
    }

    /// @return vote the middle one about the next tensor; of the middle two that which is nearer to 0, or 0
    /// @return isVote whether all are what a vote may be
    function _middle(Votes memory v) private pure returns (int256 vote, bool isVote) {
        unchecked {
            uint256 counts = 0; // of each vote, from the least on
            bool isBeyond = false;
            (uint256 from, uint256 rows, uint256 stride) = (v.first, v.rows, v.tensors);
            assembly ("memory-safe") {
                for { let end := add(from, mul(rows, stride)) } lt(from, end) { from := add(from, stride) } {
                    let above := add(signextend(0, byte(0, calldataload(from))), MOST_VOTE)
                    isBeyond := or(isBeyond, gt(above, 8))
                    counts := add(counts, shl(shl(4, above), 1))
                }
            }
            if (isBeyond) return (0, false);
            (int256 lower, int256 upper) = (_voteAt(counts, (rows - 1) / 2), _voteAt(counts, rows / 2));
            return (lower > 0 ? lower : upper < 0 ? upper : int256(0), true);
        }
    }

    /// @return vote that is number `rank` in ascending order
    function _voteAt(uint256 counts, uint256 rank) private pure returns (int256 vote) {
        unchecked {
            uint256 above = 0; // the least vote
            for (uint256 below = uint16(counts); below <= rank; below += uint16(counts >> (COUNT_BITS * above))) {
                above++;
            }
            return int256(above) - int256(MOST_VOTE);
        }
    }
}
