// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {EcdsaPolicy} from "../../src/EcdsaPolicy.sol";
import {Bits} from "../../src/libraries/Bits.sol";
import {Draws} from "../../src/libraries/Draws.sol";
import {Hashing} from "../../src/libraries/Hashing.sol";
import {Reveals} from "../../src/libraries/Reveals.sol";
import "../../src/types/Types.sol";
import {Check} from "../support/Check.sol";

/// @title The vectors that the Python law wrote (tests/vectors/rounds.json), made again.
contract VectorsTest is Check {
    string internal json;
    Hashing.Slot internal slot;

    function setUp() public {
        json = vm.readFile("../tests/vectors/rounds.json");
        vm.chainId(number(".slot.chainId"));
        slot = Hashing.Slot(
            vm.parseJsonAddress(json, ".slot.rounds"), number(".slot.jobId"), uint32(number(".slot.round"))
        );
    }

    function test_seedsAndCommitteeDraws() public view {
        same(Hashing.slotHash(slot), word(".slot.hash"), "slot.hash");
        bytes32 beacon = word(".seeds.blockHash");
        bytes32 reveals = word(".seeds.reveals");
        same(Hashing.dataSeed(slot, reveals, beacon), word(".seeds.dataSeed"), "seeds.dataSeed");
        same(Hashing.auditSeed(slot, reveals, beacon), word(".seeds.auditSeed"), "seeds.auditSeed");
        bytes32[] memory committeeDraws = vm.parseJsonBytes32Array(json, ".seeds.committeeDraws");
        for (uint256 i = 0; i < committeeDraws.length; i++) {
            same(
                Hashing.committeeSeed(i < 2 ? word(".seeds.auditSeed") : committeeDraws[i - 1], i),
                committeeDraws[i],
                "value"
            );
        }
        bytes32 words = Hashing.noWords(word(".seeds.dataSeed"));
        same(words, word(".seeds.words[0].accumulator"), "seeds.words[0].accumulator");
        for (uint256 i = 1; i < 3; i++) {
            string memory place = string.concat(".seeds.words[", vm.toString(i), "]");
            words = Hashing.accumulateWord(
                words, number(string.concat(place, ".place")), number(string.concat(place, ".has"))
            );
            same(words, word(string.concat(place, ".accumulator")), "accumulator");
        }
    }

    function test_commitmentsAndWords() public view {
        Reveal memory r = Reveal(
            word(".commit.reveal.updateRoot"),
            word(".commit.reveal.keyHash"),
            word(".commit.reveal.salt"),
            vm.parseJsonBytes(json, ".commit.reveal.leaves"),
            vm.parseJsonBytes(json, ".commit.reveal.updateCid")
        );
        this.checkReveal(r);
    }

    function checkReveal(Reveal calldata r) external view {
        address account = vm.parseJsonAddress(json, ".commit.account");
        bytes32 seed = word(".commit.seed");
        uint256 seat = number(".commit.seat");
        bytes32 made = Hashing.commitment(slot, seed, seat, account, word(".commit.model"), r);
        same(made, word(".commit.commitment"), "commit.commitment");
        bytes32 first = Hashing.accumulateReveal(seed, seat, made);
        same(first, word(".commit.accumulators[0]"), "commit.accumulators[0]");
        bytes32 second = Hashing.accumulateReveal(first, 2, word(".commit.other"));
        same(second, word(".commit.accumulators[1]"), "commit.accumulators[1]");
        bytes32 key = word(".commit.key");
        Reveals.requireKey(r, key);
        bytes32[] memory words = vm.parseJsonBytes32Array(json, ".commit.words");
        for (uint256 j = 0; j < words.length; j++) {
            same(Reveals.workTagAt(r, j, key), words[j], "value");
        }
        address member = vm.parseJsonAddress(json, ".commit.member");
        same(Reveals.fineWord(r, key, member), word(".commit.fine"), "commit.fine");
    }

    function test_certificates() public {
        Verdict memory v = Verdict(
            number(".certificate.verdict.excluded"),
            uint16(number(".certificate.verdict.merged")),
            word(".certificate.verdict.state"),
            vm.parseJsonBytes(json, ".certificate.verdict.cid"),
            bytes8(vm.parseJsonBytes(json, ".certificate.verdict.loss"))
        );
        bytes32 digest = this.digestOf(v);
        same(digest, word(".certificate.digest"), "certificate.digest");
        address[] memory committee = new address[](4);
        for (uint256 i = 0; i < 4; i++) {
            string memory place = string.concat(".certificate.committee[", vm.toString(i), "]");
            committee[i] = vm.parseJsonAddress(json, place);
        }
        bytes memory certificate = vm.parseJsonBytes(json, ".certificate.certificate");
        uint256 signers = new EcdsaPolicy().certify(0, committee, digest, certificate);
        same(signers, number(".certificate.signers"), "certificate.signers");
    }

    function digestOf(Verdict calldata v) external view returns (bytes32) {
        return Hashing.certificate(slot, word(".certificate.seed"), word(".certificate.words"), v);
    }

    function test_factsAndAuditReports() public view {
        Facts memory f = Facts(
            word(".facts.seed"),
            word(".facts.auditSeed"),
            word(".facts.reveals"),
            word(".facts.words"),
            word(".facts.model"),
            number(".facts.revealed"),
            number(".facts.available"),
            number(".facts.excluded"),
            number(".facts.ready"),
            number(".facts.committee")
        );
        same(Hashing.facts(f), word(".facts.hash"), "facts.hash");
        bytes32 body = keccak256(vm.parseJsonBytes(json, ".auditReport.body"));
        same(body, word(".auditReport.bodyHash"), "auditReport.bodyHash");
        address account = vm.parseJsonAddress(json, ".auditReport.account");
        bytes32 made = Hashing.auditReport(
            slot,
            word(".auditReport.auditSeed"),
            uint32(number(".auditReport.id")),
            account,
            body,
            word(".auditReport.salt")
        );
        same(made, word(".auditReport.auditReport"), "auditReport.auditReport");
    }

    function test_names() public view {
        address members = vm.parseJsonAddress(json, ".slot.members");
        for (uint256 i = 0; i < 3; i++) {
            string memory place = string.concat(".names[", vm.toString(i), "]");
            Role role = Role(number(string.concat(place, ".role")));
            uint32 id = uint32(number(string.concat(place, ".id")));
            Miss kind = Miss(number(string.concat(place, ".kind")));
            bytes32 set = Hashing.setOf(slot.jobId, role, id);
            same(set, word(string.concat(place, ".set")), "set");
            same(Hashing.placeOf(set, slot.round), word(string.concat(place, ".place")), "place");
            same(Hashing.bondLock(slot.jobId, role, id), word(string.concat(place, ".lock")), "lock");
            uint16 seat = uint16(number(string.concat(place, ".seat")));
            bytes32 fault = Hashing.fault(members, slot.jobId, role, id, slot.round, kind, seat);
            same(fault, word(string.concat(place, ".fault")), "fault");
        }
    }

    function test_draws() public view {
        for (uint256 i = 0; i < 5; i++) {
            checkDraw(string.concat(".draws[", vm.toString(i), "]"));
        }
    }

    function checkDraw(string memory place) internal view {
        bytes32 seed = word(string.concat(place, ".seed"));
        uint256 ready = number(string.concat(place, ".ready"));
        uint256 revealed = number(string.concat(place, ".revealed"));
        uint256 count = number(string.concat(place, ".count"));
        same(Draws.committee(seed, ready), number(string.concat(place, ".committee")), "committee");
        uint256[] memory seats = vm.parseJsonUintArray(json, string.concat(place, ".seats"));
        uint256[] memory ordinals = vm.parseJsonUintArray(json, string.concat(place, ".ordinals"));
        uint256 excluded = number(string.concat(place, ".excluded"));
        bool areAll = count == Bits.popcount(revealed);
        for (uint256 i = 0; i < seats.length; i++) {
            uint256 rank = Draws.rankOfSeat(seed, revealed, seats[i]);
            if (rank >= count) rank = count + Draws.rankOfSeat(seed, excluded, seats[i]);
            if (!areAll) same(rank, ordinals[i], "ordinal");
            string memory own = string.concat(place, ".auditors[", vm.toString(i), "]");
            checkAuditors(seed, ready, ordinals[i], vm.parseJsonUintArray(json, own));
        }
    }

    function checkAuditors(bytes32 seed, uint256 ready, uint256 ordinal, uint256[] memory auditors) internal pure {
        uint256 places = Bits.popcount(ready);
        for (uint256 k = 0; k < auditors.length; k++) {
            uint256 rank = Draws.rankOfPlace(seed, ready, auditors[k]);
            check(Draws.isAuditor(ordinal, rank, places, k + 1), "auditor");
            if (k > 0) check(!Draws.isAuditor(ordinal, rank, places, k), "not before");
        }
    }

    function number(string memory key) internal view returns (uint256) {
        return vm.parseJsonUint(json, key);
    }

    function word(string memory key) internal view returns (bytes32) {
        return vm.parseJsonBytes32(json, key);
    }
}
