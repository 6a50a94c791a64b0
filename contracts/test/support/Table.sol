// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {AtollToken} from "../../src/AtollToken.sol";
import {Claim} from "../../src/judge/IClaims.sol";
import {Game} from "../../src/judge/Game.sol";
import {GameQueue, Outcome, Phase} from "../../src/judge/GameQueue.sol";
import {Judge, Opening, Proof} from "../../src/judge/Judge.sol";
import {Part} from "../../src/judge/MoveChecks.sol";
import {Check} from "./Check.sol";
import {deployed} from "./Deployed.sol";
import {ToyClaims} from "./ToyClaims.sol";
import {ToySteps} from "./ToySteps.sol";

/// @title A game's contract with toy claims and the toy family, people with tokens, and a program
/// of one node.
/// @dev The node is ToySteps' RESULT of the context: 32 bytes of the data seed, and a norm that
/// follows from it.
abstract contract Table is Check {
    uint256 internal constant LONGEST = 10_000;
    address internal constant HOLDER = address(0xa11cE);
    address internal constant CHALLENGER = address(0xc0c0);
    bytes32 internal constant SEED = keccak256("data");

    AtollToken internal token;
    ToyClaims internal claims;
    Judge internal judge;
    Game internal game;
    uint256 internal challengeGas;

    function setUp() public virtual {
        token = AtollToken(deployed("AtollToken", abi.encode(address(this), 1_000_000 ether, uint8(18))));
        address[] memory families = new address[](8);
        families[7] = deployed("ToySteps", "");
        judge = Judge(deployed("Judge", abi.encode(families)));
        fresh();
    }

    function fresh() internal {
        game = Game(deployed("Game", abi.encode(token, LONGEST, judge)));
        claims = ToyClaims(deployed("ToyClaims", ""));
        game.wire(address(claims));
    }

    function challengeBy(address account, Claim memory c, uint128 bond) internal returns (uint256 id) {
        token.transfer(account, bond);
        vm.startPrank(account);
        token.approve(address(game), bond);
        uint256 before = gasleft();
        id = game.challenge(abi.encode(c), bond);
        challengeGas = before - gasleft() + 21_000 + 16 * 32 * 23;
        vm.stopPrank();
    }

    /// @dev By a drawn auditor of number 1.
    function challengeOwedBy(address account, Claim memory c, uint128 bond) internal returns (uint256 id) {
        claims.owe(account, 1);
        token.transfer(account, bond);
        vm.startPrank(account);
        token.approve(address(game), bond);
        id = game.challengeOwed(abi.encode(c), bond, 1, "");
        vm.stopPrank();
    }

    // --- claims ---

    /// @return c a claim of that holder, which is right; sets and positions differ by number
    function claimOf(address holder, uint256 number) internal pure returns (Claim memory c) {
        c.holder = holder;
        c.set = keccak256(abi.encode("set", holder, number));
        c.position = keccak256(abi.encode("position", holder, number));
        c.program = programRoot();
        c.dataSeed = SEED;
        c.initialState = sha256(abi.encodePacked("atoll.state.v1", roots()));
        c.closing = SEED;
        c.workTag = keccak256(normOf(false));
        c.windowEnd = 100_000;
        c.lowestBond = 1 ether;
        c.holderSeconds = 1_000;
        c.challengerSeconds = 500;
        c.moveSeconds = 60;
    }

    /// @return c the same with a norm that does not follow from the step
    function wrongClaimOf(address holder, uint256 number) internal pure returns (Claim memory c) {
        c = claimOf(holder, number);
        c.workTag = keccak256(normOf(true));
    }

    // --- the program ---

    function headerBytes() internal pure returns (bytes memory) {
        return bytes.concat(
            abi.encodePacked(uint8(1), uint64(1), uint64(0), uint32(1), uint32(1), uint32(0)),
            abi.encodePacked(bytes32(0), uint64(0), uint8(4), uint8(0), uint32(1), uint32(1)),
            abi.encodePacked(bytes32(0), uint64(0), bytes32(0), bytes32(0))
        );
    }

    function templateBytes() internal pure returns (bytes memory) {
        bytes memory context = abi.encodePacked(uint8(6), uint32(0), uint32(0), uint64(384));
        return bytes.concat(
            abi.encodePacked(
                uint8(0), uint16(0x0707), uint8(4), uint64(40), uint32(0), uint32(1), uint32(0), uint16(2)
            ),
            context,
            context,
            abi.encodePacked(uint16(0))
        );
    }

    function leafNode(bytes memory data) internal pure returns (bytes32) {
        return keccak256(abi.encodePacked(bytes1(0), keccak256(data)));
    }

    function programRoot() internal pure returns (bytes32) {
        bytes32 top = keccak256(abi.encodePacked(bytes1(0x01), leafNode(headerBytes()), leafNode(templateBytes())));
        return keccak256(abi.encodePacked(bytes1(0x02), uint64(2), top));
    }

    function part(uint256 index) internal pure returns (Part memory p) {
        p.data = index == 0 ? headerBytes() : templateBytes();
        (p.index, p.count, p.path) = (index, 2, new bytes32[](1));
        p.path[0] = leafNode(index == 0 ? templateBytes() : headerBytes());
    }

    // --- its run ---

    function roots() internal pure returns (bytes32[4] memory) {
        return [bytes32("params"), bytes32("optimiser"), bytes32("buffers"), bytes32("rng")];
    }

    function normOf(bool isWrong) internal pure returns (bytes memory norm) {
        for (uint64 element = 8; element < 10; element++) {
            uint32 bits = uint32(bytes4(keccak256(abi.encodePacked(bytes4(SEED), element)))) & 0x3fffffff;
            norm = abi.encodePacked(norm, isWrong && element == 9 ? bits ^ 1 : bits);
        }
    }

    function pieceRoot(bytes memory piece) internal pure returns (bytes32) {
        return keccak256(abi.encodePacked(bytes1(0x02), uint64(1), leafNode(piece)));
    }

    function list(bytes32 only) internal pure returns (bytes32[] memory words) {
        words = new bytes32[](1);
        words[0] = only;
    }

    // --- its moves ---

    /// @notice Plays the next move of a game about a claim of this program, by whoever owes it.
    /// @param result what the holder shows as the node's bytes
    /// @param element that the challenger proves
    function playNext(uint256 id, Claim memory c, bytes memory result, uint256 element) internal {
        GameQueue.Match memory m = game.gameOf(id);
        bytes32[] memory none = new bytes32[](0);
        bool isHolders = m.phase == Phase.OPEN_STEPS || m.phase == Phase.POST_TRACE || m.phase == Phase.POST_LEAF;
        vm.prank(isHolders ? m.holder : m.challenger);
        if (m.phase == Phase.OPEN_STEPS) game.openSteps(id, c, part(0), list(c.closing), tail(result));
        else if (m.phase == Phase.PICK_STEP) game.pickStep(id, 0, c.initialState, pieceRoot(result), none);
        else if (m.phase == Phase.POST_TRACE) game.postTrace(id, none, list(pieceRoot(result)));
        else if (m.phase == Phase.PICK) game.pickNode(id, 0, pieceRoot(result), none, c, part(1));
        else if (m.phase == Phase.POST_LEAF) game.postLeaf(id, result);
        else if (m.phase == Phase.PROVE) game.prove(id, c, proofOf(result, element));
        else revert NotTrue("somebody is to move");
    }

    function proofOf(bytes memory result, uint256 element) internal pure returns (Proof memory p) {
        (bytes32 first, bytes32 second) = (word(result, 0), word(result, 32));
        (p.element, p.roots, p.header, p.template) = (element, roots(), headerBytes(), templateBytes());
        (p.word, p.wordPath) = element < 8 ? (first, list(wordNode(second))) : (second, list(wordNode(first)));
        p.openings = new Opening[](1);
    }

    function wordNode(bytes32 w) internal pure returns (bytes32) {
        return keccak256(abi.encodePacked(bytes1(0), w));
    }

    function word(bytes memory data, uint256 start) internal pure returns (bytes32 w) {
        for (uint256 i = 0; i < 32 && start + i < data.length; i++) {
            w |= bytes32(data[start + i]) >> 8 * i;
        }
    }

    function tail(bytes memory result) internal pure returns (bytes memory norm) {
        norm = new bytes(8);
        for (uint256 i = 0; i < 8; i++) {
            norm[i] = result[32 + i];
        }
    }

    /// @notice A whole game, decided and concluded.
    function playOut(uint256 id, Claim memory c, bytes memory result, uint256 element) internal returns (Outcome) {
        while (game.gameOf(id).phase != Phase.DECIDED) {
            playNext(id, c, result, element);
        }
        game.conclude(id);
        return game.gameOf(id).outcome;
    }
}
