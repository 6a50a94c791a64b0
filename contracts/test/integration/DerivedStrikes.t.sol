// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {Strikes} from "../../src/Strikes.sol";
import {StrikesBase} from "../../src/strikes/StrikesBase.sol";
import {Case, RoundOpening} from "../../src/interfaces/IStrikes.sol";
import {Openings} from "../../src/judge/Openings.sol";
import {ProgramReader} from "../../src/judge/ProgramReader.sol";
import {Bits} from "../../src/libraries/Bits.sol";
import {Derived} from "../../src/libraries/Derived.sol";
import {MergeShape, MergeShapes} from "../../src/libraries/MergeShapes.sol";
import "../../src/types/Types.sol";
import {Merge} from "../support/Merge.sol";
import {Meter} from "./Strikes.t.sol";

/// @title Strikes against what is derived in a statement: groups and exponents.
/// @dev Inner products and votes are made up. What follows from them is worked out here the slow way.
contract DerivedStrikesTest is Merge {
    using Bits for uint256;

    uint256 private constant VERIFIERS = 3;
    uint256 private constant MOST_CALLDATA = (1 << 17) - 1024; // `atoll.chain.txconfig`
    uint256 private constant MOST_GAS = 16_000_000;
    int256 private constant OPENED_AT = -9;
    int256 private constant LOW = -12;
    int256 private constant HIGH = -8;

    MergeShape private _shape;
    uint256 private _seats;
    uint256 private _f;
    bytes private _opened; // exponents of the state that a round opens with
    bytes32[5] private _parts; // of that state
    uint256[2] private _groupsAt; // of the sections
    uint256[2] private _exponentsAt;

    // --- a merge ---

    function small() private pure returns (MergeShape memory s) {
        (s.rule, s.mixes, s.codec, s.tensors, s.values) = (3, true, MergeShapes.GRID8, 6, 5_000);
        (s.momentTensors, s.momentValues, s.factoredBytes) = (4, 4_000, 400);
        (s.low, s.high) = (LOW, HIGH);
    }

    /// @dev A job of which round 0 has revealed, and a true statement of it.
    function began(MergeShape memory s, uint256 seats, uint256 verifiers) private returns (uint256 jobId) {
        (_shape, _seats, _f) = (s, seats, (seats - 1) / 3);
        _opened = numbers(s.tensors + s.momentTensors, OPENED_AT);
        _parts = [bytes32("params"), "outer", sha256(_opened), "moments", "opening"];
        Terms memory t = mergeTerms(s);
        (t.seats, t.f, t.slots) = (uint16(seats), uint8(_f), verifiers > 8 ? 32 : t.slots);
        bytes32[] memory leaves = new bytes32[](2);
        (leaves[0], leaves[1]) = (keccak256(ownHeader()), keccak256(shapeBytes));
        t.program = Openings.rootOf(leaves);
        jobId = start(t, seats, verifiers);
        for (uint256 seat = 0; seat < seats; seat++) {
            codes[seat] = hex"01";
        }
        revealMerge(jobId);
        state();
    }

    function numbers(uint256 count, int256 value) private pure returns (bytes memory data) {
        data = new bytes(2 * count);
        for (uint256 i = 0; i < count; i++) {
            (data[2 * i], data[2 * i + 1]) = (bytes1(uint8(uint256(value) >> 8)), bytes1(uint8(uint256(value))));
        }
    }

    function ownHeader() private view returns (bytes memory data) {
        data = header();
        bytes32 digest = digestOf(_parts, 0);
        for (uint256 i = 0; i < 32; i++) {
            data[151 + i] = digest[i];
        }
    }

    function digestOf(bytes32[5] memory parts, uint64 round) private pure returns (bytes32) {
        return sha256(abi.encodePacked("atoll.global-state.v2", round, parts));
    }

    /// @dev States a true merge of everybody.
    function state() private {
        uint256 everybody = Bits.firstBits(_seats);
        statement = abi.encodePacked(
            "atoll.merge-statement.v1", uint32(0), uint16(_f), everybody, uint256(0), everybody, uint256(0)
        );
        bytes memory deltas = part(0, _shape.tensors);
        bytes memory firsts = part(1, _shape.momentTensors);
        bytes memory after_ = bytes.concat(deltas, firsts, numbers(_shape.momentTensors, OPENED_AT));
        bytes32[5] memory parts = [bytes32("params"), "outer", sha256(after_), "moments", "opening"];
        statement = bytes.concat(statement, abi.encodePacked(parts), bytes32("root"), new bytes(36));
    }

    /// @return exponents that the statement has now
    function part(uint256 number, uint256 tensors) private returns (bytes memory exponents) {
        int256[] memory gram = new int256[](_seats * _seats);
        bytes memory said_;
        for (uint256 i = 0; i < _seats; i++) {
            bytes memory line;
            for (uint256 j = 0; j <= i; j++) {
                uint256 drawn = uint256(keccak256(abi.encode(number, i, j))) % 1_000;
                gram[_seats * i + j] = i == j ? int256(10_000 + drawn) : int256(drawn) - 300;
                gram[_seats * j + i] = gram[_seats * i + j];
                line = bytes.concat(line, bytes8(uint64(uint256(gram[_seats * i + j]))));
            }
            said_ = bytes.concat(said_, line);
        }
        _groupsAt[number] = statement.length + said_.length;
        for (uint256 i = 0; i < _seats; i++) {
            said_ = bytes.concat(said_, bytes32(nearest(gram, i)));
        }
        int256[] memory votes = new int256[](_seats * tensors);
        bytes memory rows = new bytes(_seats * tensors);
        for (uint256 i = 0; i < rows.length; i++) {
            // Of most tensors most agree.
            uint256 drawn = uint256(keccak256(abi.encode("vote", number, i)));
            votes[i] = drawn % 3 == 0 ? int256(drawn >> 8) % 5 : int256(i % tensors) % 9 - 4;
            rows[i] = bytes1(uint8(uint256(votes[i])));
        }
        for (uint256 k = 0; k < tensors; k++) {
            exponents = bytes.concat(exponents, bytes2(uint16(uint256(movedBy(votes, k, tensors)))));
        }
        _exponentsAt[number] = statement.length + said_.length + rows.length;
        statement = bytes.concat(statement, said_, rows, exponents);
    }

    function nearest(int256[] memory gram, uint256 i) private view returns (uint256 group) {
        for (uint256 count = 0; count < _seats - _f; count++) {
            (uint256 best, int256 least) = (0, type(int256).max);
            for (uint256 j = 0; j < _seats; j++) {
                int256 distance = gram[_seats * i + i] + gram[_seats * j + j] - 2 * gram[_seats * i + j];
                if (!group.has(j) && distance < least) (best, least) = (j, distance);
            }
            group |= Bits.bit(best);
        }
    }

    function movedBy(int256[] memory votes, uint256 k, uint256 tensors) private view returns (int256 moved) {
        int256[] memory column = new int256[](_seats);
        for (uint256 row = 0; row < _seats; row++) {
            uint256 at_ = row;
            int256 vote = votes[row * tensors + k];
            for (; at_ > 0 && column[at_ - 1] > vote; at_--) {
                column[at_] = column[at_ - 1];
            }
            column[at_] = vote;
        }
        (int256 lower, int256 upper) = (column[(_seats - 1) / 2], column[_seats / 2]);
        int256 vote_ = lower > 0 ? lower : upper < 0 ? upper : int256(0);
        moved = OPENED_AT + vote_;
        moved = moved < LOW ? LOW : moved > HIGH ? HIGH : moved;
    }

    /// @dev The certificate is of the statement as it stands, and of the state that it names.
    function certify(uint256 jobId) private {
        bytes32[5] memory parts;
        uint256 from = statement.length - 228;
        for (uint256 i = 0; i < 160; i++) {
            parts[i / 32] |= bytes32(statement[from + i]) >> (8 * (i % 32));
        }
        Verdict memory v = verdictFor(jobId, Bits.firstBits(_seats));
        (v.state, v.statement) = (digestOf(parts, 1), sha256(statement));
        verdicts[jobId][0] = v;
        settleBy(jobId, v, Bits.firstBits(rounds.state(jobId).committee.popcount()));
    }

    function shownCase(uint256 jobId, uint256 verifiers) private view returns (Case memory c) {
        c = caseOf(jobId, 0, verifiers);
        c.path[0] = Openings.leafNode(keccak256(ownHeader()));
    }

    function opening() private view returns (RoundOpening memory o) {
        (o.parts, o.exponents, o.header) = (abi.encodePacked(_parts), _opened, ownHeader());
        o.path = new bytes32[](1);
        o.path[0] = Openings.leafNode(keccak256(shapeBytes));
    }

    // --- what is struck ---

    function test_trueMergeStands() public {
        uint256 jobId = began(small(), 7, VERIFIERS);
        certify(jobId);
        Case memory c = shownCase(jobId, VERIFIERS);
        announceBy(OUTSIDER, c, 1);
        RoundOpening memory o = opening();
        vm.expectRevert(StrikesBase.NothingWrong.selector);
        vm.prank(OUTSIDER);
        strikes.strikeDerived(c, o);
    }

    function test_exponentsThatVotesDoNotMakeAreStruck() public {
        for (uint256 number = 0; number < 2; number++) {
            for (uint256 k = 0; k < 4; k++) {
                struckBy(_lastBitOfExponent, number, k);
            }
        }
    }

    function test_votesOfFiveAreStruck() public {
        struckBy(_vote, 0, 0);
        struckBy(_vote, 1, 3);
    }

    function test_groupsThatAreNotTheNearestAreStruck() public {
        for (uint256 row = 0; row < 7; row++) {
            struckBy(_group, row % 2, row);
        }
    }

    function test_impossibleAnglesAreStruck() public {
        struckBy(_angle, 0, 0);
    }

    function test_exponentsOfANextStateThatAreNotTheStatementsAreStruck() public {
        struckBy(_digest, 0, 0);
    }

    function _lastBitOfExponent(uint256 number, uint256 k) private {
        statement[_exponentsAt[number] + 2 * k + 1] ^= 0x01;
    }

    function _vote(uint256 number, uint256 row) private {
        uint256 tensors = number == 0 ? _shape.tensors : _shape.momentTensors;
        statement[_groupsAt[number] + 32 * _seats + row * tensors] = 0x05;
    }

    function _group(uint256 number, uint256 row) private {
        // Somebody that is in it for somebody that is not.
        uint256 place = _groupsAt[number] + 32 * row + 31;
        uint256 group = uint8(statement[place]);
        uint256 others = Bits.firstBits(_seats) & ~group;
        group ^= (others & (~others + 1)) ^ (group & (~group + 1));
        statement[place] = bytes1(uint8(group));
    }

    function _angle(uint256, uint256) private {
        statement[_groupsAt[0] - 4 * _seats * (_seats + 1) + 8 + 4] = 0x7f; // of seats 1 and 0
    }

    function _digest(uint256, uint256) private {
        statement[statement.length - 228 + 64] ^= 0x01;
    }

    function struckBy(function(uint256, uint256) lie, uint256 number, uint256 k) private {
        uint256 snapshot = vm.snapshotState();
        uint256 jobId = began(small(), 7, VERIFIERS);
        lie(number, k);
        certify(jobId);
        Case memory c = shownCase(jobId, VERIFIERS);
        announceBy(OUTSIDER, c, 1);
        RoundOpening memory o = opening();
        (uint256 before,,) = stakes.stakeOf(OUTSIDER, Role.VERIFIER);
        vm.prank(OUTSIDER);
        strikes.strikeDerived(c, o);
        for (uint256 i = 0; i < VERIFIERS; i++) {
            same(members.bondOf(jobId, Role.VERIFIER, uint32(i + 1)), BOND / 2, "half a bond is left");
        }
        (uint256 after_,,) = stakes.stakeOf(OUTSIDER, Role.VERIFIER);
        same(after_ - before, VERIFIERS * BOND / 2 * 3_000 / 10_000, "a share of three halves");
        vm.revertToState(snapshot);
    }

    function test_wrongGroupsNeedNoOpening() public {
        uint256 jobId = began(small(), 7, VERIFIERS);
        _group(0, 2);
        certify(jobId);
        Case memory c = shownCase(jobId, VERIFIERS);
        announceBy(OUTSIDER, c, 1);
        RoundOpening memory o;
        vm.prank(OUTSIDER);
        strikes.strikeDerived(c, o);
        same(members.bondOf(jobId, Role.VERIFIER, 1), BOND / 2, "half a bond is left");
    }

    function test_openingsOfAnotherStateAreRefused() public {
        uint256 jobId = began(small(), 7, VERIFIERS);
        _lastBitOfExponent(0, 0);
        certify(jobId);
        Case memory c = shownCase(jobId, VERIFIERS);
        announceBy(address(this), c, 1);
        RoundOpening memory o = opening();
        o.exponents[1] ^= 0x01;
        vm.expectRevert(abi.encodeWithSelector(Derived.WrongExponents.selector, sha256(o.exponents), _parts[2]));
        strikes.strikeDerived(c, o);
        o = opening();
        o.parts[159] ^= 0x01;
        bytes32 given = sha256(abi.encodePacked("atoll.global-state.v2", uint64(0), o.parts));
        vm.expectRevert(abi.encodeWithSelector(Derived.WrongOpening.selector, given, digestOf(_parts, 0)));
        strikes.strikeDerived(c, o);
        o = opening();
        o.header[160] ^= 0x01;
        vm.expectPartialRevert(ProgramReader.NotOfTheProgram.selector);
        strikes.strikeDerived(c, o);
        strikes.strikeDerived(c, opening());
    }

    /// @dev Each flips some bits of what is shown of a merge that is right, and puts them back.
    function test_fiveThousandMutatedProofsOfARightMerge() public {
        uint256 jobId = began(small(), 7, VERIFIERS);
        certify(jobId);
        Case memory c = shownCase(jobId, VERIFIERS);
        RoundOpening memory o = opening();
        announceBy(address(this), c, 1);
        for (uint256 i = 0; i < 5_000; i++) {
            uint256 word = uint256(keccak256(abi.encode(i)));
            mutate(c, o, word);
            try strikes.strikeDerived(c, o) {
                check(false, "a true merge is struck");
            } catch {}
            mutate(c, o, word);
        }
        same(members.bondOf(jobId, Role.VERIFIER, 1), BOND, "the bond is whole");
    }

    function mutate(Case memory c, RoundOpening memory o, uint256 word) private pure {
        (uint256 what, uint256 where) = (word % 12, word >> 16 & 0xffff);
        if (what < 3) flip(c.statement, where, word >> 32);
        else if (what == 3) flip(c.shape, where, word >> 32);
        else if (what == 4) flip(o.parts, where, word >> 32);
        else if (what == 5) flip(o.exponents, where, word >> 32);
        else if (what == 6) flip(o.header, where, word >> 32);
        else if (what == 7) o.path[0] ^= bytes32(word | 1);
        else if (what == 8) c.record.available ^= 1 << where % 256;
        else if (what == 9) c.record.model ^= bytes32(word | 1);
        else if (what == 10) c.verdict.state ^= bytes32(word | 1);
        else c.path[0] ^= bytes32(word | 1);
    }

    function flip(bytes memory data, uint256 where, uint256 how) private pure {
        data[where % data.length] ^= bytes1(uint8(how % 255 + 1));
    }

    // --- gas ---

    /// @dev What is wrong is the last thing that is looked at.
    function test_gasOf64SeatsOf300Tensors() public {
        MergeShape memory s = small();
        (s.tensors, s.values, s.momentTensors, s.momentValues) = (300, 1_000_000_000, 300, 1_000_000_000);
        uint256 jobId = began(s, 64, 32);
        _digest(0, 0);
        certify(jobId);
        Case memory c = shownCase(jobId, 32);
        Meter meter = new Meter();
        announceBy(address(meter), c, 1);
        bytes memory call_ = abi.encodeCall(Strikes.strikeDerived, (c, opening()));
        atMost(call_.length, MOST_CALLDATA, "bytes of a call");
        uint256 data = 21_000;
        for (uint256 i = 0; i < call_.length; i++) {
            data += call_[i] == 0 ? 4 : 16;
        }
        (bool isStruck, uint256 used) = meter.gasOf(address(strikes), call_);
        check(isStruck, "struck");
        atMost(used + data, MOST_GAS, "gas");
    }
}
