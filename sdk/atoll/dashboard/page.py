"""A document as one HTML file: no network, no build step, and nothing in it is run but our script.

Rule of this file: the document is data. It lies in the page as JSON in which no `<` is left, the
script puts its strings into text nodes, and the policy allows no other script or style.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

from atoll.errors import StorageError
from atoll.protocol.token_units import decimals_used

LIVE: Final = "/"
SCRIPTS: Final = ("page.js", "overview.js", "curves.js", "job.js", "network.js", "start.js")
"""Of which the page's script is made, in this order."""
LIBRARY: Final = "uplot/uPlot.iife.min.js"
STYLES: Final = ("uplot/uPlot.min.css", "page.css")


@dataclass(frozen=True, slots=True)
class Links:
    """Where a page finds others. Without, it is a file to keep.

    Attributes:
        document: the path at which the page's document is served as it changes; empty where it is
            not asked for again.
        root: what leads to the network's page: `LIVE` from the dashboard's server, a relative path
            between exported files.
    """

    document: str = ""
    root: str = ""


KEPT: Final = Links()


def page(document: Mapping[str, Any], links: Links = KEPT) -> str:
    """The page of a document."""
    filled = _part("page.html")
    for name, text in (
        ("policy", html.escape(policy(live=bool(links.root)))),
        ("title", html.escape(_title(document))),
        ("live", html.escape(links.document)),
        ("root", html.escape(links.root)),
        ("decimals", str(decimals_used())),
        ("style", _style()),
        ("library", _part(LIBRARY)),
        ("script", _script()),
        ("document", embedded(document)),
    ):
        filled = filled.replace("{{" + name + "}}", text, 1)
    return filled


def _title(document: Mapping[str, Any]) -> str:
    match document["kind"]:
        case "job":
            return f"Atoll, job {document['job']['job']}"
        case "member":
            return f"Atoll, member {document['name']}"
    return "Atoll, network"


def embedded(document: Mapping[str, Any]) -> str:
    """JSON that ends no element that it lies in."""
    text = as_json(document)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def as_json(document: Mapping[str, Any]) -> str:
    """The document as it is served and compared."""
    return json.dumps(document, sort_keys=True, ensure_ascii=True, allow_nan=False)


@cache
def policy(*, live: bool) -> str:
    """What a browser may load and run: our script, uPlot and our style by their hashes, and, of a
    page that others lie beside, what the same server says.
    """
    rules = [
        "default-src 'none'",
        f"script-src {_hash(_part(LIBRARY))} {_hash(_script())}",
        f"style-src {_hash(_style())}",
        "img-src data:",
        "base-uri 'none'",
        "form-action 'none'",
    ]
    return "; ".join([*rules, "connect-src 'self'"] if live else rules)


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


@cache
def _script() -> str:
    body = "".join(map(_part, SCRIPTS))
    return f'"use strict";\n(() => {{\n{body}}})();\n'


@cache
def _style() -> str:
    return "".join(map(_part, STYLES))


@cache
def _part(name: str) -> str:
    return files(__package__).joinpath(name).read_text(encoding="utf-8")


def write_page(document: Mapping[str, Any], path: Path) -> None:
    """Writes a page to keep at once or not at all. Raises StorageError."""
    write_file(page(document), path)


def write_file(text: str, path: Path) -> None:
    """Writes it at once or not at all, and its folder where it is missing. Raises StorageError."""
    partial = path.with_name(f".{path.name}.partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial.write_text(text, encoding="utf-8")
        partial.replace(path)
    except OSError as error:
        raise StorageError(f"cannot write {path}: {error}") from error
