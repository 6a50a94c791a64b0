"""What a token of training costs as work, by numbers multiplied out here."""

from __future__ import annotations

from fractions import Fraction

import pytest

from atoll.errors import ConfigError
from atoll.job.compute_prices import (
    EXACT_PART,
    GPUS,
    RENTED_PART,
    gpu_of,
    readiness,
    rented_flop_price,
    token_operations,
    token_price,
    usual_flop_price,
    weights_trained,
)
from atoll.job.presets import PRESETS, preset
from atoll.numerics.state_layout import param_count
from atoll.protocol.types import TOKEN

SMALL = preset("gpt2-small")


def test_a_gpu_s_hour_over_what_it_computes_in_one() -> None:
    h100 = GPUS["h100"]
    dollars = 2.69 / 3600 / (989.4e12 * 0.075) * 1e18
    assert h100.exa_price(EXACT_PART) / TOKEN == pytest.approx(dollars, rel=1e-9)
    assert usual_flop_price() == h100.exa_price(EXACT_PART)
    ratio = Fraction(usual_flop_price(), rented_flop_price())
    assert float(ratio) == pytest.approx(float(RENTED_PART / EXACT_PART), rel=1e-9)


def test_every_gpu_has_a_source_with_a_year() -> None:
    assert all("2026" in gpu.source and gpu.hourly > 0 for gpu in GPUS.values())


def test_another_price_an_hour_is_said_with_the_name() -> None:
    cheap = gpu_of("h100=2.0")
    assert cheap.hourly == 2
    assert cheap.teraflops == GPUS["h100"].teraflops
    assert gpu_of("RTX4090") == GPUS["rtx4090"]
    assert usual_flop_price(cheap) / usual_flop_price() == pytest.approx(2 / 2.69)


@pytest.mark.parametrize("text", ["h300", "h100=", "h100=x", "h100=0", "h100=-1", "h100=nan", ""])
def test_what_is_no_gpu_or_no_price_is_refused_with_a_next_step(text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        gpu_of(text)
    assert caught.value.next_step


def test_a_token_takes_six_operations_a_weight_and_attention() -> None:
    assert SMALL.model is not None
    weights = param_count(SMALL.model)
    assert weights == 123_551_232
    operations = token_operations(SMALL.model, None)
    assert operations == 6 * weights + 12 * 12 * 1024 * 768
    million = token_price(operations, usual_flop_price()) * 10**6 / TOKEN
    assert million == pytest.approx(0.0086, rel=0.02)  # dollars


def test_of_untied_weights_the_table_of_embeddings_is_no_product() -> None:
    assert SMALL.model is not None
    untied = SMALL.model.model_copy(update={"tied": False})
    assert token_operations(untied, None) == token_operations(SMALL.model, None)


def test_frozen_weights_take_four_and_adapters_six() -> None:
    lora = PRESETS["lora"].lora
    assert SMALL.model is not None
    assert lora is not None
    trained = weights_trained(SMALL.model, lora)
    assert 0 < trained < param_count(SMALL.model) / 50
    whole, adapted = (token_operations(SMALL.model, each) for each in (None, lora))
    assert adapted - whole == 6 * trained - 2 * param_count(SMALL.model)


def test_a_verifier_fetches_and_merges_two_numbers_for_each_trained_one() -> None:
    work = readiness(8, 1000)
    assert (work.fetched, work.operations) == (16_000, 16_000 * 100)
