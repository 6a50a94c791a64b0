// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {Check} from "../support/Check.sol";
import {GameHandler} from "./GameHandler.sol";
import {deployed} from "../support/Deployed.sol";

/// @title What holds of games after any sequence of challenges, moves, silence and time.
contract GameInvariantsTest is Check {
    struct FuzzSelector {
        address addr;
        bytes4[] selectors;
    }

    GameHandler internal handler;

    function setUp() public {
        handler = GameHandler(deployed("GameHandler", ""));
    }

    function targetContracts() external view returns (address[] memory targets) {
        targets = new address[](1);
        targets[0] = address(handler);
    }

    function targetSelectors() external view returns (FuzzSelector[] memory targets) {
        bytes4[] memory selectors = new bytes4[](9);
        selectors[0] = GameHandler.challengeOne.selector;
        selectors[1] = GameHandler.moveOne.selector;
        selectors[2] = GameHandler.moveOne.selector;
        selectors[3] = GameHandler.moveOne.selector;
        selectors[4] = GameHandler.timeoutOne.selector;
        selectors[5] = GameHandler.wait.selector;
        selectors[6] = GameHandler.withdrawOne.selector;
        selectors[7] = GameHandler.nameOne.selector;
        selectors[8] = GameHandler.owedOne.selector;
        targets = new FuzzSelector[](1);
        targets[0] = FuzzSelector(address(handler), selectors);
    }

    function invariant_P65_bondsInEqualBondsOut() external view {
        same(handler.bondsIn(), handler.held() + handler.paidOut(), "in = held + out");
        same(handler.held(), handler.due(), "held = open bonds + owed");
    }

    function invariant_P64_threeArePlayedAtMostAndSixOpen() external view {
        (uint256[6] memory played, uint256[6] memory waiting, uint256[6] memory open) = handler.queues();
        for (uint256 i = 0; i < 6; i++) {
            atMost(played[i], 3, "played");
            atMost(played[i] + waiting[i], 6, "open");
            check(played[i] > 0 || waiting[i] == 0, "somebody plays while others wait");
            same(open[i], played[i] + waiting[i], "as the game counts them");
        }
    }

    function invariant_P64_openGamesOfAnAccountAboutABondAreCounted() external view {
        check(!handler.anyMiscount(), "open games of an account about a bond");
    }

    function invariant_P64_whatIsOwedIsPlayedOnce() external view {
        check(!handler.anyOwedTwice(), "owed games of an account about a claim");
    }

    function invariant_P34_P62_aProofDecidesRightly() external view {
        check(!handler.anyWrongVerdict(), "verdict");
    }

    function invariant_P63_aHoldersClockRunsInOneGameAtATime() external view {
        check(!handler.anyWrongClock(), "clocks and places");
    }

    function invariant_P63_noClockRunsBeyondTheEnd() external view {
        check(!handler.anyClockBeyond(handler.latestEnd()), "a deadline beyond windowEnd + 6 longest games");
    }
}
