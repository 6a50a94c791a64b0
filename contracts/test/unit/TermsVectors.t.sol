// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {Params} from "../../src/interfaces/IConfig.sol";
import {TermsCheck} from "../../src/libraries/TermsCheck.sol";
import "../../src/types/Types.sol";
import {Check} from "../support/Check.sol";

/// @title Terms at each bound, as the law in Python wrote them (tests/vectors/terms.json).
contract TermsVectorsTest is Check {
    string internal json;
    uint256 internal longestGame;
    uint32 internal minMove = 1;
    uint32 internal minPunishable;

    function setUp() public {
        json = vm.readFile("../tests/vectors/terms.json");
        vm.warp(vm.parseJsonUint(json, ".deployment.now"));
        longestGame = type(uint256).max;
    }

    function test_whatTheLawAloneBounds() public view {
        compare(".heldByBoth");
    }

    function test_whatTheDeploymentAndItsClockBound() public {
        longestGame = vm.parseJsonUint(json, ".deployment.longestGame");
        minMove = uint32(vm.parseJsonUint(json, ".deployment.minMove"));
        minPunishable = uint32(vm.parseJsonUint(json, ".deployment.minPunishable"));
        compare(".heldByTheContract");
    }

    function compare(string memory path) private view {
        check(isTaken(vm.parseJsonBytes(json, ".base")), "the base");
        column(string.concat(path, ".taken"), true);
        column(string.concat(path, ".refused"), false);
    }

    /// @dev Every term is one word of the encoding, so the one with a number is overwritten there.
    function column(string memory path, bool isValid) private view {
        uint256[] memory indices = vm.parseJsonUintArray(json, string.concat(path, ".index"));
        uint256[] memory values = vm.parseJsonUintArray(json, string.concat(path, ".value"));
        check(indices.length > 2 && indices.length == values.length, "there are cases");
        for (uint256 i = 0; i < indices.length; i++) {
            bytes memory terms = vm.parseJsonBytes(json, ".base");
            (uint256 offset, uint256 value) = (32 * (indices[i] + 1), values[i]);
            assembly ("memory-safe") { mstore(add(terms, offset), value) }
            check(isTaken(terms) == isValid, string.concat(path, " ", vm.toString(i)));
        }
    }

    /// @return whether the contracts take these terms; a number too wide for its field is none
    function isTaken(bytes memory encoded) private view returns (bool) {
        try this.decode(encoded) returns (Terms memory t) {
            try this.requireValid(t) {
                return true;
            } catch {
                return false;
            }
        } catch {
            return false;
        }
    }

    function decode(bytes calldata encoded) external pure returns (Terms memory) {
        return abi.decode(encoded, (Terms));
    }

    function requireValid(Terms calldata t) external view {
        uint256 least = vm.parseJsonUint(json, ".deployment.minWindow");
        uint128 bond = uint128(vm.parseJsonUint(json, ".deployment.minBond"));
        Params memory p;
        (p.minWindow, p.minProviderBond, p.minVerifierBond) = (uint32(least), bond, bond);
        (p.minMove, p.minPunishable) = (minMove, minPunishable);
        TermsCheck.requireValid(t, p, longestGame);
    }
}
