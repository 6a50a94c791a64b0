// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {Case, RoundOpening} from "../../src/interfaces/IStrikes.sol";
import {Bits} from "../../src/libraries/Bits.sol";
import {Derived} from "../../src/libraries/Derived.sol";
import {MergeShape} from "../../src/libraries/MergeShapes.sol";
import {Stated} from "../../src/libraries/Statements.sol";
import "../../src/types/Types.sol";
import {Check} from "../support/Check.sol";
import {MergeReader} from "../support/Merge.sol";
import {StatementReader} from "./StrikeVectors.t.sol";

/// @dev What of the library takes calldata.
contract DerivedReader {
    function areGroups(bytes calldata statement, MergeShape memory shape, Stated memory s)
        external
        pure
        returns (bool)
    {
        return Derived.areGroups(statement, shape, s);
    }

    function areExponents(Case calldata c, RoundOpening calldata o, MergeShape memory shape, Stated memory s)
        external
        pure
        returns (bool)
    {
        return Derived.areExponents(c, o, shape, s);
    }
}

/// @title What is derived in statements that the Python law made (tests/vectors/strikes.json): it follows, and no other
/// group and no other exponent does.
contract DerivedVectorsTest is Check {
    using Bits for uint256;

    MergeReader private _reader = new MergeReader();
    StatementReader private _statements = new StatementReader();
    DerivedReader private _derived = new DerivedReader();
    string private _json;

    struct Merged {
        Case c;
        RoundOpening o;
        MergeShape shape;
        Stated s;
    }

    function setUp() public {
        _json = vm.readFile("../tests/vectors/strikes.json");
    }

    function test_whatFollowsFollows() public view {
        for (uint256 i = 0; i < 12; i++) {
            Merged memory m = mergedAt(i);
            check(_derived.areGroups(m.c.statement, m.shape, m.s), "groups");
            check(_derived.areExponents(m.c, m.o, m.shape, m.s), "exponents");
        }
    }

    function test_anotherGroupDoesNot() public view {
        for (uint256 i = 0; i < 12; i++) {
            Merged memory m = mergedAt(i);
            anotherGroup(m, m.s.groups, m.s.merged.popcount());
            if (m.shape.momentTensors != 0) anotherGroup(m, m.s.momentGroups, m.s.heard.popcount());
        }
    }

    function anotherGroup(Merged memory m, uint256 from, uint256 rows) private view {
        bytes memory statement = m.c.statement;
        for (uint256 row = 0; row < rows; row++) {
            for (uint256 bit = 0; bit < 8; bit++) {
                uint256 place = from + 32 * row + 31;
                statement[place] ^= bytes1(uint8(1 << bit));
                check(!_derived.areGroups(statement, m.shape, m.s), "another seat");
                statement[place] ^= bytes1(uint8(2 << bit));
                check(!_derived.areGroups(statement, m.shape, m.s), "two other seats, or one for another");
                statement[place] ^= bytes1(uint8(3 << bit));
            }
        }
        check(_derived.areGroups(statement, m.shape, m.s), "put back");
    }

    function test_anotherExponentDoesNot() public view {
        for (uint256 i = 0; i < 12; i++) {
            Merged memory m = mergedAt(i);
            anotherExponent(m, m.s.groups + (32 + m.shape.tensors) * m.s.merged.popcount(), m.shape.tensors);
            if (m.shape.momentTensors != 0) {
                uint256 from = m.s.momentGroups + (32 + m.shape.momentTensors) * m.s.heard.popcount();
                anotherExponent(m, from, m.shape.momentTensors);
            }
            anotherExponent(m, m.c.statement.length - 228 + 64, 16); // of the next state's digest
        }
    }

    function anotherExponent(Merged memory m, uint256 from, uint256 numbers) private view {
        for (uint256 place = from; place < from + 2 * numbers; place++) {
            m.c.statement[place] ^= 0x01;
            check(!_derived.areExponents(m.c, m.o, m.shape, m.s), "another exponent");
            m.c.statement[place] ^= 0x01;
        }
        check(_derived.areExponents(m.c, m.o, m.shape, m.s), "put back");
    }

    function test_noVoteIsBeyondFour() public view {
        for (uint256 i = 0; i < 12; i++) {
            Merged memory m = mergedAt(i);
            uint256 place = m.s.groups + 32 * m.s.merged.popcount();
            bytes1 vote = m.c.statement[place];
            for (uint256 k = 0; k < 2; k++) {
                m.c.statement[place] = k == 0 ? bytes1(0x05) : bytes1(0xfb);
                check(!_derived.areExponents(m.c, m.o, m.shape, m.s), "five");
            }
            m.c.statement[place] = vote;
        }
    }

    function test_noSquareIsNegativeAndNoAngleImpossible() public view {
        Merged memory m = mergedAt(0);
        uint256 n = m.s.mergeable.popcount();
        uint256 gram = m.s.groups - 4 * n * (n + 1);
        for (uint256 number = 0; number < n * (n + 1) / 2; number++) {
            bytes1 high = m.c.statement[gram + 8 * number];
            for (uint256 k = 0; k < 2; k++) {
                m.c.statement[gram + 8 * number] = k == 0 ? bytes1(0x80) : bytes1(0x7f);
                check(!_derived.areGroups(m.c.statement, m.shape, m.s), "no product");
            }
            m.c.statement[gram + 8 * number] = high;
        }
        check(_derived.areGroups(m.c.statement, m.shape, m.s), "put back");
    }

    function test_openingsOfOtherLengths() public {
        Merged memory m = mergedAt(0);
        m.o.exponents = bytes.concat(m.o.exponents, new bytes(2));
        vm.expectRevert(abi.encodeWithSelector(Derived.WrongLength.selector, m.o.exponents.length));
        _derived.areExponents(m.c, m.o, m.shape, m.s);
    }

    /// @dev First moments that were merged before are in steps of their own, which no next state has.
    function test_openingsWithMomentsThatWereMerged() public view {
        Merged memory m = mergedAt(0);
        m.o.exponents = bytes.concat(m.o.exponents, new bytes(2 * m.shape.momentTensors));
        check(_derived.areExponents(m.c, m.o, m.shape, m.s), "exponents");
    }

    /// @param i of the cases, and behind these of those of fragments
    function mergedAt(uint256 i) private view returns (Merged memory m) {
        string memory at_ =
            i < 10 ? string.concat(".cases[", digit(i), "]") : string.concat(".fragments[", digit(i - 10), "]");
        m.c.statement = bytesAt(at_, ".statement");
        m.c.shape = bytesAt(at_, ".shape");
        m.c.round = uint32(vm.parseJsonUint(_json, string.concat(at_, ".round")));
        (m.o.parts, m.o.exponents) = (bytesAt(at_, ".parts"), bytesAt(at_, ".exponents"));
        m.shape = _reader.shape(m.c.shape, m.c.round);
        RoundRecord memory record;
        record.available = vm.parseJsonUint(_json, string.concat(at_, ".available"));
        Verdict memory v;
        v.excluded = vm.parseJsonUint(_json, string.concat(at_, ".excluded"));
        v.merged = uint16(vm.parseJsonUint(_json, string.concat(at_, ".seats[0]")).popcount());
        v.state = vm.parseJsonBytes32(_json, string.concat(at_, ".state"));
        uint256 f = vm.parseJsonUint(_json, string.concat(at_, ".f"));
        m.s = _statements.read(m.c.statement, m.shape, m.c.round, f, record, v);
        check(m.s.isSound, "sound");
    }

    function bytesAt(string memory at_, string memory name) private view returns (bytes memory) {
        return vm.parseJsonBytes(_json, string.concat(at_, name));
    }

    function digit(uint256 i) private pure returns (string memory) {
        return string(abi.encodePacked(uint8(48 + i)));
    }
}
