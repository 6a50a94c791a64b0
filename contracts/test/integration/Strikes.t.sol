// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {Strikes} from "../../src/Strikes.sol";
import {StrikesBase} from "../../src/strikes/StrikesBase.sol";
import {Model} from "../../src/judge/Claims.sol";
import {Case, Coordinate, Opened, ShownRows} from "../../src/interfaces/IStrikes.sol";
import {Openings} from "../../src/judge/Openings.sol";
import {Bits} from "../../src/libraries/Bits.sol";
import {MergeShape, MergeShapes} from "../../src/libraries/MergeShapes.sol";
import {Merging, Row} from "../../src/libraries/Merging.sol";
import {Reveals} from "../../src/libraries/Reveals.sol";
import {RoundsMembership} from "../../src/rounds/RoundsMembership.sol";
import "../../src/types/Types.sol";
import {Merge} from "../support/Merge.sol";

/// @dev A test's own memory is large by then, and whoever calls from it pays for that.
contract Meter {
    function gasOf(address target, bytes calldata data) external returns (bool isDone, uint256 used) {
        bytes memory given = data;
        used = gasleft();
        (isDone,) = target.call(given);
        used -= gasleft();
    }
}

/// @title Strikes: what a wrong merge costs who signed it, and that a right one costs nobody.
contract StrikesTest is Merge {
    using Bits for uint256;

    uint256 private constant PROVIDERS = 4;
    uint256 private constant VERIFIERS = 3;
    uint256 private constant MOST_CALLDATA = (1 << 17) - 1024; // `atoll.chain.txconfig`

    function smallShape() internal pure returns (MergeShape memory s) {
        (s.rule, s.codec, s.tensors, s.values) = (3, MergeShapes.GRID8, 2, 5_000);
        (s.momentTensors, s.momentValues, s.factoredBytes) = (2, 5_000, 400);
    }

    function everybody(uint256 seats) internal pure returns (Seats memory who) {
        (who.mergeable, who.merged) = (seats, seats);
    }

    /// @dev Values 3, −5, 7, 20 with f = 1: the trimmed mean is 5.
    function began(MergeShape memory s) internal returns (uint256 jobId) {
        jobId = start(mergeTerms(s), PROVIDERS, VERIFIERS);
        (section, index) = (0, 2_000);
        int8[4] memory values = [int8(3), -5, 7, 20];
        for (uint256 seat = 0; seat < PROVIDERS; seat++) {
            codes[seat] = abi.encodePacked(values[seat]);
        }
        revealMerge(jobId);
    }

    function merged(int8 value) internal returns (uint256 jobId) {
        jobId = began(smallShape());
        certifyMerge(jobId, abi.encodePacked(value), everybody(15));
    }

    function strikeBy(address by, uint256 jobId) internal {
        Case memory c = caseOf(jobId, 0, VERIFIERS);
        announceBy(by, c, whatOf());
        strikes.showRows(rowsOf(jobId, 0, 15));
        vm.prank(by);
        strikes.strikeCoordinate(c, proofOf());
    }

    function test_coordinateThatIsWrong() public {
        uint256 jobId = merged(6);
        (uint256 before,,) = stakes.stakeOf(OUTSIDER, Role.VERIFIER);
        strikeBy(OUTSIDER, jobId);
        for (uint256 i = 0; i < VERIFIERS; i++) {
            same(members.bondOf(jobId, Role.VERIFIER, uint32(i + 1)), BOND / 2, "half a bond is left");
        }
        (uint256 after_,,) = stakes.stakeOf(OUTSIDER, Role.VERIFIER);
        same(after_ - before, VERIFIERS * BOND / 2 * 3_000 / 10_000, "a share of three halves");
        (uint256 pay,, uint256 signed) = rounds.rowsOf(jobId, 0);
        same(signed, 0, "nobody is paid for signing");
        same(pay, 15, "seats keep their pay");
        same(rounds.state(jobId).digest, 0, "nobody signs any more");
        // Members go, but for the round that runs: its end is the job's.
        Seats memory who = everybody(15);
        revealMerge(jobId);
        certifyMerge(jobId, abi.encodePacked(int8(5)), who);
        check(rounds.state(jobId).status == JobStatus.CANCELLED, "ends as if cancelled");
        same(rounds.state(jobId).round, 2, "the round that ran is settled");
    }

    function test_rightCoordinate() public {
        uint256 jobId = merged(5);
        Case memory c = caseOf(jobId, 0, VERIFIERS);
        announceBy(OUTSIDER, c, whatOf());
        strikes.showRows(rowsOf(jobId, 0, 15));
        Coordinate memory p = proofOf();
        vm.expectRevert(StrikesBase.NothingWrong.selector);
        vm.prank(OUTSIDER);
        strikes.strikeCoordinate(c, p);
        announceBy(OUTSIDER, c, 0);
        vm.expectRevert(StrikesBase.NothingWrong.selector);
        vm.prank(OUTSIDER);
        strikes.strikeStatement(c);
    }

    /// @dev Whoever copies what it sees announces with the first row that it sees, and comes too late.
    function test_strikeIsWhoseItWasAnnounced() public {
        uint256 jobId = merged(6);
        Case memory c = caseOf(jobId, 0, VERIFIERS);
        Coordinate memory p = proofOf();
        bytes32 commitment = strikes.commitmentOf(address(this), jobId, 0, whatOf(), c.salt);
        vm.expectRevert(abi.encodeWithSelector(StrikesBase.NotAnnounced.selector, commitment));
        strikes.strikeCoordinate(c, p);
        announceBy(OUTSIDER, c, whatOf());
        strikes.announce(commitment); // in the block of the first rows, of which it knows the place
        strikes.showRows(rowsOf(jobId, 0, 15));
        uint256 ahead = strikes.AHEAD();
        vm.roll(block.number + ahead - 1);
        strikes.announce(commitment); // the first counts
        vm.expectRevert(abi.encodeWithSelector(StrikesBase.NotAnnounced.selector, commitment));
        strikes.strikeCoordinate(c, p);
        vm.prank(OUTSIDER);
        strikes.strikeCoordinate(c, p);
        nextBlock();
        vm.expectRevert(abi.encodeWithSelector(RoundsMembership.NobodySigned.selector, 0));
        strikes.strikeCoordinate(c, p);
    }

    function test_announcedButAheadOfItsTime() public {
        uint256 jobId = merged(6);
        Case memory c = caseOf(jobId, 0, VERIFIERS);
        announceBy(OUTSIDER, c, whatOf());
        strikes.showRows(rowsOf(jobId, 0, 15));
        vm.roll(block.number - 1);
        bytes32 commitment = strikes.commitmentOf(OUTSIDER, jobId, 0, whatOf(), c.salt);
        vm.prank(OUTSIDER);
        vm.expectRevert(abi.encodeWithSelector(StrikesBase.NotAnnounced.selector, commitment));
        strikes.strikeCoordinate(c, proofOf());
    }

    // --- rows ---

    function test_rowsInSeveralCallsByAnybody() public {
        uint256 jobId = merged(6);
        Case memory c = caseOf(jobId, 0, VERIFIERS);
        announceBy(OUTSIDER, c, whatOf());
        uint256[3] memory parts = [uint256(1), 10, 4];
        uint256 shown;
        for (uint256 i = 0; i < 3; i++) {
            vm.prank(OUTSIDER);
            vm.expectRevert(abi.encodeWithSelector(Strikes.NotShown.selector, [3, 3, 2][i]));
            strikes.strikeCoordinate(c, proofOf());
            vm.prank(address(uint160(100 + i)));
            strikes.showRows(rowsOf(jobId, 0, parts[i]));
            shown |= parts[i];
            same(strikes.shownOf(jobId, 0, whatOf()), shown, "whose rows were shown");
        }
        same(strikes.shownOf(jobId, 0, whatOf() + 1), 0, "at another coordinate");
        same(strikes.shownOf(jobId, 1, whatOf()), 0, "of another round");
        strikes.showRows(rowsOf(jobId, 0, 15)); // once more, by who is late: they are the same
        vm.prank(OUTSIDER);
        strikes.strikeCoordinate(c, proofOf());
        same(members.bondOf(jobId, Role.VERIFIER, 1), BOND / 2, "half a bond is left");
    }

    /// @dev Who shows rows before anybody strikes, and never strikes, has paid for what another then uses.
    function test_rowsThatLieThereStopNobodyAndHelpOthers() public {
        uint256 jobId = merged(6);
        vm.prank(verifier(0));
        strikes.showRows(rowsOf(jobId, 0, 15));
        Case memory c = caseOf(jobId, 0, VERIFIERS);
        announceBy(OUTSIDER, c, whatOf());
        vm.prank(OUTSIDER);
        strikes.strikeCoordinate(c, proofOf());
        same(members.bondOf(jobId, Role.VERIFIER, 1), BOND / 2, "half a bond is left");
    }

    function test_rowsOfARecordThatIsNotTheRounds() public {
        uint256 jobId = merged(6);
        ShownRows memory r = rowsOf(jobId, 0, 15);
        bytes32 kept = rounds.recordOf(jobId, 0);
        for (uint256 i = 0; i < 4; i++) {
            if (i == 0) r.record.seed ^= bytes32(uint256(1));
            if (i == 1) r.record.reveals ^= bytes32(uint256(1));
            if (i == 2) r.record.model ^= bytes32(uint256(1));
            if (i == 3) r.record.certificate ^= bytes32(uint256(1));
            (bool isTaken, bytes memory why) = address(strikes).call(abi.encodeCall(Strikes.showRows, r));
            check(!isTaken && bytes4(why) == Reveals.WrongRecord.selector, "another record");
            r = rowsOf(jobId, 0, 15);
        }
        check(kept != 0, "a record is kept");
        r.round = 1; // which has none yet
        (bool isShown,) = address(strikes).call(abi.encodeCall(Strikes.showRows, r));
        check(!isShown, "of a round without a record");
        same(strikes.shownOf(jobId, 0, whatOf()), 0, "nothing is kept");
    }

    function test_rowsOfAnotherSeatOrPlace() public {
        uint256 jobId = merged(6);
        ShownRows memory r = rowsOf(jobId, 0, 15);
        r.updates[0].seat = 1; // an update of seat 0
        (bool isTaken, bytes memory why) = address(strikes).call(abi.encodeCall(Strikes.showRows, r));
        check(!isTaken && bytes4(why) == Strikes.NotRevealed.selector, "another seat's");
        r = rowsOf(jobId, 0, 15);
        r.updates[0].seat = 300;
        (isTaken,) = address(strikes).call(abi.encodeCall(Strikes.showRows, r));
        check(!isTaken, "no seat");
        r = rowsOf(jobId, 0, 15);
        r.index = 5_000;
        vm.expectRevert(abi.encodeWithSelector(Strikes.NoSuchCoordinate.selector, 0, 5_000));
        strikes.showRows(r);
        r.index = 100; // in another piece
        (isTaken, why) = address(strikes).call(abi.encodeCall(Strikes.showRows, r));
        check(!isTaken && bytes4(why) == Strikes.WrongPiece.selector, "another piece");
    }

    function test_oneRowThatIsNotCanonicalIsEnough() public {
        uint256 jobId = start(mergeTerms(smallShape()), PROVIDERS, VERIFIERS);
        (section, index) = (0, 7);
        for (uint256 seat = 0; seat < PROVIDERS; seat++) {
            codes[seat] = seat == 2 ? bytes(hex"80") : bytes(hex"01");
        }
        revealMerge(jobId);
        certifyMerge(jobId, hex"01", everybody(15));
        Case memory c = caseOf(jobId, 0, VERIFIERS);
        announceBy(OUTSIDER, c, whatOf());
        strikes.showRows(rowsOf(jobId, 0, 4));
        vm.prank(OUTSIDER);
        strikes.strikeCoordinate(c, proofOf());
        same(members.bondOf(jobId, Role.VERIFIER, 1), BOND / 2, "half a bond is left");
    }

    function test_signerThatStrikesLosesStill() public {
        uint256 jobId = merged(6);
        (uint256 before,,) = stakes.stakeOf(verifier(0), Role.VERIFIER);
        strikeBy(verifier(0), jobId);
        (uint256 after_,,) = stakes.stakeOf(verifier(0), Role.VERIFIER);
        uint256 share = VERIFIERS * BOND / 2 * 3_000 / 10_000;
        same(before - after_, BOND / 2 - share, "its own half, less the share");
        check(share * 2 < VERIFIERS * BOND / 2, "more is burnt than shared");
    }

    function test_signerThatLeftLosesStill() public {
        uint256 jobId = merged(6);
        vm.prank(verifier(1));
        members.leavePool(jobId);
        strikeBy(OUTSIDER, jobId);
        same(members.bondOf(jobId, Role.VERIFIER, 2), BOND / 2, "half a bond is left");
    }

    function test_allSignersAndNobodyElse() public {
        uint256 jobId = merged(6);
        Case memory c = caseOf(jobId, 0, VERIFIERS);
        announceBy(OUTSIDER, c, whatOf());
        strikes.showRows(rowsOf(jobId, 0, 15));
        Coordinate memory p = proofOf();
        c.signers[2] = 9;
        vm.prank(OUTSIDER);
        vm.expectRevert(abi.encodeWithSelector(StrikesBase.NotAMember.selector, 9, 7));
        strikes.strikeCoordinate(c, p);
        c.signers = new uint32[](2);
        (c.signers[0], c.signers[1]) = (1, 2);
        vm.prank(OUTSIDER);
        vm.expectRevert(abi.encodeWithSelector(StrikesBase.NotAllSigners.selector, 4));
        strikes.strikeCoordinate(c, p);
    }

    /// @dev Else the strike is refused when everybody has seen it, and a signer's accomplice announces the same.
    function test_whoSignsJustBeforeAStrikeIsStruckWithTheRest() public {
        ranks = 3;
        uint256 jobId = merged(6);
        Case memory c = caseOf(jobId, 0, VERIFIERS); // with who has not signed
        announceBy(OUTSIDER, c, whatOf());
        strikes.showRows(rowsOf(jobId, 0, 15));
        Coordinate memory p = proofOf();
        uint256 snapshot = vm.snapshotState();
        for (uint256 i = 0; i < 2; i++) {
            bytes memory own = bytes.concat(bytes4(uint32(1)), signatureOf(verifierKey(2), said[jobId][0].digest));
            if (i == 1) rounds.sign(jobId, said[jobId][0].record, 3, own);
            vm.prank(OUTSIDER);
            strikes.strikeCoordinate(c, p);
            same(members.bondOf(jobId, Role.VERIFIER, 1), BOND / 2, "half a bond is left");
            same(members.bondOf(jobId, Role.VERIFIER, 3), i == 0 ? BOND : BOND / 2, "of who has signed");
            vm.revertToState(snapshot);
        }
    }

    function test_notBehindTheWindow() public {
        uint256 jobId = merged(6);
        Case memory c = caseOf(jobId, 0, VERIFIERS);
        announceBy(OUTSIDER, c, whatOf());
        strikes.showRows(rowsOf(jobId, 0, 15));
        Coordinate memory p = proofOf();
        uint256 end = rounds.timesOf(jobId, 0).windowEnd;
        vm.warp(end);
        vm.prank(OUTSIDER);
        vm.expectRevert(abi.encodeWithSelector(StrikesBase.NotNow.selector, end, end));
        strikes.strikeCoordinate(c, p);
    }

    function test_jobThatEnded() public {
        MergeShape memory s = smallShape();
        Terms memory t = mergeTerms(s);
        t.rounds = 1;
        uint256 jobId = start(t, PROVIDERS, VERIFIERS);
        (section, index) = (0, 0);
        for (uint256 seat = 0; seat < PROVIDERS; seat++) {
            codes[seat] = hex"01";
        }
        revealMerge(jobId);
        certifyMerge(jobId, hex"02", everybody(15));
        check(rounds.state(jobId).status == JobStatus.DONE, "done");
        strikeBy(OUTSIDER, jobId);
        check(rounds.state(jobId).status == JobStatus.DONE, "and stays so");
        same(members.bondOf(jobId, Role.VERIFIER, 1), BOND / 2, "half a bond is left");
    }

    function test_updateThatIsNotCanonical() public {
        uint256 jobId = start(mergeTerms(smallShape()), PROVIDERS, VERIFIERS);
        (section, index) = (0, 7);
        for (uint256 seat = 0; seat < PROVIDERS; seat++) {
            codes[seat] = seat == 2 ? bytes(hex"80") : bytes(hex"01");
        }
        revealMerge(jobId);
        certifyMerge(jobId, hex"01", everybody(15));
        strikeBy(OUTSIDER, jobId);
    }

    function test_updateThatIsMissing() public {
        uint256 jobId = began(smallShape());
        certifyMerge(jobId, abi.encodePacked(int8(3)), everybody(7));
        missing(jobId, 1, true); // it is merged
        missing(jobId, 3, false);
        same(members.bondOf(jobId, Role.VERIFIER, 1), BOND / 2, "half a bond is left");
    }

    function missing(uint256 jobId, uint16 seat, bool isThere) private {
        Case memory c = caseOf(jobId, 0, VERIFIERS);
        announceBy(OUTSIDER, c, 2 + uint256(seat));
        vm.prank(OUTSIDER);
        if (isThere) vm.expectRevert(StrikesBase.NothingWrong.selector);
        strikes.strikeMissing(c, seat, uint32(seat) + 1);
    }

    function test_onlyTheHolderOfTheRoundIsMissing() public {
        uint256 jobId = began(smallShape());
        certifyMerge(jobId, abi.encodePacked(int8(3)), everybody(7));
        Case memory c = caseOf(jobId, 0, VERIFIERS);
        announceBy(OUTSIDER, c, 5);
        vm.prank(OUTSIDER);
        vm.expectRevert(abi.encodeWithSelector(Strikes.NotItsHolder.selector, 3, 3));
        strikes.strikeMissing(c, 3, 3);
    }

    function test_statementsThatContradict() public {
        uint256 snapshot = vm.snapshotState();
        for (uint256 kind = 0; kind < 5; kind++) {
            uint256 jobId = began(smallShape());
            certifyLie(jobId, kind);
            Case memory c = caseOf(jobId, 0, VERIFIERS);
            announceBy(OUTSIDER, c, 0);
            vm.prank(OUTSIDER);
            strikes.strikeStatement(c);
            same(members.bondOf(jobId, Role.VERIFIER, 1), BOND / 2, "half a bond is left");
            vm.revertToState(snapshot);
        }
    }

    function certifyLie(uint256 jobId, uint256 kind) private {
        Seats memory who = everybody(15);
        if (kind == 0) return certifyMerge(jobId, hex"05", everybody(23)); // a seat that was not there
        if (kind == 1) (who.merged, who.excluded) = (3, 0); // too few, and two that are nowhere
        if (kind == 2) who.unheard = 3; // more than f
        if (kind == 3) {
            // nothing is said at all
            Verdict memory v = verdictFor(jobId, 15);
            v.statement = 0;
            verdicts[jobId][0] = v;
            return settle(jobId, v);
        }
        if (kind == 4) {
            statement = "no statement";
            return settleStatement(jobId, who);
        }
        certifyMerge(jobId, hex"05", who);
    }

    // --- rounds that merged nothing ---

    function certifyNothing(uint256 jobId, bytes32 state, uint256 excluded, bytes32 statement_) private {
        Verdict memory v = verdictFor(jobId, 0);
        (v.merged, v.excluded, v.state, v.statement) = (0, excluded, state, statement_);
        verdicts[jobId][rounds.state(jobId).round] = v;
        settle(jobId, v);
    }

    function partsOf(Model memory m) private pure returns (bytes memory) {
        return abi.encodePacked(m.paramsRoot, m.outerRoot, m.exponents, m.momentsRoot, m.initialRoot);
    }

    function idsTo(uint32 last) private pure returns (uint32[] memory ids) {
        ids = new uint32[](last);
        for (uint32 i = 0; i < last; i++) {
            ids[i] = i + 1;
        }
    }

    /// @return path of the header in the program of a header and a shape
    function headerPath() private view returns (bytes32[] memory path) {
        path = new bytes32[](1);
        path[0] = Openings.leafNode(keccak256(shapeBytes));
    }

    function announced(uint256 jobId, uint32 round, uint256 what) private returns (Case memory c) {
        c = caseOf(jobId, round, VERIFIERS);
        announceBy(address(this), c, what);
    }

    function carriedIsRefused(Case memory c) private {
        bytes memory head = header();
        vm.expectRevert(StrikesBase.NothingWrong.selector);
        strikes.strikeCarried(c, partsOf(initialModel()), head, headerPath());
    }

    function test_nothingMergedAlthoughEnoughWereThere() public {
        uint256 jobId = began(smallShape());
        certifyNothing(jobId, modelDigest(initialModel(), 1), 0, 0);
        Case memory c = announced(jobId, 0, 1);
        uint32[] memory twice = idsTo(3);
        twice[2] = 1;
        vm.expectRevert(StrikesBase.NothingWrong.selector);
        strikes.strikeNothing(c, twice);
        vm.expectRevert(StrikesBase.NothingWrong.selector);
        strikes.strikeNothing(c, idsTo(2));
        carriedIsRefused(c); // the state is
        strikes.strikeNothing(c, idsTo(3));
        same(members.bondOf(jobId, Role.VERIFIER, 1), BOND / 2, "half a bond is left");
    }

    /// @dev With f = 1 three are needed. Whatever is shown, nobody is struck by it.
    function test_nothingRightlyMergedStands() public {
        had = 3;
        uint256 jobId = began(smallShape());
        certifyNothing(jobId, modelDigest(initialModel(), 1), 0, 0);
        Case memory c = announced(jobId, 0, 1);
        vm.expectRevert(StrikesBase.NothingWrong.selector);
        strikes.strikeNothing(c, idsTo(4));
        for (uint256 i = 0; i < 200; i++) {
            uint256 word = uint256(keccak256(abi.encode(i)));
            bytes memory parts = partsOf(initialModel());
            bytes memory head = header();
            bytes32[] memory path = headerPath();
            if (word % 3 == 0) flip(parts, word >> 8 & 0xffff, word >> 32);
            if (word % 3 == 1) flip(head, word >> 8 & 0xffff, word >> 32);
            if (word % 3 == 2) path[0] ^= bytes32(word | 1);
            try strikes.strikeCarried(c, parts, head, path) {
                check(false, "a state that was carried over is struck");
            } catch {}
        }
        Case memory s = announced(jobId, 0, 0);
        vm.expectRevert(StrikesBase.NothingWrong.selector);
        strikes.strikeStatement(s);
        same(members.bondOf(jobId, Role.VERIFIER, 1), BOND, "the bond is whole");
    }

    function test_anotherStateThoughNothingWasMerged() public {
        had = 3;
        uint256 jobId = began(smallShape());
        certifyNothing(jobId, "another", 0, 0);
        Case memory c = announced(jobId, 0, 1);
        bytes memory parts = partsOf(modelAfter(jobId, 0)); // not what round 0 opens from
        bytes32 given = modelDigest(modelAfter(jobId, 0), 0);
        bytes32 opened = modelDigest(initialModel(), 0);
        bytes memory head = header();
        vm.expectRevert(abi.encodeWithSelector(StrikesBase.WrongStatement.selector, given, opened));
        strikes.strikeCarried(c, parts, head, headerPath());
        strikes.strikeCarried(c, partsOf(initialModel()), head, headerPath());
        same(members.bondOf(jobId, Role.VERIFIER, 1), BOND / 2, "half a bond is left");
    }

    function test_stateOfALaterRoundIsCarriedOver() public {
        for (uint256 i = 0; i < 2; i++) {
            uint256 snapshot = vm.snapshotState();
            uint256 jobId = merged(5);
            had = 3;
            revealMerge(jobId);
            Model memory before = modelAfter(jobId, 0);
            certifyNothing(jobId, i == 0 ? modelDigest(before, 2) : bytes32("another"), 0, 0);
            Case memory c = announced(jobId, 1, 1);
            if (i == 0) vm.expectRevert(StrikesBase.NothingWrong.selector);
            strikes.strikeCarried(c, partsOf(before), "", new bytes32[](0));
            same(members.bondOf(jobId, Role.VERIFIER, 1), i == 0 ? BOND : BOND / 2, "the bond");
            vm.revertToState(snapshot);
        }
    }

    /// @dev Nobody needs the bytes of a statement that no such round has.
    function test_whatNoRoundThatMergedNothingSays() public {
        for (uint256 i = 0; i < 2; i++) {
            uint256 snapshot = vm.snapshotState();
            had = 3;
            uint256 jobId = began(smallShape());
            bytes32 state = modelDigest(initialModel(), 1);
            certifyNothing(jobId, state, i == 0 ? 1 : 0, i == 0 ? bytes32(0) : bytes32("nobody's"));
            Case memory c = announced(jobId, 0, 0);
            c.statement = "";
            strikes.strikeStatement(c);
            same(members.bondOf(jobId, Role.VERIFIER, 1), BOND / 2, "half a bond is left");
            vm.revertToState(snapshot);
        }
    }

    /// @dev A merge that merged somebody is no round that merged nothing.
    function test_aMergeIsNotStruckAsNothing() public {
        uint256 jobId = merged(5);
        Case memory c = announced(jobId, 0, 1);
        vm.expectRevert(StrikesBase.NothingWrong.selector);
        strikes.strikeNothing(c, idsTo(4));
        carriedIsRefused(c);
        vm.expectRevert(abi.encodeWithSelector(Strikes.NotItsHolder.selector, 5, 0));
        strikes.strikeNothing(c, idsTo(5));
    }

    /// @dev Whatever is shown of a merge that is right, nobody is struck by it.
    function testFuzz_rightMergeStands(uint256 what, uint256 where, uint256 how) public {
        uint256 jobId = merged(5);
        Case memory c = caseOf(jobId, 0, VERIFIERS);
        ShownRows memory r = rowsOf(jobId, 0, 15);
        Coordinate memory p = proofOf();
        uint256 key = whatOf();
        what %= 12;
        if (what == 0) flip(c.statement, where, how);
        else if (what == 1) flip(c.shape, where, how);
        else if (what == 2) flip(p.merged.data, where, how);
        else if (what == 3) flip(r.updates[where % 4].pieces[0].data, how, where);
        else if (what == 4) p.size += uint64(how % 100 + 1);
        else if (what == 5) r.updates[where % 4].size ^= uint64(how);
        else if (what == 6) r.updates[where % 4].committed.updateRoot ^= bytes32(how | 1);
        else if (what == 7) r.updates[where % 4] = r.updates[(where % 4 + 1) % 4];
        else if (what == 8) r.reveals[where % 4].commitment ^= bytes32(how | 1);
        else if (what == 9) (p.index, r.index) = (uint64(how % 6_000), uint64(how % 6_000));
        else if (what == 10) (p.section, r.section) = (uint8(how), uint8(how));
        else c.verdict.merged ^= uint16(how | 1);
        if (what == 9 || what == 10) key = ((uint256(p.section) + 1) << 64) + p.index;
        announceBy(OUTSIDER, c, key);
        (bool isShown,) = address(strikes).call(abi.encodeCall(Strikes.showRows, r));
        if (!isShown) strikes.showRows(rowsOf(jobId, 0, 15));
        vm.prank(OUTSIDER);
        (bool isStruck,) = address(strikes).call(abi.encodeCall(Strikes.strikeCoordinate, (c, p)));
        check(!isStruck, "a true merge is struck");
        same(members.bondOf(jobId, Role.VERIFIER, 1), BOND, "the bond is whole");
    }

    /// @dev Each flips some bits of what is shown of a merge that is right, and puts them back: of rows, which are
    /// refused, and of what strikes, with the true rows shown and with none.
    function test_tenThousandMutatedProofsOfARightMerge() public {
        uint256 jobId = merged(5);
        Case memory c = caseOf(jobId, 0, VERIFIERS);
        ShownRows memory r = rowsOf(jobId, 0, 15);
        Coordinate memory p = proofOf();
        announceBy(address(this), c, whatOf());
        for (uint256 i = 0; i < 10_000; i++) {
            if (i == 5_000) strikes.showRows(r);
            uint256 word = uint256(keccak256(abi.encode(i)));
            bool isOfRows = mutate(c, r, p, word);
            if (isOfRows) {
                try strikes.showRows(r) {
                    check(false, "a row that is not the update's is kept");
                } catch {}
            }
            try strikes.strikeCoordinate(c, p) {
                check(false, "a true merge is struck");
            } catch {}
            mutate(c, r, p, word);
        }
        same(strikes.shownOf(jobId, 0, whatOf()), 15, "the true rows");
        same(members.bondOf(jobId, Role.VERIFIER, 1), BOND, "the bond is whole");
    }

    /// @return isOfRows whether it is the rows that are other ones
    function mutate(Case memory c, ShownRows memory r, Coordinate memory p, uint256 word)
        private
        pure
        returns (bool isOfRows)
    {
        (uint256 what, uint256 where, bytes32 bits) = (word % 20, word >> 16 & 0xffff, bytes32(word | 1));
        Opened memory update = r.updates[word >> 8 & 3];
        isOfRows = what < 12;
        if (what == 0) flip(update.pieces[0].data, where, word >> 32);
        else if (what == 1) update.size ^= uint64(1 << where % 64);
        else if (what == 2) update.committed.updateRoot ^= bits;
        else if (what == 3) update.committed.salt ^= bits;
        else if (what == 4) update.pieces[0].path[where % update.pieces[0].path.length] ^= bits;
        else if (what == 5) update.seat ^= uint16(1 << where % 16);
        else if (what == 6) r.reveals[word >> 8 & 3].commitment ^= bits;
        else if (what == 7) r.reveals[word >> 8 & 3].seat ^= uint16(1 << where % 16);
        else if (what == 8) r.record.available ^= 1 << where % 256;
        else if (what == 9) r.record.seed ^= bits;
        else if (what == 10) flip(r.shape, where, word >> 32);
        else if (what == 11) r.index ^= uint64(1 << (11 + where % 53)); // of another piece, or nowhere
        else if (what == 12) flip(c.statement, where, word >> 32);
        else if (what == 13) flip(c.shape, where, word >> 32);
        else if (what == 14) flip(p.merged.data, where, word >> 32);
        else if (what == 15) p.size ^= uint64(1 << where % 64);
        else if (what == 16) p.merged.path[where % p.merged.path.length] ^= bits;
        else if (what == 17) c.record.available ^= 1 << where % 256;
        else if (what == 18) p.index ^= uint64(1 << where % 64);
        else c.verdict.excluded ^= 1 << where % 256;
    }

    function flip(bytes memory data, uint256 where, uint256 how) private pure {
        data[where % data.length] ^= bytes1(uint8(how % 255 + 1));
    }

    // --- gas ---

    /// @dev README.md and SECURITY.md have these numbers: of 64 seats of a billion parameters every call is within what
    /// nodes take, in bytes and in gas.
    function test_64SeatsOfABillionAreStruckInCallsThatNodesTake() public {
        uint8[4] memory calls = [2, 2, 3, 3]; // that show rows, of grid8, grid4, two_bit, sign
        for (uint256 codec = 0; codec < 4; codec++) {
            uint256 snapshot = vm.snapshotState();
            measure(codec, calls[codec]);
            vm.revertToState(snapshot);
        }
    }

    function measure(uint256 codec, uint256 calls) private {
        Meter meter = new Meter();
        uint256 jobId = billionMerged(codec, 64);
        Case memory c = caseOf(jobId, 0, 32);
        announceBy(address(meter), c, whatOf());
        uint256 total;
        for (uint256 i = 0; i < calls; i++) {
            uint256 from = i * 64 / calls;
            uint256 seats = Bits.firstBits((i + 1) * 64 / calls) ^ Bits.firstBits(from);
            total += take(meter, abi.encodeCall(Strikes.showRows, rowsOf(jobId, 0, seats)), 6_000_000);
        }
        total += take(meter, abi.encodeCall(Strikes.strikeCoordinate, (c, proofOf())), 6_000_000);
        atMost(total, codec < 2 ? 12_000_000 : 16_000_000, "gas of all calls");
        same(members.bondOf(jobId, Role.VERIFIER, 1), BOND / 2, "half a bond is left");
    }

    /// @return used gas of a transaction, with its bytes as if none were zero
    function take(Meter meter, bytes memory call_, uint256 most) private returns (uint256 used) {
        bool isTaken;
        (isTaken, used) = meter.gasOf(address(strikes), call_);
        check(isTaken, "taken");
        (uint256 data, uint256 floor) = (21_000 + 16 * call_.length, 21_000 + 40 * call_.length); // EIP-7623
        used = used + data > floor ? used + data : floor;
        atMost(used, most, "gas");
        atMost(call_.length, MOST_CALLDATA, "bytes of a call");
    }

    /// @return jobId of a false merge of so many seats
    function billionMerged(uint256 codec, uint256 seats) private returns (uint256 jobId) {
        jobId = start(billion(codec, seats), seats, 32);
        (section, index) = (1, 777_777_777);
        for (uint256 seat = 0; seat < seats; seat++) {
            codes[seat] = codec == 0 ? abi.encodePacked(uint8(seat)) : codec == 1 ? bytes(hex"39") : bytes(hex"11a7");
        }
        revealMerge(jobId);
        Seats memory who = everybody(Bits.firstBits(seats));
        who.groups = new uint256[](seats);
        uint256 f = (seats - 1) / 3;
        for (uint256 i = 0; i < seats; i++) {
            who.groups[i] = Bits.firstBits(seats - f) << (i % (f + 1));
        }
        certifyMerge(jobId, hex"7f", who);
    }

    function billion(uint256 codec, uint256 seats) private returns (Terms memory t) {
        MergeShape memory s;
        (s.rule, s.mixes, s.codec, s.tensors, s.values) = (3, true, codec, 150, 1_000_000_000);
        (s.momentTensors, s.momentValues, s.factoredBytes) = (150, 1_000_000_000, 4_000_000);
        t = mergeTerms(s);
        (t.seats, t.f, t.slots, t.rounds) = (uint16(seats), uint8((seats - 1) / 3), 32, 1);
    }
}
