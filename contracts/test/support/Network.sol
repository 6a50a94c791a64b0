// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {Audits} from "../../src/Audits.sol";
import {AtollToken} from "../../src/AtollToken.sol";
import {Config} from "../../src/Config.sol";
import {EcdsaPolicy} from "../../src/EcdsaPolicy.sol";
import {IERC20} from "@openzeppelin/contracts/token/ERC20/IERC20.sol";
import {Jobs} from "../../src/Jobs.sol";
import {Members} from "../../src/Members.sol";
import {Rounds} from "../../src/Rounds.sol";
import {Stakes} from "../../src/Stakes.sol";
import {LateVotes} from "../../src/LateVotes.sol";
import {Strikes} from "../../src/Strikes.sol";
import {Claims, Evidence, Model} from "../../src/judge/Claims.sol";
import {IBeacon} from "../../src/interfaces/IBeacon.sol";
import {IAttestationPolicy} from "../../src/interfaces/IAttestationPolicy.sol";
import {Params} from "../../src/interfaces/IConfig.sol";
import {Bits} from "../../src/libraries/Bits.sol";
import {Draws} from "../../src/libraries/Draws.sol";
import {Earned} from "../../src/interfaces/IHooks.sol";
import {Hashing} from "../../src/libraries/Hashing.sol";
import {Later, Shown} from "../../src/libraries/Reveals.sol";
import {TypedData} from "../../src/libraries/TypedData.sol";
import "../../src/types/Types.sol";
import {Check} from "./Check.sol";
import {deployed} from "./Deployed.sol";
import {StagedGame} from "./StagedGame.sol";
import {Trainer} from "./Trainer.sol";

/// @title All contracts, people with stakes, and a whole round in one call.
/// @dev Who is honest does what `play` does; a test breaks one thing of it.
abstract contract Network is Check {
    using Bits for uint256;

    uint256 internal constant LONGEST = 20_000;
    uint256 internal constant STAKE = 1_000 ether;
    uint256 internal constant BOND = 100 ether;
    address internal constant SUBMITTER = address(0x5ab);
    address internal constant OUTSIDER = address(0x0515);

    IERC20 internal token;
    Config internal config;
    Stakes internal stakes;
    Jobs internal jobs;
    Members internal members;
    Rounds internal rounds;
    Audits internal audits;
    LateVotes internal lateVotes;
    Strikes internal strikes;
    Claims internal claims;
    StagedGame internal game;
    IAttestationPolicy internal policy; // of the jobs that `create` makes
    Trainer internal trainer;
    IBeacon internal beacon; // of who is audited

    /// What was said of a round, as everybody could fold it from the events.
    struct Said {
        uint16[] seats; // in the order of their reveals
        bytes32[] commitments;
        bytes slots;
        uint256[] has;
        RoundRecord record;
        bytes32 digest;
        bytes32 committeeSeed;
    }

    mapping(uint256 jobId => mapping(uint32 round => Said)) internal said;
    mapping(uint256 jobId => bytes32) internal model; // certified last
    uint256[] internal created;
    mapping(address account => mapping(Role => uint256)) private _deposited;
    mapping(address account => bool) private _guilty;
    mapping(address account => uint256 key) private _keys; // of who came by `enrol`
    uint32 internal resetPeriod = 1; // of jobs that are created
    uint64 internal stepNodes = 1; // of the same: 0 where no trace decides
    uint32 internal microBatches; // of a step of theirs

    function setUp() public virtual {
        deploy(deployed("AtollToken", abi.encode(address(this), 1_000_000_000 ether, uint8(18))));
    }

    function deploy(address token_) internal {
        game = StagedGame(deployed("StagedGame", ""));
        deployWith(token_, address(game));
        game.wire(address(claims));
    }

    /// @param game_ which the caller wires
    function deployWith(address token_, address game_) internal {
        token = IERC20(token_);
        trainer = Trainer(deployed("Trainer", ""));
        address[] memory policies = deployPolicies();
        Params memory params = Params(100, 3_000, 10, 5, 150, 1 ether, 1 ether);
        beacon = deployBeacon();
        bytes memory args = abi.encode(token_, address(this), params, 7 days, 2 days, LONGEST, beacon, policies);
        config = Config(deployed("Config", args));
        stakes = Stakes(deployed("Stakes", abi.encode(config)));
        jobs = Jobs(deployed("Jobs", abi.encode(config, createdIn(3), createdIn(4), createdIn(5), game_)));
        address settlement = deployed("RoundsSettlement", abi.encode(jobs));
        address membership = deployed("RoundsMembership", abi.encode(jobs));
        rounds = Rounds(deployed("Rounds", abi.encode(jobs, LONGEST, settlement, membership)));
        members = Members(deployed("Members", abi.encode(stakes, jobs)));
        audits = Audits(deployed("Audits", abi.encode(rounds, members, jobs)));
        lateVotes = LateVotes(deployed("LateVotes", abi.encode(rounds, members, audits)));
        address derived = deployed("DerivedStrikes", abi.encode(rounds, members, jobs));
        strikes = Strikes(deployed("Strikes", abi.encode(rounds, members, jobs, derived)));
        claims = Claims(deployed("Claims", abi.encode(rounds, members, jobs, audits)));
        stakes.wire(address(members), address(jobs));
        rounds.wire(address(members), address(audits), address(lateVotes), address(strikes));
        members.wire(address(rounds), address(audits), address(lateVotes), address(claims), address(strikes), game_);
        audits.wire(game_);
        claims.wire(game_);
        vm.warp(1_000_000);
        vm.roll(1_000);
        token.transfer(SUBMITTER, 100_000_000 ether);
        vm.prank(SUBMITTER);
        token.approve(address(jobs), type(uint256).max);
    }

    /// @return where the contract goes that is created so many contracts after the next
    function createdIn(uint256 count) internal view returns (address) {
        return vm.computeCreateAddress(address(this), vm.getNonce(address(this)) + count);
    }

    /// @return policies that jobs may choose, the first of them `policy`
    function deployPolicies() internal virtual returns (address[] memory policies) {
        policy = EcdsaPolicy(deployed("EcdsaPolicy", ""));
        policies = new address[](1);
        policies[0] = address(policy);
    }

    function deployBeacon() internal virtual returns (IBeacon) {
        return IBeacon(deployed("HistoryBeacon", ""));
    }

    // --- people ---

    function providerKey(uint256 i) internal pure returns (uint256) {
        return 0x1000 + i;
    }

    function verifierKey(uint256 i) internal pure returns (uint256) {
        return 0x2000 + i;
    }

    function provider(uint256 i) internal pure returns (address) {
        return vm.addr(providerKey(i));
    }

    function verifier(uint256 i) internal pure returns (address) {
        return vm.addr(verifierKey(i));
    }

    function stakeUp(address account, Role role, uint256 amount) internal {
        _deposited[account][role] += amount;
        token.transfer(account, amount);
        vm.startPrank(account);
        token.approve(address(stakes), amount);
        stakes.deposit(role, amount);
        vm.stopPrank();
    }

    function join(uint256 jobId, uint256 i, uint16 seat) internal returns (uint32 id) {
        address account = provider(i);
        stakeUp(account, Role.PROVIDER, BOND);
        vm.prank(account);
        id = members.join(jobId, seat);
    }

    function enrol(uint256 jobId, uint256 i, uint16 slot) internal returns (uint32 id) {
        id = enrolUnready(jobId, i, slot);
        vm.prank(verifier(i));
        members.ready(jobId);
    }

    function enrolUnready(uint256 jobId, uint256 i, uint16 slot) internal returns (uint32) {
        address account = verifier(i);
        _keys[account] = verifierKey(i);
        stakeUp(account, Role.VERIFIER, BOND);
        vm.prank(account);
        return members.enrol(jobId, slot, uint128(BOND), enrolment(i, jobId, slot, BOND));
    }

    /// @return what verifier i shows to take the slot
    function enrolment(uint256 i, uint256 jobId, uint16 slot, uint256 bond) internal view returns (bytes memory) {
        bytes32 digest = TypedData.enrolment(address(members), jobId, slot, uint128(bond), verifier(i));
        (uint8 v, bytes32 r, bytes32 s) = vm.sign(verifierKey(i), digest);
        return abi.encodePacked(r, s, v);
    }

    // --- jobs ---

    function defaultTerms() internal view returns (Terms memory t) {
        (t.rounds, t.seats, t.minProviders, t.slots, t.minVerifiers) = (2, 4, 2, 3, 2);
        (t.f, t.auditRate, t.lastRate) = (1, 2, 0);
        (t.trainSeconds, t.revealSeconds, t.mergeSeconds) = (600, 100, 100);
        (t.auditSeconds, t.openSeconds, t.keySeconds, t.windowSeconds) = (700, 100, 100, 2_000);
        (t.readySeconds, t.gameSeconds, t.moveSeconds, t.claimSeconds) = (1_000, 1_000, 60, 10_000);
        t.expiry = uint64(block.timestamp + 30 days);
        (t.steps, t.segmentSteps, t.tokensPerStep) = (80, 10, 1_000);
        (t.segmentPay, t.signFee, t.dutyFee) = (0.01 ether, 1 ether, 10 ether);
        (t.providerBond, t.verifierBond, t.program) = (uint128(BOND), uint128(BOND), program());
    }

    /// @dev What claims read of a program: how many steps a round and a segment have, and how many
    /// rounds a reset period.
    function header() internal view returns (bytes memory) {
        // Behind 122 bytes that claims do not read, the digest of the model that round 0 opens
        // from.
        bytes32 initial = modelDigest(initialModel(), 0);
        bytes memory plain = abi.encodePacked(
            uint8(1), stepNodes, uint64(0), uint32(80), uint32(10), microBatches, new bytes(122), initial
        );
        return resetPeriod == 1 ? plain : abi.encodePacked(plain, resetPeriod, uint32(0), uint32(0));
    }

    /// @return root of the tree whose one leaf is the header
    function program() internal view returns (bytes32) {
        bytes32 leaf = keccak256(abi.encodePacked(bytes1(0x00), keccak256(header())));
        return keccak256(abi.encodePacked(bytes1(0x02), uint64(1), leaf));
    }

    function segmentPay() internal pure returns (uint256) {
        return 10 * 1_000 * 1e12;
    }

    function create(Terms memory t) internal returns (uint256 jobId) {
        uint256 funding = jobs.budget(t);
        vm.prank(SUBMITTER);
        jobId = jobs.create("spec", "cid", t, address(policy), funding);
        created.push(jobId);
    }

    /// @return jobId with everybody seated and ready, in TRAIN
    function start(Terms memory t, uint256 providers, uint256 verifiers) internal returns (uint256 jobId) {
        jobId = create(t);
        for (uint256 i = 0; i < providers; i++) {
            join(jobId, i, uint16(i));
        }
        for (uint256 i = 0; i < verifiers; i++) {
            enrol(jobId, i, uint16(i));
        }
        nextBlock();
        rounds.advance(jobId);
        if (verifiers <= 32) return jobId;
        nextBlock(); // a committee is drawn, by a block that was not known when the pool was noted
        rounds.advance(jobId);
    }

    function start() internal returns (uint256) {
        return start(defaultTerms(), 4, 3);
    }

    function nextBlock() internal {
        vm.roll(block.number + 1);
        vm.warp(block.timestamp + 1);
    }

    // --- a round ---

    function keyOf(uint256 jobId, uint32 round, uint16 seat) internal view returns (bytes32) {
        return keccak256(abi.encode("key", jobId, round, seat, accountOf(jobId, seat)));
    }

    function workTag(uint256 jobId, uint32 round, uint16 seat, uint256 segment) internal view returns (bytes32) {
        return trainer.workTag(jobId, round, seat, segment);
    }

    function revealFor(uint256 jobId, uint16 seat, uint256 segments) internal view returns (Reveal memory) {
        uint32 round = rounds.state(jobId).round;
        return trainer.train(jobId, round, seat, keyOf(jobId, round, seat), segments);
    }

    function commitmentFor(uint256 jobId, uint16 seat, Reveal memory r) internal view returns (bytes32) {
        RoundState memory s = rounds.state(jobId);
        Hashing.RoundId memory roundId = Hashing.RoundId(address(rounds), jobId, s.round);
        return trainer.commitment(roundId, s.seed, seat, accountOf(jobId, seat), s.model, r);
    }

    function commitSeat(uint256 jobId, uint16 seat, Reveal memory r) internal {
        bytes32 commitment = commitmentFor(jobId, seat, r);
        bytes32 seed = rounds.state(jobId).seed;
        vm.prank(accountOf(jobId, seat));
        rounds.commit(jobId, seat, seed, commitment);
    }

    function revealSeat(uint256 jobId, uint16 seat, Reveal memory r) internal {
        RoundState memory s = rounds.state(jobId);
        Said storage now_ = said[jobId][s.round];
        now_.seats.push(seat);
        now_.commitments.push(commitmentFor(jobId, seat, r));
        vm.prank(accountOf(jobId, seat));
        rounds.reveal(jobId, seat, s.seed, r);
    }

    function castVote(uint256 jobId, uint16 slot, uint256 has) internal {
        RoundState memory s = rounds.state(jobId);
        said[jobId][s.round].slots.push(bytes1(uint8(slot)));
        said[jobId][s.round].has.push(has);
        vm.prank(memberAt(jobId, slot));
        rounds.vote(jobId, slot, s.seed, has);
    }

    function commitAll(uint256 jobId, uint256 seats) internal {
        for (; seats != 0; seats &= seats - 1) {
            uint16 seat = seats.lowest();
            commitSeat(jobId, seat, revealFor(jobId, seat, 8));
        }
    }

    function revealAll(uint256 jobId, uint256 seats) internal {
        for (; seats != 0; seats &= seats - 1) {
            uint16 seat = seats.lowest();
            revealSeat(jobId, seat, revealFor(jobId, seat, 8));
        }
    }

    function sayAll(uint256 jobId, uint256 has) internal {
        uint256 left = rounds.state(jobId).committee;
        for (; left != 0; left &= left - 1) {
            castVote(jobId, left.lowest(), has);
        }
    }

    /// @dev Where fewer than half are in time it goes on, three times in a round.
    function endPhase(uint256 jobId) internal {
        Phase phase = rounds.state(jobId).phase;
        while (rounds.state(jobId).phase == phase) {
            vm.warp(rounds.state(jobId).deadline);
            rounds.advance(jobId);
        }
    }

    /// @return jobId's round in MERGE, with every vote cast
    function toVotes(uint256 jobId) internal returns (uint32) {
        sayAll(jobId, toMerge(jobId));
        return rounds.state(jobId).round;
    }

    /// @return seated who have all revealed, in the block before
    function toMerge(uint256 jobId) internal returns (uint256 seated) {
        seated = rounds.state(jobId).seated;
        commitAll(jobId, seated);
        nextBlock();
        revealAll(jobId, seated);
        nextBlock();
    }

    function verdictFor(uint256 jobId, uint256 available) internal view returns (Verdict memory v) {
        uint32 round = rounds.state(jobId).round;
        v.merged = uint16(available.popcount());
        v.state = stateAfter(jobId, round);
        (v.cid, v.loss, v.statement) = ("merged", bytes8(uint64(1)), keccak256("statement"));
    }

    function stateAfter(uint256 jobId, uint32 round) internal pure returns (bytes32) {
        return modelDigest(modelAfter(jobId, round), round + 1);
    }

    function initialModel() internal pure returns (Model memory) {
        return Model("params", "outer", "exponents", "moments", "opening");
    }

    function modelAfter(uint256 jobId, uint32 round) internal pure returns (Model memory m) {
        bytes32 tag = keccak256(abi.encode(jobId, round));
        return Model(keccak256(abi.encode(tag, 1)), keccak256(abi.encode(tag, 2)), tag, tag, tag);
    }

    function modelDigest(Model memory m, uint32 round) internal pure returns (bytes32) {
        return sha256(
            abi.encodePacked(
                "atoll.global-state.v2",
                uint64(round),
                m.paramsRoot,
                m.outerRoot,
                m.exponents,
                m.momentsRoot,
                m.initialRoot
            )
        );
    }

    function digestFor(uint256 jobId, Verdict memory v) internal view returns (bytes32) {
        RoundState memory s = rounds.state(jobId);
        bytes32 kept = Hashing.cut(s.votes);
        return trainer.digest(Hashing.RoundId(address(rounds), jobId, s.round), s.seed, kept, v);
    }

    /// @return a certificate by those members of the committee whose bit is set, by rank
    function certificate(uint256 jobId, bytes32 digest, uint256 committee, uint256 ranks)
        internal
        view
        virtual
        returns (bytes memory)
    {
        bytes memory signatures;
        uint256 rank;
        for (; committee != 0; (committee &= committee - 1, rank++)) {
            if (!ranks.has(rank)) continue;
            uint256 key = keyOfMember(memberAt(jobId, committee.lowest()));
            signatures = bytes.concat(signatures, signatureOf(key, digest));
        }
        return bytes.concat(bytes4(uint32(ranks)), signatures);
    }

    /// @return a key's part of a certificate: its signature behind that one's length
    function signatureOf(uint256 key, bytes32 digest) internal pure returns (bytes memory) {
        (uint8 v, bytes32 r, bytes32 s) = vm.sign(key, digest);
        return abi.encodePacked(uint16(65), r, s, v);
    }

    function settle(uint256 jobId, Verdict memory v) internal {
        settleBy(jobId, v, Bits.firstBits(rounds.state(jobId).committee.popcount()));
    }

    /// @param ranks of the committee's who sign
    function settleBy(uint256 jobId, Verdict memory v, uint256 ranks) internal {
        RoundState memory s = rounds.state(jobId);
        bytes memory signed = certificate(jobId, digestFor(jobId, v), s.committee, ranks);
        noteRecord(jobId, v);
        Said storage now_ = said[jobId][s.round];
        rounds.settle(jobId, now_.slots, now_.has, Certified(v, accountsOf(jobId, s.committee), signed));
    }

    function settle(uint256 jobId) internal {
        settle(jobId, verdictFor(jobId, rounds.state(jobId).seated));
    }

    /// @dev Votes of MERGE's own block do not tell the audit seed: somebody asks for it in the next
    /// one.
    function knowSeed(uint256 jobId) internal {
        if (rounds.state(jobId).auditSeed != 0) return;
        vm.roll(block.number + 1);
        rounds.seedAudit(jobId);
    }

    /// @dev The committee draw is over that runs: the next one casts its own votes.
    function nextCommittee(uint256 jobId) internal {
        knowSeed(jobId);
        vm.warp(rounds.state(jobId).deadline);
        rounds.advance(jobId);
        RoundState memory s = rounds.state(jobId);
        Said storage of_ = said[jobId][s.round];
        of_.committeeSeed =
            Hashing.committeeSeed(s.committeeDraw == 1 ? s.auditSeed : of_.committeeSeed, s.committeeDraw);
        delete of_.slots;
        delete of_.has;
    }

    function noteRecord(uint256 jobId, Verdict memory v) internal {
        knowSeed(jobId);
        RoundState memory s = rounds.state(jobId);
        Said storage now_ = said[jobId][s.round];
        RoundRecord memory f;
        (f.seed, f.auditSeed, f.reveals) = (s.seed, s.auditSeed, s.reveals);
        (f.votes, f.model, f.revealed) = (Hashing.cut(s.votes), s.model, s.seated);
        (f.available, f.excluded) = (availableOf(now_.has, s.committee.popcount()) & s.seated, v.excluded);
        (f.ready, f.committee) = (s.ready, s.committee);
        f.drawn = drawnBy(jobId, f);
        f.certificate = digestFor(jobId, v);
        (now_.record, now_.digest) = (f, f.certificate);
        if (now_.committeeSeed == 0) now_.committeeSeed = s.seed;
    }

    function availableOf(uint256[] memory has, uint256 committee) internal pure returns (uint256 available) {
        for (uint256 seat = 0; seat < 256; seat++) {
            uint256 count;
            for (uint256 i = 0; i < has.length; i++) {
                if (has[i].has(seat)) count++;
            }
            if (2 * count > committee) available |= Bits.bit(seat);
        }
    }

    /// @return round that was played
    function play(uint256 jobId) internal returns (uint32 round) {
        round = toVotes(jobId);
        nextBlock();
        settle(jobId);
    }

    // --- audits ---

    function drawn(uint256 jobId, uint32 round) internal view returns (uint256) {
        return said[jobId][round].record.drawn;
    }

    /// @return seats that a settlement with this verdict draws
    function drawnBy(uint256 jobId, RoundRecord memory f) internal view returns (uint256) {
        Terms memory t = jobs.termsOf(jobId);
        (,, Earned memory earned) = rounds.statusOf(jobId);
        uint256 sure = f.excluded == 0 ? 0 : Draws.oneOf(f.auditSeed, f.excluded);
        uint256 rate = rounds.state(jobId).round + 1 == t.rounds ? t.lastRate : t.auditRate;
        if (t.f == 0) rate = 0;
        uint256 seeded;
        for (uint256 left = f.revealed & ~sure; left != 0; left &= left - 1) {
            uint256 lower = rate + rounds.stepsOf(jobId, left.lowest());
            if (rate == 0 || Draws.isDrawn(f.auditSeed, left.lowest(), lower)) seeded |= left & (~left + 1);
        }
        return Draws.atMost(seeded, earned.dutiesLeft) | sure;
    }

    function dutiesOf(uint256 jobId, uint32 round, uint16 slot) internal view returns (uint256) {
        return dutiesOf(jobId, round)[slot];
    }

    /// @return duties of each slot
    function dutiesOf(uint256 jobId, uint32 round) internal view returns (uint256[256] memory duties) {
        RoundRecord memory f = said[jobId][round].record;
        for (uint256 left = f.drawn; left != 0; left &= left - 1) {
            uint16 seat = left.lowest();
            if (rounds.segmentsOf(jobId, round, seat) == 0) continue;
            for (uint256 slots = f.ready; slots != 0; slots &= slots - 1) {
                uint16 slot = slots.lowest();
                if (Draws.isAuditor(f.auditSeed, f.drawn, f.ready, seat, slot)) duties[slot] |= Bits.bit(seat);
            }
        }
    }

    function validBody(uint256 jobId, uint32 round, uint256 duties, address auditor)
        internal
        view
        returns (bytes memory body)
    {
        for (; duties != 0; duties &= duties - 1) {
            uint16 seat = duties.lowest();
            body = abi.encodePacked(body, uint8(seat), type(uint16).max, validDigest(jobId, round, seat, auditor));
        }
    }

    function validDigest(uint256 jobId, uint32 round, uint16 seat, address auditor) internal view returns (bytes32) {
        bytes memory text = abi.encodePacked(auditor);
        uint256 segments = rounds.segmentsOf(jobId, round, seat);
        for (uint256 i = 0; i < segments; i++) {
            text = abi.encodePacked(text, workTag(jobId, round, seat, i));
        }
        return keccak256(text);
    }

    function auditReportBody(uint256 jobId, uint32 round, uint32 id, bytes memory body) internal {
        Holder memory m = members.holderOf(jobId, Role.VERIFIER, id);
        bytes32 seed = said[jobId][round].record.auditSeed;
        Hashing.RoundId memory roundId = Hashing.RoundId(address(rounds), jobId, round);
        bytes32 sealed_ = Hashing.auditReport(roundId, seed, id, m.account, keccak256(body), "salt");
        vm.prank(m.account);
        audits.sealAuditReport(jobId, round, sealed_);
    }

    function openBody(uint256 jobId, uint32 round, uint32 id, bytes memory body) internal {
        vm.prank(members.holderOf(jobId, Role.VERIFIER, id).account);
        audits.open(jobId, round, id, said[jobId][round].record, body, "salt");
    }

    function honestBody(uint256 jobId, uint32 round, uint32 id) internal view returns (bytes memory) {
        Holder memory m = members.holderOf(jobId, Role.VERIFIER, id);
        return validBody(jobId, round, dutiesOf(jobId, round, m.index), m.account);
    }

    /// @return bodies of jobs' members that `start` made, each empty where nothing is owed
    function honestBodies(uint256 jobId, uint32 round) internal view returns (bytes[] memory bodies) {
        bodies = new bytes[](said[jobId][round].record.ready.popcount());
        uint256[256] memory duties = dutiesOf(jobId, round);
        for (uint32 id = 1; id <= bodies.length; id++) {
            address account = members.holderOf(jobId, Role.VERIFIER, id).account;
            bodies[id - 1] = validBody(jobId, round, duties[id - 1], account);
        }
    }

    function showKey(uint256 jobId, uint32 round, uint16 seat) internal {
        showKey(jobId, round, seat, keyOf(jobId, round, seat));
    }

    function showKey(uint256 jobId, uint32 round, uint16 seat, bytes32 key) internal {
        vm.prank(accountOf(jobId, seat));
        audits.key(jobId, round, key);
    }

    /// @dev Ids of members are their slots + 1 in jobs that `start` made.
    function audit(uint256 jobId, uint32 round) internal {
        bytes[] memory bodies = honestBodies(jobId, round);
        for (uint32 id = 1; id <= bodies.length; id++) {
            if (bodies[id - 1].length != 0) auditReportBody(jobId, round, id, bodies[id - 1]);
        }
        vm.warp(rounds.timesOf(jobId, round).auditEnd);
        for (uint32 id = 1; id <= bodies.length; id++) {
            if (bodies[id - 1].length != 0) openBody(jobId, round, id, bodies[id - 1]);
        }
        vm.warp(rounds.timesOf(jobId, round).openEnd);
        for (uint256 left = drawn(jobId, round); left != 0; left &= left - 1) {
            showKey(jobId, round, left.lowest());
        }
    }

    // --- evidence ---

    function shownFor(uint256 jobId, uint32 round, uint16 seat) internal view returns (Shown memory s) {
        uint256 segments = rounds.segmentsOf(jobId, round, seat);
        return shownFor(jobId, round, seat, trainer.train(jobId, round, seat, keyOf(jobId, round, seat), segments));
    }

    function shownFor(uint256 jobId, uint32 round, uint16 seat, Reveal memory r)
        internal
        view
        returns (Shown memory s)
    {
        Said storage of_ = said[jobId][round];
        (s.jobId, s.round, s.seat, s.record, s.reveal) = (jobId, round, seat, of_.record, r);
        (, s.id,) = rounds.seatHolder(jobId, seat);
        bytes32 accumulator = of_.record.seed;
        uint256 i = 0;
        for (; of_.seats[i] != seat; i++) {
            accumulator = Hashing.accumulateReveal(accumulator, of_.seats[i], of_.commitments[i]);
        }
        s.before = accumulator;
        s.later = new Later[](of_.seats.length - i - 1);
        for (uint256 k = 0; k < s.later.length; k++) {
            s.later[k] = Later(of_.seats[i + 1 + k], of_.commitments[i + 1 + k]);
        }
    }

    /// @dev Of rounds after the first: the first one's model is in a program.
    function evidenceFor(uint256 jobId, uint32 round, uint16 seat, uint32 segment)
        internal
        view
        returns (Evidence memory e)
    {
        e.shown = shownFor(jobId, round, seat);
        (e.segment, e.model) = (segment, modelAfter(jobId, round - 1));
        (e.header, e.programLeaves, e.throughRound) = (header(), 1, round);
        if (segment == 0 && round % resetPeriod != 0) e.before = shownFor(jobId, round - 1, seat);
    }

    // --- who ---

    function accountOf(uint256 jobId, uint16 seat) internal view returns (address account) {
        (account,,) = rounds.seatHolder(jobId, seat);
    }

    /// @return what a settlement may show that leaves it to the contract who the committee is
    function bare(Verdict memory v, bytes memory signed) internal pure returns (Certified memory) {
        return Certified(v, new address[](0), signed);
    }

    /// @return accounts of these slots, ascending, in the round that runs
    function accountsOf(uint256 jobId, uint256 slots) internal view returns (address[] memory accounts) {
        accounts = new address[](slots.popcount());
        for (uint256 i = 0; slots != 0; (slots &= slots - 1, i++)) {
            accounts[i] = memberAt(jobId, slots.lowest());
        }
    }

    function memberAt(uint256 jobId, uint16 slot) internal view returns (address account) {
        (account,,) = rounds.slotHolder(jobId, slot);
    }

    /// @dev Who came in otherwise is looked for: an account of a key takes forge longer than most
    /// calls do.
    function keyOfMember(address account) internal view returns (uint256 key) {
        key = _keys[account];
        if (key != 0) return key;
        for (uint256 i = 0; i < 300; i++) {
            if (verifier(i) == account) return verifierKey(i);
        }
        revert NotTrue("a verifier of the test");
    }

    // --- the end ---

    /// @dev Nobody's funds are locked after a job's absolute end, whatever was done or left undone
    /// before: calls that anybody may make close it, pay what is owed, free every bond, and bring
    /// the rest home.
    function everythingGoesHome(uint256 jobId) internal {
        uint256 end = rounds.absoluteEnd(jobId);
        if (block.timestamp < end) vm.warp(end);
        if (rounds.state(jobId).phase != Phase.CLOSED) rounds.advance(jobId);
        uint32 settled = rounds.state(jobId).round;
        freeAll(jobId, Role.PROVIDER, settled);
        freeAll(jobId, Role.VERIFIER, settled);
        try jobs.burn(jobId, settled) {} catch {} // all are, or there is none
        vm.warp(block.timestamp + jobs.termsOf(jobId).claimSeconds);
        jobs.refund(jobId);
        same(jobs.escrowOf(jobId).balance, 0, "the escrow is empty");
    }

    /// @dev Behind a test, whatever became of its jobs.
    modifier allHome() {
        _;
        for (uint256 i = 0; i < created.length; i++) {
            everythingGoesHome(created[i]);
        }
    }

    /// @dev Says that a test lets the account do, or leave undone, what costs a bond or a part of
    /// one.
    function blame(address account) internal {
        _guilty[account] = true;
    }

    /// @dev Behind a test: whoever was not blamed in it has all of its stake.
    modifier onlyTheGuiltyPay() {
        _;
        for (uint256 i = 0; i < created.length; i++) {
            requireWhole(created[i], Role.PROVIDER);
            requireWhole(created[i], Role.VERIFIER);
        }
    }

    function requireWhole(uint256 jobId, Role role) private view {
        for (uint32 id = 1;; id++) {
            address account = members.holderOf(jobId, role, id).account;
            if (account == address(0)) return;
            (uint256 active,, uint256 unbonding) = stakes.stakeOf(account, role);
            bool isWhole = active + unbonding >= _deposited[account][role];
            check(_guilty[account] || isWhole, role == Role.PROVIDER ? "an honest seat" : "an honest member");
        }
    }

    function freeAll(uint256 jobId, Role role, uint32 settled) private {
        for (uint32 id = 1;; id++) {
            Holder memory m = members.holderOf(jobId, role, id);
            if (m.account == address(0)) return;
            try jobs.claim(jobId, role, id, m.to < settled ? m.to : settled) {} catch {} // claimed, or never counted
            if (!m.isReleased) members.release(jobId, role, id);
            same(members.bondOf(jobId, role, id), 0, "the bond is free");
        }
    }

    function inPhase(uint256 jobId, Phase phase) internal view {
        same(uint256(rounds.state(jobId).phase), uint256(phase), "phase");
    }

    function hasStatus(uint256 jobId, JobStatus status) internal view {
        same(uint256(rounds.state(jobId).status), uint256(status), "status");
    }

    function activeOf(address account, Role role) internal view returns (uint256 active) {
        (active,,) = stakes.stakeOf(account, role);
    }

    function lockedOf(address account, Role role) internal view returns (uint256 locked) {
        (, locked,) = stakes.stakeOf(account, role);
    }
}
