"""Which arithmetic this process uses: measured, compared with the reference, and logged."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache

import structlog
import torch

from atoll.errors import ConfigError, NumericsMismatch
from atoll.numerics.kernels.acceptance import attention_differences, differences, moved
from atoll.numerics.kernels.build import BuildFailed, Unusable, accepted, cache_folder, load_library
from atoll.numerics.kernels.compiled import CompiledKernels
from atoll.numerics.kernels.devices import kind_here, show_devices
from atoll.numerics.kernels.freed_memory import keep_freed_memory
from atoll.numerics.kernels.gemm import ROUTES, Route, batched_product, choose_route
from atoll.numerics.kernels.gpu import is_gpu_failure
from atoll.numerics.kernels.int16_products import with_int16
from atoll.numerics.kernels.interface import CPU, Engine, Kernels, WholeAttention
from atoll.numerics.kernels.reference import TorchKernels
from atoll.numerics.kernels.startup import first_difference
from atoll.numerics.kernels.variables import DEVICES, KERNELS_VARIABLE, ROUTE_VARIABLE

_OLDEST_TRITON = (3, 6)
"""Before, its correctly rounded divisions and roots take subnormals for 0 (PyTorch 2.6 to 2.9)."""
_WITH_TENSOR_CORES = (8, 0)
"""GPUs for whose tensor cores Triton compiles; on older ones tiles are faster."""
CHOICES = ("auto", "compiled", "fused", "eager")
_TRITON_CACHE = "TRITON_CACHE_DIR"
_SLICES = {"cpu": 8, "cuda": 256}
"""Of attention: a core's cache holds eight, and a GPU is kept busy by hundreds."""
_log = structlog.get_logger("atoll.numerics.kernels")


def default_engine() -> Engine:
    """The fastest exact engine of the device that this process trains on: the first that
    ATOLL_DEVICES names, or the CPU.

    ATOLL_KERNELS (auto, compiled, fused, eager) and ATOLL_ROUTE (auto, int8, bf16, fp32, fp64)
    override it.

    Raises:
        ConfigError, NumericsMismatch: as `make_engine`.
    """
    show_devices()
    return engine_on(kind_here())


@cache
def engine_on(device: str) -> Engine:
    """The fastest exact engine of a device, found once a process. Raises as `make_engine`."""
    route, kernels = (os.environ.get(v, "auto") for v in (ROUTE_VARIABLE, KERNELS_VARIABLE))
    return make_engine(route, kernels, device)


@cache
def reference_engine(device: torch.device = CPU) -> Engine:
    """Eager kernels and fp64 products, whatever the environment says.

    Nothing is tried at the start, as in `make_engine`: whoever uses it compares what it gives.
    """
    route = ROUTES["fp64"]
    return Engine(route, TorchKernels(), batched_product(route, device), device)


def make_engine(route: str = "auto", kernels: str = "auto", device: str = "cpu") -> Engine:
    """An engine by names; "auto" takes the fastest that is exact here.

    Raises:
        ConfigError: a name is unknown, or what it names is not exact or not to be had here.
        NumericsMismatch: the engine's start-up step does not give the bits that everybody has.
    """
    _require(device)
    try:
        chosen = choose_route(route, device)
    except ValueError as error:
        instead = "compute on another device" if route == "auto" else "use route auto"
        raise ConfigError(str(error), next_step=instead) from error
    keep_freed_memory()
    found, on = choose_kernels(kernels, device), torch.device(device)
    engine = Engine(
        chosen,
        found,
        _batched(chosen, found, device),
        on,
        _SLICES[device],
        _attention_on(on) if found.name == "fused" else None,
    )
    _check(engine)
    _log.info("exact numerics", route=chosen.name, kernels=engine.kernels.name, device=device)
    return engine


def _require(device: str) -> None:
    if device not in DEVICES:
        raise ConfigError(f"unknown device {device!r}; known: {', '.join(DEVICES)}")
    if device == "cuda" and not torch.cuda.is_available():
        raise ConfigError(
            "this machine has no CUDA device that torch can use",
            next_step="name no devices, or install the driver and a torch built for CUDA",
        )


def _batched(
    route: Route, kernels: Kernels, device: str
) -> Callable[[torch.Tensor, torch.Tensor], torch.Tensor]:
    product = batched_product(route, device)
    # The other routes and eager kernels are what libraries give without anything compiled here.
    is_compiled = route.name == "int8" and kernels.name == CompiledKernels.name
    return with_int16(product) if is_compiled else product


def _check(engine: Engine) -> None:
    parted = first_difference(engine, engine.device)
    if parted is not None:
        arithmetic = f"{engine.route.name} products and {engine.kernels.name} kernels"
        raise NumericsMismatch(
            f"the start-up step's {parted} has other bits on this machine with {arithmetic}",
            next_step="unset what changes the arithmetic of PyTorch's libraries (DNNL_, ONEDNN_, "
            "MKL_, ATEN_, OMP_ variables such as DNNL_DEFAULT_FPMATH_MODE) and load no library "
            f"built with -ffast-math; if it stays, try "
            f"{ROUTE_VARIABLE}=fp64 {KERNELS_VARIABLE}=eager and report both",
        )


def choose_kernels(name: str = "auto", device: str = "cpu") -> Kernels:
    """The device's own kernels where they build and agree with the reference, else the reference.

    Args:
        name: compiled are a CPU's, fused a GPU's; auto takes the device's.

    Raises:
        ConfigError: the name is unknown, or kernels were asked for that are not usable.
    """
    if name not in CHOICES:
        raise ConfigError(f"unknown kernels {name!r}; known: {', '.join(CHOICES)}")
    if name == "eager":
        return TorchKernels()
    own = "compiled" if device == "cpu" else "fused"
    if name not in {"auto", own}:
        where = "the CPU's" if name == "compiled" else "a GPU's"
        raise ConfigError(f"{name} kernels are {where}", next_step="use kernels auto")
    found = _compiled() if device == "cpu" else _fused(torch.device(device))
    if not isinstance(found, Unusable):
        return found
    if name == own:
        raise ConfigError(
            f"{own} kernels cannot be used: {found.reason}", next_step="use kernels auto"
        )
    return TorchKernels()


def _compiled() -> Kernels | Unusable:
    return accepted(
        "the step's kernels",
        lambda: CompiledKernels(load_library()),
        lambda found: differences(found, TorchKernels()),
    )


def _fused(device: torch.device) -> Kernels | Unusable:
    def parted(found: Kernels) -> list[str]:
        return _of_triton(lambda: differences(moved(found, device), TorchKernels()))

    return accepted("the GPU's kernels", _load_fused, parted)


def _of_triton(tried: Callable[[], list[str]]) -> list[str]:
    """What is tried, or BuildFailed where Triton cannot."""
    try:
        return tried()
    except Exception as error:  # Triton's own, or of the compiler and linker that it runs
        # Triton names the driver's errors after CUDA; a GPU that fails shows in the next step.
        is_tritons = str(error).startswith("Triton Error")
        if isinstance(error, RuntimeError) and is_gpu_failure(error) and not is_tritons:
            raise
        raise BuildFailed(str(error)) from error


def _load_fused() -> Kernels:
    # Triton runs what it finds there; its own choice is a folder that nobody looks at.
    os.environ.setdefault(_TRITON_CACHE, str(cache_folder() / "triton"))
    try:
        # With torch built for a GPU, and not without.
        import triton  # noqa: PLC0415

        from atoll.numerics.kernels.fused import FusedKernels  # noqa: PLC0415
    except ImportError as error:
        raise BuildFailed(f"Triton is missing: {error}") from error
    if tuple(map(int, triton.__version__.split(".")[:2])) < _OLDEST_TRITON:
        raise BuildFailed(f"Triton {triton.__version__} flushes subnormals in divisions")
    return FusedKernels()


def _attention_on(device: torch.device) -> WholeAttention | None:
    if torch.cuda.get_device_capability(device) < _WITH_TENSOR_CORES:
        return None
    from atoll.numerics.kernels.fused_attention import FusedAttention  # noqa: PLC0415 -- as above

    return _Tried(FusedAttention(), device)


class _Tried:
    """Attention's programs for heads of those widths at which they gave the tiles' bits here.

    Each width has programs of its own, which take a while to compile: it is tried when a model
    has it.
    """

    def __init__(self, programs: WholeAttention, device: torch.device) -> None:
        self._programs, self._device = programs, device
        self._holds: dict[int, bool] = {}
        self.forward, self.backward = programs.forward, programs.backward

    def holds(self, width: int) -> bool:
        if width not in self._holds:
            self._holds[width] = self._programs.holds(width) and self._are_right(width)
        return self._holds[width]

    def _are_right(self, width: int) -> bool:
        def parted(found: WholeAttention) -> list[str]:
            return _of_triton(lambda: attention_differences(found, self._device, width))

        found = accepted(f"attention's programs at width {width}", lambda: self._programs, parted)
        return not isinstance(found, Unusable)
