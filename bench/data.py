"""Text prepared as a stream: peak memory and speed, beside the tokenizer alone.

    python bench/data.py --json [--megabytes 1024] [--vocab 8192]

The text is the standard library's sources, over and over, each copy with its own number in every
line's beginning, so that no document is another's twin. A byte-pair tokenizer is trained on them
here. Each part runs in a process of its own, whose peak memory is what the system says of it.
`tokenizers` is the peer: `encode_batch_fast` on the same text in batches of the same size, all
cores, nothing kept. `share_of_peer` is of its speed; `share_of_peer_by_cpu`, of what both took of
the processors, says the same where others use them too.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

MEGABYTE = 1_000_000
FILE_BYTES = 32 * MEGABYTE


def sources() -> list[bytes]:
    """The modules of the standard library that are UTF-8."""
    found = []
    for path in sorted(Path(sysconfig.get_path("stdlib")).rglob("*.py")):
        if "site-packages" not in path.parts:
            raw = path.read_bytes()
            try:
                raw.decode()
            except UnicodeDecodeError:
                continue
            found.append(raw)
    return found


def write_text(folder: Path, size: int) -> None:
    """Text files of `size` bytes together."""
    parts, written, number = copies(), 0, 0
    while written < size:
        with (folder / f"{number:05}.txt").open("wb") as file:
            while file.tell() < min(FILE_BYTES, size - written):
                file.write(next(parts))
            written += file.tell()
        number += 1


def copies() -> Iterator[bytes]:
    """The sources without end; of every copy, some lines are numbered."""
    texts = sources()
    copy = 0
    while True:
        for text in texts:
            yield text if copy == 0 else text.replace(b"\n    ", b"\n#%d  " % copy, 97)
        copy += 1


def train_tokenizer(folder: Path, vocab: int) -> None:
    """A byte-pair tokenizer in GPT-2's manner."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab,
        special_tokens=["<|endoftext|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator((text.decode() for text in sources()[:400]), trainer)
    folder.mkdir()
    tokenizer.save(str(folder / "tokenizer.json"))


def prepare_all(work: Path) -> dict[str, Any]:
    """What a submitter's machine does."""
    from dataclasses import asdict

    from atoll.storage.local import LocalStore
    from atoll.train.corpus.options import DataOptions
    from atoll.train.corpus.prepare import prepare

    options = DataOptions((work / "text",), tokenizer=work / "tokenizer")
    data = asdict(prepare(options, LocalStore(work / "store")))
    return {name: value for name, value in data.items() if isinstance(value, int)}


def tokenize_all(work: Path) -> dict[str, Any]:
    """The peer: the tokenizer's own batches over the same text."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(work / "tokenizer" / "tokenizer.json"))
    tokens = 0
    for path in sorted((work / "text").iterdir()):
        with path.open(encoding="utf-8", newline="") as file:
            while batch := [part for _ in range(16) if (part := file.read(1 << 16))]:
                found = tokenizer.encode_batch_fast(batch, add_special_tokens=False)
                tokens += sum(len(one) for one in found)
    return {"tokens": tokens}


PARTS = {"prepare": prepare_all, "tokenizers": tokenize_all}


def run_part(name: str, work: Path) -> dict[str, Any]:
    """A part in a process of its own: its figures, seconds, and peak resident memory."""
    command = [sys.executable, __file__, "--part", name, "--work", str(work)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def report_part(name: str, work: Path) -> None:
    """Runs a part here and prints what it took."""
    started = time.perf_counter()
    figures = PARTS[name](work)
    seconds = time.perf_counter() - started
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    size = sum(path.stat().st_size for path in (work / "text").iterdir())
    print(json.dumps({
        "bytes": size, "seconds": round(seconds, 2), "cpu_seconds": round(time.process_time(), 2),
        "megabytes_per_s": round(size / MEGABYTE / seconds, 2),
        "peak_megabytes": round(peak / MEGABYTE), **figures,
    }))  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--json", action="store_true", help="one line of JSON alone")
    parser.add_argument("--megabytes", type=int, default=1024)
    parser.add_argument("--vocab", type=int, default=8192)
    parser.add_argument("--part", choices=PARTS, help=argparse.SUPPRESS)
    parser.add_argument("--work", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.part:
        report_part(options.part, options.work)
        return
    with tempfile.TemporaryDirectory(prefix="atoll-data-") as folder:
        work = Path(folder)
        (work / "text").mkdir()
        write_text(work / "text", options.megabytes * MEGABYTE)
        train_tokenizer(work / "tokenizer", options.vocab)
        found = {name: run_part(name, work) for name in PARTS}
    share = found["prepare"]["megabytes_per_s"] / found["tokenizers"]["megabytes_per_s"]
    found["share_of_peer"] = round(share, 2)
    cpu = found["tokenizers"]["cpu_seconds"] / found["prepare"]["cpu_seconds"]
    found["share_of_peer_by_cpu"] = round(cpu, 2)
    print(json.dumps(found, indent=None if options.json else 1))


if __name__ == "__main__":
    main()
