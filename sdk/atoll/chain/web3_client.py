"""The way to web3.py, which is imported when it is first used, and need not be there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from atoll.chain.abi import load_artifact
from atoll.errors import ConfigError

if TYPE_CHECKING:
    from web3 import AsyncWeb3
    from web3.contract import AsyncContract

    from atoll.chain.deployment import Deployment
    from atoll.chain.rpc import FailoverProvider


def web3_over(endpoints: FailoverProvider) -> AsyncWeb3[Any]:
    """web3.py over these endpoints: it resolves no names and changes nothing that it is given.

    Raises:
        ConfigError: the web3 extra is missing.
    """
    try:
        from web3 import AsyncWeb3  # noqa: PLC0415

        from atoll.chain.web3_provider import FailoverWeb3Provider  # noqa: PLC0415
    except ImportError as error:
        raise ConfigError(
            f"web3.py 8 cannot be imported: {error}", next_step="pip install 'atoll[web3]'"
        ) from error
    return AsyncWeb3(FailoverWeb3Provider(endpoints), middleware=[])


def deployed(w3: AsyncWeb3[Any], deployment: Deployment, name: str) -> AsyncContract:
    """One of the deployment's contracts, by its Solidity name.

    Raises:
        ConfigError: the deployment has none of that name.
    """
    address = deployment.addresses.get(name)
    if address is None:
        raise ConfigError(
            f"the deployment has no contract {name!r}",
            next_step=f"its contracts are {', '.join(sorted(deployment.addresses))}",
        )
    return w3.eth.contract(address=w3.to_checksum_address(address), abi=load_artifact(name)["abi"])
