// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {Audits} from "../../src/Audits.sol";
import {Members} from "../../src/Members.sol";
import {Bits} from "../../src/libraries/Bits.sol";
import {Hashing} from "../../src/libraries/Hashing.sol";
import "../../src/types/Types.sol";
import {Network} from "../support/Network.sol";

/// @title What stands at the very border: the last bit of a hash that is kept, the first round that
/// is no member's any more.
contract LastBitsTest is Network {
    using Bits for uint256;

    uint256 private constant LAST_KEPT = 1 << 48; // the lowest of the 26 bytes
    uint256 private constant FIRST_CUT = 1 << 47; // where it is noted that the report is opened

    /// @dev Of 26 bytes: a report that differs in the last bit of them is another report.
    function test_everyBitOfAKeptHashIsCompared() public {
        uint256 jobId = start(fourRounds(), 4, 3);
        play(jobId);
        (uint32 id, bytes memory body) = anAudit(jobId);
        uint256 sealing = block.timestamp;
        openSealed(jobId, id, body, LAST_KEPT, Audits.WrongAuditReport.selector);
        vm.warp(sealing);
        openSealed(jobId, id, body, FIRST_CUT, 0);
    }

    /// @dev As above, of the body that was opened.
    function test_everyBitOfAnOpenedBodysHashIsKept() public {
        uint256 jobId = start(fourRounds(), 4, 3);
        play(jobId);
        (uint32 id, bytes memory body) = anAudit(jobId);
        uint8 seat = uint8(body[0]);
        for (uint256 i = 0; uint256(keccak256(body)) & LAST_KEPT == 0; i++) {
            body = abi.encodePacked(seat, type(uint16).max, keccak256(abi.encode(i)));
        }
        openSealed(jobId, id, body, 0, 0);
        bytes32 stored = audits.auditReportOf(jobId, 0, members.holderOf(jobId, Role.VERIFIER, id).account);
        same(uint256(stored) >> 48, uint256(keccak256(body)) >> 48, "26 bytes of its hash");
    }

    /// @dev Whoever comes next into the slot is silent, and not the member that had it before.
    function test_aMembersLastRoundIsTheOneBeforeItsSlotIsAnothers() public allHome {
        uint256 jobId = start(fourRounds(), 4, 3);
        vm.prank(verifier(1));
        members.leavePool(jobId);
        uint32 next = enrol(jobId, 3, 1);
        play(jobId);
        uint32 from = members.holderOf(jobId, Role.VERIFIER, next).from;
        same(members.holderOf(jobId, Role.VERIFIER, 2).to, from, "it goes as the other comes");
        same(rounds.state(jobId).round, from, "which is now");
        uint256 seated = toMerge(jobId);
        for (uint256 draw = 0; draw < 2; draw++) {
            castVote(jobId, 0, seated);
            castVote(jobId, 2, seated);
            nextCommittee(jobId); // the first was drawn before the other came
        }
        same(rounds.absentOf(jobId, from), 2, "the slot said nothing");
        vm.expectRevert(abi.encodeWithSelector(Members.NotAbsent.selector, 2, from));
        members.penaliseMember(jobId, from, 2);
        members.penaliseMember(jobId, from, next);
        same(lockedOf(verifier(3), Role.VERIFIER), BOND - 1 ether, "penalty");
        same(lockedOf(verifier(1), Role.VERIFIER), BOND, "none");
    }

    function fourRounds() private view returns (Terms memory t) {
        t = defaultTerms();
        t.rounds = 4;
    }

    /// @return id of a member that has duties in round 0
    /// @return body that it owes
    function anAudit(uint256 jobId) private view returns (uint32 id, bytes memory body) {
        uint16 seat = drawn(jobId, 0).lowest();
        for (uint16 slot = 0; slot < 3; slot++) {
            if (dutiesOf(jobId, 0, slot).has(seat)) id = uint32(slot) + 1;
        }
        body = honestBody(jobId, 0, id);
    }

    /// @dev Seals the report with these bits of its hash turned, and opens the right one.
    /// @param why what refuses it; zero for nothing
    function openSealed(uint256 jobId, uint32 id, bytes memory body, uint256 turned, bytes4 why) private {
        address account = members.holderOf(jobId, Role.VERIFIER, id).account;
        RoundRecord memory record = said[jobId][0].record;
        Hashing.RoundId memory roundId = Hashing.RoundId(address(rounds), jobId, 0);
        bytes32 hash = Hashing.auditReport(roundId, record.auditSeed, id, account, keccak256(body), "salt");
        vm.prank(account);
        audits.sealAuditReport(jobId, 0, bytes32(uint256(hash) ^ turned));
        vm.warp(rounds.timesOf(jobId, 0).auditEnd);
        vm.prank(account);
        if (why != 0) vm.expectPartialRevert(why);
        audits.open(jobId, 0, id, record, body, "salt");
    }
}
