// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {BlsKeys} from "../../src/BlsKeys.sol";
import {BlsPolicy} from "../../src/BlsPolicy.sol";
import {LateVotes} from "../../src/LateVotes.sol";
import {Bits} from "../../src/libraries/Bits.sol";
import {Members} from "../../src/Members.sol";
import {Hashing} from "../../src/libraries/Hashing.sol";
import "../../src/types/Types.sol";
import {BlsNetwork} from "../support/BlsNetwork.sol";

/// @title Whole rounds under certificates in BLS12-381.
/// forge-config: default.evm_version = "prague"
contract CertificatesTest is BlsNetwork {
    using Bits for uint256;

    uint256 internal jobId;

    function setUp() public override {
        super.setUp();
        registerAll(3);
        jobId = start();
    }

    function test_P22_twoThirdsSettleAndTheThirdSignsLate() public allHome {
        toVotes(jobId);
        nextBlock();
        Verdict memory v = verdictFor(jobId, 15);
        bytes32 digest = digestFor(jobId, v);
        noteRecord(jobId, v);
        Said storage now_ = said[jobId][0];
        uint256 committee = now_.record.committee;
        bytes memory one = certificate(jobId, digest, committee, 1);
        vm.expectPartialRevert(bytes4(keccak256("TooFewSigners(uint256,uint256)")));
        rounds.settle(jobId, now_.slots, now_.has, bare(v, one));
        rounds.settle(jobId, now_.slots, now_.has, bare(v, certificate(jobId, digest, committee, 3)));
        bytes memory late = certificate(jobId, digest, 4, 1);
        vm.expectPartialRevert(BlsPolicy.WrongSignature.selector);
        rounds.sign(jobId, now_.record, 3, one);
        rounds.sign(jobId, now_.record, 3, late);
        (,, uint256 signed) = rounds.rowsOf(jobId, 0);
        same(signed, 7, "all three are paid");
        play(jobId);
        same(rounds.state(jobId).round, 2, "the job goes on");
    }

    /// @dev A member that gave its signature of another verdict to others only is shown by their
    /// sum.
    function test_P25_theSumShowsEachOfItsSigners() public allHome {
        toVotes(jobId);
        Certified[2] memory shown;
        uint256 committee = rounds.state(jobId).committee;
        for (uint256 i = 0; i < 2; i++) {
            shown[i].verdict = verdictFor(jobId, 15);
            if (i == 1) shown[i].verdict.state = "another";
            shown[i].accounts = new address[](3);
            for (uint16 slot = 0; slot < 3; slot++) {
                shown[i].accounts[slot] = memberAt(jobId, slot);
            }
            // Members 1 and 2 signed the first, 2 and 3 the second.
            bytes32 digest = digestFor(jobId, shown[i].verdict);
            shown[i].certificate = certificate(jobId, digest, committee, i == 0 ? 3 : 6);
        }
        RoundState memory s = rounds.state(jobId);
        bytes32 kept = Hashing.cut(s.votes);
        for (uint32 id = 1; id < 4; id += 2) {
            vm.expectPartialRevert(LateVotes.NotSigned.selector);
            lateVotes.equivocated(jobId, 0, id, s.seed, kept, shown);
        }
        vm.prank(OUTSIDER);
        lateVotes.equivocated(jobId, 0, 2, s.seed, kept, shown);
        same(lockedOf(verifier(1), Role.VERIFIER), 0, "the bond");
        same(activeOf(OUTSIDER, Role.VERIFIER), 0, "nobody's gain");
    }

    /// @dev Nothing that became of its bond gives an account another key, so what waits to be
    /// settled stands.
    function test_noKeyEverChanges() public allHome {
        toVotes(jobId);
        nextBlock();
        Verdict memory v = verdictFor(jobId, 15);
        bytes memory waiting = certificate(jobId, digestFor(jobId, v), rounds.state(jobId).committee, 7);
        noteRecord(jobId, v);
        vm.prank(address(lateVotes));
        members.slashEquivocated(jobId, 1, 0);
        same(lockedOf(verifier(0), Role.VERIFIER), 0, "nothing is locked");
        for (uint256 i = 0; i < 3; i++) {
            (bytes memory key, bytes memory proof) = proofFor(verifier(i), 99 + i);
            vm.expectRevert(abi.encodeWithSelector(BlsKeys.HasKey.selector, verifier(i)));
            vm.prank(verifier(i));
            keys.register(key, proof);
        }
        rounds.settle(jobId, said[jobId][0].slots, said[jobId][0].has, bare(v, waiting));
        same(rounds.state(jobId).round, 1, "settled");
    }

    /// @dev As in every round, but that the sum is kept before the first one settles, by somebody
    /// else.
    function test_P22_aKeptSumSettlesTheSame() public allHome {
        vm.prank(OUTSIDER);
        keys.keep(accountsOf(jobId, 7));
        test_P22_twoThirdsSettleAndTheThirdSignsLate();
    }

    /// @dev Two members without a key would keep the job from being settled.
    function test_whoHasNoKeyDoesNotSit() public allHome {
        uint256 other = create(defaultTerms());
        address account = verifier(9);
        stakeUp(account, Role.VERIFIER, BOND);
        vm.expectPartialRevert(Members.CannotSign.selector);
        vm.prank(account);
        members.enrol(other, 1, uint128(BOND), enrolment(9, other, 1, BOND));
        (bytes memory key, bytes memory proof) = proofFor(account, secretOf(account));
        vm.startPrank(account);
        keys.register(key, proof);
        members.enrol(other, 1, uint128(BOND), "");
        vm.stopPrank();
        same(memberAt(other, 1), account, "it has the slot");
    }
}
