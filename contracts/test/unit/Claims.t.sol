// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {Jobs} from "../../src/Jobs.sol";
import {Members} from "../../src/Members.sol";
import {Claims, Evidence} from "../../src/judge/Claims.sol";
import {Claim} from "../../src/judge/IClaims.sol";
import {Hashing} from "../../src/libraries/Hashing.sol";
import {Reveals} from "../../src/libraries/Reveals.sol";
import "../../src/types/Types.sol";
import {AuditedRound} from "../support/AuditedRound.sol";

/// @title Claims about a revealed round, and what a slash takes.
contract ClaimsTest is AuditedRound {
    function test_claimsSayWhatWasRevealed() public allHome {
        vm.warp(rounds.timesOf(jobId, 1).auditEnd);
        Evidence memory e = evidenceFor(jobId, 1, seat, 3);
        Claim memory c = claims.claim(abi.encode(e));
        same(c.closing, trainer.digestOf(jobId, 1, seat, 3), "closing");
        same(c.initialState, trainer.digestOf(jobId, 1, seat, 2), "opening");
        same(c.workTag, 0, "no key, no work tag");
        same(c.modelParams, e.model.paramsRoot, "the model's parameters");
        same(c.modelExponents, e.model.exponents, "and exponents");
        e.key = key();
        same(claims.claim(abi.encode(e)).workTag, workTag(jobId, 1, seat, 3), "work tag");
        e.key = "another";
        vm.expectPartialRevert(Reveals.WrongKey.selector); // else its work tag would be one that nobody can open
        claims.claim(abi.encode(e));
        e.key = 0;
        same(c.holder, provider(seat), "holder");
        same(c.set, Hashing.setOf(jobId, Role.PROVIDER, uint32(seat) + 1), "set");
        e.segment = 8;
        vm.expectPartialRevert(Claims.NoSuchSegment.selector);
        claims.claim(abi.encode(e));
        (e.segment, e.isUpdateProof) = (7, true);
        c = claims.claim(abi.encode(e));
        same(c.updateRoot, e.shown.reveal.updateRoot, "an update proof's update");
        e.model.initialRoot = "x";
        vm.expectPartialRevert(Claims.WrongModel.selector);
        claims.claim(abi.encode(e));
    }

    function test_theFirstRoundOpensFromTheProgramsModel() public allHome {
        vm.warp(rounds.timesOf(jobId, 0).auditEnd);
        Evidence memory e;
        (e.shown, e.segment, e.header, e.programLeaves) = (shownFor(jobId, 0, seat), 3, header(), 1);
        vm.expectPartialRevert(Claims.WrongModel.selector);
        claims.claim(abi.encode(e));
        e.model = initialModel();
        Claim memory c = claims.claim(abi.encode(e));
        same(c.modelParams, e.model.paramsRoot, "its parameters");
        same(c.modelExponents, e.model.exponents, "and exponents");
    }

    function test_claimsAreTakenFromTheEndOfAuditToTheWindows() public allHome {
        Evidence memory e = evidenceFor(jobId, 1, seat, 3);
        vm.expectPartialRevert(Claims.NotOpen.selector);
        claims.claim(abi.encode(e));
        vm.warp(rounds.timesOf(jobId, 1).windowEnd);
        vm.expectPartialRevert(Claims.NotOpen.selector);
        claims.claim(abi.encode(e));
    }

    function test_anythingElseIsNoEvidence() public allHome {
        vm.warp(rounds.timesOf(jobId, 1).auditEnd);
        Evidence memory e = evidenceFor(jobId, 1, seat, 3);
        e.shown.reveal.checkpointCommitments[40] ^= 0x01;
        vm.expectPartialRevert(Reveals.NotRevealed.selector);
        claims.claim(abi.encode(e));
        e = evidenceFor(jobId, 1, seat, 3);
        e.shown.id = e.shown.id % 4 + 1;
        vm.expectPartialRevert(Reveals.NotTheHolder.selector);
        claims.claim(abi.encode(e));
        e = evidenceFor(jobId, 1, seat, 3);
        e.shown.record.model = "x";
        vm.expectPartialRevert(Reveals.WrongRecord.selector);
        claims.claim(abi.encode(e));
    }

    /// Of any other segment the state that a round was closed from would be another.
    function test_aLinkIsOfTheLastSegmentThatWasRevealed() public allHome {
        vm.warp(rounds.timesOf(jobId, 1).auditEnd);
        Evidence memory e = evidenceFor(jobId, 1, seat, 7);
        e.isUpdateProof = true;
        Claim memory c = claims.claim(abi.encode(e));
        same(c.initialState, trainer.digestOf(jobId, 1, seat, 7), "from the last state");
        for (uint32 other = 6; other <= 8; other += 2) {
            e.segment = other;
            vm.expectRevert(abi.encodeWithSelector(Claims.NoSuchSegment.selector, other, 8));
            claims.claim(abi.encode(e));
        }
    }

    function test_validIsAClaimOfItsOwn() public allHome {
        bytes memory body = honestBody(jobId, 1, auditor);
        toOpen(body);
        Evidence memory e = evidenceFor(jobId, 1, seat, 3);
        (e.member, e.body, e.key) = (auditor, body, key());
        Claim memory c = game.challenge(abi.encode(e));
        same(c.holder, account, "its author defends it");
        game.holderLoses(c, OUTSIDER);
        same(lockedOf(account, Role.VERIFIER), BOND / 2, "half of its bond");
        same(activeOf(OUTSIDER, Role.VERIFIER), BOND / 2 * 3 / 10, "a share of that to the winner");
        same(lockedOf(provider(seat), Role.PROVIDER), BOND, "P44: the seat's is another game");
        vm.expectPartialRevert(Claims.AlreadySlashed.selector);
        claims.claim(abi.encode(e));
    }

    function test_P33_P38_aSlashTakesWhatIsNotFinalAndNothingElse() public allHome {
        vm.warp(rounds.timesOf(jobId, 1).windowEnd - 1); // round 0 is final
        jobs.claim(jobId, Role.PROVIDER, uint32(seat) + 1, 1);
        Evidence memory e = evidenceFor(jobId, 1, seat, 3);
        Claim memory c = game.challenge(abi.encode(e));
        vm.warp(rounds.timesOf(jobId, 1).windowEnd + 100);
        vm.expectPartialRevert(Jobs.NotFinal.selector);
        jobs.claim(jobId, Role.PROVIDER, uint32(seat) + 1, 2);
        vm.expectPartialRevert(Members.GameOpen.selector);
        members.release(jobId, Role.PROVIDER, uint32(seat) + 1);
        game.holderLoses(c, OUTSIDER);
        same(token.balanceOf(provider(seat)), 8 * segmentPay(), "what was final is kept");
        same(activeOf(OUTSIDER, Role.VERIFIER), BOND * 3 / 10, "the share");
        same(stakes.unburnt(), BOND * 7 / 10, "the rest is burnt");
        same(jobs.escrowOf(jobId).burnt, 0, "not yet");
        jobs.claim(jobId, Role.PROVIDER, uint32(seat) + 1, 2);
        same(token.balanceOf(provider(seat)), 8 * segmentPay(), "nothing more");
        same(jobs.escrowOf(jobId).burnt, 8 * segmentPay(), "burnt");
    }

    function test_aSlashFreesTheSeatAndStopsNobody() public allHome {
        vm.warp(rounds.timesOf(jobId, 1).auditEnd);
        Claim memory c = game.challenge(abi.encode(evidenceFor(jobId, 1, seat, 3)));
        uint256 before = rounds.state(jobId).seated;
        same(before, 15, "TRAIN of round 2");
        vm.warp(rounds.timesOf(jobId, 1).auditEnd);
        game.holderLoses(c, OUTSIDER);
        same(rounds.state(jobId).seated, 15 & ~(uint256(1) << seat), "it does not count any more");
        same(rounds.state(jobId).owing, 0, "and misses nothing");
    }

    function test_P28_silenceLocksNoFunds() public allHome {
        Terms memory t = defaultTerms();
        vm.warp(rounds.absoluteEnd(jobId));
        rounds.advance(jobId);
        for (uint32 id = 1; id <= 4; id++) {
            jobs.claim(jobId, Role.PROVIDER, id, 2);
            members.release(jobId, Role.PROVIDER, id);
        }
        for (uint32 id = 1; id <= 3; id++) {
            jobs.claim(jobId, Role.VERIFIER, id, 2);
            members.release(jobId, Role.VERIFIER, id);
        }
        jobs.burn(jobId, 2);
        vm.warp(block.timestamp + t.claimSeconds);
        jobs.refund(jobId);
        same(jobs.escrowOf(jobId).balance, 0, "all is home");
    }
}
