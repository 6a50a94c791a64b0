// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {EcdsaPolicy} from "../../src/EcdsaPolicy.sol";
import {Bits} from "../../src/libraries/Bits.sol";
import {Draws} from "../../src/libraries/Draws.sol";
import {Hashing} from "../../src/libraries/Hashing.sol";
import {TypedData} from "../../src/libraries/TypedData.sol";
import {Reveals} from "../../src/libraries/Reveals.sol";
import "../../src/types/Types.sol";
import {Check} from "../support/Check.sol";

/// @title The vectors that the Python law wrote (tests/vectors/rounds.json), made again.
contract VectorsTest is Check {
    string internal json;
    Hashing.RoundId internal roundId;

    function setUp() public {
        json = vm.readFile("../tests/vectors/rounds.json");
        vm.chainId(number(".roundId.chainId"));
        roundId = Hashing.RoundId(
            vm.parseJsonAddress(json, ".roundId.rounds"), number(".roundId.jobId"), uint32(number(".roundId.round"))
        );
    }

    function test_seedsAndCommitteeDraws() public view {
        same(Hashing.roundIdHash(roundId), word(".roundId.hash"), "roundId.hash");
        bytes32 beacon = word(".seeds.blockHash");
        bytes32 reveals = word(".seeds.reveals");
        same(Hashing.dataSeed(roundId, reveals, beacon), word(".seeds.dataSeed"), "seeds.dataSeed");
        same(Hashing.auditSeed(roundId, reveals, beacon), word(".seeds.auditSeed"), "seeds.auditSeed");
        bytes32[] memory committeeDraws = vm.parseJsonBytes32Array(json, ".seeds.committeeDraws");
        for (uint256 i = 0; i < committeeDraws.length; i++) {
            same(
                Hashing.committeeSeed(i < 2 ? word(".seeds.auditSeed") : committeeDraws[i - 1], i),
                committeeDraws[i],
                "value"
            );
        }
        bytes32 votes = Hashing.noVotes(word(".seeds.dataSeed"));
        same(votes, word(".seeds.votes[0].accumulator"), "seeds.votes[0].accumulator");
        for (uint256 i = 1; i < 3; i++) {
            string memory path = string.concat(".seeds.votes[", vm.toString(i), "]");
            votes = Hashing.accumulateVote(
                votes, number(string.concat(path, ".slot")), number(string.concat(path, ".has"))
            );
            same(votes, word(string.concat(path, ".accumulator")), "accumulator");
        }
    }

    function test_commitmentsAndWorkTags() public view {
        Reveal memory r = Reveal(
            word(".commit.reveal.updateRoot"),
            word(".commit.reveal.keyHash"),
            word(".commit.reveal.salt"),
            vm.parseJsonBytes(json, ".commit.reveal.checkpointCommitments"),
            vm.parseJsonBytes(json, ".commit.reveal.updateCid")
        );
        this.checkReveal(r);
    }

    function checkReveal(Reveal calldata r) external view {
        address account = vm.parseJsonAddress(json, ".commit.account");
        bytes32 seed = word(".commit.seed");
        uint256 seat = number(".commit.seat");
        bytes32 made = Hashing.commitment(roundId, seed, seat, account, word(".commit.model"), r);
        same(made, word(".commit.commitment"), "commit.commitment");
        bytes32 first = Hashing.accumulateReveal(seed, seat, made);
        same(first, word(".commit.accumulators[0]"), "commit.accumulators[0]");
        bytes32 second = Hashing.accumulateReveal(first, 2, word(".commit.other"));
        same(second, word(".commit.accumulators[1]"), "commit.accumulators[1]");
        bytes32 key = word(".commit.key");
        Reveals.requireKey(r, key);
        bytes32[] memory tags = vm.parseJsonBytes32Array(json, ".commit.workTags");
        for (uint256 j = 0; j < tags.length; j++) {
            same(Reveals.workTagAt(r, j, key), tags[j], "value");
        }
        address member = vm.parseJsonAddress(json, ".commit.member");
        same(Reveals.validDigest(r, key, member), word(".commit.valid"), "commit.valid");
    }

    function test_certificates() public {
        Verdict memory v = Verdict(
            number(".certificate.verdict.excluded"),
            uint16(number(".certificate.verdict.merged")),
            word(".certificate.verdict.state"),
            vm.parseJsonBytes(json, ".certificate.verdict.cid"),
            bytes8(vm.parseJsonBytes(json, ".certificate.verdict.loss")),
            word(".certificate.verdict.statement")
        );
        bytes32 digest = this.digestOf(v);
        same(digest, word(".certificate.digest"), "certificate.digest");
        address[] memory committee = new address[](4);
        for (uint256 i = 0; i < 4; i++) {
            string memory path = string.concat(".certificate.committee[", vm.toString(i), "]");
            committee[i] = vm.parseJsonAddress(json, path);
        }
        bytes memory certificate = vm.parseJsonBytes(json, ".certificate.certificate");
        uint256 signers = new EcdsaPolicy().certify(0, committee, digest, certificate);
        same(signers, number(".certificate.signers"), "certificate.signers");
    }

    function test_enrolments() public view {
        bytes32 digest = TypedData.enrolment(
            vm.parseJsonAddress(json, ".roundId.members"),
            roundId.jobId,
            uint16(number(".enrolment.slot")),
            uint128(number(".enrolment.bond")),
            vm.parseJsonAddress(json, ".enrolment.account")
        );
        same(digest, word(".enrolment.digest"), "enrolment.digest");
    }

    function digestOf(Verdict calldata v) external view returns (bytes32) {
        return Hashing.certificate(roundId, word(".certificate.seed"), word(".certificate.votes"), v);
    }

    function test_roundRecordsAndAuditReports() public view {
        RoundRecord memory f = RoundRecord(
            word(".record.seed"),
            word(".record.auditSeed"),
            word(".record.reveals"),
            word(".record.votes"),
            word(".record.model"),
            number(".record.revealed"),
            number(".record.available"),
            number(".record.excluded"),
            number(".record.ready"),
            number(".record.committee"),
            number(".record.drawn"),
            word(".record.certificate")
        );
        same(Hashing.recordHash(f), word(".record.hash"), "record.hash");
        bytes32 body = keccak256(vm.parseJsonBytes(json, ".auditReport.body"));
        same(body, word(".auditReport.bodyHash"), "auditReport.bodyHash");
        address account = vm.parseJsonAddress(json, ".auditReport.account");
        bytes32 made = Hashing.auditReport(
            roundId,
            word(".auditReport.auditSeed"),
            uint32(number(".auditReport.id")),
            account,
            body,
            word(".auditReport.salt")
        );
        same(made, word(".auditReport.auditReport"), "auditReport.auditReport");
    }

    function test_names() public view {
        address members = vm.parseJsonAddress(json, ".roundId.members");
        for (uint256 i = 0; i < 3; i++) {
            string memory path = string.concat(".names[", vm.toString(i), "]");
            Role role = Role(number(string.concat(path, ".role")));
            uint32 id = uint32(number(string.concat(path, ".id")));
            MissedDuty kind = MissedDuty(number(string.concat(path, ".kind")));
            bytes32 set = Hashing.setOf(roundId.jobId, role, id);
            same(set, word(string.concat(path, ".set")), "set");
            same(Hashing.positionOf(set, roundId.round), word(string.concat(path, ".position")), "position");
            same(Hashing.bondLock(roundId.jobId, role, id), word(string.concat(path, ".lock")), "lock");
            uint16 seat = uint16(number(string.concat(path, ".seat")));
            bytes32 fault = Hashing.fault(members, roundId.jobId, role, id, roundId.round, kind, seat);
            same(fault, word(string.concat(path, ".fault")), "fault");
        }
    }

    function test_draws() public view {
        for (uint256 i = 0; i < 5; i++) {
            checkDraw(string.concat(".draws[", vm.toString(i), "]"));
        }
    }

    function checkDraw(string memory path) internal view {
        bytes32 seed = word(string.concat(path, ".seed"));
        uint256 ready = number(string.concat(path, ".ready"));
        uint256 revealed = number(string.concat(path, ".revealed"));
        uint256 excluded = number(string.concat(path, ".excluded"));
        same(Draws.committee(seed, ready), number(string.concat(path, ".committee")), "committee");
        uint256 sure = excluded == 0 ? 0 : Draws.oneOf(seed, excluded);
        uint256 seeded = Draws.seats(seed, revealed, number(string.concat(path, ".rate")));
        same(seeded, number(string.concat(path, ".seeded")), "seeded");
        uint256 drawn = Draws.atMost(seeded & ~sure, number(string.concat(path, ".left"))) | sure;
        same(drawn, number(string.concat(path, ".drawn")), "drawn");
        uint256[] memory auditors = vm.parseJsonUintArray(json, string.concat(path, ".auditors"));
        for (uint256 i = 0; drawn != 0; (drawn &= drawn - 1, i++)) {
            uint256 all = number(string.concat(path, ".drawn"));
            for (uint256 slot = 0; slot < 256; slot++) {
                if (ready >> slot & 1 == 0) continue;
                bool isIts = Draws.isAuditor(seed, all, ready, Bits.lowest(drawn), slot);
                same(isIts ? 1 : 0, slot == auditors[i] ? 1 : 0, "auditor");
            }
        }
    }

    function test_mostDuties() public view {
        for (uint256 i = 0; i < 6; i++) {
            string memory path = string.concat(".mostDuties[", vm.toString(i), "]");
            Terms memory t;
            t.f = 1;
            t.rounds = uint32(number(string.concat(path, ".rounds")));
            t.seats = uint16(number(string.concat(path, ".seats")));
            t.auditRate = uint8(number(string.concat(path, ".auditRate")));
            t.lastRate = uint8(number(string.concat(path, ".lastRate")));
            same(Draws.mostDuties(t), number(string.concat(path, ".most")), "most duties");
        }
    }

    function number(string memory key) internal view returns (uint256) {
        return vm.parseJsonUint(json, key);
    }

    function word(string memory key) internal view returns (bytes32) {
        return vm.parseJsonBytes32(json, key);
    }
}
