// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {DrandBeacon} from "../../src/DrandBeacon.sol";
import {HistoryBeacon} from "../../src/HistoryBeacon.sol";
import {IBeacon} from "../../src/interfaces/IBeacon.sol";
import {Drand} from "../../src/libraries/Drand.sol";
import {Hashing} from "../../src/libraries/Hashing.sol";
import {RoundsBase} from "../../src/rounds/RoundsBase.sol";
import "../../src/types/Types.sol";
import {Check} from "../support/Check.sol";
import {deployed} from "../support/Deployed.sol";
import {DrandSigner} from "../support/DrandSigner.sol";
import {Network} from "../support/Network.sol";

/// @title What drand's quicknet has published is taken, and with one thing changed refused.
/// forge-config: default.evm_version = "prague"
contract QuicknetTest is Check {
    bytes private constant KEY =
        hex"0d1fec758c921cc22b0e17e63aaf4bcb5ed66304de9cf809bd274ca73bab4af5a6e9c76a4bc09e76eae8991ef5ece45a03cf0f2896adee7eb8b5f01fcad3912212c437e0073e911fb90022d3e760183c8c4b450b6a0a6c3ac6a5776a2d1064510e5db2b6bfbb01c867749cadffca88b36c24f3012ba09fc4d3022c5c37dce0f977d3adb5d183c7477c442b1f0451527301a714f2edb74119a2f2b0d5a7c75ba902d163700a61bc224ededd8e63aef7be1aaf8e93d7a9718b047ccddb3eb5d68b";
    bytes private constant ROUND_1000 =
        hex"144679b9a59af2ec876b1a6b1ad52ea9b1615fc3982b19576350f93447cb1125e342b73a8dd2bacbe47e4b6b63ed5e3911f92e4521ef54f047b64b85fa98db2d46f0f44add1f60b93f8a0dbddd63b34f238657c2d93aed18b90bddd60a01b6d2";
    bytes private constant ROUND_657413 =
        hex"1713718a38ae728dfd477991af2822e08d2f305e47718cef9f7848ce4050e7be41076862b98fad56e91a6b85b89cd97b116c5214fdfb7ba78de63a90904f73c935e28a89e5c815c43a49dfc8058ed0d2b7de6f98eae4a917bb868989bd0302b7";
    uint256 private constant GENESIS = 1_692_803_367;

    DrandBeacon private quicknet;

    function setUp() public {
        vm.warp(GENESIS);
        quicknet = new DrandBeacon(GENESIS, 3, 12, KEY);
    }

    function test_publishedSignaturesGiveThePublishedRandomness() public {
        quicknet.post(1000, ROUND_1000);
        same(
            quicknet.randomness(1000), 0xfe290beca10872ef2fb164d2aa4442de4566183ec51c56ff3cd603d930e54fdd, "round 1000"
        );
        quicknet.post(657_413, ROUND_657413);
        bytes32 published = 0xfc1873a13f3545aeade8401532ef5519920652eee6b0d2b19ca12643b87b3587;
        same(quicknet.randomness(657_413), published, "round 657,413");
        vm.expectRevert(abi.encodeWithSelector(DrandBeacon.AlreadyPosted.selector, 1000));
        quicknet.post(1000, ROUND_1000);
    }

    function test_anotherRoundsSignatureIsRefused() public {
        vm.expectRevert(abi.encodeWithSelector(DrandBeacon.WrongSignature.selector, 1001));
        quicknet.post(1001, ROUND_1000);
        same(quicknet.randomness(1001), 0, "nothing");
    }

    /// Of one signature there is one form, so that nobody chooses among several randomnesses.
    function test_noOtherFormOfASignatureIsTaken() public {
        bytes[] memory others = new bytes[](6);
        others[0] = abi.encodePacked(ROUND_1000, uint8(0));
        others[1] = new bytes(0);
        others[2] = new bytes(96); // the zero of G1
        (others[3], others[4], others[5]) = (negated(ROUND_1000), bytes.concat(ROUND_1000), bytes.concat(ROUND_1000));
        others[4][0] |= 0x80; // as the compressed form begins
        others[5][95] ^= 0x01; // no point of the curve
        for (uint256 i = 0; i < others.length; i++) {
            (bool isTaken,) = address(quicknet).call(abi.encodeCall(quicknet.post, (1000, others[i])));
            check(!isTaken, vm.toString(i));
        }
        same(quicknet.randomness(1000), 0, "none of them");
        quicknet.post(1000, ROUND_1000);
        check(quicknet.randomness(1000) != 0, "but the one");
    }

    function test_aRoundIsLaterThanTheMarginAfterItsBlock() public {
        same(quicknet.roundAfter(GENESIS), 6, "the one at 15 seconds, since the one at 12 is not later");
        same(quicknet.roundAfter(GENESIS + 2), 6, "still");
        same(quicknet.roundAfter(GENESIS + 3), 7, "the next");
        vm.warp(GENESIS + 300);
        vm.roll(50);
        quicknet.note();
        same(quicknet.roundOf(50), 106, "noted");
        same(quicknet.roundOf(49), 0, "of no other block");
        vm.roll(53);
        vm.warp(GENESIS + 300 + 6);
        quicknet.note();
        same(quicknet.awaited(50), 106, "awaited");
        same(quicknet.awaited(53), 108, "and that of this block");
        same(quicknet.awaited(51), 0, "of no block in between");
    }

    function test_nobodyAwaitsWhatIsPostedOrDrawsNothingAnyMore() public {
        vm.warp(GENESIS + 3 * 999 - 15);
        vm.roll(50);
        quicknet.note();
        same(quicknet.awaited(50), 1000, "awaited");
        vm.roll(50 + 256);
        same(quicknet.awaited(50), 1000, "as long as the chain has the block's hash");
        vm.roll(50 + 257);
        same(quicknet.awaited(50), 0, "and no longer");
        vm.roll(51);
        same(quicknet.awaited(50), 1000, "awaited again");
        quicknet.post(1000, ROUND_1000);
        same(quicknet.awaited(50), 0, "posted");
    }

    function test_noBeaconBeforeItsFirstRound() public {
        vm.warp(GENESIS - 1);
        vm.expectRevert(abi.encodeWithSelector(DrandBeacon.GenesisToCome.selector, GENESIS, GENESIS - 1));
        new DrandBeacon(GENESIS, 3, 12, KEY);
        vm.warp(GENESIS);
        same(new DrandBeacon(GENESIS, 3, 12, KEY).genesis(), GENESIS, "but in its second");
    }

    function test_noBeaconWithoutAKeyOrAPeriod() public {
        vm.expectPartialRevert(DrandBeacon.NoBeacon.selector);
        new DrandBeacon(GENESIS, 3, 12, new bytes(192));
        vm.expectPartialRevert(DrandBeacon.NoBeacon.selector);
        new DrandBeacon(GENESIS, 3, 12, new bytes(191));
        vm.expectPartialRevert(DrandBeacon.NoBeacon.selector);
        new DrandBeacon(GENESIS, 0, 12, KEY);
    }

    /// @dev The point with the same x and the other y.
    function negated(bytes memory point) private pure returns (bytes memory other) {
        bytes memory prime =
            hex"1a0111ea397fe69a4b1ba7b6434bacd764774b84f38512bf6730d2a0f6b0f6241eabfffeb153ffffb9feffffffffaaab";
        other = bytes.concat(point);
        uint256 borrowed;
        for (uint256 i = 48; i > 0; i--) {
            uint256 from = uint8(prime[i - 1]);
            uint256 taken = uint8(point[47 + i]) + borrowed;
            borrowed = taken > from ? 1 : 0;
            other[47 + i] = bytes1(uint8(from + 256 * borrowed - taken));
        }
    }
}

/// @title Without the precompiles nothing is taken: a call of where they would be succeeds with nothing.
contract NoPrecompilesTest is Check {
    function test_P26_nothingIsTakenWithoutPrecompiles() public {
        bytes memory key = new bytes(192);
        key[0] = 0x01;
        DrandBeacon beacon = DrandBeacon(deployed("DrandBeacon", abi.encode(0, 3, 12, key)));
        vm.expectPartialRevert(Drand.PrecompileRefused.selector);
        beacon.post(1000, new bytes(96));
    }
}

/// @title Rounds whose draws are by a drand of which the test holds the secret.
/// forge-config: default.evm_version = "prague"
contract DrandRoundsTest is Network {
    uint256 private constant SECRET = 0x5ec2e7;
    uint256 private constant GENESIS = 1;
    uint256 private constant MARGIN = 12;

    function deployBeacon() internal override returns (IBeacon) {
        return IBeacon(deployed("DrandBeacon", abi.encode(GENESIS, 3, MARGIN, DrandSigner.keyOf(SECRET))));
    }

    function drand() private view returns (DrandBeacon) {
        return DrandBeacon(address(beacon));
    }

    /// @return opened the block in which all have revealed, and said what they have
    function toMergeInOneBlock(uint256 jobId) private returns (uint256 opened) {
        uint256 seated = rounds.state(jobId).seated;
        commitAll(jobId, seated);
        nextBlock();
        revealAll(jobId, seated);
        sayAll(jobId, seated);
        return block.number;
    }

    function post(uint256 number) private {
        uint64 round = drand().roundOf(number);
        drand().post(round, DrandSigner.sign(SECRET, round));
    }

    function test_aRoundWaitsForASignatureAndIsDrawnByIt() public allHome onlyTheGuiltyPay {
        uint256 jobId = start();
        uint256 opened = toMergeInOneBlock(jobId);
        uint64 round = drand().roundOf(opened);
        check(GENESIS + 3 * (uint256(round) - 1) > block.timestamp + MARGIN, "a round to come");
        nextBlock();
        vm.expectRevert(abi.encodeWithSelector(RoundsBase.Unseeded.selector, opened, block.number));
        rounds.seedAudit(jobId);
        same(rounds.state(jobId).auditSeed, 0, "nobody knows it");
        same(rounds.awaitedBlock(jobId), opened, "that block's is awaited");
        same(drand().awaited(opened), round, "by that round");
        vm.prank(OUTSIDER);
        post(opened);
        bytes32 drawn_ = keccak256(abi.encode(drand().randomness(round), blockhash(opened)));
        rounds.seedAudit(jobId);
        RoundState memory s = rounds.state(jobId);
        Hashing.RoundId memory id = Hashing.RoundId(address(rounds), jobId, 0);
        same(s.auditSeed, Hashing.auditSeed(id, s.reveals, drawn_), "by that round, and that block's hash");
        same(rounds.awaitedBlock(jobId), 0, "nothing is awaited");
        settle(jobId);
        same(rounds.state(jobId).round, 1, "and goes on");
    }

    function test_nothingIsSettledOrDrawnAnewBeforeTheSignature() public allHome onlyTheGuiltyPay {
        uint256 jobId = start();
        uint256 opened = toMergeInOneBlock(jobId);
        vm.warp(rounds.state(jobId).deadline);
        nextBlock();
        vm.expectRevert(abi.encodeWithSelector(RoundsBase.Unseeded.selector, opened, block.number));
        rounds.advance(jobId);
        RoundState memory s = rounds.state(jobId);
        check(s.phase == Phase.MERGE && s.committeeDraw == 0 && s.auditSeed == 0, "it waits, and nobody is silent");
        bytes memory slots = said[jobId][0].slots;
        uint256[] memory has = said[jobId][0].has;
        Verdict memory v = verdictFor(jobId, s.seated);
        Certified memory shown = Certified(v, accountsOf(jobId, 7), certificate(jobId, digestFor(jobId, v), 7, 7));
        vm.expectPartialRevert(RoundsBase.Unseeded.selector);
        rounds.settle(jobId, slots, has, shown);
        post(opened);
        settle(jobId);
        same(rounds.state(jobId).round, 1, "settled");
    }

    function test_aCommitteeIsDrawnAnewWithTheSignature() public allHome onlyTheGuiltyPay {
        uint256 jobId = start();
        uint256 opened = toMergeInOneBlock(jobId);
        nextBlock();
        post(opened);
        nextCommittee(jobId);
        RoundState memory s = rounds.state(jobId);
        check(s.phase == Phase.MERGE && s.committeeDraw == 1 && s.auditSeed != 0, "drawn");
        sayAll(jobId, s.seated);
        settle(jobId);
    }

    /// Who finds the block lost notes another one, by the end of a committee draw too.
    function test_anAdvanceNotesALostBlockAnew() public allHome onlyTheGuiltyPay {
        uint256 jobId = start();
        uint256 opened = toMergeInOneBlock(jobId);
        vm.warp(rounds.state(jobId).deadline);
        vm.roll(opened + 8_192);
        same(drand().awaited(opened), 0, "nobody awaits the round of a lost block");
        rounds.advance(jobId);
        uint256 noted = block.number;
        same(rounds.awaitedBlock(jobId), noted, "another one's is awaited");
        nextBlock();
        vm.expectRevert(abi.encodeWithSelector(RoundsBase.Unseeded.selector, noted, block.number));
        rounds.advance(jobId);
        post(noted);
        settle(jobId);
    }

    function test_aBlockWhoseHashIsLostIsNotedAnew() public allHome onlyTheGuiltyPay {
        uint256 jobId = start();
        uint256 opened = toMergeInOneBlock(jobId);
        post(opened);
        vm.roll(block.number + 8_192);
        vm.warp(block.timestamp + 3);
        rounds.seedAudit(jobId);
        same(rounds.state(jobId).auditSeed, 0, "noted");
        uint256 noted = block.number;
        check(drand().roundOf(noted) != 0, "this block is");
        nextBlock();
        post(noted);
        rounds.seedAudit(jobId);
        check(rounds.state(jobId).auditSeed != 0, "drawn");
        same(drand().awaited(noted), 0, "awaited no longer");
        settle(jobId);
    }

    /// A job ends though drand has.
    function test_aJobEndsWithoutDrand() public allHome onlyTheGuiltyPay {
        uint256 jobId = start();
        toMergeInOneBlock(jobId);
        vm.warp(jobs.termsOf(jobId).expiry + 2 days);
        nextBlock();
        rounds.advance(jobId);
        check(rounds.state(jobId).status == JobStatus.EXPIRED, "expired");
        same(rounds.awaitedBlock(jobId), 0, "and awaits nothing");
    }

    function test_aLargePoolsFirstCommitteeIsDrawnByItToo() public allHome onlyTheGuiltyPay {
        Terms memory t = defaultTerms();
        (t.slots, t.minVerifiers) = (64, 40);
        uint256 jobId = create(t);
        for (uint256 i = 0; i < 4; i++) {
            join(jobId, 60 + i, uint16(i));
        }
        for (uint16 i = 0; i < 40; i++) {
            enrol(jobId, 60 + i, i);
        }
        same(rounds.awaitedBlock(jobId), 0, "nothing is noted yet");
        rounds.advance(jobId);
        uint256 noted = block.number;
        same(rounds.awaitedBlock(jobId), noted, "noted");
        nextBlock();
        vm.expectPartialRevert(RoundsBase.Unseeded.selector);
        rounds.advance(jobId);
        post(noted);
        rounds.advance(jobId);
        (bytes32 drawn_,) = beacon.seedOf(noted);
        Hashing.RoundId memory id = Hashing.RoundId(address(rounds), jobId, 0);
        same(rounds.state(jobId).seed, Hashing.dataSeed(id, 0, drawn_), "by the signature");
    }
}

/// @title Draws by blocks' hashes.
contract HistoryBeaconTest is Check {
    function test_aBlocksSeedIsItsHash() public {
        HistoryBeacon beacon = new HistoryBeacon();
        uint256 number = block.number;
        (bytes32 seed, bool isLost) = beacon.seedOf(number);
        check(seed == 0 && !isLost, "not over");
        vm.roll(number + 1);
        (seed, isLost) = beacon.seedOf(number);
        check(seed == blockhash(number) && seed != 0 && !isLost, "its hash");
        vm.roll(number + 257);
        (seed, isLost) = beacon.seedOf(number);
        check(seed == 0 && isLost, "forgotten");
    }
}
