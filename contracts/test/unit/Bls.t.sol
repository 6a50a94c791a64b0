// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {BlsKeys} from "../../src/BlsKeys.sol";
import {BlsPolicy} from "../../src/BlsPolicy.sol";
import {Bls} from "../../src/libraries/Bls.sol";
import {BlsSigner} from "../support/BlsSigner.sol";
import {Check} from "../support/Check.sol";

/// @title Keys with proofs, sums of them, and certificates of committees: what is right is taken,
/// and with one thing broken refused.
/// @dev The precompiles of EIP-2537 came with Prague.
/// forge-config: default.evm_version = "prague"
contract BlsTest is Check {
    uint256 internal constant MEMBERS = 5;
    bytes32 internal constant DIGEST = keccak256("digest");
    bytes32 internal constant ROUND_ID = keccak256("round id");
    /// The field's prime.
    bytes internal constant PRIME =
        hex"1a0111ea397fe69a4b1ba7b6434bacd764774b84f38512bf6730d2a0f6b0f6241eabfffeb153ffffb9feffffffffaaab";
    /// x and y of a point on the curve of G1 that is not in the subgroup.
    bytes internal constant OUTSIDE_G1 =
        hex"007d2a8fa42131141da1b35793351363354e42d1304540515c063e7372b21c88336072046aaa023d0834c7c0429f7b450c50b0d9fde1f7aed262cb0d87120398f9da41b076790f5f4e4f38ae72fa95ce74b8be03e5174063146ea48277bd8fe6";
    /// y of such a point of G2, with x = 2.
    bytes internal constant OUTSIDE_G2 =
        hex"18c6b864ae17dc9da64203ffefb966306425a7bc6aeb7c75247438372716284a4173830420cd476ba1a365b95bfcec38172e93db764a8400a7d5071b6b6f5de0da2f0f4a063119abca014006b7c40a2cfe291a1924e65db0d6d0fcfbf3bf3d5c";

    BlsPolicy internal keys;
    address[] internal committee;

    function setUp() public {
        keys = new BlsPolicy();
        for (uint256 i = 0; i < MEMBERS; i++) {
            committee.push(address(uint160(0x100 + i)));
            register(committee[i], secretOf(i));
        }
    }

    function secretOf(uint256 i) internal pure returns (uint256) {
        return uint256(keccak256(abi.encode("bls", i))) % BlsSigner.ORDER;
    }

    function proven(address account, uint256 secret) internal view returns (bytes memory key, bytes memory proof) {
        key = BlsSigner.keyOf(secret);
        proof = BlsSigner.sign(secret, keys.proofOf(account, key), Bls.PROVE);
    }

    function register(address account, uint256 secret) internal {
        (bytes memory key, bytes memory proof) = proven(account, secret);
        vm.prank(account);
        keys.register(key, proof);
    }

    /// @dev Signatures of one message add up as their secrets do, and as keys do.
    function secretsOf(uint256 bitmap) internal pure returns (uint256 sum) {
        for (uint256 i = 0; i < MEMBERS; i++) {
            if (bitmap >> i & 1 == 1) sum = addmod(sum, secretOf(i), BlsSigner.ORDER);
        }
    }

    function signed(uint256 bitmap, bytes32 digest) internal view returns (bytes memory) {
        return BlsSigner.sign(secretsOf(bitmap), digest);
    }

    function certificate(uint256 bitmap) internal view returns (bytes memory) {
        return bytes.concat(bytes4(uint32(bitmap)), signed(bitmap, DIGEST));
    }

    function certify(bytes memory given) internal view returns (uint256) {
        return keys.certify(ROUND_ID, committee, DIGEST, given);
    }

    // --- certificates ---

    function testFuzz_everySetOfSignersIsCertified(uint256 bitmap) public view {
        bitmap = within(bitmap, 1, 31);
        same(certify(certificate(bitmap)), bitmap, "signers");
    }

    function testFuzz_anotherMapIsRefused(uint256 bitmap, uint256 other) public {
        (bitmap, other) = (within(bitmap, 1, 31), within(other, 0, 31));
        vm.assume(bitmap != other);
        bytes memory given = bytes.concat(bytes4(uint32(other)), signed(bitmap, DIGEST));
        vm.expectPartialRevert(BlsPolicy.WrongSignature.selector);
        certify(given);
    }

    function testFuzz_aChangedBitIsRefused(uint256 bit) public {
        bytes memory given = certificate(21);
        bit = within(bit, 32, given.length * 8 - 1);
        given[bit / 8] ^= bytes1(uint8(1 << (bit % 8)));
        vm.expectRevert();
        certify(given);
    }

    function testFuzz_truncatedBytesAreRefused(uint256 length) public {
        bytes memory given = certificate(7);
        length = within(length, 0, given.length - 1);
        vm.expectPartialRevert(BlsKeys.WrongLength.selector);
        certify(BlsSigner.slice(given, 0, length));
        vm.expectPartialRevert(BlsKeys.WrongLength.selector);
        certify(bytes.concat(given, bytes1(0)));
    }

    function test_aDuplicatedSignatureIsNobodyElses() public {
        // Member 0 twice is not members 0 and 1, nor member 0.
        bytes memory twice = BlsSigner.sum(signed(1, DIGEST), signed(1, DIGEST));
        for (uint32 bitmap = 1; bitmap < 4; bitmap++) {
            vm.expectPartialRevert(BlsPolicy.WrongSignature.selector);
            certify(bytes.concat(bytes4(bitmap), twice));
        }
    }

    function test_aSignerOutsideTheCommitteeIsRefused() public {
        bytes memory given = bytes.concat(bytes4(uint32(33)), signed(1, DIGEST));
        vm.expectPartialRevert(BlsPolicy.NotInCommittee.selector);
        certify(given);
    }

    function test_P21_infinityIsRefused() public {
        for (uint32 bitmap = 0; bitmap < 2; bitmap++) {
            vm.expectPartialRevert(BlsPolicy.WrongSignature.selector);
            certify(bytes.concat(bytes4(bitmap), new bytes(192)));
        }
    }

    function test_keysThatCancelOutCertifyNothing() public {
        (address a, address b) = (address(0x200), address(0x201));
        register(a, 5);
        register(b, BlsSigner.ORDER - 5);
        address[] memory both = new address[](2);
        (both[0], both[1]) = (a, b);
        vm.expectPartialRevert(BlsPolicy.WrongSignature.selector);
        keys.certify(ROUND_ID, both, DIGEST, bytes.concat(bytes4(uint32(3)), new bytes(192)));
    }

    function test_P21_aPointOutsideTheSubgroupIsRefused() public {
        bytes memory outside = bytes.concat(new bytes(47), hex"02", new bytes(48), OUTSIDE_G2);
        vm.expectRevert(abi.encodeWithSelector(Bls.PrecompileRefused.selector, address(0x0f)));
        certify(bytes.concat(bytes4(uint32(1)), outside));
        // Also beside a right signature: what was added would be nobody's.
        bytes memory both = BlsSigner.sum(signed(1, DIGEST), outside);
        vm.expectRevert(abi.encodeWithSelector(Bls.PrecompileRefused.selector, address(0x0f)));
        certify(bytes.concat(bytes4(uint32(1)), both));
    }

    function test_aCoordinateThatIsNotReducedIsRefused() public {
        // x.c0 + p is the same number modulo p; a certificate has one spelling. The first key for
        // which it fits:
        bytes memory given;
        uint256 i;
        do {
            given = BlsSigner.sign(++i, DIGEST);
        } while (uint8(given[0]) > 3);
        committee = [address(0x300)];
        register(committee[0], i);
        same(certify(bytes.concat(bytes4(uint32(1)), given)), 1, "reduced");
        uint256 carry;
        for (uint256 k = 48; k > 0; k--) {
            carry += uint256(uint8(given[k - 1])) + uint8(PRIME[k - 1]);
            given[k - 1] = bytes1(uint8(carry));
            carry >>= 8;
        }
        same(carry, 0, "48 bytes hold it");
        vm.expectRevert(abi.encodeWithSelector(Bls.PrecompileRefused.selector, address(0x0f)));
        certify(bytes.concat(bytes4(uint32(1)), given));
    }

    function test_aProofSignsNoCertificate() public {
        // The domains differ: a key's proof over a digest is no signature of it.
        bytes memory proof = BlsSigner.sign(secretOf(0), DIGEST, Bls.PROVE);
        vm.expectPartialRevert(BlsPolicy.WrongSignature.selector);
        certify(bytes.concat(bytes4(uint32(1)), proof));
    }

    function test_P20_whoHasNoKeyIsNoSigner() public {
        address[] memory alone = new address[](1);
        alone[0] = address(0x999);
        bytes memory given = certificate(1);
        vm.expectRevert(abi.encodeWithSelector(BlsKeys.NoKey.selector, address(0x999)));
        keys.certify(ROUND_ID, alone, DIGEST, given);
    }

    // --- keys ---

    function refuse(address account, bytes memory key, bytes memory proof, bytes4 selector) internal {
        vm.expectPartialRevert(selector);
        vm.prank(account);
        keys.register(key, proof);
    }

    function test_P20_aRogueKeyIsImpossible() public {
        // secret · G less the others' keys: with it one signature would be the whole committee's.
        address rogue = address(0x666);
        uint256 others;
        for (uint256 i = 0; i < MEMBERS; i++) {
            others = addmod(others, secretOf(i), BlsSigner.ORDER);
        }
        // The test knows the others' secrets; who does not has `own` only.
        uint256 own = 77;
        bytes memory key = BlsSigner.keyOf(addmod(own, BlsSigner.ORDER - others, BlsSigner.ORDER));
        bytes32 message = keys.proofOf(rogue, key);
        refuse(rogue, key, BlsSigner.sign(own, message, Bls.PROVE), BlsKeys.NotProven.selector);
        refuse(rogue, key, new bytes(192), BlsKeys.NotProven.selector);
        same(keys.keyOf(rogue).length, 0, "no key");
    }

    function test_P20_anotherAccountsKeyAndProofAreNobodyElses() public {
        address thief = address(0x666);
        bytes memory key = keys.keyOf(committee[0]);
        bytes memory proof = BlsSigner.sign(secretOf(0), keys.proofOf(committee[0], key), Bls.PROVE);
        refuse(thief, key, proof, BlsKeys.NotProven.selector);
        (key, proof) = proven(thief, 9);
        vm.chainId(4711);
        refuse(thief, key, proof, BlsKeys.NotProven.selector); // of another chain
    }

    function test_P20_aSignatureOfACertificateIsNoProof() public {
        address account = address(0x300);
        bytes memory key = BlsSigner.keyOf(9);
        bytes memory proof = BlsSigner.sign(9, keys.proofOf(account, key));
        refuse(account, key, proof, BlsKeys.NotProven.selector);
    }

    function test_P21_keysThatAreNoPointsOfTheSubgroupAreRefused() public {
        address account = address(0x300);
        bytes memory proof = BlsSigner.sign(9, DIGEST, Bls.PROVE);
        refuse(account, new bytes(96), new bytes(192), BlsKeys.ZeroKey.selector);
        bytes4 refused = Bls.PrecompileRefused.selector;
        refuse(account, OUTSIDE_G1, proof, refused);
        refuse(account, bytes.concat(BlsSigner.slice(OUTSIDE_G1, 0, 95), hex"00"), proof, refused); // nor on the curve
        refuse(account, bytes.concat(PRIME, PRIME), proof, refused); // the zero point, not reduced
        bytes memory key = BlsSigner.keyOf(9);
        refuse(account, BlsSigner.slice(key, 0, 95), proof, BlsKeys.WrongLength.selector);
        refuse(account, key, BlsSigner.slice(proof, 0, 191), BlsKeys.WrongLength.selector);
    }

    function testFuzz_aChangedKeyOrProofIsRefused(uint256 bit) public {
        address account = address(0x300);
        bytes memory key = BlsSigner.keyOf(9);
        bytes memory proof = BlsSigner.sign(9, keys.proofOf(account, key), Bls.PROVE);
        bit = within(bit, 0, (96 + 192) * 8 - 1);
        if (bit < 96 * 8) key[bit / 8] ^= bytes1(uint8(1 << (bit % 8)));
        else proof[bit / 8 - 96] ^= bytes1(uint8(1 << (bit % 8)));
        vm.expectRevert();
        vm.prank(account);
        keys.register(key, proof);
    }

    function test_aKeyIsAnAccountsOnceAndForEver() public {
        bytes32 before = keccak256(keys.keyOf(committee[0]));
        bytes memory waiting = certificate(31);
        (bytes memory key, bytes memory proof) = proven(committee[0], 8);
        refuse(committee[0], key, proof, BlsKeys.HasKey.selector);
        vm.warp(block.timestamp + 365 days);
        refuse(committee[0], key, proof, BlsKeys.HasKey.selector);
        (key, proof) = proven(committee[0], secretOf(0));
        refuse(committee[0], key, proof, BlsKeys.HasKey.selector); // nor its own again
        same(keccak256(keys.keyOf(committee[0])), before, "as it was");
        same(certify(waiting), 31, "counted as it signed");
        // Another account may have the same one, by a proof of its own.
        register(address(0x300), secretOf(0));
        same(keccak256(keys.keyOf(address(0x300))), before, "the same key");
    }

    /// @dev Nobody knows the secret of a key that begins so; if somebody did, it would be kept as
    /// nothing.
    function test_aKeyThatBeginsWithZerosIsRefused() public {
        bytes memory key = BlsSigner.keyOf(9);
        for (uint256 i = 0; i < 32; i++) {
            key[i] = 0;
        }
        refuse(address(0x300), key, new bytes(192), BlsKeys.ZeroKey.selector);
    }

    // --- sums ---

    function keep() internal {
        keys.keep(committee);
    }

    function keySum(uint256 bitmap) internal view returns (bytes memory) {
        return BlsSigner.keyOf(secretsOf(bitmap));
    }

    function test_aSumIsThatOfTheKeys() public {
        same(keys.sumOf(committee).length, 0, "none is kept");
        vm.prank(address(0xabc)); // whoever comes
        keep();
        same(keccak256(keys.sumOf(committee)), keccak256(keySum(31)), "of all five");
        address[] memory two = new address[](2);
        (two[0], two[1]) = (committee[1], committee[0]);
        same(keys.sumOf(two).length, 0, "not of some of them");
        keys.keep(two);
        same(keccak256(keys.sumOf(two)), keccak256(keySum(3)), "of two");
        (two[0], two[1]) = (two[1], two[0]);
        same(keys.sumOf(two).length, 0, "nor in another order");
        vm.expectRevert(abi.encodeWithSelector(BlsKeys.AlreadyKept.selector, keccak256(abi.encodePacked(committee))));
        keep();
    }

    /// @dev Whoever signed: all, so few that the signers are added up, and everybody between.
    function testFuzz_aKeptSumCertifiesTheSame(uint256 bitmap) public {
        bitmap = within(bitmap, 1, 31);
        keep();
        same(certify(certificate(bitmap)), bitmap, "signers");
    }

    function testFuzz_aKeptSumRefusesAnotherMap(uint256 bitmap, uint256 other) public {
        (bitmap, other) = (within(bitmap, 1, 31), within(other, 0, 31));
        vm.assume(bitmap != other);
        keep();
        bytes memory given = bytes.concat(bytes4(uint32(other)), signed(bitmap, DIGEST));
        vm.expectPartialRevert(BlsPolicy.WrongSignature.selector);
        certify(given);
    }

    function test_whatWasSignedBeforeASumIsKeptStands() public {
        bytes[3] memory waiting = [certificate(31), certificate(30), certificate(4)];
        keep();
        same(certify(waiting[0]), 31, "all");
        same(certify(waiting[1]), 30, "without the first");
        same(certify(waiting[2]), 4, "one");
    }

    function test_noSumWithoutEveryKey() public {
        committee.push(address(0x400));
        vm.expectRevert(abi.encodeWithSelector(BlsKeys.NoKey.selector, address(0x400)));
        keep();
        // Certificates do without it, and without the one that has no key.
        same(certify(certificate(31)), 31, "five of six");
        register(address(0x400), 12);
        keep();
        same(certify(certificate(31)), 31, "five of six, less one key");
        bytes memory all = BlsSigner.sum(signed(31, DIGEST), BlsSigner.sign(12, DIGEST));
        same(certify(bytes.concat(bytes4(uint32(63)), all)), 63, "with who came late");
    }

    function test_aSumOfOthersIsNotThisCommittees() public {
        keep();
        // Another account in the place of the last: the sum that is kept is of another list.
        committee[4] = address(0x400);
        register(address(0x400), 12);
        bytes memory before = certificate(31);
        vm.expectPartialRevert(BlsPolicy.WrongSignature.selector);
        certify(before);
        bytes memory now_ = BlsSigner.sum(signed(15, DIGEST), BlsSigner.sign(12, DIGEST));
        same(certify(bytes.concat(bytes4(uint32(31)), now_)), 31, "of its own keys");
    }

    function test_keysThatCancelOutHaveNoSum() public {
        (address a, address b) = (address(0x200), address(0x201));
        register(a, 5);
        register(b, BlsSigner.ORDER - 5);
        address[] memory both = new address[](2);
        (both[0], both[1]) = (a, b);
        vm.expectPartialRevert(BlsKeys.ZeroKey.selector);
        keys.keep(both);
        vm.expectPartialRevert(BlsKeys.ZeroKey.selector);
        keys.keep(new address[](0));
        // Beside others they add nothing, and nobody signs for those.
        (committee[3], committee[4]) = (a, b);
        keep();
        same(keccak256(keys.sumOf(committee)), keccak256(keySum(7)), "the others'");
        same(certify(bytes.concat(bytes4(uint32(31)), signed(7, DIGEST))), 31, "as without the sum");
        bytes memory two = bytes.concat(bytes4(uint32(31)), signed(3, DIGEST));
        vm.expectPartialRevert(BlsPolicy.WrongSignature.selector);
        certify(two);
    }

    /// @dev All that is left of a sum is taken away: nobody's key, under which nothing is signed.
    function test_aSumLessItsKeysCertifiesNothing() public {
        (address a, address b) = (address(0x200), address(0x201));
        register(a, 5);
        register(b, BlsSigner.ORDER - 5);
        address[] memory three = new address[](4);
        (three[0], three[1], three[2], three[3]) = (a, b, a, committee[0]);
        keys.keep(three);
        // Of a, b and a the keys of the first two cancel out, and of all four with the last two
        // silent the same is left.
        vm.expectPartialRevert(BlsPolicy.WrongSignature.selector);
        keys.certify(ROUND_ID, three, DIGEST, bytes.concat(bytes4(uint32(3)), new bytes(192)));
        (three[2], three[3]) = (b, a);
        vm.expectPartialRevert(BlsPolicy.WrongSignature.selector);
        keys.certify(ROUND_ID, three, DIGEST, bytes.concat(bytes4(uint32(15)), new bytes(192)));
    }

    function test_aListHasAtMost32Accounts() public {
        address[] memory list = new address[](33);
        for (uint256 i = 0; i < 33; i++) {
            list[i] = committee[i % MEMBERS];
        }
        vm.expectRevert(abi.encodeWithSelector(BlsKeys.TooManyAccounts.selector, 33, 32));
        keys.keep(list);
        assembly ("memory-safe") {
            mstore(list, 32)
        }
        keys.keep(list);
        // Each of the first two seven times, each of the others six times.
        uint256 secrets;
        for (uint256 i = 0; i < 32; i++) {
            secrets = addmod(secrets, secretOf(i % MEMBERS), BlsSigner.ORDER);
        }
        same(keccak256(keys.sumOf(list)), keccak256(BlsSigner.keyOf(secrets)), "with how often each is there");
        bytes memory all = bytes.concat(bytes4(type(uint32).max), BlsSigner.sign(secrets, DIGEST));
        same(keys.certify(ROUND_ID, list, DIGEST, all), type(uint32).max, "all 32");
    }

    function test_aWordThatIsNoAddressIsRefused() public {
        bytes memory call = abi.encodeCall(keys.keep, (committee));
        call[4 + 64] = 0x01; // above the first account
        (bool isKept,) = address(keys).call(call);
        require(!isKept, "no account");
        keep();
        call = abi.encodeCall(keys.certify, (ROUND_ID, committee, DIGEST, certificate(31)));
        (bool isTaken,) = address(keys).staticcall(call);
        require(isTaken, "right");
        call[4 + 128 + 32] = 0x01;
        (isTaken,) = address(keys).staticcall(call);
        require(!isTaken, "no account");
    }
}

/// @title The other y of a point: borrows between its two words included.
contract NegatedTest is Check {
    uint256 internal constant HIGH = 0x1a0111ea397fe69a4b1ba7b6434bacd7;
    uint256 internal constant LOW = 0x64774b84f38512bf6730d2a0f6b0f6241eabfffeb153ffffb9feffffffffaaab;

    function gives(uint256 high, uint256 low, uint256 otherHigh, uint256 otherLow) private pure {
        (bytes32 h, bytes32 l) = Bls.negated(bytes32(high), bytes32(low));
        same(uint256(h), otherHigh, "high");
        same(uint256(l), otherLow, "low");
        (h, l) = Bls.negated(h, l);
        same(uint256(h), high, "back, high");
        same(uint256(l), low, "back, low");
    }

    function test_atEachBorderOfTheLowWord() public pure {
        gives(HIGH, LOW - 1, 0, 1);
        gives(0, LOW, HIGH, 0);
        gives(0, LOW + 1, HIGH - 1, type(uint256).max);
        gives(1, LOW, HIGH - 1, 0);
        gives(0, type(uint256).max, HIGH - 1, LOW + 1);
    }

    function testFuzz_theTwoAddUpToThePrime(uint256 high, uint256 low) public pure {
        high = within(high, 0, HIGH - 1);
        (bytes32 h, bytes32 l) = Bls.negated(bytes32(high), bytes32(low));
        unchecked {
            same(low + uint256(l), LOW, "low");
            uint256 carried = low > LOW ? 1 : 0;
            same(high + uint256(h) + carried, HIGH, "high");
        }
    }
}

/// @title What the Python law derived, proved and signed (tests/vectors/rounds.json, which py-ecc
/// makes again) is taken.
/// forge-config: default.evm_version = "prague"
contract BlsVectorsTest is Check {
    function test_keysProofsAndTheCertificate() public {
        string memory json = vm.readFile("../tests/vectors/rounds.json");
        vm.chainId(vm.parseJsonUint(json, ".roundId.chainId"));
        BlsPolicy keys = BlsPolicy(vm.parseJsonAddress(json, ".bls.registry"));
        vm.etch(address(keys), address(new BlsPolicy()).code);
        address[] memory committee = new address[](4);
        for (uint256 i = 0; i < 4; i++) {
            string memory path = string.concat(".bls.members[", vm.toString(i), "]");
            committee[i] = vm.parseJsonAddress(json, string.concat(path, ".account"));
            bytes memory key = vm.parseJsonBytes(json, string.concat(path, ".key"));
            bytes memory proof = vm.parseJsonBytes(json, string.concat(path, ".proof"));
            bytes32 message = vm.parseJsonBytes32(json, string.concat(path, ".proofMessage"));
            same(keys.proofOf(committee[i], key), message, "what the key signs");
            vm.prank(committee[i]);
            keys.register(key, proof);
        }
        bytes32 digest = vm.parseJsonBytes32(json, ".bls.digest");
        bytes memory certificate = vm.parseJsonBytes(json, ".bls.certificate");
        uint256 signers = vm.parseJsonUint(json, ".bls.signers");
        same(keys.certify(0, committee, digest, certificate), signers, "bls.signers");
        keys.keep(committee);
        same(keccak256(keys.sumOf(committee)), keccak256(vm.parseJsonBytes(json, ".bls.keySum")), "bls.keySum");
        same(keys.certify(0, committee, digest, certificate), signers, "with the kept sum");
    }
}

/// @title Where the precompiles are not there nothing is taken.
contract NoBlsTest is Check {
    function test_P26_withoutPrecompilesNoKeyIsTaken() public {
        BlsPolicy keys = new BlsPolicy();
        bytes memory key = bytes.concat(bytes1(0x01), new bytes(95));
        vm.expectPartialRevert(Bls.PrecompileRefused.selector);
        keys.register(key, new bytes(192));
    }
}
