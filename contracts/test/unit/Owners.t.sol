// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {AtollToken} from "../../src/AtollToken.sol";
import {Jobs} from "../../src/Jobs.sol";
import {Owners} from "../../src/Owners.sol";
import {Stakes} from "../../src/Stakes.sol";
import {BlacklistToken} from "../support/HostileTokens.sol";
import {Network} from "../support/Network.sol";
import "../../src/types/Types.sol";

/// @title An owner in a contract of its own, which may do many things in one transaction.
contract Multicall {
    function both(address[] calldata targets, bytes[] calldata calls) external {
        for (uint256 i = 0; i < targets.length; i++) {
            (bool ok, bytes memory why) = targets[i].call(calls[i]);
            if (ok) continue;
            assembly ("memory-safe") {
                revert(add(why, 32), mload(why))
            }
        }
    }
}

/// @title P45: an account's owner alone moves its stake, and its pay goes where the owner says.
contract OwnersTest is Network {
    address internal constant COLD = address(0xc01d);
    address internal constant WALLET = address(0x3a11e7);
    address internal constant THIEF = address(0x741ef);
    address internal hot;

    function setUp() public override {
        super.setUp();
        hot = provider(0);
    }

    function own(address account, address owner) internal {
        address now_ = jobs.ownerOf(account);
        vm.prank(now_);
        jobs.proposeOwner(account, owner);
        vm.prank(owner);
        jobs.acceptOwner(account);
    }

    function depositedByOwner(uint256 amount) internal {
        token.transfer(COLD, amount);
        vm.startPrank(COLD);
        token.approve(address(stakes), amount);
        stakes.depositFor(hot, Role.PROVIDER, amount);
        vm.stopPrank();
    }

    function refused(address caller, address owner) internal {
        vm.prank(caller);
        vm.expectRevert(abi.encodeWithSelector(Stakes.NotItsOwner.selector, caller, owner));
    }

    // --- whose it is ---

    function test_P45_anAccountIsItsOwnUntilSomebodyAccepts() public {
        same(jobs.ownerOf(hot), hot, "its own");
        same(jobs.payeeOf(hot), hot, "its own payee");
        vm.prank(hot);
        jobs.proposeOwner(hot, COLD);
        same(jobs.ownerOf(hot), hot, "nobody accepted");
        same(jobs.proposedOwnerOf(hot), COLD, "proposed");
        vm.prank(COLD);
        jobs.acceptOwner(hot);
        same(jobs.ownerOf(hot), COLD, "accepted");
        same(jobs.payeeOf(hot), COLD, "paid");
        same(jobs.proposedOwnerOf(hot), address(0), "used up");
        vm.prank(COLD);
        vm.expectRevert(abi.encodeWithSelector(Owners.OnlyProposed.selector, COLD, address(0)));
        jobs.acceptOwner(hot);
    }

    /// Before an owner is there, and after: a stranger neither proposes, accepts, nor names a
    /// payee.
    function testFuzz_P45_aStrangerOwnsNothing(address stranger, address wanted, bool isOwned) public {
        if (isOwned) own(hot, COLD);
        address owner = jobs.ownerOf(hot);
        if (stranger == owner || stranger == address(0)) return;
        vm.startPrank(stranger);
        vm.expectRevert(abi.encodeWithSelector(Owners.OnlyOwner.selector, stranger, owner));
        jobs.proposeOwner(hot, wanted);
        vm.expectRevert(abi.encodeWithSelector(Owners.OnlyOwner.selector, stranger, owner));
        jobs.setPayee(hot, wanted);
        vm.expectRevert(abi.encodeWithSelector(Owners.OnlyProposed.selector, stranger, address(0)));
        jobs.acceptOwner(hot);
        vm.stopPrank();
        same(jobs.ownerOf(hot), owner, "as it was");
        same(jobs.payeeOf(hot), owner, "as it was");
    }

    function test_P45_nobodyIsNoPayeeAndNoOwner() public {
        vm.prank(hot);
        vm.expectRevert(Owners.NoPayee.selector);
        jobs.setPayee(hot, address(0));
        vm.prank(hot);
        jobs.proposeOwner(hot, address(0));
        vm.prank(address(0));
        jobs.acceptOwner(hot); // what no key can send
        same(jobs.ownerOf(hot), hot, "zero is nobody");
    }

    /// A mistyped proposal is taken back, or written over; who was named first is refused then.
    function test_P45_aProposalIsTakenBack() public {
        own(hot, COLD);
        vm.prank(COLD);
        jobs.proposeOwner(hot, THIEF);
        vm.prank(COLD);
        jobs.proposeOwner(hot, WALLET);
        vm.prank(THIEF);
        vm.expectRevert(abi.encodeWithSelector(Owners.OnlyProposed.selector, THIEF, WALLET));
        jobs.acceptOwner(hot);
        vm.prank(COLD);
        jobs.proposeOwner(hot, address(0));
        vm.prank(WALLET);
        vm.expectRevert(abi.encodeWithSelector(Owners.OnlyProposed.selector, WALLET, address(0)));
        jobs.acceptOwner(hot);
        same(jobs.ownerOf(hot), COLD, "still");
    }

    /// The hot key was stolen before: its thief writes over the proposal. Then the owner's
    /// acceptance fails, and it knows.
    function test_P45_aProposalThatAThiefWroteOverIsNotAccepted() public {
        vm.startPrank(hot);
        jobs.proposeOwner(hot, COLD);
        jobs.proposeOwner(hot, THIEF);
        vm.stopPrank();
        vm.prank(COLD);
        vm.expectRevert(abi.encodeWithSelector(Owners.OnlyProposed.selector, COLD, THIEF));
        jobs.acceptOwner(hot);
        token.transfer(COLD, 5 ether);
        vm.startPrank(COLD);
        token.approve(address(stakes), 5 ether);
        vm.expectRevert(abi.encodeWithSelector(Stakes.NotItsOwner.selector, COLD, hot));
        stakes.depositFor(hot, Role.PROVIDER, 5 ether); // in the same breath: its tokens stay its own
        vm.stopPrank();
    }

    function test_P45_aNewOwnerIsPaidAndAnOldOnesPayeeIsNot() public {
        own(hot, COLD);
        vm.prank(COLD);
        jobs.setPayee(hot, THIEF);
        same(jobs.payeeOf(hot), THIEF, "the owner's choice");
        own(hot, WALLET);
        same(jobs.payeeOf(hot), WALLET, "the new owner");
        vm.prank(COLD);
        vm.expectRevert(abi.encodeWithSelector(Owners.OnlyOwner.selector, COLD, WALLET));
        jobs.setPayee(hot, COLD);
        own(hot, hot);
        same(jobs.ownerOf(hot), hot, "its own again");
    }

    function test_P45_anOwnerMayBeAContract() public {
        Multicall safe = new Multicall();
        own(hot, address(safe));
        token.transfer(address(safe), 9 ether);
        address[] memory targets = new address[](3);
        bytes[] memory calls = new bytes[](3);
        (targets[0], targets[1], targets[2]) = (address(token), address(stakes), address(stakes));
        calls[0] = abi.encodeCall(token.approve, (address(stakes), 9 ether));
        calls[1] = abi.encodeCall(stakes.depositFor, (hot, Role.PROVIDER, 9 ether));
        calls[2] = abi.encodeCall(stakes.unbond, (hot, Role.PROVIDER, 9 ether));
        safe.both(targets, calls);
        vm.warp(block.timestamp + 7 days + 1);
        Multicall open = new Multicall(); // anybody's, which is not the owner whoever calls it
        targets = new address[](1);
        calls = new bytes[](1);
        (targets[0], calls[0]) = (address(stakes), abi.encodeCall(stakes.withdraw, (hot, Role.PROVIDER, 0)));
        refused(address(open), address(safe));
        stakes.withdraw(hot, Role.PROVIDER, 0);
        vm.expectRevert(abi.encodeWithSelector(Stakes.NotItsOwner.selector, address(open), address(safe)));
        open.both(targets, calls);
        safe.both(targets, calls);
        same(token.balanceOf(address(safe)), 9 ether, "home");
    }

    // --- stake ---

    function test_P45_aStolenHotKeyMovesNoStake() public {
        own(hot, COLD);
        depositedByOwner(10 ether);
        refused(hot, COLD);
        stakes.unbond(hot, Role.PROVIDER, 1 ether);
        refused(hot, COLD);
        stakes.depositFor(hot, Role.PROVIDER, 1 ether);
        vm.prank(COLD);
        uint256 id = stakes.unbond(hot, Role.PROVIDER, 4 ether);
        vm.warp(block.timestamp + 7 days + 1);
        refused(hot, COLD);
        stakes.withdraw(hot, Role.PROVIDER, id);
        vm.startPrank(hot);
        vm.expectRevert(abi.encodeWithSelector(Owners.OnlyOwner.selector, hot, COLD));
        jobs.proposeOwner(hot, THIEF);
        vm.expectRevert(abi.encodeWithSelector(Owners.OnlyOwner.selector, hot, COLD));
        jobs.setPayee(hot, THIEF);
        vm.stopPrank();
        vm.prank(COLD);
        stakes.withdraw(hot, Role.PROVIDER, id);
        same(token.balanceOf(COLD), 4 ether, "to who accepted");
        same(token.balanceOf(hot), 0, "nothing for the key that works");
    }

    /// A thief that was first unbonds everything; what it began is the owner's to take, at its
    /// date.
    function test_P45_anExitThatWasBegunBeforeIsTheNewOwners() public {
        stakeUp(hot, Role.PROVIDER, 6 ether);
        vm.prank(hot);
        uint256 id = stakes.unbond(hot, Role.PROVIDER, 6 ether);
        uint256 due = block.timestamp + 7 days;
        own(hot, COLD);
        vm.warp(due + 1);
        refused(hot, COLD);
        stakes.withdraw(hot, Role.PROVIDER, id);
        vm.prank(COLD);
        stakes.withdraw(hot, Role.PROVIDER, id);
        same(token.balanceOf(COLD), 6 ether, "on its date");
    }

    /// What a signature allows is spent into the account that signed, whoever sends it, and leaves
    /// by its owner only.
    function test_P45_aPermitMovesNothingToAThief() public {
        address account = vm.addr(0x1000);
        own(account, COLD);
        token.transfer(account, 2 ether);
        (uint8 v, bytes32 r, bytes32 s) = permitOf(0x1000, 2 ether);
        vm.prank(THIEF); // whose own tokens are asked for: it has none
        vm.expectPartialRevert(bytes4(keccak256("ERC20InsufficientAllowance(address,uint256,uint256)")));
        stakes.depositWithPermit(Role.PROVIDER, 2 ether, block.timestamp, v, r, s);
        vm.prank(account);
        stakes.depositWithPermit(Role.PROVIDER, 2 ether, block.timestamp, v, r, s);
        (uint256 active,,) = stakes.stakeOf(account, Role.PROVIDER);
        same(active, 2 ether, "its own stake");
        refused(account, COLD);
        stakes.unbond(account, Role.PROVIDER, 2 ether);
    }

    function permitOf(uint256 key, uint256 value) internal view returns (uint8 v, bytes32 r, bytes32 s) {
        AtollToken permits = AtollToken(address(token));
        bytes32 kind = keccak256("Permit(address owner,address spender,uint256 value,uint256 nonce,uint256 deadline)");
        address account = vm.addr(key);
        bytes32 content = keccak256(abi.encode(kind, account, stakes, value, permits.nonces(account), block.timestamp));
        return vm.sign(key, keccak256(abi.encodePacked(hex"1901", permits.DOMAIN_SEPARATOR(), content)));
    }

    // --- in a job ---

    /// The node works with its key and its owner's stake; a thief of the key gets nothing of it.
    function test_P45_aRewardReachesTheOwnersWalletAndNothingTheHotKey() public allHome {
        own(hot, COLD);
        depositedByOwner(BOND);
        uint256 jobId = create(defaultTerms());
        vm.prank(COLD);
        vm.expectPartialRevert(Stakes.InsufficientStake.selector); // an owner works for nobody
        members.join(jobId, 0);
        vm.prank(hot);
        members.join(jobId, 0);
        for (uint256 i = 1; i < 4; i++) {
            join(jobId, i, uint16(i));
        }
        for (uint256 i = 0; i < 3; i++) {
            enrol(jobId, i, uint16(i));
        }
        nextBlock();
        rounds.advance(jobId);
        play(jobId);
        play(jobId);
        vm.prank(COLD);
        vm.expectPartialRevert(Stakes.InsufficientStake.selector);
        stakes.unbond(hot, Role.PROVIDER, 1 ether); // the bond is as bound as it was
        vm.warp(rounds.timesOf(jobId, 1).windowEnd);
        vm.prank(COLD);
        jobs.setPayee(hot, WALLET);
        vm.prank(hot);
        jobs.claim(jobId, Role.PROVIDER, 1, 1);
        same(token.balanceOf(WALLET), 8 * segmentPay(), "the first round");
        own(hot, WALLET);
        own(hot, COLD); // between two claims
        vm.prank(THIEF);
        jobs.claim(jobId, Role.PROVIDER, 1, 2);
        same(token.balanceOf(COLD), 8 * segmentPay(), "the second, to who is paid now");
        members.release(jobId, Role.PROVIDER, 1);
        vm.prank(COLD);
        uint256 id = stakes.unbond(hot, Role.PROVIDER, BOND);
        vm.warp(block.timestamp + 7 days + 1);
        vm.prank(COLD);
        stakes.withdraw(hot, Role.PROVIDER, id);
        same(token.balanceOf(COLD), 8 * segmentPay() + BOND, "bond and pay");
        same(token.balanceOf(hot), 0, "of the key that works");
    }

    /// What a stolen key can still do: lose the bond to a challenger of its own, which gets the
    /// winner's share of it. What the owner unbonded before is whole, and nothing of the rest is a
    /// job's to lock.
    function test_P45_aThiefLosesTheBondAndGetsAWinnersShareAtMost() public allHome {
        own(hot, COLD);
        depositedByOwner(10 * BOND);
        vm.prank(COLD);
        uint256 id = stakes.unbond(hot, Role.PROVIDER, 9 * BOND);
        uint256 jobId = create(defaultTerms());
        vm.prank(hot);
        members.join(jobId, 0);
        for (uint256 i = 1; i < 4; i++) {
            join(jobId, i, uint16(i));
        }
        for (uint256 i = 0; i < 3; i++) {
            enrol(jobId, i, uint16(i));
        }
        uint256 second = create(defaultTerms());
        vm.prank(hot);
        vm.expectPartialRevert(Stakes.InsufficientStake.selector); // a job of the thief's own
        members.join(second, 0);
        nextBlock();
        rounds.advance(jobId);
        play(jobId);
        play(jobId);
        vm.warp(rounds.timesOf(jobId, 1).auditEnd);
        bytes memory evidence = abi.encode(evidenceFor(jobId, 1, 0, 3));
        vm.prank(THIEF);
        game.holderLoses(game.challenge(evidence), THIEF);
        (uint256 won,,) = stakes.stakeOf(THIEF, Role.VERIFIER);
        same(won, BOND * 3 / 10, "the winner's share");
        vm.warp(block.timestamp + 7 days + 1);
        vm.prank(COLD);
        stakes.withdraw(hot, Role.PROVIDER, id);
        same(token.balanceOf(COLD), 9 * BOND, "what was unbonded is whole");
    }

    function test_P45_creditsGoToThePayee() public allHome {
        own(hot, COLD);
        uint256 jobId = create(defaultTerms());
        vm.prank(address(audits));
        jobs.credit(jobId, hot, 3 ether);
        jobs.claimCredit(jobId, hot);
        same(token.balanceOf(COLD), 3 ether, "credit");
        same(token.balanceOf(hot), 0, "not to it");
    }

    // --- a payee that cannot be paid ---

    /// Whoever was slashed could name a payee that the token refuses, and its slash would stay
    /// unclosed, with the escrow's rest.
    function test_P37_aPayeeThatIsRefusedHoldsUpNoEscrow() public allHome {
        BlacklistToken hostile = new BlacklistToken(address(this), 1e9 ether);
        deploy(address(hostile));
        uint256 jobId = start();
        play(jobId);
        play(jobId);
        vm.warp(rounds.timesOf(jobId, 1).windowEnd);
        hostile.refuse(THIEF);
        vm.prank(hot);
        jobs.setPayee(hot, THIEF);
        jobs.claim(jobId, Role.PROVIDER, 1, 2);
        same(jobs.keptOf(hot), 2 * 8 * segmentPay(), "waits");
        same(jobs.claimedTo(jobId, Role.PROVIDER, 1), 2, "claimed");
        vm.expectPartialRevert(BlacklistToken.Refused.selector);
        jobs.collect(hot);
        jobs.refund(jobId);
        for (uint32 id = 1; id < 5; id++) {
            if (id > 1) jobs.claim(jobId, Role.PROVIDER, id, 2);
            if (id < 4) jobs.claim(jobId, Role.VERIFIER, id, 2);
        }
        vm.warp(rounds.absoluteEnd(jobId) + defaultTerms().claimSeconds);
        jobs.burn(jobId, 2);
        jobs.refund(jobId);
        same(jobs.escrowOf(jobId).balance, 0, "the rest went home");
        vm.prank(hot);
        jobs.setPayee(hot, WALLET);
        jobs.collect(hot);
        same(token.balanceOf(WALLET), 2 * 8 * segmentPay(), "all of it, later");
        jobs.collect(hot);
        same(token.balanceOf(WALLET), 2 * 8 * segmentPay(), "once");
        same(token.balanceOf(address(jobs)), jobs.unburnt(), "tokens of the escrow");
    }
}
