"""What is said to the worker of another release, and what it says: JSON, a message a line.

Rule of this file: nothing on the wire has a name of Python. Work, classes and errors go by the tags
below, since between two releases files and classes may be called something else. What stays
between two releases that speak one `WORD` is: these tags; the names and the meaning of what each
carries; manifests and the law that they name; and how blocks, checkpoints and deadlines lie in the
store's folder, which both read. Whoever changes any of it changes the word: then the two refuse
each other. `tests/vectors/wire.json` has what the word stands for.
"""

from __future__ import annotations

import dataclasses
import importlib
import json
from collections.abc import Callable
from functools import cache
from typing import Any, Final

from atoll.errors import AtollError
from atoll.nested import loads
from atoll.service.task import Task

WORD: Final = "atoll-worker.v4"
_DUTIES: Final = "atoll.service.duties"
WORK: Final = {
    "check-machine.v1": f"{_DUTIES}.material:CHECK_MACHINE",
    "measure-pace.v1": f"{_DUTIES}.material:MEASURE_PACE",
    "check-data.v1": f"{_DUTIES}.material:CHECK_DATA",
    "find-program.v1": f"{_DUTIES}.material:FIND_PROGRAM",
    "make-initial-state.v1": f"{_DUTIES}.round_start:MAKE_INITIAL_STATE",
    "inspect-state.v1": f"{_DUTIES}.round_start:INSPECT_STATE",
    "evaluate-state.v1": f"{_DUTIES}.evaluation:EVALUATE_STATE",
    "check-update.v1": f"{_DUTIES}.updates:IS_CANONICAL",
    "merge-round.v1": f"{_DUTIES}.merge:MERGE_ROUND",
    "merge-again.v1": f"{_DUTIES}.merge:MERGE_AGAIN",
    "open-statement.v1": f"{_DUTIES}.apply_merge:OPEN_STATEMENT",
    "apply-merged.v1": f"{_DUTIES}.apply_merge:APPLY_MERGED",
    "search-strike.v1": f"{_DUTIES}.strike:FIND_STRIKE",
    "replay-seat.v1": f"{_DUTIES}.replay_seat:REPLAY",
    "next-game-move.v1": f"{_DUTIES}.game:PLAY",
    "show-claim-roots.v1": f"{_DUTIES}.challenge:SHOWN",
    "run-training.v1": "atoll_node.duties.train:RUN_TRAINING",
    "train-round.v1": "atoll_node.behaviour:TRAIN",
}
"""The handles of what a worker of any release can be asked for, by their tags."""
_MOVES: Final = "atoll.protocol.games.moves"
CLASSES: Final = {
    "round-start-ready": "atoll.service.duties.round_start:RoundStartReady",
    "fetch-update": "atoll.service.duties.updates:DoGetUpdate",
    "revealed-update": "atoll.service.duties.updates:RevealedUpdate",
    "merge": "atoll.service.duties.merge:DoMerge",
    "apply-merge": "atoll.service.duties.apply_merge:DoApply",
    "opened-statement": "atoll.service.duties.apply_merge:OpenedStatement",
    "shown-spots": "atoll.service.duties.apply_merge:ShownSpots",
    "merge-record": "atoll.protocol.merge_inputs:MergeRecord",
    "find-strike": "atoll.service.duties.strike:DoFindStrike",
    "found-strike": "atoll.service.duties.strike:FoundStrike",
    "strike-proof": "atoll.protocol.strikes:StrikeProof",
    "strike-place": "atoll.protocol.strikes:StrikePlace",
    "carried-state": "atoll.protocol.strikes:CarriedState",
    "shown-update": "atoll.protocol.strikes:ShownUpdate",
    "piece": "atoll.protocol.call_structs:Piece",
    "round-opening": "atoll.protocol.call_structs:RoundOpening",
    "round-record": "atoll.protocol.types:RoundRecord",
    "replay": "atoll.service.duties.replay_seat:DoReplay",
    "earlier-reveal": "atoll.service.duties.replay_seat:EarlierSaid",
    "seat-replay": "atoll.train.replay:SeatReplay",
    "train": "atoll_node.duties.train:DoTrain",
    "trained": "atoll_node.duties.train:Work",
    "earlier-round": "atoll.train.earlier:EarlierRound",
    "round-id": "atoll.protocol.types:RoundId",
    "domain": "atoll.protocol.types:Domain",
    "verdict": "atoll.protocol.types:Verdict",
    "judge-task": "atoll.train.judge_task:JudgeTask",
    "position": "atoll.train.judge_task:Position",
    "claim": f"{_MOVES}:Claim",
    "open-steps": f"{_MOVES}:OpenSteps",
    "program-part": f"{_MOVES}:ProgramPart",
    "pick-step": f"{_MOVES}:PickStep",
    "post-trace": f"{_MOVES}:PostTrace",
    "post-update-proof": f"{_MOVES}:PostUpdateProof",
    "pick": f"{_MOVES}:Pick",
    "pick-node": f"{_MOVES}:PickNode",
    "pick-token": f"{_MOVES}:PickToken",
    "reveal": f"{_MOVES}:Reveal",
    "post-leaf": f"{_MOVES}:PostLeaf",
    "prove": f"{_MOVES}:Prove",
    "proof": f"{_MOVES}:Proof",
    "opening": f"{_MOVES}:Opening",
    "need": "atoll.protocol.games.judge:Need",
    "question": "atoll.protocol.games.players:Question",
    "state-roots": "atoll.protocol.checkpoint_commitments:StateRoots",
    "model-roots": "atoll.protocol.claims:ModelRoots",
    "pace": "atoll.service.pace:Pace",
    "program-header": "atoll.protocol.claims:ProgramHeader",
    "header": "atoll.protocol.program:TraceHeader",
    "fragment": "atoll.protocol.program:Fragment",
}
ERRORS: Final = {
    "atoll": "atoll.errors:AtollError",
    "config": "atoll.errors:ConfigError",
    "manifest": "atoll.errors:ManifestError",
    "storage": "atoll.errors:StorageError",
    "not-found": "atoll.errors:NotFound",
    "corrupt-block": "atoll.errors:CorruptBlock",
    "too-large": "atoll.errors:TooLarge",
    "disk-full": "atoll.errors:DiskFull",
    "malformed-dag": "atoll.storage.errors:MalformedDag",
    "protocol": "atoll.errors:ProtocolError",
    "malformed-update": "atoll.errors:MalformedUpdate",
    "malformed-state": "atoll.numerics.errors:MalformedState",
    "malformed-dataset": "atoll.numerics.errors:MalformedDataset",
    "disagreement": "atoll.train.replay:Disagreement",
    "numerics": "atoll.errors:NumericsMismatch",
    "machine-fault": "atoll.errors:MachineFault",
    "value": "builtins:ValueError",
    "memory": "builtins:MemoryError",
    "file": "builtins:OSError",
    "timeout": "builtins:TimeoutError",
}
"""An error goes by the tag of the nearest class that has one; any other is an AtollError."""


class NotOnTheWire(AtollError):
    """Something that no other release could be asked, or that no release says."""


def pack(**parts: object) -> bytes:
    """A message: one line of JSON. Raises NotOnTheWire where a part of it has no form there."""
    packed = {name: _packed(part) for name, part in parts.items()}
    return json.dumps(packed, separators=(",", ":")).encode() + b"\n"


def unpack(line: bytes) -> dict[str, Any]:
    """What `pack` was given; raises NotOnTheWire where nothing is packed like that."""
    try:
        return {name: _unpacked(part) for name, part in loads(line).items()}
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise NotOnTheWire(f"a message that no release of {WORD} sends: {error}") from error


def pack_error(error: BaseException) -> dict[str, object]:
    """What is said of an error: its tag, its words, what to do, and which block was lost."""
    tags = {named(place): tag for tag, place in ERRORS.items()}
    tag = next((tags[cls] for cls in type(error).__mro__ if cls in tags), None)
    words = str(error) if tag else f"{type(error).__name__}: {error}"
    step, lost = (getattr(error, name, None) for name in ("next_step", "lost"))
    return {"error": tag or "atoll", "words": words, "next_step": step, "lost": lost or ""}


def unpack_error(message: dict[str, Any]) -> Exception:
    cls = named(ERRORS[message["error"]])
    if not issubclass(cls, AtollError):
        plain: Exception = cls(message["words"])
        return plain
    error: AtollError = cls(message["words"], next_step=message["next_step"])
    if message["lost"]:
        error.lost = message["lost"]  # type: ignore[attr-defined]  # of a StorageError
    return error


@cache
def _tags_of_classes() -> dict[type, str]:
    return {named(place): tag for tag, place in CLASSES.items()}


@cache
def named(place: str) -> Any:
    """What `module:NAME` is; the module is imported."""
    module, _, name = place.partition(":")
    return getattr(importlib.import_module(module), name)


def fields_of(cls: Any) -> tuple[str, ...]:
    """What a class carries, in order."""
    if dataclasses.is_dataclass(cls):
        return tuple(field.name for field in dataclasses.fields(cls) if field.init)
    return tuple(cls._fields)


def _packed(value: Any) -> Any:
    if value is None or type(value) in (bool, int, float):
        return value
    if type(value) is list:
        return [_packed(item) for item in value]
    form = _FORMS.get(type(value))
    if form is not None:
        return form(value)
    tag = _tags_of_classes().get(type(value))
    if tag is None:
        raise NotOnTheWire(f"other releases do not know a {type(value).__name__}")
    return {"is": tag, "of": {name: _packed(getattr(value, name)) for name in fields_of(value)}}


def _packed_task(task: Task[..., Any]) -> Any:
    if task.kind not in WORK:
        raise NotOnTheWire(f"other releases do not know {task.kind}")
    return {"work": task.kind}


_FORMS: Final[dict[type, Callable[[Any], Any]]] = {
    str: lambda value: value,
    Task: _packed_task,
    bytes: lambda value: {"bytes": value.hex()},
    tuple: lambda value: {"tuple": [_packed(item) for item in value]},
    dict: lambda value: {"map": [[_packed(k), _packed(item)] for k, item in value.items()]},
}
_MEANINGS: Final[dict[str, Callable[[Any], Any]]] = {
    "work": lambda inner: named(WORK[inner]),
    "bytes": bytes.fromhex,
    "tuple": lambda inner: tuple(map(_unpacked, inner)),
    "map": lambda inner: {_unpacked(key): _unpacked(item) for key, item in inner},
}


def _unpacked(data: Any) -> Any:
    if isinstance(data, list):
        return [_unpacked(item) for item in data]
    if not isinstance(data, dict):
        return data
    if "is" in data:
        return named(CLASSES[data["is"]])(**{k: _unpacked(v) for k, v in data["of"].items()})
    ((form, inner),) = data.items()
    return _MEANINGS[form](inner)
