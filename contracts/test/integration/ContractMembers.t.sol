// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {EcdsaPolicy} from "../../src/EcdsaPolicy.sol";
import {LateVotes} from "../../src/LateVotes.sol";
import {Members} from "../../src/Members.sol";
import {Bits} from "../../src/libraries/Bits.sol";
import {Hashing} from "../../src/libraries/Hashing.sol";
import {TypedData} from "../../src/libraries/TypedData.sol";
import {RoundsSettlement} from "../../src/rounds/RoundsSettlement.sol";
import "../../src/types/Types.sol";
import {Network} from "../support/Network.sol";
import {Mood, Moody, SafeLike, Unborn, Wallet} from "../support/Wallets.sol";

/// @title Members that are contracts sign by ERC-1271; what they answer concerns themselves alone.
contract ContractMembersTest is Network {
    using Bits for uint256;

    uint256 private constant MOODS = 8;
    uint256 private constant ANSWER = 110_000; // gas of one that eats all it gets, with the call
    uint256[3] private _ownerKeys = [uint256(0xa11ce), 0xb0b, 0xca401]; // of every Safe, two of whom sign

    mapping(address wallet => bool) private _isWallet;
    mapping(address wallet => bool) private _isSafe;

    // --- people ---

    function _owners() private view returns (address[] memory owners) {
        owners = new address[](3);
        for (uint256 i = 0; i < 3; i++) {
            owners[i] = vm.addr(_ownerKeys[i]);
        }
    }

    function _safe() private returns (SafeLike safe) {
        safe = new SafeLike(_owners(), 2);
        _isSafe[address(safe)] = true;
    }

    /// @return signatures of two owners, by ascending address
    function _bySafe(SafeLike safe, bytes32 digest) private view returns (bytes memory signatures) {
        (uint256 first, uint256 second) = (_ownerKeys[0], _ownerKeys[1]);
        if (vm.addr(first) > vm.addr(second)) (first, second) = (second, first);
        bytes32 message = safe.messageHash(digest);
        return bytes.concat(_plain(first, message), _plain(second, message));
    }

    function _plain(uint256 key, bytes32 digest) private pure returns (bytes memory) {
        (uint8 v, bytes32 r, bytes32 s) = vm.sign(key, digest);
        return abi.encodePacked(r, s, v);
    }

    function _enrol(uint256 jobId, Wallet wallet, uint16 slot, bytes memory signature) private {
        _isWallet[address(wallet)] = true;
        stakeUp(address(wallet), Role.VERIFIER, BOND);
        wallet.send(address(members), abi.encodeCall(members.enrol, (jobId, slot, uint128(BOND), signature)));
        wallet.send(address(members), abi.encodeCall(members.ready, (jobId)));
    }

    function _enrolment(uint256 jobId, address account, uint16 slot) private view returns (bytes32) {
        return members.enrolmentHash(jobId, slot, uint128(BOND), account);
    }

    /// @return a member's part of a certificate
    function _part(address account, bytes32 digest) private view returns (bytes memory) {
        if (!_isWallet[account]) return signatureOf(keyOfMember(account), digest);
        bytes memory signature = _isSafe[account] ? _bySafe(SafeLike(account), digest) : bytes("any");
        return bytes.concat(bytes2(uint16(signature.length)), signature);
    }

    function certificate(uint256 jobId, bytes32 digest, uint256 committee, uint256 ranks)
        internal
        view
        override
        returns (bytes memory signed)
    {
        signed = bytes.concat(bytes4(uint32(ranks)));
        for (uint256 rank = 0; committee != 0; (committee &= committee - 1, rank++)) {
            if (ranks.has(rank)) signed = bytes.concat(signed, _part(memberAt(jobId, committee.lowest()), digest));
        }
    }

    function _job(uint16 slots) private returns (uint256 jobId) {
        Terms memory t = defaultTerms();
        (t.rounds, t.slots) = (6, slots);
        jobId = create(t);
        for (uint256 i = 0; i < 4; i++) {
            join(jobId, i, uint16(i));
        }
    }

    /// @return jobId with so many members that have keys and so many wallets, in TRAIN
    function _started(uint16 keys, uint16 wallets) private returns (uint256 jobId, Moody[] memory moody) {
        jobId = _job(keys + wallets);
        for (uint16 i = 0; i < keys; i++) {
            enrol(jobId, i, i);
        }
        moody = new Moody[](wallets);
        for (uint16 i = 0; i < wallets; i++) {
            moody[i] = new Moody();
            _enrol(jobId, moody[i], keys + i, "");
        }
        nextBlock();
        rounds.advance(jobId);
    }

    function _signed(uint256 jobId, uint32 round) private view returns (uint256 signed) {
        (,, signed) = rounds.rowsOf(jobId, round);
    }

    // --- they take part ---

    /// S8: two of three members are Safes, and every round settles; they are paid as all are.
    function test_S8_twoSafesOfThreeSettleEveryRound() public allHome {
        uint256 jobId = _job(3);
        enrol(jobId, 0, 0);
        SafeLike[2] memory safes = [_safe(), _safe()];
        for (uint16 i = 0; i < 2; i++) {
            bytes32 digest = _enrolment(jobId, address(safes[i]), i + 1);
            _enrol(jobId, safes[i], i + 1, _bySafe(safes[i], digest));
        }
        nextBlock();
        rounds.advance(jobId);
        for (uint32 round = 0; round < 6; round++) {
            play(jobId);
            same(_signed(jobId, round), 7, "all three have signed");
        }
        vm.warp(rounds.timesOf(jobId, 5).windowEnd);
        for (uint32 id = 1; id < 4; id++) {
            address account = members.holderOf(jobId, Role.VERIFIER, id).account;
            jobs.claim(jobId, Role.VERIFIER, id, 6);
            same(token.balanceOf(account), 6 ether, "six signatures");
        }
    }

    function test_aSafeSignsLateWhereItIsLeftOut() public allHome {
        uint256 jobId = _job(3);
        enrol(jobId, 0, 0);
        enrol(jobId, 1, 1);
        SafeLike safe = _safe();
        _enrol(jobId, safe, 2, _bySafe(safe, _enrolment(jobId, address(safe), 2)));
        nextBlock();
        rounds.advance(jobId);
        toVotes(jobId);
        nextBlock();
        settleBy(jobId, verdictFor(jobId, 15), 3);
        same(_signed(jobId, 0), 3, "by the two with keys");
        bytes32 digest = said[jobId][0].digest;
        bytes memory own = bytes.concat(bytes4(uint32(1)), _part(address(safe), digest));
        rounds.sign(jobId, said[jobId][0].record, 3, own);
        same(_signed(jobId, 0), 7, "and the Safe");
    }

    /// What a Safe's owners signed for one is nothing to another of the same owners.
    function test_aSafesSignatureIsItsOwn() public allHome {
        uint256 jobId = _job(3);
        (SafeLike first, SafeLike second) = (_safe(), _safe());
        bytes32 digest = _enrolment(jobId, address(first), 0);
        bytes memory signature = _bySafe(first, digest);
        check(policy.isSigner(address(first), digest, signature), "its own");
        check(!policy.isSigner(address(second), digest, signature), "not the other's");
        check(!policy.isSigner(address(first), _enrolment(jobId, address(first), 1), signature), "not of another slot");
        vm.chainId(4_711);
        check(!policy.isSigner(address(first), _enrolment(jobId, address(first), 0), signature), "nor on another chain");
    }

    // --- who cannot sign does not sit ---

    /// S8: code and no answer, as a wallet that knows no ERC-1271.
    function test_S8_whatCannotAnswerNeverSits() public allHome {
        uint256 jobId = _job(3);
        address account = address(0xC0DE1);
        vm.etch(account, hex"00");
        stakeUp(account, Role.VERIFIER, BOND);
        for (uint256 i = 0; i < 2; i++) {
            vm.expectRevert(abi.encodeWithSelector(Members.CannotSign.selector, account, _enrolment(jobId, account, 1)));
            vm.prank(account);
            members.enrol(jobId, 1, uint128(BOND), i == 0 ? bytes("") : new bytes(65));
        }
        same(lockedOf(account, Role.VERIFIER), 0, "nothing is locked");
    }

    function test_whoAnswersWronglyNeverSits() public allHome {
        uint256 jobId = _job(3);
        Moody wallet = new Moody();
        stakeUp(address(wallet), Role.VERIFIER, BOND);
        bytes memory call = abi.encodeCall(members.enrol, (jobId, 1, uint128(BOND), ""));
        for (uint256 mood = 1; mood < MOODS; mood++) {
            wallet.set(Mood(mood));
            vm.expectPartialRevert(Members.CannotSign.selector);
            wallet.send(address(members), call);
        }
        wallet.set(Mood.YES);
        wallet.send(address(members), call);
        same(memberAt(jobId, 1), address(wallet), "it has the slot");
    }

    function fund(address account) external {
        stakeUp(account, Role.VERIFIER, BOND);
    }

    function test_aContractInItsConstructorNeverSits() public allHome {
        uint256 jobId = _job(3);
        bytes memory call = abi.encodeCall(members.enrol, (jobId, 1, uint128(BOND), ""));
        vm.expectPartialRevert(Members.CannotSign.selector);
        new Unborn(address(members), call, this.fund);
    }

    function test_anEnrolmentIsOfOneAccountJobSlotBondAndChain() public allHome {
        uint256 jobId = _job(4);
        stakeUp(verifier(0), Role.VERIFIER, 2 * BOND);
        bytes[5] memory others = [
            enrolment(1, jobId, 1, BOND),
            enrolment(0, jobId + 1, 1, BOND),
            enrolment(0, jobId, 2, BOND),
            enrolment(0, jobId, 1, BOND + 1),
            _plain(verifierKey(0), TypedData.enrolment(address(rounds), jobId, 1, uint128(BOND), verifier(0)))
        ];
        bytes memory own = enrolment(0, jobId, 1, BOND);
        vm.startPrank(verifier(0));
        for (uint256 i = 0; i < 5; i++) {
            vm.expectPartialRevert(Members.CannotSign.selector);
            members.enrol(jobId, 1, uint128(BOND), others[i]);
        }
        uint256 id = block.chainid;
        vm.chainId(4_711);
        vm.expectPartialRevert(Members.CannotSign.selector);
        members.enrol(jobId, 1, uint128(BOND), own);
        vm.chainId(id);
        members.enrol(jobId, 1, uint128(BOND), own);
        vm.stopPrank();
    }

    // --- who changes its answer ---

    /// Its signature is none, and the certificate that names it stands with the others'.
    function test_whoAnswersOtherwiseLaterStopsNothing() public allHome {
        (uint256 jobId, Moody[] memory moody) = _started(4, 1);
        play(jobId);
        same(_signed(jobId, 0), 31, "all five");
        toVotes(jobId);
        nextBlock();
        uint256 snapshot = vm.snapshotState();
        uint256 usual = _gasOf(jobId, 15);
        for (uint256 mood = 1; mood < MOODS; mood++) {
            vm.revertToState(snapshot);
            moody[0].set(Mood(mood));
            atMost(_gasOf(jobId, 31), usual + ANSWER, "it costs no more than its answer may");
            same(_signed(jobId, 1), 15, "it has not signed");
            same(rounds.state(jobId).round, 2, "settled");
        }
    }

    /// Code can be gone: of an account that takes a delegation back (EIP-7702), or, before Cancun, of any contract.
    function test_whoseCodeIsGoneStopsNothing() public allHome {
        (uint256 jobId, Moody[] memory moody) = _started(4, 1);
        toVotes(jobId);
        nextBlock();
        vm.etch(address(moody[0]), "");
        _gasOf(jobId, 31);
        same(_signed(jobId, 0), 15, "settled by the others");
    }

    /// @return gas of a settlement in which these sign
    function _gasOf(uint256 jobId, uint256 ranks) private returns (uint256 gas) {
        bytes memory call = _settlement(jobId, ranks);
        gas = gasleft();
        (bool isDone,) = address(rounds).call(call);
        gas -= gasleft();
        check(isDone, "settled");
    }

    /// A third of a large committee eats gas: the rest settles, and pays for their answers alone.
    function test_aThirdThatEatsGasIsPaidForAndNoMore() public allHome {
        (uint256 jobId, Moody[] memory moody) = _started(20, 10);
        play(jobId);
        toVotes(jobId);
        nextBlock();
        uint256 snapshot = vm.snapshotState();
        uint256 usual = _gasOf(jobId, Bits.firstBits(20));
        vm.revertToState(snapshot);
        for (uint256 i = 0; i < 10; i++) {
            moody[i].set(Mood(1 + i % 7));
        }
        atMost(_gasOf(jobId, Bits.firstBits(30)), usual + 10 * ANSWER, "ten answers");
        same(_signed(jobId, 1), Bits.firstBits(20), "by those with keys");
    }

    /// Two thirds are needed, whoever the others are; and wallets that say no are as silent as anybody.
    function test_wherePeopleWithKeysAreTooFewNothingSettlesWithoutTheWallets() public allHome {
        (uint256 jobId, Moody[] memory moody) = _started(1, 2);
        play(jobId);
        toVotes(jobId);
        nextBlock();
        for (uint256 i = 0; i < 2; i++) {
            moody[i].set(Mood.NO);
        }
        Verdict memory v = verdictFor(jobId, 15);
        bytes memory signed = certificate(jobId, digestFor(jobId, v), 7, 7);
        Said storage now_ = said[jobId][1];
        (bytes memory slots, uint256[] memory has) = (now_.slots, now_.has);
        vm.expectRevert(abi.encodeWithSelector(RoundsSettlement.TooFewSigners.selector, 1, 3));
        rounds.settle(jobId, slots, has, bare(v, signed));
        moody[0].set(Mood.YES);
        noteRecord(jobId, v);
        rounds.settle(jobId, slots, has, bare(v, signed));
        same(_signed(jobId, 1), 3, "two of three");
    }

    /// With whatever gas a settlement goes through, the wallet's signature is in it.
    function test_nobodyIsLeftOutForLackOfGas() public allHome {
        (uint256 jobId,) = _started(4, 1);
        toVotes(jobId);
        nextBlock();
        bytes memory call = _settlement(jobId, 31);
        uint256 snapshot = vm.snapshotState();
        uint256[2] memory times; // refused, and gone through
        for (uint256 gas = 60_000; gas < 600_000; gas += 7_919) {
            (bool isDone,) = address(rounds).call{gas: gas}(call);
            if (isDone) same(_signed(jobId, 0), 31, "all five");
            times[isDone ? 1 : 0]++;
            vm.revertToState(snapshot);
        }
        check(times[0] > 10 && times[1] > 10, "both happen");
        settleBy(jobId, verdictFor(jobId, 15), 31);
    }

    /// @return call that settles, with these members' signatures
    function _settlement(uint256 jobId, uint256 ranks) private returns (bytes memory call) {
        Verdict memory v = verdictFor(jobId, rounds.state(jobId).seated);
        bytes memory signed = certificate(jobId, digestFor(jobId, v), rounds.state(jobId).committee, ranks);
        noteRecord(jobId, v);
        Said storage now_ = said[jobId][rounds.state(jobId).round];
        return abi.encodeCall(rounds.settle, (jobId, now_.slots, now_.has, bare(v, signed)));
    }

    /// An account with a key signs with it, whatever code stands at its address since (EIP-7702).
    function test_aKeySignsWhateverCodeItsAccountWasGiven() public allHome {
        (uint256 jobId,) = _started(3, 0);
        play(jobId);
        Moody other = new Moody();
        other.set(Mood.NO);
        vm.etch(verifier(0), address(other).code);
        play(jobId);
        same(_signed(jobId, 1), 7, "with its key");
    }

    /// What a wallet says of two verdicts costs its own bond, while it says so, and nobody else's.
    function test_whoSaysYesToEverythingIsShownToHaveSignedTwice() public allHome {
        (uint256 jobId, Moody[] memory moody) = _started(2, 1);
        play(jobId);
        Certified[2] memory shown;
        for (uint256 i = 0; i < 2; i++) {
            shown[i].verdict = verdictFor(jobId, 15);
            if (i == 1) shown[i].verdict.state = "another";
            shown[i].accounts = new address[](1);
            shown[i].accounts[0] = address(moody[0]);
            shown[i].certificate = abi.encodePacked(uint32(1), uint16(3), "any");
        }
        RoundRecord memory f = said[jobId][0].record;
        moody[0].set(Mood.NO);
        vm.expectPartialRevert(LateVotes.NotSigned.selector);
        lateVotes.equivocated(jobId, 0, 3, f.seed, f.votes, shown);
        moody[0].set(Mood.YES);
        vm.prank(OUTSIDER);
        lateVotes.equivocated(jobId, 0, 3, f.seed, f.votes, shown);
        same(lockedOf(address(moody[0]), Role.VERIFIER), 0, "its bond");
        same(lockedOf(verifier(0), Role.VERIFIER), BOND, "nobody else's");
        blame(address(moody[0]));
    }

    // --- the certificate's bytes ---

    function test_aCertificateIsItsPartsAndNothingElse() public allHome {
        (uint256 jobId,) = _started(2, 1);
        address[] memory committee = accountsOf(jobId, 7);
        bytes32 digest = keccak256("digest");
        bytes memory whole = certificate(jobId, digest, 7, 7);
        same(policy.certify(0, committee, digest, whole), 7, "all three");
        bytes[4] memory wrong = [
            bytes.concat(whole, hex"00"),
            _shorter(whole),
            certificate(jobId, digest, 7, 3),
            bytes.concat(bytes4(uint32(7)), signatureOf(verifierKey(0), digest), signatureOf(verifierKey(1), digest))
        ];
        (wrong[2][3], wrong[3][3]) = (0x07, 0x07);
        for (uint256 i = 0; i < 4; i++) {
            vm.expectPartialRevert(EcdsaPolicy.WrongLength.selector);
            policy.certify(0, committee, digest, wrong[i]);
        }
        _endsBeyond(committee, digest);
    }

    /// A length that ends beyond the certificate is no signature, even where calldata goes on.
    function _endsBeyond(address[] memory committee, bytes32 digest) private view {
        bytes memory short = abi.encodePacked(uint32(4), uint16(3));
        bytes memory call = abi.encodeCall(policy.certify, (0, committee, digest, short));
        (bool isDone,) = address(policy).staticcall(bytes.concat(call, "any"));
        check(!isDone, "beyond its end");
    }

    function _shorter(bytes memory whole) private pure returns (bytes memory cut) {
        cut = new bytes(whole.length - 1);
        for (uint256 i = 0; i < cut.length; i++) {
            cut[i] = whole[i];
        }
    }

    function test_whatIsSignedIsTheContractsOwnDomain() public allHome {
        (uint256 jobId,) = _started(3, 0);
        toVotes(jobId);
        Verdict memory v = verdictFor(jobId, 15);
        RoundState memory s = rounds.state(jobId);
        bytes32 kept = Hashing.cut(s.votes);
        same(rounds.certificateHash(jobId, 0, s.seed, kept, v), digestFor(jobId, v), "as settle asks");
        bytes32 content = _contentOf(jobId, s.seed, kept, v);
        bytes32 digest = keccak256(abi.encodePacked(hex"1901", _separator(), content));
        same(digest, digestFor(jobId, v), "EIP-712");
        bytes memory call = _settlement(jobId, 7);
        nextBlock();
        uint256 id = block.chainid;
        vm.chainId(4_711);
        vm.expectPartialRevert(RoundsSettlement.TooFewSigners.selector);
        _send(call);
        vm.chainId(id);
        _send(call);
    }

    function _send(bytes memory call) private {
        (bool isDone, bytes memory why) = address(rounds).call(call);
        if (isDone) return;
        assembly ("memory-safe") {
            revert(add(why, 32), mload(why))
        }
    }

    function _separator() private view returns (bytes32) {
        (, string memory name, string memory version, uint256 chain, address where,,) = rounds.eip712Domain();
        bytes32 kind = keccak256("EIP712Domain(string name,string version,uint256 chainId,address verifyingContract)");
        return keccak256(abi.encode(kind, keccak256(bytes(name)), keccak256(bytes(version)), chain, where));
    }

    function _contentOf(uint256 jobId, bytes32 seed, bytes32 votes, Verdict memory v) private pure returns (bytes32) {
        bytes32 kind = keccak256(
            "Certificate(uint256 job,uint32 round,bytes32 seed,bytes32 votes,uint256 excluded,uint16 merged,bytes32 state,bytes cid,bytes8 loss,bytes32 statement)"
        );
        bytes memory first = abi.encode(kind, jobId, uint32(0), seed, votes);
        return keccak256(
            bytes.concat(first, abi.encode(v.excluded, v.merged, v.state, keccak256(v.cid), v.loss, v.statement))
        );
    }
}
