"""A Hugging Face Hub on this machine: the routes that `huggingface_hub` asks for models, data sets
and a push, as the Hub answers them, with errors in its headers and large files behind redirects.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

TOKEN = "hf_a_token_that_may_write"
Files = dict[str, bytes]


def _is_large(path: str) -> bool:
    return path.endswith((".safetensors", ".parquet", ".bin"))


def _git_oid(content: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


@dataclass
class Repo:
    """A repository's commits by their hash, the newest last."""

    kind: str
    commits: dict[str, Files] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)
    gated: bool = False
    private: bool = False

    def commit(self, files: Files) -> str:
        seed = f"{len(self.commits)}" + repr(sorted(files.items()))
        sha = hashlib.sha1(seed.encode()).hexdigest()
        self.commits[sha] = dict(files)
        return sha

    @property
    def head(self) -> str:
        return list(self.commits)[-1]

    def resolve(self, revision: str) -> str | None:
        sha = self.head if revision == "main" else self.tags.get(revision, revision)
        return sha if sha in self.commits else None


@dataclass
class LocalHub:
    """What it has, and what it was asked: `requests` are methods and paths.

    Large files are served under another name of the host, as they are from the Hub's CDN.
    """

    endpoint: str = ""
    elsewhere: str = ""
    repos: dict[str, Repo] = field(default_factory=dict)
    large: Files = field(default_factory=dict)
    requests: list[str] = field(default_factory=list)
    cards: list[str] = field(default_factory=list)
    before_commit: Any = None
    takes_large: bool = True

    def add(self, repo: str, files: Files, kind: str = "models", **about: bool) -> str:
        there = self.repos.setdefault(f"{kind}/{repo}", Repo(kind, **about))
        for path, content in files.items():
            if _is_large(path):
                self.large[hashlib.sha256(content).hexdigest()] = content
        return there.commit(files)

    def add_folder(self, repo: str, folder: Path, kind: str = "models") -> str:
        paths = [path for path in folder.rglob("*") if path.is_file()]
        return self.add(repo, {str(p.relative_to(folder)): p.read_bytes() for p in paths}, kind)


def _refused(status: int, code: str, message: str) -> web.Response:
    return web.Response(
        status=status, headers={"X-Error-Code": code, "X-Error-Message": message}, text=message
    )


class _Refused(Exception):
    def __init__(self, response: web.Response) -> None:
        self.response = response


class _Routes:
    """What each route answers; the table of them is `_app`'s."""

    def __init__(self, hub: LocalHub) -> None:
        self._hub = hub

    def may_write(self, request: web.Request) -> bool:
        return request.headers.get("Authorization") == f"Bearer {TOKEN}"

    def repo_of(self, request: web.Request, kind: str | None = None) -> Repo:
        kind = kind or request.match_info["kind"]
        name = f"{kind}/{request.match_info['user']}/{request.match_info['name']}"
        repo = self._hub.repos.get(name)
        if repo is None or (repo.private and not self.may_write(request)):
            raise _Refused(_refused(404, "RepoNotFound", "Repository not found"))
        return repo

    def commit_of(self, repo: Repo, request: web.Request) -> str:
        sha = repo.resolve(request.match_info.get("revision", "main"))
        if sha is None:
            raise _Refused(_refused(404, "RevisionNotFound", "Invalid rev id"))
        return sha

    async def info(self, request: web.Request) -> web.Response:
        repo = self.repo_of(request)
        sha = self.commit_of(repo, request)
        name = f"{request.match_info['user']}/{request.match_info['name']}"
        siblings = [{"rfilename": path} for path in repo.commits[sha]]
        return web.json_response({"id": name, "sha": sha, "siblings": siblings})

    async def tree(self, request: web.Request) -> web.Response:
        repo = self.repo_of(request)
        entries = []
        for path, content in repo.commits[self.commit_of(repo, request)].items():
            entry: dict[str, Any] = {"type": "file", "path": path, "size": len(content)}
            entry["oid"] = _git_oid(content)
            if _is_large(path):
                oid = hashlib.sha256(content).hexdigest()
                entry["lfs"] = {"oid": oid, "size": len(content), "pointerSize": 130}
            entries.append(entry)
        return web.json_response(entries)

    async def resolve(self, request: web.Request) -> web.Response:
        repo = self.repo_of(request, request.match_info.get("kind", "models"))
        sha, path = self.commit_of(repo, request), request.match_info["path"]
        if repo.gated and not self.may_write(request):
            raise _Refused(_refused(403, "GatedRepo", "Access to this repository is restricted"))
        content = repo.commits[sha].get(path)
        if content is None:
            raise _Refused(_refused(404, "EntryNotFound", "Entry not found"))
        headers = {"X-Repo-Commit": sha}
        if not _is_large(path):
            headers["ETag"] = f'"{_git_oid(content)}"'
            return web.Response(body=content, headers=headers)
        oid = hashlib.sha256(content).hexdigest()
        headers |= {"X-Linked-Etag": f'"{oid}"', "X-Linked-Size": str(len(content))}
        return web.Response(
            status=302, headers=headers | {"Location": f"{self._hub.elsewhere}/large/{oid}"}
        )

    async def large(self, request: web.Request) -> web.Response:
        oid = request.match_info["oid"]
        if "Authorization" in request.headers:
            return web.Response(status=400, text="a token that is none of this host's")
        return web.Response(body=self._hub.large[oid], headers={"ETag": f'"{oid}"'})

    async def create(self, request: web.Request) -> web.Response:
        document = await request.json()
        if not self.may_write(request):
            raise _Refused(_refused(403, "", "You don't have the rights to create a model"))
        name = f"{document.get('organization', 'me')}/{document['name']}"
        if f"models/{name}" in self._hub.repos:
            raise _Refused(_refused(409, "", "You already created this model repo"))
        self._hub.add(name, {".gitattributes": b"*.safetensors filter=lfs\n"})
        return web.json_response({"url": f"{self._hub.endpoint}/{name}"})

    async def validate(self, request: web.Request) -> web.Response:
        self._hub.cards.append((await request.json())["content"])
        return web.json_response({"errors": [], "warnings": []})

    async def preupload(self, request: web.Request) -> web.Response:
        self.repo_of(request)
        files = [
            {
                "path": file["path"],
                "uploadMode": "lfs" if _is_large(file["path"]) else "regular",
                "shouldIgnore": False,
            }
            for file in (await request.json())["files"]
        ]
        return web.json_response({"files": files})

    async def batch(self, request: web.Request) -> web.Response:
        objects = [
            item | {"actions": {"upload": {"href": f"{self._hub.endpoint}/large/{item['oid']}"}}}
            for item in (await request.json())["objects"]
        ]
        return web.json_response({"transfer": "basic", "objects": objects})

    async def put(self, request: web.Request) -> web.Response:
        content, oid = await request.read(), request.match_info["oid"]
        if hashlib.sha256(content).hexdigest() != oid or not self._hub.takes_large:
            return web.Response(status=400)
        self._hub.large[oid] = content
        return web.Response()

    async def commit(self, request: web.Request) -> web.Response:
        repo = self.repo_of(request)
        if not self.may_write(request):
            raise _Refused(_refused(403, "", "Forbidden: pass a token that may write"))
        if self._hub.before_commit is not None:
            self._hub.before_commit()
        lines = [json.loads(line) for line in (await request.read()).splitlines() if line]
        head, files = lines[0]["value"], dict(repo.commits[repo.head])
        if head.get("parentCommit") not in (None, repo.head):
            raise _Refused(_refused(412, "", "A commit has happened since. Please refresh"))
        for line in lines[1:]:
            value = line["value"]
            if line["key"] == "file":
                files[value["path"]] = base64.b64decode(value["content"])
            elif line["key"] == "lfsFile":
                files[value["path"]] = self._hub.large[value["oid"]]
            elif line["key"] == "deletedFile":
                del files[value["path"]]
        sha, name = repo.commit(files), f"{request.match_info['user']}/{request.match_info['name']}"
        url = f"{self._hub.endpoint}/{name}/commit/{sha}"
        return web.json_response({"commitUrl": url, "commitOid": sha, "success": True})


def _app(hub: LocalHub) -> web.Application:
    on = _Routes(hub)

    @web.middleware
    async def answer(request: web.Request, handler: Any) -> web.StreamResponse:
        hub.requests.append(f"{request.method} {request.path}")
        try:
            response: web.StreamResponse = await handler(request)
        except _Refused as error:
            return error.response
        return response

    app = web.Application(middlewares=[answer], client_max_size=1 << 30)
    app.add_routes(
        [
            web.get("/api/{kind:models|datasets}/{user}/{name}", on.info),
            web.get("/api/{kind:models|datasets}/{user}/{name}/revision/{revision}", on.info),
            web.get("/api/{kind:models|datasets}/{user}/{name}/tree/{revision}", on.tree),
            web.get("/{user}/{name}/resolve/{revision}/{path:.+}", on.resolve),
            web.get("/{kind:datasets}/{user}/{name}/resolve/{revision}/{path:.+}", on.resolve),
            web.get("/large/{oid}", on.large),
            web.post("/api/repos/create", on.create),
            web.post("/api/validate-yaml", on.validate),
            web.post("/api/{kind:models}/{user}/{name}/preupload/{revision}", on.preupload),
            web.post("/{user}/{name}.git/info/lfs/objects/batch", on.batch),
            web.put("/large/{oid}", on.put),
            web.post("/api/{kind:models}/{user}/{name}/commit/{revision}", on.commit),
        ]
    )
    return app


@contextmanager
def local_hub() -> Iterator[LocalHub]:
    """One that runs in a thread of its own until the end."""
    hub, loop = LocalHub(), asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()

    async def start() -> web.AppRunner:
        runner = web.AppRunner(_app(hub))
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        host, port = runner.addresses[0][:2]
        hub.endpoint, hub.elsewhere = f"http://{host}:{port}", f"http://localhost:{port}"
        return runner

    runner = asyncio.run_coroutine_threadsafe(start(), loop).result(30)
    try:
        yield hub
    finally:
        asyncio.run_coroutine_threadsafe(runner.cleanup(), loop).result(30)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(30)
        loop.close()


def use_hub(hub: LocalHub, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Has `huggingface_hub` of this process use it, with an empty cache, logged out."""
    from huggingface_hub import constants, file_download

    template = hub.endpoint + "/{repo_id}/resolve/{revision}/{filename}"
    for module in (constants, file_download):
        if hasattr(module, "HUGGINGFACE_CO_URL_TEMPLATE"):
            monkeypatch.setattr(module, "HUGGINGFACE_CO_URL_TEMPLATE", template)
    monkeypatch.setattr(constants, "ENDPOINT", hub.endpoint)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(folder / "cache"))
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(folder / "token"))
    monkeypatch.setattr(constants, "HF_STORED_TOKENS_PATH", str(folder / "tokens"))
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
    monkeypatch.delenv("HF_TOKEN", raising=False)
