"""The page in a browser: its numbers, its curves and its replay."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import pytest
from tests.integration.dashboard.browser import Tab
from tests.integration.dashboard.pages import FORMATS, duration, show
from tests.integration.dashboard.pictures import MENU, MENU_FILE

# --- pictures ---


async def test_the_pictures_are_of_a_page_with_this_menu(
    tab: Tab, job: dict[str, Any], tmp_path: Path
) -> None:
    await show(tab, job, tmp_path)
    told = "make them anew: `python -m tests.integration.dashboard.pictures after RUN/report.html`"
    assert json.loads(MENU_FILE.read_text()) == await tab.run(MENU), told


async def test_what_speaks_against_the_models_stands_at_its_head_and_beside_each_round(
    tab: Tab, job: dict[str, Any], tmp_path: Path
) -> None:
    await show(tab, job, tmp_path)
    warned = await tab.run("[...document.querySelectorAll('.warn')].map((e) => e.textContent)")
    lines = job["signs"]["lines"]
    assert lines and any(all(line in text for line in lines) for text in warned)
    rows = await tab.run(
        "[...document.querySelectorAll('#rounds tbody tr')].map((e) => e.textContent)"
    )
    assert [", tainted" in row for row in rows] == [True, True]


SHOWN = """[...document.querySelectorAll('[data-path]')]
    .map((node) => [JSON.parse(node.dataset.path), node.dataset.as, node.textContent])"""
LOOSE = r"""(() => {
  const found = [], walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    const node = walk.currentNode;
    const told = node.parentElement.closest('[data-path],[data-derived],script,title');
    if (/\d/.test(node.data) && !told)
      found.push(node.data);
  }
  return found;
})()"""


def at(document: Any, path: list[Any]) -> Any:
    for name in path:
        document = document[name]
    return document


def leaves(value: Any, path: tuple[Any, ...] = ()) -> dict[tuple[Any, ...], Any]:
    if isinstance(value, dict | list):
        entries = value.items() if isinstance(value, dict) else enumerate(value)
        found = [leaves(item, (*path, name)) for name, item in entries]
        return {key: leaf for some in found for key, leaf in some.items()}
    return {path: value}


WANTED: dict[str, str] = {
    "what": r"^(?!created$|tokenizer_cid$)",
    "speed": r"^(tokens|planned_tokens|recent_tokens_per_second|trained_by)$",
    "price": r"",
    "sample": r"",
    "seats": r"^(name|tokens|utilisation)$",
    "progress": r"^tokens$",
    "money": r"_wei$|^(faults|wei|tx|training|signatures|audits|credits)$",
    "members": r"_wei$|^gateway$",
    "grid": r"^(text|cid|block|log)$",
    "rounds": r"^(cost_wei|round|phase|train|reveal|merge)$",
    "losses": r"^wei$",
    "curve": r"^(certified|own|reward|length|spread|held_out_reward)$",
    "games": r"^(text|bond_wei|outcome)$",
    "log": r"^text$",
    "measured": r"",
}
"""What has to be on a job's page: by the part of the document, the names of its leaves."""


def has_to_be_shown(path: tuple[Any, ...], value: Any) -> bool:
    named = path[0] in WANTED and re.search(WANTED[path[0]], str(path[-1]))
    return value not in (None, "", []) and bool(named)


async def shown_in(tab: Tab, document: dict[str, Any]) -> set[tuple[Any, ...]]:
    """Paths of everything on the page, each of which was compared with the document."""
    found = await tab.run(SHOWN)
    for path, kind, text in found:
        assert text == FORMATS[kind](at(document, path)), (path, kind)
    return {tuple(path) for path, _, _ in found}


async def test_every_number_of_a_jobs_page_is_the_documents(
    tab: Tab, job: dict[str, Any], tmp_path: Path
) -> None:
    await show(tab, job, tmp_path)
    shown = await shown_in(tab, job)
    for row in range(len(job["grid"]["rows"])):
        for seat in range(job["grid"]["seats"]):
            await tab.run(
                f'document.querySelector(\'[data-row="{row}"][data-seat="{seat}"]\').focus()'
            )
            shown |= await shown_in(tab, job)
    assert await tab.run(LOOSE) == []
    wanted = {path for path, value in leaves(job).items() if has_to_be_shown(path, value)}
    assert wanted - shown == set()


async def test_a_networks_days_are_read_by_keys(
    tab: Tab, network: dict[str, Any], tmp_path: Path
) -> None:
    whole = 10**18
    days = [
        {"day": 86_400 * (20_000 + i), "tokens": 1000 * i, "rounds": i,
         "paid_wei": str(i * whole), "slashed_wei": str(7 * i * whole)} for i in range(1, 5)
    ]  # fmt: skip
    changed = network | {"days": days}
    await show(tab, changed, tmp_path)
    for measure, last in (("tokens", "4,000"), ("paid_wei", "4"), ("slashed_wei", "28")):
        await tab.run(f"document.getElementById('days-{measure}').click()")
        await tab.run("document.querySelector('#day-chart .chart').focus()")
        for key, day in (("Home", days[0]), ("End", days[-1])):
            await tab.press(key)
            await shown_in(tab, changed)
            said = await tab.run("document.querySelector('#day-chart .readout').textContent")
            assert said.startswith(f"{FORMATS['day'](day['day'])}: ")
        assert said.startswith(f"{FORMATS['day'](day['day'])}: {last} ")
    assert await tab.run(LOOSE) == []
    assert tab.complaints == []


async def test_every_number_of_a_networks_page_is_the_documents(
    tab: Tab, network: dict[str, Any], tmp_path: Path
) -> None:
    await show(tab, network, tmp_path)
    shown = await shown_in(tab, network)
    assert await tab.run(LOOSE) == []
    wanted = {path for path in leaves(network) if str(path[-1]).endswith("_wei")}
    assert wanted <= shown


async def test_every_number_of_a_members_page_is_the_documents(
    tab: Tab, member: dict[str, Any], tmp_path: Path
) -> None:
    await show(tab, member, tmp_path)
    shown = await shown_in(tab, member)
    assert await tab.run(LOOSE) == []
    wanted = {
        path for path in leaves(member)
        if str(path[-1]).endswith(("wei", "text", "what", "gateway")) and "paid_for_wei" not in path
    }  # fmt: skip
    assert wanted - shown == set()


THEN = "document.querySelector('#then h3').textContent"
LATER = "[...document.querySelectorAll('#grid td.later')].map((c) => c.dataset.row)"


async def test_the_replay_goes_through_every_event_by_keys(
    tab: Tab, job: dict[str, Any], tmp_path: Path
) -> None:
    await show(tab, job, tmp_path)
    lines = job["log"]["lines"]
    assert (await tab.run(THEN), await tab.run(LATER)) == (lines[-1]["text"], [])
    await tab.run("document.getElementById('moment').focus()")
    await tab.press("Home")
    rows, seats = len(job["grid"]["rows"]), job["grid"]["seats"]
    for index, line in enumerate(lines):
        assert await tab.run(THEN) == line["text"]
        await shown_in(tab, job)
        begun = -1 if line["then"]["round"] is None else line["then"]["round"]
        faint = [str(row) for row in range(rows) if row > begun] if index < len(lines) - 1 else []
        assert sorted(await tab.run(LATER)) == sorted(faint * seats)
        await tab.press("ArrowRight")
    assert await tab.run(LOOSE) == []
    assert tab.complaints == []


CURVE = [
    {"merged": 0, "certified": 5.5, "own": None, "disputed": False},
    {"merged": 1, "certified": 5.0, "own": 4.9, "disputed": True},
    {"merged": 2, "certified": None, "own": 4.5, "disputed": False},
]
READOUT = "document.querySelector('#curve .readout').textContent"
CANVAS = """(() => { const c = document.querySelector('#curve canvas');
    const d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data;
    let n = 0; for (let i = 3; i < d.length; i += 4) n += d[i] > 0; return n; })()"""


async def test_the_curve_says_each_known_loss_to_keys_and_pointer(
    tab: Tab, job: dict[str, Any], tmp_path: Path
) -> None:
    changed = job | {"curve": CURVE}
    await show(tab, changed, tmp_path)
    assert await tab.run(CANVAS) > 500
    await tab.run("document.querySelector('#curve .chart').focus()")
    read = []
    for key in ("Home", "ArrowRight", "ArrowRight"):
        await tab.press(key)
        await shown_in(tab, changed)
        read.append((await tab.run(READOUT)).split(" ·")[0])
    assert read == [
        "after 0 rounds: 5.5000 certified",
        "after 1 rounds: 5.0000 certified 4.9000 computed here",
        "after 2 rounds: 4.5000 computed here",
    ]
    await tab.run("document.getElementById('curve').scrollIntoView()")
    box = await tab.run(
        "(() => { const b = document.querySelector('#curve .u-over').getBoundingClientRect();"
        " return [b.x, b.y, b.width, b.height]; })()"
    )
    left, middle = box[0] + 0.02 * box[2], box[1] + box[3] / 2
    await tab.call("Input.dispatchMouseEvent", type="mouseMoved", x=left, y=middle)
    await tab.until(f"{READOUT}.startsWith('after 0 rounds: 5.5000')")
    assert tab.complaints == []


@pytest.mark.parametrize("axis", ["rounds", "tokens", "hours"])
async def test_the_curve_goes_by_rounds_tokens_or_hours(
    tab: Tab, job: dict[str, Any], axis: str, tmp_path: Path
) -> None:
    await show(tab, job, tmp_path)
    await tab.run(f"document.getElementById('axis-{axis}').click()")
    await tab.run("document.querySelector('#curve .chart').focus()")
    await tab.press("Home", "ArrowRight")
    point = job["progress"][1]
    said = f"{point['tokens']:,} tokens · {duration(point['seconds'])}"
    assert (await tab.run(READOUT)).endswith(said)
    assert await tab.run(LOOSE) == []


async def test_the_curve_is_looked_at_closer_and_whole_again(
    tab: Tab, job: dict[str, Any], tmp_path: Path
) -> None:
    curve = [CURVE[0] | {"merged": merged, "certified": 5 - merged / 20} for merged in range(40)]
    progress = [job["progress"][0] | {"merged": merged} for merged in range(40)]
    await show(tab, job | {"curve": curve, "progress": progress}, tmp_path)
    zoomed = "document.getElementById('loss').classList.contains('zoomed')"
    assert await tab.run(zoomed) is False
    await tab.run("document.querySelector('#loss .tool').click()")
    await tab.until(zoomed)
    await tab.run("document.querySelector('#loss .tool:last-child').click()")
    await tab.until(f"!{zoomed}")
    assert tab.complaints == []


@pytest.mark.parametrize("measure", ["segments", "paid_wei", "seconds", "distance"])
async def test_each_seat_has_a_curve_of_what_it_did(
    tab: Tab, job: dict[str, Any], measure: str, tmp_path: Path
) -> None:
    await show(tab, job, tmp_path)
    await tab.run(f"document.getElementById('seats-{measure}').click()")
    assert await tab.run("document.querySelectorAll('#seats canvas').length") == len(job["seats"])
    kinds = {"segments": "count", "paid_wei": "tokens", "seconds": "duration", "distance": "ratio"}
    for key, index in (("Home", 0), ("End", 1)):
        for seat, entry in enumerate(job["seats"]):
            await tab.run(f"document.querySelector('#seat-{seat} .chart').focus()")
            await tab.press(key)
            await shown_in(tab, job)
            text = await tab.run(f"document.querySelector('#seat-{seat} .readout').textContent")
            value = entry["rounds"][index][measure]
            said = "–" if value is None else FORMATS[kinds[measure]](value)
            assert text.startswith(f"round {entry['rounds'][index]['round']}: {said}")
    assert await tab.run(LOOSE) == []
    assert tab.complaints == []


async def test_of_a_long_job_the_newest_rounds_are_drawn(
    tab: Tab, job: dict[str, Any], tmp_path: Path
) -> None:
    rounds = [job["rounds"][0] | {"round": number} for number in range(1200)]
    await show(tab, job | {"rounds": rounds}, tmp_path)
    first = "[...document.querySelectorAll('#rounds tbody td:first-child')].map((n) => n.innerText)"
    assert await tab.run(first) == [str(number) for number in range(1199, 699, -1)]
    note = await tab.run("document.querySelector('#rounds .note + .note').textContent")
    assert note == "The newest 500 of 1200 are shown; the page’s source has them all."
    assert await tab.run(LOOSE) == []


async def test_losses_that_differ_in_their_last_bit_are_drawn(
    tab: Tab, job: dict[str, Any], tmp_path: Path
) -> None:
    """A machine whose number is not the committee's is what the curve is looked at for."""
    one = {"merged": 0, "certified": 3.0, "own": math.nextafter(3.0, 4.0), "disputed": True}
    await show(tab, job | {"curve": [one]}, tmp_path)
    assert await tab.run(CANVAS) > 500
    assert await tab.run(READOUT) != ""
    assert tab.complaints == []


async def test_a_job_that_learns_by_rewards_shows_them(
    tab: Tab, rewarded: dict[str, Any], tmp_path: Path
) -> None:
    await show(tab, rewarded, tmp_path)
    shown = await shown_in(tab, rewarded)
    fields = ("reward", "length", "spread", "held_out_reward")
    wanted = {("curve", i, name) for i in range(3) for name in fields}
    missing = {path for path in wanted - shown if at(rewarded, list(path)) is not None}
    assert missing == set()
    assert {("what", "task", name) for name in ("prompts", "group", "new_tokens")} <= shown
    head = await tab.run("document.getElementById('head').innerText")
    assert "34.4 %" in head
    assert "held out 40.8 %" in head
    assert "answers to 42,000 prompts" in head
    await tab.run("document.querySelector('#reward-curve .chart').focus()")
    await tab.press("Home")
    readout = "document.querySelector('#reward-curve .readout').textContent"
    assert await tab.run(readout) == "after 0 rounds: nothing counted · 6.4 % held out"
    await tab.press("ArrowRight")
    assert await tab.run(readout) == (
        "after 1 rounds: 12.8 % of the reward · 9.5 tokens · 62.4 % of groups with an advantage"
        " · 19.2 % held out"
    )


async def test_a_job_of_text_shows_no_rewards(
    tab: Tab, job: dict[str, Any], tmp_path: Path
) -> None:
    await show(tab, job, tmp_path)
    assert await tab.run("document.getElementById('rewards')") is None
