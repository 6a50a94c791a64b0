"""What the submitter's worker computes, for the report and for the run: see `run/evaluation.py`."""

from __future__ import annotations

from typing import Final

from atoll.service.task import Task

SAMPLE_PROMPT: Final = "def "
"""What the trained model goes on with: the demo's text is Python."""
_MODULE: Final = "atoll_devnet.run.evaluation"

ANSWER: Final[Task[[dict[str, str]], object]] = Task("devnet-answer.v1", _MODULE)
EVAL_LOSS: Final[Task[[bytes, bytes | None, str], float]] = Task("devnet-eval-loss.v1", _MODULE)
SAMPLE_TEXT: Final[Task[[bytes, bytes, str], str]] = Task("devnet-sample-text.v1", _MODULE)
SIZES: Final[Task[[bytes], tuple[int, int]]] = Task("devnet-sizes.v1", _MODULE)
