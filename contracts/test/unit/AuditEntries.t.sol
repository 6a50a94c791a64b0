// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {Audits} from "../../src/Audits.sol";
import {Evidence} from "../../src/judge/Claims.sol";
import {Claim} from "../../src/judge/IClaims.sol";
import {Bits} from "../../src/libraries/Bits.sol";
import {TermsCheck} from "../../src/libraries/TermsCheck.sol";
import {ProgramReader} from "../../src/judge/ProgramReader.sol";
import "../../src/types/Types.sol";
import {AuditedRound} from "../support/AuditedRound.sol";

/// @title What the entries of a report earn, and which accusations are dropped.
contract AuditEntriesTest is AuditedRound {
    using Bits for uint256;

    function test_anAccusationThatWasPlayedIsNotDropped() public allHome {
        bytes memory body = abi.encodePacked(uint8(seat), uint16(2), keccak256("mine"));
        toOpen(body);
        Evidence memory e = evidenceFor(jobId, 1, seat, 2);
        vm.prank(account);
        Claim memory c = game.challenge(abi.encode(e));
        vm.warp(rounds.timesOf(jobId, 1).half);
        vm.expectPartialRevert(Audits.NotDropped.selector);
        audits.dropped(jobId, 1, auditor, seat, uint32(seat) + 1, body);
        game.holderWins(c);
        vm.expectPartialRevert(Audits.NotDropped.selector);
        audits.dropped(jobId, 1, auditor, seat, uint32(seat) + 1, body);
    }

    /// @dev Its challenge names the last segment, as all challenges of links do.
    function test_anAccusationOfALinkThatWasPlayedIsNotDropped() public allHome {
        bytes memory body = abi.encodePacked(uint8(seat), uint16(8), keccak256("mine"));
        toOpen(body);
        Evidence memory e = evidenceFor(jobId, 1, seat, 7);
        vm.prank(account);
        game.challenge(abi.encode(e)); // of the segment, and not of the update proof
        vm.warp(rounds.timesOf(jobId, 1).half);
        uint256 before = vm.snapshotState();
        audits.dropped(jobId, 1, auditor, seat, uint32(seat) + 1, body);
        vm.revertToState(before);
        vm.warp(rounds.timesOf(jobId, 1).half - 1);
        e.isUpdateProof = true;
        vm.prank(account);
        game.challenge(abi.encode(e));
        vm.warp(rounds.timesOf(jobId, 1).half);
        vm.expectPartialRevert(Audits.NotDropped.selector);
        audits.dropped(jobId, 1, auditor, seat, uint32(seat) + 1, body);
    }

    /// @dev Else who seals the hash of a body, and not an audit report, would have said it without
    /// having opened it.
    function test_nothingIsSaidByAAuditReportThatIsNotOpened() public allHome {
        bytes memory body = honestBody(jobId, 1, auditor);
        vm.prank(account);
        audits.sealAuditReport(jobId, 1, keccak256(body));
        vm.expectPartialRevert(Audits.WrongBody.selector);
        audits.saidOf(jobId, 1, auditor, seat, body);
    }

    function test_nothingIsSaidByABodyThatWasNotOpened() public allHome {
        bytes memory body = honestBody(jobId, 1, auditor);
        toOpen(body);
        (uint16 from,) = audits.saidOf(jobId, 1, auditor, seat, body);
        same(from, type(uint16).max, "valid");
        body[body.length - 1] ^= 0x01;
        vm.expectPartialRevert(Audits.WrongBody.selector);
        audits.saidOf(jobId, 1, auditor, seat, body);
    }

    function test_anAccusationEarnsOnceItsSeatIsSlashed() public allHome {
        bytes memory body = abi.encodePacked(uint8(seat), uint16(2), keccak256("mine"));
        toOpen(body);
        uint32 seatId = uint32(seat) + 1;
        vm.expectRevert(abi.encodeWithSelector(Audits.NotProven.selector, seat, auditor));
        audits.proven(jobId, 1, auditor, seatId, body);
        game.holderLoses(game.challenge(abi.encode(evidenceFor(jobId, 1, seat, 5))), OUTSIDER); // another one's
        vm.expectPartialRevert(Audits.NotThen.selector);
        audits.proven(jobId, 1, auditor, 9, body);
        audits.proven(jobId, 1, auditor, seatId, body);
        vm.expectPartialRevert(Audits.AlreadyContested.selector);
        audits.proven(jobId, 1, auditor, seatId, body);
        jobs.claimCredit(jobId, account);
        same(token.balanceOf(account), 10 ether, "its fee");
        vm.warp(rounds.timesOf(jobId, 1).half);
        vm.expectPartialRevert(Audits.NotDropped.selector);
        audits.dropped(jobId, 1, auditor, seat, seatId, body);
        vm.warp(rounds.timesOf(jobId, 1).windowEnd);
        jobs.claim(jobId, Role.VERIFIER, auditor, 2);
        same(token.balanceOf(account), 12 ether, "and its signatures, but not its fee again");
    }

    /// @dev Who enrols, leaves and enrols again has had several ids, and one audit report: else
    /// each id would have its fee.
    function test_whatAnAccountSaidCountsForOneOfItsIds() public allHome {
        Terms memory t = defaultTerms();
        t.rounds = 4;
        jobId = create(t);
        for (uint256 i = 0; i < 3; i++) {
            uint32 id = enrol(jobId, i, uint16(i));
            vm.prank(verifier(i));
            members.leavePool(jobId);
            members.release(jobId, Role.VERIFIER, id);
        }
        for (uint256 i = 0; i < 4; i++) {
            join(jobId, i, uint16(i));
            if (i < 3) enrol(jobId, i, uint16(i));
        }
        nextBlock();
        rounds.advance(jobId);
        play(jobId);
        play(jobId);
        seat = drawn(jobId, 1).lowest();
        uint32 earlier;
        for (uint16 slot = 0; slot < 3; slot++) {
            if (dutiesOf(jobId, 1, slot).has(seat)) (earlier, auditor) = (uint32(slot) + 1, uint32(slot) + 4);
        }
        account = members.holderOf(jobId, Role.VERIFIER, auditor).account;
        same(uint160(members.holderOf(jobId, Role.VERIFIER, earlier).account), uint160(account), "the same account");
        bytes memory body = abi.encodePacked(uint8(seat), uint16(2), keccak256("mine"));
        toOpen(body);
        uint32 seatId = uint32(seat) + 1;
        vm.expectRevert(abi.encodeWithSelector(Audits.NotThen.selector, earlier, 1));
        audits.saidOf(jobId, 1, earlier, seat, body);
        game.holderLoses(game.challenge(abi.encode(evidenceFor(jobId, 1, seat, 5))), OUTSIDER);
        vm.expectRevert(abi.encodeWithSelector(Audits.NotThen.selector, earlier, 1));
        audits.proven(jobId, 1, earlier, seatId, body);
        audits.proven(jobId, 1, auditor, seatId, body);
    }

    function test_aValidEntryEarnsByItselfAlone() public allHome {
        bytes memory body = honestBody(jobId, 1, auditor);
        toOpen(body);
        game.holderLoses(game.challenge(abi.encode(evidenceFor(jobId, 1, seat, 5))), OUTSIDER);
        vm.expectRevert(abi.encodeWithSelector(Audits.NotProven.selector, seat, auditor));
        audits.proven(jobId, 1, auditor, uint32(seat) + 1, body);
    }

    function test_P13_programsThatNobodyCouldOpenAreNotPlayed() public allHome {
        microBatches = 810; // ten steps of them are 32,800 bytes
        uint256 id = start(defaultTerms(), 4, 3);
        play(id);
        play(id);
        vm.warp(rounds.timesOf(id, 1).auditEnd);
        bytes memory e = abi.encode(evidenceFor(id, 1, 0, 3));
        vm.expectRevert(abi.encodeWithSelector(ProgramReader.SegmentTooLarge.selector, 32_800, 32_768));
        claims.claim(e);
        Terms memory t = defaultTerms();
        (t.steps, t.segmentSteps) = (745, 745);
        vm.expectRevert(abi.encodeWithSelector(TermsCheck.TermOutOfRange.selector, "segmentSteps", 745, 1, 744));
        vm.prank(SUBMITTER);
        jobs.create("spec", "cid", t, address(policy), 1e30);
    }

    /// A holder has to post a step's trace first of all.
    function test_P13_programsWhoseStepHasNoNodesAreNotPlayed() public allHome {
        stepNodes = 0;
        uint256 id = start(defaultTerms(), 4, 3);
        play(id);
        play(id);
        vm.warp(rounds.timesOf(id, 1).auditEnd);
        bytes memory e = abi.encode(evidenceFor(id, 1, 0, 3));
        vm.expectRevert(ProgramReader.NoNodes.selector);
        claims.claim(e);
    }

    /// @dev Else who dropped an accusation of a seat that was slashed could be shown another seat
    /// that did not.
    function test_anAccusationIsOfTheSeatThatItNames() public allHome {
        bytes memory body = abi.encodePacked(uint8(seat), uint16(2), keccak256("mine"));
        toOpen(body);
        vm.warp(rounds.timesOf(jobId, 1).half);
        uint32 another = (uint32(seat) + 1) % 4 + 1;
        vm.expectRevert(abi.encodeWithSelector(Audits.NotThen.selector, another, 1));
        audits.dropped(jobId, 1, auditor, seat, another, body);
        vm.expectRevert(abi.encodeWithSelector(Audits.NotThen.selector, 9, 1));
        audits.dropped(jobId, 1, auditor, seat, 9, body);
        vm.expectRevert(abi.encodeWithSelector(Audits.NotADuty.selector, 200, auditor));
        audits.saidOf(jobId, 1, auditor, 200, body);
        audits.dropped(jobId, 1, auditor, seat, uint32(seat) + 1, body);
        same(lockedOf(account, Role.VERIFIER), BOND / 2, "half of the bond");
    }
}
