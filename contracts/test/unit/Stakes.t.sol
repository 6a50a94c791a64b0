// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {AtollToken} from "../../src/AtollToken.sol";
import {Stakes} from "../../src/Stakes.sol";
import {Slash} from "../../src/interfaces/ICustody.sol";
import "../../src/types/Types.sol";
import {deployed} from "../support/Deployed.sol";
import {Network} from "../support/Network.sol";

/// @title Custody alone; the test plays the members contract.
contract StakesTest is Network {
    Stakes internal custody;
    address internal alice = address(0xa11ce);
    address internal finder = address(0xf14de);
    bytes32 internal constant LOCK = "lock";
    uint256 internal nextFault;
    uint256 internal constant UNBONDING = 7 days;

    function setUp() public override {
        super.setUp();
        custody = Stakes(deployed("Stakes", abi.encode(config)));
        custody.wire(address(this), address(jobs));
    }

    function deposit(uint256 amount) internal {
        token.transfer(alice, amount);
        vm.startPrank(alice);
        token.approve(address(custody), amount);
        custody.deposit(Role.PROVIDER, amount);
        vm.stopPrank();
    }

    function unbond(uint256 amount) internal returns (uint256 id) {
        vm.prank(alice);
        return custody.unbond(alice, Role.PROVIDER, amount);
    }

    function withdraw(uint256 id) internal {
        vm.prank(alice);
        custody.withdraw(alice, Role.PROVIDER, id);
    }

    function slash(uint256 amount, address beneficiary, uint16 bps) internal returns (uint256) {
        bytes32 faultId = bytes32(++nextFault);
        return
            custody.slash(Slash(alice, Role.PROVIDER, LOCK, faultId, amount, amount, beneficiary, Role.VERIFIER, bps));
    }

    function slash(uint256 amount) internal returns (uint256) {
        return slash(amount, address(0), 0);
    }

    function held() internal view returns (uint256 active, uint256 locked, uint256 unbonding) {
        return custody.stakeOf(alice, Role.PROVIDER);
    }

    function testFuzz_P07_balanceCoversActiveAndUnbonding(uint96 amount, uint96 out, uint96 cut) public {
        uint256 total = within(amount, 2, 1e24);
        deposit(total);
        unbond(within(out, 1, total));
        slash(cut);
        (uint256 active, uint256 locked, uint256 unbonding) = held();
        same(token.balanceOf(address(custody)), active + unbonding + custody.unburnt(), "balance");
        custody.burn();
        same(token.balanceOf(address(custody)), active + unbonding, "after the sink has its own");
        atMost(locked, active, "locked");
    }

    function test_P08_withdrawStrictlyAfterTheBoundary() public {
        deposit(10 ether);
        uint256 id = unbond(4 ether);
        uint256 boundary = block.timestamp + UNBONDING;
        vm.warp(boundary);
        vm.expectRevert(abi.encodeWithSelector(Stakes.StillUnbonding.selector, boundary, boundary));
        withdraw(id);
        vm.warp(boundary + 1);
        withdraw(id);
        same(token.balanceOf(alice), 4 ether, "withdrawn");
        vm.expectPartialRevert(Stakes.UnknownUnbond.selector);
        withdraw(id);
    }

    function testFuzz_P08_unbondingStaysSlashable(uint96 cut) public {
        deposit(10 ether);
        uint256 id = unbond(10 ether);
        uint256 amount = within(cut, 1, 20 ether);
        uint256 taken = slash(amount);
        same(taken, amount < 10 ether ? amount : 10 ether, "taken from what unbonds");
        vm.warp(block.timestamp + UNBONDING + 1);
        withdraw(id);
        same(token.balanceOf(alice), 10 ether - taken, "the rest");
    }

    function test_P08_slashIsSharedByEveryExitAlike() public {
        deposit(30 ether);
        uint256 first = unbond(10 ether);
        uint256 second = unbond(20 ether);
        slash(15 ether);
        vm.warp(block.timestamp + UNBONDING + 1);
        withdraw(first);
        same(token.balanceOf(alice), 5 ether, "a third of what is left");
        withdraw(second);
        same(token.balanceOf(alice), 15 ether, "all of what is left");
    }

    function test_P08_whoLeavesBehindASlashHasNoPartInIt() public {
        deposit(10 ether);
        uint256 first = unbond(10 ether);
        slash(6 ether);
        deposit(8 ether);
        uint256 second = unbond(8 ether);
        vm.warp(block.timestamp + UNBONDING + 1);
        withdraw(second);
        same(token.balanceOf(alice), 8 ether, "whole");
        withdraw(first);
        same(token.balanceOf(alice), 12 ether, "and what the slash left of the first");
    }

    function test_P08_exitAfterTotalSlashStartsAnew() public {
        deposit(10 ether);
        uint256 lost = unbond(10 ether);
        slash(10 ether);
        deposit(6 ether);
        uint256 id = unbond(6 ether);
        vm.warp(block.timestamp + UNBONDING + 1);
        withdraw(lost);
        same(token.balanceOf(alice), 0, "nothing is left of the first exit");
        withdraw(id);
        same(token.balanceOf(alice), 6 ether, "the second exit is whole");
    }

    function testFuzz_P08_poolThatIsCutToDustAgainAndAgainGoesOn(uint96[8] calldata amounts, uint8 left) public {
        uint256 paid;
        for (uint256 i; i < amounts.length; i++) {
            uint256 amount = within(amounts[i], 1 ether, 2 ** 86);
            deposit(amount);
            unbond(amount);
            (,, uint256 unbonding) = held();
            slash(unbonding - 1 - left % 4);
        }
        (uint256 active,, uint256 dust) = held();
        same(token.balanceOf(address(custody)), active + dust + custody.unburnt(), "nothing is lost");
        if (active > 0) unbond(active);
        vm.warp(block.timestamp + UNBONDING + 1);
        for (uint256 id; id < amounts.length; id++) {
            paid += withdrawn(id);
        }
        if (active > 0) paid += withdrawn(amounts.length);
        same(paid, active + dust, "every exit ends, and all of it comes home");
        same(token.balanceOf(address(custody)), custody.unburnt(), "and nothing stays");
    }

    function withdrawn(uint256 id) internal returns (uint256) {
        uint256 before = token.balanceOf(alice);
        withdraw(id);
        return token.balanceOf(alice) - before;
    }

    function testFuzz_P09_lockedNeverExceedsStake(uint96 bond, uint96 out) public {
        deposit(10 ether);
        uint256 locked = within(bond, 1, 10 ether);
        custody.lock(alice, Role.PROVIDER, LOCK, locked);
        uint256 wanted = within(out, 1, 10 ether);
        if (wanted > 10 ether - locked) vm.expectPartialRevert(Stakes.InsufficientStake.selector);
        unbond(wanted);
        (uint256 active, uint256 lockedNow,) = held();
        atMost(lockedNow, active, "locked");
        custody.unlock(alice, Role.PROVIDER, LOCK);
        custody.unlock(alice, Role.PROVIDER, LOCK);
        (, lockedNow,) = held();
        same(lockedNow, 0, "unlocked once");
    }

    function test_P09_lockNeedsFreeStake() public {
        deposit(10 ether);
        custody.lock(alice, Role.PROVIDER, LOCK, 6 ether);
        vm.expectPartialRevert(Stakes.LockExists.selector);
        custody.lock(alice, Role.PROVIDER, LOCK, 1 ether);
        vm.expectRevert(
            abi.encodeWithSelector(Stakes.InsufficientStake.selector, alice, Role.PROVIDER, 4 ether, 5 ether)
        );
        custody.lock(alice, Role.PROVIDER, "other", 5 ether);
    }

    function test_P10_existingExitsKeepTheirDate() public {
        deposit(10 ether);
        uint256 id = unbond(1 ether);
        vm.warp(block.timestamp + 5 days);
        unbond(1 ether);
        vm.warp(block.timestamp + 2 days + 1);
        withdraw(id);
        same(token.balanceOf(alice), 1 ether, "the later exit did not move the earlier one");
    }

    function test_P11_dustCannotResetShortenOrBlockATimer() public {
        deposit(10 ether);
        uint256 id = unbond(5 ether);
        vm.warp(block.timestamp + UNBONDING - 1);
        uint256 dust = unbond(1);
        vm.expectPartialRevert(Stakes.StillUnbonding.selector);
        withdraw(id);
        vm.warp(block.timestamp + 2);
        withdraw(id);
        same(token.balanceOf(alice), 5 ether, "on time");
        vm.expectPartialRevert(Stakes.StillUnbonding.selector);
        withdraw(dust);
        vm.expectRevert(Stakes.ZeroAmount.selector);
        unbond(0);
        vm.expectRevert(Stakes.ZeroAmount.selector);
        custody.deposit(Role.PROVIDER, 0);
        vm.expectRevert(Stakes.ZeroAmount.selector);
        custody.deposit(Role.PROVIDER, 1 << 128);
        vm.prank(finder);
        vm.expectPartialRevert(Stakes.NotItsOwner.selector);
        custody.withdraw(alice, Role.PROVIDER, dust);
    }

    function testFuzz_P12_slashNeverRevertsForTheVictim(uint96 locked, uint96 out, uint96 cut) public {
        deposit(10 ether);
        uint256 bond = within(locked, 1, 10 ether);
        custody.lock(alice, Role.PROVIDER, LOCK, bond);
        if (bond < 10 ether) unbond(within(out, 1, 10 ether - bond));
        uint256 taken = slash(cut);
        same(taken, cut < 10 ether ? cut : 10 ether, "taken");
    }

    function testFuzz_P31_slashNeverExceedsStake(uint96 cut) public {
        deposit(3 ether);
        uint256 taken = slash(cut);
        atMost(taken, 3 ether, "taken");
        (uint256 active,,) = held();
        same(active, 3 ether - taken, "left");
    }

    function test_P31_faultIdWorksOnce() public {
        deposit(3 ether);
        Slash memory order = Slash(alice, Role.PROVIDER, LOCK, "fault", 1 ether, 1 ether, address(0), Role.VERIFIER, 0);
        custody.slash(order);
        vm.expectRevert(abi.encodeWithSelector(Stakes.FaultUsed.selector, bytes32("fault")));
        custody.slash(order);
    }

    function test_P31_slashLeavesOtherLocksAlone() public {
        deposit(10 ether);
        custody.lock(alice, Role.PROVIDER, "other job", 7 ether);
        custody.lock(alice, Role.PROVIDER, LOCK, 2 ether);
        same(slash(9 ether), 3 ether, "its own lock and what is free");
        same(custody.lockOf(alice, Role.PROVIDER, "other job"), 7 ether, "the other job's bond");
    }

    function testFuzz_P33_reportersShareIsCappedAndTheRestBurnt(uint96 amount, uint16 bps) public {
        uint256 total = within(amount, 1, 1e24);
        deposit(total);
        if (bps > 5_000) vm.expectPartialRevert(Stakes.ShareTooLarge.selector);
        slash(total, finder, bps);
        if (bps > 5_000) return;
        (uint256 share,,) = custody.stakeOf(finder, Role.VERIFIER);
        same(share, total * bps / 10_000, "share, rounded down");
        same(custody.unburnt(), total - share, "set aside");
        for (uint256 i = 0; i < 2; i++) {
            custody.burn();
            same(token.balanceOf(custody.BURN()), total - share, "burnt once");
            same(token.balanceOf(address(custody)), share, "and nobody else's");
        }
    }

    function test_onlyMembersTouchLocks() public {
        vm.startPrank(alice);
        vm.expectPartialRevert(Stakes.NotAllowed.selector);
        custody.lock(alice, Role.PROVIDER, LOCK, 0);
        vm.expectPartialRevert(Stakes.NotAllowed.selector);
        custody.unlock(alice, Role.PROVIDER, LOCK);
        vm.expectPartialRevert(Stakes.NotAllowed.selector);
        custody.slash(Slash(alice, Role.PROVIDER, LOCK, LOCK, 0, 0, alice, Role.PROVIDER, 0));
        vm.stopPrank();
    }

    function test_depositWithPermitAlsoWhenSomeoneSpentTheSignature() public {
        uint256 key = 0xbeef;
        address owner = vm.addr(key);
        token.transfer(owner, 4 ether);
        for (uint256 i = 0; i < 2; i++) {
            (uint8 v, bytes32 r, bytes32 s) = signPermit(key, owner, 2 ether);
            if (i == 1) AtollToken(address(token)).permit(owner, address(custody), 2 ether, block.timestamp, v, r, s);
            vm.prank(owner);
            custody.depositWithPermit(Role.VERIFIER, 2 ether, block.timestamp, v, r, s);
        }
        (uint256 active,,) = custody.stakeOf(owner, Role.VERIFIER);
        same(active, 4 ether, "both deposits");
    }

    function signPermit(uint256 key, address owner, uint256 value)
        internal
        view
        returns (uint8 v, bytes32 r, bytes32 s)
    {
        bytes32 typehash = keccak256(
            "Permit(address owner,address spender,uint256 value,uint256 nonce,uint256 deadline)"
        );
        bytes32 content = keccak256(
            abi.encode(
                typehash, owner, address(custody), value, AtollToken(address(token)).nonces(owner), block.timestamp
            )
        );
        return
            vm.sign(key, keccak256(abi.encodePacked(hex"1901", AtollToken(address(token)).DOMAIN_SEPARATOR(), content)));
    }
}
