// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {Hashing} from "../../src/libraries/Hashing.sol";
import {Merkle} from "../../src/libraries/Merkle.sol";
import {Sampling} from "../../src/libraries/Sampling.sol";
import "../../src/types/Types.sol";
import {Check} from "../support/Check.sol";
import {ClaimsTree} from "../support/ClaimsTree.sol";

/// @title The hashing law in Solidity against the vectors that Python writes (`tests/vectors`).
contract VectorsTest is Check {
    string internal json;
    RoundState internal evidence;
    bytes32[] internal leaves;

    function load(string memory name) internal {
        json = vm.readFile(string.concat("../tests/vectors/", name, ".json"));
    }

    function number(string memory key) internal view returns (uint256) {
        return vm.parseJsonUint(json, key);
    }

    function word(string memory key) internal view returns (bytes32) {
        return vm.parseJsonBytes32(json, key);
    }

    function item(string memory list, uint256 i, string memory key) internal pure returns (string memory) {
        return string.concat(".", list, "[", vm.toString(i), "]", key);
    }

    function exists(string memory key) internal view returns (bool) {
        return vm.keyExistsJson(json, key);
    }

    /// Also sets the chain id, which the library reads.
    function slot() internal returns (Hashing.Slot memory s) {
        load("hashing");
        vm.chainId(number(".slot.chainId"));
        s.rounds = vm.parseJsonAddress(json, ".slot.rounds");
        s.jobId = number(".slot.jobId");
        s.round = uint32(number(".slot.round"));
        s.attempt = uint16(number(".slot.attempt"));
    }

    function commitment(Hashing.Slot memory s, uint16 seat, address sender, Reveal calldata r)
        external
        view
        returns (bytes32)
    {
        return Hashing.commitment(s, seat, sender, r);
    }

    function verdictHash(Hashing.Slot memory s, Verdict calldata v) external view returns (bytes32) {
        return Hashing.verdictHash(s, v);
    }

    function verify(bytes32 root, bytes32 leaf, uint256 index, uint256 count, bytes32[] calldata proof)
        external
        pure
        returns (bool)
    {
        return Merkle.verify(root, leaf, index, count, proof);
    }

    function test_P36_slotAndFaults() public {
        Hashing.Slot memory s = slot();
        same(Hashing.slotHash(s), word(".slot.hash"), "slot");
        uint256 i;
        for (; exists(item("faults", i, ".id")); i++) {
            Offence offence = Offence(number(item("faults", i, ".offence")));
            uint16 index = uint16(number(item("faults", i, ".index")));
            bytes32 id = Hashing.faultId(s.rounds, s.jobId, s.round, offence, index);
            same(id, word(item("faults", i, ".id")), "fault");
        }
        check(i > 0, "faults in the file");
    }

    function test_P14_commitmentAgreesWithPython() public {
        Hashing.Slot memory s = slot();
        Reveal memory r;
        r.traceRoot = word(".commit.reveal.traceRoot");
        r.updateRoot = word(".commit.reveal.updateRoot");
        r.optimiserRoot = word(".commit.reveal.optimiserRoot");
        r.steps = uint32(number(".commit.reveal.steps"));
        r.reset = vm.parseJsonBool(json, ".commit.reveal.reset");
        r.salt = word(".commit.reveal.salt");
        r.updateCid = vm.parseJsonBytes(json, ".commit.reveal.updateCid");
        r.traceCid = vm.parseJsonBytes(json, ".commit.reveal.traceCid");
        address sender = vm.parseJsonAddress(json, ".commit.sender");
        bytes32 got = this.commitment(s, uint16(number(".commit.seat")), sender, r);
        same(got, word(".commit.commitment"), "commitment");
    }

    function test_P14_accumulatorsAgreeWithPython() public {
        load("hashing");
        uint256[] memory seats = vm.parseJsonUintArray(json, ".accumulators.seats");
        bytes32[] memory commitments = vm.parseJsonBytes32Array(json, ".accumulators.commitments");
        bytes32[] memory openings = vm.parseJsonBytes32Array(json, ".accumulators.openings");
        bytes32[] memory afterCommits = vm.parseJsonBytes32Array(json, ".accumulators.commitAccumulators");
        bytes32[] memory afterReveals = vm.parseJsonBytes32Array(json, ".accumulators.revealAccumulators");
        bytes32 commits;
        bytes32 reveals;
        for (uint256 i = 0; i < seats.length; i++) {
            commits = Hashing.accumulateCommit(commits, uint16(seats[i]), commitments[i]);
            same(commits, afterCommits[i], "commits");
            reveals = Hashing.accumulateReveal(reveals, uint16(seats[i]), commitments[i], openings[i]);
            same(reveals, afterReveals[i], "reveals");
        }
        bytes32 facts = Hashing.roundFacts(sha256("data seed"), reveals, sha256("parent"));
        same(facts, word(".accumulators.roundFacts"), "facts");
    }

    function test_piecesOpenAgainstTheirRoots() public {
        load("pieces");
        uint256 i;
        for (; exists(item("strings", i, ".root")); i++) {
            bytes32 root = word(item("strings", i, ".root"));
            uint256 index = number(item("strings", i, ".index"));
            uint256 count = number(item("strings", i, ".count"));
            bytes32 leaf = keccak256(vm.parseJsonBytes(json, item("strings", i, ".piece")));
            bytes32[] memory proof = vm.parseJsonBytes32Array(json, item("strings", i, ".proof"));
            check(this.verify(root, leaf, index, count, proof), "piece");
            check(!this.verify(root, ~leaf, index, count, proof), "another piece");
            bytes32 update = keccak256(abi.encode(word(".tag"), uint64(number(item("strings", i, ".size"))), root));
            same(update, word(item("strings", i, ".updateRoot")), "update root");
        }
        check(i == 4, "strings in the file");
    }

    function test_ditherAgreesWithPython() public {
        load("dither");
        uint256 i;
        for (; exists(item("dithers", i, ".key")); i++) {
            uint16 seat = uint16(number(item("dithers", i, ".seat")));
            uint8 section = uint8(number(item("dithers", i, ".section")));
            uint32 piece = uint32(number(item("dithers", i, ".piece")));
            bytes32 key = keccak256(abi.encodePacked(word(".dataSeed"), seat, section, piece));
            same(key, word(item("dithers", i, ".key")), "key");
            bytes memory noise;
            for (uint32 j = 0; j < 3; j++) {
                noise = bytes.concat(noise, keccak256(abi.encodePacked(key, j)));
            }
            bytes32 found = keccak256(vm.parseJsonBytes(json, item("dithers", i, ".noise")));
            same(keccak256(noise), found, "noise");
        }
        check(i == 3, "dithers in the file");
    }

    function test_P19_seedsAgreeWithPython() public {
        Hashing.Slot memory s = slot();
        bytes32 beacon = word(".seeds.beaconHash");
        bytes32 auditSeed =
            Hashing.auditSeed(s, word(".seeds.commitAccumulator"), word(".seeds.revealAccumulator"), beacon);
        same(auditSeed, word(".seeds.auditSeed"), "audit seed");
        same(Hashing.dataSeed(s, beacon), word(".seeds.dataSeedFromBlock"), "data seed from a block");
        (s.round, s.attempt) = (uint32(number(".seeds.nextRound")), 0);
        same(Hashing.dataSeed(s, auditSeed), word(".seeds.dataSeedFromAudit"), "data seed from an audit");
    }

    function test_P24_evidenceAndVerdictAgreeWithPython() public {
        Hashing.Slot memory s = slot();
        evidence.revealed = number(".evidence.revealed");
        evidence.accepted = number(".evidence.accepted");
        evidence.rejected = number(".evidence.rejected");
        evidence.unresolved = number(".evidence.unresolved");
        evidence.caught = number(".evidence.caught");
        evidence.dutiful = number(".evidence.dutiful");
        evidence.auditSeed = word(".evidence.auditSeed");
        evidence.revealAccumulator = word(".evidence.revealAccumulator");
        same(Hashing.evidenceRoot(s, evidence), word(".evidence.root"), "evidence");

        Verdict memory v;
        v.evidenceRoot = word(".verdict.evidenceRoot");
        v.cutBlockHash = word(".verdict.cutBlockHash");
        v.mergedDigest = word(".verdict.mergedDigest");
        v.mergedCid = vm.parseJsonBytes(json, ".verdict.mergedCid");
        v.claimsRoot = word(".verdict.claimsRoot");
        v.cumulativeTotal = number(".verdict.cumulativeTotal");
        v.tokensRoot = word(".verdict.tokensRoot");
        v.tokensTotal = number(".verdict.tokensTotal");
        v.parent = word(".verdict.parent");
        same(this.verdictHash(s, v), word(".verdict.hash"), "verdict");
    }

    function test_P24_tokensRootAgreesWithPython() public {
        load("hashing");
        uint256[] memory values = vm.parseJsonUintArray(json, ".tokens.values");
        same(keccak256(abi.encode(values)), word(".tokens.root"), "uint64 pads like uint256");
    }

    function test_P36_termsHashAgreesWithPython() public {
        load("hashing");
        Terms memory t;
        readCounts(t);
        readWindows(t);
        readMoney(t);
        same(keccak256(abi.encode(t)), word(".termsHash"), "terms");
    }

    function readCounts(Terms memory t) private view {
        t.rounds = uint32(number(".terms.rounds"));
        t.seats = uint16(number(".terms.seats"));
        t.minProviders = uint16(number(".terms.minProviders"));
        t.minVerifiers = uint16(number(".terms.minVerifiers"));
        t.maxVerifiers = uint16(number(".terms.maxVerifiers"));
        t.quorumNumerator = uint16(number(".terms.quorumNumerator"));
        t.quorumDenominator = uint16(number(".terms.quorumDenominator"));
        t.attempts = uint16(number(".terms.attempts"));
        t.auditors = uint16(number(".terms.auditors"));
        t.beaconDelay = uint16(number(".terms.beaconDelay"));
        t.steps = uint32(number(".terms.steps"));
        t.tokensPerStep = uint64(number(".terms.tokensPerStep"));
    }

    function readWindows(Terms memory t) private view {
        t.trainSeconds = uint32(number(".terms.trainSeconds"));
        t.revealSeconds = uint32(number(".terms.revealSeconds"));
        t.reportSeconds = uint32(number(".terms.reportSeconds"));
        t.confirmSeconds = uint32(number(".terms.confirmSeconds"));
        t.attestSeconds = uint32(number(".terms.attestSeconds"));
        t.disputeSeconds = uint32(number(".terms.disputeSeconds"));
        t.expiry = uint64(number(".terms.expiry"));
    }

    function readMoney(Terms memory t) private view {
        t.pricePerToken = uint128(number(".terms.pricePerToken"));
        t.verifierFee = uint128(number(".terms.verifierFee"));
        t.providerBond = uint128(number(".terms.providerBond"));
        t.verifierBond = uint128(number(".terms.verifierBond"));
        t.reportBond = uint128(number(".terms.reportBond"));
        t.program = word(".terms.program");
    }

    function test_P36_proofsAgreeWithPython() public {
        load("merkle");
        uint256 i;
        for (; exists(item("proofs", i, ".root")); i++) {
            bytes32[] memory siblings = vm.parseJsonBytes32Array(json, item("proofs", i, ".siblings"));
            bytes32 root = word(item("proofs", i, ".root"));
            bytes32 leaf = word(item("proofs", i, ".leaf"));
            uint256 index = number(item("proofs", i, ".index"));
            uint256 count = number(item("proofs", i, ".count"));
            check(this.verify(root, leaf, index, count, siblings), "proof");
            check(!this.verify(root, leaf ^ bytes32(uint256(1)), index, count, siblings), "one bit of the leaf");
            refusesCorruption(root, leaf, index, count, siblings);
        }
        check(i == 45, "all proofs of nine trees");
    }

    function refusesCorruption(bytes32 root, bytes32 leaf, uint256 index, uint256 count, bytes32[] memory siblings)
        private
    {
        if (siblings.length == 0) return;
        siblings[siblings.length - 1] ^= bytes32(uint256(1) << 255);
        check(!this.verify(root, leaf, index, count, siblings), "one bit of a sibling");
        bytes32[] memory longer = new bytes32[](siblings.length + 1);
        vm.expectPartialRevert(Merkle.ProofLength.selector);
        this.verify(root, leaf, index, count, longer);
        vm.expectPartialRevert(Merkle.ProofLength.selector);
        this.verify(root, leaf, index, count, new bytes32[](0));
        vm.expectPartialRevert(Merkle.IndexOutOfRange.selector);
        this.verify(root, leaf, count, count, siblings);
    }

    function test_P36_claimsTreeAgreesWithPython() public {
        load("claims");
        vm.chainId(number(".chainId"));
        uint256[] memory cumulatives = vm.parseJsonUintArray(json, ".cumulatives");
        for (uint256 i = 0; i < cumulatives.length; i++) {
            address account = vm.parseJsonAddress(json, item("accounts", i, ""));
            address jobs = vm.parseJsonAddress(json, ".jobs");
            leaves.push(Hashing.claimLeaf(jobs, number(".jobId"), account, cumulatives[i]));
            same(leaves[i], word(item("leaves", i, "")), "leaf");
        }
        same(ClaimsTree.root(leaves), word(".root"), "root");
        for (uint256 i = 0; i < cumulatives.length; i++) {
            bytes32[] memory wanted = vm.parseJsonBytes32Array(json, item("proofs", i, ""));
            bytes32[] memory got = ClaimsTree.proof(leaves, i);
            same(keccak256(abi.encode(got)), keccak256(abi.encode(wanted)), "proof");
        }
    }

    function test_P19_verifierOrdersAgreeWithPython() public {
        load("sampling");
        uint256 i;
        for (; exists(item("orders", i, ".seat")); i++) {
            uint256[] memory wanted = vm.parseJsonUintArray(json, item("orders", i, ".order"));
            uint16 seat = uint16(number(item("orders", i, ".seat")));
            bytes32 seed = word(item("orders", i, ".auditSeed"));
            uint16[] memory got = Sampling.verifierOrder(seed, seat, number(item("orders", i, ".verifiers")));
            same(got.length, wanted.length, "verifiers");
            for (uint256 k = 0; k < got.length; k++) {
                same(got[k], wanted[k], "order");
            }
        }
        check(i > 0, "orders in the file");
    }

    function test_P19_drawsAgreeWithPython() public {
        load("sampling");
        uint256 i;
        for (; exists(item("draws", i, ".n")); i++) {
            Sampling.Stream memory stream;
            stream.prefix = abi.encodePacked("atoll.order.v1", vm.parseJsonBytes(json, item("draws", i, ".key")));
            uint256[] memory wanted = vm.parseJsonUintArray(json, item("draws", i, ".values"));
            for (uint256 k = 0; k < wanted.length; k++) {
                same(Sampling.draw(stream, uint64(number(item("draws", i, ".n")))), wanted[k], "draw");
            }
        }
        check(i > 0, "draws in the file");
    }
}
