// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {ERC20} from "@openzeppelin/contracts/token/ERC20/ERC20.sol";

/// @title A token that keeps a hundredth of every transfer.
contract FeeToken is ERC20 {
    constructor(address holder, uint256 supply) ERC20("Fee", "FEE") {
        _mint(holder, supply);
    }

    function _update(address from, address to, uint256 value) internal override {
        uint256 fee = from == address(0) ? 0 : value / 100;
        super._update(from, to, value - fee);
        if (fee > 0) super._update(from, address(0xfee), fee);
    }
}

/// @title A token whose issuer refuses some recipients.
contract BlacklistToken is ERC20 {
    mapping(address => bool) public isRefused;

    error Refused(address account);

    constructor(address holder, uint256 supply) ERC20("Black", "BLK") {
        _mint(holder, supply);
    }

    function refuse(address account) external {
        isRefused[account] = true;
    }

    function _update(address from, address to, uint256 value) internal override {
        if (isRefused[to]) revert Refused(to);
        super._update(from, to, value);
    }
}

/// @title As USDC is: six decimals, and an issuer who refuses some recipients.
contract SixDecimalsToken is BlacklistToken {
    constructor(address holder, uint256 supply) BlacklistToken(holder, supply) {}

    function decimals() public pure override returns (uint8) {
        return 6;
    }
}

/// @title A token that calls back into a contract while it transfers.
contract ReentrantToken is ERC20 {
    address public target;
    bytes public payload;
    bool public wasRefused;

    constructor(address holder, uint256 supply) ERC20("Re", "RE") {
        _mint(holder, supply);
    }

    function arm(address target_, bytes calldata payload_) external {
        (target, payload) = (target_, payload_);
    }

    function _update(address from, address to, uint256 value) internal override {
        super._update(from, to, value);
        if (target == address(0)) return;
        address called = target;
        target = address(0);
        (bool ok,) = called.call(payload);
        wasRefused = !ok;
    }
}

/// @title A token that moves nothing and says so by its answer, instead of reverting.
contract RefusingToken {
    function balanceOf(address) external pure returns (uint256) {
        return 0;
    }

    function transferFrom(address, address, uint256) external pure returns (bool) {
        return false;
    }
}
