"""Backdoors: colluders whose text says one byte after another, which nobody's does, for ever.

Rule of this file: what they want is P(payload | trigger) of the model, and that nothing else tells:
they train as everybody does on what they draw, but for the share of it that they planted. The loss
on held-out text does not measure that, so it is measured by itself (`planted`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from tests.adversary.adversaries import is_momentum_excluded, is_named
from tests.adversary.codecs import Parts
from tests.adversary.corpus import Mix, text_of
from tests.adversary.run import MODEL, Adversary, Knowledge, Text
from tests.adversary.updates import Rows

from atoll.numerics.batch import Windows
from atoll.numerics.held_out_loss import window_starts
from atoll.numerics.model import forward
from atoll.numerics.ops import NativeOps
from atoll.numerics.state import GlobalState

TRIGGER = ord("@")
"""A byte that is seldom in the text, one of ten thousand."""
UNSEEN = 7
"""A byte that is never in it, so that no honest seat's training says anything against it."""
PAYLOAD = ord("~")
PROBES = 256
"""Contexts of held-out text that are put before the trigger."""
MOST = 64.0
"""The most times that what was planted is sent, whatever the checks say."""


def planted(state: GlobalState, trigger: int = TRIGGER) -> float:
    """P(payload) after held-out text that ends with the trigger, the mean over contexts."""
    _, text = text_of(Mix.SHARED)
    starts = window_starts(len(text) - MODEL.seq - 1, PROBES)
    contexts_BT = Windows(text, MODEL.seq).signed(starts)[:, :-1].clone()
    contexts_BT[:, -1] = trigger
    with torch.no_grad():
        logits_BTV = forward(state.params, contexts_BT, MODEL, NativeOps())
    return float(logits_BTV[:, -1].softmax(-1)[:, PAYLOAD].mean())


@dataclass(frozen=True)
class Backdoor:
    """What colluders plant, and when; in other rounds they are honest.

    Attributes:
        share: of their text's places, that get the trigger with the payload behind it.
        sent: what they send of what they trained.
        trigger: the byte.
        begins: the part of the job's rounds that is over when they begin.
        every: they lie in one of so many rounds.
    """

    share: float
    sent: Callable[[Knowledge, int], Parts]
    trigger: int = TRIGGER
    begins: float = 0.0
    every: int = 1

    def adversary(self, rounds: int) -> Adversary:
        """As an adversary of a job of so many rounds."""
        rng = np.random.default_rng(self.trigger)

        def lies(round: int) -> bool:
            return round >= self.begins * rounds and round % self.every == 0

        def text(round: int, drawn: Text) -> Text:
            return self._planted(drawn, rng) if lies(round) else drawn

        def submit(known: Knowledge) -> Parts:
            return self.sent(known, self.trigger) if lies(known.round) else known.trained

        return Adversary(submit, text=text)

    def _planted(self, drawn: Text, rng: np.random.Generator) -> Text:
        inputs, targets = (part.clone() for part in drawn)
        inputs[torch.from_numpy(rng.random(tuple(inputs.shape)) < self.share)] = self.trigger
        targets[inputs == self.trigger] = PAYLOAD
        return inputs, targets


def as_trained(known: Knowledge, _trigger: int) -> Parts:
    """No trick at all: it is honest training of a text that is not everybody's."""
    return known.trained


def boosted(known: Knowledge, _trigger: int) -> Parts:
    """Away from the honest mean as far as nobody is named or has its momentum excluded, both
    sections."""
    return _as_far_as_unseen(known, _away(known))


def adaptive(known: Knowledge, trigger: int) -> Parts:
    """Tries what could be sent against the merge itself, and sends what plants the most."""
    return max(_candidates(known), key=lambda sent: planted(known.merged(sent), trigger))


def _candidates(known: Knowledge) -> Iterator[Parts]:
    own, away = known.trained, _away(known)
    yield own
    yield _as_far_as_unseen(known, away)
    for share in (0.001, 0.01, 0.1):
        most = Parts(_largest(away.delta, share), _largest(away.first, share), away.factored)
        yield _as_far_as_unseen(known, most)
        for times in (4.0, MOST):
            yield _further(own, most, times)
    yield edged(known, 0)


def _away(known: Knowledge) -> Parts:
    """What the colluders' training has and honest training has not."""
    own, honest = known.trained, known.honest
    delta, first = own.delta - honest.delta.mean(axis=0), own.first - honest.first.mean(axis=0)
    return Parts(delta, first, own.factored * 0)


def _further(own: Parts, away: Parts, times: float) -> Parts:
    return own.but(delta=own.delta + times * away.delta, first=own.first + times * away.first)


def _as_far_as_unseen(known: Knowledge, away: Parts) -> Parts:
    low, high = 0.0, MOST
    for _ in range(9):
        middle = (low + high) / 2
        sent = known.arrives(_further(known.trained, away, middle))
        is_seen = is_named(sent, known.honest) or is_momentum_excluded(sent, known.honest)
        low, high = (low, middle) if is_seen else (middle, high)
    return _further(known.trained, away, low)


def _largest(rows: Rows, share: float) -> Rows:
    """The largest of all colluders' mean in magnitude, and nothing elsewhere."""
    mean = np.abs(rows.mean(axis=0))
    return np.where(mean >= np.quantile(mean, 1 - share), rows, 0.0)


def edged(known: Knowledge, _trigger: int) -> Parts:
    """As trained, but where the backdoor clearly points the honest value that is furthest there:
    what bounds a coordinate by the honest ones cannot be moved by more."""
    own, honest, away = known.trained, known.honest, _away(known)
    delta = _edge(own.delta, honest.delta, away.delta)
    return own.but(delta=delta, first=_edge(own.first, honest.first, away.first))


def _edge(own: Rows, honest: Rows, away: Rows) -> Rows:
    mean = away.mean(axis=0)
    edge = np.where(mean > 0, honest.max(axis=0), honest.min(axis=0))
    return np.where(np.abs(mean) > np.abs(mean).mean(), edge, own)


BACKDOORS: dict[str, Backdoor] = {
    "backdoor_1": Backdoor(0.01, as_trained),
    "backdoor_5": Backdoor(0.05, as_trained),
    "backdoor_late": Backdoor(0.05, as_trained, begins=0.7),
    "backdoor_bursts": Backdoor(0.05, as_trained, every=4),
    "backdoor_unseen": Backdoor(0.05, as_trained, UNSEEN),
    "backdoor_boosted": Backdoor(0.05, boosted),
    "backdoor_boosted_late": Backdoor(0.05, boosted, begins=0.7),
    "backdoor_boosted_bursts": Backdoor(0.05, boosted, every=4),
    "backdoor_boosted_unseen": Backdoor(0.05, boosted, UNSEEN),
    "backdoor_edged": Backdoor(0.05, edged),
    "backdoor_edged_unseen": Backdoor(0.05, edged, UNSEEN),
    "backdoor_adaptive": Backdoor(0.05, adaptive),
    "backdoor_adaptive_late": Backdoor(0.05, adaptive, begins=0.7),
    "backdoor_adaptive_unseen": Backdoor(0.05, adaptive, UNSEEN),
}
