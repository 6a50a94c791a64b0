"""The page in a browser: its numbers, its keys, narrow and dark, and strangers' strings."""

from __future__ import annotations

import json
import math
import re
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from tests.integration.dashboard.browser import Tab, browsing
from tests.integration.dashboard.pictures import MENU, MENU_FILE
from tests.support.manifests import make_manifest
from tests.unit.dashboard.jobs import (
    HOSTILE,
    LIAR,
    document_of,
    finished,
    items_of,
    names_of,
    with_strangers,
)
from tests.unit.protocol.script import PROVIDERS, Script

from atoll.dashboard.member import member_document
from atoll.dashboard.network_document import network_document
from atoll.dashboard.page import page
from atoll.job.event_text import tokens
from atoll.job.figures import RoundFigures
from atoll.job.ledger.overview import Beside, GasSpent, Sample
from atoll.protocol.losses import loss_bytes

MEASURED = {
    "utilisation": {"mean": 0.8437},
    "bytes": {"uploaded": 1234567, "downloaded": 7654321},
    "uplink_bytes_per_parameter": 1.25,
    "downlink_bytes_per_parameter": 3.5,
    "audit_overhead": 0.5,
    "gas": {"commit": 91234, "reveal": 142623},
}


@pytest.fixture(scope="module")
def ended() -> Script:
    return with_strangers(finished())


EXPLORER = "https://explorer.example"


@pytest.fixture(scope="module")
def job(ended: Script) -> dict[str, Any]:
    beside = Beside(
        manifest=make_manifest(),
        sources=("hf://datasets/someone/stories@0123456789abcdef",),
        gas=GasSpent(transactions=31, counted=30, gas=4_123_456, wei=41_234_560_000_000_000),
        sample=Sample("Once upon a time", " there was 1 reef.", 2),
        explorer=EXPLORER,
    )
    losses = [
        RoundFigures(0, certified=loss_bytes(5.5)),
        RoundFigures(1, computed=loss_bytes(4.75)),
    ]
    losses += [RoundFigures(2, certified=loss_bytes(4.25), computed=loss_bytes(4.5))]
    told = document_of(ended, names=names_of(ended), figures=losses, beside=beside)
    return told | {"measured": MEASURED}


@pytest.fixture(scope="module")
def network(ended: Script) -> dict[str, Any]:
    net = ended.net
    return network_document({net.job: net.view}, items_of(ended), net.now, names_of(ended))


@pytest.fixture(scope="module")
def member(ended: Script) -> dict[str, Any]:
    """Of the provider that lied, was slashed, and announced a hostile address."""
    net = ended.net
    return member_document(PROVIDERS[LIAR], {net.job: net.view}, items_of(ended), net.now)


@pytest.fixture
async def tab(tmp_path: Path) -> AsyncIterator[Tab]:
    async with browsing(tmp_path) as found:
        await found.look_like()
        yield found


async def show(tab: Tab, document: dict[str, Any], folder: Path) -> None:
    """Opens the page of a document as the file that it is."""
    file = folder / "page.html"
    file.write_text(page(document), encoding="utf-8")
    await tab.open(file.as_uri())


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


# --- numbers ---


def duration(seconds: float) -> str:
    """The two largest units that there are any of."""
    left, parts = int(seconds), []
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s")):
        count, left = divmod(left, size)
        parts += [f"{count} {unit}"] if count else []
    return " ".join(parts[:2]) or "0 s"


FORMATS = {
    "text": str,
    "count": lambda value: f"{value:,}" if isinstance(value, int) else str(value),
    "tokens": lambda value: tokens(int(value)),
    "coin": lambda value: tokens(int(value)),
    "loss": lambda value: f"{value:.4f}",
    "seconds": lambda value: f"{value} s",
    "duration": duration,
    "rate": lambda value: f"{value:,.1f}",
    "seats": lambda value: ", ".join(map(str, value)) or "none",
    "size": lambda value: str(len(value)),
    "share": lambda value: f"{100 * value:.1f} %",
    "short": lambda value: value[:12],
    "address": lambda value: f"{value[:6]}…{value[-4:]}",
    "time": lambda value: datetime.fromtimestamp(value, UTC).strftime("%Y-%m-%d %H:%M:%S UTC"),
    "minute": lambda value: datetime.fromtimestamp(value, UTC).strftime("%Y-%m-%d %H:%M UTC"),
    "day": lambda value: datetime.fromtimestamp(value, UTC).strftime("%Y-%m-%d"),
    "ratio": lambda value: f"{value:.3f}",
}
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
    "curve": r"^(certified|own)$",
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


@pytest.mark.parametrize("measure", ["segments", "paid_wei", "seconds"])
async def test_each_seat_has_a_curve_of_what_it_did(
    tab: Tab, job: dict[str, Any], measure: str, tmp_path: Path
) -> None:
    await show(tab, job, tmp_path)
    await tab.run(f"document.getElementById('seats-{measure}').click()")
    assert await tab.run("document.querySelectorAll('#seats canvas').length") == len(job["seats"])
    kinds = {"segments": "count", "paid_wei": "tokens", "seconds": "duration"}
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


# --- where to look on ---


async def test_everything_has_a_way_to_the_explorer_and_into_the_clipboard(
    tab: Tab, job: dict[str, Any], tmp_path: Path
) -> None:
    await show(tab, job, tmp_path)
    links = await tab.run("[...document.querySelectorAll('a.out')].map((a) => a.href)")
    accounts = {member["account"] for member in job["members"]}
    assert {f"{EXPLORER}/address/{account}" for account in accounts} <= set(links)
    assert f"{EXPLORER}/address/{job['job']['submitter']}" in links
    assert {f"{EXPLORER}/tx/{move['tx']}" for move in job["money"]["moves"]} <= set(links)
    copied = await tab.run(
        "(async () => { const texts = []; Object.defineProperty(navigator, 'clipboard', { value:"
        " { writeText: async (text) => { texts.push(text); } } });"
        " for (const b of document.querySelectorAll('button.copy')) b.click();"
        " await new Promise((done) => setTimeout(done, 0)); return texts; })()"
    )
    assert set(job["commands"].values()) - set(copied) <= {job["commands"]["model"]}
    assert accounts | {move["tx"] for move in job["money"]["moves"]} <= set(copied)
    assert {job["what"]["train_cid"], job["job"]["spec_cid"]} <= set(copied)
    await tab.until("document.querySelector('button.copied') === null")
    assert tab.complaints == []


async def test_a_network_without_an_explorer_has_no_links_to_one(
    tab: Tab, job: dict[str, Any], tmp_path: Path
) -> None:
    await show(tab, job | {"explorer": ""}, tmp_path)
    assert await tab.run("document.querySelectorAll('a.out').length") == 0


async def test_a_stranger_reads_what_matters_first(
    tab: Tab, job: dict[str, Any], tmp_path: Path
) -> None:
    """What, by whom, how well, until when, for how much, what share trained: on a telephone, too,
    above the menu."""
    await tab.look_like(width=390)
    await show(tab, job, tmp_path)
    head = await tab.run("document.getElementById('head').innerText")
    what, speed, price = job["what"], job["speed"], job["price"]
    for said in (
        what["name"], f"{what['parameters']:,} parameters", f"{what['train_tokens']:,} tokens",
        "provider 0, provider 1", FORMATS["loss"](job["curve"][2]["certified"]),
        f"Trained {FORMATS['minute'](speed['trained_by'])}",
        FORMATS["tokens"](price["earned_million_wei"]), FORMATS["share"](price["training_share"]),
        FORMATS["count"](price["gas"]["gas"]),
    ):  # fmt: skip
        assert said in head, said


async def test_on_a_telephone_the_money_table_shows_money(
    tab: Tab, job: dict[str, Any], tmp_path: Path
) -> None:
    await tab.look_like(width=390)
    await show(tab, job, tmp_path)
    boxes = await tab.run(
        "[...document.querySelectorAll('#money .list')[0].querySelectorAll('td')]"
        ".map((n) => { const b = n.getBoundingClientRect(); return [b.left, b.right]; })"
    )
    assert len(boxes) == 6 * (len(job["money"]["accounts"]) + 1)
    assert all(0 <= left < right <= 390 for left, right in boxes)
    labels = await tab.run(
        "[...document.querySelectorAll('#money tbody tr')[0].children].slice(1)"
        ".map((n) => getComputedStyle(n, '::before').content)"
    )
    names = ["Training", "Signatures", "Audits", "Credits", "In all"]
    assert labels == [f'"{name}"' for name in names]
    roles = await tab.run(
        "[...document.querySelectorAll('#money .list')[0].querySelectorAll('tr')]"
        ".map((n) => n.getAttribute('role'))"
    )
    assert set(roles) == {"row"}


@pytest.mark.parametrize(("width", "columns"), [(1100, 1), (1400, 2)])
async def test_a_wide_page_has_two_columns(
    tab: Tab, job: dict[str, Any], width: int, columns: int, tmp_path: Path
) -> None:
    await tab.look_like(width=width)
    await show(tab, job, tmp_path)
    lefts = await tab.run(
        "[...document.querySelectorAll('#loss, #what')].map((n) => n.getBoundingClientRect().left)"
    )
    assert len(set(lefts)) == columns


# --- looks ---


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [380, 1100])
@pytest.mark.parametrize("kind", ["job", "member", "network"])
async def test_it_fits_and_complains_of_nothing(
    tab: Tab, request: pytest.FixtureRequest, kind: str, width: int, dark: bool, tmp_path: Path
) -> None:
    await tab.look_like(width=width, dark=dark)
    await show(tab, request.getfixturevalue(kind), tmp_path)
    await tab.run("document.querySelectorAll('details').forEach((d) => { d.open = true; })")
    assert await tab.run("document.documentElement.scrollWidth") <= width
    assert tab.complaints == []


CONTRASTS = """(() => {
  const canvas = new OffscreenCanvas(1, 1).getContext('2d', { willReadFrequently: true });
  const rgb = (colour) => { canvas.fillStyle = '#000'; canvas.fillStyle = colour;
    canvas.fillRect(0, 0, 1, 1); return [...canvas.getImageData(0, 0, 1, 1).data].slice(0, 3); };
  const paper = (node) => { for (let n = node; n; n = n.parentElement) {
    const colour = getComputedStyle(n).backgroundColor;
    if (!/, 0\\)$/.test(colour)) return colour; } return 'white'; };
  return [...document.querySelectorAll('.cell, dt, dd, p, h1, h2, h3, td, th, a, summary, .when')]
    .map((n) => [n.className || n.tagName, rgb(getComputedStyle(n).color), rgb(paper(n))]);
})()"""


def contrast(one: list[int], other: list[int]) -> float:
    """As WCAG 2.2 defines it."""

    def luminance(rgb: list[int]) -> float:
        parts = [c / 255 for c in rgb]
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
async def test_everything_can_be_read(
    tab: Tab, job: dict[str, Any], dark: bool, tmp_path: Path
) -> None:
    states = list(job["grid"]["states"])
    row = [job["grid"]["rows"][0][0] | {"state": state} for state in states]
    every = job | {"grid": job["grid"] | {"seats": len(states), "rows": [row, row]}}
    await tab.look_like(dark=dark)
    await show(tab, every, tmp_path)
    found = await tab.run(CONTRASTS)
    assert {name.split()[1][2:] for name, _, _ in found if name.startswith("cell ")} == set(states)
    faint = [(name, ink, ground) for name, ink, ground in found if contrast(ink, ground) < 4.5]
    assert faint == []
    body = await tab.run("getComputedStyle(document.body).backgroundColor")
    ground = [int(part) for part in re.findall(r"\d+", body)[:3]]
    assert (sum(ground) < 3 * 64) is dark


# --- keys ---

FOCUSED = """(() => {
  const node = document.activeElement, { row, seat } = node.dataset;
  return [node.tagName, node.id || node.className, row ?? '', seat ?? ''];
})()"""
RING = "getComputedStyle(document.activeElement).outlineStyle"


async def test_it_is_used_by_keys_alone(tab: Tab, job: dict[str, Any], tmp_path: Path) -> None:
    await show(tab, job, tmp_path)
    await tab.press("Tab")
    assert (await tab.run(FOCUSED))[:2] == ["A", "skip"]
    for _ in range(60):
        assert await tab.run(RING) != "none"
        tag, name, row, seat = await tab.run(FOCUSED)
        if row != "":
            break
        await tab.press("Tab")
    assert (tag, row, seat) == ("TD", "1", "0")  # the newest round, and one stop for the whole grid
    assert "cell" in name
    steps = [
        ("ArrowDown", 1, 1), ("ArrowLeft", 0, 1), ("ArrowLeft", 0, 1), ("PageDown", 0, 3),
        ("ArrowDown", 0, 3), ("End", 1, 3), ("ArrowUp", 1, 2), ("Home", 0, 2), ("PageUp", 0, 0),
        ("ArrowRight", 1, 0),
    ]  # fmt: skip
    for key, row_, seat_ in steps:
        await tab.press(key)
        assert (await tab.run(FOCUSED))[2:] == [str(row_), str(seat_)], key
        text = await tab.run("document.querySelector('#why p').textContent")
        assert text == job["grid"]["rows"][row_][seat_]["text"]
    await tab.press("Tab")
    assert (await tab.run(FOCUSED))[2] == ""


async def test_the_pointer_tells_the_same_as_the_keys(
    tab: Tab, job: dict[str, Any], tmp_path: Path
) -> None:
    await show(tab, job, tmp_path)
    box = await tab.run(
        '(() => { const c = document.querySelector(\'[data-row="0"][data-seat="3"]\');'
        " c.scrollIntoView(); const b = c.getBoundingClientRect();"
        " return [b.x + b.width / 2, b.y + b.height / 2]; })()"
    )
    await tab.call("Input.dispatchMouseEvent", type="mouseMoved", x=box[0], y=box[1])
    await tab.until("document.querySelector('.cell.chosen').dataset.seat === '3'")
    text = await tab.run("document.querySelector('#why p').textContent")
    assert text == job["grid"]["rows"][0][3]["text"]


async def test_it_says_what_it_is_to_those_who_do_not_see_it(
    tab: Tab, job: dict[str, Any], tmp_path: Path
) -> None:
    await show(tab, job, tmp_path)
    answer = await tab.call("Accessibility.getFullAXTree")
    named = {
        (node["role"]["value"], node.get("name", {}).get("value", ""))
        for node in answer["nodes"]
        if "role" in node
    }
    headings = {" ".join(name.split()) for role, name in named if role == "heading"}
    assert {
        f"{job['what']['name']} · Job {job['job']['job']}",
        "Seats and rounds",
        "Money",
    } <= headings
    assert ("grid", "What became of each seat in each round") in named
    cells = {name for role, name in named if role == "gridcell"}
    meaning = job["grid"]["states"]["slashed"][1]
    assert f"round 0, seat 3: {meaning}" in cells
    unnamed = [role for role, name in named if role in {"link", "image", "region"} and not name]
    assert unnamed == []


# --- strangers ---


async def test_strangers_strings_are_text(
    tab: Tab, job: dict[str, Any], network: dict[str, Any], tmp_path: Path
) -> None:
    for document in (job, network):
        await show(tab, document, tmp_path)
        shown = await tab.run(
            "[...document.querySelectorAll('[data-path]')].map((n) => n.textContent)"
        )
        assert set(HOSTILE) <= set(shown)
        assert await tab.run("window.hacked") is None
        assert await tab.run("document.querySelectorAll('img, iframe, body script').length") == 3
        assert not await tab.run("[...document.links].some((a) => a.protocol === 'javascript:')")
    assert tab.complaints == []


async def test_even_a_script_that_got_in_would_not_run(
    tab: Tab, job: dict[str, Any], tmp_path: Path
) -> None:
    file = tmp_path / "page.html"
    broken = page(job).replace("</main>", "</main><script>window.hacked = 5</script>")
    file.write_text(broken, encoding="utf-8")
    await tab.open(file.as_uri())
    assert await tab.run("window.hacked") is None
    assert any("Content Security Policy" in json.loads(c).get("entry", {}).get("text", "")
               for c in tab.complaints)  # fmt: skip
