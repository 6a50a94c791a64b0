// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {Escrow} from "../../src/interfaces/IJobs.sol";
import {Check} from "../support/Check.sol";
import {Handler} from "./Handler.sol";
import {deployed} from "../support/Deployed.sol";

/// @title What holds after any sequence of actions of two jobs' people.
contract InvariantsTest is Check {
    struct FuzzSelector {
        address addr;
        bytes4[] selectors;
    }

    event log_named_uint(string what, uint256 value); // forge prints it with -vv

    Handler internal handler;

    function setUp() public {
        handler = Handler(deployed("Handler", ""));
    }

    function targetContracts() external view returns (address[] memory targets) {
        targets = new address[](1);
        targets[0] = address(handler);
    }

    /// @dev Rounds go on most of the time, so that there is something to be about.
    function targetSelectors() external view returns (FuzzSelector[] memory targets) {
        bytes4[] memory s = new bytes4[](37);
        for (uint256 i = 0; i < 12; i++) {
            s[i] = Handler.step.selector;
        }
        (s[12], s[13], s[14], s[15]) =
        (Handler.skip.selector, Handler.pass.selector, Handler.leaveSeat.selector, Handler.joinSeat.selector);
        (s[16], s[17], s[18], s[19]) =
        (Handler.outbid.selector, Handler.disagree.selector, Handler.penaliseMember.selector, Handler.release.selector);
        (s[20], s[21], s[22], s[23]) =
        (
            Handler.auditReportOne.selector,
            Handler.openAll.selector,
            Handler.keyOne.selector,
            Handler.contestOne.selector
        );
        (s[24], s[25], s[26], s[27]) =
        (Handler.settleContestOne.selector, Handler.punish.selector, Handler.leakOne.selector, Handler.punish.selector);
        (s[28], s[29], s[30], s[31]) =
        (Handler.challengeOne.selector, Handler.endGame.selector, Handler.claimOne.selector, Handler.creditOne.selector);
        (s[32], s[33], s[34], s[35]) =
        (Handler.burnOne.selector, Handler.refundOne.selector, Handler.sinkAll.selector, Handler.cancelOne.selector);
        s[36] = Handler.withholdOne.selector;
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

    function invariant_P03_theEscrowCountsWhatSomebodyEarned() external view {
        for (uint256 i = 0; i < 2; i++) {
            (uint256 rows, uint256 counted) = handler.segments(handler.jobIds(i));
            same(rows, counted, "segments");
        }
    }

    function invariant_P07_balanceCoversStakes() external view {
        same(handler.stakesTokens(), handler.staked(), "active and unbonding");
    }

    function invariant_P23_noCommitteeOfAnotherRoundSettles() external view {
        same(handler.forged(), 0, "settlements by who is not the committee");
    }

    function invariant_P36_P38_whatIsFinalStands() external {
        handler.requireFinalRowsStand();
    }

    /// The actions get somewhere: rounds settle, members miss duties and are slashed, games end,
    /// everybody is paid.
    function test_theHandlerPlaysWholeJobs() public {
        uint256 x = 23;
        for (uint256 i = 0; i < 700; i++) {
            x = uint256(keccak256(abi.encode(x)));
            this.act(x);
        }
        (uint256 settled, uint256 slashes, uint256 missedDuties, uint256 opened) = handler.progress();
        emit log_named_uint("actions that were not refused", handler.done());
        emit log_named_uint("rounds settled", settled);
        emit log_named_uint("slashes", slashes);
        emit log_named_uint("missedDuties", missedDuties);
        emit log_named_uint("duties opened", opened);
        emit log_named_uint("paid", handler.paidOut());
        atMost(200, handler.done(), "actions that were not refused");
        atMost(12, settled, "rounds settled");
        atMost(1, slashes, "slashes");
        atMost(4, missedDuties, "missedDuties");
        atMost(2, opened, "audit reports opened");
        atMost(1, handler.paidOut(), "paid");
        handler.drain();
    }

    /// A fee waits for a game about what its auditor called valid, which a random play rarely comes to.
    function test_theHandlerLetsFeesWait() public {
        for (uint256 settled = 0; settled < 2; (settled,,,) = handler.progress()) {
            handler.step(0, 0, 1);
        }
        for (uint256 slot = 0; slot < 3; slot++) {
            handler.auditReportOne(0, 1, slot, 1);
        }
        handler.skip(200);
        handler.openAll(0, 23);
        handler.challengeOne(0, 1, 2, 3);
        for (uint256 slot = 0; slot < 3; slot++) {
            handler.withholdOne(0, 0, slot);
        }
        same(handler.withheld(), 1, "the fee of the seat's auditor");
        handler.endGame(0, 0, true);
        handler.drain();
    }

    function act(uint256 x) external {
        (uint256 i, uint256 a, uint256 b, uint256 c) = (x >> 8 & 1, x >> 16 & 0xffffffff, x >> 48 & 0xffffffff, x >> 80);
        uint256 which = x % 40;
        if (which < 18) handler.step(i, a, b);
        else if (which == 18) handler.skip(a);
        else if (which == 19) handler.pass(i);
        else if (which == 20) handler.joinSeat(i, a);
        else if (which == 21) handler.penaliseMember(i, a, b);
        else if (which == 22) handler.release(i, a, b);
        else if (which < 26) handler.auditReportOne(i, a, b, c);
        else if (which < 29) handler.openAll(i, a);
        else if (which < 31) handler.keyOne(i, a, b, c);
        else if (which == 31) handler.contestOne(i, a, b, c);
        else if (which == 32) handler.settleContestOne(i, a, b, c);
        else if (which == 33) handler.punish(i, a, b, c);
        else if (which < 36) handler.challengeOne(i, a, b, c);
        else if (which == 36) handler.endGame(i, a, b % 2 == 0);
        else if (which == 37) handler.claimOne(i, a, b, c);
        else if (which == 38) handler.leakOne(i, a, b);
        else handler.burnOne(i, a);
    }

    /// P09, P28: nobody's funds are locked after the absolute end.
    function afterInvariant() external {
        handler.drain();
    }
}
