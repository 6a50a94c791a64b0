"""A step's completions, of which helpers generate some: as the worker process runs it.

Rule of this file: what a helper sends is a hint. It is taken where one forward pass of our own says
that the law gives it, and else generated here; nobody is waited for. So who helps decides no bit,
and may cost a bounded share of the time (`splitting`).
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from time import monotonic
from typing import Final

import numpy as np
import structlog
import torch
from safetensors.torch import save
from torch import Tensor

from atoll.numerics.generate import Generated, Generator, Request, generate
from atoll.numerics.rollouts import checked, make_here
from atoll.numerics.segment import Course, SegmentRun
from atoll.numerics.state import SeatState
from atoll.protocol.manifest import Manifest
from atoll.storage.cid import cid_text
from atoll.train.seat_task import SegmentRunner
from atoll_node.rollouts.splitting import Splitting
from atoll_node.rollouts.spool import Count, Offer, Part, Result, Spool

PARTS: Final = 8
"""Of a step's sequences. Generated apart they take longer than at once, so that they are few."""
MOST_FALSE: Final = 2
"""So many false parts of one step are looked at, whoever sends them under how many names."""
log = structlog.get_logger("atoll.rollouts")


def helped(run: SegmentRunner, spool: Spool) -> SegmentRunner:
    """Runs segments as `run`, whose completions helpers generate where there are some."""

    def ran(states: list[SeatState], segment: int, course: Course) -> SegmentRun:
        if course.manifest.task is None:
            return run(states, segment, course)
        shared = SharedGeneration(course.manifest, spool)
        return run(states, segment, replace(course, make=shared))

    return ran


@dataclass(frozen=True, slots=True)
class SharedGeneration:
    """Generates with whoever helps (`rollouts.Make`)."""

    manifest: Manifest
    spool: Spool

    def __call__(
        self, params: Mapping[str, Tensor], generator: Generator, request: Request
    ) -> Generated:
        # Where no cache is allowed, one forward pass checks nothing.
        if not (generator.is_cached and request.draw is not None and self.spool.has_helpers()):
            return make_here(params, generator, request)
        before, started = self.spool.splitting(self._job), monotonic()
        offer = self._published(params, request) if before.may_be_lost else None
        if offer is None:
            made = make_here(params, generator, request)
        else:
            try:
                made = _Step(self.spool, offer, generator, request).made()
            finally:
                self.spool.withdraw()
        tokens = sum(made.lengths) - sum(map(len, request.prompts))
        after = before.at_once if offer is None else before.in_parts
        self._keep(after(monotonic() - started, tokens))
        return made

    @property
    def _job(self) -> str:
        return sha256(self.manifest.to_bytes()).hexdigest()

    def _keep(self, splitting: Splitting) -> None:
        try:
            self.spool.keep(splitting)
        except OSError as error:
            log.info("what helpers cost is not counted", cause=str(error))

    def _published(self, params: Mapping[str, Tensor], request: Request) -> Offer | None:
        try:
            return self._publish(params, request)
        except OSError as error:
            log.info("nobody is asked to help", cause=str(error))
            return None

    def _publish(self, params: Mapping[str, Tensor], request: Request) -> Offer:
        manifest, init = self.manifest.to_bytes(), self.manifest.init.cid
        saved = save({name: p.detach().cpu().contiguous() for name, p in params.items()})
        draw = request.draw
        assert draw is not None
        files = {sha256(data).hexdigest(): data for data in (manifest, saved)}
        offer = Offer(
            step=secrets.token_hex(16),
            manifest=sha256(manifest).hexdigest(),
            params=sha256(saved).hexdigest(),
            base=None if self.manifest.lora is None or init is None else cid_text(init),
            parts=parts_of(len(request.prompts)),
            prompts=tuple(map(tuple, request.prompts)),
            new_tokens=request.new_tokens,
            ends=tuple(sorted(request.ends)),
            key=draw.key,
            global_step=draw.step,
            seq=self.manifest.model.seq,
        )
        self.spool.publish(offer, files)
        return offer


def parts_of(count: int) -> tuple[Part, ...]:
    """So many sequences, in parts of equal size but for the last."""
    size = -(-count // PARTS)
    return tuple(Part(at, min(size, count - at)) for at in range(0, count, size))


def last_of(parts: Sequence[Part], most: int) -> Part:
    """Of parts in their order the last ones as one, so many that follow one another."""
    ours = parts[-1]
    for part in reversed(parts[-most:-1]):
        if part.first + part.count != ours.first:
            break
        ours = Part(part.first, part.count + ours.count)
    return ours


def part_of(request: Request, part: Part) -> Request:
    """What is asked of a part alone."""
    return replace(
        request,
        prompts=request.prompts[part.rows],
        first_place=request.first_place + part.first,
    )


@dataclass(slots=True)
class _Step:
    """The parts of one step, as they come."""

    spool: Spool
    offer: Offer
    generator: Generator
    request: Request
    made_of: dict[int, Generated] = field(default_factory=dict)
    ours: list[Part] = field(default_factory=list)
    helped: set[int] = field(default_factory=set)
    refused: set[int] = field(default_factory=set)

    def made(self) -> Generated:
        """All of them: ours from the last on, others' as they come. While nothing comes, ours are
        twice as many each time: so that who sends nothing costs a few parts, and not all.
        """
        most = 1
        while missing := self._missing():
            helped = len(self.helped)
            self._look(missing)
            if missing := self._missing():
                most = 1 if len(self.helped) > helped else most
                ours = last_of(missing, most)
                self.made_of[ours.first] = generate(self.generator, part_of(self.request, ours))
                self.ours.append(ours)
                most *= 2
        self._count_late()
        return joined([self.made_of[first] for first in sorted(self.made_of)])

    def _missing(self) -> list[Part]:
        have = {row for part in self.ours for row in range(part.first, part.first + part.count)}
        have |= self.helped
        return [part for part in self.offer.parts if part.first not in have]

    def _look(self, missing: Sequence[Part]) -> None:
        """Takes in what came of these parts, where it is the law's."""
        for result in self.spool.results(self.offer, missing):
            if result.part.first in self.refused or len(self.refused) >= MOST_FALSE:
                continue
            generated = self._checked(result)
            sequences = result.part.count
            if generated is None:
                self.refused.add(result.part.first)
                self._add(result.name, Count(false=sequences))
                log.info("a helper's answers are not the law's", helper=result.name)
                continue
            self.made_of[result.part.first] = generated
            self.helped.add(result.part.first)
            prompts = self.request.prompts[result.part.rows]
            tokens = sum(generated.lengths) - sum(map(len, prompts))
            self._add(result.name, Count(sequences=sequences, tokens=tokens))

    def _checked(self, result: Result) -> Generated | None:
        part = result.part
        if len(result.ids) != self.offer.part_bytes(part):
            return None
        ids = np.frombuffer(result.ids, "<i4").astype(np.int64).reshape(part.count, -1)
        return checked(self.generator, part_of(self.request, part), torch.from_numpy(ids))

    def _count_late(self) -> None:
        looked_at = self.helped | self.refused
        ours = [part for part in self.offer.parts if part.first not in looked_at]
        for result in self.spool.results(self.offer, ours):
            self._add(result.name, Count(late=result.part.count))

    def _add(self, name: str, more: Count) -> None:
        try:
            self.spool.add(name, more)
        except OSError as error:
            log.info("what a helper did is not counted", cause=str(error))


def joined(parts: Sequence[Generated]) -> Generated:
    """What became of all prompts, in their order."""
    return Generated(
        ids=torch.cat([part.ids for part in parts]),
        lengths=tuple(length for part in parts for length in part.lengths),
        below=torch.cat([part.below for part in parts]),
    )
