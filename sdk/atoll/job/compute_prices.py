"""What training costs as work: operations of a token, and what GPUs are rented for.

A token of a network is taken for a dollar here; where it is worth something else, a job file says
`money.flop_price` in tokens.

Rule of this file: pure. A price has its source and the day on which it was read, and a speed is of
a data sheet; the parts of it that training reaches are measured or cited beside the numbers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from math import ceil, prod
from types import MappingProxyType
from typing import Final

from atoll.errors import ConfigError
from atoll.numerics.state_layout import adapter_shapes, param_count
from atoll.protocol.audit_fees import EXA, Readiness, UnitPrices
from atoll.protocol.model_spec import LoraSpec, ModelSpec
from atoll.protocol.types import TOKEN, Wei

HOUR: Final = 3600
EXACT_PART: Final = Fraction(75, 1000)
"""Of a GPU's dense bf16 peak, what exact training reaches: 74 TFLOP/s on an H100, from 100 ms a
step of width 1024 × 12 layers (docs/numerics.md, "On a GPU"). Of other GPUs it is assumed."""
RENTED_PART: Final = Fraction(40, 100)
"""The same of ordinary training in bf16: 38 to 43 % (Llama 3, arXiv:2407.21783, table 4)."""
TERABYTE_PRICE: Final = TOKEN // 20
"""For 10^12 bytes: a flat rate of 10 Gbit/s for 80 dollars a month (init7.net, 2025), half used."""
UPDATE_SECTIONS: Final = 2
"""Of an update, a number for each trained one: what moves the model, and the first moments."""


@dataclass(frozen=True, slots=True)
class Gpu:
    """One kind that is rented.

    Attributes:
        teraflops: dense bf16 peak of the data sheet, 10^12 a second.
        hourly: dollars.
        source: where the price is from, and when it was read.
    """

    teraflops: Fraction
    hourly: Fraction
    source: str

    def exa_price(self, part: Fraction) -> Wei:
        """Of 10^18 operations at such a part of its peak, wei of a token that is a dollar."""
        seconds = Fraction(EXA) / (self.teraflops * 10**12 * part)
        return Wei(ceil(self.hourly * TOKEN * seconds / HOUR))


_RUNPOD: Final = "RunPod's community cloud"
GPUS: Final[Mapping[str, Gpu]] = MappingProxyType(
    {
        name: Gpu(Fraction(teraflops), Fraction(hourly), f"{_RUNPOD}, {day}")
        for name, teraflops, hourly, day in (
            ("h100", "989.4", "2.69", "9 November 2026"),
            ("a100", "312", "1.39", "9 November 2026"),
            ("h200", "989.4", "3.59", "March 2026"),
            ("l40s", "362", "0.79", "March 2026"),
            ("l4", "121", "0.44", "March 2026"),
            ("rtx4090", "165.2", "0.34", "March 2026"),
            ("rtx3090", "71", "0.22", "March 2026"),
        )
    }
)
REFERENCE: Final = "h100"
"""Whose price a job has that says none: the only one on which exact training was measured."""


def gpu_of(text: str) -> Gpu:
    """A GPU of the table, or `name=dollars` with another price an hour. Raises ConfigError."""
    name, separator, price = text.partition("=")
    known = GPUS.get(name.strip().lower())
    if known is None:
        raise ConfigError(
            f"no GPU is called {name!r}", next_step=f"choose one of {', '.join(GPUS)}"
        )
    if not separator:
        return known
    try:
        hourly = Decimal(price)
    except InvalidOperation:
        hourly = Decimal(0)
    if not hourly.is_finite() or not Decimal("0.0001") <= hourly <= Decimal(10_000):
        raise ConfigError(
            f"{price!r} is no price of an hour in dollars", next_step=f"write {name}=2.0"
        )
    return replace(known, hourly=Fraction(hourly), source="as written")


def usual_flop_price(gpu: Gpu = GPUS[REFERENCE]) -> Wei:
    """Of 10^18 operations of exact training, wei."""
    return gpu.exa_price(EXACT_PART)


def rented_flop_price(gpu: Gpu = GPUS[REFERENCE]) -> Wei:
    """Of 10^18 operations of ordinary training on a rented GPU, wei."""
    return gpu.exa_price(RENTED_PART)


def token_operations(model: ModelSpec, lora: LoraSpec | None) -> int:
    """Multiplications and additions of one token, forward and backward.

    Two for each weight of a product forward, two for the gradients of what goes in, and two for
    those of each weight that is trained (Kaplan et al. 2020, section 2.1); what attention adds is
    counted as in PaLM's utilisation (Chowdhery et al. 2022, appendix B).
    """
    weights = param_count(model) - (0 if model.tied else model.vocab * model.width)
    trained = weights if lora is None else weights_trained(model, lora)
    frozen = 0 if lora is None else weights
    attention = 12 * model.layers * model.seq * model.heads * model.head_dim
    return 6 * trained + 4 * frozen + attention


def weights_trained(model: ModelSpec, lora: LoraSpec | None) -> int:
    """Numbers that a job trains."""
    if lora is None:
        return param_count(model)
    return sum(prod(shape) for shape in adapter_shapes(model, lora).values())


def token_price(operations: int, exa_operations: int) -> Wei:
    """Of one token, wei, rounded up."""
    return Wei(-(-operations * exa_operations // EXA))


def readiness(seats: int, trained: int) -> Readiness:
    """What a verifier fetches and merges in a round of int8 updates."""
    numbers = UPDATE_SECTIONS * trained
    return Readiness(updates=seats, update_bytes=numbers, numbers=numbers)


def unit_prices(exa_operations: int, mega_gas: int = 0) -> UnitPrices:
    """With the line's usual price."""
    return UnitPrices(exa_operations, TERABYTE_PRICE, mega_gas)
