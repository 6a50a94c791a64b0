// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {Jobs} from "../../src/Jobs.sol";
import {Roster} from "../../src/Roster.sol";
import {Claims, Evidence} from "../../src/judge/Claims.sol";
import {Claim} from "../../src/judge/IClaims.sol";
import "../../src/types/Types.sol";
import {JudgedNetwork} from "../support/JudgedNetwork.sol";

/// @title Claims about settled rounds, and what a lost game costs: bond, seat and pay of who fell, and nobody else's.
contract JudgeTest is JudgedNetwork {
    address internal constant OUTSIDER = address(0x7777);
    uint256 internal constant PAY = uint256(STEPS) * TOKENS_PER_STEP * 0.001 ether;

    function setUp() public override {
        super.setUp();
        jobId = start(judgedTerms(), 4, 3);
        playJudged();
        playJudged();
    }

    function claimOf(Evidence memory e) internal view returns (Claim memory) {
        return claims.claim(abi.encode(e));
    }

    function refused(Evidence memory e, bytes4 selector) internal {
        vm.expectPartialRevert(selector);
        claims.claim(abi.encode(e));
    }

    // --- evidence ---

    function test_theFirstSegmentBeginsWithTheModelAndItsMomentsWhateverTheSeatHad() public view {
        Evidence memory e = evidenceOf(1, 2, 0, false);
        same(e.opening, judgedReveal(0, 0, 2).optimiserRoot, "what the chain has for the seat");
        Claim memory c = claimOf(e);
        bytes32 drawn = sha256(abi.encodePacked("atoll.rng.v1", uint64(0)));
        bytes32 shared = modelOf(1).openingRoot;
        bytes32 wanted = sha256(abi.encodePacked("atoll.state.v1", modelOf(1).paramsRoot, shared, bytes32(0), drawn));
        same(c.opening, wanted, "opening");
        same(c.closing, stateAfter(1, 2, 0), "closing");
        same(c.workWord, keccak256(abi.encode("work", uint32(1), uint16(2), uint256(0))), "work");
        same(c.modelParams, modelOf(1).paramsRoot, "params");
        same(c.modelExponents, modelOf(1).exponents, "exponents");
        same(c.holder, provider(2), "holder");
        same(c.program, judgedTerms().program, "program");
        same(c.windowEnd, rounds.disputeUntil(jobId, 1), "window");
        same(c.lowestBond, 10 ether, "bond");
        same(c.dataSeed, past[1].dataSeed, "seed");
    }

    function test_theFirstRoundBeginsWithTheProgramsModelAndNoMoments() public view {
        Claim memory c = claimOf(evidenceOf(0, 3, 0, false));
        bytes32 drawn = sha256(abi.encodePacked("atoll.rng.v1", uint64(0)));
        bytes memory parts = abi.encodePacked("atoll.state.v1", modelOf(0).paramsRoot, bytes32(0), bytes32(0), drawn);
        same(c.opening, sha256(parts), "opening");
    }

    function test_laterSegmentsAndTheLinkBeginWhereTheTraceSays() public view {
        for (uint32 round = 0; round < 2; round++) {
            for (uint16 seat = 0; seat < 4; seat++) {
                Claim memory c = claimOf(evidenceOf(round, seat, 1, false));
                same(c.opening, stateAfter(round, seat, 0), "segment's opening");
                same(c.closing, stateAfter(round, seat, 1), "segment's closing");
                c = claimOf(evidenceOf(round, seat, 1, true));
                same(c.opening, stateAfter(round, seat, 1), "link's opening");
                same(c.updateRoot, judgedReveal(round, 0, seat).updateRoot, "link's update");
                same(c.closing, judgedReveal(round, 0, seat).optimiserRoot, "revealed moments");
            }
        }
    }

    function test_aLeafThatSaysItDivergedIsNoShieldWhereEveryStepWasRevealed() public view {
        for (uint32 segment = 0; segment < 2; segment++) {
            Claim memory c = claimOf(evidenceOf(1, 3, segment, false));
            same(c.closing, stateAfter(1, 3, segment), "segment's closing");
        }
        same(claimOf(evidenceOf(1, 3, 1, true)).opening, stateAfter(1, 3, 1), "link's opening");
    }

    function test_evidenceOfAnythingElseIsRefused() public {
        Evidence memory e = evidenceOf(1, 2, 1, false);
        e.dataSeed = keccak256("another seed");
        refused(e, Claims.WrongFacts.selector);
        e = evidenceOf(1, 2, 1, false);
        e.holder = provider(1);
        refused(e, Claims.WrongFacts.selector);
        e = evidenceOf(1, 2, 1, false);
        e.opening = keccak256("another optimiser");
        refused(e, Claims.WrongFacts.selector);
        e = evidenceOf(1, 2, 1, false);
        e.reveal.updateRoot = keccak256("another update");
        refused(e, Claims.WrongFacts.selector);
        e = evidenceOf(1, 2, 1, false);
        e.later[0].commitment = keccak256("another reveal");
        refused(e, Claims.WrongFacts.selector);
        e = evidenceOf(1, 2, 1, false);
        e.parent.mergedDigest = modelDigest(7);
        refused(e, Claims.WrongFacts.selector);
        e = evidenceOf(1, 2, 1, false);
        e.round = 0;
        refused(e, Claims.WrongFacts.selector);
    }

    function test_modelsAndLeavesOfAnythingElseAreRefused() public {
        Evidence memory e = evidenceOf(1, 2, 1, false);
        e.model.paramsRoot = keccak256("another model");
        refused(e, Claims.WrongModel.selector);
        e = evidenceOf(1, 2, 1, false);
        e.model.momentsRoot = keccak256("other moments");
        refused(e, Claims.WrongModel.selector);
        e = evidenceOf(1, 2, 0, false);
        e.model.openingRoot = e.opening;
        refused(e, Claims.WrongModel.selector);
        e = evidenceOf(0, 2, 1, false);
        e.header = bytes.concat(new bytes(151), modelDigest(1));
        refused(e, Claims.WrongHeader.selector);
        e = evidenceOf(1, 2, 1, false);
        e.leaf.stateDigest = keccak256("another state");
        refused(e, Claims.WrongLeaf.selector);
        e = evidenceOf(1, 2, 1, false);
        e.previous.workWord = keccak256("another word");
        refused(e, Claims.WrongLeaf.selector);
        e = evidenceOf(1, 2, 1, false);
        e.leaves = 3;
        vm.expectRevert();
        claims.claim(abi.encode(e));
        refused(evidenceOf(1, 2, 0, true), Claims.NotLast.selector);
    }

    function test_onlyAcceptedSeatsOfSettledRoundsWithinTheWindow() public {
        Evidence memory e = evidenceOf(1, 2, 1, false);
        e.seat = 9;
        refused(e, Claims.NotAccepted.selector);
        e = evidenceOf(1, 2, 1, false);
        e.round = 2;
        refused(e, Claims.NotSettled.selector);
        e = evidenceOf(1, 2, 1, false);
        vm.warp(rounds.disputeUntil(jobId, 1) - 1);
        claimOf(e);
        vm.warp(rounds.disputeUntil(jobId, 1));
        refused(e, Claims.WindowOver.selector);
        e.jobId = create(defaultTerms());
        refused(e, Claims.NoJudge.selector);
    }

    function test_truncatedEvidenceIsRefused() public {
        bytes memory whole = abi.encode(evidenceOf(1, 2, 1, false));
        for (uint256 length = 0; length < whole.length; length += 97) {
            bytes memory part = new bytes(length);
            for (uint256 i = 0; i < length; i++) {
                part[i] = whole[i];
            }
            vm.expectRevert();
            claims.claim(part);
        }
    }

    // --- consequences ---

    function test_whileAGameIsOpenNeitherBondNorPayLeavesAndNobodyElseWaits() public {
        Claim memory c = game.challenge(abi.encode(evidenceOf(1, 2, 1, false)));
        playJudged();
        playJudged();
        finaliseAll(jobId);
        uint256 due = earned[jobId][provider(2)];
        bytes32[] memory proof = proofOf(jobId, provider(2));
        vm.expectPartialRevert(Jobs.GameOpen.selector);
        jobs.claim(jobId, provider(2), due, proof);
        claim(jobId, provider(1));
        same(token.balanceOf(provider(1)), 4 * PAY, "another's pay");
        vm.expectPartialRevert(Roster.GameOpen.selector);
        roster.releaseBond(jobId, Role.PROVIDER, provider(2));
        roster.releaseBond(jobId, Role.PROVIDER, provider(1));
        game.holderWins(c);
        claim(jobId, provider(2));
        same(token.balanceOf(provider(2)), 4 * PAY, "its pay");
        roster.releaseBond(jobId, Role.PROVIDER, provider(2));
        same(lockedOf(provider(2), Role.PROVIDER), 0, "its bond");
    }

    function test_whoFallsLosesBondSeatAndThePayFromTheRoundOn() public {
        Claim memory c = game.challenge(abi.encode(evidenceOf(1, 2, 1, false)));
        uint256 before = activeOf(provider(2), Role.PROVIDER);
        game.holderFalls(c, OUTSIDER);
        same(before - activeOf(provider(2), Role.PROVIDER), 100 ether, "slashed");
        same(activeOf(OUTSIDER, Role.VERIFIER), 30 ether, "to the challenger");
        same(token.balanceOf(address(0xdead)), 70 ether, "burnt");
        playRound(jobId);
        playRound(jobId);
        finaliseAll(jobId);
        claim(jobId, provider(2));
        same(token.balanceOf(provider(2)), PAY, "not the pay of the round, nor as much for the one begun since");
        claim(jobId, provider(1));
        same(token.balanceOf(provider(1)), 4 * PAY, "another's pay");
        uint256 submitters = token.balanceOf(submitter);
        jobs.claim(jobId, submitter, 0, new bytes32[](0));
        same(token.balanceOf(submitter) - submitters, 2 * PAY, "back to the submitter");
        jobs.refund(jobId);
        checkEscrow(jobId);
        vm.expectPartialRevert(Roster.FaultsPending.selector);
        roster.releaseBond(jobId, Role.PROVIDER, provider(2));
    }

    function test_whoFallsIsUnseatedAtTheNextBoundaryForGood() public {
        game.holderFalls(game.challenge(abi.encode(evidenceOf(1, 2, 1, false))), OUTSIDER);
        same(rounds.state(jobId).seated, 15, "nothing changes while the round runs");
        vm.prank(provider(2));
        vm.expectPartialRevert(Roster.AlreadyMember.selector);
        roster.joinAsProvider(jobId);
        playRound(jobId);
        same(rounds.state(jobId).seated, 11, "its seat is free");
        vm.warp(block.timestamp + 30 days);
        vm.expectPartialRevert(Roster.FaultsPending.selector);
        roster.releaseBond(jobId, Role.PROVIDER, provider(2));
    }

    function test_aFallAfterItLeftAndAfterTheJobClosedTakesTheBond() public {
        vm.prank(provider(2));
        roster.leaveAsProvider(jobId);
        playJudged();
        Claim memory c = game.challenge(abi.encode(evidenceOf(2, 2, 0, false)));
        playRound(jobId);
        inPhase(jobId, Phase.CLOSED);
        vm.warp(block.timestamp + 30 days);
        finaliseAll(jobId);
        jobs.refund(jobId);
        game.holderFalls(c, OUTSIDER);
        same(activeOf(OUTSIDER, Role.VERIFIER), 30 ether, "to the challenger");
        claim(jobId, provider(2));
        same(token.balanceOf(provider(2)), PAY, "not the pay of the round, nor as much for the one begun since");
        jobs.claim(jobId, submitter, 0, new bytes32[](0));
        checkEscrow(jobId);
    }

    function test_aBondThatWasTakenAlreadyIsNotTakenTwice() public {
        Claim memory c = game.challenge(abi.encode(evidenceOf(1, 2, 1, false)));
        (uint256 active, uint256 locked,) = stakes.stakeOf(provider(2), Role.PROVIDER);
        vm.prank(provider(2));
        stakes.thaw(Role.PROVIDER, active - locked);
        game.holderFalls(c, OUTSIDER);
        same(activeOf(provider(2), Role.PROVIDER), 0, "the bond");
        (,, uint256 thawing) = stakes.stakeOf(provider(2), Role.PROVIDER);
        same(thawing, active - locked, "the rest is its own");
    }

    function test_onlyTheGameMakesAnyoneFall() public {
        Claim memory c = claimOf(evidenceOf(1, 2, 1, false));
        vm.expectPartialRevert(Claims.OnlyGame.selector);
        claims.fell(c.set, c.place, OUTSIDER);
        vm.expectPartialRevert(Roster.OnlyClaims.selector);
        roster.expel(jobId, provider(2));
        vm.expectPartialRevert(Jobs.OnlyClaims.selector);
        jobs.withhold(jobId, provider(2), 1);
    }
}
