"""Generates answers for a provider that somebody chose: `atoll rollout --for URL`.

Rule of this file: no key, no chain, no bond; a pass alone, which the provider knows. The weights
are what the provider gives; what is made of them the provider checks.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

import numpy as np
from aiohttp import ClientError, ClientSession, ClientTimeout, StreamReader
from safetensors import SafetensorError
from safetensors.torch import load
from torch import Tensor

from atoll.errors import ConfigError, ProtocolError
from atoll.nested import loads
from atoll.numerics.frozen_base import Base
from atoll.numerics.generate import Generated, Generator, Request, generate
from atoll.numerics.kernels.exact import ExactOps
from atoll.numerics.sampling import Draw
from atoll.numerics.schedule import Recipe
from atoll.numerics.state_layout import max_params_bytes
from atoll.protocol.manifest import MAX_MANIFEST_BYTES, Manifest
from atoll.storage.cid import Cid, cid_text
from atoll.storage.local import LocalStore
from atoll.train.open_base import open_base
from atoll.train.probe import pin_torch
from atoll_node.rollouts.passes import header_of, pass_for

POLL_SECONDS: Final = 0.5
"""Between two questions of a helper that has nothing to do."""
SILENT_SECONDS: Final = 60.0
"""So long a provider may not be reached."""
MOST_ANSWER: Final = 1 << 26
_MOST_WHY: Final = 200
_PIECE: Final = 1 << 20
Tell = Callable[[str], None]


@dataclass(slots=True)
class Helper:
    """One laptop's work for one provider.

    Attributes:
        url: the provider's rollout endpoint.
        store: where a base is kept between two runs.
        sequences, tokens: what was generated and delivered.
    """

    url: str
    pass_: str
    store: LocalStore
    tell: Tell
    sequences: int = 0
    tokens: int = 0
    _manifests: dict[str, Manifest] = field(default_factory=dict)
    _generators: dict[str, Generator] = field(default_factory=dict)

    async def run(self, seconds: float | None = None) -> None:
        """Works until cancelled, or for so long.

        Raises:
            ConfigError: the provider refuses this helper, or does not answer.
            ProtocolError: it gives something else than it says.
        """
        pin_torch()
        started = heard = time.monotonic()
        async with ClientSession(
            timeout=ClientTimeout(total=None, sock_read=30),
            headers={"Authorization": header_of(self.pass_)},
        ) as session:
            while seconds is None or time.monotonic() - started < seconds:
                try:
                    worked = await self._part(session)
                    heard = time.monotonic()
                except (ClientError, TimeoutError) as error:
                    if time.monotonic() - heard > SILENT_SECONDS:
                        raise ConfigError(f"{self.url} does not answer: {error}") from error
                    worked = False
                except (LookupError, TypeError, ValueError, RuntimeError, SafetensorError) as error:
                    raise ProtocolError(f"{self.url} gives no work: {error!r}") from error
                if not worked:
                    await asyncio.sleep(POLL_SECONDS)

    async def _part(self, session: ClientSession) -> bool:
        """Generates one part; False where there was nothing to do."""
        offer = await self._json(session, "GET", "/offer")
        if offer is None:
            return False
        generator = await self._generator(session, offer)
        taken = await self._json(session, "POST", "/take")
        if taken is None or taken["step"] != offer["step"]:
            return False
        request = request_of(offer, taken)
        made = await asyncio.to_thread(generate, generator, request)
        address = f"{self.url}/parts/{taken['lease']}"
        async with session.post(address, data=ids_of(made), allow_redirects=False) as answer:
            is_in_time = answer.status == 204
        tokens = sum(made.lengths) - sum(map(len, request.prompts))
        if is_in_time:
            self.sequences += len(request.prompts)
            self.tokens += tokens
        when = "" if is_in_time else ", too late"
        self.tell(f"generated {len(request.prompts)} answers, {tokens} tokens{when}")
        return True

    async def _json(self, session: ClientSession, method: str, path: str) -> Any | None:
        """What the provider answers; None where it has nothing to do, or too much."""
        address = self.url + path
        async with session.request(method, address, allow_redirects=False) as answer:
            if answer.status in {204, 404, 503}:
                return None
            if answer.status != 200:
                why = (await answer.content.read(_MOST_WHY)).decode(errors="replace").strip()
                raise ConfigError(f"{self.url}: {why}")
            data = b"".join([piece async for piece in _bounded(answer.content, 0)])
            return loads(data.decode())

    async def _generator(self, session: ClientSession, offer: Any) -> Generator:
        digest = offer["params"]
        if digest not in self._generators:
            manifest = await self._manifest(session, offer["manifest"])
            base = await self._base(session, manifest)
            most = max_params_bytes(manifest.model)
            params = await self._file(session, digest, most)
            recipe = Recipe.of(manifest, base)
            generator = _generator(load(params), manifest, recipe)
            self._generators = {digest: generator}  # the one before is of another step
        return self._generators[digest]

    async def _manifest(self, session: ClientSession, digest: str) -> Manifest:
        if digest not in self._manifests:
            data = await self._file(session, digest, MAX_MANIFEST_BYTES)
            self._manifests = {digest: Manifest.from_bytes(data)}
        return self._manifests[digest]

    async def _base(self, session: ClientSession, manifest: Manifest) -> Base | None:
        """What adapters are added to, which has to be what the manifest says."""
        cid = manifest.init.cid
        if manifest.lora is None or cid is None:
            return None
        if not self.store.has(Cid.from_bytes(cid)):
            self.tell(f"fetches the model {cid_text(cid)} once")
            most = max_params_bytes(manifest.model)
            async with session.get(f"{self.url}/base", allow_redirects=False) as answer:
                if answer.status != 200:
                    raise TimeoutError("the step is over, or too many ask at once")
                pieces = [piece async for piece in _bounded(answer.content, most)]
            if self.store.add_pieces(pieces).to_bytes() != cid:
                raise ProtocolError(f"{self.url} gives another model than the job's")
        return await asyncio.to_thread(open_base, manifest, self.store)

    async def _file(self, session: ClientSession, digest: str, most: int) -> bytes:
        async with session.get(f"{self.url}/files/{digest}", allow_redirects=False) as answer:
            if answer.status != 200:
                raise TimeoutError("the step is over")
            data = b"".join([piece async for piece in _bounded(answer.content, most)])
        if sha256(data).hexdigest() != digest:
            raise ProtocolError(f"{self.url} gives another file than it names")
        return data


def _generator(params: dict[str, Tensor], manifest: Manifest, recipe: Recipe) -> Generator:
    assert isinstance(recipe.ops, ExactOps)  # as in `Sampler`
    return Generator.of(params, manifest.model, recipe.ops, recipe.base)


async def _bounded(content: StreamReader, most: int) -> AsyncIterator[bytes]:
    size = 0
    async for piece in content.iter_chunked(_PIECE):
        size += len(piece)
        if size > most + MOST_ANSWER:
            raise ProtocolError(f"more than {most} bytes where these are at most")
        yield piece


def request_of(offer: Any, taken: Any) -> Request:
    """What a part asks for."""
    first, second = offer["key"]
    return Request(
        prompts=taken["prompts"],
        new_tokens=offer["new_tokens"],
        ends=frozenset(offer["ends"]),
        draw=Draw((first, second), offer["global_step"]),
        first_place=taken["part"]["first"],
    )


def ids_of(made: Generated) -> bytes:
    """As an endpoint takes them."""
    return np.ascontiguousarray(made.ids.numpy(), dtype="<i4").tobytes()


async def help_provider(url: str, home: Path, tell: Tell, seconds: float | None = None) -> Helper:
    """Works for a provider, with a secret and a store below a home. Raises as `Helper.run`."""
    url = url.rstrip("/")
    helper = Helper(url, pass_for(home, url), LocalStore(home / "store"), tell)
    await helper.run(seconds)
    return helper
