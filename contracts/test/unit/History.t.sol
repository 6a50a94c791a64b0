// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {RoundsBase} from "../../src/rounds/RoundsBase.sol";
import {History} from "../../src/libraries/History.sol";
import {Hashing} from "../../src/libraries/Hashing.sol";
import "../../src/types/Types.sol";
import {Network} from "../support/Network.sol";

/// @title Seeds of blocks that the EVM has forgotten, on chains that keep their hashes and on others.
contract HistoryTest is Network {
    /// EIP-2935's contract.
    bytes private constant CODE =
        hex"3373fffffffffffffffffffffffffffffffffffffffe14604657602036036042575f35600143038111604257611fff81430311604257611fff9006545f5260205ff35b5f5ffd5b5f35611fff60014303065500";

    function keeps(uint256 number, bytes32 value) private {
        vm.etch(History.CONTRACT, CODE);
        vm.store(History.CONTRACT, bytes32(number % 8191), value);
    }

    function test_theLast256AreTheEvms() public {
        keeps(block.number - 1, "another");
        check(History.hashOf(block.number - 1) == blockhash(block.number - 1), "as the EVM says");
        check(History.hashOf(block.number - 1) != "another", "whatever else is said");
    }

    function test_olderOnesAreTheChains() public {
        (uint256 number, bytes32 value) = (block.number, keccak256("a block"));
        vm.roll(number + 257);
        check(History.hashOf(number) == 0, "a chain that keeps none");
        keeps(number, value);
        check(History.hashOf(number) == value, "of one that does");
        vm.roll(number + 8191);
        check(History.hashOf(number) == value, "the oldest");
        vm.roll(number + 8192);
        check(History.hashOf(number) == 0, "forgotten");
    }

    function test_noBlockThatIsNotOverHasOne() public {
        keeps(block.number, "another");
        check(History.hashOf(block.number) == 0, "this one");
        check(History.hashOf(block.number + 1) == 0, "the next one");
    }

    /// Whoever did not like what a block drew waited for 256 of them, and had another one.
    function test_waitingFor256BlocksDrawsNothingElse() public allHome onlyTheGuiltyPay {
        uint256 jobId = start();
        sayAll(jobId, toMergeInOneBlock(jobId));
        (uint256 opened, bytes32 value) = (block.number, keccak256("a block"));
        vm.roll(opened + 300);
        keeps(opened, value);
        rounds.seedAudit(jobId);
        RoundState memory s = rounds.state(jobId);
        Hashing.RoundId memory id = Hashing.RoundId(address(rounds), jobId, 0);
        check(s.auditSeed == Hashing.auditSeed(id, s.reveals, value), "by the block in which MERGE opened");
        vm.warp(s.deadline);
        settle(jobId);
    }

    function test_whereAllForgotItIsDrawnAnew() public allHome onlyTheGuiltyPay {
        uint256 jobId = start();
        sayAll(jobId, toMergeInOneBlock(jobId));
        uint256 opened = block.number;
        keeps(opened, "a block");
        vm.roll(opened + 8192);
        rounds.seedAudit(jobId);
        check(rounds.state(jobId).auditSeed == 0, "noted");
        vm.expectPartialRevert(RoundsBase.Unseeded.selector);
        rounds.seedAudit(jobId);
        vm.roll(block.number + 1);
        rounds.seedAudit(jobId);
        check(rounds.state(jobId).auditSeed != 0, "by the block of the first call");
        vm.warp(rounds.state(jobId).deadline);
        settle(jobId);
    }

    /// @return seated who have all revealed, in this block
    function toMergeInOneBlock(uint256 jobId) private returns (uint256 seated) {
        seated = rounds.state(jobId).seated;
        commitAll(jobId, seated);
        nextBlock();
        revealAll(jobId, seated);
    }
}
