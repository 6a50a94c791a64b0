// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {Case, Coordinate, Opened, Piece, ShownRows} from "../../src/interfaces/IStrikes.sol";
import {Openings} from "../../src/judge/Openings.sol";
import {Bits} from "../../src/libraries/Bits.sol";
import {Hashing} from "../../src/libraries/Hashing.sol";
import {MergeShape, MergeShapes, Place} from "../../src/libraries/MergeShapes.sol";
import {Merging, Row} from "../../src/libraries/Merging.sol";
import {Later} from "../../src/libraries/Reveals.sol";
import "../../src/types/Types.sol";
import {Network} from "./Network.sol";

/// @dev What of a library takes calldata.
contract MergeReader {
    function shape(bytes calldata data, uint256 round) external pure returns (MergeShape memory) {
        return MergeShapes.read(data, round);
    }

    function merge(
        MergeShape memory shape_,
        uint256 section,
        int256[] memory rows,
        uint256 seats,
        uint256 f,
        bytes calldata groups
    ) external pure returns (int256) {
        return Merging.merge(shape_, section, rows, seats, f, groups);
    }
}

/// @title Merges of which a test knows one coordinate: the rest of every file is made up, by number.
abstract contract Merge is Network {
    using Bits for uint256;

    MergeReader internal reader = new MergeReader();

    /// A file of which a test says some bytes; siblings of their pieces are made up.
    struct File {
        uint256 tag;
        uint64 size;
        uint256 count; // pieces
        uint256[2] known; // pieces that are known
        bytes[2] pieces;
    }

    bytes internal shapeBytes;
    uint256 internal section;
    uint64 internal index;
    mapping(uint256 seat => File) private _updates;
    File private _merged;
    bytes internal statement;
    uint256 internal ranks = type(uint256).max; // of the committee, who sign
    uint256 internal had = type(uint256).max; // seats whose updates the committee has
    mapping(uint256 seat => bytes) internal codes; // step and code of the coordinate, or its number
    mapping(uint256 seat => Reveal) internal revealedBy;

    // --- files ---

    function root(File memory file) internal pure returns (bytes32) {
        return Hashing.updateRoot(file.size, Openings.seal(file.count, _node(file, Openings.height(file.count), 0)));
    }

    function pathOf(File memory file, uint256 which) internal pure returns (bytes32[] memory path) {
        uint256 levels = Openings.height(file.count);
        path = new bytes32[](levels);
        uint256 used;
        (uint256 number, uint256 width) = (file.known[which], file.count);
        for (uint256 level = 0; level < levels; (level++, number /= 2, width = (width + 1) / 2)) {
            if (number ^ 1 < width) path[used++] = _node(file, level, number ^ 1);
        }
        assembly ("memory-safe") {
            mstore(path, used)
        }
    }

    function _node(File memory file, uint256 level, uint256 number) private pure returns (bytes32) {
        bool isKnown = file.known[0] >> level == number || file.known[1] >> level == number;
        if (!isKnown) return keccak256(abi.encode(file.tag, level, number));
        if (level == 0) return Openings.leafNode(keccak256(file.pieces[file.known[0] == number ? 0 : 1]));
        bytes32 left = _node(file, level - 1, 2 * number);
        if (2 * number + 1 >= Openings.widthAt(file.count, level - 1)) return left;
        return keccak256(abi.encodePacked(bytes1(0x01), left, _node(file, level - 1, 2 * number + 1)));
    }

    /// @dev A file with these bytes from two places on.
    function fileWith(uint256 tag, uint256 size, uint256[2] memory places, bytes[2] memory what)
        internal
        pure
        returns (File memory file)
    {
        (file.tag, file.size, file.count) = (tag, uint64(size), (size + 1023) / 1024);
        for (uint256 k = 0; k < 2; k++) {
            file.known[k] = places[k] / 1024;
            uint256 left = size - file.known[k] * 1024;
            file.pieces[k] =
                k == 1 && file.known[0] == file.known[1] ? file.pieces[0] : new bytes(left < 1024 ? left : 1024);
            for (uint256 i = 0; i < what[k].length; i++) {
                file.pieces[k][places[k] % 1024 + i] = what[k][i];
            }
        }
    }

    // --- a job, and a round of it ---

    /// @return bytes of a shape of one fragment
    function shapeOf(MergeShape memory s) internal pure returns (bytes memory) {
        return abi.encodePacked(
            bytes4(uint32(0xff << 24 | s.rule << 16 | (s.mixes ? uint256(1) : 0) << 8 | s.codec)),
            uint16(s.momentTensors),
            uint64(s.momentValues),
            uint64(s.factoredBytes),
            uint64(s.sampledBytes),
            uint16(1),
            abi.encodePacked(int16(s.low), int16(s.high), uint16(s.tensors), uint64(s.values)),
            new bytes(s.tensors)
        );
    }

    function shape() internal view returns (MergeShape memory) {
        return reader.shape(shapeBytes, 0);
    }

    /// @dev The program of a header and the shape.
    function mergeTerms(MergeShape memory s) internal returns (Terms memory t) {
        shapeBytes = shapeOf(s);
        t = defaultTerms();
        t.rounds = 3;
        bytes32[] memory leaves = new bytes32[](2);
        (leaves[0], leaves[1]) = (keccak256(header()), keccak256(shapeBytes));
        t.program = Openings.rootOf(leaves);
    }

    /// @dev All seats commit to an update that has its `codes` at the coordinate, and reveal it.
    function revealMerge(uint256 jobId) internal {
        uint256 seats = rounds.state(jobId).seated;
        Place memory place = MergeShapes.placeOf(shape(), section, index);
        bool hasSteps = place.step != place.code;
        for (uint256 left = seats; left != 0; left &= left - 1) {
            uint16 seat = left.lowest();
            bytes memory code = codes[seat];
            bytes[2] memory what = hasSteps ? [abi.encodePacked(code[0]), abi.encodePacked(code[1])] : [code, code];
            File memory file = fileWith(uint256(seat) + 1, place.size, [place.step, place.code], what);
            _updates[seat] = file;
            Reveal memory r = revealFor(jobId, seat, 8);
            r.updateRoot = root(file);
            revealedBy[seat] = r;
            commitSeat(jobId, seat, r);
        }
        nextBlock();
        for (uint256 left = seats; left != 0; left &= left - 1) {
            revealSeat(jobId, left.lowest(), revealedBy[left.lowest()]);
        }
        nextBlock();
        sayAll(jobId, seats & had);
        nextBlock();
    }

    /// @dev What a committee certifies of a merge that has these bytes at the coordinate.
    function certifyMerge(uint256 jobId, bytes memory merged, Seats memory said_) internal {
        uint32 round = rounds.state(jobId).round;
        (uint256 place, uint256 size) = MergeShapes.mergedPlaceOf(shape(), said_.mergeable.popcount(), section, index);
        _merged = fileWith(1_000, size, [place, place], [merged, merged]);
        statement = statementOf(jobId, round, said_);
        settleStatement(jobId, said_);
    }

    function settleStatement(uint256 jobId, Seats memory said_) internal {
        uint32 round = rounds.state(jobId).round;
        Verdict memory v = verdictFor(jobId, rounds.state(jobId).seated);
        (v.excluded, v.merged, v.statement) = (said_.excluded, uint16(said_.merged.popcount()), sha256(statement));
        verdicts[jobId][round] = v;
        settleBy(jobId, v, ranks & Bits.firstBits(rounds.state(jobId).committee.popcount()));
    }

    struct Seats {
        uint256 mergeable;
        uint256 excluded;
        uint256 merged;
        uint256 unheard;
        uint256[] groups;
    }

    mapping(uint256 jobId => mapping(uint32 round => Verdict)) internal verdicts;

    function statementOf(uint256 jobId, uint32 round, Seats memory who) internal view returns (bytes memory) {
        MergeShape memory s = shape();
        bytes memory before = abi.encodePacked(
            "atoll.merge-statement.v1",
            round,
            uint16(jobs.termsOf(jobId).f),
            who.mergeable,
            who.excluded,
            who.merged,
            who.unheard
        );
        bytes memory sections = _sectionOf(s.tensors, who.mergeable, who.merged, who.groups);
        if (s.momentTensors != 0) {
            uint256 heard = who.merged & ~who.unheard;
            sections = bytes.concat(sections, _sectionOf(s.momentTensors, who.mergeable, heard, who.groups));
        }
        bytes32 tag = keccak256(abi.encode(jobId, round));
        bytes memory parts =
            abi.encodePacked(keccak256(abi.encode(tag, 1)), keccak256(abi.encode(tag, 2)), tag, tag, tag);
        return bytes.concat(before, sections, parts, root(_merged), new bytes(36));
    }

    function _sectionOf(uint256 tensors, uint256 mergeable, uint256 rows, uint256[] memory groups)
        private
        pure
        returns (bytes memory)
    {
        (uint256 n, uint256 m) = (mergeable.popcount(), rows.popcount());
        bytes memory said_ = new bytes(4 * n * (n + 1));
        for (uint256 i = 0; i < m; (i++, rows &= rows - 1)) {
            said_ = bytes.concat(said_, bytes32(groups.length == 0 ? rows & (~rows + 1) : groups[i]));
        }
        return bytes.concat(said_, new bytes(m * tensors + 2 * tensors));
    }

    // --- a strike ---

    function caseOf(uint256 jobId, uint32 round, uint256 verifiers) internal view returns (Case memory c) {
        (c.jobId, c.round, c.salt) = (jobId, round, "salt");
        (c.record, c.verdict) = (said[jobId][round].record, verdicts[jobId][round]);
        (c.statement, c.shape, c.leaves) = (statement, shapeBytes, 2);
        c.path = new bytes32[](1);
        c.path[0] = Openings.leafNode(keccak256(header()));
        c.signers = new uint32[](verifiers);
        for (uint256 i = 0; i < verifiers; i++) {
            c.signers[i] = uint32(i + 1);
        }
    }

    function proofOf() internal view returns (Coordinate memory p) {
        (p.section, p.index, p.size) = (uint8(section), index, _merged.size);
        p.merged = Piece(_merged.pieces[0], pathOf(_merged, 0));
    }

    /// @param seats whose rows are shown
    function rowsOf(uint256 jobId, uint32 round, uint256 seats) internal view returns (ShownRows memory r) {
        Case memory c = caseOf(jobId, round, 0);
        (r.jobId, r.round, r.record, r.section, r.index) = (jobId, round, c.record, uint8(section), index);
        (r.shape, r.leaves, r.path) = (c.shape, c.leaves, c.path);
        Said storage of_ = said[jobId][round];
        r.reveals = new Later[](of_.seats.length);
        for (uint256 i = 0; i < r.reveals.length; i++) {
            r.reveals[i] = Later(of_.seats[i], of_.commitments[i]);
        }
        Place memory place = MergeShapes.placeOf(shape(), section, index);
        r.updates = new Opened[](seats.popcount());
        for (uint256 i = 0; i < r.updates.length; (i++, seats &= seats - 1)) {
            r.updates[i] = _openedOf(jobId, seats.lowest(), place.step != place.code ? 2 : 1);
        }
    }

    function _openedOf(uint256 jobId, uint16 seat, uint256 pieces) private view returns (Opened memory o) {
        Reveal memory r = revealedBy[seat];
        File memory file = _updates[seat];
        o.committed =
            Commitment(accountOf(jobId, seat), keccak256(r.checkpointCommitments), r.updateRoot, r.keyHash, r.salt);
        (o.seat, o.size, o.pieces) = (seat, file.size, new Piece[](pieces));
        for (uint256 k = 0; k < pieces; k++) {
            o.pieces[k] = Piece(file.pieces[k], pathOf(file, k));
        }
    }

    function whatOf() internal view returns (uint256) {
        return ((section + 1) << 64) + index;
    }

    function announceBy(address by, Case memory c, uint256 what) internal {
        bytes32 commitment = strikes.commitmentOf(by, c.jobId, c.round, what, c.salt);
        vm.prank(by);
        strikes.announce(commitment);
        vm.roll(block.number + strikes.AHEAD());
        vm.warp(block.timestamp + strikes.AHEAD());
    }
}
