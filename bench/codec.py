"""How fast updates are encoded and decoded on one core, in GB of fp32 input a second.

    python bench/codec.py --d 50000000 --json

The last line is JSON: per codec `encode_gb_s`, `decode_gb_s` and `bytes_per_parameter`.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable

import torch

from atoll.numerics.codec.dither import DitherKey
from atoll.numerics.codec.registry import CODECS
from atoll.numerics.codec.vector_layout import Layout
from atoll.protocol.codecs import CODECS as KINDS
from atoll.protocol.types import ZERO_DIGEST

EXPONENTS = {"w": -10}


def best_seconds(work: Callable[[], object], repeats: int) -> float:
    """The shortest of `repeats` runs."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--d", type=int, default=50_000_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", action="store_true", help="only the JSON line")
    args = parser.parse_args()
    torch.set_num_threads(1)
    delta = {"w": torch.randn(args.d, generator=torch.Generator().manual_seed(0)) / 50}
    layout = Layout.of_tensors(delta)
    results = {}
    for name, codec in CODECS.items():
        under = codec.under(DitherKey(ZERO_DIGEST, 0))
        # Exact values are not integers of the grid until they are merged.
        decode = under.decode if KINDS[name].is_exact else under.decode_flat
        data = under.encode(delta, EXPONENTS)
        gigabytes = 4 * args.d / 1e9
        encoding = best_seconds(lambda u=under: u.encode(delta, EXPONENTS), args.repeats)
        decoding = best_seconds(lambda d=decode, b=data: d(b, layout, EXPONENTS), args.repeats)
        results[name] = {
            "encode_gb_s": round(gigabytes / encoding, 2),
            "decode_gb_s": round(gigabytes / decoding, 2),
            "bytes_per_parameter": round(len(data) / args.d, 4),
        }
        if not args.json:
            print(f"{name:8} {results[name]}")
    print(json.dumps({"d": args.d, "codecs": results}))


if __name__ == "__main__":
    main()
