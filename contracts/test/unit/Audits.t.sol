// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {Audits} from "../../src/Audits.sol";
import {Bits} from "../../src/libraries/Bits.sol";
import {Draws} from "../../src/libraries/Draws.sol";
import {Reveals} from "../../src/libraries/Reveals.sol";
import "../../src/types/Types.sol";
import {AuditedRound} from "../support/AuditedRound.sol";

/// @title Who is drawn and audits whom, and when a report is sealed and opened.
contract AuditsTest is AuditedRound {
    using Bits for uint256;

    function testFuzz_P42_eachSeatIsDrawnByItself(bytes32 seed, uint256 revealed, uint256 others) public pure {
        for (uint256 rate = 0; rate < 16; rate++) {
            uint256 all = Draws.seats(seed, type(uint256).max, rate);
            same(Draws.seats(seed, revealed, rate), all & revealed, "whoever else revealed");
            check(
                Draws.seats(seed, others, rate) & ~Draws.seats(seed, others, rate / 2) == 0, "a lower rate draws fewer"
            );
        }
        same(Draws.seats(seed, revealed, 0), revealed, "always");
    }

    function test_P42_ratesFallByARootOfTwo() public pure {
        same(Draws.chance(0), 1 << 32, "always");
        same(Draws.chance(2), 1 << 31, "a half");
        same(Draws.chance(1), 3_037_000_500, "rounded up");
        same(Draws.chance(15), 23_726_567, "the last");
        for (uint256 rate = 0; rate < 16; rate++) {
            (uint256 drawn_, uint256 wanted) = (0, Draws.chance(rate) * 256 * 40 >> 32);
            for (uint256 i = 0; i < 40; i++) {
                drawn_ += Draws.seats(keccak256(abi.encode(i)), type(uint256).max, rate).popcount();
            }
            check(drawn_ * 10 < wanted * 13 && drawn_ * 10 > wanted * 7, "about so many of ten thousand");
        }
    }

    function test_P42_everyDrawnSeatHasOneAuditor() public allHome {
        play(jobId);
        play(jobId);
        for (uint32 round = 0; round < 4; round++) {
            uint256 duties;
            for (uint16 slot = 0; slot < 3; slot++) {
                duties += dutiesOf(jobId, round, slot).popcount();
            }
            same(duties, drawn(jobId, round).popcount(), "duties");
        }
        same(drawn(jobId, 3), 15, "in the last round all");
    }

    function test_P42_onlyDutiesAreOpened() public allHome {
        for (uint16 other = 0; other < 4; other++) {
            if (dutiesOf(jobId, 1, uint16(auditor - 1)).has(other)) continue;
            bytes memory body = abi.encodePacked(uint8(other), type(uint16).max, keccak256("x"));
            uint256 before = block.timestamp;
            auditReportBody(jobId, 1, auditor, body);
            vm.warp(rounds.timesOf(jobId, 1).auditEnd);
            RoundRecord memory f = record();
            vm.prank(account);
            vm.expectPartialRevert(Audits.NotADuty.selector);
            audits.open(jobId, 1, auditor, f, body, "salt");
            vm.warp(before);
            return;
        }
    }

    function test_anAuditReportIsSealedInTimeForItsSeedAndOpenedOnce() public allHome {
        bytes memory body = wrongBody();
        RoundRecord memory f = record();
        vm.prank(account);
        audits.sealAuditReport(jobId, 1, "made for another history");
        auditReportBody(jobId, 1, auditor, body); // replaces it
        opens(f, body, "salt", Audits.NotOpen.selector);
        vm.warp(rounds.timesOf(jobId, 1).auditEnd);
        opens(f, body, "pepper", Audits.WrongAuditReport.selector);
        f.ready ^= 8;
        opens(f, body, "salt", Reveals.WrongRecord.selector);
        vm.prank(OUTSIDER);
        vm.expectPartialRevert(Audits.NotYours.selector);
        audits.open(jobId, 1, auditor, record(), body, "salt");
        openBody(jobId, 1, auditor, body);
        opens(record(), body, "salt", Audits.WrongAuditReport.selector);
        vm.prank(account);
        vm.expectPartialRevert(Audits.AlreadyOpened.selector);
        audits.sealAuditReport(jobId, 1, "again");
    }

    function test_anAuditReportOfAfterAuditCannotBeOpened() public allHome {
        vm.warp(rounds.timesOf(jobId, 1).auditEnd);
        auditReportBody(jobId, 1, auditor, wrongBody());
        opens(record(), wrongBody(), "salt", Audits.NotInTime.selector);
    }

    function opens(RoundRecord memory f, bytes memory body, bytes32 salt, bytes4 why) internal {
        vm.prank(account);
        vm.expectPartialRevert(why);
        audits.open(jobId, 1, auditor, f, body, salt);
    }

    function test_aDutyIsNamedOnceAndInTheSeatsOrder() public allHome {
        bytes memory once = validBody(jobId, 1, Bits.bit(seat), account);
        bytes memory twice = bytes.concat(once, once);
        auditReportBody(jobId, 1, auditor, twice);
        vm.warp(rounds.timesOf(jobId, 1).auditEnd);
        RoundRecord memory f = record();
        vm.prank(account);
        vm.expectRevert(abi.encodeWithSelector(Audits.NotADuty.selector, seat, auditor - 1));
        audits.open(jobId, 1, auditor, f, twice, "salt");
    }

    function test_aBodyIsOfWholeDutiesAndOfOneAtLeast() public allHome {
        bytes memory whole = validBody(jobId, 1, Bits.bit(seat), account);
        bytes[3] memory wrong = [bytes(""), bytes.concat(whole, hex"00"), hex"00"];
        RoundRecord memory f = record();
        uint256 now_ = block.timestamp;
        for (uint256 i = 0; i < wrong.length; i++) {
            vm.warp(now_);
            auditReportBody(jobId, 1, auditor, wrong[i]);
            vm.warp(rounds.timesOf(jobId, 1).auditEnd);
            vm.prank(account);
            vm.expectRevert(abi.encodeWithSelector(Audits.BodyLength.selector, wrong[i].length));
            audits.open(jobId, 1, auditor, f, wrong[i], "salt");
        }
    }

    /// @dev One of those that are excluded is.
    function test_whoIsExcludedIsAuditedByWhoeverIsNext() public allHome {
        Terms memory t = defaultTerms();
        (t.seats, t.slots, t.f) = (10, 9, 3);
        jobId = start(t, 10, 9);
        toVotes(jobId);
        nextBlock();
        Verdict memory v = verdictFor(jobId, 1023);
        (v.excluded, v.merged) = (7, 7);
        settle(jobId, v);
        bytes[] memory bodies = honestBodies(jobId, 0);
        for (uint32 id = 1; id <= 9; id++) {
            if (bodies[id - 1].length != 0) auditReportBody(jobId, 0, id, bodies[id - 1]);
        }
        vm.warp(rounds.timesOf(jobId, 0).auditEnd);
        uint256 audited;
        for (uint32 id = 1; id <= 9; id++) {
            if (bodies[id - 1].length == 0) continue;
            openBody(jobId, 0, id, bodies[id - 1]);
            audited += bodies[id - 1].length / 35;
        }
        same(audited, drawn(jobId, 0).popcount(), "every drawn seat has its auditor");
        check(drawn(jobId, 0) & 7 != 0, "one that was left out too");
    }
}
