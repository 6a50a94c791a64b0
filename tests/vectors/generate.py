"""Writes the vectors that Python and Solidity share: `python tests/vectors/generate.py`.

Rule of this file: inputs are fixed, derived by SHA-256 from short names, so that a run writes the
same bytes anywhere; `README.md` beside it says what each file holds.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import torch
from eth_utils.address import to_checksum_address
from tests.support.manifests import make_manifest
from torch import Tensor

from atoll.numerics import decimals, schedule_tables
from atoll.numerics.codec.dither import DitherKey
from atoll.numerics.codec.registry import CODECS
from atoll.numerics.codec.vector_layout import Layout
from atoll.numerics.kernels import elementary
from atoll.numerics.kernels.grid import one_nan, steps
from atoll.numerics.kernels.philox import Mask, philox4x32
from atoll.numerics.kernels.philox import words as kernels_words
from atoll.numerics.kernels.reference import TorchKernels
from atoll.numerics.pieces import piece_root, root_of_update
from atoll.numerics.tensors import tree_root
from atoll.protocol import hashing, merkle
from atoll.protocol.canonical import dag_cbor_cid
from atoll.protocol.codecs import CODECS as KINDS
from atoll.protocol.types import (
    Address,
    Digest,
)

HERE = Path(__file__).parent
CHAIN_ID = 31337
Json = dict[str, Any]


def digest(name: str) -> Digest:
    """32 bytes that nobody chose."""
    return hashing.sha256(name.encode())


def address(name: str) -> Address:
    return Address(to_checksum_address(digest(name)[:20]))


def cid(name: str) -> bytes:
    return dag_cbor_cid(digest(name))


def text(data: bytes) -> str:
    return "0x" + data.hex()


def texts(items: list[Digest]) -> list[str]:
    return [text(item) for item in items]


def camel(name: str) -> str:
    """Names as in Solidity."""
    head, *tail = name.split("_")
    return head + "".join(part.capitalize() for part in tail)


def plain(value: object) -> object:
    """Bytes as hex, integers beyond 32 bits as decimal strings, the rest as it is."""
    if isinstance(value, bytes):
        return text(value)
    if isinstance(value, int) and not isinstance(value, bool) and value >= 1 << 32:
        return str(value)
    return value


def record(item: object) -> Json:
    """A dataclass as an object with Solidity's names."""
    values = ((f.name, getattr(item, f.name)) for f in fields(item))  # type: ignore[arg-type]
    return {camel(name): plain(value) for name, value in values}


def merkle_trees() -> Json:
    """merkle.json: the trees over the first 1 to 9 of nine leaves, every proof of each."""
    leaves = [digest(f"leaf {i}") for i in range(9)]
    roots = [merkle.merkle_root(leaves[:n]) for n in range(1, 10)]
    return {
        "leaves": texts(leaves),
        "roots": texts(roots),
        "proofs": [
            {
                "count": n,
                "index": i,
                "leaf": text(leaves[i]),
                "root": text(roots[n - 1]),
                "siblings": texts(merkle.merkle_proof(leaves[:n], i)),
            }
            for n in range(1, 10)
            for i in range(n)
        ],
        "sha256Roots": texts(
            [merkle.merkle_root(leaves[:n], hashing.sha256) for n in range(1, 10)]
        ),
    }


def exact() -> Json:
    """exact.json: words of binary32, as unsigned integers, of small exact operations."""
    return {
        "philox": [philox_case(i) for i in range(4)],
        "dropped": [dropped(share, first) for share in ("0.1", "0.41", "0.9") for first in (0, 6)],
        "grids": [grid(levels, i) for levels in (127, 362, 32384, 1 << 22) for i in range(3)],
        "elementwise": [
            {"name": name, "x": bits(x), "y": bits(function(x))}
            for name, function, x in (
                ("exp", elementary.exp, EDGES),
                ("log", elementary.log, EDGES.abs()),
                ("sigmoid", elementary.sigmoid, EDGES),
                ("root", elementary.sqrt, EDGES.abs()),
                ("reciprocalRoot", elementary.rsqrt, EDGES.abs()),
                ("squaredRelu", TorchKernels().squared_relu, EDGES),
            )
        ],
    }


def some_words(name: str, count: int) -> list[int]:
    """Words below 2^32 that nobody chose."""
    stream = b"".join(digest(f"{name} {i}") for i in range(-(-count // 8)))
    return [int.from_bytes(stream[4 * i : 4 * i + 4], "big") for i in range(count)]


def values(words: list[int]) -> Tensor:
    return torch.tensor(words, dtype=torch.int64).to(torch.int32).view(torch.float32)


def bits(x: Tensor) -> list[int]:
    """With the law's one NaN, which kernels write; elementary functions are parts of them."""
    return [w & 0xFFFFFFFF for w in one_nan(x.clone()).contiguous().view(torch.int32).tolist()]


EDGES = torch.cat(
    (
        torch.tensor(
            [0.0, -0.0, 1.0, -1.0, 0.5, -86.0, -86.00001, 88.72283, 88.72284, 1e30, -1e30]
        ),
        torch.tensor([torch.inf, -torch.inf, torch.nan, 2.0**-126, 2.0**-149, 3.4e38, 2.0**-100]),
        values([(w & 0x807FFFFF) | 0x3F000000 for w in some_words("edges", 14)]) * 9.0,
    )
)


def philox_case(i: int) -> Json:
    counter, key = some_words(f"counter {i}", 4), some_words(f"key {i}", 2)
    if i == 0:
        counter, key = [0] * 4, [0] * 2
    c0, c1, c2, c3 = (torch.tensor([word]) for word in counter)
    words = philox4x32((c0, c1, c2, c3), (key[0], key[1]))
    return {"counter": counter, "key": key, "words": [int(word) for word in words]}


def dropped(share: str, first: int) -> Json:
    """Normal values, one ∞ and one NaN; element i is number first + i of its batch."""
    key = some_words("dropout", 2)
    mask = Mask(share, (key[0], key[1]), step=7, site=3, first=first)
    x = values([(w & 0x807FFFFF) | 0x3F800000 for w in some_words("dropped", 14)])
    x = torch.cat((x, torch.tensor([torch.inf, torch.nan])))
    return {
        "share": share,
        "threshold": mask.threshold,
        "scale": bits(torch.tensor([mask.scale]))[0],
        "key": key,
        "step": mask.step,
        "site": mask.site,
        "first": first,
        "x": bits(x),
        "words": kernels_words(mask, len(x), x.device).tolist(),
        "y": bits(TorchKernels().drop(x, mask)),
    }


def grid(levels: int, i: int) -> Json:
    """A row of values next to k + ½ steps; the second has an ∞ in it, the third a NaN."""
    peak = torch.tensor(0.7)
    multiplier = steps(peak, levels)[0].double()
    words = torch.tensor(some_words("grid", 23))
    x = ((words % (2 * levels) - levels + 0.5) / multiplier).float()
    aside = torch.where(words % 3 == 0, torch.nextafter(x, x * 2), torch.nextafter(x, x * 0.5))
    x = torch.cat((peak.view(1), torch.where(words % 3 == 1, x, aside))).clamp(-peak, peak)[None]
    if i:
        x[0, 5] = (torch.inf, torch.nan)[i - 1]
    integers, step = TorchKernels().quantise_levels(x, levels)
    return {
        "levels": levels,
        "x": bits(x[0]),
        "integers": [int(n) for n in integers[0].tolist()],
        "step": bits(step[0])[0],
    }


def stream(name: str, length: int) -> bytes:
    """Bytes that nobody chose: SHA-256 of the name and a counter."""
    return b"".join(digest(f"{name} {i}") for i in range(length // 32 + 1))[:length]


def pieces() -> Json:
    """pieces.json: byte strings, their piece roots with one piece opened, and update roots."""
    result = []
    for length in (1, 1024, 1025, 5000):
        data = stream("piece", length)
        leaves = [hashing.keccak256(data[at : at + 1024]) for at in range(0, length, 1024)]
        index = len(leaves) // 2
        result.append(
            {
                "count": len(leaves),
                "data": text(data),
                "index": index,
                "piece": text(data[1024 * index : 1024 * (index + 1)]),
                "proof": texts(merkle.merkle_proof(leaves, index)),
                "root": text(piece_root(data)),
                "size": length,
                "updateRoot": text(root_of_update(data)),
            }
        )
    return {"strings": result, "tag": text(hashing.tag("atoll.update.v1"))}


def dithers() -> Json:
    """dither.json: keys, and the noise that pieces begin with."""
    result = []
    for seat, section, piece in ((0, 0, 0), (5, 0, 1), (255, 2, 70_000)):
        key = DitherKey(digest("data seed"), seat, section)
        result.append(
            {
                "key": text(hashing.dither_key(key.data_seed, seat, section, piece)),
                "noise": text(key.noise(piece, 96).tobytes()),
                "piece": piece,
                "seat": seat,
                "section": section,
            }
        )
    return {"dataSeed": text(digest("data seed")), "dithers": result}


SEEDED = np.random.default_rng(0).standard_normal(101).astype(np.float32)
DELTA = SEEDED * np.exp2(np.arange(101) % 13 - 6, dtype=np.float32)
DELTA[:12] = [0, -0.0, 0.5, -0.5, 1.5, -1.5, 2.5, 1e-45, -1e-45, 3e38, -3e38, 127.5]


def updates() -> Json:
    """updates.json: fp32 values, their bytes by each dense codec, and the integers merged."""
    delta = {"a": torch.from_numpy(DELTA[:60]).reshape(6, 10), "b": torch.from_numpy(DELTA[60:])}
    layout, dither, cases = Layout.of_tensors(delta), DitherKey(digest("data seed"), 3), []
    for kind in (name for name, each in KINDS.items() if not each.is_sparse):
        codec = CODECS[kind].under(dither)
        exponents = (
            dict.fromkeys(delta, KINDS[kind].start) if KINDS[kind].is_exact else {"a": 0, "b": -3}
        )
        data = codec.encode(delta, exponents)
        row = codec.decode_flat(data, layout, exponents).tolist()
        cases.append(
            {
                "bytes": text(data),
                "codec": kind,
                "exponents": exponents,
                "row": [str(value) for value in row] if kind == "fp32" else row,
            }
        )
    return {
        "cases": cases,
        "dataSeed": text(dither.data_seed),
        "delta": text(DELTA.astype(">f4").tobytes()),
        "seat": dither.seat,
        "shapes": {"a": [6, 10], "b": [41]},
    }


def state_trees() -> Json:
    """states.json: tensors, little-endian, and the roots of their trees."""
    floats = np.frombuffer(stream("floats", 4 * 2100), dtype="<f4").reshape(30, 70)
    whole = np.frombuffer(stream("integers", 8 * 7), dtype="<i8")
    tensors = {"m/b": floats, "m/a": np.float32([[-0.0, 0.0]]), "count": whole[:1].reshape(())}
    return {
        "roots": [
            {
                "root": text(tree_root({n: torch.from_numpy(t.copy()) for n, t in part.items()})),
                "tensors": [
                    {
                        "data": text(tensor.tobytes()),
                        "dtype": str(tensor.dtype),
                        "name": name,
                        "shape": list(tensor.shape),
                    }
                    for name, tensor in part.items()
                ],
            }
            for part in (tensors, {"w": whole})
        ]
    }


def job_tables() -> Json:
    """tables.json: schedules and models, every number of their tables, and the root."""
    manifest = make_manifest()
    adamw = manifest.inner.model_copy(update={"warmup_steps": 3})
    cosine = adamw.model_copy(update={"schedule": "cosine"})
    unused = dict.fromkeys(("beta1", "beta2", "eps"), "0")
    sgd = adamw.model_copy(update={"optimizer": "sgd", **unused})
    model, result = manifest.model.model_copy(update={"seq": 5}), []
    for inner, count in ((adamw, 4), (cosine, 130), (sgd, 2)):
        schedule = schedule_tables.schedule_of(inner, count)
        rotary = decimals.rotary_tables(
            model.seq, model.head_dim, model.rope_base, model.rope_scaling
        )
        result.append(
            {
                "corrections": text(schedule.corrections.astype(">f8").tobytes()),
                "inner": inner.model_dump(),
                "model": model.model_dump(),
                "rates": text(schedule.rates.astype(">f8").tobytes()),
                "root": text(schedule_tables.tables_root(model, inner, count)),
                "rotary": text(np.stack(rotary, axis=-1).astype(">f4").tobytes()),
                "steps": count,
            }
        )
    return {"tables": result}


FILES: Mapping[str, Callable[[], Json]] = {
    "merkle.json": merkle_trees,
    "exact.json": exact,
    "pieces.json": pieces,
    "dither.json": dithers,
    "updates.json": updates,
    "states.json": state_trees,
    "tables.json": job_tables,
}


def render(build: Callable[[], Json]) -> str:
    """The file's text: keys in alphabetical order, as forge reads them."""
    return json.dumps(build(), indent=1, sort_keys=True) + "\n"


def main() -> None:
    for name, build in FILES.items():
        (HERE / name).write_text(render(build))


if __name__ == "__main__":
    main()
