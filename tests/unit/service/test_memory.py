"""What a job's parts hold in memory, as `atoll job check` says it and docs/sizes.md has it."""

from __future__ import annotations

import os
import re
import runpy
from pathlib import Path
from typing import Any

import pytest
from tests.unit.job.test_spec import DATA, NOW, NUMERICS

from atoll.job.plan import filled
from atoll.job.presets import preset
from atoll.job.spec import JobSpec
from atoll.numerics.memory_plan import LEAN, PLANS, RECOMPUTING, ROOMY
from atoll.numerics.state_layout import param_count
from atoll.protocol.families import LINEARS
from atoll.protocol.manifest import Manifest
from atoll.protocol.model_spec import LoraSpec
from atoll.train import memory_limit
from atoll.train.memory_needs import (
    START_BYTES,
    _Sizes,
    peaks,
    plan_for,
    provider_bytes,
    rank_bytes,
    submitter_bytes,
    verifier_bytes,
)

SIZES = Path(__file__).parents[3] / "docs" / "sizes.md"
LARGE = {
    "vocab": 128_256, "width": 4096, "layers": 32, "heads": 32, "kv_heads": 8, "head_dim": 128,
    "ffn": 14_336, "tied": False,
}  # fmt: skip
"""Of Llama 3 8B (Grattafiori et al. 2024, arXiv:2407.21783)."""
BENCH = preset("gpt2-small").but({"model.seq": 64, "inner.batch": 2, "inner.micro_batch": 1})
"""What the text says that bench/jobs.py measured."""
LORA_BENCH = BENCH.but({"model.seq": 256})
"""The base of bench/lora.py."""


def manifest_of(job: JobSpec, **changes: Any) -> Manifest:
    job = job.but({path.replace("__", "."): value for path, value in changes.items()})
    data = DATA.model_copy(update={"dtype": "uint32"})
    return filled(job).resolve(data, None, NUMERICS, NOW)


def said(job: JobSpec, **changes: Any) -> dict[str, int]:
    """The peaks of a job with two bytes a parameter in its updates."""
    manifest = manifest_of(job, **changes)
    return peaks(manifest, 2 * param_count(manifest.model))


def rows(first: str) -> list[list[str]]:
    """The cells of the rows of the table whose first column has this header."""
    tables = re.findall(r"(?:^\|.*\n)+", SIZES.read_text(), re.MULTILINE)
    cells = [[row.strip("| ").split(" | ") for row in table.splitlines()] for table in tables]
    (found,) = (table[2:] for table in cells if table[0][0] == first)
    return found


def bar_of(job: JobSpec) -> int:
    """Bytes that no part may take more of."""
    return 20 * param_count(manifest_of(job).model) + 10**9


def measured_parts() -> list[str]:
    """What bench/jobs.py measures, in its order."""
    found = runpy.run_path(str(SIZES.parents[1] / "bench" / "jobs.py"))
    return list(found["PARTS"])


def test_the_text_has_what_is_said_of_every_part_that_is_measured() -> None:
    parts = said(BENCH)
    names = {
        "start": "a worker that has done nothing", "open": "the first model",
        "train": "a round: steps, one or two of them twice, update",
        "replay": "the same replayed", "check": "whether an update is canonical",
        "merge": "merge of the updates", "warm train": "the next round",
        "warm replay": "the same replayed", "warm check": "whether its update is canonical",
        "warm merge": "merge of its updates",
    }  # fmt: skip
    assert list(names) == measured_parts()
    found = rows("part")
    assert [row[0] for row in found] == list(names.values())
    for part, (_, _, seen, told, share) in zip(names, found, strict=True):
        expected, peak = parts[part.removeprefix("warm ")], float(seen.removesuffix(" GB")) * 1e9
        assert told == f"{expected / 1e9:.2f} GB", part
        # What the allocator keeps is in the start that is said, and comes only with work.
        least = 0 if part == "start" else 0.8 * expected
        assert least < peak <= expected, part
        assert float(share) == pytest.approx(peak / bar_of(BENCH), abs=0.006), part


def test_the_text_has_what_is_said_of_larger_models() -> None:
    billion = preset("llama-1b")
    assert billion.model is not None
    large = billion.but({"model": {**billion.model.model_dump(), **LARGE}})
    for job, row in zip((preset("gpt2-small"), billion, large), rows("model"), strict=True):
        manifest = manifest_of(job)
        update = 2 * param_count(manifest.model)
        sizes = [max(peaks(manifest, update, plan).values()) for plan in PLANS]
        assert sizes[-1] == verifier_bytes(manifest, update) == provider_bytes(manifest, update)
        assert row[1:5] == [
            f"{size / 1e9:.3g} GB" for size in (*sizes, submitter_bytes(manifest, update))
        ]


SEVEN = LARGE | {"vocab": 32_000, "kv_heads": 32, "ffn": 11_008}
"""Of Llama 2 7B (Touvron et al. 2023, arXiv:2307.09288)."""
SEVENTY = LARGE | {"width": 8192, "layers": 80, "heads": 64, "ffn": 28_672}


def test_the_text_has_what_each_of_several_ranks_takes() -> None:
    billion = preset("llama-1b")
    assert billion.model is not None
    jobs = {"124M": preset("gpt2-small"), "1B": billion}
    for name, shape in (("7B", SEVEN), ("8B", LARGE), ("70B", SEVENTY)):
        jobs[name] = billion.but({"model": {**billion.model.model_dump(), **shape}})
    found = rows("shape")
    assert [row[0] for row in found] == list(jobs)
    for job, (_, *said_of) in zip(jobs.values(), found, strict=True):
        manifest = manifest_of(job)
        sizes = [rank_bytes(manifest, ranks, RECOMPUTING) for ranks in (1, 4, 8, 32)]
        assert sizes == sorted(sizes, reverse=True)
        sizes.append(rank_bytes(manifest, 8, LEAN))
        assert said_of == [
            f"{size / 1e9:,.0f} GB" if size > 1e11 else f"{size / 1e9:.3g} GB" for size in sizes
        ]


def test_the_text_has_what_adapters_take_at_each_of_several_ranks() -> None:
    billion = preset("llama-1b")
    assert billion.model is not None
    found = rows("base")
    assert [row[0] for row in found] == ["1B", "7B", "8B", "70B"]
    lora = LoraSpec(rank=8, alpha="8", targets=tuple(LINEARS))
    shapes: list[dict[str, Any]] = [{}, SEVEN, LARGE, SEVENTY]
    for shape, (_, *said_of) in zip(shapes, found, strict=True):
        job = billion.but({"model": {**billion.model.model_dump(), **shape}})
        manifest = manifest_of(job).model_copy(update={"lora": lora})
        sizes = [rank_bytes(manifest, ranks, RECOMPUTING) for ranks in (1, 4, 8, 32)]
        assert sizes == sorted(sizes, reverse=True)
        sizes.append(rank_bytes(manifest, 8))
        assert said_of == [f"{size / 1e9:.3g} GB" for size in sizes]


def test_what_is_said_of_adapters_bounds_what_was_seen() -> None:
    steps = {"inner.steps": 8, "inner.segment": 8, "inner.batch": 4, "inner.micro_batch": 1}
    shape = {"model.seq": 32, "model.layers": 4, "inner.lanes": 4} | steps
    lora = LoraSpec(rank=8, alpha="8", targets=tuple(LINEARS))
    manifest = manifest_of(preset("llama-1b").but(shape)).model_copy(update={"lora": lora})
    found = rows("ranks with adapters")
    assert [row[0] for row in found] == ["1", "2", "3", "4"]
    for ranks, of_base, _, first, others, said_of in found:
        assert said_of == f"{rank_bytes(manifest, int(ranks), RECOMPUTING) / 1e9:.2f} GB"
        held, *seen = (float(c.removesuffix(" GB")) for c in (of_base, first, others) if c != "-")
        assert held == pytest.approx(_Sizes(manifest).frozen / int(ranks) / 1e9, abs=0.001)
        assert all(held < peak < float(said_of.removesuffix(" GB")) for peak in seen)


def test_a_base_is_in_rows_where_layers_are_computed_again_and_nothing_is_sampled() -> None:
    lora = LoraSpec(rank=8, alpha="8", targets=tuple(LINEARS))
    manifest = manifest_of(preset("llama-1b")).model_copy(update={"lora": lora})
    base = _Sizes(manifest).frozen
    alone, four = (_Sizes(manifest, ranks) for ranks in (1, 4))
    assert alone._base(RECOMPUTING) - four._base(RECOMPUTING) == base - -(-base // 4)
    assert alone._base(ROOMY) == four._base(ROOMY)
    task = manifest.model_copy(update={"task": object()})
    assert _Sizes(task, 4)._base(RECOMPUTING) == alone._base(RECOMPUTING)


def test_a_lane_s_sum_is_kept_by_ranks_that_have_whole_lanes() -> None:
    """Others send each micro-batch's gradients as they come."""
    lanes = manifest_of(preset("gpt2-small"), inner__batch=8, inner__lanes=4)
    one = manifest_of(preset("gpt2-small"), inner__batch=8)
    shares = {ranks: _Sizes(lanes, ranks)._share(_Sizes(lanes).model) for ranks in (4, 5)}
    more = {r: rank_bytes(lanes, r) - rank_bytes(one, r) for r in (4, 5)}
    # With lanes there are two sums of a rank's rows; the optimiser can be fuller than both.
    assert more[5] <= shares[5]
    assert shares[4] < more[4] <= shares[4] + _Sizes(lanes).model


def test_measured_shares_hold_the_bar() -> None:
    """And what each rank was seen to take is no more than is said of it, nor much less."""
    count = param_count(manifest_of(BENCH).model)
    found = rows("ranks")
    assert [row[0] for row in found] == ["1", "2", "3", "4"]
    for ranks, held, share, *peaks_seen in found:
        size = float(held.removesuffix(" GB")) * 1e9
        assert float(share) == pytest.approx(size * int(ranks) / (1.15 * 16 * count), abs=0.006)
        assert float(share) <= 1
        assert all(float(p.removesuffix(" GB")) * 1e9 > size for p in peaks_seen if p != "-")


def test_what_is_said_of_ranks_bounds_what_was_seen_at_two_sizes() -> None:
    """And by no more than half of it, which an embedding that is large beside its layers needs."""
    steps = {"inner.steps": 8, "inner.segment": 8, "inner.batch": 4, "inner.micro_batch": 1}
    shape = {"model.seq": 32, "inner.lanes": 4} | steps
    sizes = {
        "124M": manifest_of(preset("gpt2-small").but(shape)),
        "187M": manifest_of(preset("llama-1b").but(shape | {"model.layers": 2})),
    }
    assert param_count(sizes["187M"].model) == 187_181_056
    plans = {"all in memory": ROOMY, "layers again": RECOMPUTING, "moments in files": LEAN}
    found = rows("measured")
    assert {row[0].partition(", ")[0] for row in found} == set(sizes)
    for name, *cells in found:
        size, _, plan = name.partition(", ")
        for ranks, cell in enumerate(cells, 1):
            if cell == "-":
                continue
            peak, most = (float(word) for word in cell.removesuffix(" GB").split(" of "))
            expected = rank_bytes(sizes[size], ranks, plans[plan]) / 1e9
            assert most == pytest.approx(expected, abs=0.0051), name
            assert 0.66 * most < peak <= most, name


def test_several_ranks_have_room_where_one_has_not() -> None:
    manifest = manifest_of(preset("llama-1b"))
    room = rank_bytes(manifest, 4)
    assert plan_for(manifest, room, ranks=4) == PLANS[0]
    assert plan_for(manifest, room, ranks=1) == LEAN


def test_a_plan_is_taken_where_the_one_before_it_has_no_room() -> None:
    manifest = manifest_of(preset("llama-1b"))
    needed = [_Sizes(manifest).steps(plan) + START_BYTES for plan in PLANS]
    assert needed == sorted(needed, reverse=True)
    assert [plan_for(manifest, room) for room in needed] == list(PLANS)
    assert [plan_for(manifest, room - 1) for room in needed] == [*PLANS[1:], LEAN]


def test_there_is_room_for_what_machine_group_and_operator_allow(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(memory_limit, "CGROUP_LIMIT", tmp_path / "none")
    monkeypatch.delenv(memory_limit.MEMORY_VARIABLE, raising=False)
    machine = memory_limit.room_for_work()
    assert 0 < machine < os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    monkeypatch.setattr(memory_limit, "CGROUP_LIMIT", limit := tmp_path / "memory.max")
    limit.write_text("400000000\n")
    assert memory_limit.room_for_work() == 300_000_000
    monkeypatch.setenv(memory_limit.MEMORY_VARIABLE, "1000")
    assert memory_limit.room_for_work() == 1000
    limit.write_text("400\n")
    assert memory_limit.room_for_work() == 300


def test_apart_from_moments_full_training_and_merges_take_eleven_bytes_a_parameter() -> None:
    """In memory nineteen and sixteen: two states alone would be twenty-four."""
    billion = preset("llama-1b")
    assert billion.model is not None
    manifest = manifest_of(billion.but({"model": {**billion.model.model_dump(), **LARGE}}))
    count = param_count(manifest.model)
    for plan, most in ((RECOMPUTING, 19), (LEAN, 11)):
        parts = peaks(manifest, 2 * count, plan)
        assert max(parts["train"], parts["replay"], parts["merge"]) < most * count


def test_a_role_needs_what_its_largest_part_does() -> None:
    for codec in ("grid8", "fp32"):
        manifest = manifest_of(BENCH, method__codec=codec)
        parts = peaks(manifest, 10**8, LEAN)
        common = max(parts[name] for name in ("open", "check", "train", "merge"))
        assert provider_bytes(manifest, 10**8) == common
        assert verifier_bytes(manifest, 10**8) == max(common, parts["replay"], parts["evaluate"])
        assert submitter_bytes(manifest, 10**8) >= peaks(manifest, 10**8)["open"]


@pytest.mark.parametrize("method", ["fedavg", "diloco", "fedadam", "delayed_nesterov"])
def test_every_part_is_under_the_bar_whatever_the_outer_optimiser(method: str) -> None:
    """20 bytes a parameter and a gigabyte, and 8 for a second slot, at the measured size."""
    slots = len(manifest_of(BENCH, method__name=method).outer.properties.slots)
    bar = bar_of(BENCH) + 8 * max(0, slots - 1) * param_count(manifest_of(BENCH).model)
    parts = said(BENCH, method__name=method)
    assert max(parts.values()) <= bar, parts


def test_longer_sequences_and_larger_micro_batches_take_more_and_more_seats_do_not() -> None:
    little = said(BENCH)
    assert said(BENCH, inner__batch=32, inner__micro_batch=16)["train"] > little["train"]
    assert said(BENCH, members__seats=64) == little


def test_adapters_take_their_base_as_integers() -> None:
    lora = LoraSpec(rank=8, alpha="16", targets=("q", "k", "v", "o", "gate", "up", "down"))
    manifest = manifest_of(LORA_BENCH).model_copy(update={"lora": lora})
    base = 8 * param_count(manifest.model) + 10**9
    assert provider_bytes(manifest, 10**6) < base
    assert verifier_bytes(manifest, 10**6) < base
