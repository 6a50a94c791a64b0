// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {Claims, Evidence} from "../../src/judge/Claims.sol";
import {Claim} from "../../src/judge/IClaims.sol";
import {Bits} from "../../src/libraries/Bits.sol";
import {Hashing} from "../../src/libraries/Hashing.sol";
import {Reveals, Shown} from "../../src/libraries/Reveals.sol";
import "../../src/types/Types.sol";
import {Network} from "../support/Network.sol";

/// @title Claims within a reset period of three rounds, of which 3, 4 and 5 are one.
contract ResetPeriodsTest is Network {
    using Bits for uint256;

    uint16 internal constant SEAT = 2;
    uint32 internal constant ID = 3;
    uint256 internal jobId;

    function setUp() public override {
        super.setUp();
        resetPeriod = 3;
        Terms memory t = defaultTerms();
        t.rounds = 9;
        jobId = start(t, 4, 3);
    }

    function playTo(uint32 round) internal {
        while (rounds.state(jobId).round < round) {
            play(jobId);
        }
    }

    /// @dev One round in which the seat does less than all of it, or sends nothing.
    function playPart(uint256 segments, bool hasUpdate) internal {
        Reveal memory r = part(rounds.state(jobId).round, segments, hasUpdate);
        uint256 seated = rounds.state(jobId).seated;
        commitAll(jobId, seated & ~Bits.bit(SEAT));
        commitSeat(jobId, SEAT, r);
        nextBlock();
        revealAll(jobId, seated & ~Bits.bit(SEAT));
        revealSeat(jobId, SEAT, r);
        nextBlock();
        sayAll(jobId, seated);
        nextBlock();
        settle(jobId);
    }

    function part(uint32 round, uint256 segments, bool hasUpdate) internal view returns (Reveal memory r) {
        r = trainer.train(jobId, round, SEAT, keyOf(jobId, round, SEAT), segments);
        if (!hasUpdate) r.updateRoot = 0;
    }

    function evidence(uint32 round, uint32 segment) internal view returns (Evidence memory) {
        return evidenceFor(jobId, round, SEAT, segment);
    }

    function read(Evidence memory e) internal view returns (Claim memory) {
        return claims.claim(abi.encode(e));
    }

    function refuses(Evidence memory e, bytes4 why) internal {
        vm.expectPartialRevert(why);
        claims.claim(abi.encode(e));
    }

    /// @return what a seat opens the round with that has no state of its own
    function publicRoundStart(uint32 round) internal view returns (bytes32) {
        bytes32 drawn_ = sha256(abi.encodePacked("atoll.rng.v1", uint64(0)));
        bytes32 params = modelAfter(jobId, round - 1).paramsRoot;
        bytes32 optimiser = modelAfter(jobId, round - 1).initialRoot;
        return sha256(abi.encodePacked("atoll.state.v1", params, optimiser, bytes32(0), drawn_));
    }

    function positionOf(Role role, uint32 id, uint32 round) internal view returns (bytes32) {
        return Hashing.positionOf(Hashing.setOf(jobId, role, id), round);
    }

    function test_aRoundOfAnResetPeriodBeginsWithTheLastLeafOfTheOneBefore() public allHome {
        playTo(7);
        vm.warp(rounds.timesOf(jobId, 6).auditEnd);
        same(read(evidence(3, 0)).initialState, publicRoundStart(3), "the reset period's first");
        same(read(evidence(4, 0)).initialState, trainer.digestOf(jobId, 3, SEAT, 7), "its second");
        same(read(evidence(5, 0)).initialState, trainer.digestOf(jobId, 4, SEAT, 7), "its third");
        same(read(evidence(5, 1)).initialState, trainer.digestOf(jobId, 5, SEAT, 0), "segment 1");
        same(read(evidence(6, 0)).initialState, publicRoundStart(6), "the next reset period's first");
    }

    function test_whoDidLessThanARoundOpensPubliclyAndThenGoesOn() public allHome {
        playTo(3);
        playPart(6, true);
        playTo(6);
        vm.warp(rounds.timesOf(jobId, 5).auditEnd);
        Evidence memory e = evidence(4, 0);
        same(read(e).initialState, publicRoundStart(4), "from public data");
        e.before = shownFor(jobId, 3, SEAT, part(3, 8, true));
        refuses(e, Reveals.NotRevealed.selector); // a whole round that it did not reveal
        same(read(evidence(5, 0)).initialState, trainer.digestOf(jobId, 4, SEAT, 7), "and on with that");
    }

    function test_whoSentNothingOpensPublicly() public allHome {
        playTo(3);
        playPart(8, false);
        playTo(5);
        vm.warp(rounds.timesOf(jobId, 4).auditEnd);
        Evidence memory e = evidence(4, 0);
        e.before = shownFor(jobId, 3, SEAT, part(3, 8, false));
        same(read(e).initialState, publicRoundStart(4), "from public data");
    }

    /// It counts from round 4 on, in case that is void, and takes part in round 5 for the first
    /// time.
    function test_whoJoinedWithinAResetPeriodOpensPublicly() public allHome {
        playTo(3);
        vm.prank(provider(SEAT));
        members.leaveSeat(jobId);
        play(jobId);
        uint32 id = join(jobId, 9, SEAT);
        same(members.holderOf(jobId, Role.PROVIDER, id).from, 4, "from");
        playTo(6);
        vm.warp(rounds.timesOf(jobId, 5).auditEnd);
        Evidence memory e = evidence(5, 1);
        e.segment = 0;
        refuses(e, Claims.NotTheRoundBefore.selector);
        (e.before.jobId, e.before.round, e.before.seat, e.before.id) = (jobId, 4, SEAT, id);
        e.before.record = said[jobId][4].record;
        same(read(e).initialState, publicRoundStart(5), "from public data");
        e.before.record.revealed = 15; // as if it had revealed
        refuses(e, Reveals.WrongRecord.selector);
    }

    /// Nobody may have a holder answer for an opening that it did not begin with.
    function test_whatIsNotTheHoldersRoundBeforeIsRefused() public allHome {
        playTo(6);
        vm.warp(rounds.timesOf(jobId, 5).auditEnd);
        Evidence memory e = evidence(5, 0);
        Shown memory nothing;
        e.before = nothing;
        refuses(e, Claims.NotTheRoundBefore.selector);
        e.before = shownFor(jobId, 3, SEAT);
        refuses(e, Claims.NotTheRoundBefore.selector);
        e.before = shownFor(jobId, 4, 1);
        refuses(e, Claims.NotTheRoundBefore.selector);
        e.before = shownFor(jobId, 4, SEAT);
        e.before.record.revealed = 0;
        refuses(e, Reveals.WrongRecord.selector);
        e.before = shownFor(jobId, 4, SEAT);
        e.before.reveal.checkpointCommitments = new bytes(0); // as if it had done nothing
        refuses(e, Reveals.NotRevealed.selector);
        e = evidence(5, 0);
        e.header[186] = 0x01; // as if a reset period were one round
        refuses(e, Claims.WrongHeader.selector);
    }

    function test_anEarlierRoundOfTheResetPeriodIsClaimedInTheWindowOfALaterOne() public allHome {
        playTo(6);
        vm.warp(rounds.timesOf(jobId, 3).windowEnd);
        Evidence memory e = evidence(3, 2);
        refuses(e, Claims.NotOpen.selector);
        e.throughRound = 5;
        Claim memory c = read(e);
        same(c.initialState, trainer.digestOf(jobId, 3, SEAT, 1), "of its own round");
        same(c.round, 3, "of its own round");
        same(c.dataSeed, said[jobId][3].record.seed, "of its own round");
        same(c.windowEnd, rounds.timesOf(jobId, 5).windowEnd, "in the later one's window");
        same(c.position, positionOf(Role.PROVIDER, ID, 5), "for the later one's pay");
        vm.warp(rounds.timesOf(jobId, 5).windowEnd);
        refuses(e, Claims.NotOpen.selector);
    }

    function test_aRoundIsClaimedThroughNoOtherResetPeriodNorBackwards() public allHome {
        playTo(8);
        vm.warp(rounds.timesOf(jobId, 7).auditEnd);
        Evidence memory e = evidence(5, 2);
        e.throughRound = 6;
        refuses(e, Claims.AnotherResetPeriod.selector);
        e.throughRound = 4;
        refuses(e, Claims.AnotherResetPeriod.selector);
        e = evidence(6, 2);
        e.throughRound = 7;
        same(read(e).position, positionOf(Role.PROVIDER, ID, 7), "but through its own");
    }

    function test_whoHasLeftAnswersForNoRoundAfterIt() public allHome {
        playTo(4);
        vm.prank(provider(SEAT));
        members.leaveSeat(jobId);
        playTo(6);
        vm.warp(rounds.timesOf(jobId, 5).auditEnd);
        Shown memory s = shownFor(jobId, 3, SEAT, part(3, 8, true));
        s.id = ID;
        Evidence memory e = evidenceFor(jobId, 3, 1, 2);
        e.shown = s;
        same(read(e).closing, trainer.digestOf(jobId, 3, SEAT, 2), "in that round's own window");
        e.throughRound = 5;
        refuses(e, Claims.AnotherResetPeriod.selector);
    }

    function test_aSlashThroughALaterRoundTakesFromThatOneOn() public allHome {
        playTo(6);
        vm.warp(rounds.timesOf(jobId, 4).windowEnd);
        Evidence memory e = evidence(3, 2);
        e.throughRound = 5;
        game.holderLoses(game.challenge(abi.encode(e)), OUTSIDER);
        same(members.lostFrom(jobId, Role.PROVIDER, ID), 5, "what is FINAL stays so");
        same(lockedOf(provider(SEAT), Role.PROVIDER), 0, "the whole bond");
    }

    // --- who calls a round valid ---

    /// @return e that the auditor of a later round of the reset period called this one valid as
    /// well, since it comes from it
    function validVia(uint32 round, uint32 throughRound) internal returns (Evidence memory e) {
        uint32 auditor;
        for (uint16 slot = 0; slot < 3; slot++) {
            if (dutiesOf(jobId, throughRound, slot).has(SEAT)) auditor = uint32(slot) + 1;
        }
        check(auditor != 0, "the seat is drawn");
        bytes memory body = honestBody(jobId, throughRound, auditor);
        auditReportBody(jobId, throughRound, auditor, body);
        vm.warp(rounds.timesOf(jobId, throughRound).auditEnd);
        openBody(jobId, throughRound, auditor, body);
        e = evidence(round, 2);
        (e.throughRound, e.member, e.body, e.key) = (throughRound, auditor, body, keyOf(jobId, throughRound, SEAT));
        e.onwards = new Shown[](throughRound - round);
        for (uint32 i = 0; i < throughRound - round; i++) {
            e.onwards[i] = shownFor(jobId, round + 1 + i, SEAT);
        }
    }

    /// @dev All seats are drawn in the last round, here the third of its reset period.
    function playAll() internal {
        playTo(9);
        vm.warp(rounds.timesOf(jobId, 8).auditEnd - 1);
    }

    function test_whoCallsARoundValidAnswersForAllThatItComesFrom() public allHome {
        playAll();
        Evidence memory e = validVia(6, 8);
        address account = members.holderOf(jobId, Role.VERIFIER, e.member).account;
        Claim memory c = game.challenge(abi.encode(e));
        same(c.holder, account, "its author defends it");
        same(c.round, 6, "about the round that it comes from");
        same(c.position, positionOf(Role.VERIFIER, e.member, 8), "for its own round's fee");
        same(c.workTag, 0, "work tags are those of its own round alone");
        game.holderLoses(c, OUTSIDER);
        same(lockedOf(account, Role.VERIFIER), BOND / 2, "half of its bond");
        same(lockedOf(provider(SEAT), Role.PROVIDER), BOND, "the seat's is another game");
    }

    /// Who never had to replay a round has not called it valid.
    function test_aValidEntrySaysNothingOfWhatItsRoundDoesNotComeFrom() public allHome {
        playTo(6);
        playPart(6, true);
        playAll();
        Evidence memory e = validVia(7, 8);
        same(read(e).round, 7, "of the round after the break");
        e.shown = shownFor(jobId, 6, SEAT, part(6, 6, true));
        e.model = modelAfter(jobId, 5);
        Shown memory last = e.onwards[0];
        e.onwards = new Shown[](2);
        (e.onwards[0], e.onwards[1]) = (shownFor(jobId, 7, SEAT), last);
        refuses(e, Claims.NotTheRoundBefore.selector);
    }

    function test_aValidEntryIsShownToComeFromARoundByEveryRoundBetween() public allHome {
        playAll();
        Evidence memory e = validVia(6, 8);
        (Shown memory first, Shown memory second) = (e.onwards[0], e.onwards[1]);
        e.onwards[0] = second;
        refuses(e, Claims.NotTheRoundBefore.selector);
        e.onwards[0] = shownFor(jobId, 7, 1);
        refuses(e, Claims.NotTheRoundBefore.selector);
        e.onwards[0] = first;
        e.onwards[1].reveal.keyHash = "x";
        refuses(e, Reveals.NotRevealed.selector);
        e.onwards = new Shown[](1);
        e.onwards[0] = first;
        refuses(e, Claims.AnotherResetPeriod.selector);
        e.onwards = new Shown[](0);
        refuses(e, Claims.AnotherResetPeriod.selector);
    }
}
