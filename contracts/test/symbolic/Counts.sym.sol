// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {Rows} from "../../src/libraries/Rows.sol";
import {Tally} from "../../src/libraries/Tally.sol";

/// @title What holds of every input of the bitmaps' libraries: `contracts/tools/halmos` proves it.
contract CountsSym {
    mapping(uint256 => uint256) private _rows;

    /// Of any counts, any word and any seat: it has one more where the word has it. So much holds of no words, too.
    function check_aWordIsCounted(uint256[6] memory planes, uint256 word, uint8 seat) external pure {
        uint256 before = _count(planes, seat);
        if (before == 63) return;
        Tally.add(planes, word);
        assert(_count(planes, seat) == before + ((word >> seat) & 1));
    }

    function check_whoReachesAThreshold(uint256[6] memory planes, uint8 seat, uint8 least) external pure {
        if (least > 64) return;
        uint256 reached = (Tally.reaching(planes, least) >> seat) & 1;
        assert(reached == (_count(planes, seat) >= least ? 1 : 0));
    }

    /// A row that is written changes no other round's.
    function check_rowsAreApart(uint24 round, uint24 other, uint256 row, uint256 before) external {
        if (row >= 1 << 16 || round == other) return;
        (uint256 word,) = Rows.locate(16, round);
        _rows[word] = before;
        uint256 kept = Rows.get(_rows, 16, other);
        Rows.set(_rows, 16, round, row);
        assert(Rows.get(_rows, 16, round) == row);
        assert(Rows.get(_rows, 16, other) == kept);
    }

    function check_countOfRows(uint256 word, uint8 index) external pure {
        if (index >= 64) return;
        uint256 count;
        for (uint256 place = index; place < 256; place += 64) {
            count += (word >> place) & 1;
        }
        assert(Rows.countOf(word, 64, index) == count);
    }

    function _count(uint256[6] memory planes, uint256 seat) private pure returns (uint256 count) {
        for (uint256 p = 0; p < 6; p++) {
            count |= ((planes[p] >> seat) & 1) << p;
        }
    }
}
