"""`atoll job new --gpu`: a job file whose work is priced by a GPU."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from atoll.cli.job import app
from atoll.errors import ConfigError
from atoll.job.compute_prices import gpu_of, usual_flop_price
from atoll.job.spec import JobSpec
from atoll.job.toml_files import parse_toml


def new(*words: str) -> JobSpec:
    ran = CliRunner().invoke(app, ["new", "--preset", "nano", *words], catch_exceptions=False)
    return JobSpec.of(parse_toml(ran.stdout))


def test_a_gpu_and_its_price_an_hour_are_written_as_a_price_of_work() -> None:
    assert new().money.flop_price is None
    assert new("--gpu", "rtx4090").money.flop_price == usual_flop_price(gpu_of("rtx4090"))
    cheap, dear = (new("--gpu", f"h100={price}").money.flop_price or 0 for price in ("2.0", "4"))
    assert dear == pytest.approx(2 * cheap, rel=1e-9)


def test_a_gpu_that_is_not_in_the_table_is_refused() -> None:
    with pytest.raises(ConfigError, match="no GPU is called 'tpu'") as caught:
        new("--gpu", "tpu=1")
    assert "rtx4090" in (caught.value.next_step or "")
