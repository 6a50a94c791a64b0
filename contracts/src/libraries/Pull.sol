// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {IERC20} from "@openzeppelin/contracts/token/ERC20/IERC20.sol";
import {SafeERC20} from "@openzeppelin/contracts/token/ERC20/utils/SafeERC20.sol";

/// @title Taking tokens in from the caller, and from nobody else: exactly the amount asked for, or nothing.
library Pull {
    using SafeERC20 for IERC20;

    error TransferFee(uint256 asked, uint256 received);

    function exactly(IERC20 token, uint256 amount) internal {
        uint256 before = token.balanceOf(address(this));
        token.safeTransferFrom(msg.sender, address(this), amount);
        uint256 received = token.balanceOf(address(this)) - before;
        if (received != amount) revert TransferFee(amount, received);
    }
}
