"""Helpers that are no good, as processes: `python -m tests.integration.node.rollout_strangers`.

The pass of each is its kind; a stranger's is none that the provider has. Each takes parts as an
honest one does, says on standard output when it has sent what it has to send, and goes on until it
is ended.
"""

from __future__ import annotations

import json
import sys
import time
import urllib.error
import urllib.request
from typing import Any

PAUSE = 0.01
ROW_BYTES = 4 * 17
"""Of a sequence of the tests' job."""


def asked(url: str, body: bytes | None = None, name: str = "") -> tuple[int, bytes]:
    """Status and bytes of an answer to who has this pass; the process's own if not given."""
    headers = header_for(name or sys.argv[1])
    request = urllib.request.Request(url, data=body, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


def header_for(name: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {name}"}


def part_of(url: str, name: str = "") -> Any:
    """One that is to be done; waits for it."""
    while True:
        asked(f"{url}/offer", None, name)
        status, answer = asked(f"{url}/take", b"", name)
        if status == 200:
            return json.loads(answer)
        if status == 403:
            return None
        time.sleep(PAUSE)


def address_of(url: str, taken: Any) -> str:
    return f"{url}/parts/{taken['lease']}"


def rows_of(taken: Any, token: int) -> bytes:
    """Its prompts, each followed by one token."""
    rows = b""
    for prompt in taken["prompts"]:
        row = b"".join(each.to_bytes(4, "little") for each in (*prompt, token))
        rows += row.ljust(ROW_BYTES, b"\0")
    return rows


def lie(url: str) -> str:
    """Sends answers that look like some, until it is refused."""
    sent = 0
    while (taken := part_of(url)) is not None:
        asked(address_of(url, taken), rows_of(taken, 2))
        sent += 1
        if sent == 1:
            say("sent")
    return "refused"


def send_garbage(url: str) -> str:
    """Sends what is nothing, in every way; what the endpoint said to each."""
    taken = part_of(url)
    size = len(taken["prompts"]) * ROW_BYTES
    other = address_of(url, taken | {"lease": "0" * 32})
    said = [
        asked(address_of(url, taken), b"\xff" * (size - 1))[0],
        asked(address_of(url, taken), b"")[0],
        asked(other, b"\xff" * size)[0],
        asked(f"{url}/parts/../../counts.json/1", b"1")[0],
        asked(f"{url}/files/{'0' * 64}")[0],
        asked(address_of(url, taken), b"\xff" * size)[0],
        asked(address_of(url, taken), b"\xff" * size)[0],
    ]
    say("sent")
    return " ".join(map(str, said))


def send_for_another(url: str) -> str:
    """Sends what is false of a part that another helper has taken, in all ways that name it."""
    taken = part_of(url, "a victim")
    body = rows_of(taken, 2)
    step, first = taken["step"], taken["part"]["first"]
    ways = [f"{url}/parts/{step}/{first}", f"{url}/parts/{step}", f"{url}/parts/{first:032x}"]
    said = [asked(way, body)[0] for way in [*ways, address_of(url, taken)]]
    say("sent")
    return " ".join(map(str, said))


def ask_without_a_pass(url: str) -> str:
    """Everything that a helper may ask, and what only one may send, of a part that one has."""
    taken = part_of(url, "a victim")
    paths = ["offer", f"files/{'0' * 64}", "base"]
    said = [asked(f"{url}/{path}")[0] for path in paths]
    said += [asked(f"{url}/take", b"")[0], asked(address_of(url, taken), rows_of(taken, 2))[0]]
    say("sent")
    return " ".join(map(str, said))


def hold(url: str) -> str:
    """Takes a part of a step and keeps it."""
    part_of(url)
    say("sent")
    return "holds"


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


KINDS = {
    "liar": lie,
    "garbage": send_garbage,
    "slow": hold,
    "thief": send_for_another,
    "stranger": ask_without_a_pass,
}

if __name__ == "__main__":
    kind, address = sys.argv[1:]
    say(KINDS[kind](address))
    sys.stdin.read()  # until it is ended
