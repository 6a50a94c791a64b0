"""What a job file may say, what it is refused for, and the manifest that it becomes."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.identities import cid, digest
from tests.support.jobs import PLAIN
from tests.support.manifests import unstored_data

from atoll.cli.jobfile import chosen_job
from atoll.errors import ConfigError, ManifestError
from atoll.job.groups import duration_text, parse_duration, parse_tokens, tokens_text
from atoll.job.methods import DENSE_CODECS, METHODS, method_of, moment_exponents
from atoll.job.plan import drawn_seats, priced
from atoll.job.presets import PRESETS, preset
from atoll.job.spec import JobSpec
from atoll.job.toml_files import parse_setting, parse_toml, to_toml
from atoll.numerics.trace.build.whole import can_be_judged
from atoll.protocol.manifest import InitSpec, Manifest, NumericsSpec
from atoll.protocol.optimisers import INNER_OPTIMISERS
from atoll.service.messages import key_paths

NOW = 1_800_000_000
DEMO_DIGEST = "b5abd2dc8e47ba4f1aaaad53a76914ce5cd7276235b860ad43175a4286428558"
"""Of the demo's manifest over this data."""
NUMERICS = NumericsSpec(code_digest=digest("code"), probe_digest=digest("probe"))
DATA = unstored_data(
    train_tokens=1_900_000, eval_cid=cid("held out"), eval_tokens=100_000, eval_batches=16
)


def read(text: str) -> JobSpec:
    return JobSpec.of(parse_toml(text, "job.toml"), "job.toml")


def refusal(text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        read(text)
    assert caught.value.next_step == "correct job.toml"
    return str(caught.value)


def test_the_demo_s_manifest_has_the_bytes_that_it_always_had() -> None:
    demo, _ = priced(preset("demo"))
    assert demo.resolve(DATA, None, NUMERICS, NOW).digest().hex() == DEMO_DIGEST


def test_what_is_said_about_a_job_is_in_its_manifest() -> None:
    words = 'Stories of a "reef".\nFor everybody.'
    demo, _ = priced(preset("demo").but({"about": words}))
    manifest = JobSpec.of(parse_toml(to_toml(demo))).resolve(DATA, None, NUMERICS, NOW)
    assert Manifest.from_bytes(manifest.to_bytes()).about == words
    silent, _ = priced(preset("demo"))
    assert b"about" not in silent.resolve(DATA, None, NUMERICS, NOW).to_bytes()
    with pytest.raises(ConfigError, match="about"):
        JobSpec.of({"about": "w" * 1001})


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_is_written_and_read_back(name: str, tmp_path: Path) -> None:
    path = tmp_path / "job.toml"
    path.write_text(to_toml(PRESETS[name], "A job."))
    assert JobSpec.read(path) == JobSpec.read(str(path)) == PRESETS[name]


@pytest.mark.parametrize("name", [name for name in PRESETS if PRESETS[name].model])
def test_a_preset_becomes_a_manifest_once_it_is_complete(name: str) -> None:
    spec = PRESETS[name]
    missing = {path: getattr(getattr(PLAIN, group), field) for path in spec.left_out()
               for group, _, field in [path.rpartition(".")] if group}  # fmt: skip
    data = DATA.model_copy(update={"dtype": "uint16"})
    manifest = spec.but({"lifetime": "1d", **missing}).resolve(data, None, NUMERICS, NOW)
    assert manifest.terms.expiry > NOW
    assert manifest.model == spec.model


def test_a_file_has_a_comment_for_what_is_excluded() -> None:
    text = to_toml(preset("nano"))
    assert "# train =" in text
    assert "lr = 0.001" in text
    assert max(map(len, text.splitlines())) <= 100


def test_a_file_offers_no_method_that_is_refused() -> None:
    (line,) = (line for line in to_toml(preset("nano")).splitlines() if "fedavg, " in line)
    offered = line.partition("#")[2].split(", ")
    assert {"fedavg", "diloco"} <= {name.strip() for name in offered}
    for name in offered:
        PLAIN.but({"method.name": name.strip()}).resolve(DATA, None, NUMERICS, NOW)


def test_numbers_are_written_bare_and_amounts_as_text() -> None:
    spec = read('[inner]\nlr = 1e-3\nclip = 2\n[money]\nbudget = "25"\n[windows]\ntrain = "1m30s"')
    assert (spec.inner.lr, spec.inner.clip) == ("0.001", "2")
    assert (spec.money.budget, spec.windows.train) == (25 * 10**18, 90)
    assert read(to_toml(spec)) == spec


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("ruonds = 3", ("there is no ruonds", "did you mean rounds?")),
        ("[inner]\nlearning = 1.0", ("there is no inner.learning", "known there are lr, steps")),
        ("[inner]\nstep = 4", ("inner.step", "inner.steps?")),
        ("[inner]\nrounds = 4", ("inner.rounds", "did you mean rounds?")),
        ("[model]\nwidht = 4", ("model.widht", "model.width?", "model.vocab is missing")),
        ("[windws]\ntrain = 4", ("windws", "windows?")),
        ("rounds = 0", ("rounds is 0", "greater than or equal to 1")),
        ("rounds = true", ("rounds is True", "a whole number")),
        ('rounds = "4"', ("rounds is '4'", "a whole number")),
        ("rounds = 1.5", ("rounds is '1.5'", "a whole number")),
        ('name = ""', ("name is ''", "at least 1 character")),
        ("[inner]\nlr = 0", ("inner.lr is '0'", "(0, 10000]")),
        ("[inner]\nlr = inf", ("inner.lr is 'inf'", "not a finite number")),
        ('[inner]\nlr = "fast"', ("inner.lr is 'fast'", "not a number")),
        ('[inner]\nschedule = "linear"', ("inner.schedule", "'constant' or 'cosine'")),
        ("[inner]\ndropout = 1.5", ("inner.dropout is '1.5'", "[0, 1]")),
        ('[method]\nname = "dilocoo"', ("method.name", "diloco, ")),
        ('[method]\ncodec = "int3"', ("method.codec", "grid4")),
        ('[audit]\nrate = "most"', ("audit.rate is 'most'", "not a number")),
        ('[audit]\nnumerics = "native"', ("there is no audit.numerics", "rate")),
        ('[money]\nbudget = "-1"', ("money.budget is '-1'", "from 0 up")),
        ('[money]\nbudget = "much"', ("money.budget is 'much'", "no amount of tokens")),
        ('[money]\nbudget = "1e-19"', ("money.budget", "whole number of units")),
        ('[money]\nbudget = "1e999999"', ("money.budget", "out of bounds")),
        ("[money]\nbudget = true", ("money.budget is True",)),
        ("[members]\nseats = 257", ("members.seats is 257", "256")),
        ("[money]\nbudget = 25", ("money.budget is 25", 'write "25" for tokens')),
        ("[windows]\ntrain = 90", ("windows.train is 90", 'write "90s" for seconds')),
        ("lifetime = 90", ("lifetime is 90", 'write "90s" for seconds')),
        ('[windows]\ntrain = "soon"', ("windows.train is 'soon'", "1h30m")),
        ("[windows]\ntrain = 0", ("windows.train is 0",)),
        ("[init]\nseed = -1", ("init.seed is -1",)),
        ("[inner]\nlr = -1", ("inner.lr is '-1'", "a number of 0 or more")),
        ("[inner]\nlr = 1e-30", ("inner.lr is", "18 behind it")),
        ("[inner]\nlr = 1e99999999", ("inner.lr is '1e99999999'", "of 0 or more")),
        ("[lora]\nalpha = 16", ("lora.alpha is 16", "text, in quotes")),
        ("data = 3", ("data is 3", "a table of keys, [data]")),
        ("[model]\nrope_scaling = 3", ("a table of keys, [model.rope_scaling]",)),
        ("[data]\npaths = [1]", ("data.paths.0 is 1", "text, in quotes")),
        ('[data]\npaths = "a.txt"', ("data.paths is 'a.txt'", "a list, in brackets")),
        ('[data]\npaths = [""]', ("data.paths.0 is ''", "at least 1 character")),
        ('[data]\nchat = "yes"', ("data.chat is 'yes'", "true or false")),
        (f"[data]\npaths = '{'x' * 999}'", (f"data.paths is '{'x' * 60}...: it",)),
        ("'' = 3", ("there is no '':",)),
        ("[data]\nheld_out = 2", ("data.held_out is '2'",)),
        ("[evaluate]\nbatches = -1", ("evaluate.batches is -1",)),
    ],
)
def test_what_cannot_be_used_is_refused_by_its_key(text: str, words: tuple[str, ...]) -> None:
    message = refusal(text)
    assert all(word in message for word in words), message


@pytest.mark.parametrize("text", ["rounds =", f"rounds = 1{'0' * 5000}", f"rounds = {'[' * 5000}"])
def test_a_file_that_is_no_toml(text: str, tmp_path: Path) -> None:
    path = tmp_path / "job.toml"
    path.write_text(text)
    with pytest.raises(ConfigError, match="is not TOML"):
        JobSpec.read(path)
    path.write_bytes(b"\xff")
    with pytest.raises(ConfigError, match="not UTF-8"):
        JobSpec.read(path)
    with pytest.raises(ConfigError, match="cannot read the job"):
        JobSpec.read(tmp_path / "none.toml")


def test_relative_paths_are_taken_from_the_file_s_folder(tmp_path: Path) -> None:
    path = tmp_path / "job.toml"
    lines = ['paths = ["text", "/abs"]', 'held_out_paths = ["own"]', 'tokenizer = "t.json"']
    path.write_text("\n".join(["[data]", *lines]))
    data = JobSpec.read(path).data
    assert data.paths == (str(tmp_path / "text"), "/abs")
    assert data.held_out_paths == (str(tmp_path / "own"),)
    assert data.tokenizer == str(tmp_path / "t.json")


def test_settings_of_a_command_line() -> None:
    assert parse_setting("inner.lr=0.01") == ("inner.lr", "0.01")
    assert parse_setting("rounds = 4") == ("rounds", 4)
    assert parse_setting("method.name=diloco") == ("method.name", "diloco")
    with pytest.raises(ConfigError, match="not KEY=VALUE"):
        parse_setting("rounds")
    with pytest.raises(ConfigError, match="name has no keys"):
        PLAIN.but({"name.first": 1})


def test_a_text_whose_path_is_empty_is_not_this_folder() -> None:
    with pytest.raises(ConfigError, match=r"data\.paths\.0 is ''"):
        chosen_job(None, "nano", [""], None)


def test_a_whole_number_is_wei_and_seconds_in_python_only() -> None:
    said = dict(map(parse_setting, ["money.budget=25", "windows.train=90"]))
    for path, value in said.items():
        with pytest.raises(ConfigError, match=path):
            PLAIN.but({path: value})
    spec = PLAIN.but({"money.budget": 25, "windows.train": 90})
    assert (spec.money.budget, spec.windows.train) == (25, 90)
    said = dict(map(parse_setting, ['money.budget="25"', "windows.train=90s", "rounds=3"]))
    spec = PLAIN.but(said)
    assert (spec.money.budget, spec.windows.train, spec.rounds) == (25 * 10**18, 90, 3)
    assert type(spec.rounds) is int


def test_every_key_path_can_be_set() -> None:
    paths = key_paths(JobSpec)
    assert {"rounds", "model.vocab", "inner.lr", "windows.train"} <= set(paths)
    for path in paths:
        with pytest.raises(ConfigError, match=path.rpartition(".")[2]):
            PLAIN.but({path: object()})


def test_what_is_excluded_is_named() -> None:
    with pytest.raises(ConfigError, match=r"lifetime, money\.price_per_million"):
        preset("nano").resolve(DATA, None, NUMERICS, NOW)
    for spec in (JobSpec(), preset("finetune")):
        with pytest.raises(ConfigError, match="no model") as caught:
            spec.resolve(DATA, None, NUMERICS, NOW)
        assert "init.folder" in caught.value.next_step


def test_what_does_not_fit_together_is_said_in_the_manifest_s_words() -> None:
    with pytest.raises(ManifestError, match=r"^the job: segment 7 does not divide steps 40$"):
        PLAIN.but({"inner.segment": 7}).resolve(DATA, None, NUMERICS, NOW)
    with pytest.raises(
        ManifestError, match=r"^the job: terms: min_providers is 9, not in \[1, 4\]$"
    ):
        PLAIN.but({"members.min_providers": 9}).resolve(DATA, None, NUMERICS, NOW)


def test_a_choice_outranks_the_method_and_the_method_what_is_usual() -> None:
    diloco = PLAIN.but({"method.name": "diloco"})
    assert diloco.resolve(DATA, None, NUMERICS, NOW).inner.beta1 == "0.9"
    chosen = diloco.but({"inner.beta1": "0.5", "outer.lr": "0.9"})
    manifest = chosen.resolve(DATA, None, NUMERICS, NOW)
    assert (manifest.inner.beta1, manifest.outer.lr, manifest.outer.momentum) == (
        "0.5",
        "0.9",
        "0.9",
    )


def test_prepared_weights_take_the_place_of_drawn_ones() -> None:
    prepared = InitSpec.drawn(9)
    assert PLAIN.resolve(DATA, prepared, NUMERICS, NOW).init == prepared


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90), ("1m30s", 90), ("1h", 3600), ("2d3h", 183_600)]
)
def test_durations(text: str, seconds: int) -> None:
    assert parse_duration(text) == seconds
    assert parse_duration(duration_text(seconds)) == seconds


@pytest.mark.parametrize("text", ["", "5", "1s2m", "-1s", "1.5h", "h", "１s"])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(ValueError, match="no duration"):
        parse_duration(text)


def test_amounts_are_exact() -> None:
    assert parse_tokens("0.000000000000000001") == 1
    assert parse_tokens("1e3") == 10**21
    assert tokens_text(10**18 + 1) == "1.000000000000000001"
    assert tokens_text(25 * 10**18) == "25"


def test_moments_begin_smaller_the_more_numbers_share_a_clipped_gradient() -> None:
    codec = method_of("diloco").codec
    assert moment_exponents(codec, 1 << 16).model_dump() == {
        "embedding": -11, "matrix": -15, "vector": -12,
    }  # fmt: skip
    assert moment_exponents(codec, 123_551_232).matrix == -20  # ten more bits, half as many steps
    assert moment_exponents(codec, 1 << 60).matrix == codec.min_exponent
    coarse = DENSE_CODECS["grid4"]
    assert moment_exponents(coarse, 1 << 16).matrix == -15 + coarse.exponents.matrix + 16
    assert moment_exponents(DENSE_CODECS["fp32"], 1 << 30) == DENSE_CODECS["fp32"].exponents


@pytest.mark.parametrize("method", METHODS)
def test_every_method_has_jobs_that_can_be_judged(method: str) -> None:
    manifest = PLAIN.but({"method.name": method}).resolve(DATA, None, NUMERICS, NOW)
    assert manifest.codec.kind == METHODS[method].codec.kind
    assert can_be_judged(manifest)
    assert Manifest.from_bytes(manifest.to_bytes()) == manifest


@pytest.mark.parametrize("codec", DENSE_CODECS)
def test_a_codec_makes_no_method_private(codec: str) -> None:
    job = PLAIN.but({"method.codec": codec})
    assert job.resolve(DATA, None, NUMERICS, NOW).reset_period == 1


def test_what_a_dense_codec_leaves_out_is_fed_back_in_reset_periods() -> None:
    job = PLAIN.but({"method.name": "muloco", "method.feedback": "0.9", "rounds": 20})
    manifest = job.resolve(DATA, None, NUMERICS, NOW)
    assert (manifest.codec.kind, manifest.codec.feedback, manifest.reset_period) == (
        "two_bit",
        "0.9",
        8,
    )
    assert not manifest.shares_moments
    assert can_be_judged(manifest)
    assert Manifest.from_bytes(manifest.to_bytes()) == manifest


def test_the_largest_of_each_chunk_are_sent_in_reset_periods_and_everybody_is_audited() -> None:
    job = PLAIN.but({"method.name": "sparseloco", "rounds": 20, "members.seats": 16})
    manifest = job.resolve(DATA, None, NUMERICS, NOW)
    assert (manifest.codec.kind, manifest.codec.feedback, manifest.reset_period) == (
        "sparse",
        "0.95",
        8,
    )
    assert (manifest.robust.rule, manifest.terms.f) == ("contributor_mean", 0)
    assert can_be_judged(manifest)
    assert drawn_seats(job) == 16


@pytest.mark.parametrize(("rounds", "reset_period"), [(20, 20), (200, 64)])
def test_rounds_of_one_step_have_reset_periods_of_many(rounds: int, reset_period: int) -> None:
    job = PLAIN.but({"method.name": "demo", "rounds": rounds, "inner.steps": 40})
    manifest = job.resolve(DATA, None, NUMERICS, NOW)
    assert (manifest.codec.kind, manifest.codec.feedback, manifest.reset_period) == (
        "dct",
        "0.999",
        reset_period,
    )
    assert (manifest.inner.steps, manifest.inner.segment, manifest.outer.kind) == (1, 1, "sign")
    assert job.but({"method.reset_period": 8}).resolve(DATA, None, NUMERICS, NOW).reset_period == 8
    dense = job.but({"method.codec": "grid8"}).resolve(DATA, None, NUMERICS, NOW)
    assert (dense.reset_period, dense.inner.steps) == (1, 1)


@pytest.mark.parametrize(
    "changes", [{"method.name": "streaming"}, {"method.name": "demo"}, {"method.codec": "fp32"}]
)
def test_what_feeds_nothing_back_is_not_told_to(changes: dict[str, str]) -> None:
    with pytest.raises(ManifestError, match="leave out"):
        PLAIN.but(changes | {"method.feedback": "0.5"}).resolve(DATA, None, NUMERICS, NOW)


def test_muon_at_two_bits_carries_nothing() -> None:
    manifest = PLAIN.but({"method.name": "muloco"}).resolve(DATA, None, NUMERICS, NOW)
    assert (manifest.codec.kind, manifest.inner.optimizer) == ("two_bit", "muon")
    assert manifest.reset_period == 1
    assert manifest.shares_moments
    assert can_be_judged(manifest)


@pytest.mark.parametrize(("rounds", "reset_period"), [(3, 3), (20, 8)])
def test_streaming_opens_publicly_every_so_often(rounds: int, reset_period: int) -> None:
    job = PLAIN.but({"method.name": "streaming", "rounds": rounds})
    manifest = job.resolve(DATA, None, NUMERICS, NOW)
    assert manifest.reset_period == reset_period
    assert can_be_judged(manifest)
    assert job.but({"method.reset_period": 2}).resolve(DATA, None, NUMERICS, NOW).reset_period == 2


def test_a_reset_period_is_one_round_where_nothing_is_carried() -> None:
    manifest = PLAIN.resolve(DATA, None, NUMERICS, NOW)
    with pytest.raises(ManifestError, match="reset period"):
        Manifest.from_bytes(manifest.model_copy(update={"reset_period": 2}).to_bytes())


@pytest.mark.parametrize(("seats", "needed"), [(1, 1), (3, 1), (4, 3), (8, 5), (16, 9)])
def test_fewer_providers_than_open_a_round_are_refused(seats: int, needed: int) -> None:
    """The contract waits for 2f + 1, so that a job which says less says what is not so."""
    said = PLAIN.but({"members.seats": seats, "members.min_providers": needed})
    assert said.members.min_providers == needed
    assert PLAIN.but({"members.seats": seats}).members.min_providers is None
    manifest = PLAIN.but({"members.seats": seats}).resolve(DATA, None, NUMERICS, NOW)
    assert manifest.terms.min_providers == max(needed, min(3, seats))
    if needed > 1:
        with pytest.raises(ConfigError, match=rf"no round begins with fewer than {needed}"):
            PLAIN.but({"members.seats": seats, "members.min_providers": needed - 1})


def test_the_demo_s_fees_are_computed_as_everybody_s() -> None:
    """Of its price, and of a replay and a merge as they are, not of what a page looks well with."""
    demo, _ = priced(preset("demo"))
    tokens = demo.inner.steps * demo.inner.batch * 64
    assert demo.money.price_per_million is not None
    pay = tokens * demo.money.price_per_million // 10**6
    assert demo.money.duty_fee == pay * 11 // 10
    # A tenth of a replay at most: what its updates cost to fetch is more than that.
    assert demo.money.sign_fee == pay * 11 // 100


@pytest.mark.parametrize("optimizer", INNER_OPTIMISERS)
@pytest.mark.parametrize("method", METHODS)
def test_an_optimiser_is_asked_for_by_its_name_alone(optimizer: str, method: str) -> None:
    """What it reads is as usual, and the rest zero, whatever the method's own optimiser reads."""
    job = PLAIN.but({"method.name": method, "inner.optimizer": optimizer})
    inner = job.resolve(DATA, None, NUMERICS, NOW).inner
    assert inner.optimizer == optimizer
    assert all(getattr(inner, name) == "0" for name in inner.properties.unused)
