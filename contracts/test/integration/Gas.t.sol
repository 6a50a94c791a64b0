// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {AtollToken} from "../../src/AtollToken.sol";
import {Evidence} from "../../src/judge/Claims.sol";
import {Claim} from "../../src/judge/IClaims.sol";
import {Game} from "../../src/judge/Game.sol";
import {Judge} from "../../src/judge/Judge.sol";
import {Due} from "../../src/interfaces/IJobs.sol";
import {Having} from "../../src/interfaces/ILateVotes.sol";
import {Bits} from "../../src/libraries/Bits.sol";
import {Shown} from "../../src/libraries/Reveals.sol";
import "../../src/types/Types.sol";
import {BlsNetwork} from "../support/BlsNetwork.sol";
import {Network} from "../support/Network.sol";
import {deployed} from "../support/Deployed.sol";

/// @title P41: what each call costs in steady state, and all calls of a round together, by seats
/// and members.
/// @dev Every call is a transaction of its own, so that gas is counted as on a chain.
/// forge-config: default.isolate = true
contract GasTest is Network {
    using Bits for uint256;

    event log_named_uint(string what, uint256 gas); // forge prints it with -vv

    uint256 private constant WARM = 3; // rounds before the one that is measured: words of rows and of accounts are there

    uint256 internal spent;

    /// @dev Notes the gas of the last call.
    function note(string memory what) internal returns (uint256 gas) {
        gas = vm.snapshotGasLastCall(what);
        spent += gas;
    }

    function terms(uint16 seats, uint16 slots, uint8 rate) internal view returns (Terms memory t) {
        t = defaultTerms();
        (t.seats, t.minProviders, t.slots, t.minVerifiers) = (seats, seats, slots, slots);
        (t.rounds, t.f, t.auditRate) = (30, uint8((seats - 1) / 3), rate);
        (t.segmentPay, t.auditSeconds) = (1e6 * uint128(t.segmentSteps) * t.tokensPerStep, 700);
    }

    function test_P41_commitRevealVote() public {
        uint256 jobId = start(terms(4, 3, 2), 4, 3);
        for (uint256 r = 0; r < WARM; r++) {
            play(jobId);
        }
        commitSeat(jobId, 0, revealFor(jobId, 0, 8));
        atMost(shown("commit"), 49_500, "commit");
        commitAll(jobId, 6);
        commitSeat(jobId, 3, revealFor(jobId, 3, 8));
        atMost(shown("last commit"), 69_500, "last commit");
        revealSeat(jobId, 0, revealFor(jobId, 0, 8));
        atMost(shown("reveal"), 75_000, "reveal");
        revealAll(jobId, 6);
        revealSeat(jobId, 3, revealFor(jobId, 3, 8));
        atMost(shown("last reveal"), 104_500, "last reveal");
        nextBlock();
        castVote(jobId, 0, 15);
        atMost(shown("first vote"), 65_500, "first vote");
        castVote(jobId, 1, 15);
        atMost(shown("vote"), 47_000, "vote");
    }

    function test_P41_revealOf64CheckpointCommitments() public {
        Terms memory t = terms(4, 3, 2);
        (t.steps, t.segmentSteps) = (640, 10);
        uint256 jobId = start(t, 4, 3);
        for (uint16 seat = 0; seat < 4; seat++) {
            commitSeat(jobId, seat, revealFor(jobId, seat, 64));
        }
        revealSeat(jobId, 0, revealFor(jobId, 0, 64));
        atMost(shown("reveal of 64 leaves"), 165_000, "reveal of 64 leaves");
    }

    function shown(string memory what) internal returns (uint256 gas) {
        gas = note(what);
        emit log_named_uint(what, gas);
    }

    function test_P41_aRoundOfFour() public {
        atMost(measure(4, 3, 2), 240_000, "a provider's round, all in, at 4/3");
    }

    function test_P41_aRoundOf16() public {
        atMost(measure(16, 7, 8), 192_000, "a provider's round, all in, at 16/7");
    }

    function test_P41_aRoundOf64() public {
        atMost(measure(64, 7, 8), 176_000, "a provider's round, all in, at 64/7");
    }

    function test_P41_aRoundOf256() public {
        atMost(measure(256, 32, 8), 154_000, "a provider's round, all in, at 256/32");
    }

    function settled(uint16 slots, uint256 highest, string memory what) private {
        uint256 jobId = start(terms(16, slots, 4), 16, slots);
        play(jobId);
        play(jobId);
        toVotes(jobId);
        nextBlock();
        settle(jobId);
        atMost(shown(what), highest, what);
    }

    function test_P41_settlementAt7Members() public {
        settled(7, 211_000, "settlement at 7 members, all of whom sign");
    }

    function test_P41_settlementAt16Members() public {
        settled(16, 274_500, "settlement at 16 members, all of whom sign");
    }

    function test_P41_settlementAt32Members() public {
        settled(32, 386_500, "settlement at 32 members, all of whom sign");
    }

    function test_P41_claimsOfManyInOneTransaction() public {
        uint256 jobId = start(terms(4, 3, 2), 4, 3);
        for (uint256 r = 0; r < 12; r++) {
            play(jobId);
            if (r != 1) continue;
            vm.warp(rounds.timesOf(jobId, 1).windowEnd);
            jobs.claimMany(duesOf(jobId, 4, 3, 2));
            vm.warp(rounds.state(jobId).deadline - 1);
        }
        vm.warp(rounds.timesOf(jobId, 11).windowEnd);
        jobs.claimMany(duesOf(jobId, 4, 3, 12));
        atMost(shown("claims of ten rounds, 4 seats and 3 members") / 7, 52_500, "a claim beside six others");
    }

    function duesOf(uint256 jobId, uint32 seats, uint32 slots, uint32 to) private pure returns (Due[] memory dues) {
        dues = new Due[](seats + slots);
        for (uint32 i = 0; i < seats + slots; i++) {
            dues[i] = i < seats ? Due(jobId, Role.PROVIDER, i + 1, to) : Due(jobId, Role.VERIFIER, i + 1 - seats, to);
        }
    }

    /// @dev 2^24 is what a transaction may use at most (EIP-7825).
    function dearest(string memory what) private {
        atMost(shown(what), 1 << 24, what);
    }

    /// @return segments of eight: all are partial, and most short
    function partOf(uint16 seat) private pure returns (uint256) {
        return seat < 250 ? 1 : 6;
    }

    function test_P13_roundsOf256SeatsAnd32Members() public {
        Terms memory t = terms(256, 32, 4);
        (t.minProviders, t.minVerifiers) = (1, 1);
        uint256 jobId = start(t, 256, 32);
        for (uint16 seat = 0; seat < 256; seat++) {
            commitSeat(jobId, seat, revealFor(jobId, seat, partOf(seat)));
        }
        for (uint16 seat = 0; seat < 255; seat++) {
            revealSeat(jobId, seat, revealFor(jobId, seat, partOf(seat)));
        }
        vm.warp(rounds.state(jobId).deadline);
        rounds.advance(jobId);
        dearest("advance that ends REVEAL");
        nextBlock();
        sayAll(jobId, type(uint256).max >> 2);
        nextBlock();
        Verdict memory v = verdictFor(jobId, rounds.state(jobId).seated >> 1);
        (v.merged, v.excluded) = (0, Bits.firstBits(85)); // as many as f; what short seats did is counted, and taken back
        settle(jobId, v);
        dearest("settlement of 255 partial seats, of which 85 are left out");
        vm.warp(rounds.timesOf(jobId, 0).windowEnd);
        jobs.burn(jobId, 1);
        dearest("burn of a round");
        members.penaliseSeat(jobId, 255);
        dearest("penalty of a seat");
        vm.warp(rounds.state(jobId).deadline);
        rounds.advance(jobId);
        dearest("advance of a void");
    }

    /// @dev A slash that leaves the round without a seat voids it, while all of a pool that is full
    /// is new. Late in a long job.
    function test_P13_aSlashIsToldWithinItsGas() public {
        Terms memory t = terms(4, 256, 4);
        (t.minProviders, t.minVerifiers, t.trainSeconds, t.rounds) = (1, 3, 100_000, 1 << 20);
        uint256 jobId = start(t, 4, 3);
        for (uint256 r = 0; r < 9; r++) {
            play(jobId);
        }
        for (uint16 i = 3; i < 256; i++) {
            enrol(jobId, i, i);
        }
        vm.warp(rounds.timesOf(jobId, 8).auditEnd);
        bytes32 seed = rounds.state(jobId).seed;
        for (uint256 i = 1; i < 4; i++) {
            vm.prank(provider(i));
            members.disagree(jobId, seed, "another root");
        }
        Claim memory c = game.challenge(abi.encode(evidenceFor(jobId, 8, 0, 2)));
        game.holderLoses(c, address(0xf1));
        // Game.SLASH_GAS is 2,000,000: refunds, and the search among a million rounds, are another
        // 150,000.
        atMost(shown("a slash that voids a round"), 950_000, "told");
        inPhase(jobId, Phase.WAITING);
    }

    /// @dev Where nobody may be bad, one member audits all of 256 seats. What is shown of who
    /// revealed first has what the 255 others said.
    function test_P13_auditsOf256Seats() public {
        Terms memory t = terms(256, 1, 0);
        t.f = 0;
        uint256 jobId = start(t, 256, 1);
        play(jobId);
        bytes memory body = honestBody(jobId, 0, 1);
        body[3] ^= 0x01; // of the first digest
        uint16 seat = uint8(body[0]);
        Shown memory s = shownFor(jobId, 0, seat);
        bytes32 key = keyOf(jobId, 0, seat);
        audits.leak(shownFor(jobId, 0, seat + 1), keyOf(jobId, 0, seat + 1));
        dearest("leak, of who revealed second of 256");
        auditReportBody(jobId, 0, 1, body);
        vm.warp(rounds.timesOf(jobId, 0).auditEnd);
        openBody(jobId, 0, 1, body);
        atMost(shown("opening of 256 duties"), 900_000, "each duty is looked up, and none ranked");
        vm.warp(rounds.timesOf(jobId, 0).openEnd);
        audits.contest(s, 1, body, key);
        dearest("contest of one of 256 digests");
        vm.warp(rounds.timesOf(jobId, 0).half);
        Shown memory silent = shownFor(jobId, 0, seat + 2);
        audits.reportMissingKey(silent);
        dearest("reportMissingKey of one of 256");
    }

    /// @dev What all of 32 members said, signed and left undone about 256 seats.
    function test_P13_votesAndAbsencesOf256Seats() public {
        Terms memory t = terms(256, 32, 0);
        (t.f, t.minVerifiers) = (0, 1);
        uint256 jobId = start(t, 256, 32);
        Certified[2] memory both = contradictions(jobId);
        bytes32 digest = digestFor(jobId, both[0].verdict);
        uint256 most = (1 << 22) - 1;
        both[0].certificate = certificate(jobId, digest, rounds.state(jobId).committee, most);
        noteRecord(jobId, both[0].verdict);
        Said storage now_ = said[jobId][0];
        RoundRecord memory record = now_.record;
        rounds.settle(jobId, now_.slots, now_.has, both[0]);
        rounds.sign(jobId, record, 32, bytes.concat(bytes4(uint32(1)), signatureOf(verifierKey(31), digest)));
        dearest("signature behind a settlement, of 256 seats");
        grantedByAll(jobId);
        lateVotes.equivocated(jobId, 0, 22, record.seed, record.votes, both);
        dearest("two certificates by 32 members");
        halfOpen(jobId);
        vm.warp(rounds.timesOf(jobId, 0).openEnd);
        for (uint32 id = 1; id < 3; id++) {
            audits.absent(jobId, 0, id, dutiesOf(jobId, 0, uint16(id - 1)).lowest(), record, "");
        }
        dearest("absence of an auditor of 256 seats");
    }

    /// @dev Or nobody would be absent: it would be the chain that stood still.
    function halfOpen(uint256 jobId) private {
        for (uint32 id = 17; id < 33; id++) {
            auditReportBody(jobId, 0, id, honestBody(jobId, 0, id));
        }
        vm.warp(rounds.timesOf(jobId, 0).auditEnd);
        for (uint32 id = 17; id < 33; id++) {
            openBody(jobId, 0, id, honestBody(jobId, 0, id));
        }
    }

    /// @return both two certificates, by as many as needed and by all, over votes that have no seat
    /// 0
    function contradictions(uint256 jobId) private returns (Certified[2] memory both) {
        commitAll(jobId, type(uint256).max);
        nextBlock();
        revealAll(jobId, type(uint256).max);
        nextBlock();
        sayAll(jobId, type(uint256).max - 1);
        nextBlock();
        uint256 committee = rounds.state(jobId).committee;
        for (uint256 i = 0; i < 2; i++) {
            both[i].verdict = verdictFor(jobId, type(uint256).max - 1);
            both[i].accounts = accountsOf(jobId, committee);
        }
        both[1].verdict.state = "another";
        both[1].certificate = certificate(jobId, digestFor(jobId, both[1].verdict), committee, type(uint32).max);
    }

    /// @dev Late votes of the whole committee of round 0 pay its seat 0.
    function grantedByAll(uint256 jobId) private {
        Said storage told = said[jobId][0];
        RoundRecord memory none;
        Having memory h = Having(told.record, none, told.record.seed, told.slots, told.has, new uint32[](32));
        for (uint32 id = 1; id <= 32; id++) {
            h.late[id - 1] = id;
            vm.prank(verifier(id - 1));
            lateVotes.lateVote(jobId, 0, id, type(uint256).max);
        }
        dearest("late vote");
        lateVotes.grant(jobId, 0, 0, h);
        dearest("pay by 32 late votes, of 256 seats");
    }

    function test_P13_aFullPoolOf256() public {
        Terms memory t = terms(4, 256, 4);
        t.minVerifiers = 1;
        uint256 jobId = create(t);
        for (uint16 i = 0; i < 4; i++) {
            join(jobId, i, i);
        }
        for (uint16 i = 0; i < 256; i++) {
            enrol(jobId, i, i);
        }
        nextBlock();
        rounds.advance(jobId);
        dearest("noting a pool of 256");
        nextBlock();
        rounds.advance(jobId);
        dearest("opening with a committee draw of 256");
        stakeUp(verifier(299), Role.VERIFIER, 2 * BOND);
        vm.prank(verifier(299));
        members.enrol(jobId, 0, uint128(2 * BOND), enrolment(299, jobId, 0, 2 * BOND));
        dearest("outbidding one of 256");
        play(jobId);
        dearest("settlement with a pool of 256");
    }

    /// @return gas of everybody, for each seat
    function measure(uint16 seats, uint16 slots, uint8 rate) internal returns (uint256) {
        uint256 jobId = start(terms(seats, slots, rate), seats, slots);
        for (uint256 r = 0; r < WARM; r++) {
            play(jobId);
        }
        uint32 round = rounds.state(jobId).round;
        spent = 0;
        train(jobId, seats, slots);
        emit log_named_uint("seats", seats);
        emit log_named_uint("  training, reveals and votes", spent / seats);
        settle(jobId);
        emit log_named_uint("  settlement", note("settle"));
        auditNoted(jobId, round);
        emit log_named_uint("  a seat and round, all but claims", spent / seats);
        uint256 all = spent / seats + claimNoted(jobId, seats, slots);
        emit log_named_uint("  a seat and round, all in", all);
        return all;
    }

    function train(uint256 jobId, uint16 seats, uint16 slots) private {
        for (uint16 seat = 0; seat < seats; seat++) {
            commitSeat(jobId, seat, revealFor(jobId, seat, 8));
            note("commit");
        }
        nextBlock();
        for (uint16 seat = 0; seat < seats; seat++) {
            revealSeat(jobId, seat, revealFor(jobId, seat, 8));
            note("reveal");
        }
        nextBlock();
        for (uint16 slot = 0; slot < slots; slot++) {
            castVote(jobId, slot, Bits.firstBits(seats));
            note("vote");
        }
        nextBlock();
    }

    function auditNoted(uint256 jobId, uint32 round) private {
        bytes[] memory bodies = honestBodies(jobId, round);
        (uint256 auditReports, uint256 opens, uint256 keys) = (0, 0, 0);
        for (uint32 id = 1; id <= bodies.length; id++) {
            if (bodies[id - 1].length == 0) continue;
            auditReportBody(jobId, round, id, bodies[id - 1]);
            auditReports = note("auditReport");
        }
        vm.warp(rounds.timesOf(jobId, round).auditEnd);
        for (uint32 id = 1; id <= bodies.length; id++) {
            if (bodies[id - 1].length == 0) continue;
            openBody(jobId, round, id, bodies[id - 1]);
            opens = note("open");
        }
        vm.warp(rounds.timesOf(jobId, round).openEnd);
        for (uint256 left = drawn(jobId, round); left != 0; left &= left - 1) {
            showKey(jobId, round, left.lowest());
            keys = note("key");
        }
        emit log_named_uint("  audit report", auditReports);
        emit log_named_uint("  open", opens);
        emit log_named_uint("  key", keys);
    }

    /// @return gas of claims for ten rounds, a tenth of it, for each seat
    function claimNoted(uint256 jobId, uint16 seats, uint16 slots) private returns (uint256) {
        uint256 before = spent;
        vm.warp(rounds.timesOf(jobId, 1).windowEnd);
        jobs.claim(jobId, Role.PROVIDER, 1, 2);
        jobs.claim(jobId, Role.VERIFIER, 1, 2);
        vm.warp(rounds.state(jobId).deadline - 1);
        for (uint256 r = 0; r < 9; r++) {
            play(jobId);
        }
        vm.warp(rounds.timesOf(jobId, 11).windowEnd);
        jobs.claim(jobId, Role.PROVIDER, 1, 12);
        uint256 seat = shown("  claim of ten rounds, seat");
        jobs.claim(jobId, Role.VERIFIER, 1, 12);
        uint256 member = shown("  claim of ten rounds, member");
        spent = before;
        atMost(seat, seats < 256 ? 97_000 : 113_000, "claim of ten rounds"); // rows of 256 seats are longer
        return (seat + member * slots / seats) / 10;
    }
}

/// @title P41: the same settlement by both kinds of certificates, all members signing, and what a
/// late one costs.
/// @dev BLS12-381 wants the precompiles of Prague; for the other it changes nothing.
/// forge-config: default.isolate = true
/// forge-config: default.evm_version = "prague"
contract CertificateGasTest is BlsNetwork {
    using Bits for uint256;

    event log_named_uint(string what, uint256 gas);

    function terms(uint16 slots) private view returns (Terms memory t) {
        t = defaultTerms();
        (t.seats, t.minProviders, t.slots, t.minVerifiers) = (16, 16, slots, slots);
        (t.rounds, t.f, t.auditRate) = (30, 5, 4);
    }

    /// @dev The third round, before and after somebody has kept the sum of the committee's keys;
    /// then one that a third has not signed, nor the first, so that the word of such a digest is
    /// there.
    function settled(uint16 slots, uint256 kept, uint256 plain, uint256 few) private {
        registerAll(slots);
        uint256 jobId = start(terms(slots), 16, slots);
        settledByFew(jobId, slots);
        play(jobId);
        string memory where = string.concat(" at ", vm.toString(slots), " members");
        play(jobId);
        costs(string.concat("BLS settlement without a sum", where), plain);
        keys.keep(accountsOf(jobId, rounds.state(jobId).committee));
        emit log_named_uint(string.concat("BLS sum", where), vm.snapshotGasLastCall(string.concat("BLS sum", where)));
        play(jobId);
        costs(string.concat("BLS settlement", where), kept);
        settledByFew(jobId, slots);
        costs(string.concat("BLS settlement by two thirds", where), few);
    }

    function settledByFew(uint256 jobId, uint256 slots) private {
        toVotes(jobId);
        nextBlock();
        settleBy(jobId, verdictFor(jobId, rounds.state(jobId).seated), ((slots * 2 + 2) / 3).firstBits());
    }

    function costs(string memory what, uint256 highest) private {
        uint256 gas = vm.snapshotGasLastCall(what);
        emit log_named_uint(what, gas);
        atMost(gas, highest, what);
    }

    function test_P41_blsSettlementAt7() public {
        settled(7, 374_500, 424_000, 398_000);
    }

    function test_P41_blsSettlementAt16() public {
        settled(16, 393_500, 511_000, 442_000);
    }

    function test_P41_blsSettlementAt32() public {
        settled(32, 426_000, 665_000, 518_000);
    }

    function test_P41_blsKey() public {
        registerAll(1);
        costs("BLS key", 286_000);
    }
}

/// @title P41: what a challenge costs by the evidence that it has to show, and by the games that
/// wait before it.
/// forge-config: default.isolate = true
contract ChallengeGasTest is Network {
    event log_named_uint(string what, uint256 gas);

    Game internal real;
    uint256 internal jobId;

    function setUp() public override {
        address token_ = deployed("AtollToken", abi.encode(address(this), 1_000_000_000 ether, uint8(18)));
        real = new Game(token_, LONGEST, address(new Judge(new address[](8))));
        deployWith(token_, address(real));
        real.wire(address(claims));
        resetPeriod = 2; // rounds 0 and 1 are one
    }

    /// @dev Two rounds, audited: what is challenged is round 1.
    function played(uint16 seats, uint16 slots) private {
        Terms memory t = defaultTerms();
        (t.seats, t.minProviders, t.slots, t.minVerifiers) = (seats, seats, slots, slots);
        (t.rounds, t.f, t.program) = (6, uint8((seats - 1) / 3), program());
        jobId = start(t, seats, slots);
        play(jobId);
        play(jobId);
        vm.warp(rounds.timesOf(jobId, 1).auditEnd);
    }

    function challenge(Evidence memory e, uint128 bond, uint160 by, uint256 highest, string memory what) private {
        token.transfer(address(by), bond);
        vm.prank(address(by));
        token.approve(address(real), bond);
        vm.prank(address(by));
        real.challenge(abi.encode(e), bond);
        uint256 gas = vm.snapshotGasLastCall(what);
        emit log_named_uint(what, gas);
        atMost(gas, highest, what);
    }

    function test_P41_aChallengeAmongFourSeats() public {
        played(4, 3);
        challenge(evidenceFor(jobId, 1, 3, 2), 10 ether, 0x100, 432_000, "challenge");
        challenge(evidenceFor(jobId, 1, 0, 2), 10 ether, 0x200, 388_000, "challenge of who revealed first");
        challenge(
            evidenceFor(jobId, 1, 2, 0), 10 ether, 0x300, 422_000, "challenge of segment 0, with the round before"
        );
    }

    function test_P41_aChallengeThatOutbidsAFullQueue() public {
        played(4, 3);
        for (uint160 i = 0; i < 6; i++) {
            challenge(evidenceFor(jobId, 1, 3, 2), 10 ether, 0x100 + i, 432_000, "challenge that waits");
        }
        challenge(evidenceFor(jobId, 1, 3, 2), 11 ether, 0x200, 435_000, "challenge that outbids");
    }

    function test_P41_aChallengeAmong64Seats() public {
        played(64, 7);
        challenge(evidenceFor(jobId, 1, 0, 2), 10 ether, 0x100, 580_000, "challenge of who revealed first of 64");
    }

    function test_P13_aChallengeAmong256Seats() public {
        played(256, 32);
        string memory what = "challenge of segment 0 of who revealed first of 256, with the round before";
        challenge(evidenceFor(jobId, 1, 0, 0), 10 ether, 0x100, 1 << 24, what);
    }
}
