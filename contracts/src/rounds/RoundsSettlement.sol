// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {IAttestationPolicy} from "../interfaces/IAttestationPolicy.sol";
import {Earned, IMembersHooks} from "../interfaces/IHooks.sol";
import {Bits} from "../libraries/Bits.sol";
import {Draws} from "../libraries/Draws.sol";
import {Hashing} from "../libraries/Hashing.sol";
import {Rows} from "../libraries/Rows.sol";
import {Tally} from "../libraries/Tally.sol";
import "../types/Types.sol";
import {Head, Packed, Settlement, Shape} from "./Packed.sol";
import {RoundsBase} from "./RoundsBase.sol";
import {SeatSteps} from "./SeatSteps.sol";

/// @title From a committee's votes to the next round: what was available, what was merged, who may
/// be paid.
/// @dev Runs by delegate call from `Rounds`; called directly it knows no job.
contract RoundsSettlement is RoundsBase {
    using Bits for uint256;
    using Packed for Head;
    using Packed for Shape;

    /// What the votes of a committee draw say.
    struct Count {
        bytes32 votes;
        uint256 available;
        uint256 spoke; // slots
        bool isDecided; // by the votes alone
        bytes32 accounts; // hash of the committee's accounts, where the job does not keep it yet
        uint256 ready; // the pool
    }

    uint256 private constant LOWEST_RATE = 15; // of the table

    error WrongVotes(bytes32 given, bytes32 kept);
    error StillOpen(uint256 deadline, uint256 now_);
    error WrongVerdict(uint256 excluded, uint256 merged, uint256 available);
    error TooFewSigners(uint256 signers, uint256 members);
    error WrongRecord(bytes32 given, bytes32 kept);
    error NotDue(uint32 id, uint256 due);
    error SigningOver(uint32 round);
    error CidTooLong(uint256 length, uint256 highest);

    constructor(address jobs_) RoundsBase(jobs_) {}

    function settle(uint256 jobId, bytes calldata slots, uint256[] calldata has, Certified calldata shown) external {
        Job storage j = _jobs[jobId];
        Head memory h = j.head.load();
        Count memory c = _count(j, h, slots, has);
        if (!c.isDecided && block.timestamp < _votesEnd(h)) revert StillOpen(_votesEnd(h), block.timestamp);
        _requireSound(j, shown.verdict, c.available);
        bytes32 digest = Hashing.certificate(_roundId(jobId, h.round), _seed(j, h.round), c.votes, shown.verdict);
        uint256 signers = _requireSigned(jobId, j, h.round, c, digest, shown);
        _store(jobId, j, h, c, shown.verdict, digest, signers);
        if (shown.verdict.merged == 0) _noteVain(j, h);
        else h.streak = 0;
        j.model = shown.verdict.state;
        _next(jobId, j, h, c);
    }

    function settleLate(uint256 jobId, bytes calldata slots, uint256[] calldata has) external {
        Job storage j = _jobs[jobId];
        Head memory h = j.head.load();
        Count memory c = _count(j, h, slots, has);
        if (block.timestamp < h.deadline || !_isOverdue(j, h)) {
            uint256 due = h.deadline > j.shape.expiry ? h.deadline : j.shape.expiry;
            revert StillOpen(due, block.timestamp);
        }
        Verdict memory none;
        none.state = j.model;
        c.ready = j.ready;
        _store(jobId, j, h, c, none, 0, 0);
        h.round++;
        _changePool(j);
        _close(jobId, j, h, h.isCancelled ? JobStatus.CANCELLED : JobStatus.EXPIRED);
    }

    function sign(uint256 jobId, RoundRecord calldata record, uint32 id, bytes calldata certificate) external {
        Job storage j = _job(jobId);
        uint32 round = j.head.round;
        if (round == 0) revert SigningOver(0);
        round--;
        bytes26 given = bytes26(Hashing.recordHash(record));
        if (given != j.settled[round].record) revert WrongRecord(given, j.settled[round].record);
        if (!_isSigning(j, round)) revert SigningOver(round);
        Holder memory m = IMembersHooks(members).holderOf(jobId, Role.VERIFIER, id);
        bool isMember = m.from <= round && round < m.to && record.committee.has(m.index);
        uint256 signed = Rows.get(j.signed, j.shape.slotBits, round);
        if (!isMember || signed.has(m.index)) revert NotDue(id, record.committee & ~signed);
        address[] memory committee = new address[](1);
        committee[0] = m.account;
        bytes32 roundId = Hashing.roundIdHash(_roundId(jobId, round));
        if (IAttestationPolicy(j.policy).certify(roundId, committee, j.digest, certificate) != 1) {
            revert TooFewSigners(0, 1);
        }
        signed |= Bits.bit(m.index);
        Rows.set(j.signed, j.shape.slotBits, round, signed);
        _log(jobId, abi.encode(Signed.selector, jobId, round), abi.encode(signed));
    }

    // --- votes ---

    /// @dev Decided: no vote to come changes who has more than half.
    function _count(Job storage j, Head memory h, bytes calldata slots, uint256[] calldata has)
        private
        view
        returns (Count memory c)
    {
        if (h.phase != Phase.MERGE) revert WrongPhase(h.phase, Phase.MERGE);
        if (block.timestamp >= j.shape.expiry && block.timestamp >= _lastMoment(j)) {
            revert DeadlinePassed(_lastMoment(j), block.timestamp);
        }
        c.votes = Hashing.noVotes(h.committeeDraw == 0 ? _seed(j, h.round) : j.committeeSeed);
        uint256 size = j.committee.popcount();
        bytes32 kept = Hashing.cut(j.votes);
        if (has.length > size || slots.length != has.length) revert WrongVotes(c.votes, kept);
        uint256[6] memory planes;
        _fold(c, planes, slots, has);
        if (c.votes != kept) revert WrongVotes(c.votes, kept);
        (uint256 least, uint256 silent) = (size / 2 + 1, size - has.length);
        c.available = Tally.reaching(planes, least) & j.seated;
        uint256 possible = Tally.reaching(planes, least > silent ? least - silent : 0) & j.seated;
        c.isDecided = possible == c.available;
    }

    /// @dev Takes the votes into the count, which begins with what the accumulator begins with.
    function _fold(Count memory c, uint256[6] memory planes, bytes calldata slots, uint256[] calldata has)
        private
        pure
    {
        (bytes32 accumulator, uint256 spoke) = (c.votes, 0);
        unchecked {
            for (uint256 i = 0; i < has.length; i++) {
                (uint256 slot, uint256 vote) = (uint8(slots[i]), has[i]);
                accumulator = Hashing.accumulateVote(accumulator, slot, vote);
                spoke |= 1 << slot;
                Tally.add(planes, vote);
            }
        }
        (c.votes, c.spoke) = (accumulator, spoke);
    }

    // --- verdicts ---

    function _requireSound(Job storage j, Verdict calldata v, uint256 available) private view {
        uint256 left = v.excluded.popcount();
        bool isWithin = v.excluded & ~available == 0 && left <= j.shape.f;
        bool isMerged = isWithin && uint256(v.merged) + left <= available.popcount();
        if (!isMerged) revert WrongVerdict(v.excluded, v.merged, available);
        if (v.cid.length > MAX_CID_BYTES) revert CidTooLong(v.cid.length, MAX_CID_BYTES);
    }

    /// @return signers slots
    function _requireSigned(
        uint256 jobId,
        Job storage j,
        uint32 round,
        Count memory c,
        bytes32 digest,
        Certified calldata shown
    ) private view returns (uint256 signers) {
        address[] memory accounts = _accountsOf(j, c, round, shown.accounts);
        bytes32 roundId = Hashing.roundIdHash(_roundId(jobId, round));
        uint256 ranks = IAttestationPolicy(j.policy).certify(roundId, accounts, digest, shown.certificate);
        uint256 size = accounts.length;
        if (ranks.popcount() * 3 < size * 2) revert TooFewSigners(ranks.popcount(), size);
        uint256 left = j.committee;
        if (ranks == Bits.firstBits(size)) return left;
        for (; ranks != 0; (left &= left - 1, ranks >>= 1)) {
            if (ranks & 1 == 1) signers |= left & (~left + 1);
        }
    }

    /// @dev Also notes the pool: the whole of it is the committee where its accounts' hash is kept.
    /// @param shown are taken where the job keeps their hash; what else is shown makes no
    /// difference
    /// @return accounts by ascending slot
    function _accountsOf(Job storage j, Count memory c, uint32 round, address[] calldata shown)
        private
        view
        returns (address[] memory accounts)
    {
        uint256 committee = c.ready = j.committee;
        uint256 size = committee.popcount();
        if (shown.length == size) {
            accounts = shown;
            if (Hashing.accounts(accounts) == j.accounts) return accounts;
        }
        accounts = new address[](size);
        c.ready = j.ready;
        uint256 i;
        unchecked {
            for (uint256 slot = 0; committee != 0; (committee >>= 1, slot++)) {
                if (committee & 1 == 1) accounts[i++] = _accountAt(j, slot, round);
            }
        }
        c.accounts = Hashing.accounts(accounts);
    }

    // --- what stays of a round ---

    function _store(
        uint256 jobId,
        Job storage j,
        Head memory h,
        Count memory c,
        Verdict memory v,
        bytes32 digest,
        uint256 signers
    ) private {
        if (!_seedAudit(jobId, j, h)) revert Unseeded(h.noted, block.number);
        _noteSilent(j, h, c.spoke);
        Shape memory s = j.shape.load();
        RoundRecord memory f = _recordOf(j, h.round, c, v.excluded);
        f.certificate = digest;
        if (signers != f.committee) j.digest = digest; // else nobody is left to sign it
        Rows.set(j.pay, s.seatBits, h.round, f.available);
        if (f.available != f.revealed) Rows.set(j.lost, s.seatBits, h.round, f.revealed & ~f.available);
        if (signers != 0) Rows.set(j.signed, s.slotBits, h.round, signers);
        _noteTimes(j, h, s, f);
        _logBehind(jobId, abi.encode(Settled.selector, jobId, h.round), abi.encode(digest, v, f.available, signers, f));
    }

    function _recordOf(Job storage j, uint32 round, Count memory c, uint256 excluded)
        private
        view
        returns (RoundRecord memory f)
    {
        (f.seed, f.auditSeed, f.reveals, f.votes, f.model) = (_seed(j, round), j.auditSeed, j.reveals, c.votes, j.model);
        (f.revealed, f.available, f.excluded) = (j.seated, c.available, excluded);
        (f.ready, f.committee) = (c.ready, j.committee);
    }

    /// @dev Who has said nothing while votes are taken may yet have lacked an update. A signature
    /// is paid and never owed: a verdict of two thirds would else take the bonds of those who know
    /// better.
    function _noteSilent(Job storage j, Head memory h, uint256 spoke) private {
        uint256 silent = j.committee & ~spoke;
        if (silent == 0 || block.timestamp < _votesEnd(h)) return;
        if (!_isStandstill(j.committee, silent, h.committeeDraw)) j.absent[h.round] |= silent;
    }

    function _noteTimes(Job storage j, Head memory h, Shape memory s, RoundRecord memory f) private {
        Earned memory e = j.earned;
        bool isLast = h.round + 1 == s.rounds;
        uint256 rate = isLast ? s.lastRate : s.auditRate;
        uint256 count = _draw(j, h.round, f, e, rate, s.isSeasoned && rate != 0);
        uint256 windows = 1;
        if (isLast && count > 1) {
            uint256 ready = f.ready.popcount();
            windows = (count + ready - 1) / ready;
            if (windows > MAX_AUDITS) windows = MAX_AUDITS;
        }
        j.settled[h.round] = Settlement(uint40(block.timestamp), uint8(windows), bytes26(Hashing.recordHash(f)));
        e.segments += uint64(_segmentsOf(j, s, h.round, f.revealed));
        e.signatures += uint64(f.committee.popcount());
        j.earned = e;
    }

    /// @dev One of the excluded is audited in any case, from what the escrow holds for its round.
    /// Who gets itself excluded takes no audits away from others.
    /// @param isSeasoned whether some are drawn more rarely than at the rate
    /// @return count of the round's duties
    function _draw(Job storage j, uint32 round, RoundRecord memory f, Earned memory e, uint256 rate, bool isSeasoned)
        private
        view
        returns (uint256 count)
    {
        uint256 sure = f.excluded == 0 ? 0 : Draws.oneOf(f.auditSeed, f.excluded);
        uint256 drawn = Draws.seats(f.auditSeed, f.revealed, rate) & ~sure;
        if (isSeasoned) drawn ^= _spared(j, round, f.auditSeed, drawn, rate);
        count = drawn.popcount();
        if (count > e.dutiesLeft) (drawn, count) = (Draws.atMost(drawn, e.dutiesLeft), e.dutiesLeft);
        e.dutiesLeft -= uint32(count);
        if (sure != 0) count++;
        e.duties += uint32(count);
        f.drawn = drawn | sure;
    }

    /// @dev By what seats had come down by when the round opened: what has changed since, when its audit seed may be known,
    /// is of later ones.
    /// @return spared seats of those drawn at a rate whose holders have more to lose, and are not drawn at their own
    function _spared(Job storage j, uint32 round, bytes32 auditSeed, uint256 drawn, uint256 rate)
        private
        view
        returns (uint256 spared)
    {
        (uint256 number, uint256 word) = (type(uint256).max, 0);
        for (; drawn != 0; drawn &= drawn - 1) {
            uint256 seat = drawn.lowest();
            if (SeatSteps.wordOf(seat) != number) {
                (number, word) = (SeatSteps.wordOf(seat), j.steps[SeatSteps.wordOf(seat)]);
            }
            uint256 lower = rate + SeatSteps.stepsIn(word, seat, round);
            if (lower == rate) continue;
            if (lower > LOWEST_RATE) lower = LOWEST_RATE;
            if (!Draws.isDrawn(auditSeed, seat, lower)) spared |= Bits.bit(seat);
        }
    }

    /// @dev A round that merged nothing: who was short in it earns nothing, and has nothing to
    /// lose.
    function _noteVain(Job storage j, Head memory h) private {
        h.streak++;
        uint256 short = j.short;
        if (short == 0) return;
        Shape memory s = j.shape.load();
        Rows.set(j.pay, s.seatBits, h.round, Rows.get(j.pay, s.seatBits, h.round) & ~short);
        Rows.set(j.lost, s.seatBits, h.round, Rows.get(j.lost, s.seatBits, h.round) & ~short);
        j.earned.segments -= uint64(_segmentsOf(j, s, h.round, short));
    }

    // --- the boundary ---

    /// @dev Members change here and nowhere else while a job runs.
    /// @param c with the pool and the committee's accounts as they were
    function _next(uint256 jobId, Job storage j, Head memory h, Count memory c) private {
        Shape memory s = j.shape.load();
        if (s.hasPartials) _noteShort(j);
        h.round++;
        Crew memory crew = Crew(s.hasPartials || h.hasMoved ? j.held : j.seated, c.ready, 0);
        (uint256 out, bytes32 accounts) = (0, c.accounts);
        if (h.hasMoved) {
            (out, h.hasMoved) = (j.poolOut, false);
            if (_changePool(j)) (accounts, crew.ready) = (NONE, j.ready);
        }
        if (h.round == s.rounds) return _close(jobId, j, h, JobStatus.DONE);
        if (h.isCancelled) return _close(jobId, j, h, JobStatus.CANCELLED);
        if (h.streak == MAX_STREAK || block.timestamp >= s.expiry) return _close(jobId, j, h, JobStatus.EXPIRED);
        if (!_isEnough(s, crew)) return _wait(jobId, j, h, 0);
        bytes32 seed = _seed(j, h.round);
        // The pool stood still before anybody knew this. Some leavings are later: who leaves takes
        // its own ticket away, and changes nobody else's luck.
        bytes32 committeeDraw = Hashing.committeeSeed(j.auditSeed, 0);
        uint256 committee = Draws.committee(committeeDraw, c.ready) & ~out;
        _noteAccounts(j, accounts, c.ready, committee);
        crew.committee = committee == 0 ? Draws.committee(committeeDraw, crew.ready) : committee;
        _openRound(jobId, j, h, seed, crew);
    }

    /// @dev Kept of a whole pool that has not changed, and so settles the next round too.
    function _noteAccounts(Job storage j, bytes32 accounts, uint256 pool, uint256 committee) private {
        if (accounts == NONE) return _forgetAccounts(j);
        if (accounts != 0 && committee == pool && committee == j.committee) j.accounts = accounts;
    }

    /// @dev Two of three rounds running are a missed duty: a bucket takes two for each short one,
    /// leaks one in every other, and is full with three. Who takes a seat inherits nothing (`sit`).
    function _noteShort(Job storage j) private {
        (uint256 short, uint256 last) = (j.short, j.shortLast);
        uint256 again = short & (last | j.shortBefore);
        _free(j, again);
        (j.short, j.shortLast, j.shortBefore) = (0, short ^ again, last & ~short);
    }
}
