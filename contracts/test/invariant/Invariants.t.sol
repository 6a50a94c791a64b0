// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import "../../src/types/Types.sol";
import {Check} from "../support/Check.sol";
import {Handler} from "./Handler.sol";

/// @title What holds after any sequence of actions. A revert inside the handler is a failure.
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

    function targetSelectors() external view returns (FuzzSelector[] memory targets) {
        bytes4[] memory selectors = new bytes4[](13);
        selectors[0] = Handler.act.selector;
        selectors[1] = Handler.pass.selector;
        selectors[2] = Handler.skip.selector;
        selectors[3] = Handler.finaliseOne.selector;
        selectors[4] = Handler.claimOne.selector;
        selectors[5] = Handler.punishOne.selector;
        selectors[6] = Handler.leaveOne.selector;
        selectors[7] = Handler.enterProvider.selector;
        selectors[8] = Handler.depositMore.selector;
        selectors[9] = Handler.thawSome.selector;
        selectors[10] = Handler.withdrawOne.selector;
        selectors[11] = Handler.enterVerifier.selector;
        selectors[12] = Handler.finaliseEverything.selector;
        targets = new FuzzSelector[](1);
        targets[0] = FuzzSelector(address(handler), selectors);
    }

    function invariant_P01_fundedEqualsClaimedRefundedBalance() external view {
        (uint256 funded, uint256 claimed, uint256 refunded, uint256 balance) = handler.escrow();
        same(funded, claimed + refunded + balance, "the identity");
        same(funded, handler.funded(), "funded");
        same(claimed, handler.paidOut(), "claimed");
        same(handler.escrowBalance(), balance, "tokens held");
    }

    function invariant_P03_paidNeverExceedsFinalRounds() external view {
        (uint256 funded, uint256 claimed,,) = handler.escrow();
        atMost(claimed, handler.finalTotal(), "claimed against final rounds");
        atMost(handler.view_().cumulativeTotal, funded, "earned against funded");
    }

    function invariant_P07_balanceCoversActiveAndUnbonding() external view {
        same(handler.stakeBalance(), handler.staked(), "balance = active + thawing, locked within active");
        same(
            handler.deposited(),
            handler.staked() + handler.withdrawn() + handler.burned(),
            "what came in is held, withdrawn or burnt"
        );
    }

    /// The handler is worth nothing if its runs never get anywhere: a long one settles, punishes, slashes and pays.
    function test_theHandlerReachesEverything() external {
        for (uint256 i = 0; i < 600; i++) {
            uint256 seed = uint256(keccak256(abi.encode("handler", i)));
            uint256 which = i % 6;
            if (which < 3) handler.act(seed);
            else if (which == 3) handler.finaliseOne();
            else if (which == 4) handler.punishOne(seed);
            else if (i % 60 == 5) handler.finaliseEverything();
            else if (i % 60 == 11) handler.claimOne(seed);
            else handler.skip(seed);
        }
        check(handler.roundsSettled() >= 5, "rounds settled");
        check(handler.punishments() >= 5, "punishments");
        check(handler.slashedSeats() >= 1, "a seat's bond slashed");
        check(handler.paidOut() > 0, "claims paid");
        check(handler.challenges() >= 5, "challenges");
        this.invariant_P01_fundedEqualsClaimedRefundedBalance();
        this.invariant_P07_balanceCoversActiveAndUnbonding();
    }

    function invariant_evidenceIsConsistent() external view {
        RoundState memory s = handler.view_();
        // Who is accepted is what the last audit that came to its end said: the one that runs may reject more.
        bool isAudited = s.phase != Phase.DRAW && s.phase != Phase.REPORT && s.phase != Phase.CONFIRM;
        if (isAudited && s.phase != Phase.HALTED) same(s.accepted & s.rejected, 0, "accepted and rejected");
        same(s.accepted & s.unresolved, 0, "accepted and unresolved");
        same(s.rejected & ~s.revealed, 0, "only the revealed are rejected");
        same(s.caught & ~s.rejected, 0, "the caught are rejected");
        same(s.revealed & ~s.committed, 0, "only the committed reveal");
        same(s.committed & ~s.seated, 0, "only the seated commit");
        same(s.dutiful & ~s.verifiers, 0, "only the snapshot is dutiful");
    }
}
