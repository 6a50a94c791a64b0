// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {Claim} from "../../src/judge/IClaims.sol";
import {Game} from "../../src/judge/Game.sol";
import {GameQueue, Outcome} from "../../src/judge/GameQueue.sol";
import {AtollToken} from "../../src/AtollToken.sol";
import {Table} from "../support/Table.sol";

/// @title Games that Python played, move by move: the contract knows the same after each, and
/// refuses the same.
contract GameVectorsTest is Table {
    uint256 internal constant GAMES = 24;

    string internal json;
    uint256 internal spent;
    uint256 internal transactions;

    event log_named_uint(string what, uint256 gas); // forge prints it with -vv

    function test_P62_gamesAgreeWithPython() public {
        for (uint256 i = 0; i < GAMES; i++) {
            this.play(i); // a call of its own, so that memory does not grow over the games
        }
    }

    function play(uint256 number) external {
        json = vm.readFile(string.concat("../tests/vectors/games/", vm.toString(number), ".json"));
        Claim memory c = abi.decode(vm.parseJsonBytes(json, ".evidence"), (Claim));
        fresh();
        vm.warp(1_000);
        uint256 id = challengeBy(CHALLENGER, c, c.lowestBond);
        (spent, transactions) = (challengeGas, 1);
        for (uint256 i = 0; vm.keyExistsJson(json, move(i, "")); i++) {
            vm.warp(block.timestamp + 1);
            this.playMove(id, i, c.holder);
        }
        conclude(id);
        uint256 outcome = vm.parseJsonUint(json, ".outcome");
        same(uint256(game.gameOf(id).outcome), outcome, "outcome");
        same(claims.toldCount(), outcome == uint256(Outcome.HOLDER_LOST) ? 1 : 0, "told");
        emit log_named_uint("whole game", spent);
        emit log_named_uint("transactions", transactions);
    }

    function playMove(uint256 id, uint256 i, address holder) external {
        address mover = vm.parseJsonBool(json, move(i, ".byHolder")) ? holder : CHALLENGER;
        refuses(mover, move(i, ".refused"));
        bytes memory data = vm.parseJsonBytes(json, move(i, ".data"));
        vm.cool(address(game));
        vm.cool(address(judge));
        vm.prank(mover);
        uint256 before = gasleft();
        (bool ok, bytes memory answer) = address(game).call(data);
        uint256 ran = before - gasleft();
        if (!ok) fail(answer);
        charge(data, ran, vm.parseJsonString(json, move(i, ".name")));
        same(digest(id), vm.parseJsonBytes32(json, move(i, ".digest")), "after the move");
    }

    function refuses(address mover, string memory list) private {
        if (!vm.keyExistsJson(json, string.concat(list, "[0]"))) return;
        bytes[] memory moves = vm.parseJsonBytesArray(json, list);
        for (uint256 i = 0; i < moves.length; i++) {
            vm.prank(mover);
            (bool ok,) = address(game).call(moves[i]);
            check(!ok, "a move that Python refuses");
        }
    }

    function conclude(uint256 id) private {
        vm.cool(address(game));
        uint256 before = gasleft();
        game.conclude(id);
        charge(abi.encodeCall(game.conclude, (id)), before - gasleft(), "conclude");
    }

    /// @dev A transaction: 21,000, the calldata, and what ran; at least EIP-7623's floor.
    function charge(bytes memory data, uint256 ran, string memory name) private {
        uint256 tokens;
        for (uint256 i = 0; i < data.length; i++) {
            tokens += data[i] == 0 ? 1 : 4;
        }
        uint256 gas = 21_000 + 4 * tokens + ran;
        if (gas < 21_000 + 10 * tokens) gas = 21_000 + 10 * tokens;
        (spent, transactions) = (spent + gas, transactions + 1);
        emit log_named_uint(name, gas);
        atMost(gas, 450_000, name);
        atMost(spent, 3_000_000, "the whole game");
        atMost(transactions, 22, "transactions");
    }

    function digest(uint256 id) private view returns (bytes32) {
        GameQueue.Match memory m = game.gameOf(id);
        return
            keccak256(
                abi.encode(uint256(m.phase), uint256(m.outcome), m.step, m.level, m.index, m.node, m.trace, m.tree)
            );
    }

    function fail(bytes memory answer) private pure {
        assembly ("memory-safe") {
            revert(add(answer, 32), mload(answer))
        }
    }

    function move(uint256 number, string memory rest) private pure returns (string memory) {
        return string.concat(".moves[", vm.toString(number), "]", rest);
    }
}
