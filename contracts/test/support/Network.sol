// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {AtollToken} from "../../src/AtollToken.sol";
import {Config} from "../../src/Config.sol";
import {CountingPolicy} from "../../src/CountingPolicy.sol";
import {Jobs} from "../../src/Jobs.sol";
import {Roster} from "../../src/Roster.sol";
import {Rounds} from "../../src/Rounds.sol";
import {Stakes} from "../../src/Stakes.sol";
import {Claims} from "../../src/judge/Claims.sol";
import {Params} from "../../src/interfaces/IConfig.sol";
import {RoundsAudit} from "../../src/rounds/RoundsAudit.sol";
import {RoundsSettlement} from "../../src/rounds/RoundsSettlement.sol";
import {Bits} from "../../src/libraries/Bits.sol";
import {Hashing} from "../../src/libraries/Hashing.sol";
import "../../src/types/Types.sol";
import {Check} from "./Check.sol";
import {ClaimsTree} from "./ClaimsTree.sol";
import {StagedGame} from "./StagedGame.sol";

/// @title A deployed network and honest players: a test builds something valid here and breaks exactly one thing.
abstract contract Network is Check {
    using Bits for uint256;

    uint64 internal constant UNBONDING = 7 days;
    uint64 internal constant CHANGE_DELAY = 2 days;
    uint256 internal constant STAKE = 1_000 ether;
    uint32 internal constant STEPS = 8;
    uint64 internal constant TOKENS_PER_STEP = 64;

    AtollToken internal token;
    CountingPolicy internal policy;
    Config internal config;
    Stakes internal stakes;
    Jobs internal jobs;
    Roster internal roster;
    Rounds internal rounds;
    Claims internal claims;
    StagedGame internal game;

    address internal submitter = address(0x5000);
    /// What honest verifiers would put into the claims tree, by position: providers' seats, then verifiers.
    mapping(uint256 jobId => mapping(address => uint256)) internal earned;
    mapping(uint256 jobId => address[]) internal earners;
    bytes32[] internal leaves;

    function setUp() public virtual {
        vm.warp(1_800_000_000);
        vm.roll(1_000);
        deploy(address(new AtollToken(address(this), 1e9 ether)));
        token.transfer(submitter, 1e8 ether);
        vm.prank(submitter);
        token.approve(address(jobs), type(uint256).max);
    }

    function deploy(address token_) internal {
        token = AtollToken(token_);
        policy = new CountingPolicy();
        config = new Config(token_, address(this), defaultParams(), UNBONDING, CHANGE_DELAY, address(policy));
        stakes = new Stakes(address(config));
        jobs = new Jobs(address(config));
        roster = new Roster(address(config), address(stakes), address(jobs));
        address audit = address(new RoundsAudit(address(config), address(stakes), address(jobs), address(roster)));
        address settlement =
            address(new RoundsSettlement(address(config), address(stakes), address(jobs), address(roster)));
        rounds = new Rounds(address(config), address(stakes), address(jobs), address(roster), audit, settlement);
        claims = new Claims(address(stakes), address(jobs), address(roster));
        game = new StagedGame(claims);
        stakes.wire(address(roster), address(rounds), address(claims));
        jobs.wire(address(rounds), address(claims));
        roster.wire(address(rounds), address(claims));
        policy.wire(address(rounds));
        claims.wire(address(rounds), address(game));
    }

    // --- parameters ---

    function defaultParams() internal pure returns (Params memory p) {
        p.missCutBps = 100;
        p.verifierCutBps = 200;
        p.finderShareBps = 3_000;
        p.accusedShareBps = 5_000;
        p.minProviderBond = 1 ether;
        p.minVerifierBond = 1 ether;
    }

    function defaultTerms() internal view returns (Terms memory t) {
        t.rounds = 3;
        t.seats = 4;
        t.minProviders = 2;
        t.minVerifiers = 3;
        t.maxVerifiers = 8;
        t.quorumNumerator = 2;
        t.quorumDenominator = 3;
        t.attempts = 3;
        t.auditors = 2;
        t.beaconDelay = 2;
        t.trainSeconds = 1_200;
        t.revealSeconds = 60;
        t.reportSeconds = 600;
        t.confirmSeconds = 300;
        t.attestSeconds = 300;
        t.disputeSeconds = 900;
        t.expiry = uint64(block.timestamp) + 30 days;
        t.steps = STEPS;
        t.tokensPerStep = TOKENS_PER_STEP;
        t.pricePerToken = 0.001 ether;
        t.verifierFee = 0.5 ether;
        t.providerBond = 100 ether;
        t.verifierBond = 50 ether;
        t.reportBond = 5 ether;
    }

    function provider(uint256 i) internal pure returns (address) {
        return address(uint160(0x10000 + i));
    }

    function verifier(uint256 i) internal pure returns (address) {
        return address(uint160(0x20000 + i));
    }

    // --- members ---

    function stakeUp(address account, Role role, uint256 amount) internal {
        token.transfer(account, amount);
        vm.startPrank(account);
        token.approve(address(stakes), amount);
        stakes.deposit(role, amount);
        vm.stopPrank();
    }

    function create(Terms memory t) internal returns (uint256 jobId) {
        uint256 funding = jobs.budget(t);
        vm.prank(submitter);
        return jobs.create(keccak256("manifest"), hex"01", t, address(policy), funding);
    }

    function joinProvider(uint256 jobId, uint256 i) internal {
        (uint256 active, uint256 locked,) = stakes.stakeOf(provider(i), Role.PROVIDER);
        uint256 bond = jobs.termsOf(jobId).providerBond;
        if (active - locked < bond) stakeUp(provider(i), Role.PROVIDER, STAKE + bond);
        vm.prank(provider(i));
        roster.joinAsProvider(jobId);
    }

    function joinVerifier(uint256 jobId, uint256 i) internal {
        (uint256 active, uint256 locked,) = stakes.stakeOf(verifier(i), Role.VERIFIER);
        uint256 bond = jobs.termsOf(jobId).verifierBond;
        if (active - locked < bond) stakeUp(verifier(i), Role.VERIFIER, STAKE + bond);
        vm.startPrank(verifier(i));
        roster.joinAsVerifier(jobId);
        roster.attestReady(jobId);
        vm.stopPrank();
    }

    /// @return jobId of a job whose first training has begun
    function start(Terms memory t, uint256 providers, uint256 verifiers) internal returns (uint256 jobId) {
        jobId = create(t);
        open(jobId, providers, verifiers);
    }

    function open(uint256 jobId, uint256 providers, uint256 verifiers) internal {
        for (uint256 i = 0; i < providers; i++) {
            joinProvider(jobId, i);
        }
        for (uint256 i = 0; i < verifiers; i++) {
            joinVerifier(jobId, i);
        }
        rounds.poke(jobId);
        passBeacon(jobId);
    }

    function start() internal returns (uint256 jobId) {
        return start(defaultTerms(), 4, 3);
    }

    // --- time ---

    function mine(uint256 blocks) internal {
        vm.roll(block.number + blocks);
        vm.warp(block.timestamp + blocks);
    }

    function passBeacon(uint256 jobId) internal {
        uint256 beacon = rounds.state(jobId).beaconBlock;
        vm.roll(beacon + 1);
        vm.warp(block.timestamp + 2);
        rounds.poke(jobId);
    }

    function passDeadline(uint256 jobId) internal {
        vm.warp(rounds.state(jobId).deadline);
        mine(1);
        rounds.poke(jobId);
    }

    // --- a round ---

    function revealFor(uint256 jobId, uint16 seat) internal view returns (Reveal memory r) {
        RoundState memory s = rounds.state(jobId);
        bytes32 seed = keccak256(abi.encode(jobId, s.round, s.trainAttempt, seat));
        r.traceRoot = keccak256(abi.encode(seed, "trace"));
        r.updateRoot = keccak256(abi.encode(seed, "update"));
        r.optimiserRoot = keccak256(abi.encode(seed, "optimiser"));
        r.steps = STEPS;
        r.salt = keccak256(abi.encode(seed, "salt"));
        r.updateCid = abi.encodePacked(hex"01551220", r.updateRoot);
        r.traceCid = abi.encodePacked(hex"01711220", r.traceRoot);
    }

    function commitOne(uint256 jobId, uint16 seat, Reveal memory r) internal {
        RoundState memory s = rounds.state(jobId);
        address account = roster.seatHolder(jobId, seat);
        bytes32 commitment = rounds.commitmentOf(jobId, s.round, s.attempt, seat, account, r);
        vm.prank(account);
        rounds.commit(jobId, s.round, s.attempt, commitment);
    }

    function revealOne(uint256 jobId, uint16 seat, Reveal memory r) internal {
        RoundState memory s = rounds.state(jobId);
        vm.prank(roster.seatHolder(jobId, seat));
        rounds.reveal(jobId, s.round, s.attempt, r);
    }

    function commitAll(uint256 jobId, uint256 seats) internal {
        for (uint256 rest = seats; rest != 0; rest &= rest - 1) {
            uint16 seat = rest.lowest();
            commitOne(jobId, seat, revealFor(jobId, seat));
        }
    }

    function revealAll(uint256 jobId, uint256 seats) internal {
        for (uint256 rest = seats; rest != 0; rest &= rest - 1) {
            uint16 seat = rest.lowest();
            revealOne(jobId, seat, revealFor(jobId, seat));
        }
    }

    /// Everyone trains and reveals; the audit seed is drawn.
    function toReport(uint256 jobId) internal {
        commitAll(jobId, rounds.state(jobId).seated);
        revealAll(jobId, rounds.state(jobId).committed);
        passBeacon(jobId);
    }

    function allFindings(uint256 seats) internal pure returns (Finding[] memory findings) {
        findings = new Finding[](seats.popcount());
        for (uint256 i = 0; i < findings.length; i++) {
            findings[i] = Finding(seats.lowest(), 0xff);
            seats &= seats - 1;
        }
    }

    function noReports() internal pure returns (Report[] memory) {
        return new Report[](0);
    }

    function oneReport(uint16 seat, uint16 segment, Fault fault) internal pure returns (Report[] memory reports) {
        reports = new Report[](1);
        reports[0] = Report(seat, segment, fault, keccak256("what I computed"));
    }

    function ballotBy(uint256 jobId, uint256 v, uint256 seats, Report[] memory reports) internal {
        RoundState memory s = rounds.state(jobId);
        (address account,) = roster.verifierHolder(jobId, uint16(v));
        vm.prank(account);
        rounds.ballot(jobId, s.round, s.attempt, allFindings(seats), reports, bytes32(0));
    }

    function ballotAll(uint256 jobId) internal {
        RoundState memory s = rounds.state(jobId);
        for (uint256 rest = s.verifiers; rest != 0; rest &= rest - 1) {
            ballotBy(jobId, rest.lowest(), s.auditSet, noReports());
        }
    }

    function challengeBy(uint256 jobId, uint256 v, uint16 seat, uint16 segment, bytes memory block_) internal {
        RoundState memory s = rounds.state(jobId);
        (address account,) = roster.verifierHolder(jobId, uint16(v));
        bytes32 digest = sha256(block_); // a call of its own, which would use up the prank
        vm.prank(account);
        rounds.challenge(jobId, s.round, s.attempt, seat, segment, digest);
    }

    function withdrawBy(uint256 jobId, uint256 v, uint16 index) internal {
        RoundState memory s = rounds.state(jobId);
        (address account,) = roster.verifierHolder(jobId, uint16(v));
        vm.prank(account);
        rounds.withdrawChallenge(jobId, s.round, s.attempt, index);
    }

    function answer(uint256 jobId, uint16 index, bytes memory block_) internal {
        RoundState memory s = rounds.state(jobId);
        rounds.answerChallenge(jobId, s.round, s.attempt, index, block_);
    }

    function voteBy(uint256 jobId, uint256 v, uint256 agree, uint256 disagree, uint256 cannotFetch) internal {
        RoundState memory s = rounds.state(jobId);
        (address account,) = roster.verifierHolder(jobId, uint16(v));
        vm.prank(account);
        rounds.vote(jobId, s.round, s.attempt, agree, disagree, cannotFetch);
    }

    // --- verdicts ---

    /// @return v the verdict that the evidence asks for; also what everyone has earned after it
    function verdictFor(uint256 jobId) internal returns (Verdict memory v) {
        RoundState memory s = rounds.state(jobId);
        Terms memory t = jobs.termsOf(jobId);
        uint256 tokensEach = uint256(t.steps) * t.tokensPerStep;
        for (uint256 rest = s.accepted; rest != 0; rest &= rest - 1) {
            earn(jobId, roster.seatHolder(jobId, rest.lowest()), tokensEach * t.pricePerToken);
        }
        for (uint256 rest = s.dutiful; rest != 0; rest &= rest - 1) {
            (address account,) = roster.verifierHolder(jobId, rest.lowest());
            earn(jobId, account, t.verifierFee);
        }
        v.evidenceRoot = s.evidenceRoot;
        v.cutBlockHash = blockhash(s.cutBlock);
        v.mergedDigest = keccak256(abi.encode("merged", s.round));
        v.mergedCid = abi.encodePacked(hex"01551220", v.mergedDigest);
        v.claimsRoot = claimsRoot(jobId);
        v.tokensTotal = s.accepted.popcount() * tokensEach;
        v.tokensRoot = keccak256(abi.encode(v.tokensTotal));
        v.parent = s.parent;
        v.cumulativeTotal = s.cumulativeTotal + v.tokensTotal * t.pricePerToken + s.dutiful.popcount() * t.verifierFee;
    }

    function earn(uint256 jobId, address account, uint256 amount) internal {
        if (earned[jobId][account] == 0) earners[jobId].push(account);
        earned[jobId][account] += amount;
    }

    function claimsRoot(uint256 jobId) internal returns (bytes32) {
        fillLeaves(jobId);
        return leaves.length == 0 ? keccak256("nobody") : ClaimsTree.root(leaves);
    }

    function fillLeaves(uint256 jobId) internal {
        delete leaves;
        for (uint256 i = 0; i < earners[jobId].length; i++) {
            address account = earners[jobId][i];
            leaves.push(Hashing.claimLeaf(address(jobs), jobId, account, earned[jobId][account]));
        }
    }

    function proofOf(uint256 jobId, address account) internal returns (bytes32[] memory) {
        fillLeaves(jobId);
        for (uint256 i = 0; i < earners[jobId].length; i++) {
            if (earners[jobId][i] == account) return ClaimsTree.proof(leaves, i);
        }
        revert NotTrue("account has earned nothing");
    }

    function claim(uint256 jobId, address account) internal {
        jobs.claim(jobId, account, earned[jobId][account], proofOf(jobId, account));
    }

    function attestBy(uint256 jobId, uint256 v, bytes32 verdictHash) internal {
        RoundState memory s = rounds.state(jobId);
        (address account,) = roster.verifierHolder(jobId, uint16(v));
        vm.prank(account);
        rounds.attest(jobId, s.round, s.attempt, verdictHash, "");
    }

    function attestAll(uint256 jobId, Verdict memory v) internal {
        RoundState memory s = rounds.state(jobId);
        bytes32 hash = rounds.verdictHash(jobId, s.round, s.attempt, v);
        for (uint256 rest = s.verifiers; rest != 0; rest &= rest - 1) {
            attestBy(jobId, rest.lowest(), hash);
        }
    }

    /// From ATTEST to the next training.
    function settle(uint256 jobId) internal {
        mine(1);
        Verdict memory v = verdictFor(jobId);
        attestAll(jobId, v);
        rounds.settle(jobId, v);
    }

    /// One honest round, from TRAIN to its settlement.
    function playRound(uint256 jobId) internal {
        toReport(jobId);
        ballotAll(jobId);
        settle(jobId);
    }

    /// Makes every settled round final.
    function finaliseAll(uint256 jobId) internal {
        (uint32 done,,) = rounds.finalRounds(jobId);
        uint32 settled = rounds.settledRounds(jobId);
        if (done == settled) return;
        uint64 until = rounds.disputeUntil(jobId, settled - 1);
        if (block.timestamp < until) vm.warp(until);
        for (; done < settled; done++) {
            rounds.finalise(jobId);
        }
    }

    // --- reading ---

    function phase(uint256 jobId) internal view returns (Phase) {
        return rounds.state(jobId).phase;
    }

    function inPhase(uint256 jobId, Phase wanted) internal view {
        same(uint256(rounds.state(jobId).phase), uint256(wanted), "phase");
    }

    function hasStatus(uint256 jobId, JobStatus wanted) internal view {
        same(uint256(jobs.statusOf(jobId)), uint256(wanted), "status in the escrow");
        same(uint256(rounds.state(jobId).status), uint256(wanted), "status in the rounds");
    }

    function activeOf(address account, Role role) internal view returns (uint256 active) {
        (active,,) = stakes.stakeOf(account, role);
    }

    function lockedOf(address account, Role role) internal view returns (uint256 locked) {
        (, locked,) = stakes.stakeOf(account, role);
    }

    function checkEscrow(uint256 jobId) internal view {
        (uint256 funded, uint256 claimed, uint256 refunded, uint256 balance) = jobs.escrowOf(jobId);
        same(funded, claimed + refunded + balance, "funded = claimed + refunded + balance");
    }
}
