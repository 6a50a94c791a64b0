"""What so many endpoints say alike, where none of them alone is to be believed.

Rule of this file: an answer counts for what it is as a whole. A block is given alike by those who
give the same hash, parent, time and transactions of it: who gives the right hash and no
transactions says something else than the others, as one does who names another block.

No more are asked than it takes, the preferred ones first. One that has nothing, differs or takes
long costs one more question, to the next; the latter two are asked last for a while then. So no
endpoint gains by its place, nor by its silence, while there are enough others.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Final, TypeVar

from atoll.chain.response_checks import BlockHeader, header, header_at, optional
from atoll.chain.rpc import FailoverProvider
from atoll.errors import RpcUnavailable

T = TypeVar("T")

SLOW_SECONDS: Final = 2.0
"""After so many without an answer another endpoint is asked as well."""


class Agreement:
    """Asks endpoints until so many answer alike.

    Args:
        least: 2 or more.
    """

    def __init__(self, provider: FailoverProvider, least: int) -> None:
        self._provider, self._least = provider, least

    async def newest(self) -> BlockHeader:
        """The newest block that they give alike, of those that are the newest of one of them.

        No block that fewer have reached is looked for: who names a height that nobody else knows
        holds nobody up.

        Raises:
            RpcUnavailable: there is none.
        """
        question = ("eth_getBlockByNumber", ["latest", False])
        answers = await self._provider.ask_all(*question, header, lambda t: len(t) >= self._least)
        heights = sorted((each.ref.number for each in answers.values()), reverse=True)
        failure = self._too_few(len(answers), "newest block")
        for height in sorted(set(heights[self._least - 1 :]), reverse=True):
            at_height = {url: each for url, each in answers.items() if each.ref.number == height}
            try:
                return await self.block(height, at_height)
            except RpcUnavailable as error:
                failure = error
        raise failure

    async def block(
        self, number: int, known: Mapping[str, BlockHeader] | None = None
    ) -> BlockHeader:
        """The block of that height.

        Args:
            known: as endpoints have already given it, by URL.

        Raises:
            RpcUnavailable: fewer give it alike.
        """

        async def ask(url: str) -> BlockHeader | None:
            question = ("eth_getBlockByNumber", [hex(number), False])
            return await self._provider.ask_at(url, *question, optional(header_at(number)))

        return await self.alike(ask, f"block {number}", known)

    async def alike(
        self,
        ask: Callable[[str], Awaitable[T | None]],
        about: str,
        known: Mapping[str, T] | None = None,
    ) -> T:
        """What so many answer alike.

        Args:
            ask: asks the endpoint with that URL; None where it has nothing.
            known: what endpoints have already answered, by URL.

        Raises:
            RpcUnavailable: fewer do; `ask` may raise it, too, and then has nothing.
        """
        answers = dict(known or {})
        waiting = [url for url in self._provider.preferred() if url not in answers]
        asked = dict[asyncio.Task[T | None], str]()
        slow = set[asyncio.Task[T | None]]()
        try:
            while (lacks := self._least - _alike_most(answers.values())) > 0:
                more = max(0, lacks - len(asked.keys() - slow))
                for url in waiting[:more]:
                    asked[asyncio.ensure_future(_asked(ask, url))] = url
                del waiting[:more]
                if not asked:
                    raise self._too_few(self._least - lacks, about)
                finished, left = await asyncio.wait(
                    asked, timeout=SLOW_SECONDS, return_when=asyncio.FIRST_COMPLETED
                )
                slow |= left if not finished else set()
                results = ((asked.pop(task), task.result()) for task in finished)
                answers |= {url: answer for url, answer in results if answer is not None}
        finally:
            for task in asked:
                task.cancel()
        return self._judged(answers, [url for task, url in asked.items() if task in slow], about)

    def _judged(self, answers: Mapping[str, T], slow: Iterable[str], about: str) -> T:
        """The answer of most; who gave another one, or was slow, is asked last for a while."""
        most = Counter(answers.values()).most_common(1)[0][0]
        for url, answer in answers.items():
            if answer != most:
                self._provider.distrust(url, f"it gives another {about} than most")
        for url in slow:
            self._provider.distrust(url, f"others gave {about} while it was waited for")
        return most

    def _too_few(self, count: int, about: str) -> RpcUnavailable:
        return RpcUnavailable(
            f"{count} of {len(self._provider.urls)} RPC endpoints give the same {about}, and "
            f"rpc_agreement is {self._least}",
            next_step="look which one differs or is silent: `atoll doctor --config …`",
        )


async def _asked(ask: Callable[[str], Awaitable[T | None]], url: str) -> T | None:
    try:
        return await ask(url)
    except RpcUnavailable:
        return None


def _alike_most(answers: Iterable[T]) -> int:
    """How many say what most say."""
    return max(Counter(answers).values(), default=0)
