"""Typed calls of Rounds, Members, Audits, LateVotes, Strikes and BlsPolicy, named as in Solidity.

Made by contracts/tools/export_artifacts.py from the contracts; not edited by hand.
"""

from __future__ import annotations

from collections.abc import Sequence

from atoll.chain.call import Call, CallBuilder
from atoll.protocol.call_structs import (
    Case,
    Certified,
    Coordinate,
    Having,
    RoundOpening,
    Shown,
    ShownRows,
)
from atoll.protocol.types import (
    Address,
    Bitmap,
    Digest,
    HolderId,
    JobId,
    Reveal,
    Role,
    RoundIndex,
    RoundRecord,
    SeatIndex,
    SlotIndex,
)


class RoundCalls(CallBuilder):
    """One method a function; it only encodes."""

    # Rounds

    def advance(self, job_id: JobId) -> Call:
        """Anyone: moves a job on whose deadline has passed. Reverts with NothingToDo when nothing
        is due, and with Unseeded while the beacon does not know what the committee is drawn by.
        """
        return self.build("advance", job_id, contract="Rounds", permissionless=True)

    def commit(self, job_id: JobId, seat: SeatIndex, seed: Digest, commitment: Digest) -> Call:
        """Binds a seat to its work before anyone shows theirs. The last commit opens the
        reveals.

        Args:
            seed: data seed of the round: what was made for another one is refused.
        """
        return self.build("commit", job_id, seat, seed, commitment, contract="Rounds")

    def reveal(self, job_id: JobId, seat: SeatIndex, seed: Digest, reveal: Reveal) -> Call:
        """Opens a commitment. The last reveal fixes the next data seed and opens the merge.

        Args:
            seed: data seed of the round, which the commitment has to name, too.
        """
        return self.build("reveal", job_id, seat, seed, reveal, contract="Rounds")

    def vote(self, job_id: JobId, slot: SlotIndex, seed: Digest, has: Bitmap) -> Call:
        """A committee member's vote: the seats whose update it has. Once a committee draw. The
        first one after the block in which the merge opened fixes the audit seed, by that block's
        hash.

        Args:
            has: seats; those that did not reveal count nothing.
        """
        return self.build("vote", job_id, slot, seed, has, contract="Rounds")

    def seed_audit(self, job_id: JobId) -> Call:
        """Anyone, from the block after the one in which the merge opened: fixes the audit seed, if
        no vote has. Where the chain has forgotten that block's hash, after 256 blocks or 8,191
        (EIP-2935), this notes the present block instead.
        """
        return self.build("seedAudit", job_id, contract="Rounds", permissionless=True)

    def settle(self, job_id: JobId, slots: bytes, has: Sequence[Bitmap], shown: Certified) -> Call:
        """Anyone: ends the merge with what two thirds of the committee signed, and opens the next
        round.

        Args:
            slots: of the committee draw's votes, a byte each, in the chain's order.
            has: the votes themselves.
            shown: the committee's accounts in it, by ascending slot, need not be there: they are
                cheaper shown than read, once a whole pool has settled a round and is the next one's
                committee too.
        """
        return self.build(
            "settle", job_id, slots, has, shown, contract="Rounds", permissionless=True
        )

    def settle_late(self, job_id: JobId, slots: bytes, has: Sequence[Bitmap]) -> Call:
        """Anyone, from the job's expiry on, once the committee draw's deadline has passed: pays
        what was available and closes the job. Before it where somebody leaves, or the submitter
        has cancelled, once committee draws have taken 2 mergeSeconds and a window.

        Args:
            slots: of the committee draw's votes, a byte each, in the chain's order.
            has: the votes themselves.
        """
        return self.build("settleLate", job_id, slots, has, contract="Rounds", permissionless=True)

    def sign(self, job_id: JobId, record: RoundRecord, id: HolderId, certificate: bytes) -> Call:
        """Adds a member's signature of the last certificate, until the next settlement and
        auditEnd.

        Args:
            id: of a member of the committee that settled.
        """
        return self.build(
            "sign", job_id, record, id, certificate, contract="Rounds", permissionless=True
        )

    # Members

    def join(self, job_id: JobId, seat: SeatIndex) -> Call:
        """Takes a free seat from the next round start on; locks Terms.providerBond."""
        return self.build("join", job_id, seat, contract="Members")

    def leave_seat(self, job_id: JobId) -> Call:
        """The caller's seat is free after the round that runs, which it still owes."""
        return self.build("leaveSeat", job_id, contract="Members")

    def disagree(self, job_id: JobId, seed: Digest, root: Digest) -> Call:
        """ "I computed another model": leaves without a missed duty, before the round's commit."""
        return self.build("disagree", job_id, seed, root, contract="Members")

    def penalise_seat(self, job_id: JobId, seat: SeatIndex) -> Call:
        """Takes the penalty of a seat's last missed duty, which can be taken then. Anyone."""
        return self.build("penaliseSeat", job_id, seat, contract="Members", permissionless=True)

    def enrol(self, job_id: JobId, slot: SlotIndex, bond: int, signature: bytes) -> Call:
        """Takes a slot of the pool: a free one, one whose member is not ready in time, or for a
        tenth more the cheapest of a full pool; that once a round, and not within a window of the
        last time.

        Args:
            signature: shows that the caller can sign certificates: its own of the typed data
                `Enrolment` (SPEC-ROUNDS.md, 2), a contract's by ERC-1271; empty where a registered
                key signs them.
        """
        return self.build("enrol", job_id, slot, bond, signature, contract="Members")

    def ready(self, job_id: JobId) -> Call:
        """ "I hold manifest, data and model." Counts from the next settlement on; where the caller
        is a member of the running round, from its end on, and while none runs at once.
        """
        return self.build("ready", job_id, contract="Members")

    def leave_pool(self, job_id: JobId) -> Call:
        """The caller's slot is free after the round that runs. Not in MERGE, unless a committee
        draw of the round has settled nothing.
        """
        return self.build("leavePool", job_id, contract="Members")

    def penalise_member(self, job_id: JobId, round: RoundIndex, id: HolderId) -> Call:
        """Penalises a member that gave no vote by the end of a committee draw's votes. Anyone."""
        return self.build(
            "penaliseMember", job_id, round, id, contract="Members", permissionless=True
        )

    def release(self, job_id: JobId, role: Role, id: HolderId) -> Call:
        """Unlocks the bond of who owes nothing any more. Anyone."""
        return self.build("release", job_id, role, id, contract="Members", permissionless=True)

    def announce_gateway(self, url: str) -> Call:
        """Says where the caller serves its blocks; the last one said counts. Visible ASCII (RFC
        3986).
        """
        return self.build("announceGateway", url, contract="Members")

    # Audits

    def seal_audit_report(self, job_id: JobId, round: RoundIndex, audit_report: Digest) -> Call:
        """A member's sealed audit report of a round's duties. The last one before auditEnd counts,
        so one that was made for another seed can be replaced. Warning: one that is sealed later
        replaces it, too, and cannot be opened.
        """
        return self.build("sealAuditReport", job_id, round, audit_report, contract="Audits")

    def open(
        self,
        *,
        job_id: JobId,
        round: RoundIndex,
        id: HolderId,
        record: RoundRecord,
        body: bytes,
        salt: Digest,
    ) -> Call:
        """Opens it, between auditEnd and openEnd. Every seat in it has to be a duty of the
        member.

        Args:
            body: 35 bytes a duty: seat, 0xffff or the first segment that differs, digest.
        """
        return self.build("open", job_id, round, id, record, body, salt, contract="Audits")

    def key(self, job_id: JobId, round: RoundIndex, key: Digest) -> Call:
        """The holder of a seat shows the key of its work tags' masks. Warning: before auditEnd
        anyone can burn the pay. What is shown in the block of its settlement or before is none,
        and the last one counts.
        """
        return self.build("key", job_id, round, key, contract="Audits")

    def leak(self, shown: Shown, key: Digest) -> Call:
        """Anyone but the holder, before auditEnd: shows a key that it was told, which burns the
        seat's pay.
        """
        return self.build("leak", shown, key, contract="Audits", permissionless=True)

    def contest(self, shown: Shown, id: HolderId, body: bytes, key: Digest) -> Call:
        """Anyone: an opened *valid* is not what the reveal's checkpoint commitments and the key
        give.
        """
        return self.build("contest", shown, id, body, key, contract="Audits", permissionless=True)

    def withhold(
        self,
        *,
        job_id: JobId,
        round: RoundIndex,
        id: HolderId,
        seat_id: HolderId,
        game_id: int,
        body: bytes,
    ) -> Call:
        """Anyone, before windowEnd: a game is about a round of a seat that an opened *valid* is
        about. Its fee waits, and is lost if the seat loses that game.

        Args:
            game_id: of a game that is not over, or that the seat lost; later in place of one that
                it has not lost.
        """
        return self.build(
            "withhold",
            job_id,
            round,
            id,
            seat_id,
            game_id,
            body,
            contract="Audits",
            permissionless=True,
        )

    def settle_contest(
        self, job_id: JobId, round: RoundIndex, id: HolderId, seat_id: HolderId
    ) -> Call:
        """Anyone, once the seat's round is FINAL: a missed duty; or the fee back; or, where the
        seat lost a game about the round, nothing.
        """
        return self.build(
            "settleContest", job_id, round, id, seat_id, contract="Audits", permissionless=True
        )

    def report_missing_key(self, shown: Shown) -> Call:
        """Anyone, after keysEnd: a drawn seat that had not shown the committed key by then loses
        the round's pay and misses.
        """
        return self.build("reportMissingKey", shown, contract="Audits", permissionless=True)

    def absent(
        self,
        *,
        job_id: JobId,
        round: RoundIndex,
        id: HolderId,
        seat: SeatIndex,
        record: RoundRecord,
        body: bytes,
    ) -> Call:
        """Anyone, after openEnd: the auditor of a drawn seat said nothing about it. Where most
        auditors of the round said nothing it is after keysEnd, and an excuse while there is one.

        Args:
            body: what it opened; empty for nothing.
        """
        return self.build(
            "absent", job_id, round, id, seat, record, body, contract="Audits", permissionless=True
        )

    def dropped(
        self,
        *,
        job_id: JobId,
        round: RoundIndex,
        id: HolderId,
        seat: SeatIndex,
        seat_id: HolderId,
        body: bytes,
    ) -> Call:
        """Anyone, in the second half of the window: an opened *mismatch* that its author did not
        challenge.
        """
        return self.build(
            "dropped",
            job_id,
            round,
            id,
            seat,
            seat_id,
            body,
            contract="Audits",
            permissionless=True,
        )

    def proven(
        self, job_id: JobId, round: RoundIndex, id: HolderId, seat_id: HolderId, body: bytes
    ) -> Call:
        """Anyone, once the seat's holder has been slashed, by whose game it may be: credits the
        author of an opened *mismatch* its fee.
        """
        return self.build(
            "proven", job_id, round, id, seat_id, body, contract="Audits", permissionless=True
        )

    # LateVotes

    def late_vote(self, job_id: JobId, round: RoundIndex, id: HolderId, has: Bitmap) -> Call:
        """A member of the round's pool, or of the next one's: "I have these updates now", for their
        pay. Before auditEnd.

        Args:
            has: their seats.
        """
        return self.build("lateVote", job_id, round, id, has, contract="LateVotes")

    def grant(self, job_id: JobId, round: RoundIndex, seat: SeatIndex, having: Having) -> Call:
        """Anyone, before auditEnd: more than half of both committees have the seat's update; so it
        is paid.
        """
        return self.build(
            "grant", job_id, round, seat, having, contract="LateVotes", permissionless=True
        )

    def equivocated(
        self,
        *,
        job_id: JobId,
        round: RoundIndex,
        id: HolderId,
        seed: Digest,
        votes: Digest,
        shown: Sequence[Certified],
    ) -> Call:
        """Anyone: one member signed two verdicts about the same votes, each alone or with
        others.
        """
        return self.build(
            "equivocated",
            job_id,
            round,
            id,
            seed,
            votes,
            shown,
            contract="LateVotes",
            permissionless=True,
        )

    # Strikes

    def announce(self, commitment: Digest) -> Call:
        """Anyone: notes a strike to come, so that who copies one at a coordinate comes later.
        Strikes elsewhere, at a statement, a seat, what is derived or nothing merged, can be
        announced for every round beforehand.

        Args:
            commitment: `commitmentOf` of the strike.
        """
        return self.build("announce", commitment, contract="Strikes", permissionless=True)

    def strike_nothing(self, c: Case, ids: Sequence[HolderId]) -> Call:
        """Anyone, in the same time: nothing was merged, although 2f + 1 updates that the committee
        had, whose seats did enough and were not slashed, were there.

        Args:
            ids: of these seats' holders.
        """
        return self.build("strikeNothing", c, ids, contract="Strikes", permissionless=True)

    def strike_carried(self, c: Case, parts: bytes, header: bytes, path: Sequence[Digest]) -> Call:
        """Anyone, in the same time: nothing was merged, and the state is another than that which
        the round opened from, a round on.

        Args:
            parts: five words of the digest of that state.
            header: of the job's program, and its path: of round 0 alone.
        """
        return self.build(
            "strikeCarried", c, parts, header, path, contract="Strikes", permissionless=True
        )

    def show_rows(self, r: ShownRows) -> Call:
        """Anyone, of a settled round: keeps what updates have at a coordinate, so that a strike
        there needs them no more. In as many calls as it takes, by whoever; a row is the same
        whoever shows it.
        """
        return self.build("showRows", r, contract="Strikes")

    def strike_statement(self, c: Case) -> Call:
        """Anyone, from 16 blocks after the announcement to the window's end: a certificate without
        a statement that it must have, a statement that contradicts itself or the chain, or
        either a statement or excluded seats where nothing was merged.
        """
        return self.build("strikeStatement", c, contract="Strikes", permissionless=True)

    def strike_coordinate(self, c: Case, p: Coordinate) -> Call:
        """Anyone, in the same time: the merged update is not what the rule gives at one coordinate,
        where all merged rows were shown, or one that was shown is not canonical.
        """
        return self.build("strikeCoordinate", c, p, contract="Strikes", permissionless=True)

    def strike_missing(self, c: Case, seat: SeatIndex, id: HolderId) -> Call:
        """Anyone, in the same time: an update that the committee had, whose seat did enough and was
        not slashed, is neither merged nor excluded.

        Args:
            id: of the seat's holder.
        """
        return self.build("strikeMissing", c, seat, id, contract="Strikes", permissionless=True)

    def strike_derived(self, c: Case, o: RoundOpening) -> Call:
        """Anyone, in the same time: groups of the statement are not what its inner products give,
        or next exponents not what its votes make of those of the state that the round opened
        with.

        Args:
            o: read only where groups are right.
        """
        return self.build("strikeDerived", c, o, contract="Strikes", permissionless=True)

    # BlsPolicy

    def register(self, key: bytes, proof: bytes) -> Call:
        """Makes it the caller's key, once and for ever.

        Args:
            key: x ‖ y, 48 bytes each.
            proof: the key's own signature of `proofOf`, under the suite's domain for proofs of
                possession.
        """
        return self.build("register", key, proof, contract="BlsPolicy")

    def keep(self, accounts: Sequence[Address]) -> Call:
        """Anyone: keeps the sum of the keys of these accounts, in this order, which certificates of
        theirs are then checked with. Nothing waits for it: without it each signer's key is read.

        Args:
            accounts: at most 32, which all have a key.
        """
        return self.build("keep", accounts, contract="BlsPolicy", permissionless=True)
