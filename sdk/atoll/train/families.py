"""Hugging Face's model families that the exact step covers, and what their config.json says.

Rule of this file: what a config asks for and the step does not do is refused by name, never
ignored. Needs no torch. The defaults are those of the families' config classes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

from pydantic import ValidationError

from atoll.errors import ConfigError
from atoll.protocol.families import ROPE_SCALINGS
from atoll.protocol.model_spec import UNSCALED, ModelSpec, RopeScalingSpec

Config = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Family:
    """What distinguishes a family in the terms of `ModelSpec`.

    Attributes:
        title: what people call its models.
        architecture: the class that `AutoModelForCausalLM` opens it with.
        activation: of the MLP, as config.json names it.
        norm_eps, kv_heads, head_dim: where config.json leaves them out; None follows from the rest.
        has_window: whether one that leaves `sliding_window` out has a window.
    """

    title: str
    architecture: str
    kind: str = "llama"
    qkv_bias: bool = False
    qk_norm: bool = False
    mlp: str = "swiglu"
    activation: str = "silu"
    norm_eps: float = 1e-6
    kv_heads: int | None = None
    head_dim: int | None = None
    has_window: bool = False

    @property
    def parts(self) -> dict[str, Any]:
        """Fields of `ModelSpec` that all its models have alike."""
        return {name: getattr(self, name) for name in ("kind", "qkv_bias", "qk_norm", "mlp")}


FAMILIES: Final[dict[str, Family]] = {
    "llama": Family("Llama, SmolLM", "LlamaForCausalLM"),
    "mistral": Family(
        "Mistral without sliding window", "MistralForCausalLM", kv_heads=8, has_window=True
    ),
    "qwen2": Family("Qwen2", "Qwen2ForCausalLM", qkv_bias=True, kv_heads=32),
    "qwen3": Family("Qwen3", "Qwen3ForCausalLM", qk_norm=True, kv_heads=32, head_dim=128),
    "arcee": Family("Arcee", "ArceeForCausalLM", mlp="relu2", activation="relu2", norm_eps=1e-5),
    "olmo2": Family("OLMo 2", "Olmo2ForCausalLM", kind="olmo2", qk_norm=True, norm_eps=1e-5),
}
"""By `model_type`; SmolLM's is `llama`."""
SUPPORTED: Final = ", ".join(family.title for family in FAMILIES.values())


_OF_MODELS: Final = (
    "rope_parameters",
    "sliding_window",
    "layer_types",
    "partial_rotary_factor",
    "original_max_position_embeddings",
)
"""What a config says of what is computed, beside what `config_of` writes: `spec_of` judges it."""
_NUMBERS: Final = ("max_position_embeddings", "initializer_range", "max_window_layers")
_TOKENS: Final = ("bos_token_id", "eos_token_id", "pad_token_id")


def spec_of(config: Config, seq: int) -> ModelSpec:
    """The model that a config.json describes, to be trained on sequences of `seq` tokens.

    Raises:
        ConfigError: it is of another family, or has an option that the exact step lacks.
    """
    family = family_of(config)
    _refuse_options(config, family)
    width, heads = _integer(config, "hidden_size"), _integer(config, "num_attention_heads")
    base, scaling = _rotary(config)
    kv_heads = config.get("num_key_value_heads", family.kv_heads)
    head_dim = config.get("head_dim", family.head_dim)
    if head_dim is None and family.head_dim is None and heads > 0:
        head_dim = width // heads
    try:
        return ModelSpec.model_validate(
            {
                **family.parts,
                "vocab": _integer(config, "vocab_size"),
                "width": width,
                "layers": _integer(config, "num_hidden_layers"),
                "heads": heads,
                "kv_heads": heads if kv_heads is None else kv_heads,
                "head_dim": head_dim,
                "ffn": _integer(config, "intermediate_size"),
                "seq": seq,
                "tied": bool(config.get("tie_word_embeddings", False)),
                "norm_eps": decimal_text(config.get("rms_norm_eps", family.norm_eps)),
                "rope_base": base,
                "rope_scaling": scaling,
            }
        )
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise ConfigError(f"config.json: {place + ': ' if place else ''}{first['msg']}") from error


def family_of(config: Config) -> Family:
    """Raises ConfigError where the config is of no family that is covered."""
    kind, found = config.get("model_type"), _listed(config, "architectures")
    family = FAMILIES.get(kind) if isinstance(kind, str) else None
    if family is None:
        raise ConfigError(
            f"config.json: models of type {kind!r} are not supported",
            next_step=f"start from one of {SUPPORTED}",
        )
    if found and family.architecture not in found:
        raise _missing(f"the architecture {', '.join(map(str, found))}, which is no language model")
    return family


def _refuse_options(config: Config, family: Family) -> None:
    """Every option that would change what the model computes, and that the step does not have."""
    refused: dict[str, Callable[[], bool]] = {
        "quantised weights (quantization_config)": lambda: bool(config.get("quantization_config")),
        "a sliding window (sliding_window)": lambda: _has_window(config, family),
        "attention to what comes later (is_causal)": lambda: config.get("is_causal") is False,
        "weights in files of another name (transformers_weights)": lambda: bool(
            config.get("transformers_weights")
        ),
        f"the activation {config.get('hidden_act')!r} (hidden_act)": lambda: (
            config.get("hidden_act", family.activation) != family.activation
        ),
        "a bias on attention's output (attention_bias)": lambda: bool(config.get("attention_bias")),
        "biases in the MLP (mlp_bias)": lambda: bool(config.get("mlp_bias")),
        "rotary positions on a part of each head (partial_rotary_factor)": lambda: (
            _rope(config).get("partial_rotary_factor", 1.0) != 1.0
            or config.get("partial_rotary_factor", 1.0) != 1.0
        ),
    }
    for what, is_asked in refused.items():
        if is_asked():
            raise _missing(what)


def _has_window(config: Config, family: Family) -> bool:
    if any(kind != "full_attention" for kind in _listed(config, "layer_types")):
        return True
    if family.has_window:
        return config.get("sliding_window", ...) is not None
    return bool(config.get("use_sliding_window"))


def _rope(config: Config) -> Config:
    """What config.json says of positions: `rope_parameters`, or before 5.0 `rope_scaling`."""
    found = _agreed([("rope_parameters", config), ("rope_scaling", config)]) or {}
    if not isinstance(found, Mapping):
        raise ConfigError("config.json: rope_parameters is not a map")
    if any(isinstance(value, Mapping) for value in found.values()):
        raise _missing("other positions in each kind of layer (rope_parameters)")
    return found


def _agreed(places: Sequence[tuple[str, Config]]) -> Any:
    """What is said in one of several places: keys, and the maps that have them. None for nothing.

    Raises:
        ConfigError: it is said in two of them, and differently.
    """
    said = [of[name] for name, of in places if of.get(name)]
    if any(value != said[0] for value in said):
        names = " and ".join(dict.fromkeys(name for name, _ in places))
        raise ConfigError(
            f"config.json says one thing twice, and differently: {names}",
            next_step="take out the one that is not so: which of them a reader takes depends on it",
        )
    return said[0] if said else None


def _rotary(config: Config) -> tuple[int, RopeScalingSpec]:
    """Base and scaling."""
    rope = _rope(config)
    _agreed([("rope_theta", rope), ("rope_theta", config)])
    base = rope.get("rope_theta", config.get("rope_theta", 10000.0))
    if not isinstance(base, int) and not (isinstance(base, float) and base.is_integer()):
        raise _missing(f"a rope_theta of {base!r}, which is no whole number")
    kind = _agreed([("rope_type", rope), ("type", rope)]) or rope.get("rope_type", "default")
    if kind == "default":
        return int(base), UNSCALED
    scaling = ROPE_SCALINGS.get(kind) if isinstance(kind, str) else None
    if scaling is None or not scaling.divides:
        raise _missing(f"positions scaled by {kind!r} (rope_type)")
    fields = {"kind": kind, "factor": _figure(rope, "factor"), "low": "0", "high": "0"}
    positions = 0
    if scaling.spares_fast:
        fields |= {"low": _figure(rope, "low_freq_factor")}
        fields |= {"high": _figure(rope, "high_freq_factor")}
        _agreed([("original_max_position_embeddings", of) for of in (rope, config)])
        positions = _integer(rope, "original_max_position_embeddings")
    try:
        return int(base), RopeScalingSpec.model_validate(fields | {"positions": positions})
    except ValidationError as error:
        raise ConfigError(f"config.json: rope_scaling: {error.errors()[0]['msg']}") from error


def config_of(spec: ModelSpec, dtype: str) -> dict[str, Any]:
    """The config.json of a model, as its family's class reads it.

    Arcee is Llama with a squared ReLU in the MLP; transformers has it from 4.54 on.

    Raises:
        ConfigError: no family has these parts together.
    """
    found = [
        name
        for name, family in FAMILIES.items()
        if all(getattr(spec, part) == value for part, value in family.parts.items())
    ]  # Llama before Mistral, which computes the same
    if not found:
        raise ConfigError("no family of transformers has a model of these parts")
    family = FAMILIES[found[0]]
    return {
        "architectures": [family.architecture],
        "model_type": found[0],
        "vocab_size": spec.vocab,
        "hidden_size": spec.width,
        "intermediate_size": spec.ffn,
        "num_hidden_layers": spec.layers,
        "num_attention_heads": spec.heads,
        "num_key_value_heads": spec.kv_heads,
        "head_dim": spec.head_dim,
        "max_position_embeddings": spec.seq,
        "rms_norm_eps": float(spec.norm_eps),
        "rope_theta": float(spec.rope_base),
        "rope_scaling": _scaling_of(spec.rope_scaling),
        "tie_word_embeddings": spec.tied,
        "hidden_act": family.activation,
        "attention_bias": False,
        "mlp_bias": False,
        "use_sliding_window": False,
        "initializer_range": 0.02,
        "bos_token_id": None,
        "eos_token_id": None,
        "dtype": dtype,
    }


def config_like(config: Config, spec: ModelSpec, dtype: str) -> dict[str, Any] | None:
    """A config.json of that model with weights of `dtype`, in the words of an earlier one.

    What neither says the model nor is harmless to whoever opens it is excluded: a name of code to
    run, for one. None where the earlier one is of another model.
    """
    try:
        if spec_of(config, spec.seq) != spec:
            return None
    except ConfigError:
        return None
    said = {name: config[name] for name in (*_OF_MODELS, *config_of(spec, dtype)) if name in config}
    numbers = {k: v for k, v in config.items() if k in _NUMBERS and type(v) in (int, float)}
    tokens = {k: v for k, v in config.items() if k in _TOKENS and _is_tokens(v)}
    free = (*_NUMBERS, *_TOKENS, "dtype")
    return {k: v for k, v in said.items() if k not in free} | numbers | tokens | {"dtype": dtype}


def _is_tokens(value: object) -> bool:
    listed = value if isinstance(value, list) else [value]
    return value is None or all(type(token) is int for token in listed)


def _scaling_of(scaling: RopeScalingSpec) -> dict[str, Any] | None:
    if not scaling.properties.divides:
        return None
    found: dict[str, Any] = {"rope_type": scaling.kind, "factor": float(scaling.factor)}
    if scaling.properties.spares_fast:
        found |= {
            "low_freq_factor": float(scaling.low),
            "high_freq_factor": float(scaling.high),
            "original_max_position_embeddings": scaling.positions,
        }
    return found


def decimal_text(value: object) -> str:
    """A number as the manifest spells it; 1e-06 is "0.000001".

    Raises:
        ConfigError: it is no number.
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ConfigError(f"config.json: {value!r} is not a number")
    text = f"{Decimal(repr(value)):f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _figure(of: Config, name: str) -> str:
    if name not in of:
        raise ConfigError(f"config.json: rope_scaling lacks {name}")
    return decimal_text(of[name])


def _listed(config: Config, name: str) -> list[Any]:
    value = config.get(name) or []
    if not isinstance(value, list):
        raise ConfigError(f"config.json: {name} is {value!r}, not a list")
    return value


def _integer(config: Config, name: str) -> int:
    value = config.get(name)
    if type(value) is not int:
        raise ConfigError(f"config.json: {name} is {value!r}, not a whole number")
    return value


def _missing(what: str) -> ConfigError:
    return ConfigError(
        f"config.json: {what}: not supported", next_step=f"start from one of {SUPPORTED}"
    )
