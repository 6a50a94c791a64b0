"""`atoll rollout --for URL`: a laptop generates answers for a provider that its owner chose."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from atoll.cli.output import Json, emit, say

app = typer.Typer(add_completion=False, help="Generate answers for a provider that you chose.")
HOME = Path("~/.atoll/rollout")


@app.command()
def rollout(
    provider: Annotated[
        str, typer.Option("--for", metavar="URL", help="The provider's rollout endpoint.")
    ],
    minutes: Annotated[
        float | None, typer.Option(min=0, help="Ends after so long; else Ctrl-C ends it.")
    ] = None,
    home: Annotated[Path, typer.Option(help="Where your secret and a fetched model are.")] = HOME,
    json: Json = False,
) -> None:
    """Generate answers for a provider of a job that learns by rewards.

    No key, no bond, no contract: the provider gives weights and prompts, and checks each token of
    what you send in its own forward pass before it uses it. It answers whom it has in its config:
    give it the digest of your pass, which is said first. Whether it pays you is between the two of
    you; its page counts what you did.
    """
    from atoll.job.asking import missing_extra

    try:
        from atoll_node.rollouts.helper import Helper, help_provider
        from atoll_node.rollouts.passes import digest_of, pass_for
    except ImportError as error:
        raise missing_extra("generating") from error
    seconds = None if minutes is None else 60 * minutes
    home, url = home.expanduser(), provider.rstrip("/")
    digest = digest_of(pass_for(home, url))

    async def work() -> Helper:
        return await help_provider(url, home, say, seconds)

    say(f"helps {url}, which answers whose pass has the digest {digest}; Ctrl-C ends it")
    helper = asyncio.run(work())
    delivered = {"pass": digest, "sequences": helper.sequences, "tokens": helper.tokens}
    emit(delivered, f"{helper.sequences} answers, {helper.tokens} tokens delivered", as_json=json)
