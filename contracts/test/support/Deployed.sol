// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {Vm} from "./Vm.sol";

Vm constant CHEATS = Vm(address(uint160(uint256(keccak256("hevm cheat code")))));

/// @dev A contract by its file's name, created by the caller, from what forge compiled last. `new` would have its code
/// inside of every test, where `tests/mutants/contracts.py` could not put another in its place.
/// @param args of its constructor, as ABI-encoded
function deployed(string memory name, bytes memory args) returns (address made) {
    bytes memory creation = bytes.concat(CHEATS.getCode(string.concat(name, ".sol:", name)), args);
    assembly ("memory-safe") {
        made := create(0, add(creation, 32), mload(creation))
        if iszero(made) {
            returndatacopy(0, 0, returndatasize())
            revert(0, returndatasize())
        }
    }
}
