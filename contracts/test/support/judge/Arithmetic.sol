// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {Elementary} from "../../../src/judge/Elementary.sol";
import {SoftFloat} from "../../../src/judge/SoftFloat.sol";

/// @title Every function of SoftFloat and Elementary by number, for many operands at once.
/// @dev tests/judge/operations.py has the operations in this order. An operand is 16 big-endian
/// bytes, two words of 64 bits, and so is a result; where there is one word of result it is the
/// second.
contract Arithmetic {
    error NoSuchOperation(uint256 operation);

    /// @param operands n times 16 bytes
    /// @return results n times 16 bytes
    function many(uint256 operation, bytes calldata operands) external pure returns (bytes memory results) {
        function(uint256, uint256) pure returns (uint256) f = pick(operation);
        uint256 length = operands.length;
        results = new bytes(length + 16); // the last result is written with 16 bytes more
        unchecked {
            for (uint256 position; position < length; position += 16) {
                uint256 word;
                assembly ("memory-safe") {
                    word := calldataload(add(operands.offset, position))
                }
                word = f(word >> 192, (word >> 128) & 0xffffffffffffffff) << 128;
                assembly ("memory-safe") {
                    mstore(add(add(results, 32), position), word)
                }
            }
        }
        assembly ("memory-safe") {
            mstore(results, length)
        }
    }

    /// @return total the gas of one operation on each of n operands, without that of calling it
    /// @return most that of the dearest
    function gasOf(uint256 operation, bytes calldata operands) external view returns (uint256 total, uint256 most) {
        function(uint256, uint256) view returns (uint256) f = pick(operation);
        for (uint256 i = 0; i < operands.length; i += 16) {
            uint256 word;
            assembly ("memory-safe") {
                word := calldataload(add(operands.offset, i))
            }
            (uint256 a, uint256 b) = (word >> 192, (word >> 128) & 0xffffffffffffffff);
            uint256 nothing = used(first, a, b);
            uint256 gas = used(f, a, b) - nothing;
            total += gas;
            if (gas > most) most = gas;
        }
    }

    function used(function(uint256, uint256) view returns (uint256) f, uint256 a, uint256 b)
        private
        view
        returns (uint256)
    {
        uint256 before = gasleft();
        f(a, b);
        return before - gasleft();
    }

    function first(uint256 a, uint256) private pure returns (uint256) {
        return a;
    }

    function pick(uint256 operation) internal pure returns (function(uint256, uint256) pure returns (uint256)) {
        if (operation < 14) return pickFirst(operation);
        if (operation < 29) return pickSecond(operation);
        if (operation == 29) return exp32;
        if (operation == 30) return log32;
        if (operation == 31) return sigmoid32;
        if (operation == 32) return rsqrt32;
        if (operation == 33) return Elementary.quantise;
        if (operation == 34) return quantiseToInt;
        if (operation == 35) return steps;
        if (operation == 36) return philox4x32;
        revert NoSuchOperation(operation);
    }

    function pickFirst(uint256 operation) private pure returns (function(uint256, uint256) pure returns (uint256)) {
        if (operation == 0) return SoftFloat.add32;
        if (operation == 1) return SoftFloat.sub32;
        if (operation == 2) return SoftFloat.mul32;
        if (operation == 3) return SoftFloat.div32;
        if (operation == 4) return sqrt32;
        if (operation == 5) return neg32;
        if (operation == 6) return abs32;
        if (operation == 7) return SoftFloat.max32;
        if (operation == 8) return less32;
        if (operation == 9) return lessEqual32;
        if (operation == 10) return equal32;
        if (operation == 11) return isNan32;
        if (operation == 12) return SoftFloat.clampMin32;
        return SoftFloat.clampMax32;
    }

    function pickSecond(uint256 operation) private pure returns (function(uint256, uint256) pure returns (uint256)) {
        if (operation == 14) return rint32;
        if (operation == 15) return rint32ToInt;
        if (operation == 16) return fromInt32;
        if (operation == 17) return widen;
        if (operation == 18) return narrow;
        if (operation == 19) return SoftFloat.add64;
        if (operation == 20) return SoftFloat.sub64;
        if (operation == 21) return SoftFloat.mul64;
        if (operation == 22) return SoftFloat.div64;
        if (operation == 23) return sqrt64;
        if (operation == 24) return neg64;
        if (operation == 25) return abs64;
        if (operation == 26) return isNan64;
        if (operation == 27) return less64;
        return fromIntTo64;
    }

    function sqrt32(uint256 a, uint256) private pure returns (uint256) {
        return SoftFloat.sqrt32(a);
    }

    function neg32(uint256 a, uint256) private pure returns (uint256) {
        return SoftFloat.neg32(a);
    }

    function abs32(uint256 a, uint256) private pure returns (uint256) {
        return SoftFloat.abs32(a);
    }

    function less32(uint256 a, uint256 b) private pure returns (uint256) {
        return SoftFloat.less32(a, b) ? 1 : 0;
    }

    function lessEqual32(uint256 a, uint256 b) private pure returns (uint256) {
        return SoftFloat.lessEqual32(a, b) ? 1 : 0;
    }

    function equal32(uint256 a, uint256 b) private pure returns (uint256) {
        return SoftFloat.equal32(a, b) ? 1 : 0;
    }

    function isNan32(uint256 a, uint256) private pure returns (uint256) {
        return SoftFloat.isNan32(a) ? 1 : 0;
    }

    function rint32(uint256 a, uint256) private pure returns (uint256) {
        return SoftFloat.rint32(a);
    }

    /// Its lowest 128 bits.
    function rint32ToInt(uint256 a, uint256) private pure returns (uint256) {
        return uint256(SoftFloat.rint32ToInt(a));
    }

    /// Of an integer of 128 bits.
    function fromInt32(uint256 a, uint256 b) private pure returns (uint256) {
        return SoftFloat.fromInt32(int128(uint128((a << 64) | b)));
    }

    function fromIntTo64(uint256 a, uint256 b) private pure returns (uint256) {
        return SoftFloat.fromIntTo64(int128(uint128((a << 64) | b)));
    }

    function widen(uint256 a, uint256) private pure returns (uint256) {
        return SoftFloat.widen(a);
    }

    function narrow(uint256 a, uint256) private pure returns (uint256) {
        return SoftFloat.narrow(a);
    }

    function sqrt64(uint256 a, uint256) private pure returns (uint256) {
        return SoftFloat.sqrt64(a);
    }

    function neg64(uint256 a, uint256) private pure returns (uint256) {
        return SoftFloat.neg64(a);
    }

    function abs64(uint256 a, uint256) private pure returns (uint256) {
        return SoftFloat.abs64(a);
    }

    function isNan64(uint256 a, uint256) private pure returns (uint256) {
        return SoftFloat.isNan64(a) ? 1 : 0;
    }

    function less64(uint256 a, uint256 b) private pure returns (uint256) {
        return SoftFloat.less64(a, b) ? 1 : 0;
    }

    function exp32(uint256 a, uint256) private pure returns (uint256) {
        return Elementary.exp32(a);
    }

    function log32(uint256 a, uint256) private pure returns (uint256) {
        return Elementary.log32(a);
    }

    function sigmoid32(uint256 a, uint256) private pure returns (uint256) {
        return Elementary.sigmoid32(a);
    }

    function rsqrt32(uint256 a, uint256) private pure returns (uint256) {
        return Elementary.rsqrt32(a);
    }

    function quantiseToInt(uint256 a, uint256 b) private pure returns (uint256) {
        return uint256(Elementary.quantiseToInt(a, b));
    }

    /// Of 1 to 2^22 levels.
    function steps(uint256 a, uint256 b) private pure returns (uint256) {
        (uint256 multiplier, uint256 step) = Elementary.steps(a, 1 + (b & 0x3fffff));
        return (multiplier << 64) | step;
    }

    /// Under a key that follows from the counter.
    function philox4x32(uint256 a, uint256 b) private pure returns (uint256) {
        return Elementary.philox4x32((a << 64) | b, a ^ b);
    }
}
