// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {SoftFloat} from "../../src/judge/SoftFloat.sol";

/// @title What holds of every binary32: `contracts/tools/halmos` proves it against the words of IEEE 754,
/// in integers. Vectors and fuzz tests hold the rest, exponent by exponent.
contract FloatsSym {
    uint256 private constant INFINITY = 0x7f800000;
    uint256 private constant NAN = 0x7fc00000;
    uint256 private constant HIDDEN = 0x800000;

    function check_less(uint32 a, uint32 b) external pure {
        bool isNan = (a & 0x7fffffff) > INFINITY || (b & 0x7fffffff) > INFINITY;
        int256 x = a >> 31 == 1 ? -int256(uint256(a & 0x7fffffff)) : int256(uint256(a));
        int256 y = b >> 31 == 1 ? -int256(uint256(b & 0x7fffffff)) : int256(uint256(b));
        assert(SoftFloat.less32(a, b) == (!isNan && x < y));
    }

    /// The nearest integer, half to even: |a| is m · 2^(e − 150), so m << e counts in 2^−150.
    function check_nearestInteger(uint32 a) external pure {
        uint256 field = (a >> 23) & 0xff;
        if (field > 180) return;
        int256 result = SoftFloat.rint32ToInt(a);
        uint256 scaled = field == 0 ? uint256(a & 0x7fffff) << 1 : (uint256(a & 0x7fffff) | HIDDEN) << field;
        uint256 size = result < 0 ? uint256(-result) : uint256(result);
        (uint256 whole, uint256 rest) = (scaled >> 150, scaled & ((1 << 150) - 1));
        uint256 wanted = whole + (rest > 1 << 149 || (rest == 1 << 149 && whole & 1 == 1) ? 1 : 0);
        assert(size == wanted);
        assert(result == 0 || (result < 0) == (a >> 31 == 1));
    }

    function check_roundingTwiceIsRoundingOnce(uint32 a) external pure {
        uint256 r = SoftFloat.rint32(a);
        assert(SoftFloat.rint32(r) == r);
        assert(SoftFloat.rint32ToInt(a) == SoftFloat.rint32ToInt(r));
    }

    function check_additionCommutes(uint32 a, uint32 b) external pure {
        assert(SoftFloat.add32(a, b) == SoftFloat.add32(b, a));
    }

    function check_sumsAreCanonical(uint32 a, uint32 b) external pure {
        uint256 r = SoftFloat.add32(a, b);
        assert(r <= type(uint32).max);
        assert((r & 0x7fffffff) <= INFINITY || r == NAN);
    }

    function check_zeroAddsNothing(uint32 a) external pure {
        bool isNan = (a & 0x7fffffff) > INFINITY;
        assert(SoftFloat.add32(a, 0) == (isNan ? NAN : a == 0x80000000 ? 0 : uint256(a)));
    }

    function check_whatIsTakenFromItselfIsZero(uint32 a) external pure {
        if ((a & 0x7fffffff) >= INFINITY) return;
        assert(SoftFloat.sub32(a, a) == 0);
    }

    function check_widenedIsNarrowedToItself(uint32 a) external pure {
        bool isNan = (a & 0x7fffffff) > INFINITY;
        assert(SoftFloat.narrow(SoftFloat.widen(a)) == (isNan ? NAN : uint256(a)));
    }

    // Every pair of significands, at distances of exponents where sums are rounded otherwise.

    function check_sumOfOneExponent(uint32 a, uint32 b) external pure {
        _sum(100, a, 100, b);
    }

    function check_differenceOfOneExponent(uint32 a, uint32 b) external pure {
        _difference(100, a, 100, b);
    }

    function check_sumOneApart(uint32 a, uint32 b) external pure {
        _sum(101, a, 100, b);
    }

    function check_differenceOneApart(uint32 a, uint32 b) external pure {
        _difference(101, a, 100, b);
    }

    function check_sumTwoApart(uint32 a, uint32 b) external pure {
        _sum(102, a, 100, b);
    }

    function check_differenceTwoApart(uint32 a, uint32 b) external pure {
        _difference(102, a, 100, b);
    }

    function check_sumTwelveApart(uint32 a, uint32 b) external pure {
        _sum(112, a, 100, b);
    }

    function check_sumAtTheLastBit(uint32 a, uint32 b) external pure {
        _sum(124, a, 100, b);
    }

    function check_differenceAtTheLastBit(uint32 a, uint32 b) external pure {
        _difference(124, a, 100, b);
    }

    function check_sumBelowTheLastBit(uint32 a, uint32 b) external pure {
        _sum(126, a, 100, b);
    }

    function check_oneTimesAnything(uint32 a) external pure {
        bool isNan = (a & 0x7fffffff) > INFINITY;
        assert(SoftFloat.mul32(a, 0x3f800000) == (isNan ? NAN : uint256(a)));
    }

    function check_zeroTimesAnything(uint32 a) external pure {
        uint256 r = SoftFloat.mul32(a, 0);
        assert(r == ((a & 0x7fffffff) >= INFINITY ? NAN : uint256(a) & 0x80000000));
    }

    function _sum(uint256 ea, uint32 a, uint256 eb, uint32 b) private pure {
        _nearest(ea << 23 | (a & 0x7fffff), eb << 23 | (b & 0x7fffff));
    }

    function _difference(uint256 ea, uint32 a, uint256 eb, uint32 b) private pure {
        _nearest(ea << 23 | (a & 0x7fffff), 1 << 31 | eb << 23 | (b & 0x7fffff));
    }

    /// @dev The result is no further from the exact sum than half of its last place, and even at a half.
    function _nearest(uint256 a, uint256 b) private pure {
        (uint256 ma, uint256 ea) = _parts(a);
        (uint256 mb, uint256 eb) = _parts(b);
        uint256 low = ea < eb ? ea : eb;
        int256 exact = a >> 31 == 1 ? -int256(ma << (ea - low)) : int256(ma << (ea - low));
        exact += b >> 31 == 1 ? -int256(mb << (eb - low)) : int256(mb << (eb - low));
        uint256 r = SoftFloat.add32(a, b);
        (uint256 m, uint256 e) = _parts(r);
        uint256 size = exact < 0 ? uint256(-exact) : uint256(exact);
        if (exact != 0) assert((exact < 0) == (r >> 31 == 1));
        if (e < low) {
            assert(size << (low - e) == m);
            return;
        }
        uint256 shown = m << (e - low);
        uint256 off = size > shown ? size - shown : shown - size;
        uint256 last = 1 << (e - low);
        assert(2 * off <= last);
        if (2 * off == last) assert(m & 1 == 0);
        if (m == HIDDEN && e > 1 && size < shown) assert(4 * off <= last);
    }

    function _parts(uint256 x) private pure returns (uint256 m, uint256 e) {
        (m, e) = (x & 0x7fffff, (x >> 23) & 0xff);
        (m, e) = e == 0 ? (m, 1) : (m | HIDDEN, e);
    }
}
