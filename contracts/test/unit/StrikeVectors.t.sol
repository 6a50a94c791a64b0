// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {Bits} from "../../src/libraries/Bits.sol";
import {MergeShape, MergeShapes, Place} from "../../src/libraries/MergeShapes.sol";
import {Merging, Row} from "../../src/libraries/Merging.sol";
import {Stated, Statements} from "../../src/libraries/Statements.sol";
import "../../src/types/Types.sol";
import {Check} from "../support/Check.sol";
import {MergeReader} from "../support/Merge.sol";

/// @dev What of a statement takes calldata.
contract StatementReader {
    function read(
        bytes calldata data,
        MergeShape memory shape,
        uint32 round,
        uint256 f,
        RoundRecord calldata record,
        Verdict calldata verdict
    ) external pure returns (Stated memory) {
        return Statements.read(data, shape, round, f, record, verdict);
    }
}

/// @title Whole merges that the Python law made (tests/vectors/strikes.json): none of them is struck at any
/// coordinate, and each would be by any other value.
contract StrikeVectorsTest is Check {
    using Bits for uint256;

    MergeReader private _reader = new MergeReader();
    StatementReader private _statements = new StatementReader();
    string private _json;

    struct Merged {
        MergeShape shape;
        bytes32 dataSeed;
        uint256 f;
        uint256 mergeable;
        bytes[] updates; // of the merged
        bytes merged;
    }

    function setUp() public {
        _json = vm.readFile("../tests/vectors/strikes.json");
    }

    function test_noCoordinateOfATrueMergeIsWrong() public view {
        for (uint256 i = 0; i < 10; i++) {
            Merged memory m = mergeAt(i);
            for (uint256 section = 0; section < 3; section++) {
                uint256 values = MergeShapes.valuesOf(m.shape, section);
                check(values != 0, "a section");
                for (uint256 index = 0; index < values; index++) {
                    checkAt(i, m, section, index);
                }
            }
        }
    }

    function test_statementsAreSound() public view {
        for (uint256 i = 0; i < 10; i++) {
            Merged memory m = mergeAt(i);
            RoundRecord memory record;
            record.available = number(i, ".available");
            Verdict memory v;
            (v.excluded, v.merged) = (number(i, ".excluded"), uint16(m.updates.length));
            v.state = vm.parseJsonBytes32(_json, key(i, ".state"));
            bytes memory statement = vm.parseJsonBytes(_json, key(i, ".statement"));
            uint32 round = uint32(number(i, ".round"));
            Stated memory s = _statements.read(statement, m.shape, round, m.f, record, v);
            check(s.isSound, "sound");
            same(s.merged, seatsOf(i, 0), "merged");
            same(s.heard, seatsOf(i, 1), "heard");
            for (uint256 at_ = 0; at_ < 158; at_ += 7) {
                statement[at_] ^= 0x01;
                check(!_statements.read(statement, m.shape, round, m.f, record, v).isSound, "another byte");
                statement[at_] ^= 0x01;
            }
            check(!_statements.read(bytes.concat(statement, hex"00"), m.shape, round, m.f, record, v).isSound, "longer");
        }
    }

    function checkAt(uint256 i, Merged memory m, uint256 section, uint256 index) private view {
        (uint256 place, uint256 size) = MergeShapes.mergedPlaceOf(m.shape, m.mergeable, section, index);
        same(size, m.merged.length, "length of the merged update");
        uint256 seats = seatsOf(i, section == 1 ? 1 : 0);
        int256[] memory rows = rowsOf(m, seatsOf(i, 0), seats, section, index);
        if (section == MergeShapes.FACTORED) {
            int256 word = wordAt(m.merged, place);
            check(Merging.isMomentOf(rows, word, m.f), "a moment");
            check(!Merging.isMomentOf(rows, word + int256(16 << 23), m.f), "much more");
            check(!Merging.isMomentOf(rows, word - int256(16 << 23), m.f), "much less");
            return;
        }
        bytes memory groups = vm.parseJsonBytesArray(_json, key(i, ".groups"))[section];
        int256 value = _reader.merge(m.shape, section, rows, seats, m.f, groups);
        same(uint256(value), uint256(int256(int8(uint8(m.merged[place])))), "merged value");
    }

    /// @return rows of those of the merged seats that are wanted
    function rowsOf(Merged memory m, uint256 merged, uint256 wanted, uint256 section, uint256 index)
        private
        pure
        returns (int256[] memory rows)
    {
        rows = new int256[](wanted.popcount());
        uint256 used;
        for (uint256 k = 0; k < m.updates.length; (k++, merged &= merged - 1)) {
            uint256 seat = merged.lowest();
            if (wanted.has(seat)) rows[used++] = valueOf(m, m.updates[k], Row(m.dataSeed, seat, section), index);
        }
    }

    function valueOf(Merged memory m, bytes memory update, Row memory row, uint256 index)
        private
        pure
        returns (int256)
    {
        Place memory p = MergeShapes.placeOf(m.shape, row.section, index);
        same(p.size, update.length, "length of an update");
        if (row.section == MergeShapes.FACTORED) return wordAt(update, p.code);
        return Merging.valueOf(m.shape.codec, index, uint8(update[p.step]), uint8(update[p.code]), row);
    }

    function wordAt(bytes memory data, uint256 place) private pure returns (int256 word) {
        for (uint256 k = 0; k < 4; k++) {
            word |= int256(uint256(uint8(data[place + k])) << (8 * k));
        }
    }

    function mergeAt(uint256 i) private view returns (Merged memory m) {
        m.shape = _reader.shape(vm.parseJsonBytes(_json, key(i, ".shape")), number(i, ".round"));
        (m.dataSeed, m.f) = (vm.parseJsonBytes32(_json, key(i, ".dataSeed")), number(i, ".f"));
        m.mergeable = (seatsOf(i, 0) | number(i, ".excluded")).popcount();
        m.updates = vm.parseJsonBytesArray(_json, key(i, ".updates"));
        m.merged = vm.parseJsonBytes(_json, key(i, ".merged"));
    }

    function seatsOf(uint256 i, uint256 which) private view returns (uint256) {
        return number(i, which == 0 ? ".seats[0]" : ".seats[1]");
    }

    function number(uint256 i, string memory name) private view returns (uint256) {
        return vm.parseJsonUint(_json, key(i, name));
    }

    function key(uint256 i, string memory name) private pure returns (string memory) {
        return string.concat(".cases[", digits(i), "]", name);
    }

    function digits(uint256 i) private pure returns (string memory) {
        return string(abi.encodePacked(uint8(48 + i)));
    }
}
