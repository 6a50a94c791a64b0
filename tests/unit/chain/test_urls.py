"""How endpoints are named: what is none is refused and shown, without what may be a secret."""

from __future__ import annotations

import pytest

from atoll.chain.urls import redact, require_endpoint
from atoll.errors import ConfigError


@pytest.mark.parametrize(
    "url",
    ["http://127.0.0.1:8545", "https://user:pw@rpc.example/v2/key?token=1", "http://[::1]:8545"],
)
def test_an_endpoint_is_an_http_url_with_a_host(url: str) -> None:
    require_endpoint(url)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("", ""),
        ("127.0.0.1:8545", "127.0.0.1:8545"),
        ("localhost:8545", "localhost:8545"),
        ("ws://localhost:1", "ws://localhost:1"),
        ("http://:8545", "http://:8545"),
        ("http://a:port", "http://a:port"),
        ("http://a:0", "http://a:0"),
        ("http://a b", "http://a b"),
        ("http://[::1", "http://[::1"),
    ],
)
def test_what_is_no_endpoint_is_shown(url: str, shown: str) -> None:
    with pytest.raises(ConfigError, match="not an http") as caught:
        require_endpoint(url)
    assert repr(shown) in str(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        "https://user:secret@rpc.example:8545/v2/secret?token=secret",
        "https://rpc.example:8545?token=secret#secret",
        "user:secret@rpc.example:8545/v2/secret",
        "rpc.example:8545/v2/secret?token=secret",
        "rpc.example:8545/secret?to=http://elsewhere",
        " https://user:secret@rpc.example:8545/v2/secret",
        "https:user:secret@rpc.example:8545/v2/secret",
        "https:/rpc.example:8545/v2/secret",
        "https:\\\\rpc.example:8545\\v2\\secret",
        "https://user:sec/ret@rpc.example:8545",
        "https://user:sec?ret@rpc.example:8545",
        "https://user:sec#ret@rpc.example:8545",
    ],
)
def test_no_secret_of_a_url_is_shown(url: str) -> None:
    assert redact(url) in {"https://rpc.example:8545", "rpc.example:8545", "https:rpc.example:8545",
                           "https:", "https://…"}  # fmt: skip
