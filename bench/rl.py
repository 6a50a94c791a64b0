"""What an audit of sampled answers takes beside a seat's own time: `python bench/rl.py`.

One segment of a job with a task, of random weights and prompts over bytes, is run as its seat runs
it, and again with the ids that it sampled, as an auditor does. Generation, the check of ids and
training are timed apart; and so are the traces of a step and of one of its tokens, which a side of
a game makes. With --json, one object.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import torch

from atoll.job.plan import filled
from atoll.job.prepare_manifest import prepare_task
from atoll.job.presets import preset
from atoll.numerics.rollouts import read_ids
from atoll.numerics.segment import Course, run_segment
from atoll.numerics.state import SeatState
from atoll.numerics.state_layout import seat_layout
from atoll.numerics.trace.build.whole import program_of
from atoll.protocol.manifest import Manifest, NumericsSpec
from atoll.protocol.program import Part
from atoll.protocol.types import ZERO_DIGEST, Digest, JobId, SeatIndex
from atoll.storage.cid import Cid
from atoll.storage.local import LocalStore
from atoll.train.course import open_course
from atoll.train.initial_model import open_initial_state
from atoll.train.judge_task import JudgeTask
from atoll.train.own_run import OwnRun, OwnTrace
from atoll.train.token_trace import token_trace

DEFAULTS = {"width": 256, "layers": 4, "seq": 256, "prompt": 32, "new": 192, "batch": 16}
NUMERICS = NumericsSpec(code_digest=ZERO_DIGEST, probe_digest=ZERO_DIGEST)


def job_of(arguments: argparse.Namespace, folder: Path, store: LocalStore) -> Manifest:
    """A job of two steps, all of whose answers are as long as they may be."""
    rows = ({"prompt": chr(97 + i) * arguments.prompt, "answer": "1"} for i in range(16))
    file = folder / "problems.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    plain = preset("nano")
    assert plain.model is not None
    heads, width = arguments.width // 64, arguments.width
    shape = {"width": width, "layers": arguments.layers, "heads": heads, "kv_heads": heads}
    shape |= {"ffn": width * 11 // 4, "seq": arguments.seq}
    inner = {"batch": arguments.batch, "micro_batch": min(8, arguments.batch)}
    spec = plain.but(
        {
            "model": plain.model.model_copy(update=shape),
            "task": {"prompts": [str(file)], "group": 8, "new_tokens": arguments.new},
            "evaluate.batches": 0,
        }
        | {f"inner.{name}": value for name, value in {**inner, "steps": 2, "segment": 2}.items()}
    )
    made = prepare_task(spec, store)
    task = made.task.model_copy(update={"ends": ()})
    return filled(spec).resolve(made.data, None, NUMERICS, now=0, task=task)


def timed(course: Course, state: SeatState) -> dict[str, float]:
    """CPU seconds of a segment, which neighbours do not lengthen, and of its steps' rollouts."""
    started = time.process_time()
    run_segment(state, 0, course)
    whole = time.process_time() - started
    started = time.process_time()
    for _ in range(2):
        course.input_of(0, course.begin(state, 0))
    return {"whole": whole, "rollouts": time.process_time() - started}


def traces(job: Manifest, cid: Cid, initial: Digest, store: LocalStore) -> dict[str, float]:
    """CPU seconds and bytes of the trace of a step, and of a token in it. What they read is made
    before, and for both at once.
    """
    task = JudgeTask(
        job=JobId(1),
        manifest=job.to_bytes(),
        initial=initial,
        round=0,
        seat=SeatIndex(0),
        data_seed=ZERO_DIGEST,
        model=cid.to_bytes(),
        segment=0,
    )
    own, token = OwnRun(task, store), token_trace(job)
    sources = own.trace(0).sources
    assert sources is not None
    program = program_of(job, initial)
    started = time.process_time()
    OwnTrace(program, Part.STEP, sources)
    of_step = time.process_time() - started
    started = time.process_time()
    own.token_trace(0, job.model.seq - 1)
    of_token = time.process_time() - started
    step = (t.size * t.count for t in program.templates if t.part == Part.STEP)
    return {
        "step_trace_seconds": round(of_step, 3),
        "step_trace_bytes": sum(step),
        "token_trace_seconds": round(of_token, 3),
        "token_trace_bytes": token.size,
        "token_trace_nodes": token.nodes,
        "token_moves": token.moves,
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--json", action="store_true")
    for name, value in DEFAULTS.items():
        parser.add_argument(f"--{name}", type=int, default=value)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        store = LocalStore(Path(folder) / "store", sync=False)
        job = job_of(arguments, Path(folder), store)
        course = open_course(job, store=store, data_seed=ZERO_DIGEST, seat=SeatIndex(0), round=0)
        model = open_initial_state(job, store)
        state = SeatState.initial(model, seat_layout(job))
        raw = run_segment(state, 0, course).sampled_bytes  # which compiles and warms, too
        sampled = read_ids(raw, batch=job.inner.batch, seq=job.model.seq)
        own = timed(course, state)
        audit = timed(replace(course, sampled=sampled), state)
        game = traces(job, store.add_bytes(model.to_bytes()), model.digest(), store)
    report = {
        "threads": torch.get_num_threads(),
        "own_seconds": round(own["whole"], 3),
        "generation_seconds": round(own["rollouts"], 3),
        "audit_seconds": round(audit["whole"], 3),
        "check_seconds": round(audit["rollouts"], 3),
        "audit_of_own": round(audit["whole"] / own["whole"], 3),
    } | game
    if arguments.json:
        print(json.dumps(report))
        return
    print(
        f"a seat: {report['own_seconds']} s, of which it generates {report['generation_seconds']}; "
        f"an auditor with its ids: {report['audit_seconds']} s, of which it checks "
        f"{report['check_seconds']}: {report['audit_of_own']} of the seat's; "
        f"in a game the trace of a step takes {report['step_trace_seconds']} s, of one of its "
        f"tokens {report['token_trace_seconds']} s"
    )


if __name__ == "__main__":
    main()
