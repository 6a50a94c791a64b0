// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

/// @title A contract that learns the addresses deployed after it: once, from its own deployer.
abstract contract Wired {
    address private immutable _deployer = msg.sender;
    bool private _wired;

    error OnlyDeployer(address caller, address deployer);
    error AlreadyWired();

    modifier wiring() {
        if (msg.sender != _deployer) revert OnlyDeployer(msg.sender, _deployer);
        if (_wired) revert AlreadyWired();
        _wired = true;
        _;
    }
}
