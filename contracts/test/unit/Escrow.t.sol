// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {Jobs} from "../../src/Jobs.sol";
import {Params} from "../../src/interfaces/IConfig.sol";
import {Hashing} from "../../src/libraries/Hashing.sol";
import {Pull} from "../../src/libraries/Pull.sol";
import {TermsCheck} from "../../src/libraries/TermsCheck.sol";
import "../../src/types/Types.sol";
import {ClaimsTree} from "../support/ClaimsTree.sol";
import {BlacklistToken, FeeToken, ReentrantToken} from "../support/HostileTokens.sol";
import {Network} from "../support/Network.sol";

/// @title What a submitter pays in, what is paid out, and what goes back.
contract EscrowTest is Network {
    function useToken(address hostile) internal {
        deploy(hostile);
        token.transfer(submitter, 1e8 ether);
        vm.prank(submitter);
        token.approve(address(jobs), type(uint256).max);
    }

    /// A verdict that says whatever the test wants, signed by everyone.
    function settleWith(uint256 jobId, bytes32 root) internal {
        toReport(jobId);
        ballotAll(jobId);
        mine(1);
        Verdict memory v = verdictFor(jobId);
        v.claimsRoot = root;
        attestAll(jobId, v);
        rounds.settle(jobId, v);
    }

    function leafOf(uint256 jobId, address account, uint256 amount) internal view returns (bytes32) {
        return Hashing.claimLeaf(address(jobs), jobId, account, amount);
    }

    function oneLeafTree(bytes32 leaf) internal returns (bytes32 root, bytes32[] memory proof) {
        delete leaves;
        leaves.push(leaf);
        return (ClaimsTree.root(leaves), ClaimsTree.proof(leaves, 0));
    }

    function testFuzz_P01_depositsEqualClaimedRefundedBalance(uint96 extra, uint8 plays) public {
        uint256 jobId = start();
        uint256 more = within(extra, 1, 1e20);
        vm.prank(submitter);
        jobs.fund(jobId, more);
        uint256 played = plays % 4;
        for (uint256 r = 0; r < played; r++) {
            playRound(jobId);
            checkEscrow(jobId);
        }
        finaliseAll(jobId);
        for (uint256 i = 0; played > 0 && i < 4; i++) {
            claim(jobId, provider(i));
            checkEscrow(jobId);
        }
        if (played == 3) jobs.refund(jobId);
        checkEscrow(jobId);
        (,,, uint256 balance) = jobs.escrowOf(jobId);
        same(token.balanceOf(address(jobs)), balance, "tokens held");
    }

    function test_P02_refundOnlyWhenClosedAndOnce() public {
        uint256 jobId = start();
        vm.expectRevert(abi.encodeWithSelector(Jobs.WrongStatus.selector, jobId, JobStatus.ACTIVE));
        jobs.refund(jobId);
        for (uint256 r = 0; r < 3; r++) {
            playRound(jobId);
        }
        vm.expectRevert(abi.encodeWithSelector(Jobs.WrongStatus.selector, jobId, JobStatus.ACTIVE));
        jobs.refund(jobId);
        finaliseAll(jobId);
        jobs.refund(jobId);
        vm.expectRevert(abi.encodeWithSelector(Jobs.AlreadyRefunded.selector, jobId));
        jobs.refund(jobId);
    }

    function test_P02_unopenedJobRefundsAllAfterCancelOrExpiry() public {
        uint256 first = create(defaultTerms());
        uint256 second = create(defaultTerms());
        uint256 before = token.balanceOf(submitter);
        vm.prank(submitter);
        jobs.cancel(first);
        hasStatus(first, JobStatus.CANCELLED);
        jobs.refund(first);
        vm.warp(defaultTerms().expiry);
        rounds.poke(second);
        hasStatus(second, JobStatus.EXPIRED);
        jobs.refund(second);
        same(token.balanceOf(submitter), before + 2 * jobs.budget(defaultTerms()), "all of it");
        vm.prank(submitter);
        vm.expectRevert(abi.encodeWithSelector(Jobs.WrongStatus.selector, second, JobStatus.EXPIRED));
        jobs.fund(second, 1);
    }

    function testFuzz_P03_paidNeverExceedsFundedWhateverTheRoot(uint128 greed) public {
        uint256 jobId = start();
        address thief = address(0xbad);
        (bytes32 root, bytes32[] memory proof) = oneLeafTree(leafOf(jobId, thief, greed));
        settleWith(jobId, root);
        finaliseAll(jobId);
        (,, uint256 cap) = rounds.finalRounds(jobId);
        jobs.claim(jobId, thief, greed, proof);
        jobs.claim(jobId, thief, greed, proof);
        same(token.balanceOf(thief), greed < cap ? greed : cap, "capped by final rounds");
        (uint256 funded, uint256 claimed,,) = jobs.escrowOf(jobId);
        atMost(claimed, funded, "claimed");
        checkEscrow(jobId);
    }

    function test_P04_feeOnTransferIsRefused() public {
        useToken(address(new FeeToken(address(this), 1e9 ether)));
        Terms memory t = defaultTerms();
        uint256 funding = jobs.budget(t);
        vm.prank(submitter);
        vm.expectRevert(abi.encodeWithSelector(Pull.TransferFee.selector, funding, funding - funding / 100));
        jobs.create(0, "", t, address(policy), funding);

        token.approve(address(stakes), 1 ether);
        vm.expectPartialRevert(Pull.TransferFee.selector);
        stakes.deposit(Role.PROVIDER, 1 ether);
    }

    function test_P05_cancellingKeepsPayOfAcceptedRounds() public {
        uint256 jobId = start();
        playRound(jobId);
        toReport(jobId);
        vm.prank(submitter);
        jobs.cancel(jobId);
        inPhase(jobId, Phase.REPORT);
        ballotAll(jobId);
        settle(jobId);
        hasStatus(jobId, JobStatus.CANCELLED);
        vm.expectRevert(abi.encodeWithSelector(Jobs.RoundsNotFinal.selector, 0, 2));
        jobs.refund(jobId);
        finaliseAll(jobId);
        jobs.refund(jobId);
        for (uint256 i = 0; i < 4; i++) {
            claim(jobId, provider(i));
            same(token.balanceOf(provider(i)), 2 * 512 * 0.001 ether, "two rounds' pay");
        }
        for (uint256 i = 0; i < 3; i++) {
            claim(jobId, verifier(i));
        }
        same(token.balanceOf(address(jobs)), 0, "nothing is stuck");
    }

    function test_P05_cancelRequestedBeforeAVoidClosesTheWaitingJob() public {
        uint256 jobId = start();
        vm.prank(submitter);
        jobs.cancel(jobId);
        passDeadline(jobId);
        passBeacon(jobId);
        passDeadline(jobId);
        inPhase(jobId, Phase.WAITING);
        rounds.poke(jobId);
        hasStatus(jobId, JobStatus.CANCELLED);
        jobs.refund(jobId);
    }

    function test_P05_onlyTheSubmitterCancels() public {
        uint256 jobId = start();
        vm.expectPartialRevert(Jobs.OnlySubmitter.selector);
        jobs.cancel(jobId);
        vm.startPrank(submitter);
        jobs.cancel(jobId);
        vm.expectRevert(abi.encodeWithSelector(Jobs.CancelAlreadyRequested.selector, jobId));
        jobs.cancel(jobId);
        vm.stopPrank();
    }

    function test_P06_parameterChangesNeverReachOpenJobs() public {
        uint256 jobId = create(defaultTerms());
        Params memory p = defaultParams();
        (p.missCutBps, p.minProviderBond) = (2_000, 1e24);
        config.proposeParams(p);
        vm.warp(block.timestamp + CHANGE_DELAY);
        config.applyParams();

        open(jobId, 4, 3);
        commitAll(jobId, 14);
        passDeadline(jobId);
        revealAll(jobId, 14);
        passBeacon(jobId);
        ballotAll(jobId);
        settle(jobId);
        vm.warp(rounds.disputeUntil(jobId, 0));
        uint256 before = activeOf(provider(0), Role.PROVIDER);
        rounds.punish(jobId, 0, Offence.SEAT_MISSED, 0);
        same(before - activeOf(provider(0), Role.PROVIDER), 1 ether, "the old cut, 1 % of the bond");
    }

    function test_P34_secondClaimAndLowerValuePayNothing() public {
        uint256 jobId = start();
        playRound(jobId);
        playRound(jobId);
        finaliseAll(jobId);
        claim(jobId, provider(0));
        uint256 paid = token.balanceOf(provider(0));
        claim(jobId, provider(0));
        same(token.balanceOf(provider(0)), paid, "second claim");

        uint256 lower = paid / 2;
        (bytes32 root, bytes32[] memory proof) = oneLeafTree(leafOf(jobId, provider(0), lower));
        settleWith(jobId, root);
        finaliseAll(jobId);
        jobs.claim(jobId, provider(0), lower, proof);
        same(token.balanceOf(provider(0)), paid, "a lower value");
    }

    function test_P35_emptyRootIsRefused() public {
        uint256 jobId = start();
        toReport(jobId);
        ballotAll(jobId);
        mine(1);
        Verdict memory v = verdictFor(jobId);
        v.claimsRoot = 0;
        attestAll(jobId, v);
        vm.expectRevert(abi.encodeWithSignature("EmptyClaimsRoot()"));
        rounds.settle(jobId, v);
        vm.expectRevert(abi.encodeWithSelector(Jobs.NothingFinal.selector, jobId));
        jobs.claim(jobId, provider(0), 1, new bytes32[](1));
    }

    function test_P36_leafIsBoundToChainContractJobAndAccount() public {
        uint256 jobId = start();
        playRound(jobId);
        finaliseAll(jobId);
        address account = provider(1);
        uint256 due = earned[jobId][account];
        bytes32[] memory proof = proofOf(jobId, account);
        vm.expectRevert(abi.encodeWithSelector(Jobs.BadProof.selector, account, due + 1));
        jobs.claim(jobId, account, due + 1, proof);
        vm.expectRevert(abi.encodeWithSelector(Jobs.BadProof.selector, submitter, due));
        jobs.claim(jobId, submitter, due, proof);
        uint256 chain = block.chainid;
        vm.chainId(chain + 1);
        vm.expectRevert(abi.encodeWithSelector(Jobs.BadProof.selector, account, due));
        jobs.claim(jobId, account, due, proof);
        vm.chainId(chain);
        proof[1] ^= bytes32(uint256(1));
        vm.expectRevert(abi.encodeWithSelector(Jobs.BadProof.selector, account, due));
        jobs.claim(jobId, account, due, proof);
    }

    function test_P36_anotherJobsProofDoesNotPass() public {
        uint256 jobId = start();
        playRound(jobId);
        finaliseAll(jobId);
        bytes32[] memory proof = proofOf(jobId, provider(0));
        uint256 due = earned[jobId][provider(0)];
        uint256 other = create(defaultTerms());
        open(other, 4, 3);
        playRound(other);
        finaliseAll(other);
        vm.expectPartialRevert(Jobs.BadProof.selector);
        jobs.claim(other, provider(0), due, proof);
    }

    function test_P37_refusedRecipientBlocksNobodyElse() public {
        BlacklistToken hostile = new BlacklistToken(address(this), 1e9 ether);
        useToken(address(hostile));
        uint256 jobId = start();
        playRound(jobId);
        finaliseAll(jobId);
        hostile.refuse(provider(0));
        bytes32[] memory proof = proofOf(jobId, provider(0));
        uint256 due = earned[jobId][provider(0)];
        vm.expectRevert(abi.encodeWithSelector(BlacklistToken.Refused.selector, provider(0)));
        jobs.claim(jobId, provider(0), due, proof);
        claim(jobId, provider(1));
        same(token.balanceOf(provider(1)), due, "the others are paid");
        playRound(jobId);
    }

    function test_reentrancyIsRefusedWhereTokensMove() public {
        ReentrantToken hostile = new ReentrantToken(address(this), 1e9 ether);
        useToken(address(hostile));
        uint256 jobId = start();
        playRound(jobId);
        finaliseAll(jobId);
        bytes memory again =
            abi.encodeCall(jobs.claim, (jobId, provider(0), earned[jobId][provider(0)], proofOf(jobId, provider(0))));
        hostile.arm(address(jobs), again);
        claim(jobId, provider(0));
        check(hostile.wasRefused(), "the inner claim is refused");
        same(token.balanceOf(provider(0)), earned[jobId][provider(0)], "paid once");
    }

    function test_createRefusesBadTerms() public {
        Terms memory t = defaultTerms();
        t.quorumNumerator = 1;
        t.quorumDenominator = 2;
        expectRefused(t, abi.encodeWithSelector(TermsCheck.QuorumOutOfRange.selector, 1, 2));
        t = defaultTerms();
        t.seats = 257;
        expectRefused(t, outOfRange("seats", 257, 1, 256));
        t = defaultTerms();
        t.minProviders = 5;
        expectRefused(t, outOfRange("minProviders", 5, 1, 4));
        t = defaultTerms();
        t.attempts = 9;
        expectRefused(t, outOfRange("attempts", 9, 1, 8));
        t = defaultTerms();
        t.providerBond = 1 ether - 1;
        expectRefused(t, outOfRange("providerBond", 1 ether - 1, 1 ether, type(uint128).max));
        t = defaultTerms();
        t.expiry = uint64(block.timestamp);
        expectRefused(t, outOfRange("expiry", block.timestamp, block.timestamp + 1, type(uint64).max));
    }

    function testFuzz_P10_windowsFitTheUnbondingDelay(uint32 train, uint32 dispute, uint8 attempts) public {
        Terms memory t = defaultTerms();
        t.trainSeconds = train;
        t.disputeSeconds = dispute;
        t.attempts = uint16(within(attempts, 1, 8));
        vm.assume(train > 0 && dispute > 0);
        uint256 windows = (uint256(train) + dispute + 60 + 600 + 300 + 300) * t.attempts;
        if (windows > UNBONDING / 2) {
            expectRefused(t, outOfRange("windows", windows, 1, UNBONDING / 2));
        } else {
            create(t);
        }
    }

    function test_createNeedsTheWholeBudget() public {
        Terms memory t = defaultTerms();
        uint256 needed = jobs.budget(t);
        same(needed, 3 * (4 * 512 * uint256(0.001 ether) + 8 * 0.5 ether), "every round at its dearest");
        vm.startPrank(submitter);
        vm.expectRevert(abi.encodeWithSelector(Jobs.Underfunded.selector, needed - 1, needed));
        jobs.create(0, "", t, address(policy), needed - 1);
        vm.expectRevert(abi.encodeWithSelector(Jobs.PolicyNotAllowed.selector, address(this)));
        jobs.create(0, "", t, address(this), needed);
        vm.stopPrank();
    }

    function expectRefused(Terms memory t, bytes memory reason) private {
        vm.prank(submitter);
        vm.expectRevert(reason);
        jobs.create(0, "", t, address(policy), type(uint128).max);
    }

    function outOfRange(string memory name, uint256 value, uint256 lowest, uint256 highest)
        private
        pure
        returns (bytes memory)
    {
        return abi.encodeWithSelector(TermsCheck.TermOutOfRange.selector, name, value, lowest, highest);
    }
}
