// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {Case, Coordinate, IStrikes, Opened, Piece, RoundOpening, ShownRows} from "./interfaces/IStrikes.sol";
import {Openings} from "./judge/Openings.sol";
import {ProgramReader} from "./judge/ProgramReader.sol";
import {Bits} from "./libraries/Bits.sol";
import {Hashing} from "./libraries/Hashing.sol";
import {MergeShape, MergeShapes, Place} from "./libraries/MergeShapes.sol";
import {Merging, Row} from "./libraries/Merging.sol";
import {Modules} from "./libraries/Modules.sol";
import {Later, Reveals} from "./libraries/Reveals.sol";
import {Stated, Statements} from "./libraries/Statements.sol";
import {StrikesBase} from "./strikes/StrikesBase.sol";
import "./types/Types.sol";

/// @title Strikes against a wrong merge: no defender, no clock, no queue.
/// @notice What is shown follows from hashes that the chain has. Whoever strikes a merge that is right
/// loses its gas; whoever signed a wrong one loses half its bond.
/// @dev It holds announcements, and what updates have at coordinates. What is undone: nothing. Rounds keep
/// their pay, games and windows, and the job ends at the next boundary.
contract Strikes is StrikesBase, IStrikes {
    using Bits for uint256;

    address private immutable derived;
    uint256 private constant NOTHING = 1; // what is announced of a round that merged nothing
    int256 private constant SHOWN = 1 << 128; // added to what is kept of a row: what is zero was never shown

    /// What a row has at a coordinate, `SHOWN` more. Whoever shows it, it is the same.
    mapping(
        uint256 jobId => mapping(uint32 round => mapping(uint256 what => mapping(uint256 seat => int256 value)))
    ) private _rows;

    error NoSuchCoordinate(uint256 section, uint256 index);
    error NotRevealed(bytes32 given, bytes32 kept);
    error WrongPiece(bytes32 given, bytes32 root);
    error WrongCount(uint256 given, uint256 needed);
    error NotShown(uint256 seat);
    error NotItsHolder(uint32 id, uint16 seat);

    constructor(address rounds_, address members_, address jobs_, address derived_)
        StrikesBase(rounds_, members_, jobs_)
    {
        derived = derived_;
    }

    /// @inheritdoc IStrikes
    /// @dev The first announcement counts: else anybody could make somebody's younger by sending it again.
    function announce(bytes32 commitment) external {
        if (_announcedIn[commitment] == 0) _announcedIn[commitment] = block.number;
    }

    /// @inheritdoc IStrikes
    function strikeStatement(Case calldata c) external {
        (MergeShape memory shape, uint256 f) = _begin(c, 0);
        (bool isMerged, bool isStated) = (c.verdict.merged != 0, c.verdict.statement != 0);
        if (isMerged && isStated) {
            if (_stated(c, shape, f).isSound) revert NothingWrong();
        } else if (isMerged) {
            if (Statements.most(shape, c.record.available.popcount()) > Statements.LONGEST) revert NothingWrong();
        } else if (!isStated && c.verdict.excluded == 0) {
            revert NothingWrong();
        }
        _strike(c);
    }

    /// @inheritdoc IStrikes
    function strikeNothing(Case calldata c, uint32[] calldata ids) external {
        (, uint256 f) = _begin(c, NOTHING);
        uint256 seats;
        for (uint256 i = 0; i < ids.length; i++) {
            (uint16 seat, bool isOwed) = _owed(c, ids[i]);
            if (isOwed) seats |= Bits.bit(seat);
        }
        if (c.verdict.merged != 0 || seats.popcount() <= 2 * f) revert NothingWrong();
        _strike(c);
    }

    /// @inheritdoc IStrikes
    function strikeCarried(Case calldata c, bytes calldata parts, bytes calldata header, bytes32[] calldata path)
        external
    {
        _begin(c, NOTHING);
        bytes32 opened = c.record.model;
        if (opened == 0) {
            ProgramReader.requirePart(jobs.termsOf(c.jobId).program, header, 0, c.leaves, path);
            opened = ProgramReader.initialModel(header);
        }
        bytes32 given = Statements.stateOf(c.round, parts);
        if (given != opened) revert WrongStatement(given, opened);
        bool isCarried = Statements.stateOf(uint256(c.round) + 1, parts) == c.verdict.state;
        if (c.verdict.merged != 0 || isCarried) revert NothingWrong();
        _strike(c);
    }

    /// @inheritdoc IStrikes
    function showRows(ShownRows calldata r) external {
        (MergeShape memory shape,) = _shapeOf(r.jobId, r.round, r.record, r.shape, r.leaves, r.path);
        uint256 what = _whatOf(shape, r.section, r.index);
        bytes32[256] memory commitments = _commitments(r.record, r.reveals);
        Place memory place = MergeShapes.placeOf(shape, r.section, r.index);
        Hashing.RoundId memory roundId = Hashing.RoundId(address(rounds), r.jobId, r.round);
        mapping(uint256 => int256) storage rows = _rows[r.jobId][r.round][what];
        for (uint256 i = 0; i < r.updates.length; i++) {
            Opened calldata u = r.updates[i];
            bytes32 given = Hashing.commitment(roundId, r.record.seed, u.seat, r.record.model, u.committed);
            if (given != commitments[u.seat]) revert NotRevealed(given, commitments[u.seat]);
            Row memory row = Row(r.record.seed, u.seat, r.section);
            rows[u.seat] = _valueAt(u, place, r.index, shape.codec, row) + SHOWN;
        }
    }

    /// @inheritdoc IStrikes
    function strikeCoordinate(Case calldata c, Coordinate calldata p) external {
        (MergeShape memory shape, uint256 f) = _begin(c, ((uint256(p.section) + 1) << 64) + p.index);
        uint256 what = _whatOf(shape, p.section, p.index);
        Stated memory s = _stated(c, shape, f);
        if (s.isSound && _isRight(c, p, what, shape, s)) revert NothingWrong();
        _strike(c);
    }

    /// @inheritdoc IStrikes
    function strikeMissing(Case calldata c, uint16 seat, uint32 id) external {
        (MergeShape memory shape, uint256 f) = _begin(c, 2 + uint256(seat));
        Stated memory s = _stated(c, shape, f);
        (uint16 of_, bool isOwed) = _owed(c, id);
        if (of_ != seat) revert NotItsHolder(id, seat);
        if (s.isSound && (!isOwed || s.mergeable.has(seat))) revert NothingWrong();
        _strike(c);
    }

    /// @inheritdoc IStrikes
    function shownOf(uint256 jobId, uint32 round, uint256 what) external view returns (uint256 seats) {
        for (uint256 seat = 0; seat < 256; seat++) {
            if (_rows[jobId][round][what][seat] != 0) seats |= Bits.bit(seat);
        }
    }

    /// @inheritdoc IStrikes
    function announcedIn(bytes32 commitment) external view returns (uint256 block_) {
        return _announcedIn[commitment];
    }

    /// @inheritdoc IStrikes
    function commitmentOf(address by, uint256 jobId, uint32 round, uint256 what, bytes32 salt)
        external
        view
        returns (bytes32)
    {
        return _commitmentOf(by, jobId, round, what, salt);
    }

    /// @inheritdoc IStrikes
    function strikeDerived(Case calldata, RoundOpening calldata) external {
        Modules.delegate(derived);
    }

    // --- what is owed ---

    /// @dev Who votes for an update says that it is canonical. A holder that was slashed later is let go, too: when it was
    /// is not kept.
    /// @param id of a holder in the round
    /// @return seat that it held
    /// @return isOwed whether its update is merged or excluded where anything is
    function _owed(Case calldata c, uint32 id) private view returns (uint16 seat, bool isOwed) {
        Holder memory m = members.holderOf(c.jobId, Role.PROVIDER, id);
        seat = m.index;
        if (m.from > c.round || c.round >= m.to) revert NotItsHolder(id, seat);
        Terms memory t = jobs.termsOf(c.jobId);
        uint256 done = rounds.segmentsOf(c.jobId, c.round, seat);
        isOwed = c.record.available.has(seat) && 4 * done >= 3 * uint256(t.steps / t.segmentSteps) && !m.isSlashed;
    }

    // --- a coordinate ---

    /// @return what of the coordinate, as its commitment has it
    function _whatOf(MergeShape memory shape, uint256 section, uint256 index) private pure returns (uint256 what) {
        if (index >= MergeShapes.valuesOf(shape, section)) revert NoSuchCoordinate(section, index);
        what = ((section + 1) << 64) + index;
    }

    /// @return whether the merged update has there what the rule gives
    function _isRight(Case calldata c, Coordinate calldata p, uint256 what, MergeShape memory shape, Stated memory s)
        private
        view
        returns (bool)
    {
        bool isOfFirst = p.section == 1;
        uint256 seats = isOfFirst ? s.heard : s.merged;
        (int256[] memory rows, bool isCanonical) = _rowsOf(c, what, seats);
        if (!isCanonical) return false;
        int256 merged = _mergedAt(p, shape, s);
        if (merged == Merging.NONE) return false;
        if (p.section == MergeShapes.FACTORED) {
            return Merging.isMoment(merged) && Merging.isMomentOf(rows, merged, s.f);
        }
        bytes calldata groups = c.statement[isOfFirst ? s.momentGroups : s.groups:];
        return merged == Merging.merge(shape, p.section, rows, seats, s.f, groups);
    }

    /// @return rows what each seat's update has there, as it was shown
    /// @return isCanonical whether all of them have something that an update may have
    function _rowsOf(Case calldata c, uint256 what, uint256 seats)
        private
        view
        returns (int256[] memory rows, bool isCanonical)
    {
        rows = new int256[](seats.popcount());
        uint256 missing = 256;
        for (uint256 i = 0; i < rows.length; (i++, seats &= seats - 1)) {
            uint256 seat = seats.lowest();
            int256 value = _rows[c.jobId][c.round][what][seat];
            if (value == 0) missing = seat;
            rows[i] = value - SHOWN;
            // Where one is not canonical others need not be here.
            if (value != 0 && rows[i] == Merging.NONE) return (rows, false);
        }
        if (missing != 256) revert NotShown(missing);
        isCanonical = true;
    }

    function _commitments(RoundRecord calldata record, Later[] calldata reveals)
        private
        pure
        returns (bytes32[256] memory commitments)
    {
        bytes32 accumulator = record.seed;
        for (uint256 i = 0; i < reveals.length; i++) {
            (uint16 seat, bytes32 commitment) = (reveals[i].seat, reveals[i].commitment);
            accumulator = Hashing.accumulateReveal(accumulator, seat, commitment);
            commitments[uint8(seat)] = commitment;
        }
        if (accumulator != record.reveals) revert NotRevealed(accumulator, record.reveals);
    }

    /// @return NONE where the update is not canonical there, or not as long as updates are
    function _valueAt(Opened calldata update, Place memory place, uint64 index, uint256 codec, Row memory row)
        private
        pure
        returns (int256)
    {
        bytes32 root = update.committed.updateRoot;
        Piece calldata first = update.pieces[0];
        if (update.size != place.size) {
            _requirePiece(first, 0, update.size, root);
            return Merging.NONE;
        }
        bool hasSteps = place.step != place.code;
        if (update.pieces.length != (hasSteps ? 2 : 1)) revert WrongCount(update.pieces.length, hasSteps ? 2 : 1);
        (bytes calldata from, bool isWhole) = _from(first, place.step, place.size, root);
        if (!isWhole) return Merging.NONE;
        if (row.section == MergeShapes.FACTORED) {
            int256 word = _word(from);
            return Merging.isMoment(word) ? word : Merging.NONE;
        }
        uint8 step = uint8(from[0]);
        if (!hasSteps) return Merging.valueOf(codec, index, step, step, row);
        (from, isWhole) = _from(update.pieces[1], place.code, place.size, root);
        if (!isWhole) return Merging.NONE;
        return Merging.valueOf(codec, index, step, uint8(from[0]), row);
    }

    /// @return NONE where it is not as long as merged updates are, or has −128 there
    function _mergedAt(Coordinate calldata p, MergeShape memory shape, Stated memory s) private pure returns (int256) {
        (uint256 place, uint256 size) = MergeShapes.mergedPlaceOf(shape, s.mergeable.popcount(), p.section, p.index);
        if (p.size != size) {
            _requirePiece(p.merged, 0, p.size, s.updateRoot);
            return Merging.NONE;
        }
        (bytes calldata from, bool isWhole) = _from(p.merged, place, size, s.updateRoot);
        if (!isWhole) return Merging.NONE;
        if (p.section == MergeShapes.FACTORED) return _word(from);
        int256 value = int8(uint8(from[0]));
        return value == -128 ? Merging.NONE : value;
    }

    // --- pieces ---

    /// @return from the bytes of a piece from a byte of the file on
    /// @return isWhole whether the piece is as long as it is in a file of this size
    function _from(Piece calldata piece, uint256 place, uint256 size, bytes32 root)
        private
        pure
        returns (bytes calldata from, bool isWhole)
    {
        uint256 index = place / MergeShapes.PIECE;
        _requirePiece(piece, index, size, root);
        uint256 left = size - index * MergeShapes.PIECE;
        isWhole = piece.data.length == (left < MergeShapes.PIECE ? left : MergeShapes.PIECE);
        from = isWhole ? piece.data[place % MergeShapes.PIECE:] : piece.data[:0];
    }

    function _requirePiece(Piece calldata piece, uint256 index, uint256 size, bytes32 root) private pure {
        uint256 count = (size + MergeShapes.PIECE - 1) / MergeShapes.PIECE;
        bytes32 pieces = Openings.rootFrom(keccak256(piece.data), index, count, piece.path);
        bytes32 given = Hashing.updateRoot(size, pieces);
        if (given != root) revert WrongPiece(given, root);
    }

    /// @return the binary32 word of four bytes, little-endian
    function _word(bytes calldata from) private pure returns (int256) {
        uint256 word = uint32(bytes4(from));
        word = (word & 0x00ff00ff) << 8 | (word >> 8 & 0x00ff00ff);
        return int256((word & 0xffff) << 16 | word >> 16);
    }
}
