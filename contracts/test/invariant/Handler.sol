// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {Bits} from "../../src/libraries/Bits.sol";
import "../../src/types/Types.sol";
import {Network} from "../support/Network.sol";

/// @title Everyone at once, in any order: whatever is possible in the current phase, chosen by the fuzzer.
/// @dev Each action checks for itself that it is allowed, so any revert is a failure of the contracts.
contract Handler is Network {
    using Bits for uint256;

    uint256 public constant MOST_PROVIDERS = 40;
    uint256 public constant MOST_VERIFIERS = 20;
    uint256 public constant PLACES = 6; // for verifiers, by the terms

    uint256 public providers; // that ever came
    uint256 public verifiers;

    uint256 public jobId;
    uint256 public deposited; // ghost: stake that ever came in
    uint256 public withdrawn; // ghost: stake that went out to its owners
    uint256 public paidOut; // ghost: what claims moved
    uint256 public funded; // ghost: what the submitter moved
    uint256 public roundsSettled; // ghosts: to see that the runs get somewhere
    uint256 public punishments;
    uint256 public slashedSeats;
    uint256 public challenges;
    mapping(uint256 round => uint256) public missed; // ghost: seats that missed
    mapping(uint256 round => mapping(uint256 offence => uint256)) public punished; // ghost: bitmaps
    mapping(uint256 round => uint256) public reported; // ghost: number of reports
    mapping(address => mapping(Role => uint256[])) internal exits;

    constructor() {
        setUp();
        Terms memory t = defaultTerms();
        (t.rounds, t.seats, t.minVerifiers, t.maxVerifiers) = (40, 5, 2, uint16(PLACES));
        (t.attempts, t.pricePerToken, t.verifierFee) = (8, 1 gwei, 1 gwei);
        t.expiry = uint64(block.timestamp + 365 days);
        jobId = create(t);
        funded = jobs.budget(t);
        for (uint256 i = 0; i < 6; i++) {
            enterProvider();
        }
        for (uint256 i = 0; i < 5; i++) {
            enterVerifier();
        }
    }

    // --- the round ---

    /// The next few things that the phase allows, by members of the fuzzer's choice.
    function act(uint256 seed) external {
        for (uint256 i = 0; i <= seed % 8; i++) {
            actOnce(uint256(keccak256(abi.encode(seed, i))));
        }
    }

    function actOnce(uint256 seed) internal {
        RoundState memory s = rounds.state(jobId);
        Phase now_ = s.phase;
        if (s.deadline != 0 && block.timestamp >= s.deadline) pass(seed);
        else if (now_ == Phase.TRAIN) trainOne(seed);
        else if (now_ == Phase.REVEAL) revealSome(seed);
        else if (now_ == Phase.REPORT) ballotOne(seed);
        else if (now_ == Phase.CONFIRM) voteOne(seed);
        else if (now_ == Phase.ATTEST) settleNow();
        else pass(seed);
    }

    /// Time passes until something is due, and someone notices.
    function pass(uint256 seed) public {
        RoundState memory s = rounds.state(jobId);
        if (s.phase == Phase.CLOSED) return;
        if (s.phase == Phase.WAITING) return openIfPossible();
        if (s.phase == Phase.HALTED) return rounds.reaudit(jobId);
        if (s.phase == Phase.TRAIN && s.committed == 0) missed[s.round] |= s.seated;
        if (s.phase == Phase.REVEAL) missed[s.round] |= s.seated & ~s.revealed;
        if (s.deadline != 0) {
            if (block.timestamp < s.deadline) vm.warp(s.deadline);
            mine(1);
            return rounds.poke(jobId);
        }
        if (seed % 8 == 0) mine(300);
        passBeacon(jobId);
    }

    function trainOne(uint256 seed) internal {
        RoundState memory s = rounds.state(jobId);
        uint16 seat = pick(s.seated & ~s.committed, seed);
        Reveal memory r = revealFor(jobId, seat);
        commitOne(jobId, seat, r);
    }

    function revealSome(uint256 seed) internal {
        RoundState memory s = rounds.state(jobId);
        uint16 seat = pick(s.committed & ~s.revealed, seed);
        bool last = (s.revealed | Bits.bit(seat)) == s.committed;
        if (last) missed[s.round] |= s.seated & ~s.committed;
        revealOne(jobId, seat, revealFor(jobId, seat));
    }

    mapping(uint256 attemptKey => uint256) internal balloted;

    function ballotOne(uint256 seed) internal {
        RoundState memory s = rounds.state(jobId);
        uint256 key = uint256(keccak256(abi.encode(s.round, s.attempt)));
        uint256 left = s.verifiers & ~balloted[key];
        if (settleChallenge(s, seed >> 16) || raiseChallenge(s, seed >> 24)) return;
        if (left == 0) return pass(seed);
        uint16 v = pick(left, seed);
        balloted[key] |= Bits.bit(v);
        uint16 accused = pick(s.auditSet, seed >> 8);
        (address account,) = roster.verifierHolder(jobId, v);
        bool reports = seed % 8 == 0 && freeOf(account, Role.VERIFIER) >= 5 ether;
        uint256 seats = reports ? s.auditSet & ~Bits.bit(accused) : s.auditSet;
        // One segment a round and seat, so that reports meet: the second of the same is a second, not a report.
        Report[] memory filed = reports ? oneReport(accused, 0, Fault.WRONG_REPLAY) : noReports();
        ballotBy(jobId, v, seats, filed);
        countReports(s.round);
    }

    mapping(uint256 attemptKey => uint256) internal challenged; // ghost: reports that wait for their block
    mapping(uint256 attemptKey => uint256) internal raised; // ghost: how many there were

    function blockOf(uint256 round, uint256 index) internal pure returns (bytes memory) {
        return abi.encode("block", round, index);
    }

    function raiseChallenge(RoundState memory s, uint256 seed) internal returns (bool) {
        uint16 v = pick(s.verifiers, seed);
        (address account,) = roster.verifierHolder(jobId, v);
        bool raises = seed % 5 == 0 && block.timestamp + 150 < s.deadline && reported[s.round] < 200;
        uint256 key = uint256(keccak256(abi.encode(s.round, s.attempt)));
        if (!raises || raised[key] >= 6 || freeOf(account, Role.VERIFIER) < 5 ether) return false;
        challengeBy(jobId, v, pick(s.auditSet, seed >> 8), 0, blockOf(s.round, reported[s.round]));
        challenged[key] |= Bits.bit(uint16(reported[s.round]));
        raised[key]++;
        challenges++;
        countReports(s.round);
        return true;
    }

    /// Answers a challenge, or takes it back; some are left to the vote.
    function settleChallenge(RoundState memory s, uint256 seed) internal returns (bool) {
        uint256 key = uint256(keccak256(abi.encode(s.round, s.attempt)));
        if (challenged[key] == 0 || seed % 3 == 0) return false;
        uint16 index = pick(challenged[key], seed);
        challenged[key] &= ~Bits.bit(index);
        if (seed % 3 == 1) answer(jobId, index, blockOf(s.round, index));
        else withdrawBy(jobId, rounds.reportOf(jobId, s.round, index).verifier, index);
        return true;
    }

    function countReports(uint256 round) internal {
        uint256 count = reported[round];
        while (rounds.reportOf(jobId, uint32(round), uint16(count)).reporter != address(0)) {
            count++;
        }
        reported[round] = count;
    }

    function voteOne(uint256 seed) internal {
        RoundState memory s = rounds.state(jobId);
        (uint256 v, uint256 mine_, uint256 open_) = someVoter(s);
        if (v == type(uint256).max) return pass(seed);
        uint256 choice = open_ & ~mine_;
        uint256 side = seed % 4;
        voteBy(jobId, v, side < 2 ? choice : 0, side == 2 ? choice : 0, side == 3 ? choice : 0);
    }

    mapping(uint256 attemptKey => uint256) internal voted;

    /// @return v a verifier that has not voted; mine_ the open reports that are its own
    function someVoter(RoundState memory s) internal returns (uint256 v, uint256 mine_, uint256 open_) {
        uint256 key = uint256(keccak256(abi.encode(s.round, s.attempt)));
        uint256 left = s.verifiers & ~voted[key];
        if (left == 0) return (type(uint256).max, 0, 0);
        v = left.lowest();
        voted[key] |= Bits.bit(v);
        for (uint256 i = 0; i < reported[s.round]; i++) {
            Rounds_Report memory e = reportAt(s.round, i);
            if (!e.isOpen) continue;
            open_ |= Bits.bit(i);
            if (e.agree.has(v)) mine_ |= Bits.bit(i);
        }
    }

    struct Rounds_Report {
        bool isOpen;
        uint256 agree;
    }

    function reportAt(uint32 round, uint256 i) internal view returns (Rounds_Report memory e) {
        e.isOpen = rounds.reportOf(jobId, round, uint16(i)).outcome == Outcome.OPEN;
        e.agree = rounds.reportOf(jobId, round, uint16(i)).agree;
    }

    function settleNow() internal {
        settle(jobId);
        roundsSettled++;
    }

    function openIfPossible() internal {
        (uint256 seated, uint256 present, uint256 ready) = roster.membersOf(jobId);
        if (seated.popcount() < 2) return enterProvider();
        if (present.popcount() < 2) return enterVerifier();
        if (ready.popcount() * 3 >= present.popcount() * 2) rounds.poke(jobId);
    }

    // --- money ---

    function finaliseOne() external {
        (uint32 done,,) = rounds.finalRounds(jobId);
        if (done == rounds.settledRounds(jobId)) return;
        if (block.timestamp < rounds.disputeUntil(jobId, done)) return;
        rounds.finalise(jobId);
    }

    function finaliseEverything() external {
        finaliseAll(jobId);
    }

    function claimOne(uint256 seed) external {
        (uint32 done,,) = rounds.finalRounds(jobId);
        if (done == 0 || done != rounds.settledRounds(jobId)) return;
        address account = earners[jobId][seed % earners[jobId].length];
        uint256 before = token.balanceOf(account);
        claim(jobId, account);
        paidOut += token.balanceOf(account) - before;
    }

    function punishOne(uint256 seed) external {
        uint32 round = uint32(seed % (uint256(rounds.state(jobId).round) + 1));
        uint64 until = rounds.disputeUntil(jobId, round);
        if (until == 0 || block.timestamp < until) return;
        bool seats = (seed >> 128) % 2 == 0;
        uint256 offence = uint256(seats ? Offence.SEAT_MISSED : Offence.REPORT);
        uint256 due = seats ? missed[round] : Bits.firstBits(reported[round]);
        due &= ~punished[round][offence];
        if (due == 0) return;
        if (!seats && rounds.reportOf(jobId, round, due.lowest()).outcome == Outcome.WITHDRAWN) {
            punished[round][offence] |= Bits.bit(due.lowest()); // nothing is left to punish
            return;
        }
        punished[round][offence] |= due & (~due + 1);
        uint256 before = token.balanceOf(stakes.BURN());
        rounds.punish(jobId, round, Offence(offence), due.lowest());
        punishments++;
        if (token.balanceOf(stakes.BURN()) - before >= 50 ether) slashedSeats++;
    }

    function skip(uint256 seed) external {
        uint256 seconds_ = seed % 200;
        if (rounds.state(jobId).deadline > block.timestamp + seconds_) mine(seconds_);
    }

    // --- members ---

    function enterProvider() public {
        if (phase(jobId) > Phase.ATTEST || providers == MOST_PROVIDERS) return;
        deposited += STAKE + 100 ether;
        joinProvider(jobId, providers++);
    }

    function enterVerifier() public {
        (, uint256 present,) = roster.membersOf(jobId);
        if (phase(jobId) > Phase.ATTEST || verifiers == MOST_VERIFIERS || present.popcount() == PLACES) return;
        deposited += STAKE + 50 ether;
        joinVerifier(jobId, verifiers++);
    }

    mapping(address => bool) internal leaving;

    function leaveOne(uint256 seed) external {
        address account = provider(seed % providers);
        (bool seated,) = roster.seatOf(jobId, account);
        if (!seated || leaving[account] || phase(jobId) == Phase.CLOSED || seed % 5 != 0) return;
        leaving[account] = true;
        vm.prank(account);
        roster.leaveAsProvider(jobId);
    }

    // --- stakes ---

    function depositMore(uint256 seed) external {
        uint256 amount = within(seed, 1, 10 ether);
        stakeUp(provider(seed % providers), Role.PROVIDER, amount);
        deposited += amount;
    }

    function thawSome(uint256 seed) external {
        (address account, Role role) = someone(seed);
        (uint256 active, uint256 locked,) = stakes.stakeOf(account, role);
        if (active == locked) return;
        vm.prank(account);
        exits[account][role].push(stakes.thaw(role, within(seed, 1, active - locked)));
    }

    function withdrawOne(uint256 seed) external {
        (address account, Role role) = someone(seed);
        uint256[] storage open_ = exits[account][role];
        if (open_.length == 0 || seed % 7 != 0) return;
        uint256 id = open_[open_.length - 1];
        open_.pop();
        vm.warp(block.timestamp + UNBONDING + 1);
        uint256 before = token.balanceOf(account);
        vm.prank(account);
        stakes.withdraw(role, id);
        withdrawn += token.balanceOf(account) - before;
    }

    function freeOf(address account, Role role) internal view returns (uint256) {
        (uint256 active, uint256 locked,) = stakes.stakeOf(account, role);
        return active - locked;
    }

    function someone(uint256 seed) internal view returns (address, Role) {
        if (seed % 2 == 0) return (provider(seed % providers), Role.PROVIDER);
        return (verifier(seed % verifiers), Role.VERIFIER);
    }

    /// @return one of the bits, by the fuzzer's choice
    function pick(uint256 bitmap, uint256 seed) internal pure returns (uint16) {
        uint256 skipped = seed % bitmap.popcount();
        for (; skipped > 0; skipped--) {
            bitmap &= bitmap - 1;
        }
        return bitmap.lowest();
    }

    // --- what the invariants compare ---

    /// @return held stake of all accounts, thawing stake included
    function staked() external view returns (uint256 held) {
        for (uint256 i = 0; i < providers; i++) {
            held += heldBy(provider(i), Role.PROVIDER);
        }
        for (uint256 i = 0; i < verifiers; i++) {
            held += heldBy(verifier(i), Role.VERIFIER);
        }
        held += heldBy(provider(0), Role.VERIFIER) + heldBy(verifier(0), Role.PROVIDER);
    }

    function heldBy(address account, Role role) internal view returns (uint256) {
        (uint256 active, uint256 locked, uint256 thawing) = stakes.stakeOf(account, role);
        atMost(locked, active, "locked");
        return active + thawing;
    }

    function stakeBalance() external view returns (uint256) {
        return token.balanceOf(address(stakes));
    }

    function burned() external view returns (uint256) {
        return token.balanceOf(stakes.BURN());
    }

    function escrowBalance() external view returns (uint256) {
        return token.balanceOf(address(jobs));
    }

    function escrow() external view returns (uint256, uint256, uint256, uint256) {
        return jobs.escrowOf(jobId);
    }

    function finalTotal() external view returns (uint256 total) {
        (,, total) = rounds.finalRounds(jobId);
    }

    function view_() external view returns (RoundState memory) {
        return rounds.state(jobId);
    }
}
