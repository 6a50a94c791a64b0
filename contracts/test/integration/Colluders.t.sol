// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {Audits} from "../../src/Audits.sol";
import {Bits} from "../../src/libraries/Bits.sol";
import {Hashing} from "../../src/libraries/Hashing.sol";
import {Shown} from "../../src/libraries/Reveals.sol";
import {RoundsSettlement} from "../../src/rounds/RoundsSettlement.sol";
import "../../src/types/Types.sol";
import {Network} from "../support/Network.sol";

/// @title What people in several roles try together, or one person again and again.
contract ColludersTest is Network {
    using Bits for uint256;

    function longer(uint16 places) internal view returns (Terms memory t) {
        t = defaultTerms();
        (t.places, t.rounds) = (places, 8);
    }

    function auditorOf(uint256 jobId, uint32 round, uint16 seat) internal view returns (uint32) {
        for (uint16 place = 0; place < 3; place++) {
            if (dutiesOf(jobId, round, place).has(seat)) return uint32(place) + 1;
        }
        revert NotTrue("a duty has an auditor");
    }

    function lose(uint256 jobId, uint32 round, uint16 seat) internal {
        vm.warp(rounds.timesOf(jobId, round).auditEnd);
        game.holderFalls(game.challenge(abi.encode(evidenceFor(jobId, round, seat, 3))), OUTSIDER);
    }

    /// A seat that loses a game of its own making takes neither bond nor fee of the auditor that called it fine.
    function test_losingOnPurposeTakesNothingFromTheAuditor() public allHome onlyTheGuiltyPay {
        uint256 jobId = start(longer(3), 4, 3);
        play(jobId);
        play(jobId);
        uint16 seat = drawn(jobId, 1).lowest();
        uint32 id = auditorOf(jobId, 1, seat);
        address account = members.holderOf(jobId, Role.VERIFIER, id).account;
        bytes memory body = honestBody(jobId, 1, id);
        ballotBody(jobId, 1, id, body);
        vm.warp(rounds.timesOf(jobId, 1).auditEnd);
        openBody(jobId, 1, id, body);
        blame(provider(seat));
        lose(jobId, 1, seat);
        same(lockedOf(provider(seat), Role.PROVIDER), 0, "the seat's bond");
        vm.warp(rounds.timesOf(jobId, 1).openEnd);
        bytes32 key = keyOf(jobId, 1, seat);
        Shown memory shown = shownFor(jobId, 1, seat);
        vm.expectPartialRevert(Audits.HasFallen.selector);
        audits.contest(shown, id, body, key);
        same(lockedOf(account, Role.VERIFIER), BOND, "the auditor's bond");
        vm.warp(rounds.timesOf(jobId, 1).windowEnd);
        jobs.claim(jobId, Role.VERIFIER, id, 2);
        same(token.balanceOf(account), 2 * 1 ether + body.length / 35 * 10 ether, "signatures, and all its duties");
    }

    /// Each time another bond, of which the larger part is burnt, and never any pay.
    function test_whoSitsDownAgainAfterEachFallPaysAStakeEachTime() public allHome onlyTheGuiltyPay {
        uint256 jobId = start(longer(3), 4, 3);
        play(jobId);
        for (uint32 i = 1; i <= 3; i++) {
            uint32 round = play(jobId);
            address account = accountOf(jobId, 0);
            uint32 id = i == 1 ? 1 : 3 + i;
            same(lockedOf(account, Role.PROVIDER), BOND, "a bond");
            blame(account);
            lose(jobId, round, 0);
            same(lockedOf(account, Role.PROVIDER), 0, "is gone");
            same(stakes.unburnt(), i * BOND * 7 / 10, "burnt, but for the winner's share");
            same(sit(jobId, 9 + i, 0), 4 + i, "somebody of theirs sits down again");
            vm.warp(rounds.timesOf(jobId, round).windowEnd);
            jobs.claim(jobId, Role.PROVIDER, id, round + 1);
            same(token.balanceOf(account), 0, "and what was not final is not paid");
            vm.warp(rounds.state(jobId).deadline - 1);
            play(jobId); // a new holder counts from the next round on
        }
        same(activeOf(OUTSIDER, Role.VERIFIER), 3 * BOND * 3 / 10, "who found it, each time");
    }

    /// More than half of a committee, but not two thirds, say that they have what nobody serves: nobody honest can merge
    /// that, so the lot ends without a certificate, and the next one speaks for itself.
    function test_aMajoritysLieAboutAnUpdateEndsWithItsLot() public allHome onlyTheGuiltyPay {
        uint256 jobId = start(longer(8), 4, 8);
        commitAll(jobId, 15);
        nextBlock();
        revealAll(jobId, 15);
        nextBlock();
        for (uint16 place = 0; place < 8; place++) {
            sayWord(jobId, place, place < 5 ? 15 : 7);
        }
        nextBlock();
        Verdict memory lie = verdictFor(jobId, 15);
        bytes memory theirs = certificate(jobId, digestFor(jobId, lie), 255, 31);
        bytes memory places = said[jobId][0].places;
        uint256[] memory has = said[jobId][0].has;
        vm.expectPartialRevert(RoundsSettlement.TooFewSigners.selector);
        rounds.settle(jobId, places, has, bare(lie, theirs));
        vm.warp(rounds.state(jobId).deadline);
        rounds.poke(jobId);
        same(rounds.state(jobId).lot, 1, "the next lot");
        delete said[jobId][0].places;
        delete said[jobId][0].has;
        said[jobId][0].lotSeed = Hashing.lotSeed(rounds.state(jobId).seed, 1);
        sayAll(jobId, 7);
        nextBlock();
        settle(jobId, verdictFor(jobId, 7));
        (uint256 pay, uint256 lost,) = rounds.rowsOf(jobId, 0);
        same(pay, 7, "who served its update is paid");
        same(lost, 8, "who did not is not");
        same(rounds.absentOf(jobId, 0), 0, "and nobody misses anything");
    }
}
