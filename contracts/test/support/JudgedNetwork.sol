// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {Evidence, Later, Leaf, Model} from "../../src/judge/Claims.sol";
import {Bits} from "../../src/libraries/Bits.sol";
import {Hashing} from "../../src/libraries/Hashing.sol";
import "../../src/types/Types.sol";
import {ClaimsTree} from "./ClaimsTree.sol";
import {Network} from "./Network.sol";

/// @title A job with a judge, whose seats say things that can be proved: two segments a round, states that are names.
abstract contract JudgedNetwork is Network {
    using Bits for uint256;

    uint256 internal constant LEAVES = 2;

    /// What a reader of the chain knows of a round.
    struct Past {
        bytes32 dataSeed;
        uint16 attempt;
        Verdict verdict;
        Later[] reveals;
    }

    uint256 internal jobId;
    mapping(uint256 round => Past) internal past;

    function judgedTerms() internal view returns (Terms memory t) {
        t = defaultTerms();
        t.rounds = 4;
        t.program = ClaimsTree.root(programLeaves());
    }

    function header() internal pure returns (bytes memory) {
        return bytes.concat(new bytes(151), modelDigest(0));
    }

    function programLeaves() internal pure returns (bytes32[] memory found) {
        found = new bytes32[](2);
        (found[0], found[1]) = (keccak256(header()), keccak256("a template"));
    }

    function modelOf(uint256 round) internal pure returns (Model memory) {
        bytes32 opening = round == 0 ? bytes32(0) : keccak256(abi.encode("opening", round));
        bytes32 params = keccak256(abi.encode("params", round));
        return Model(params, keccak256("outer"), keccak256("exponents"), keccak256("moments"), opening);
    }

    function modelDigest(uint256 round) internal pure returns (bytes32) {
        Model memory m = modelOf(round);
        bytes memory roots = abi.encodePacked(m.paramsRoot, m.outerRoot, m.exponents, m.momentsRoot, m.openingRoot);
        return sha256(abi.encodePacked("atoll.global-state.v2", uint64(round), roots));
    }

    function stateAfter(uint32 round, uint16 seat, uint256 index) internal pure returns (bytes32) {
        return keccak256(abi.encode("state", round, seat, index));
    }

    function leafOf(uint32 round, uint16 seat, uint256 index) internal pure returns (Leaf memory leaf) {
        (leaf.firstStep, leaf.lastStep) = (uint32(index * 4), uint32(index * 4 + 3));
        leaf.kind = round == 1 && seat == 3 ? 1 : 0; // it says that it diverged, and reveals every step
        leaf.stateDigest = stateAfter(round, seat, index);
        leaf.batchDigest = keccak256("batches");
        leaf.workWord = keccak256(abi.encode("work", round, seat, index));
        leaf.previous = keccak256("previous");
    }

    function hashOf(uint32 round, uint16 attempt, uint16 seat, uint256 index) internal view returns (bytes32) {
        bytes memory place =
            abi.encode(keccak256("atoll.leaf.v1"), block.chainid, address(rounds), jobId, round, attempt, seat, index);
        return keccak256(bytes.concat(place, abi.encode(leafOf(round, seat, index))));
    }

    function traceLeaves(uint32 round, uint16 attempt, uint16 seat) internal view returns (bytes32[] memory found) {
        found = new bytes32[](LEAVES);
        for (uint256 i = 0; i < LEAVES; i++) {
            found[i] = hashOf(round, attempt, seat, i);
        }
    }

    function judgedReveal(uint32 round, uint16 attempt, uint16 seat) internal view returns (Reveal memory r) {
        bytes32 seed = keccak256(abi.encode(jobId, round, seat));
        r.traceRoot = ClaimsTree.root(traceLeaves(round, attempt, seat));
        r.updateRoot = keccak256(abi.encode(seed, "update"));
        r.optimiserRoot = keccak256(abi.encode(seed, "optimiser"));
        r.steps = STEPS;
        r.salt = keccak256(abi.encode(seed, "salt"));
        (r.updateCid, r.traceCid) = (hex"01", hex"02");
    }

    /// One round in which everyone proves what it says, from TRAIN to its settlement.
    function playJudged() internal {
        RoundState memory s = rounds.state(jobId);
        Past storage p = past[s.round];
        (p.dataSeed, p.attempt) = (s.dataSeed, s.trainAttempt);
        for (uint256 rest = s.seated; rest != 0; rest &= rest - 1) {
            commitOne(jobId, rest.lowest(), judgedReveal(s.round, s.trainAttempt, rest.lowest()));
        }
        for (uint256 rest = s.seated; rest != 0; rest &= rest - 1) {
            revealJudged(p, s, rest.lowest());
        }
        passBeacon(jobId);
        ballotAll(jobId);
        mine(1);
        Verdict memory v = verdictFor(jobId);
        v.mergedDigest = modelDigest(s.round + 1);
        p.verdict = v;
        attestAll(jobId, v);
        rounds.settle(jobId, v);
    }

    function revealJudged(Past storage p, RoundState memory s, uint16 seat) private {
        Reveal memory r = judgedReveal(s.round, s.trainAttempt, seat);
        address account = roster.seatHolder(jobId, seat);
        bytes32 commitment = rounds.commitmentOf(jobId, s.round, s.trainAttempt, seat, account, r);
        p.reveals.push(Later(seat, commitment, rounds.lastOptimiserRoot(jobId, seat)));
        revealOne(jobId, seat, r);
    }

    /// What an honest challenger shows.
    function evidenceOf(uint32 round, uint16 seat, uint32 segment, bool isLink)
        internal
        view
        returns (Evidence memory e)
    {
        Past storage p = past[round];
        (e.jobId, e.round, e.seat, e.isLink, e.segment) = (jobId, round, seat, isLink, segment);
        (e.dataSeed, e.holder) = (p.dataSeed, provider(seat));
        e.reveal = judgedReveal(round, p.attempt, seat);
        showReveals(e, p);
        showModel(e);
        showLeaves(e, p.attempt);
    }

    function showReveals(Evidence memory e, Past storage p) private view {
        uint256 place = 0;
        for (; p.reveals[place].seat != e.seat; place++) {
            Later memory r = p.reveals[place];
            e.before = Hashing.accumulateReveal(e.before, r.seat, r.commitment, r.opening);
        }
        e.opening = p.reveals[place].opening;
        e.later = new Later[](p.reveals.length - place - 1);
        for (uint256 i = 0; i < e.later.length; i++) {
            e.later[i] = p.reveals[place + 1 + i];
        }
    }

    function showModel(Evidence memory e) private view {
        e.model = modelOf(e.round);
        if (e.round > 0) {
            (e.parent, e.parentAttempt) = (past[e.round - 1].verdict, past[e.round - 1].attempt);
            return;
        }
        (e.header, e.programLeaves) = (header(), 2);
        e.headerProof = siblings(programLeaves(), 0);
    }

    function showLeaves(Evidence memory e, uint16 attempt) private view {
        bytes32[] memory all = traceLeaves(e.round, attempt, e.seat);
        e.leaves = LEAVES;
        e.leaf = leafOf(e.round, e.seat, e.segment);
        e.leafProof = siblings(all, e.segment);
        if (e.isLink || e.segment == 0) return;
        e.previous = leafOf(e.round, e.seat, e.segment - 1);
        e.previousProof = siblings(all, e.segment - 1);
    }

    function siblings(bytes32[] memory all, uint256 index) internal pure returns (bytes32[] memory found) {
        bytes32[] memory packed = ClaimsTree.proof(all, index);
        found = new bytes32[](packed.length - 1);
        for (uint256 i = 0; i < found.length; i++) {
            found[i] = packed[i + 1];
        }
    }
}
