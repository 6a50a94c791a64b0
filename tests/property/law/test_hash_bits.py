"""One bit changed anywhere in what is signed or committed changes the hash."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from tests.unit.law.factories import SEAT, SLOT, address, cid, digest, make_reveal, make_trace
from tests.unit.law.factories import make_manifest as manifest_of

from atoll.law import hashing
from atoll.law.draws import batch_digest
from atoll.law.words import Bitmap, Digest, Domain, Evidence, Offence, Verdict

SENDER = address("provider")
MANIFEST = manifest_of()
TRACE, _ = make_trace(MANIFEST)
EVIDENCE = Evidence(*(Bitmap(bits) for bits in (31, 11, 4, 16, 4, 5)))
VERDICT = Verdict(
    evidence_root=digest("e"),
    cut_block_hash=digest("c"),
    merged_digest=digest("m"),
    merged_cid=cid("m"),
    claims_root=digest("r"),
    cumulative_total=10**21,
    tokens_root=digest("t"),
    tokens_total=10**6,
    parent=digest("p"),
)


def flip_bytes(data: bytes, bit: int) -> bytes:
    changed = bytearray(data)
    changed[bit // 8 % len(data)] ^= 1 << bit % 8
    return bytes(changed)


def flip(value: Any, bit: int, widths: int) -> Any:
    """The value with one of its bits changed; integers stay within `widths` bits."""
    if isinstance(value, bytes):
        return flip_bytes(value, bit)
    if isinstance(value, bool):
        return not value
    return type(value)(value ^ 1 << bit % widths)


def mutate(item: Any, data: st.DataObject, width: int) -> Any:
    """A copy of a dataclass with one bit of one scalar field changed."""
    names = [f.name for f in fields(item) if isinstance(getattr(item, f.name), (int, bytes))]
    name = data.draw(st.sampled_from(names))
    bit = data.draw(st.integers(0, 2**16 - 1))
    return replace(item, **{name: flip(getattr(item, name), bit, width)})


def commit(slot: Any, reveal: Any) -> Digest:
    return hashing.commitment(slot, SEAT, SENDER, reveal)


@given(st.data())
def test_every_bit_of_a_reveal_is_in_its_commitment(data: st.DataObject) -> None:
    reveal = make_reveal()
    assert commit(SLOT, mutate(reveal, data, 32)) != commit(SLOT, reveal)


@given(st.data())
def test_every_bit_of_a_verdict_is_in_its_hash(data: st.DataObject) -> None:
    changed = mutate(VERDICT, data, 256)
    assert hashing.verdict_hash(SLOT, changed) != hashing.verdict_hash(SLOT, VERDICT)


@given(st.data())
def test_every_bit_of_the_evidence_is_in_its_root(data: st.DataObject) -> None:
    def root(evidence: Evidence) -> Digest:
        return hashing.evidence_root(SLOT, evidence, digest("seed"), digest("reveals"))

    assert root(mutate(EVIDENCE, data, 256)) != root(EVIDENCE)


@given(st.data())
def test_every_bit_of_the_terms_is_in_their_hash(data: st.DataObject) -> None:
    terms = MANIFEST.terms
    assert hashing.terms_hash(mutate(terms, data, 16)) != hashing.terms_hash(terms)


@given(st.data())
def test_every_bit_of_a_leaf_is_in_its_hash(data: st.DataObject) -> None:
    leaf = replace(TRACE.leaves[3], kind=0)  # type: ignore[arg-type]
    changed = mutate(leaf, data, 8)
    assert changed.hash != leaf.hash


IN_SLOT: list[Callable[[Any], Digest]] = [
    hashing.slot_hash,
    lambda slot: commit(slot, make_reveal()),
    lambda slot: hashing.audit_seed(slot, digest("a"), digest("b"), digest("c")),
    lambda slot: hashing.data_seed_from_block(slot, digest("a")),
    lambda slot: hashing.evidence_root(slot, EVIDENCE, digest("a"), digest("b")),
    lambda slot: hashing.verdict_hash(slot, VERDICT),
    lambda slot: replace(TRACE.leaves[0], slot=slot).hash,
]


@given(st.data(), st.sampled_from(IN_SLOT))
def test_every_bit_of_a_slot_is_in_every_hash_of_it(
    data: st.DataObject, hash_in: Callable[[Any], Digest]
) -> None:
    bit = data.draw(st.integers(0, 15))
    domains = [
        Domain(SLOT.domain.chain_id ^ 1 << bit, SLOT.domain.rounds),
        Domain(SLOT.domain.chain_id, address(f"other {bit}")),
    ]
    slots = [mutate(SLOT, data, 16), *(replace(SLOT, domain=domain) for domain in domains)]
    assert len({hash_in(slot) for slot in (SLOT, *slots)}) == 4


@given(st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=40), st.data())
def test_every_seats_tokens_are_in_their_root(tokens: list[int], data: st.DataObject) -> None:
    index = data.draw(st.integers(0, len(tokens) - 1))
    changed = list(tokens)
    changed[index] ^= 1 << data.draw(st.integers(0, 63))
    assert hashing.tokens_root(changed) != hashing.tokens_root(tokens)
    assert hashing.tokens_root([*tokens, 0]) != hashing.tokens_root(tokens)


@given(
    st.sampled_from(list(Offence)),
    st.integers(0, 255),
    st.sampled_from(list(Offence)),
    st.integers(0, 255),
)
def test_fault_ids_never_collide(a: Offence, i: int, b: Offence, j: int) -> None:
    same = hashing.fault_id(SLOT, a, i) == hashing.fault_id(SLOT, b, j)
    assert same == ((a, i) == (b, j))


@given(st.lists(st.lists(st.integers(0, 2**40), min_size=2, max_size=2), min_size=1, max_size=5))
def test_swapping_two_offsets_changes_a_batch_digest(steps: list[list[int]]) -> None:
    swapped = [steps[0][::-1], *steps[1:]]
    assert (batch_digest(swapped) == batch_digest(steps)) == (swapped == steps)
