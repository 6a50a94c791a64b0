"""What is said of whose an account is."""

from __future__ import annotations

from atoll.cli.owner import ownership_lines
from atoll.protocol.owners import Ownership
from atoll.protocol.types import Address

NODE, OWNER = Address("0x" + "11" * 20), Address("0x" + "22" * 20)


def test_who_proposed_an_owner_is_told_what_that_one_does_next() -> None:
    accept = f"`atoll stake owner accept --node {NODE}`"
    proposed = ownership_lines(NODE, Ownership(NODE, NODE, OWNER))
    assert [line for line in proposed if accept in line] == [
        f"next       with that one's key: {accept}"
    ]
    accepted = ownership_lines(NODE, Ownership(OWNER, OWNER))
    assert not [line for line in accepted if accept in line]
