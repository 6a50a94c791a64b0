"""Which HTTP proxy leads to a host, as the variables say that everybody's programs read.

`HTTP_PROXY` and `HTTPS_PROXY`, by the scheme of what is asked for, and `NO_PROXY`, in either case.
Rule of this file: this machine is reached directly, whatever they say.
"""

from __future__ import annotations

from ipaddress import ip_address
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

SCHEMES = ("http", "https")


def proxy_of(url: str) -> str | None:
    """The proxy's URL; None where the host of this one is reached directly."""
    parts = urlsplit(url)
    place = parts.netloc.rpartition("@")[2]
    if _is_this_machine(parts.hostname or "") or proxy_bypass(place):
        return None
    proxy = getproxies().get(parts.scheme, "")
    return _as_url(proxy) if proxy else None


def proxy_hosts() -> set[str]:
    """The hosts of all proxies: the one name of a network around us that is not a stranger's."""
    proxies = getproxies()
    urls = (_as_url(proxies[scheme]) for scheme in SCHEMES if proxies.get(scheme))
    return {urlsplit(url).hostname or "" for url in urls}


def _as_url(proxy: str) -> str:
    return proxy if "://" in proxy else f"http://{proxy}"


def _is_this_machine(host: str) -> bool:
    try:
        address = ip_address(host)
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")
    return address.is_loopback or address.is_unspecified
