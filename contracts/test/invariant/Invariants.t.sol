// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {Escrow} from "../../src/interfaces/IJobs.sol";
import {Check} from "../support/Check.sol";
import {Handler} from "./Handler.sol";

/// @title What holds after any sequence of actions of two jobs' people.
contract InvariantsTest is Check {
    struct FuzzSelector {
        address addr;
        bytes4[] selectors;
    }

    Handler internal handler;

    function setUp() public {
        handler = new Handler();
    }

    function targetContracts() external view returns (address[] memory targets) {
        targets = new address[](1);
        targets[0] = address(handler);
    }

    /// @dev Rounds go on most of the time, so that there is something to be about.
    function targetSelectors() external view returns (FuzzSelector[] memory targets) {
        bytes4[] memory s = new bytes4[](36);
        for (uint256 i = 0; i < 12; i++) {
            s[i] = Handler.step.selector;
        }
        (s[12], s[13], s[14], s[15]) =
            (Handler.skip.selector, Handler.pass.selector, Handler.leaveSeat.selector, Handler.sitDown.selector);
        (s[16], s[17], s[18], s[19]) = (
            Handler.outbid.selector,
            Handler.disagree.selector,
            Handler.cutMember.selector,
            Handler.release.selector
        );
        (s[20], s[21], s[22], s[23]) = (
            Handler.ballotOne.selector,
            Handler.openOne.selector,
            Handler.keyOne.selector,
            Handler.contestOne.selector
        );
        (s[24], s[25], s[26], s[27]) = (
            Handler.settleContestOne.selector,
            Handler.contestKeyOne.selector,
            Handler.leakOne.selector,
            Handler.punish.selector
        );
        (s[28], s[29], s[30], s[31]) = (
            Handler.challengeOne.selector,
            Handler.endGame.selector,
            Handler.claimOne.selector,
            Handler.creditOne.selector
        );
        (s[32], s[33], s[34], s[35]) =
            (Handler.burnOne.selector, Handler.refundOne.selector, Handler.sinkAll.selector, Handler.cancelOne.selector);
        targets = new FuzzSelector[](1);
        targets[0] = FuzzSelector(address(handler), s);
    }

    function invariant_P01_fundedIsClaimedRefundedBurntAndBalance() external view {
        (Escrow[2] memory e, uint256 tokens) = handler.escrows();
        uint256 sum;
        for (uint256 i = 0; i < 2; i++) {
            same(e[i].funded, e[i].claimed + e[i].refunded + e[i].burnt + e[i].balance, "the identity");
            sum += e[i].balance;
        }
        same(tokens, sum, "tokens held");
    }

    function invariant_P03_P35_paidAndBurntAreWithinWhatRoundsEarn() external view {
        (Escrow[2] memory e,) = handler.escrows();
        for (uint256 i = 0; i < 2; i++) {
            atMost(e[i].claimed + e[i].burnt, handler.mayEarn(handler.jobIds(i)), "spent");
        }
    }

    function invariant_P07_balanceCoversStakes() external view {
        same(handler.stakesTokens(), handler.staked(), "active and thawing");
    }

    function invariant_P36_P38_whatIsFinalStands() external {
        handler.requireFinalRowsStand();
    }

    /// P09, P28: nobody's funds are locked after the absolute end.
    function afterInvariant() external {
        handler.drain();
    }
}
