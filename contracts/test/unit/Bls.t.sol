// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {BlsKeys} from "../../src/BlsKeys.sol";
import {BlsPolicy} from "../../src/BlsPolicy.sol";
import {Bls} from "../../src/libraries/Bls.sol";
import {BlsSigner} from "../support/BlsSigner.sol";
import {Check} from "../support/Check.sol";

/// @title Keys with proofs, and certificates of committees: what is right is taken, and with one thing broken refused.
/// @dev The precompiles of EIP-2537 came with Prague.
/// forge-config: default.evm_version = "prague"
contract BlsTest is Check {
    uint256 internal constant MEMBERS = 5;
    bytes32 internal constant DIGEST = keccak256("digest");
    bytes32 internal constant SLOT = keccak256("slot");
    /// The field's prime.
    bytes internal constant PRIME =
        hex"1a0111ea397fe69a4b1ba7b6434bacd764774b84f38512bf6730d2a0f6b0f6241eabfffeb153ffffb9feffffffffaaab";
    /// y of a point on the curve of G1 that is not in the subgroup, with x = 4.
    bytes internal constant OUTSIDE_G1 =
        hex"0a989badd40d6212b33cffc3f3763e9bc760f988c9926b26da9dd85e928483446346b8ed00e1de5d5ea93e354abe706c";
    /// The same of G2, with x = 2.
    bytes internal constant OUTSIDE_G2 =
        hex"18c6b864ae17dc9da64203ffefb966306425a7bc6aeb7c75247438372716284a4173830420cd476ba1a365b95bfcec38172e93db764a8400a7d5071b6b6f5de0da2f0f4a063119abca014006b7c40a2cfe291a1924e65db0d6d0fcfbf3bf3d5c";

    BlsKeys internal keys;
    BlsPolicy internal policy;
    uint128 internal locked; // of whoever is asked about
    address[] internal committee;

    function setUp() public {
        keys = new BlsKeys();
        policy = new BlsPolicy(address(keys));
        keys.wire(address(this));
        vm.warp(1_000_000);
        for (uint256 i = 0; i < MEMBERS; i++) {
            committee.push(address(uint160(0x100 + i)));
            register(committee[i], secretOf(i));
        }
    }

    /// @dev In the place of the stakes.
    function stakeOf(address, uint8) external view returns (uint256, uint256, uint256) {
        return (locked, locked, 0);
    }

    function secretOf(uint256 i) internal pure returns (uint256) {
        return uint256(keccak256(abi.encode("bls", i))) % BlsSigner.ORDER;
    }

    function register(address account, uint256 secret) internal {
        bytes memory key = BlsSigner.keyOf(secret);
        bytes memory proof = BlsSigner.sign(secret, keys.proofOf(account, key), Bls.PROVE);
        vm.prank(account);
        keys.register(key, proof);
    }

    function signed(uint256 bitmap, bytes32 digest) internal view returns (bytes memory total) {
        total = new bytes(192);
        for (uint256 i = 0; i < MEMBERS; i++) {
            if (bitmap >> i & 1 == 1) total = BlsSigner.sum(total, BlsSigner.sign(secretOf(i), digest));
        }
    }

    function certificate(uint256 bitmap) internal view returns (bytes memory) {
        return bytes.concat(bytes4(uint32(bitmap)), signed(bitmap, DIGEST));
    }

    function certify(bytes memory given) internal view returns (uint256) {
        return policy.certify(SLOT, committee, DIGEST, given);
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
        vm.expectPartialRevert(BlsPolicy.WrongLength.selector);
        certify(BlsSigner.slice(given, 0, length));
        vm.expectPartialRevert(BlsPolicy.WrongLength.selector);
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

    function test_infinityIsRefused() public {
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
        policy.certify(SLOT, both, DIGEST, bytes.concat(bytes4(uint32(3)), new bytes(192)));
    }

    function test_aPointOutsideTheSubgroupIsRefused() public {
        bytes memory outside = bytes.concat(new bytes(47), hex"02", new bytes(48), OUTSIDE_G2);
        vm.expectRevert(abi.encodeWithSelector(Bls.PrecompileRefused.selector, address(0x0f)));
        certify(bytes.concat(bytes4(uint32(1)), outside));
        // Also beside a right signature: what was added would be nobody's.
        bytes memory both = BlsSigner.sum(signed(1, DIGEST), outside);
        vm.expectRevert(abi.encodeWithSelector(Bls.PrecompileRefused.selector, address(0x0f)));
        certify(bytes.concat(bytes4(uint32(1)), both));
    }

    function test_aCoordinateThatIsNotReducedIsRefused() public {
        // x.c0 + p is the same number modulo p; a certificate has one spelling. The first key for which it fits:
        bytes memory given;
        uint256 i;
        do {
            given = BlsSigner.sign(++i, DIGEST);
        } while (uint8(given[0]) > 3);
        register(committee[0], i, 2 days);
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

    function test_whoHasNoKeyIsNoSigner() public {
        address[] memory alone = new address[](1);
        alone[0] = address(0x999);
        bytes memory given = certificate(1);
        vm.expectRevert(abi.encodeWithSelector(BlsKeys.NoKey.selector, address(0x999)));
        policy.certify(SLOT, alone, DIGEST, given);
    }

    // --- keys ---

    function register(address account, uint256 secret, uint256 later) internal {
        vm.warp(block.timestamp + later);
        register(account, secret);
    }

    function refuse(address account, bytes memory key, bytes memory proof, bytes4 selector) internal {
        vm.expectPartialRevert(selector);
        vm.prank(account);
        keys.register(key, proof);
    }

    function test_aRogueKeyIsImpossible() public {
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

    function test_anotherAccountsKeyAndProofAreNobodyElses() public {
        address thief = address(0x666);
        bytes memory key = keys.keyOf(committee[0]);
        bytes memory proof = BlsSigner.sign(secretOf(0), keys.proofOf(committee[0], key), Bls.PROVE);
        refuse(thief, key, proof, BlsKeys.NotProven.selector);
        vm.chainId(4711);
        refuse(address(0x100), key, proof, BlsKeys.TooEarly.selector);
        vm.warp(block.timestamp + 2 days);
        refuse(committee[0], key, proof, BlsKeys.NotProven.selector); // of another chain
    }

    function test_aSignatureOfACertificateIsNoProof() public {
        address account = address(0x300);
        bytes memory key = BlsSigner.keyOf(9);
        bytes memory proof = BlsSigner.sign(9, keys.proofOf(account, key));
        refuse(account, key, proof, BlsKeys.NotProven.selector);
    }

    function test_keysThatAreNoPointsOfTheSubgroupAreRefused() public {
        address account = address(0x300);
        bytes memory proof = BlsSigner.sign(9, DIGEST, Bls.PROVE);
        refuse(account, new bytes(96), new bytes(192), BlsKeys.ZeroKey.selector);
        bytes4 refused = Bls.PrecompileRefused.selector;
        refuse(account, bytes.concat(new bytes(47), hex"04", OUTSIDE_G1), proof, refused);
        refuse(account, bytes.concat(new bytes(47), hex"04", new bytes(47), hex"07"), proof, refused);
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

    function test_whoseBondIsLockedKeepsItsKey() public {
        // A settlement waits in the pool with its signature; changing the key then would make it revert.
        bytes memory waiting = certificate(31);
        bytes memory key = BlsSigner.keyOf(8);
        bytes memory proof = BlsSigner.sign(8, keys.proofOf(committee[0], key), Bls.PROVE);
        vm.warp(block.timestamp + 30 days);
        locked = 1;
        refuse(committee[0], key, proof, BlsKeys.BondLocked.selector);
        same(certify(waiting), 31, "counted as it signed");
    }

    function test_whoseBondIsGoneChangesItsKeyOnceADay() public {
        bytes memory key = BlsSigner.keyOf(8);
        bytes memory proof = BlsSigner.sign(8, keys.proofOf(committee[0], key), Bls.PROVE);
        vm.warp(1_000_000 + 1 days - 1);
        refuse(committee[0], key, proof, BlsKeys.TooEarly.selector);
        vm.warp(1_000_000 + 1 days);
        register(committee[0], 8);
        same(keccak256(keys.keyOf(committee[0])), keccak256(key), "the new one");
        bytes memory before = certificate(1);
        vm.expectPartialRevert(BlsPolicy.WrongSignature.selector);
        certify(before);
        same(certify(bytes.concat(bytes4(uint32(1)), BlsSigner.sign(8, DIGEST))), 1, "by the new key");
    }

    function test_aFirstKeyIsTakenWhateverIsLocked() public {
        locked = 1;
        register(address(0x400), 12);
        same(keccak256(keys.keyOf(address(0x400))), keccak256(BlsSigner.keyOf(12)), "key");
    }
}

/// @title What the Python law derived, proved and signed (tests/vectors/rounds.json, which py-ecc makes again) is taken.
/// forge-config: default.evm_version = "prague"
contract BlsVectorsTest is Check {
    function test_keysProofsAndTheCertificate() public {
        string memory json = vm.readFile("../tests/vectors/rounds.json");
        vm.chainId(vm.parseJsonUint(json, ".slot.chainId"));
        BlsKeys keys = BlsKeys(vm.parseJsonAddress(json, ".bls.registry"));
        vm.etch(address(keys), address(new BlsKeys()).code);
        address[] memory committee = new address[](4);
        for (uint256 i = 0; i < 4; i++) {
            string memory place = string.concat(".bls.members[", vm.toString(i), "]");
            committee[i] = vm.parseJsonAddress(json, string.concat(place, ".account"));
            bytes memory key = vm.parseJsonBytes(json, string.concat(place, ".key"));
            bytes memory proof = vm.parseJsonBytes(json, string.concat(place, ".proof"));
            bytes32 message = vm.parseJsonBytes32(json, string.concat(place, ".proofMessage"));
            same(keys.proofOf(committee[i], key), message, "what the key signs");
            vm.prank(committee[i]);
            keys.register(key, proof);
        }
        bytes32 digest = vm.parseJsonBytes32(json, ".bls.digest");
        bytes memory certificate = vm.parseJsonBytes(json, ".bls.certificate");
        uint256 signers = new BlsPolicy(address(keys)).certify(0, committee, digest, certificate);
        same(signers, vm.parseJsonUint(json, ".bls.signers"), "bls.signers");
    }
}

/// @title Where the precompiles are not there nothing is taken.
contract NoBlsTest is Check {
    function test_withoutPrecompilesNoKeyIsTaken() public {
        BlsKeys keys = new BlsKeys();
        bytes memory key = bytes.concat(bytes1(0x01), new bytes(95));
        vm.expectPartialRevert(Bls.PrecompileRefused.selector);
        keys.register(key, new bytes(192));
    }
}
