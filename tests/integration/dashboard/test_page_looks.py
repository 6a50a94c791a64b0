"""How the page looks and is used in a headless Chromium: widths, contrasts, keys, strangers."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from tests.integration.dashboard.browser import Tab
from tests.integration.dashboard.pages import ABOUT, EXPLORER, FORMATS, show
from tests.unit.dashboard.jobs import (
    HOSTILE,
)

from atoll.dashboard.page import page

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
        what["name"], *ABOUT.splitlines(),
        f"{what['parameters']:,} parameters", f"{what['train_tokens']:,} tokens",
        "provider 0, provider 1", FORMATS["loss"](job["curve"][2]["certified"]),
        f"Trained {FORMATS['minute'](speed['trained_by'])}",
        FORMATS["tokens"](price["earned_million_wei"]), FORMATS["share"](price["training_share"]),
        FORMATS["tokens"](price["million_wei"]), FORMATS["share"](price["planned_training_share"]),
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
@pytest.mark.parametrize("kind", ["job", "rewarded", "member", "network"])
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
