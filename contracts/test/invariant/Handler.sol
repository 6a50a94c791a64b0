// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {Evidence} from "../../src/judge/Claims.sol";
import {Claim} from "../../src/judge/IClaims.sol";
import {Earned} from "../../src/interfaces/IHooks.sol";
import {Escrow} from "../../src/interfaces/IJobs.sol";
import {Bits} from "../../src/libraries/Bits.sol";
import {Hashing} from "../../src/libraries/Hashing.sol";
import {Shown} from "../../src/libraries/Reveals.sol";
import "../../src/types/Types.sol";
import {Network} from "../support/Network.sol";

/// @title Two jobs, and people who do what they should, or do not, in any order.
/// @dev What the rules refuse is refused: actions that may be too early or too late are tried and
/// may fail. What must hold after all of them is in Invariants.t.sol.
contract Handler is Network {
    using Bits for uint256;

    uint256 internal constant JOBS = 2;

    uint256[2] public jobIds;
    uint256 public people; // made so far
    address[] internal accounts; // a provider's and a verifier's of each
    uint256 public paidOut; // tokens that claims sent
    uint256 public done; // actions that were not refused
    uint256 public withheld; // fees that wait for a game, or did
    uint256 public forged; // settlements by who was a committee before
    bool private _isTrying;
    mapping(uint256 jobId => Claim[]) internal open; // games
    mapping(bytes32 position => uint64) internal gameAbout; // the newest
    mapping(uint256 jobId => mapping(uint32 round => bytes32)) internal finalRows;
    mapping(uint256 jobId => address[]) private _before; // the last committee that settled

    constructor() {
        setUp();
        for (uint256 i = 0; i < JOBS; i++) {
            Terms memory t = defaultTerms();
            (t.rounds, t.minProviders, t.auditRate) = (12, 3, 0); // everybody is drawn
            (t.auditSeconds, t.openSeconds, t.keySeconds) = (200, 300, 300); // so that many of them are hit
            (t.gameSeconds, t.windowSeconds) = (200, 400);
            // Of one of the jobs pay is retained, and seats come down.
            if (i == 1) (t.auditRate, t.rateSteps, t.providerBond) = (1, 4, 1 ether);
            jobIds[i] = create(t);
            for (uint16 k = 0; k < 4; k++) {
                uint256 n = newcomer();
                join(jobIds[i], n, k);
                if (k < 3) enrol(jobIds[i], n, k);
            }
            nextBlock();
            rounds.advance(jobIds[i]);
        }
    }

    modifier tried() {
        if (_isTrying) {
            _;
        } else {
            _isTrying = true; // the caller does not tell: any address may be drawn as one, this one, too
            (bool ok,) = address(this).call(msg.data);
            _isTrying = false;
            if (ok) done++;
        }
    }

    function newcomer() internal returns (uint256 n) {
        n = people++;
        accounts.push(provider(n));
        accounts.push(verifier(n));
    }

    function pick(uint256 i) internal view returns (uint256) {
        return jobIds[i % JOBS];
    }

    // --- rounds ---

    /// @param who which of those that are waited for; `how` decides what it says
    function step(uint256 i, uint256 who, uint256 how) external tried {
        uint256 jobId = pick(i);
        RoundState memory s = rounds.state(jobId);
        if (s.phase == Phase.TRAIN) commitSeat(jobId, chosen(s.waiting, who), workOf(jobId, s, who));
        else if (s.phase == Phase.REVEAL) revealSeat(jobId, chosen(s.waiting, who), workOf(jobId, s, who));
        else if (s.phase == Phase.MERGE) speak(jobId, s, who, how);
        else if (s.phase == Phase.WAITING) refill(jobId);
        nextBlock();
    }

    function workOf(uint256 jobId, RoundState memory s, uint256 who) internal view returns (Reveal memory) {
        uint16 seat = chosen(s.waiting, who);
        return revealFor(jobId, seat, segmentsOf(jobId, s.round, seat));
    }

    /// @dev The same when it commits and when it reveals: one seat in some rounds does fewer.
    function segmentsOf(uint256 jobId, uint32 round, uint16 seat) internal pure returns (uint256) {
        uint256 x = uint256(keccak256(abi.encode(jobId, round, seat))) % 12;
        if (x == 3) return 0;
        return x < 3 ? 4 + 2 * x : 8;
    }

    function chosen(uint256 bitmap, uint256 who) internal pure returns (uint16) {
        for (uint256 k = who % bitmap.popcount(); k > 0; k--) {
            bitmap &= bitmap - 1;
        }
        return bitmap.lowest();
    }

    function speak(uint256 jobId, RoundState memory s, uint256 who, uint256 how) internal {
        bytes storage slots = said[jobId][s.round].slots;
        for (uint256 k = 0; k < slots.length; k++) {
            s.committee &= ~Bits.bit(uint8(slots[k]));
        }
        if (block.timestamp >= s.deadline || s.committee == 0) return conclude(jobId, how);
        uint256 has = how % 5 == 0 ? how >> 8 & 15 : 15;
        castVote(jobId, chosen(s.committee, who), has);
    }

    /// @dev Settles with two or all of the members, leaving somebody out now and then; or late.
    function conclude(uint256 jobId, uint256 how) internal {
        RoundState memory s = rounds.state(jobId);
        uint256 available = availableOf(said[jobId][s.round].has, s.committee.popcount()) & s.seated;
        Verdict memory v = verdictFor(jobId, available);
        if (how % 7 == 0 && available != 0) (v.excluded, v.merged) = (available & (~available + 1), v.merged - 1);
        if (how % 11 == 0) v.merged = 0;
        uint256 members_ = s.committee.popcount();
        uint256 signers = how % 3 == 0 ? (2 * members_ + 2) / 3 : members_;
        bytes memory signed = certificate(jobId, digestFor(jobId, v), s.committee, Bits.firstBits(signers));
        noteRecord(jobId, v);
        Certified memory shown = Certified(v, accountsOf(jobId, s.committee), signed);
        if (isForged(jobId, s.round, shown)) return;
        _before[jobId] = shown.accounts;
        if (how % 2 == 0) shown.accounts = new address[](0);
        rounds.settle(jobId, said[jobId][s.round].slots, said[jobId][s.round].has, shown);
    }

    /// @dev Signatures of no member of the committee are left out: those who are in both have signed.
    /// @return whether the committee before settles, by showing itself, a round that is another's
    function isForged(uint256 jobId, uint32 round, Certified memory shown) private returns (bool) {
        (address[] memory theirs, address[] memory own) = (_before[jobId], shown.accounts);
        uint256 shared;
        bytes memory signed = abi.encodePacked(uint32(theirs.length.firstBits()));
        for (uint256 i = 0; i < theirs.length; i++) {
            if (i < own.length && theirs[i] == own[i]) shared++;
            signed = bytes.concat(signed, signatureOf(keyOfMember(theirs[i]), digestFor(jobId, shown.verdict)));
        }
        if (theirs.length == 0 || shared >= (2 * own.length + 2) / 3) return false;
        Certified memory lie = Certified(shown.verdict, theirs, signed);
        try rounds.settle(jobId, said[jobId][round].slots, said[jobId][round].has, lie) {
            forged++;
            return true;
        } catch {
            return false;
        }
    }

    function refill(uint256 jobId) internal {
        RoundState memory s = rounds.state(jobId);
        for (uint16 seat = 0; seat < 4; seat++) {
            if (s.owing.has(seat)) members.penaliseSeat(jobId, seat);
            if (!s.held.has(seat)) join(jobId, newcomer(), seat);
        }
        for (uint16 slot = 0; slot < 3; slot++) {
            if (!s.ready.has(slot)) try this.enrolOne(jobId, slot) {} catch {}
        }
        nextBlock();
        rounds.advance(jobId);
    }

    function enrolOne(uint256 jobId, uint16 slot) external {
        enrol(jobId, newcomer(), slot);
    }

    function skip(uint256 time) external {
        vm.warp(block.timestamp + within(time, 1, 400));
        vm.roll(block.number + 1);
    }

    /// @dev Nobody comes in time: missed duties, or another committee draw.
    function pass(uint256 i) external tried {
        uint256 jobId = pick(i);
        RoundState memory s = rounds.state(jobId);
        if (s.deadline > block.timestamp) vm.warp(s.deadline);
        if (s.phase == Phase.MERGE) return nextCommittee(jobId);
        rounds.advance(jobId);
    }

    // --- members ---

    function leaveSeat(uint256 i, uint256 who) external tried {
        (uint256 jobId, RoundState memory s) = (pick(i), rounds.state(pick(i)));
        vm.prank(accountOf(jobId, chosen(s.held, who)));
        members.leaveSeat(jobId);
    }

    function joinSeat(uint256 i, uint256 who) external tried {
        uint256 jobId = pick(i);
        uint16 seat = uint16(who % 4);
        if (rounds.state(jobId).owing.has(seat)) members.penaliseSeat(jobId, seat);
        join(jobId, newcomer(), seat);
    }

    function outbid(uint256 i, uint256 who) external tried {
        (uint256 jobId, uint256 n) = (pick(i), newcomer());
        uint256 bond = BOND * 2 + n * 1 ether;
        stakeUp(verifier(n), Role.VERIFIER, bond);
        vm.startPrank(verifier(n));
        members.enrol(jobId, uint16(who % 3), uint128(bond), enrolment(n, jobId, uint16(who % 3), bond));
        try members.ready(jobId) {} catch {} // who outbids is ready already
        vm.stopPrank();
    }

    function disagree(uint256 i, uint256 who) external tried {
        (uint256 jobId, RoundState memory s) = (pick(i), rounds.state(pick(i)));
        vm.prank(accountOf(jobId, chosen(s.waiting, who)));
        members.disagree(jobId, s.seed, "another");
    }

    function penaliseMember(uint256 i, uint256 round, uint256 id) external tried {
        members.penaliseMember(pick(i), aRound(i, round), uint32(within(id, 1, 12)));
    }

    function release(uint256 i, uint256 role, uint256 id) external tried {
        members.release(pick(i), Role(role % 2), uint32(within(id, 1, 30)));
    }

    // --- audits ---

    function aRound(uint256 i, uint256 round) internal view returns (uint32) {
        uint32 settled = rounds.state(pick(i)).round;
        return settled == 0 ? 0 : uint32(within(round, settled > 4 ? settled - 4 : 0, settled - 1));
    }

    function aMember(uint256 i, uint256 slot) internal view returns (uint32 id) {
        (, id,) = rounds.slotHolder(pick(i), uint16(slot % 3));
    }

    /// @param how whether it looked, guessed or accuses
    function auditReportOne(uint256 i, uint256 round, uint256 id, uint256 how) external tried {
        (uint256 jobId, uint32 r, uint32 member) = (pick(i), aRound(i, round), aMember(i, id));
        auditReportBody(jobId, r, member, bodyOf(jobId, r, member, how));
        bodies[jobId][r][member] = bodyOf(jobId, r, member, how);
    }

    mapping(uint256 jobId => mapping(uint32 round => mapping(uint32 id => bytes))) internal bodies;

    function bodyOf(uint256 jobId, uint32 r, uint32 member, uint256 how) internal view returns (bytes memory body) {
        Holder memory m = members.holderOf(jobId, Role.VERIFIER, member);
        uint256 duties = dutiesOf(jobId, r, m.index);
        if (how % 3 != 0) return validBody(jobId, r, duties, m.account);
        for (; duties != 0; duties &= duties - 1) {
            uint16 from = how % 2 == 0 ? type(uint16).max : uint16(how >> 8) % 8;
            body = abi.encodePacked(body, uint8(duties.lowest()), from, keccak256("guess"));
        }
    }

    /// @dev Whatever was sealed and can be opened now, but for one member that forgets.
    function openAll(uint256 i, uint256 forgets) external {
        uint256 jobId = pick(i);
        for (uint256 k = 0; k < 12; k++) {
            (uint32 r, uint32 member) = (aRound(i, k / 3), aMember(i, k));
            if (bodies[jobId][r][member].length == 0 || k == forgets % 24) continue;
            try this.openOne(jobId, r, member) {
                done++;
            } catch {}
        }
    }

    function openOne(uint256 jobId, uint32 r, uint32 member) external {
        openBody(jobId, r, member, bodies[jobId][r][member]);
    }

    function keyOne(uint256 i, uint256 round, uint256 seat, uint256 how) external tried {
        (uint256 jobId, uint32 r, uint16 s) = (pick(i), aRound(i, round), uint16(seat % 4));
        showKey(jobId, r, s, how % 6 == 0 ? bytes32("wrong") : keyOf(jobId, r, s));
    }

    function contestOne(uint256 i, uint256 round, uint256 id, uint256 seat) external tried {
        (uint256 jobId, uint32 r, uint16 s) = (pick(i), aRound(i, round), uint16(seat % 4));
        uint32 member = aMember(i, id);
        Shown memory shown = shownFor(jobId, r, s);
        bytes32 key = keyOf(jobId, r, s);
        vm.prank(OUTSIDER);
        audits.contest(shown, member, bodies[jobId][r][member], key);
    }

    /// @dev The fee of who called a seat valid waits for a game about it.
    function withholdOne(uint256 i, uint256 which, uint256 id) external tried {
        uint256 jobId = pick(i);
        Claim memory c = open[jobId][which % open[jobId].length];
        uint32 member = aMember(i, id);
        vm.prank(OUTSIDER);
        audits.withhold(
            jobId, c.round, member, uint32(uint256(c.set)), gameAbout[c.position], bodies[jobId][c.round][member]
        );
        withheld++;
    }

    function settleContestOne(uint256 i, uint256 round, uint256 id, uint256 seatId) external tried {
        audits.settleContest(pick(i), aRound(i, round), aMember(i, id), uint32(within(seatId, 1, 12)));
    }

    function leakOne(uint256 i, uint256 round, uint256 seat) external tried {
        (uint256 jobId, uint32 r, uint16 s) = (pick(i), aRound(i, round), uint16(seat % 4));
        Shown memory shown = shownFor(jobId, r, s);
        bytes32 key = keyOf(jobId, r, s);
        vm.prank(OUTSIDER);
        audits.leak(shown, key);
    }

    /// @param how which of the things that follow from silence
    function punish(uint256 i, uint256 round, uint256 who, uint256 how) external tried {
        (uint256 jobId, uint32 r) = (pick(i), aRound(i, round));
        RoundRecord memory f = said[jobId][r].record;
        uint32 id = aMember(i, who);
        uint16 seat = uint16(who >> 8) % 4;
        Shown memory shown = shownFor(jobId, r, seat);
        vm.prank(OUTSIDER); // whose stake the winner's share is
        if (how % 3 == 0) audits.reportMissingKey(shown);
        else if (how % 3 == 1) audits.absent(jobId, r, id, seat, f, bodies[jobId][r][id]);
        else audits.dropped(jobId, r, id, seat, uint32(seat) + 1, bodies[jobId][r][id]);
    }

    // --- games ---

    function challengeOne(uint256 i, uint256 round, uint256 seat, uint256 segment) external tried {
        uint256 jobId = pick(i);
        uint32 r = aRound(i, round);
        Evidence memory e = evidenceFor(jobId, r == 0 ? 1 : r, uint16(seat % 4), uint32(segment % 8));
        Claim memory c = game.challenge(abi.encode(e));
        open[jobId].push(c);
        gameAbout[c.position] = uint64(game.games());
    }

    function endGame(uint256 i, uint256 which, bool slashes) external tried {
        uint256 jobId = pick(i);
        Claim[] storage games = open[jobId];
        Claim memory c = games[which % games.length];
        games[which % games.length] = games[games.length - 1];
        games.pop();
        if (game.openGames(c.set) == 0) return; // another one ended the set
        if (slashes) game.holderLoses(c, OUTSIDER);
        else game.holderWins(c);
    }

    // --- money ---

    function claimOne(uint256 i, uint256 role, uint256 id, uint256 to) external tried {
        uint256 before = token.balanceOf(address(jobs));
        uint32 settled = rounds.state(pick(i)).round;
        jobs.claim(pick(i), Role(role % 2), uint32(within(id, 1, 8)), uint32(within(to, 1, settled)));
        paidOut += before - token.balanceOf(address(jobs));
    }

    function creditOne(uint256 i) external tried {
        jobs.claimCredit(pick(i), OUTSIDER);
    }

    function burnOne(uint256 i, uint256 to) external tried {
        jobs.burn(pick(i), uint32(within(to, 1, 12)));
    }

    function refundOne(uint256 i) external tried {
        jobs.refund(pick(i));
    }

    function sinkAll() external {
        jobs.sink();
        stakes.burn();
    }

    function cancelOne(uint256 i, uint256 dice) external tried {
        if (dice % 16 != 0) return;
        vm.prank(SUBMITTER);
        jobs.cancel(pick(i));
    }

    // --- what invariants read ---

    /// @dev All that the settled rounds may earn, in wei.
    function mayEarn(uint256 jobId) external view returns (uint256 total) {
        uint32 settled = rounds.state(jobId).round;
        for (uint32 r = 0; r < settled; r++) {
            (uint256 pay, uint256 lost, uint256 signed) = rounds.rowsOf(jobId, r);
            for (uint16 seat = 0; seat < 4; seat++) {
                if ((pay | lost).has(seat)) total += rounds.segmentsOf(jobId, r, seat) * segmentPay();
            }
            uint256 duties = said[jobId][r].record.revealed == 0 ? 4 : drawn(jobId, r).popcount();
            total += signed.popcount() * 1 ether + duties * 10 ether;
        }
    }

    /// @return rows segments of all seats that are paid or could be
    /// @return counted what the escrow is told of them
    function segments(uint256 jobId) external view returns (uint256 rows, uint256 counted) {
        uint32 settled = rounds.state(jobId).round;
        for (uint32 r = 0; r < settled; r++) {
            (uint256 pay, uint256 lost,) = rounds.rowsOf(jobId, r);
            for (uint256 left = pay | lost; left != 0; left &= left - 1) {
                rows += rounds.segmentsOf(jobId, r, left.lowest());
            }
        }
        (,, Earned memory earned) = rounds.statusOf(jobId);
        counted = earned.segments;
    }

    function progress() external view returns (uint256 settled, uint256 slashes, uint256 missedDuties, uint256 opened) {
        for (uint256 i = 0; i < JOBS; i++) {
            uint256 jobId = jobIds[i];
            settled += rounds.state(jobId).round;
            for (uint32 id = 1; members.holderOf(jobId, Role.PROVIDER, id).account != address(0); id++) {
                bool isSlashed = members.holderOf(jobId, Role.PROVIDER, id).isSlashed;
                if (isSlashed) slashes++;
                uint256 bond = members.bondOf(jobId, Role.PROVIDER, id);
                if (!isSlashed && bond != 0 && bond < jobs.termsOf(jobId).providerBond) missedDuties++;
            }
            for (uint32 id = 1; members.holderOf(jobId, Role.VERIFIER, id).account != address(0); id++) {
                address account = members.holderOf(jobId, Role.VERIFIER, id).account;
                opened += audits.dutiesOf(jobId, account, 0, rounds.state(jobId).round);
            }
        }
    }

    /// @return sum of all accounts' active and unbonding stake
    function staked() external view returns (uint256 sum) {
        for (uint256 i = 0; i < accounts.length; i++) {
            sum += sumOf(accounts[i]);
        }
        return sum + sumOf(OUTSIDER);
    }

    function sumOf(address account) internal view returns (uint256 sum) {
        for (uint256 role = 0; role < 2; role++) {
            (uint256 active, uint256 locked, uint256 unbonding) = stakes.stakeOf(account, Role(role));
            atMost(locked, active, "locked");
            sum += active + unbonding;
        }
    }

    function escrows() external view returns (Escrow[2] memory e, uint256 tokens) {
        for (uint256 i = 0; i < JOBS; i++) {
            e[i] = jobs.escrowOf(jobIds[i]);
        }
        return (e, token.balanceOf(address(jobs)) - jobs.unburnt());
    }

    function stakesTokens() external view returns (uint256) {
        return token.balanceOf(address(stakes)) - stakes.unburnt();
    }

    /// @dev Rows of rounds whose windows are over are noted once, and then compared.
    function requireFinalRowsStand() external {
        for (uint256 i = 0; i < JOBS; i++) {
            uint32 settled = rounds.state(jobIds[i]).round;
            for (uint32 r = 0; r < settled; r++) {
                if (block.timestamp < rounds.timesOf(jobIds[i], r).windowEnd) continue;
                (uint256 pay, uint256 lost,) = rounds.rowsOf(jobIds[i], r);
                bytes32 row = keccak256(abi.encode(pay, lost));
                if (finalRows[jobIds[i]][r] == 0) finalRows[jobIds[i]][r] = row;
                same(finalRows[jobIds[i]][r], row, "what is final");
            }
        }
    }

    /// @dev After the absolute end: whoever comes gets all locks, all pay, all of the escrow home.
    function drain() external {
        for (uint256 i = 0; i < JOBS; i++) {
            uint256 jobId = jobIds[i];
            vm.warp(rounds.absoluteEnd(jobId));
            for (uint256 k = 0; k < open[jobId].length; k++) {
                if (game.openGames(open[jobId][k].set) != 0) game.holderWins(open[jobId][k]);
            }
            try rounds.advance(jobId) {} catch {}
            inPhase(jobId, Phase.CLOSED);
            uint32 settled = rounds.state(jobId).round;
            for (uint256 role = 0; role < 2; role++) {
                for (uint32 id = 1; members.holderOf(jobId, Role(role), id).account != address(0); id++) {
                    drainHolder(jobId, Role(role), id, settled);
                }
            }
            if (settled > 0) try jobs.burn(jobId, settled) {} catch {}
            same(members.openSlashes(jobId), 0, "slashes unclaimed");
            jobs.claimCredit(jobId, OUTSIDER);
            for (uint256 n = 0; n < people; n++) {
                jobs.claimCredit(jobId, accounts[2 * n + 1]);
            }
            vm.warp(rounds.absoluteEnd(jobId) + defaultTerms().claimSeconds);
            jobs.refund(jobId);
            same(jobs.escrowOf(jobId).balance, 0, "of the escrow");
        }
        same(token.balanceOf(address(jobs)), jobs.unburnt(), "tokens of the escrow");
    }

    function drainHolder(uint256 jobId, Role role, uint32 id, uint32 settled) internal {
        Holder memory m = members.holderOf(jobId, role, id);
        uint32 to = m.to < settled ? m.to : settled;
        if (to >= m.from && jobs.claimedTo(jobId, role, id) <= to) try jobs.claim(jobId, role, id, to) {} catch {}
        uint32 first = jobs.claimedTo(jobId, role, id);
        check(first >= to || to <= m.from, "all of its rounds are claimed");
        if (!m.isReleased) members.release(jobId, role, id);
        same(lockedOf(m.account, role), 0, "a bond");
    }
}
