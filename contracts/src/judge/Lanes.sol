// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

/// @title Sums, maxima and products over many numbers of a tensor, whose lanes of a word are worked
/// on together.
/// @notice `data` are whole little-endian numbers; the number of them is what its length says.
/// Nothing here reverts.
/// @dev A loop ends with the word in which `data` ends, where what stands behind it in the call's
/// data counts as zeros.
library Lanes {
    // Every second bit, every second pair of bits …, the low ones.
    uint256 private constant ODD_BITS = 0x5555555555555555555555555555555555555555555555555555555555555555;
    uint256 private constant BIT_PAIRS = 0x3333333333333333333333333333333333333333333333333333333333333333;
    uint256 private constant HALF_BYTES = 0x0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f;
    uint256 private constant BYTES = 0x00ff00ff00ff00ff00ff00ff00ff00ff00ff00ff00ff00ff00ff00ff00ff00ff;
    uint256 private constant PAIRS = 0x0000ffff0000ffff0000ffff0000ffff0000ffff0000ffff0000ffff0000ffff;
    uint256 private constant FOURS = 0x00000000ffffffff00000000ffffffff00000000ffffffff00000000ffffffff;
    uint256 private constant EIGHTS = 0x0000000000000000ffffffffffffffff0000000000000000ffffffffffffffff;
    // One bit of every lane.
    uint256 private constant SIGNS8 = 0x8080808080808080808080808080808080808080808080808080808080808080;
    uint256 private constant SIGNS32 = 0x8000000080000000800000008000000080000000800000008000000080000000;
    uint256 private constant SIGNS64 = 0x8000000000000000800000000000000080000000000000008000000000000000;
    uint256 private constant ONES32 = 0x0000000100000001000000010000000100000001000000010000000100000001;
    uint256 private constant ONES64 = 0x0000000000000001000000000000000100000000000000010000000000000001;
    uint256 private constant BYTE32 = 0x000000ff000000ff000000ff000000ff000000ff000000ff000000ff000000ff;
    uint256 private constant MANTISSAS = 0x007fffff007fffff007fffff007fffff007fffff007fffff007fffff007fffff;
    uint256 private constant LEADING = 0x0080000000800000008000000080000000800000008000000080000000800000;
    uint256 private constant NAN32 = 0x7fc00000;
    /// -0 as `max` orders it.
    uint256 private constant MINUS_ZERO = 0x7fffffff;

    /// @return word the 32 bytes at `position`, zeros behind the end, and each number of 32 bits
    /// the right way round
    function _eight(bytes calldata data, uint256 position) private pure returns (uint256 word) {
        assembly ("memory-safe") {
            word := calldataload(add(data.offset, position))
            let left := sub(data.length, position)
            if lt(left, 32) {
                let beyond := sub(256, shl(3, left))
                word := shl(beyond, shr(beyond, word))
            }
            word := or(shl(8, and(word, BYTES)), and(shr(8, word), BYTES))
            word := or(shl(16, and(word, PAIRS)), and(shr(16, word), PAIRS))
        }
    }

    /// @return word the same, of numbers of 64 bits
    function _four(bytes calldata data, uint256 position) private pure returns (uint256 word) {
        word = _eight(data, position);
        return ((word & FOURS) << 32) | ((word >> 32) & FOURS);
    }

    /// @return the sum of four lanes of 64 bits
    function _folded(uint256 lanes) private pure returns (uint256) {
        unchecked {
            return (lanes >> 192) + uint64(lanes >> 128) + uint64(lanes >> 64) + uint64(lanes);
        }
    }

    // ---- sums
    // -----------------------------------------------------------------------------------------------------

    /// @return Σ of i32
    function sumI32(bytes calldata data) internal pure returns (int256) {
        unchecked {
            uint256 lanes; // of 64 bits, of numbers with 2^31 added
            uint256 position;
            for (; position < data.length; position += 32) {
                uint256 word = _eight(data, position) ^ SIGNS32;
                lanes += (word & FOURS) + ((word >> 32) & FOURS);
            }
            return int256(_folded(lanes)) - int256(position << 29);
        }
    }

    /// @return Σ of i64
    function sumI64(bytes calldata data) internal pure returns (int256) {
        unchecked {
            uint256 lanes; // of 128 bits, of numbers with 2^63 added
            uint256 position;
            for (; position < data.length; position += 32) {
                uint256 word = _four(data, position) ^ SIGNS64;
                lanes += (word & EIGHTS) + ((word >> 64) & EIGHTS);
            }
            return int256((lanes >> 128) + uint128(lanes)) - int256(position << 60);
        }
    }

    /// @return how many i32 are not negative
    function countI32(bytes calldata data) internal pure returns (uint256) {
        unchecked {
            uint256 negative;
            for (uint256 position; position < data.length; position += 32) {
                negative += (_eight(data, position) >> 31) & ONES32;
            }
            // 2^32 is 1 modulo 2^32 - 1: the remainder is the sum of the lanes.
            return data.length / 4 - negative % 0xffffffff;
        }
    }

    /// @return how many sort keys (id · 2^32 + index) have an id below this
    function countBelow(bytes calldata data, uint256 id) internal pure returns (uint256) {
        if (id == 0) return 0;
        unchecked {
            // In a lane of 64 bits, 2^32 + id - 1 less a key's id has the bit 2^32 where the key's
            // id is below.
            uint256 bound = (0xffffffff + id) * ONES64;
            uint256 below;
            uint256 position;
            for (; position < data.length; position += 32) {
                below += ((bound - ((_four(data, position) >> 32) & FOURS)) >> 32) & ONES64;
            }
            // The zeros behind the end have been counted.
            return _folded(below) - (position - data.length) / 8;
        }
    }

    /// @param magnitude of f32 by its bits, at most 2^31
    /// @return how many f32 have it or a larger one
    function countFrom(bytes calldata data, uint256 magnitude) internal pure returns (uint256) {
        if (magnitude == 0) return data.length / 4; // all, and no zero behind the end
        unchecked {
            // Of a lane of 32 bits, whose number is below 2^31: with 2^31 added, less a bound, that
            // bit stays from it on.
            uint256 bound = magnitude * ONES32;
            uint256 lanes;
            for (uint256 position; position < data.length; position += 32) {
                lanes += (((_eight(data, position) | SIGNS32) - bound) >> 31) & ONES32;
            }
            return lanes % 0xffffffff;
        }
    }

    // ---- flags: eight a byte, the first in the lowest bit; `length` of them
    // ---------------------------------------

    /// @return count how many are set
    function countSet(bytes calldata data, uint256 length) internal pure returns (uint256 count) {
        unchecked {
            for (uint256 position; position < length; position += 256) {
                count += _sixteens(_flags(data, length, position)) % 0xffff;
            }
        }
    }

    /// @return position of the set one before which there are so many; `length` where there is none
    function positionOf(bytes calldata data, uint256 length, uint256 before) internal pure returns (uint256 position) {
        unchecked {
            for (; position < length; position += 256) {
                uint256 word = _flags(data, length, position);
                uint256 lanes = _sixteens(word);
                uint256 count = lanes % 0xffff;
                if (count <= before) {
                    before -= count;
                    continue;
                }
                for (; lanes & 0xffff <= before; lanes >>= 16) {
                    before -= lanes & 0xffff;
                    word >>= 16;
                    position += 16;
                }
                for (;; ++position) {
                    if (word & 1 == 1 && before-- == 0) return position;
                    word >>= 1;
                }
            }
            return length;
        }
    }

    /// @notice Flags in unary: of every 16 a 1 for each that is set, and a 0.
    /// @param most so many of the set ones count
    /// @return bits eight of what that gives, from the bit at `first` on, which is lowest; zeros
    /// behind its end
    function unary(bytes calldata data, uint256 length, uint256 most, uint256 first)
        internal
        pure
        returns (uint256 bits)
    {
        unchecked {
            uint256 end; // of what the flags so far give
            for (uint256 position; position < length && end < first + 8; position += 256) {
                uint256 lanes = _sixteens(_flags(data, length, position));
                uint256 count = lanes % 0xffff;
                if (end + count + 16 <= first && count <= most) {
                    (most, end) = (most - count, end + count + 16);
                    continue;
                }
                for (uint256 i; i < 16; ++i) {
                    count = lanes & 0xffff < most ? lanes & 0xffff : most;
                    uint256 ones = (1 << count) - 1;
                    bits |= end < first ? ones >> (first - end) : ones << (end - first);
                    (most, end) = (most - count, end + count + 1);
                    lanes >>= 16;
                }
            }
            return bits & 0xff;
        }
    }

    /// @return word 256 flags from number `position` on, the first in its lowest bit; zeros behind
    /// the end
    function _flags(bytes calldata data, uint256 length, uint256 position) private pure returns (uint256 word) {
        word = _four(data, position / 8);
        word = ((word & EIGHTS) << 64) | ((word >> 64) & EIGHTS);
        word = (word << 128) | (word >> 128);
        return length - position < 256 ? word & ((1 << (length - position)) - 1) : word;
    }

    /// @return how many bits of each lane of 16 are set
    function _sixteens(uint256 word) private pure returns (uint256) {
        unchecked {
            word -= (word >> 1) & ODD_BITS;
            word = (word & BIT_PAIRS) + ((word >> 2) & BIT_PAIRS);
            word = (word + (word >> 4)) & HALF_BYTES;
            return (word & BYTES) + ((word >> 8) & BYTES);
        }
    }

    // ---- maxima
    // ---------------------------------------------------------------------------------------------------

    /// @return the larger of every lane of 64 bits, whose numbers are below 2^32
    function _larger(uint256 a, uint256 b) private pure returns (uint256) {
        unchecked {
            // The bit 2^32 stays where b is not more.
            uint256 mask = ((((a | (ONES64 << 32)) - b) >> 32) & ONES64) * 0xffffffff;
            return b ^ ((a ^ b) & mask);
        }
    }

    /// @return largest the largest of four lanes of 64 bits
    function _largest(uint256 lanes) private pure returns (uint256 largest) {
        for (; lanes != 0; lanes >>= 64) {
            if (uint64(lanes) > largest) largest = uint64(lanes);
        }
    }

    /// @return the largest magnitude of f32; NaN where any is NaN
    function maxAbs(bytes calldata data) internal pure returns (uint256) {
        uint256 lanes;
        for (uint256 position; position < data.length;) {
            // Magnitudes are in the order of their words, NaN above ∞.
            uint256 word = _eight(data, position) & ~SIGNS32;
            lanes = _larger(_larger(lanes, word & FOURS), (word >> 32) & FOURS);
            unchecked {
                position += 32;
            }
        }
        uint256 largest = _largest(lanes);
        return largest > 0x7f800000 ? NAN32 : largest;
    }

    /// @return the largest of f32; NaN where any is NaN, and +0 where it is a zero
    function max(bytes calldata data) internal pure returns (uint256) {
        unchecked {
            uint256 lanes;
            uint256 nans;
            uint256 end = data.length & ~uint256(31);
            for (uint256 position; position < end; position += 32) {
                uint256 word = _eight(data, position);
                nans |= (word & ~SIGNS32) + MANTISSAS; // above ∞ alone this has the sign's bit
                word = _ordered(word);
                lanes = _larger(_larger(lanes, word & FOURS), (word >> 32) & FOURS);
            }
            uint256 largest = _largest(lanes);
            // The zeros behind the end would be larger than negative numbers.
            uint256 rest = _eight(data, end);
            for (uint256 left = data.length - end; left != 0; left -= 4) {
                nans |= ((rest >> 224) & 0x7fffffff) + 0x7fffff;
                uint256 key = _ordered(rest) >> 224;
                if (key > largest) largest = key;
                rest <<= 32;
            }
            if (nans & SIGNS32 != 0) return NAN32;
            if (largest <= MINUS_ZERO) return largest == MINUS_ZERO ? 0 : largest ^ 0xffffffff;
            return largest ^ 0x80000000;
        }
    }

    /// @return every lane of 32 bits such that f32 are in the order of their words: negative ones
    /// turned round
    function _ordered(uint256 word) private pure returns (uint256) {
        unchecked {
            return word ^ (SIGNS32 | (((word >> 31) & ONES32) * 0x7fffffff));
        }
    }

    // ---- grids
    // ----------------------------------------------------------------------------------------------------

    /// @notice Σ rint(x · up) of f32, or of its squares.
    /// @param up a positive normal number, else the sum is 0: a grid has 0 or NaN where its line is
    /// not finite, and then all integers are 0
    /// @dev x · up = p · 2^-down is rounded to 24 digits, as binary32 is, and then to an integer.
    /// The first rounding moves it by at most 2^23 · 2^-down, and not at all where `up` is a power
    /// of two. Where it is not that close to a half between two integers, nor itself above 2^24,
    /// the second alone gives the same. What is no normal number gives 0: zeros and subnormal
    /// numbers, taken with a leading one, are far below a half, as up is at most 2^119; NaN, which
    /// is summed without a grid alone, at factors of 2^23 and more, has a `down` below 0.
    function sumRounded(bytes calldata data, uint256 up, bool squared) internal pure returns (int256 total) {
        if (up < 0x800000 || up > 0x7f7fffff) return 0;
        uint256 field = up >> 23;
        up = (up & 0x7fffff) | 0x800000;
        for (uint256 position; position < data.length;) {
            uint256 word = _eight(data, position);
            assembly ("memory-safe") {
                let moved := shl(23, gt(up, 0x800000))
                for {} word { word := shr(32, word) } {
                    let p := mul(or(and(word, 0x7fffff), 0x800000), up)
                    let down := sub(300, add(field, and(shr(23, word), 0xff)))
                    let unit := shl(down, 1)
                    let n := add(p, shr(1, unit))
                    switch gt(and(add(n, moved), sub(unit, 1)), shl(1, moved))
                    case 0 {
                        let cut := add(23, shr(47, p))
                        n := shr(cut, add(add(p, sub(shl(sub(cut, 1), 1), 1)), and(shr(cut, p), 1)))
                        switch sgt(down, cut)
                        case 0 { n := shl(sub(cut, down), n) }
                        default {
                            cut := sub(down, cut)
                            n := shr(cut, add(add(n, sub(shl(sub(cut, 1), 1), 1)), and(shr(cut, n), 1)))
                        }
                    }
                    default { n := shr(down, n) }
                    switch squared
                    case 0 {
                        let sign := sub(0, and(shr(31, word), 1))
                        total := add(total, sub(xor(n, sign), sign))
                    }
                    default { total := add(total, mul(n, n)) }
                }
            }
            unchecked {
                position += 32;
            }
        }
    }

    // ---- products
    // -------------------------------------------------------------------------------------------------

    /// @return total Σ of products of i8 with i8, of as many as both have, 8 products a
    /// multiplication
    /// @dev With 128 added to each, Σ (a - 128)(b - 128) = Σ ab - 128 Σ (a + b) + 2^14 n. Every
    /// fourth byte of a word becomes a lane of 32 bits of x, and of y in the opposite order: the
    /// top lane of x · y is the sum of eight products, and no lane is more than 8 · 255^2. Bytes
    /// are summed in lanes of 16 bits: of 64 words of both at most 64 · 1020.
    function dotI8(bytes calldata a, bytes calldata b) internal pure returns (int256 total) {
        unchecked {
            uint256 length = a.length < b.length ? a.length : b.length;
            uint256 all;
            for (uint256 position; position < length; position += 2048) {
                uint256 last = length - position < 2048 ? length : position + 2048;
                (uint256 products, uint256 sums) = _products(a, b, position, last);
                total += int256(products);
                all += (sums & PAIRS) % 0xffffffff + ((sums >> 16) & PAIRS) % 0xffffffff;
            }
            uint256 count = (length + 31) & ~uint256(31);
            total += int256(count << 14) - int256(all << 7);
        }
    }

    /// @return products Σ of the products of bytes from `position` to `last`, 128 added to each;
    /// zeros, so 128, to a whole word
    /// @return sums Σ of the same bytes of both, in lanes of 16 bits
    function _products(bytes calldata a, bytes calldata b, uint256 position, uint256 last)
        private
        pure
        returns (uint256 products, uint256 sums)
    {
        assembly ("memory-safe") {
            for {} lt(position, last) { position := add(position, 32) } {
                let x := calldataload(add(a.offset, position))
                let y := calldataload(add(b.offset, position))
                if lt(sub(last, position), 32) {
                    let beyond := sub(256, shl(3, sub(last, position)))
                    x := shl(beyond, shr(beyond, x))
                    y := shl(beyond, shr(beyond, y))
                }
                x := xor(x, SIGNS8)
                y := xor(y, SIGNS8)
                sums := add(
                    sums,
                    add(add(and(x, BYTES), and(shr(8, x), BYTES)), add(and(y, BYTES), and(shr(8, y), BYTES)))
                )
                y := or(shr(128, y), shl(128, y))
                y := or(and(shr(64, y), EIGHTS), shl(64, and(y, EIGHTS)))
                y := or(and(shr(32, y), FOURS), shl(32, and(y, FOURS)))
                let eight := shr(224, mul(and(x, BYTE32), and(y, BYTE32)))
                eight := add(eight, shr(224, mul(and(shr(8, x), BYTE32), and(shr(8, y), BYTE32))))
                eight := add(eight, shr(224, mul(and(shr(16, x), BYTE32), and(shr(16, y), BYTE32))))
                products := add(products, eight)
                products := add(products, shr(224, mul(and(shr(24, x), BYTE32), and(shr(24, y), BYTE32))))
            }
        }
    }

    /// @return total Σ of products of integers held in f32, of as many as both have
    /// @dev A number is m · 2^(field - 150): the product of two is an integer again, so the shift
    /// loses nothing. The field of 0, and of what stands behind the end, is 0, and then no digit
    /// stays.
    function dotF32(bytes calldata a, bytes calldata b) internal pure returns (int256 total) {
        uint256 length = a.length < b.length ? a.length : b.length;
        for (uint256 position; position < length;) {
            uint256 x = _eight(a, position);
            uint256 y = _eight(b, position);
            assembly ("memory-safe") {
                let signs := shr(31, xor(x, y))
                let fields := add(and(shr(23, x), BYTE32), and(shr(23, y), BYTE32))
                x := or(and(x, MANTISSAS), LEADING)
                y := or(and(y, MANTISSAS), LEADING)
                for {} x { x := shr(32, x) } {
                    let n := shr(sub(300, and(fields, 0x1ff)), mul(and(x, 0xffffff), and(y, 0xffffff)))
                    let sign := sub(0, and(signs, 1))
                    total := add(total, sub(xor(n, sign), sign))
                    y := shr(32, y)
                    fields := shr(32, fields)
                    signs := shr(32, signs)
                }
            }
            unchecked {
                position += 32;
            }
        }
    }
}
