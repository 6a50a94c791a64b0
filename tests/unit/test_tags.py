"""What journals know entries and commands by, and workers their work: written tags, listed for
good, and no names of Python.

A guard that is keyed by a class's name forgets, once that is renamed, what was signed: a second
verdict about the same votes costs a whole bond.
"""

from __future__ import annotations

import json
import re
from contextlib import closing
from dataclasses import astuple, dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar, cast

import pytest
from tests.support.identities import address, digest
from tests.vectors import generate_tags
from tests.vectors.generate_tags import TagError, grown

from atoll.protocol.merge_inputs import MergeRecord
from atoll.protocol.types import (
    Bitmap,
    Domain,
    JobId,
    Reveal,
    RoundId,
    RoundIndex,
    SeatIndex,
    Verdict,
)
from atoll.protocol.views import JobView
from atoll.service.duties.merge import MERGE_ROUND, DoMerge
from atoll.service.duties.signing import Signing
from atoll.service.duties.updates import RevealedUpdate
from atoll.service.effects import Effects
from atoll.service.entries import Entry, Named, key_of
from atoll.service.journal import AlreadySigned, Journal
from atoll_node.duties.commit import SendCommit
from atoll_node.duties.train import Trained
from atoll_verifier.duties.committee import SignVerdict, VerdictSigned

LIST: dict[str, Any] = json.loads(generate_tags.PATH.read_text(encoding="utf-8"))
EVER = 99
"""Tags that there ever were. It grows by one with each new tag, and never falls."""
FORM = re.compile(r"[a-z]+(-[a-z]+)*\.v[1-9][0-9]*")


def classes() -> tuple[list[type[Entry]], list[type[Named[Any]]]]:
    """Entries and commands."""
    return generate_tags.entries(), generate_tags.commands()


def test_the_list_has_every_tag_with_its_fields() -> None:
    """`tests/vectors/generate_tags.py` adds what is new."""
    assert grown(LIST, *classes(), generate_tags.work()) == LIST


def test_the_list_only_grows() -> None:
    every = [*LIST["commands"], *LIST["entries"], *LIST["work"], *LIST["retired"]]
    assert len(every) == len(set(every)) == EVER
    assert [tag for tag in every if not FORM.fullmatch(tag)] == []


def test_a_tag_that_is_gone_is_kept_and_never_taken_again() -> None:
    left = [cls for cls in generate_tags.entries() if cls is not Trained]
    retired = grown(LIST, left, generate_tags.commands(), generate_tags.work())
    assert retired["retired"] == sorted([*LIST["retired"], Trained.kind])
    with pytest.raises(TagError, match="something else once"):
        grown(retired, *classes(), generate_tags.work())


def test_work_that_is_gone_is_kept_and_never_taken_again() -> None:
    left = [task for task in generate_tags.work() if task != MERGE_ROUND]
    retired = grown(LIST, *classes(), left)
    assert retired["retired"] == sorted([*LIST["retired"], MERGE_ROUND.kind])
    with pytest.raises(TagError, match="something else once"):
        grown(retired, *classes(), generate_tags.work())


def test_fields_of_a_listed_entry_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(Entry.kinds, VerdictSigned.kind)

    @dataclass(frozen=True, slots=True)
    class Grown(Entry):
        kind: ClassVar[str] = VerdictSigned.kind
        verdict: Verdict

    with pytest.raises(TagError, match=VerdictSigned.kind):
        grown(LIST, [Grown], [], [])


def test_every_command_has_a_tag_of_its_own() -> None:
    """One that had its parent's would find what that one left."""
    lacks = [
        cls.__name__
        for cls in _below(Named)
        if cls.__module__.startswith(generate_tags.PRODUCT)
        and hasattr(cls, "__dataclass_fields__")
        and "kind" not in cls.__dict__
    ]
    assert lacks == []


def _below(cls: type) -> list[type]:
    generate_tags.load_all()
    return [found for sub in cls.__subclasses__() for found in (sub, *_below(sub))]


def test_two_kinds_with_one_tag_are_refused() -> None:
    with pytest.raises(TypeError, match=r"Another and Trained are both trained\.v1"):

        class Another(Entry):
            kind: ClassVar[str] = Trained.kind

    with pytest.raises(TypeError, match=r"Resend and SendCommit are both commit\.v1"):

        class Resend(Named[Entry]):
            kind: ClassVar[str] = SendCommit.kind

    with pytest.raises(TypeError, match="lacks a `kind` of its own"):

        class Heir(Trained):
            pass


# --- a class that is called otherwise, in another module ---


@pytest.fixture
def registries(monkeypatch: pytest.MonkeyPatch) -> None:
    """Gives the product's own classes back when the test is over."""
    generate_tags.load_all()
    monkeypatch.setattr(Entry, "kinds", dict(Entry.kinds))
    monkeypatch.setattr(Named, "kinds", dict(Named.kinds))


def renamed(cls: Any) -> Any:
    """The class as a refactoring leaves it: another name, another module, the same tag."""
    kinds: dict[str, Any] = Entry.kinds if issubclass(cls, Entry) else Named.kinds
    del kinds[cls.kind]
    body = {"__slots__": (), "__module__": "moved.elsewhere", "kind": cls.kind}
    return type("Renamed", (cls,), body)


@pytest.mark.usefixtures("registries")
def test_no_key_changes_with_the_name_of_a_command() -> None:
    for cls in generate_tags.commands():
        before = key_of(cls, RoundIndex(3), digest("seed"), (1, 2))
        assert key_of(renamed(cls), RoundIndex(3), digest("seed"), (1, 2)) == before
        assert before == f"{cls.kind}:3:{digest('seed').hex()}:1,2"


VERDICT = Verdict(Bitmap(0), 4, digest("merged"), b"cid", bytes(8))
OTHER = Verdict(Bitmap(0), 4, digest("another model"), b"cid", bytes(8))
VIEW = cast(JobView, SimpleNamespace(job_id=7))


def _desk(journal: Journal) -> Effects:
    return cast(Effects, SimpleNamespace(context=SimpleNamespace(journal=journal)))


def _sign(cls: type[Any], verdict: Verdict) -> Signing[VerdictSigned]:
    """Of the same votes, whatever is said of them; its digest is that of the state here."""
    where = (RoundIndex(3), digest("seed"), digest("votes"))
    return cast(Signing[VerdictSigned], cls(*where, verdict.state, verdict, 1_000))


@pytest.mark.usefixtures("registries")
def test_a_verdict_that_was_signed_is_known_by_the_class_that_it_became(tmp_path: Path) -> None:
    with closing(Journal(tmp_path / "journal.sqlite")) as journal:
        _sign(SignVerdict, VERDICT).claim(_desk(journal), VIEW)
    became = renamed(SignVerdict)
    with closing(Journal(tmp_path / "journal.sqlite")) as journal:
        _sign(became, VERDICT).claim(_desk(journal), VIEW)  # the same again, as after a restart
        with pytest.raises(AlreadySigned):
            _sign(became, OTHER).claim(_desk(journal), VIEW)


def test_the_subjects_of_what_is_signed_are_those_that_stand_in_journals(tmp_path: Path) -> None:
    """Word for word: of another subject the guard knows nothing."""
    parts = (digest("seed").hex(), digest("votes").hex())
    with closing(Journal(tmp_path / "journal.sqlite")) as journal:
        _sign(SignVerdict, VERDICT).claim(_desk(journal), VIEW)
        subject = f"7:merge-signature.v1:3:{parts[0]}:{parts[1]}"
        assert journal.signed(subject) == VERDICT.state


async def test_the_subject_of_a_commitment_is_the_one_that_stands_in_journals(
    tmp_path: Path,
) -> None:
    where = (RoundIndex(3), SeatIndex(2), digest("seed"))
    with closing(Journal(tmp_path / "journal.sqlite")) as journal:
        journal.sign_once(f"commit.v1:7:3:2:{digest('seed').hex()}", digest("one"))
        with pytest.raises(AlreadySigned):
            await SendCommit(*where, digest("two")).perform(_desk(journal), VIEW)


@pytest.mark.usefixtures("registries")
def test_an_entry_is_read_back_by_the_class_that_it_became(tmp_path: Path) -> None:
    reveal = Reveal(
        digest("root"), digest("key"), digest("salt"), b"checkpoint_commitments", b"cid"
    )
    entry = Trained(3, reveal, digest("model"), 1.5, 2.5)
    with closing(Journal(tmp_path / "journal.sqlite")) as journal:
        journal.write(7, "a", entry)
    became = renamed(Trained)
    with closing(Journal(tmp_path / "journal.sqlite")) as journal:
        (found,) = journal.read(7).all_of(became)
    assert (type(found), astuple(found)) == (became, astuple(entry))


@pytest.mark.usefixtures("registries")
def test_a_merge_is_the_same_whatever_what_decides_it_is_called() -> None:
    """It is known by a hash of what decides it, which has no names in it either."""
    record = MergeRecord(Bitmap(3), 4, [Bitmap(3)] * 3, {SeatIndex(0): 8, SeatIndex(1): 8})
    update = RevealedUpdate(SeatIndex(0), b"cid", digest("root"))

    def key(update: RevealedUpdate) -> str:
        round_id = RoundId(Domain(31337, address("rounds")), JobId(7), RoundIndex(3))
        return DoMerge(round_id, digest("seed"), record, (update,), b"", b"").key

    became = type("Renamed", (RevealedUpdate,), {"__slots__": ()})
    assert key(became(*astuple(update))) == key(update)
    assert key(replace(update, root=digest("another"))) != key(update)
