"""The client without `await`: the same names, and each call waits. Works in notebooks, too.

    with atoll.sync.Client.from_env() as client:
        job = client.submit("job.toml", max_spend="50")
        for update in job.watch():
            print(update.text)
        job.result("model")

A notebook keeps it open over its cells: `client = atoll.sync.Client.from_env().open()`.

Rule of this file: it adds nothing to `atoll.Client` and its handle but the wait.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from functools import partial, wraps
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Protocol, Self, TypeVar

from atoll.chain.deployment import Deployment
from atoll.errors import ConfigError
from atoll.job import client as asynchronous
from atoll.job.connection import ClientConfig
from atoll.job.draft import Draft
from atoll.job.handle import JobHandle
from atoll.job.loop_thread import LoopThread
from atoll.job.prepare_manifest import OnProgress, untold
from atoll.job.spec import JobSpec
from atoll.protocol.manifest import Manifest
from atoll.protocol.types import Address

if TYPE_CHECKING:
    from eth_account.signers.local import LocalAccount

P = ParamSpec("P")
T = TypeVar("T")


class _Waiting(Protocol):
    """Something that is asked in a thread's event loop."""

    @property
    def _asked(self) -> Any: ...

    @property
    def _thread(self) -> LoopThread: ...


def _waits(
    method: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Any, P], T]:
    """The same method, whose call waits."""

    @wraps(method)
    def call(self: _Waiting, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._thread.wait_for(partial(method, self._asked, *args, **kwargs))

    return call


def _iterates(
    method: Callable[Concatenate[Any, P], AsyncIterator[T]],
) -> Callable[Concatenate[Any, P], Iterator[T]]:
    """The same method, whose every item is waited for."""

    @wraps(method)
    def call(self: _Waiting, /, *args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
        items, end = method(self._asked, *args, **kwargs), object()

        async def following() -> T | object:
            return await anext(items, end)

        while (item := self._thread.wait_for(following)) is not end:
            yield item  # type: ignore[misc]  # all but `end` are the method's

    return call


class Job:
    """One job, as `atoll.JobHandle`."""

    def __init__(self, handle: JobHandle, thread: LoopThread) -> None:
        self._asked, self._thread = handle, thread

    @property
    def id(self) -> int:
        return self._asked.id

    def __repr__(self) -> str:
        return f"Job({self.id})"

    def _repr_html_(self) -> str:
        return self.status()._repr_html_()

    def to_json(self) -> str:
        """All it takes to attach to the job from elsewhere; no secret in it."""
        return self._asked.to_json()

    def own_manifest(self) -> Manifest | None:
        """The manifest, where the job was submitted from this home."""
        return self._thread.call(self._asked.own_manifest)

    # --- where it stands ---
    status = _waits(JobHandle.status)
    history = _waits(JobHandle.history)
    seat_history = _waits(JobHandle.seat_history)
    figures = _waits(JobHandle.figures)
    evaluate = _waits(JobHandle.evaluate)
    distances = _waits(JobHandle.distances)
    measure_distances = _waits(JobHandle.measure_distances)
    measure_rewards = _waits(JobHandle.measure_rewards)
    loss = _waits(JobHandle.loss)
    signs = _waits(JobHandle.signs)
    standings = _waits(JobHandle.standings)
    logs = _waits(JobHandle.logs)
    ledger = _waits(JobHandle.ledger)
    view = _waits(JobHandle.view)
    newest = _waits(JobHandle.newest)
    manifest = _waits(JobHandle.manifest)
    settled_round = _waits(JobHandle.settled_round)
    hand_over = _waits(JobHandle.hand_over)
    is_handed_over = _waits(JobHandle.is_handed_over)
    rest_due = _waits(JobHandle.rest_due)

    # --- what happens ---
    watch = _iterates(JobHandle.watch)
    follow = _iterates(JobHandle.follow)
    wait = _waits(JobHandle.wait)

    # --- its models ---
    delivery = _waits(JobHandle.delivery)
    result = _waits(JobHandle.result)
    clean = _waits(JobHandle.clean)
    checkpoint = _waits(JobHandle.checkpoint)
    sample = _waits(JobHandle.sample)
    continued = _waits(JobHandle.continued)

    # --- its money ---
    fund = _waits(JobHandle.fund)
    cancel = _waits(JobHandle.cancel)
    refund = _waits(JobHandle.refund)
    claim = _waits(JobHandle.claim)


class Client:
    """Submits jobs, as `atoll.Client`. Use it as a context manager, or `open` and `close` it.

    Args:
        rpc, deployment, account, config: as for `atoll.Client`.

    Raises:
        ConfigError: as `atoll.Client`.
    """

    def __init__(
        self,
        rpc: str | Sequence[str],
        deployment: Deployment | str | Path,
        account: LocalAccount | None = None,
        config: ClientConfig | None = None,
    ) -> None:
        self._of(asynchronous.Client(rpc, deployment, account, config))

    @classmethod
    def from_env(cls, config: ClientConfig | None = None) -> Self:
        """As `atoll.Client.from_env`."""
        return cls.__new__(cls)._of(asynchronous.Client.from_env(config))

    @classmethod
    def from_keystore(
        cls,
        rpc: str | Sequence[str],
        deployment: Deployment | str | Path,
        keystore: str | Path,
        password_file: str | Path,
        config: ClientConfig | None = None,
    ) -> Self:
        """As `atoll.Client.from_keystore`."""
        key = keystore, password_file
        client = asynchronous.Client.from_keystore(rpc, deployment, *key, config)
        return cls.__new__(cls)._of(client)

    def _of(self, client: asynchronous.Client) -> Self:
        self._asked: asynchronous.Client = client
        self._running: LoopThread | None = None
        return self

    @property
    def _thread(self) -> LoopThread:
        if self._running is None:
            raise ConfigError(
                "the client is not open", next_step="use it inside `with`, or call `open()`"
            )
        return self._running

    def open(self) -> Self:
        """Connects; an open client is left as it is. Raises as `atoll.Client` in `async with`."""
        if self._running is None:
            thread = LoopThread().__enter__()
            try:
                thread.wait_for(self._asked.__aenter__)
            except BaseException:
                # Whatever it had opened by then is given back, so that it can be opened again.
                thread.wait_for(self._asked.close)
                thread.__exit__(None, None, None)
                raise
            self._running = thread
        return self

    def close(self) -> None:
        """Stops serving and lets go of the files; transactions under way go on with the next."""
        if self._running is not None:
            thread, self._running = self._running, None
            try:
                thread.wait_for(self._asked.close)
            finally:
                thread.__exit__(None, None, None)

    def __enter__(self) -> Self:
        return self.open()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def home(self) -> Path:
        """The folder of its files; paid jobs are known there alone."""
        return self._asked.home

    @property
    def address(self) -> Address:
        """Who signs. Raises ConfigError for a client that only watches."""
        return self._asked.address

    @property
    def can_sign(self) -> bool:
        """Whether it has an account."""
        return self._asked.can_sign

    draft = _waits(asynchronous.Client.draft)
    prepare = _waits(asynchronous.Client.prepare)
    estimate = _waits(asynchronous.Client.estimate)
    serve = _waits(asynchronous.Client.serve)

    def submit(
        self,
        job: JobSpec | str | Path | Draft | Manifest,
        *,
        max_spend: int | str,
        again: bool = False,
        on_progress: OnProgress = untold,
    ) -> Job:
        """Pays for a job and opens it. As `atoll.Client.submit`."""
        pay = partial(self._asked.submit, job, max_spend=max_spend, again=again)
        handle = self._thread.wait_for(partial(pay, on_progress=on_progress))
        return Job(handle, self._thread)

    def jobs(self) -> list[Job]:
        """Every job that was submitted from this home, oldest first."""
        return [Job(handle, self._thread) for handle in self._thread.call(self._asked.jobs)]

    def attach(self, job: int | str) -> Job:
        """The handle of a job, by its number or by what `Job.to_json` wrote.

        Raises:
            ConfigError: the text is of another deployment, or no handle at all.
        """
        return Job(self._asked.attach(job), self._thread)
