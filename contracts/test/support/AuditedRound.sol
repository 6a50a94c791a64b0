// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {Bits} from "../../src/libraries/Bits.sol";
import "../../src/types/Types.sol";
import {Network} from "./Network.sol";

/// @title Round 1 of a job of four, settled: one of its drawn seats, and that seat's auditor.
abstract contract AuditedRound is Network {
    using Bits for uint256;

    uint256 internal jobId;
    uint16 internal seat; // a drawn one
    uint32 internal auditor; // id
    address internal account; // the auditor's

    function setUp() public override {
        super.setUp();
        Terms memory t = defaultTerms();
        t.rounds = 4;
        jobId = start(t, 4, 3);
        play(jobId);
        play(jobId);
        seat = drawn(jobId, 1).lowest();
        for (uint16 slot = 0; slot < 3; slot++) {
            if (dutiesOf(jobId, 1, slot).has(seat)) auditor = uint32(slot) + 1;
        }
        account = members.holderOf(jobId, Role.VERIFIER, auditor).account;
    }

    function toOpen(bytes memory body) internal {
        auditReportBody(jobId, 1, auditor, body);
        vm.warp(rounds.timesOf(jobId, 1).auditEnd);
        openBody(jobId, 1, auditor, body);
        vm.warp(rounds.timesOf(jobId, 1).openEnd);
    }

    /// @dev Else most auditors are silent, and nobody misses.
    function othersOpen() internal {
        for (uint32 id = 1; id <= 3; id++) {
            if (id == auditor || dutiesOf(jobId, 1, uint16(id - 1)) == 0) continue;
            bytes memory body = honestBody(jobId, 1, id);
            auditReportBody(jobId, 1, id, body);
            uint256 back = block.timestamp;
            vm.warp(rounds.timesOf(jobId, 1).auditEnd);
            openBody(jobId, 1, id, body);
            vm.warp(back);
        }
    }

    function wrongBody() internal view returns (bytes memory) {
        return abi.encodePacked(uint8(seat), type(uint16).max, keccak256("wrong"));
    }

    function key() internal view returns (bytes32) {
        return keyOf(jobId, 1, seat);
    }

    function record() internal view returns (RoundRecord memory) {
        return said[jobId][1].record;
    }
}
