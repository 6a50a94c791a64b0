// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {EcdsaPolicy} from "../../src/EcdsaPolicy.sol";
import {Bits} from "../../src/libraries/Bits.sol";
import {RoundsSettlement} from "../../src/rounds/RoundsSettlement.sol";
import "../../src/types/Types.sol";
import {Network} from "../support/Network.sol";

/// @title P23: who the committee is. Its accounts are taken from whoever settles only where they
/// are those that the contract keeps the hash of, and what is kept ends with what it was kept of,
/// whichever way the pool changes.
contract CommitteesTest is Network {
    using Bits for uint256;

    uint256 internal jobId;

    function setUp() public override {
        super.setUp();
        jobId = start(longTerms(), 4, 3);
    }

    function longTerms() private view returns (Terms memory t) {
        t = defaultTerms();
        (t.rounds, t.minVerifiers) = (30, 2);
    }

    function own() private view returns (address[] memory) {
        return accountsOf(jobId, rounds.state(jobId).committee);
    }

    /// @return shown with a certificate by all of these accounts
    function by(address[] memory signing, address[] memory said_, Verdict memory v)
        private
        view
        returns (Certified memory shown)
    {
        bytes32 digest = digestFor(jobId, v);
        bytes memory certificate_ = abi.encodePacked(uint32(signing.length.firstBits()));
        for (uint256 i = 0; i < signing.length; i++) {
            certificate_ = bytes.concat(certificate_, signatureOf(keyOfMember(signing[i]), digest));
        }
        return Certified(v, said_, certificate_);
    }

    /// @dev One round, which the committee signs; nobody else could have settled it by showing
    /// these.
    function settles(address[] memory shown, address[] memory others) private {
        uint32 round = toVotes(jobId);
        nextBlock();
        Verdict memory v = verdictFor(jobId, rounds.state(jobId).seated);
        noteRecord(jobId, v);
        (bytes memory slots, uint256[] memory has) = (said[jobId][round].slots, said[jobId][round].has);
        _tries(slots, has, by(others, others, v), _rightOf(others), others.length);
        rounds.settle(jobId, slots, has, by(own(), shown, v));
        same(rounds.state(jobId).round, round + 1, "settled");
    }

    /// @return right how many of these are the committee's, each at its rank
    function _rightOf(address[] memory others) private view returns (uint256 right) {
        address[] memory mine = own();
        for (uint256 i = 0; i < others.length && i < mine.length; i++) {
            if (others[i] == mine[i]) right++;
        }
    }

    /// @dev Who is not of the committee has not signed: where the others are too few, nothing settles.
    function _tries(bytes memory slots, uint256[] memory has, Certified memory c, uint256 right, uint256 named)
        private
    {
        uint256 size = rounds.state(jobId).committee.popcount();
        if (named > size || right * 3 < size * 2) {
            vm.expectPartialRevert(
                named > size ? EcdsaPolicy.NotInCommittee.selector : RoundsSettlement.TooFewSigners.selector
            );
            rounds.settle(jobId, slots, has, c);
            return;
        }
        uint256 snapshot = vm.snapshotState();
        uint32 round = rounds.state(jobId).round;
        rounds.settle(jobId, slots, has, c);
        (,, uint256 signed) = rounds.rowsOf(jobId, round);
        same(signed.popcount(), right, "those of the committee alone");
        vm.revertToState(snapshot);
    }

    /// @dev Two rounds of one pool: what comes after may show the accounts.
    function settlesTwice() private {
        for (uint256 i = 0; i < 2; i++) {
            settles(new address[](0), strangers());
        }
        settles(own(), strangers());
    }

    function strangers() private pure returns (address[] memory list) {
        list = new address[](3);
        (list[0], list[1], list[2]) = (verifier(7), verifier(8), verifier(9));
    }

    function leaves(uint256 i) private {
        vm.prank(verifier(i));
        members.leavePool(jobId);
    }

    function test_P23_whatIsShownCountsOnlyWhereItIsTheCommittee() public allHome {
        settlesTwice();
        settles(strangers(), strangers()); // what is wrong is passed over
        address[] memory list = own();
        (list[0], list[1]) = (list[1], list[0]);
        settles(list, list); // another order
        settles(new address[](0), strangers()); // and nobody has to show any
        assembly ("memory-safe") {
            mstore(list, 2)
        }
        settles(list, strangers());
        settles(own(), strangers());
    }

    /// @dev The slots that are ready are the same three before and after.
    function test_P23_anotherOneInTheSameSlotIsAnotherCommittee() public allHome {
        settlesTwice();
        address[] memory before = own();
        leaves(1);
        enrol(jobId, 5, 1);
        settles(before, strangers()); // who left still signs the round that runs
        for (uint256 i = 0; i < 4; i++) {
            settles(i % 2 == 0 ? own() : before, before);
        }
        same(own()[1] == verifier(5) ? 1 : 0, 1, "it has the slot");
    }

    function test_P23_anotherOneWhileTheJobWaitsIsAnotherCommittee() public allHome {
        settlesTwice();
        address[] memory before = own();
        endPhase(jobId); // nobody has committed
        inPhase(jobId, Phase.WAITING);
        for (uint16 seat = 0; seat < 4; seat++) {
            members.penaliseSeat(jobId, seat);
            join(jobId, 10 + seat, seat);
        }
        leaves(1);
        enrol(jobId, 5, 1);
        nextBlock();
        rounds.advance(jobId);
        same(own()[1] == verifier(5) ? 1 : 0, 1, "it has the slot at once");
        for (uint256 i = 0; i < 4; i++) {
            settles(i % 2 == 0 ? own() : before, before);
        }
    }

    function test_P23_whoIsOutbidIsNotInTheNextCommittee() public allHome {
        settlesTwice();
        address[] memory before = own();
        stakeUp(verifier(5), Role.VERIFIER, 2 * BOND);
        vm.prank(verifier(5));
        members.enrol(jobId, 0, uint128(2 * BOND), enrolment(5, jobId, 0, 2 * BOND));
        settles(before, strangers());
        same(rounds.state(jobId).committee, 6, "without the slot");
        for (uint256 i = 0; i < 4; i++) {
            settles(i % 2 == 0 ? own() : before, before);
        }
        same(own()[0] == verifier(5) ? 1 : 0, 1, "it has the slot");
    }

    function test_P23_whoIsPenalisedIsNotInTheNextCommittee() public allHome {
        settlesTwice();
        address[] memory before = own();
        toVotes(jobId);
        vm.prank(address(lateVotes));
        members.slashEquivocated(jobId, 1, 0); // while MERGE runs
        nextBlock();
        settle(jobId);
        same(rounds.state(jobId).committee, 6, "without the slot");
        for (uint256 i = 0; i < 3; i++) {
            settles(own(), before);
        }
    }

    /// @dev A later committee of a pool that is drawn whole is the same committee.
    function test_P23_aLaterCommitteeMayShowItToo() public allHome {
        settlesTwice();
        address[] memory before = own();
        commitAll(jobId, 15);
        nextBlock();
        revealAll(jobId, 15);
        nextBlock();
        nextCommittee(jobId); // nobody votes
        same(rounds.state(jobId).committeeDraw, 1, "a committee draw more");
        sayAll(jobId, 15);
        nextBlock();
        Verdict memory v = verdictFor(jobId, 15);
        noteRecord(jobId, v);
        (bytes memory slots, uint256[] memory has) = (said[jobId][3].slots, said[jobId][3].has);
        Certified memory c = by(strangers(), strangers(), v);
        vm.expectPartialRevert(RoundsSettlement.TooFewSigners.selector);
        rounds.settle(jobId, slots, has, c);
        rounds.settle(jobId, slots, has, by(before, before, v));
        settles(own(), strangers());
    }
}

/// @title P23: at both sides of the border from which on committees are drawn.
contract DrawnCommitteesTest is Network {
    using Bits for uint256;

    /// @dev Plays with all signing and shown; forged is whatever was shown a round before, and two
    /// rounds before.
    function plays(uint256 jobId, uint256 count) private {
        address[][] memory shown = new address[][](count);
        for (uint256 i = 0; i < count; i++) {
            uint32 round = toVotes(jobId);
            nextBlock();
            shown[i] = accountsOf(jobId, rounds.state(jobId).committee);
            for (uint256 k = i < 2 ? 0 : i - 2; k < i; k++) {
                forge(jobId, round, shown[k], shown[i]);
            }
            settle(jobId);
        }
    }

    /// @dev By a committee of an earlier round, unless it begins this one.
    function forge(uint256 jobId, uint32 round, address[] memory theirs, address[] memory own) private {
        // Of which so many are members now, at the same rank: two thirds could settle.
        uint256 right;
        for (uint256 i = 0; i < theirs.length && i < own.length; i++) {
            if (theirs[i] == own[i]) right++;
        }
        if (theirs.length <= own.length && right * 3 >= own.length * 2) return;
        Verdict memory v = verdictFor(jobId, rounds.state(jobId).seated);
        noteRecord(jobId, v);
        bytes memory signed = abi.encodePacked(uint32(theirs.length.firstBits()));
        bytes32 digest = digestFor(jobId, v);
        for (uint256 i = 0; i < theirs.length; i++) {
            signed = bytes.concat(signed, signatureOf(keyOfMember(theirs[i]), digest));
        }
        (bytes memory slots, uint256[] memory has) = (said[jobId][round].slots, said[jobId][round].has);
        vm.expectRevert();
        rounds.settle(jobId, slots, has, Certified(v, theirs, signed));
    }

    function test_P23_aPoolThatGrowsPast32AndShrinksAgain() public {
        Terms memory t = defaultTerms();
        (t.rounds, t.slots, t.minVerifiers) = (30, 40, 2);
        uint256 jobId = start(t, 4, 31);
        plays(jobId, 3);
        enrol(jobId, 31, 31);
        plays(jobId, 4);
        same(rounds.state(jobId).committee, uint256(32).firstBits(), "whole");
        enrol(jobId, 32, 32);
        plays(jobId, 6);
        same(rounds.state(jobId).committee.popcount(), 32, "drawn from 33");
        vm.prank(verifier(4));
        members.leavePool(jobId);
        plays(jobId, 4);
        same(rounds.state(jobId).committee, uint256(33).firstBits() ^ 16, "whole again");
        vm.warp(rounds.timesOf(jobId, 16).windowEnd);
        for (uint32 from = 0; from < 17; from++) {
            for (uint32 to = from; to < 17; to++) {
                countsSignatures(jobId, from, to);
            }
        }
    }

    /// @dev Four rounds lie in one word.
    function countsSignatures(uint256 jobId, uint32 from, uint32 to) private view {
        for (uint16 slot = 0; slot < 34; slot++) {
            uint256 signed;
            for (uint32 round = from; round < to; round++) {
                if (said[jobId][round].record.committee.has(slot)) signed++;
            }
            same(rounds.signaturesOf(jobId, slot, from, to), signed, "signatures");
        }
    }

    /// The first pool, of which a committee is drawn: all leave it in round 0, which it settles
    /// yet.
    function test_whereAllOfAPoolAbove32LeaveTheNextCommitteeIsOfThoseWhoCame() public {
        Terms memory t = defaultTerms();
        (t.rounds, t.slots, t.minVerifiers) = (3, 40, 2);
        uint256 jobId = start(t, 4, 33);
        same(rounds.state(jobId).committee.popcount(), 32, "drawn from 33");
        for (uint16 slot = 33; slot < 36; slot++) {
            enrol(jobId, slot, slot);
        }
        for (uint256 i = 0; i < 33; i++) {
            vm.prank(verifier(i));
            members.leavePool(jobId);
        }
        plays(jobId, 1);
        same(rounds.state(jobId).committee, 7 << 33, "the three who came");
        plays(jobId, 2);
        hasStatus(jobId, JobStatus.DONE);
    }
}
