// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {Stakes} from "../../src/Stakes.sol";
import {Slash} from "../../src/interfaces/ICustody.sol";
import "../../src/types/Types.sol";
import {deployed} from "../support/Deployed.sol";
import {Network} from "../support/Network.sol";

/// @title Three nodes whose keys a thief has, and their owners; the handler plays the members
/// contract, too.
contract OwnerHandler is Network {
    address public constant THIEF = address(0x741ef);
    uint256 internal constant NODES = 3;
    bytes32 internal constant LOCK = "lock";

    Stakes public custody;
    uint256 public put; // into stakes, by owners
    uint256 public took; // out of them, by owners
    uint256 public slashed;
    uint256 public tries; // of the thief, all of them refused
    mapping(uint256 node => uint256) public owners; // how many it has had
    uint256[] internal unbonds;
    mapping(uint256 unbond => uint256) internal unbondOf;

    constructor() {
        setUp();
        custody = Stakes(deployed("Stakes", abi.encode(config)));
        custody.wire(address(this), address(jobs));
        for (uint256 i = 0; i < NODES; i++) {
            hand(i);
        }
    }

    function node(uint256 i) public pure returns (address) {
        return provider(i % NODES);
    }

    function owner(uint256 i) public view returns (address) {
        return address(uint160(0xc01d00 + (i % NODES) * 0x10000 + owners[i % NODES]));
    }

    /// The owner of a node gives it to the next.
    function hand(uint256 i) public {
        address from = jobs.ownerOf(node(i));
        owners[i % NODES]++;
        vm.prank(from);
        jobs.proposeOwner(node(i), owner(i));
        vm.prank(owner(i));
        jobs.acceptOwner(node(i));
    }

    /// An owner names a wallet of its own as payee, or proposes one that never accepts.
    function name(uint256 i, uint160 to) external {
        vm.startPrank(owner(i));
        jobs.setPayee(node(i), address(to | 1 << 159));
        jobs.proposeOwner(node(i), address(to | 1 << 158));
        vm.stopPrank();
    }

    /// Everything that a node's key, or a stranger's, can try, in its own name and in the node's.
    function steal(uint256 i, uint256 amount, bool isHot) external {
        (address thief, address victim) = (isHot ? node(i) : THIEF, node(i));
        uint256 unbond = unbonds.length == 0 ? 0 : unbonds[amount % unbonds.length];
        bytes[7] memory calls = [
            abi.encodeCall(custody.unbond, (victim, Role.PROVIDER, within(amount, 1, 1e18))),
            abi.encodeCall(custody.withdraw, (victim, Role.PROVIDER, unbond)),
            abi.encodeCall(custody.withdraw, (node(i % NODES + 1), Role.PROVIDER, unbond)),
            abi.encodeCall(custody.depositFor, (victim, Role.PROVIDER, 1)),
            abi.encodeCall(jobs.proposeOwner, (victim, thief)),
            abi.encodeCall(jobs.setPayee, (victim, thief)),
            abi.encodeCall(jobs.acceptOwner, (victim))
        ];
        for (uint256 k = 0; k < calls.length; k++) {
            vm.prank(thief);
            (bool ok,) = (k < 4 ? address(custody) : address(jobs)).call(calls[k]);
            check(!ok, "a thief was let through");
            tries++;
        }
    }

    function add(uint256 i, uint256 amount) external {
        amount = within(amount, 1, 1e24);
        token.transfer(owner(i), amount);
        vm.startPrank(owner(i));
        token.approve(address(custody), amount);
        custody.depositFor(node(i), Role.PROVIDER, amount);
        vm.stopPrank();
        put += amount;
    }

    function unbondSome(uint256 i, uint256 amount) external {
        (uint256 active, uint256 locked,) = custody.stakeOf(node(i), Role.PROVIDER);
        if (active == locked) return;
        amount = within(amount, 1, active - locked);
        vm.prank(owner(i));
        uint256 id = custody.unbond(node(i), Role.PROVIDER, amount);
        unbonds.push(id);
        unbondOf[id] = i % NODES;
    }

    function withdrawOne(uint256 which) external {
        if (unbonds.length == 0) return;
        vm.warp(block.timestamp + 7 days + 1);
        takeOut(which % unbonds.length);
    }

    function takeOut(uint256 position) internal {
        uint256 id = unbonds[position];
        unbonds[position] = unbonds[unbonds.length - 1];
        unbonds.pop();
        (address by, address of_) = (owner(unbondOf[id]), node(unbondOf[id]));
        uint256 before = token.balanceOf(by);
        vm.prank(by);
        custody.withdraw(of_, Role.PROVIDER, id);
        took += token.balanceOf(by) - before;
    }

    function bind(uint256 i, uint256 amount) external {
        (uint256 active, uint256 locked,) = custody.stakeOf(node(i), Role.PROVIDER);
        if (custody.lockOf(node(i), Role.PROVIDER, LOCK) != 0 || active == locked) return;
        custody.lock(node(i), Role.PROVIDER, LOCK, within(amount, 1, active - locked));
    }

    function free(uint256 i) external {
        custody.unlock(node(i), Role.PROVIDER, LOCK);
    }

    function cut(uint256 i, uint96 amount) external {
        bytes32 fault = bytes32(++slashes);
        slashed += custody.slash(
            Slash(node(i), Role.PROVIDER, LOCK, fault, amount, amount, address(0), Role.VERIFIER, 0)
        );
    }

    uint256 internal slashes;

    function held() external view returns (uint256 sum, uint256 stolen) {
        for (uint256 i = 0; i < NODES; i++) {
            (uint256 active,, uint256 unbonding) = custody.stakeOf(node(i), Role.PROVIDER);
            sum += active + unbonding;
            stolen += token.balanceOf(node(i));
        }
        stolen += token.balanceOf(THIEF);
    }

    /// Whatever happened, the owners of today get everything that was not slashed.
    function drain() external {
        for (uint256 i = 0; i < NODES; i++) {
            custody.unlock(node(i), Role.PROVIDER, LOCK);
            (uint256 active,,) = custody.stakeOf(node(i), Role.PROVIDER);
            if (active > 0) this.unbondSome(i, active - 1);
        }
        vm.warp(block.timestamp + 7 days + 1);
        while (unbonds.length > 0) {
            takeOut(unbonds.length - 1);
        }
        custody.burn();
        same(token.balanceOf(address(custody)), 0, "what is left");
        same(took + slashed, put, "all of it came home, or was slashed");
    }
}
