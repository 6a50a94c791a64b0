"""What a request to the gateway asks for, and the headers that say what it gets.

Specification: https://specs.ipfs.tech/http-gateways/trustless-gateway/. The URL's parameters decide
before the `Accept` header does; an answer that `Accept` shaped names its own URL in
`Content-Location`, so that caches keep the formats apart.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote

from aiohttp import web

from atoll.storage.scope import SCOPES, Range

RAW_TYPE: Final = "application/vnd.ipld.raw"
CAR_TYPE: Final = "application/vnd.ipld.car"
_FORMATS: Final = {"raw": RAW_TYPE, "car": CAR_TYPE}
_KINDS: Final = {media: kind for kind, media in _FORMATS.items()}
_CAR_OFFERS: Final = {"version": ("", "1"), "order": ("", "dfs", "unk"), "dups": ("", "y", "n")}
_FOREVER: Final = "public, max-age=29030400, immutable"
_MAX_FILENAME: Final = 255
_MAX_NUMBERS: Final = 4096
_NUMBERS: Final = re.compile(r"(?P<first>[0-9]{1,12})(?:-(?P<last>[0-9]{1,12}))?")


class NotAcceptable(Exception):
    """Ends a request with a status and a line of text."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status


@dataclass(frozen=True, slots=True)
class Format:
    """How to answer.

    Attributes:
        kind: "raw" or "car".
        repeats: whether a CAR holds a block as often as it occurs.
        location: the answer's own URL, where that is not the request's.
    """

    kind: str
    repeats: bool = False
    location: str | None = None

    @property
    def content_type(self) -> str:
        """The media type, and for a CAR how it is made."""
        if self.kind == "raw":
            return RAW_TYPE
        return f"{CAR_TYPE}; version=1; order=dfs; dups={'y' if self.repeats else 'n'}"


def negotiate(request: web.BaseRequest) -> Format:
    """The format to answer in: `format` decides, else the best of `Accept` that is made here.

    Raises:
        Refusal: none is.
    """
    asked = request.query.get("format")
    if asked is not None and asked not in _FORMATS:
        raise NotAcceptable(406, "this gateway serves format=raw and format=car")
    accept = ",".join(request.headers.getall("Accept", []))
    accepted = _accepted(accept)
    offers = [offer for offer in accepted if asked in (None, offer[0])]
    if asked is not None and not offers:
        offers = [(asked, {})]
    if not offers:
        status = 400 if accept.strip() in ("", "*/*") else 406
        raise NotAcceptable(status, f"add ?format=raw or car, or Accept: {RAW_TYPE} or {CAR_TYPE}")
    for kind, parameters in offers:
        made = {"format": kind}
        if kind == "car":
            chosen = {
                name: request.query.get(f"car-{name}", parameters.get(name, ""))
                for name in _CAR_OFFERS
            }
            if any(chosen[name] not in offer for name, offer in _CAR_OFFERS.items()):
                continue
            made |= {f"car-{name}": value for name, value in chosen.items() if value}
        shaped = bool(accepted) and accepted[0][0] != kind  # Accept named another format
        if shaped or any(request.query.get(name) != value for name, value in made.items()):
            location = str(request.rel_url.with_query({**request.query, **made}))
            return Format(kind, made.get("car-dups") == "y", location)
        return Format(kind, made.get("car-dups") == "y")
    raise NotAcceptable(400, "this gateway makes CARs of version=1, order=dfs, and dups=y or n")


def _accepted(accept: str) -> list[tuple[str, dict[str, str]]]:
    """The formats that an Accept header names, with their parameters, best first."""
    offers = []
    for part in accept.split(","):
        media, _, text = part.partition(";")
        pairs = (parameter.partition("=") for parameter in text.split(";"))
        parameters = {key.strip().lower(): value.strip().strip('"') for key, _, value in pairs}
        try:
            weight = float(parameters.pop("q", "1"))
        except ValueError:
            continue
        kind = _KINDS.get(media.strip().lower())
        if kind is not None and weight > 0:
            offers.append((weight, kind, parameters))
    offers.sort(key=lambda offer: -offer[0])
    return [(kind, parameters) for _, kind, parameters in offers]


def requested_scope(request: web.BaseRequest) -> tuple[str, Range | None]:
    """Which part of a DAG is asked for.

    Raises:
        Refusal: no such scope, not a range, or a range of another scope than `entity`.
    """
    scope, span = request.query.get("dag-scope"), request.query.get("entity-bytes")
    if scope is not None and scope not in SCOPES:
        raise NotAcceptable(400, f"dag-scope is one of {', '.join(SCOPES)}")
    if span is None:
        return scope or "all", None
    if scope not in (None, "entity"):
        raise NotAcceptable(400, "entity-bytes goes with dag-scope=entity")
    try:
        return "entity", Range.parse(span)
    except ValueError as error:
        raise NotAcceptable(400, str(error)) from error


def requested_numbers(request: web.BaseRequest, most: int) -> tuple[int, ...]:
    """Which pieces of a file are asked for: `numbers=3,17,200-255`, ascending, at most so many.

    Raises:
        Refusal: it is no such list.
    """
    asked = request.query.get("numbers", "")
    numbers, after = list[int](), -1
    for part in asked.split(",") if len(asked) <= _MAX_NUMBERS else ():
        match = _NUMBERS.fullmatch(part)
        first = int(match["first"]) if match is not None else -1
        last = int(match["last"] or first) if match is not None else -1
        if not after < first <= last:
            break
        after = last
        if len(numbers) + last - first >= most:
            raise NotAcceptable(400, f"at most {most} pieces are shown at once")
        numbers.extend(range(first, last + 1))
    else:
        if numbers:
            return tuple(numbers)
    raise NotAcceptable(400, "numbers is a list of ascending numbers and ranges: 3,17,200-255")


def requested_part(request: web.BaseRequest, size: int, etag: str) -> slice | None:
    """The one range of bytes that a `Range` header asks for; None for the whole.

    Several ranges, or what is no range, are answered with the whole, as RFC 9110 allows.

    Raises:
        Refusal: nothing of `size` bytes is in the range.
    """
    if request.method != "GET" or "Range" not in request.headers:
        return None
    if request.headers.get("If-Range", etag) != etag:
        return None
    try:
        start, stop, _ = request.http_range.indices(size)
    except ValueError:
        return None
    if start >= stop:
        raise NotAcceptable(416, f"the block has {size} bytes")
    return slice(start, stop)


def is_unchanged(request: web.BaseRequest, etag: str) -> bool:
    """Whether `If-None-Match` names what would be sent."""
    tags = request.headers.get("If-None-Match", "").split(",")
    return any(tag.strip() == "*" or tag.strip().removeprefix("W/") == etag for tag in tags)


def answer_headers(
    request: web.BaseRequest, wanted: Format, etag: str, filename: str
) -> dict[str, str]:
    """The headers of an answer that never changes."""
    headers = {
        "Content-Type": wanted.content_type,
        "Etag": etag,
        "Cache-Control": _FOREVER,
        "X-Ipfs-Path": request.rel_url.raw_path,
        "X-Content-Type-Options": "nosniff",
        "Access-Control-Allow-Origin": "*",
        "Accept-Ranges": "bytes" if wanted.kind == "raw" else "none",
        "Vary": "Accept",
        "Content-Disposition": _disposition(request.query.get("filename") or filename),
    }
    if wanted.location is not None:
        headers["Content-Location"] = wanted.location
    return headers


def _disposition(filename: str) -> str:
    """Never shown by a browser; a name outside printable ASCII is given twice, as RFC 8187 says."""
    filename = filename[:_MAX_FILENAME]
    plain = "".join(c if " " <= c <= "~" and c not in '"\\' else "_" for c in filename)
    text = f'attachment; filename="{plain}"'
    if plain != filename:
        text += f"; filename*=UTF-8''{quote(filename, safe='', errors='replace')}"
    return text
