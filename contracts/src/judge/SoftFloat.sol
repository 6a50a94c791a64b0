// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

/// @title IEEE 754 binary32 and binary64 on integers: what the exact step computes with
/// (SPEC-STEP.md, chapter 1).
/// @notice Every number is its raw bits in the low 32 or 64 bits of a word; the bits above must be
/// zero. Results are rounded to nearest, ties to even. All inputs are defined. There is one NaN,
/// 0x7fc00000 or 0x7ff8000000000000: every function that returns a number returns this one,
/// whatever NaN it was given.
/// @dev README.md beside this file has the functions with their gas. The two formats are written
/// out side by side, and the frequent cases in assembly, because a judge runs hundreds of these a
/// transaction: constants as immediates and no calls make them three times cheaper than one
/// function over a description of the format. In all of them
/// - a *field* is the exponent's bits. A result is put together as ((field - 1) << 23) + q, where q
///   has its leading one: that one adds 1 to the field, a carry of rounding adds another, and a
///   subnormal, with field 1 and no leading one, comes out right by itself;
/// - x is rounded at bit `cut` as (x + 2^(cut-1) - 1 + bit `cut` of x) >> cut, which is half to
///   even;
/// - a *sticky* lowest bit says that something below it was not zero.
library SoftFloat {
    uint256 internal constant NAN32 = 0x7fc00000;
    uint256 internal constant NAN64 = 0x7ff8000000000000;
    uint256 internal constant INF32 = 0x7f800000;
    uint256 internal constant INF64 = 0x7ff0000000000000;
    uint256 internal constant ONE32 = 0x3f800000;
    uint256 internal constant ONE64 = 0x3ff0000000000000;
    uint256 private constant SIGN32 = 0x80000000;
    uint256 private constant SIGN64 = 0x8000000000000000;
    uint256 private constant SIZE32 = 0x7fffffff;
    uint256 private constant SIZE64 = 0x7fffffffffffffff;

    // ---- binary32
    // -------------------------------------------------------------------------------------------------

    /// @return r a + b
    function add32(uint256 a, uint256 b) internal pure returns (uint256 r) {
        assembly ("memory-safe") {
            // The larger magnitude first. 225 bits to the left there is no sign.
            if lt(shl(225, a), shl(225, b)) {
                let c := a
                a := b
                b := c
            }
            let field := and(shr(23, a), 0xff)
            switch field
            case 0xff {
                r := a
                // NaN, or ∞ - ∞
                if or(gt(and(a, 0x7fffffff), 0x7f800000), eq(xor(a, b), 0x80000000)) { r := 0x7fc00000 }
            }
            default {
                // Three more digits than the result has: with a sticky lowest one they decide every
                // rounding.
                let x := shl(3, or(and(a, 0x7fffff), shl(23, gt(field, 0))))
                field := or(field, iszero(field))
                let down := and(shr(23, b), 0xff)
                let whole := shl(3, or(and(b, 0x7fffff), shl(23, gt(down, 0))))
                down := sub(field, or(down, iszero(down)))
                let y := shr(down, whole)
                y := or(y, iszero(eq(shl(down, y), whole)))
                switch and(xor(a, b), 0x80000000)
                case 0 {
                    x := add(x, y)
                    y := shr(27, x) // 1 where there is a digit more
                    x := or(shr(y, x), and(x, y))
                    field := add(field, y)
                }
                default {
                    x := sub(x, y)
                    if lt(x, 0x4000000) {
                        // Leading digits cancelled. How many follows from the number's logarithm,
                        // by halves and then by a table of 32 bytes that 128 bits index (Solady's
                        // LibBit, fls).
                        y := shl(4, lt(0xffff, x))
                        y := or(y, shl(3, lt(0xff, shr(y, x))))
                        y := add(
                            y,
                            byte(
                                and(0x1f, shr(shr(y, x), 0x8421084210842108cc6318c6db6d54be)),
                                0x0706060506020504060203020504030106050205030304010505030400000000
                            )
                        )
                        y := sub(26, y)
                        if iszero(x) {
                            // x - x is +0
                            a := 0
                            field := 1
                        }
                        if iszero(lt(y, field)) { y := sub(field, 1) } // subnormal
                        x := shl(y, x)
                        field := sub(field, y)
                    }
                }
                r := add(shl(23, sub(field, 1)), shr(3, add(add(x, 3), and(shr(3, x), 1))))
                if gt(r, 0x7f7fffff) { r := 0x7f800000 }
                r := or(r, and(a, 0x80000000))
            }
        }
    }

    /// @return a - b
    function sub32(uint256 a, uint256 b) internal pure returns (uint256) {
        return add32(a, b ^ SIGN32);
    }

    /// @return r a · b
    function mul32(uint256 a, uint256 b) internal pure returns (uint256 r) {
        uint256 fieldA = (a >> 23) & 0xff;
        uint256 fieldB = (b >> 23) & 0xff;
        unchecked {
            // Zero comes out above every other.
            if (fieldA - 1 > 253 || fieldB - 1 > 253) return _mulRare32(a, b);
        }
        assembly ("memory-safe") {
            let x := mul(or(and(a, 0x7fffff), 0x800000), or(and(b, 0x7fffff), 0x800000))
            let cut := add(23, shr(47, x))
            let field := sub(add(add(fieldA, fieldB), cut), 151) // less 1
            if slt(field, 0) {
                cut := sub(cut, field)
                if gt(cut, 64) { cut := 64 } // x is below 2^48: zero all the same
                field := 0
            }
            r := shr(cut, add(add(x, sub(shl(sub(cut, 1), 1), 1)), and(shr(cut, x), 1)))
            r := add(shl(23, field), r)
            if gt(r, 0x7f7fffff) { r := 0x7f800000 }
            r := or(r, and(xor(a, b), 0x80000000))
        }
    }

    /// @return r a / b
    function div32(uint256 a, uint256 b) internal pure returns (uint256 r) {
        uint256 fieldA = (a >> 23) & 0xff;
        uint256 fieldB = (b >> 23) & 0xff;
        unchecked {
            // Zero comes out above every other.
            if (fieldA - 1 > 253 || fieldB - 1 > 253) return _divRare32(a, b);
        }
        assembly ("memory-safe") {
            let divisor := or(and(b, 0x7fffff), 0x800000)
            let n := shl(26, or(and(a, 0x7fffff), 0x800000))
            let x := div(n, divisor) // 26 or 27 digits
            x := or(x, iszero(eq(mul(x, divisor), n)))
            let cut := add(2, shr(26, x))
            let field := add(sub(fieldA, fieldB), add(cut, 123)) // less 1
            if slt(field, 0) {
                cut := sub(cut, field)
                if gt(cut, 64) { cut := 64 }
                field := 0
            }
            r := shr(cut, add(add(x, sub(shl(sub(cut, 1), 1), 1)), and(shr(cut, x), 1)))
            r := add(shl(23, field), r)
            if gt(r, 0x7f7fffff) { r := 0x7f800000 }
            r := or(r, and(xor(a, b), 0x80000000))
        }
    }

    /// @return r √a, correctly rounded; NaN below zero, -0 of -0
    function sqrt32(uint256 a) internal pure returns (uint256 r) {
        unchecked {
            if (a - 0x800000 > 0x7effffff) {
                // Not a positive normal number.
                if (a & SIZE32 == 0 || a == INF32) return a;
                if (a > INF32) return NAN32;
                uint256 up = 24 - (_log2(a) & ~uint256(1)); // even, so that half of it comes off the exponent
                return sqrt32(_round32(0, a, int256(up) - 149)) - (up << 22);
            }
        }
        assembly ("memory-safe") {
            r := shr(23, a)
            // The root of x in [2^50, 2^52) has the result's 24 digits and two more, all but
            // floor(√x) of which never matter: a root that ends in a half would square to a number
            // with more digits than x has.
            let x := shl(sub(28, and(r, 1)), or(and(a, 0x7fffff), 0x800000))
            // A line within 3 % of the root; each step of Newton's squares the error.
            let z := add(shr(33, mul(x, 88)), 23028139)
            z := shr(1, add(z, div(x, z)))
            z := shr(1, add(z, div(x, z)))
            z := shr(1, add(z, div(x, z)))
            z := sub(z, gt(mul(z, z), x))
            r := add(shl(23, add(shr(1, add(r, 1)), 62)), shr(2, add(z, 2)))
        }
    }

    /// @return -a
    function neg32(uint256 a) internal pure returns (uint256) {
        return isNan32(a) ? NAN32 : a ^ SIGN32;
    }

    /// @return |a|
    function abs32(uint256 a) internal pure returns (uint256) {
        return isNan32(a) ? NAN32 : a & SIZE32;
    }

    function isNan32(uint256 a) internal pure returns (bool) {
        return a & SIZE32 > INF32;
    }

    /// @return a < b; false where one is NaN
    function less32(uint256 a, uint256 b) internal pure returns (bool) {
        if (isNan32(a) || isNan32(b)) return false;
        // Of two negative numbers the larger magnitude is less; the zeros are equal.
        if (a & b & SIGN32 != 0) return b < a;
        return a & SIGN32 == 0 ? a < b && b & SIGN32 == 0 : (a | b) & SIZE32 != 0;
    }

    /// @return a ≤ b; false where one is NaN
    function lessEqual32(uint256 a, uint256 b) internal pure returns (bool) {
        return !isNan32(a) && !isNan32(b) && !less32(b, a);
    }

    /// @return a = b: zeros of either sign are equal, NaN is nothing's equal
    function equal32(uint256 a, uint256 b) internal pure returns (bool) {
        return (a == b && !isNan32(a)) || (a | b) & SIZE32 == 0;
    }

    /// @return the larger; NaN where one is NaN, +0 where it is a zero (SPEC-STEP.md, chapter 1)
    function max32(uint256 a, uint256 b) internal pure returns (uint256) {
        if (isNan32(a) || isNan32(b)) return NAN32;
        uint256 r = less32(a, b) ? b : a;
        return r == SIGN32 ? 0 : r;
    }

    /// @return a, or `low` where it is less; NaN where one is NaN. The zeros are equal: max of -0
    /// and +0 is a.
    function clampMin32(uint256 a, uint256 low) internal pure returns (uint256) {
        if (isNan32(a) || isNan32(low)) return NAN32;
        return less32(a, low) ? low : a;
    }

    /// @return a, or `high` where it is more; NaN where one is NaN
    function clampMax32(uint256 a, uint256 high) internal pure returns (uint256) {
        if (isNan32(a) || isNan32(high)) return NAN32;
        return less32(high, a) ? high : a;
    }

    /// @return a within [low, high]: `clampMax32(clampMin32(a, low), high)`, as torch.clamp
    function clamp32(uint256 a, uint256 low, uint256 high) internal pure returns (uint256) {
        return clampMax32(clampMin32(a, low), high);
    }

    /// @return the nearest integer, halves to even, as binary32: never -0, 0 for NaN, and ∞ for ∞
    function rint32(uint256 a) internal pure returns (uint256) {
        uint256 size = a & SIZE32;
        uint256 field = size >> 23;
        if (field >= 150) return size > INF32 ? 0 : a; // an integer already
        if (field < 127) return size > 0x3f000000 ? ONE32 | (a & SIGN32) : 0; // a half is 0
        // The word itself is rounded. Bit `cut` is the last digit of the integer; between 1 and 2 it
        // is the exponent's last bit in the position of the leading one, and 127 is odd as well.
        unchecked {
            uint256 cut = 150 - field;
            return (_cut(size, int256(cut)) << cut) | (a & SIGN32);
        }
    }

    /// @return the nearest integer, halves to even; 0 for NaN, and 2^128, which no finite number
    /// has, for ∞
    function rint32ToInt(uint256 a) internal pure returns (int256) {
        if (isNan32(a)) return 0;
        // The leading one that subnormals do not have cannot matter.
        unchecked {
            int256 r = int256(_cut((a & 0x7fffff) | 0x800000, 150 - int256((a >> 23) & 0xff)));
            return a >> 31 == 0 ? r : -r;
        }
    }

    /// @return the number nearest to any integer
    function fromInt32(int256 i) internal pure returns (uint256) {
        if (i == 0) return 0;
        unchecked {
            return i < 0 ? _round32(SIGN32, uint256(-i), 0) : _round32(0, uint256(i), 0);
        }
    }

    // ---- between the formats
    // --------------------------------------------------------------------------------------

    /// @return r a of binary32 as binary64, exactly
    function widen(uint256 a) internal pure returns (uint256 r) {
        uint256 field = (a >> 23) & 0xff;
        unchecked {
            if (field - 1 > 253) {
                uint256 size = a & SIZE32;
                if (size > INF32) return NAN64;
                uint256 sign = (a & SIGN32) << 32;
                if (size == INF32) return sign | INF64;
                return size == 0 ? sign : _round64(sign, size, -149);
            }
            return ((a & SIGN32) << 32) | (((a & SIZE32) << 29) + (uint256(896) << 52));
        }
    }

    /// @return the binary32 nearest to a of binary64
    function narrow(uint256 a) internal pure returns (uint256) {
        if (isNan64(a)) return NAN32;
        uint256 sign = (a >> 32) & SIGN32;
        unchecked {
            int256 cut = 29;
            int256 field = int256((a >> 52) & 0x7ff) - 897; // binary32's, less 1
            if (field < 0) {
                cut -= field;
                field = 0;
            }
            // Binary64's subnormals are far below half of binary32's least: their leading digit
            // cannot matter. Of ∞ the field alone is beyond what binary32 has.
            uint256 r = (uint256(field) << 23) + _cut((a & 0xfffffffffffff) | 0x10000000000000, cut);
            return sign | (r > INF32 ? INF32 : r);
        }
    }

    // ---- binary64
    // -------------------------------------------------------------------------------------------------

    /// @return r a + b
    function add64(uint256 a, uint256 b) internal pure returns (uint256 r) {
        assembly ("memory-safe") {
            if lt(shl(193, a), shl(193, b)) {
                let c := a
                a := b
                b := c
            }
            let field := and(shr(52, a), 0x7ff)
            switch field
            case 0x7ff {
                r := a
                if or(gt(and(a, 0x7fffffffffffffff), 0x7ff0000000000000), eq(xor(a, b), 0x8000000000000000)) {
                    r := 0x7ff8000000000000
                }
            }
            default {
                let x := shl(3, or(and(a, 0xfffffffffffff), shl(52, gt(field, 0))))
                field := or(field, iszero(field))
                let down := and(shr(52, b), 0x7ff)
                let whole := shl(3, or(and(b, 0xfffffffffffff), shl(52, gt(down, 0))))
                down := sub(field, or(down, iszero(down)))
                let y := shr(down, whole)
                y := or(y, iszero(eq(shl(down, y), whole)))
                switch and(xor(a, b), 0x8000000000000000)
                case 0 {
                    x := add(x, y)
                    y := shr(56, x)
                    x := or(shr(y, x), and(x, y))
                    field := add(field, y)
                }
                default {
                    x := sub(x, y)
                    if lt(x, 0x80000000000000) {
                        y := shl(5, lt(0xffffffff, x))
                        y := or(y, shl(4, lt(0xffff, shr(y, x))))
                        y := or(y, shl(3, lt(0xff, shr(y, x))))
                        y := add(
                            y,
                            byte(
                                and(0x1f, shr(shr(y, x), 0x8421084210842108cc6318c6db6d54be)),
                                0x0706060506020504060203020504030106050205030304010505030400000000
                            )
                        )
                        y := sub(55, y)
                        if iszero(x) {
                            a := 0
                            field := 1
                        }
                        if iszero(lt(y, field)) { y := sub(field, 1) }
                        x := shl(y, x)
                        field := sub(field, y)
                    }
                }
                r := add(shl(52, sub(field, 1)), shr(3, add(add(x, 3), and(shr(3, x), 1))))
                if gt(r, 0x7fefffffffffffff) { r := 0x7ff0000000000000 }
                r := or(r, and(a, 0x8000000000000000))
            }
        }
    }

    /// @return a - b
    function sub64(uint256 a, uint256 b) internal pure returns (uint256) {
        return add64(a, b ^ SIGN64);
    }

    /// @return r a · b
    function mul64(uint256 a, uint256 b) internal pure returns (uint256 r) {
        uint256 fieldA = (a >> 52) & 0x7ff;
        uint256 fieldB = (b >> 52) & 0x7ff;
        unchecked {
            // Zero comes out above every other.
            if (fieldA - 1 > 2045 || fieldB - 1 > 2045) return _mulRare64(a, b);
        }
        assembly ("memory-safe") {
            let x := mul(or(and(a, 0xfffffffffffff), 0x10000000000000), or(and(b, 0xfffffffffffff), 0x10000000000000))
            let cut := add(52, shr(105, x))
            let field := sub(add(add(fieldA, fieldB), cut), 1076) // less 1
            if slt(field, 0) {
                cut := sub(cut, field)
                if gt(cut, 128) { cut := 128 } // x is below 2^106: zero all the same
                field := 0
            }
            r := shr(cut, add(add(x, sub(shl(sub(cut, 1), 1), 1)), and(shr(cut, x), 1)))
            r := add(shl(52, field), r)
            if gt(r, 0x7fefffffffffffff) { r := 0x7ff0000000000000 }
            r := or(r, and(xor(a, b), 0x8000000000000000))
        }
    }

    /// @return r a / b
    function div64(uint256 a, uint256 b) internal pure returns (uint256 r) {
        uint256 fieldA = (a >> 52) & 0x7ff;
        uint256 fieldB = (b >> 52) & 0x7ff;
        unchecked {
            // Zero comes out above every other.
            if (fieldA - 1 > 2045 || fieldB - 1 > 2045) return _divRare64(a, b);
        }
        assembly ("memory-safe") {
            let divisor := or(and(b, 0xfffffffffffff), 0x10000000000000)
            let n := shl(55, or(and(a, 0xfffffffffffff), 0x10000000000000))
            let x := div(n, divisor) // 55 or 56 digits
            x := or(x, iszero(eq(mul(x, divisor), n)))
            let cut := add(2, shr(55, x))
            let field := add(sub(fieldA, fieldB), add(cut, 1019)) // less 1
            if slt(field, 0) {
                cut := sub(cut, field)
                if gt(cut, 128) { cut := 128 }
                field := 0
            }
            r := shr(cut, add(add(x, sub(shl(sub(cut, 1), 1), 1)), and(shr(cut, x), 1)))
            r := add(shl(52, field), r)
            if gt(r, 0x7fefffffffffffff) { r := 0x7ff0000000000000 }
            r := or(r, and(xor(a, b), 0x8000000000000000))
        }
    }

    /// @return r √a, correctly rounded; NaN below zero, -0 of -0
    function sqrt64(uint256 a) internal pure returns (uint256 r) {
        unchecked {
            if (a - 0x10000000000000 > 0x7fdfffffffffffff) {
                if (a & SIZE64 == 0 || a == INF64) return a;
                if (a > INF64) return NAN64;
                uint256 up = 54 - (_log2(a) & ~uint256(1));
                return sqrt64(_round64(0, a, int256(up) - 1074)) - (up << 51);
            }
        }
        assembly ("memory-safe") {
            r := shr(52, a)
            // As sqrt32, with x in [2^108, 2^110).
            let x := shl(sub(57, and(r, 1)), or(and(a, 0xfffffffffffff), 0x10000000000000))
            let z := add(shr(62, mul(x, 88)), 12363138256068608)
            z := shr(1, add(z, div(x, z)))
            z := shr(1, add(z, div(x, z)))
            z := shr(1, add(z, div(x, z)))
            z := shr(1, add(z, div(x, z)))
            z := sub(z, gt(mul(z, z), x))
            r := add(shl(52, add(shr(1, add(r, 1)), 510)), shr(2, add(z, 2)))
        }
    }

    /// @return -a
    function neg64(uint256 a) internal pure returns (uint256) {
        return isNan64(a) ? NAN64 : a ^ SIGN64;
    }

    /// @return |a|
    function abs64(uint256 a) internal pure returns (uint256) {
        return isNan64(a) ? NAN64 : a & SIZE64;
    }

    function isNan64(uint256 a) internal pure returns (bool) {
        return a & SIZE64 > INF64;
    }

    /// @return a < b; false where one is NaN
    function less64(uint256 a, uint256 b) internal pure returns (bool) {
        if (isNan64(a) || isNan64(b)) return false;
        // Of two negative numbers the larger magnitude is less; the zeros are equal.
        if (a & b & SIGN64 != 0) return b < a;
        return a & SIGN64 == 0 ? a < b && b & SIGN64 == 0 : (a | b) & SIZE64 != 0;
    }

    /// @return the binary64 nearest to any integer
    function fromIntTo64(int256 i) internal pure returns (uint256) {
        if (i == 0) return 0;
        unchecked {
            return i < 0 ? _round64(SIGN64, uint256(-i), 0) : _round64(0, uint256(i), 0);
        }
    }

    // ---- what is rare: zeros, subnormal operands, ∞, NaN
    // ----------------------------------------------------------

    function _mulRare32(uint256 a, uint256 b) private pure returns (uint256) {
        uint256 sign = (a ^ b) & SIGN32;
        a &= SIZE32;
        b &= SIZE32;
        if (a > INF32 || b > INF32) return NAN32;
        if (a == INF32 || b == INF32) return a == 0 || b == 0 ? NAN32 : sign | INF32;
        if (a == 0 || b == 0) return sign;
        (uint256 m, int256 e) = _parts32(a);
        (uint256 n, int256 f) = _parts32(b);
        unchecked {
            return _round32(sign, m * n, e + f);
        }
    }

    function _divRare32(uint256 a, uint256 b) private pure returns (uint256) {
        uint256 sign = (a ^ b) & SIGN32;
        a &= SIZE32;
        b &= SIZE32;
        if (a > INF32 || b > INF32) return NAN32;
        if (a == INF32) return b == INF32 ? NAN32 : sign | INF32;
        if (b == INF32) return sign;
        if (b == 0) return a == 0 ? NAN32 : sign | INF32;
        if (a == 0) return sign;
        (uint256 m, int256 e) = _parts32(a);
        (uint256 n, int256 f) = _parts32(b);
        unchecked {
            m <<= 64;
            return _round32(sign, (m / n) | (m % n == 0 ? 0 : 1), e - f - 64);
        }
    }

    function _mulRare64(uint256 a, uint256 b) private pure returns (uint256) {
        uint256 sign = (a ^ b) & SIGN64;
        a &= SIZE64;
        b &= SIZE64;
        if (a > INF64 || b > INF64) return NAN64;
        if (a == INF64 || b == INF64) return a == 0 || b == 0 ? NAN64 : sign | INF64;
        if (a == 0 || b == 0) return sign;
        (uint256 m, int256 e) = _parts64(a);
        (uint256 n, int256 f) = _parts64(b);
        unchecked {
            return _round64(sign, m * n, e + f);
        }
    }

    function _divRare64(uint256 a, uint256 b) private pure returns (uint256) {
        uint256 sign = (a ^ b) & SIGN64;
        a &= SIZE64;
        b &= SIZE64;
        if (a > INF64 || b > INF64) return NAN64;
        if (a == INF64) return b == INF64 ? NAN64 : sign | INF64;
        if (b == INF64) return sign;
        if (b == 0) return a == 0 ? NAN64 : sign | INF64;
        if (a == 0) return sign;
        (uint256 m, int256 e) = _parts64(a);
        (uint256 n, int256 f) = _parts64(b);
        unchecked {
            m <<= 128;
            return _round64(sign, (m / n) | (m % n == 0 ? 0 : 1), e - f - 128);
        }
    }

    /// @return m and e, the finite a = m · 2^e
    function _parts32(uint256 a) private pure returns (uint256 m, int256 e) {
        unchecked {
            uint256 field = a >> 23;
            return field == 0 ? (a, int256(-149)) : ((a & 0x7fffff) | 0x800000, int256(field) - 150);
        }
    }

    function _parts64(uint256 a) private pure returns (uint256 m, int256 e) {
        unchecked {
            uint256 field = a >> 52;
            return field == 0 ? (a, int256(-1074)) : ((a & 0xfffffffffffff) | 0x10000000000000, int256(field) - 1075);
        }
    }

    /// @return m · 2^e with that sign, rounded. m is not zero, and below 2^254 where e is negative;
    /// its lowest bit may be sticky where it has 26 digits or more.
    function _round32(uint256 sign, uint256 m, int256 e) private pure returns (uint256) {
        unchecked {
            int256 top = int256(_log2(m));
            int256 field = e + top + 126; // less 1
            int256 cut = top - 23;
            if (field < 0) {
                cut -= field;
                field = 0;
            }
            uint256 r = (uint256(field) << 23) + _cut(m, cut);
            return sign | (r > INF32 ? INF32 : r);
        }
    }

    /// As `_round32`; 55 digits or more where the lowest bit is sticky.
    function _round64(uint256 sign, uint256 m, int256 e) private pure returns (uint256) {
        unchecked {
            int256 top = int256(_log2(m));
            int256 field = e + top + 1022;
            int256 cut = top - 52;
            if (field < 0) {
                cut -= field;
                field = 0;
            }
            uint256 r = (uint256(field) << 52) + _cut(m, cut);
            return sign | (r > INF64 ? INF64 : r);
        }
    }

    /// @return m / 2^cut, half to even
    function _cut(uint256 m, int256 cut) private pure returns (uint256) {
        unchecked {
            if (cut <= 0) return m << uint256(-cut);
            uint256 shift = cut > 255 ? 255 : uint256(cut);
            return (m + (1 << (shift - 1)) - 1 + ((m >> shift) & 1)) >> shift;
        }
    }

    /// @return r the position of the highest bit of x, which is not zero
    function _log2(uint256 x) private pure returns (uint256 r) {
        assembly ("memory-safe") {
            if shr(64, x) {
                r := shl(7, lt(0xffffffffffffffffffffffffffffffff, x))
                r := or(r, shl(6, lt(0xffffffffffffffff, shr(r, x))))
            }
            r := or(r, shl(5, lt(0xffffffff, shr(r, x))))
            r := or(r, shl(4, lt(0xffff, shr(r, x))))
            r := or(r, shl(3, lt(0xff, shr(r, x))))
            r := or(
                r,
                byte(
                    and(0x1f, shr(shr(r, x), 0x8421084210842108cc6318c6db6d54be)),
                    0x0706060506020504060203020504030106050205030304010505030400000000
                )
            )
        }
    }
}
