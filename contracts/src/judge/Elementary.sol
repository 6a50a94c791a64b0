// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {SoftFloat} from "./SoftFloat.sol";

/// @title Grids, elementary functions and random words: chapters 2, 3 and 11 of SPEC-STEP.md, line by line.
/// @notice Numbers are raw bits as in SoftFloat; binary32 unless a name says 64. All inputs are defined.
library Elementary {
    uint256 private constant GRID_FLOOR = 0x17800000; // 2^-80
    uint256 private constant FLUSH = 0x0d800000; // 2^-100

    // ---- chapter 2: grids -----------------------------------------------------------------------------------------

    /// @param maximum the largest magnitude of a line: not negative, or NaN
    /// @param levels the grid's largest integer
    /// @return multiplier onto the grid
    /// @return step off the grid
    function steps(uint256 maximum, uint256 levels) internal pure returns (uint256 multiplier, uint256 step) {
        uint256 wide = SoftFloat.widen(SoftFloat.clampMin32(maximum, GRID_FLOOR));
        uint256 count = SoftFloat.fromIntTo64(int256(levels));
        multiplier = SoftFloat.narrow(SoftFloat.mul64(SoftFloat.div64(SoftFloat.ONE64, wide), count));
        step = SoftFloat.narrow(SoftFloat.mul64(wide, SoftFloat.div64(SoftFloat.ONE64, count)));
    }

    /// @return x's integer on the grid, as binary32: never -0, and 0 for NaN
    function quantise(uint256 x, uint256 multiplier) internal pure returns (uint256) {
        return SoftFloat.rint32(SoftFloat.mul32(x, multiplier));
    }

    /// @return x's integer on the grid
    function quantiseToInt(uint256 x, uint256 multiplier) internal pure returns (int256) {
        return SoftFloat.rint32ToInt(SoftFloat.mul32(x, multiplier));
    }

    /// @return +0 where |x| < 2^-100, else x
    function flush32(uint256 x) internal pure returns (uint256) {
        return x & 0x7fffffff < FLUSH ? 0 : x;
    }

    // ---- chapter 3: elementary functions --------------------------------------------------------------------------

    /// @return y e^x; +0 below -86, ∞ where binary32 ends
    function exp32(uint256 x) internal pure returns (uint256 y) {
        if (SoftFloat.isNan32(x)) return SoftFloat.NAN32;
        if (SoftFloat.less32(x, 0xc2ac0000)) return 0; // below -86
        if (SoftFloat.less32(0x42b20000, x)) x = 0x42b20000; // 89
        uint256 whole = SoftFloat.rint32(SoftFloat.mul32(x, 0x3fb8aa3b));
        // ln 2 in two parts: the first has nine bits, so its product is exact.
        uint256 rest = SoftFloat.sub32(x, SoftFloat.mul32(whole, 0x3f318000));
        rest = SoftFloat.sub32(rest, SoftFloat.mul32(whole, 0xb95e8083));
        y = SoftFloat.add32(SoftFloat.mul32(0x39506967, rest), 0x3ab743ce);
        y = SoftFloat.add32(SoftFloat.mul32(y, rest), 0x3c088908);
        y = SoftFloat.add32(SoftFloat.mul32(y, rest), 0x3d2aa9c1);
        y = SoftFloat.add32(SoftFloat.mul32(y, rest), 0x3e2aaaaa);
        y = SoftFloat.add32(SoftFloat.mul32(y, rest), 0x3f000000);
        y = SoftFloat.add32(SoftFloat.mul32(y, SoftFloat.mul32(rest, rest)), rest);
        y = SoftFloat.add32(y, SoftFloat.ONE32);
        unchecked {
            // 2^(whole - 1), whose exponent is at least 1: whole is from -124 to 128.
            uint256 power = uint256(SoftFloat.rint32ToInt(whole) + 126) << 23;
            return SoftFloat.mul32(SoftFloat.mul32(y, power), 0x40000000);
        }
    }

    /// @return 1 / (e^-x + 1)
    function sigmoid32(uint256 x) internal pure returns (uint256) {
        uint256 below = SoftFloat.add32(exp32(SoftFloat.neg32(x)), SoftFloat.ONE32);
        return SoftFloat.div32(SoftFloat.ONE32, below);
    }

    /// @return 1 / √x, root and quotient rounded
    function rsqrt32(uint256 x) internal pure returns (uint256) {
        return SoftFloat.div32(SoftFloat.ONE32, SoftFloat.sqrt32(x));
    }

    /// @return ln x; -∞ at zeros and positive subnormal numbers, NaN below zero
    function log32(uint256 x) internal pure returns (uint256) {
        if (x == SoftFloat.INF32) return x;
        if (x < 0x800000 || x == 0x80000000) return 0xff800000;
        if (x > SoftFloat.INF32) return SoftFloat.NAN32;
        // x = m · 2^e with √½ ≤ m < √2. As a word, m has the field of ½ or of 1; √½ cuts binary32's digits at 0x3504f4.
        uint256 half = (x & 0x7fffff) < 0x3504f4 ? 1 : 0;
        uint256 m = SoftFloat.widen((x & 0x7fffff) | ((126 + half) << 23));
        uint256 e = SoftFloat.fromIntTo64(int256(x >> 23) - 126 - int256(half));
        uint256 z = SoftFloat.div64(SoftFloat.sub64(m, SoftFloat.ONE64), SoftFloat.add64(m, SoftFloat.ONE64));
        uint256 a = _near(z);
        uint256 v = SoftFloat.mul64(SoftFloat.add64(a, a), _tail(a)); // twice a number is the number and itself
        v = SoftFloat.add64(SoftFloat.add64(z, z), v);
        v = SoftFloat.add64(SoftFloat.mul64(e, 0x3e1f473de6000000), v);
        return SoftFloat.narrow(SoftFloat.add64(SoftFloat.mul64(e, 0x3fe62e42fe000000), v));
    }

    /// @return y a²/3 + a⁴/5 + …, lines 2 to 4 of ln
    function _tail(uint256 a) private pure returns (uint256 y) {
        uint256 t = _near(SoftFloat.mul64(a, a));
        y = 0x3fae1e1e1e1e1e1e; // 1/17
        y = _near(SoftFloat.add64(SoftFloat.mul64(y, t), 0x3fb1111111111111));
        y = _near(SoftFloat.add64(SoftFloat.mul64(y, t), 0x3fb3b13b13b13b14));
        y = _near(SoftFloat.add64(SoftFloat.mul64(y, t), 0x3fb745d1745d1746));
        y = _near(SoftFloat.add64(SoftFloat.mul64(y, t), 0x3fbc71c71c71c71c));
        y = _near(SoftFloat.add64(SoftFloat.mul64(y, t), 0x3fc2492492492492));
        y = _near(SoftFloat.add64(SoftFloat.mul64(y, t), 0x3fc999999999999a));
        y = _near(SoftFloat.add64(SoftFloat.mul64(y, t), 0x3fd5555555555555)); // 1/3
        y = _near(SoftFloat.mul64(y, t));
    }

    /// @return the binary32 number nearest to a, as binary64
    function _near(uint256 a) private pure returns (uint256) {
        return SoftFloat.widen(SoftFloat.narrow(a));
    }

    // ---- chapter 11: random words ---------------------------------------------------------------------------------

    /// @notice Philox4x32-10.
    /// @param counter four words of 32 bits, x₀ the lowest; above them zero
    /// @param key two words, k₀ the lower; above them zero
    /// @return four words, the first the lowest
    function philox4x32(uint256 counter, uint256 key) internal pure returns (uint256) {
        unchecked {
            for (uint256 i = 0; i < 10; i++) {
                uint256 a = uint32(counter) * uint256(0xd2511f53);
                uint256 b = uint32(counter >> 64) * uint256(0xcd9e8d57);
                uint256 first = (b >> 32) ^ uint32(counter >> 32) ^ uint32(key);
                uint256 third = (a >> 32) ^ (counter >> 96) ^ (key >> 32);
                counter = first | uint256(uint32(b)) << 32 | third << 64 | uint256(uint32(a)) << 96;
                key = uint32(key + 0x9e3779b9) | uint256(uint32((key >> 32) + 0xbb67ae85)) << 32;
            }
            return counter;
        }
    }
}
