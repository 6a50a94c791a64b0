"""`atoll job result`, `checkpoint`, `sample`: the models of a job."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from atoll.cli.jobfile import Job
from atoll.cli.network_commands import Network, Options, on_network, taking
from atoll.cli.output import Json, emit, say
from atoll.cli.snapshot import sign_lines

if TYPE_CHECKING:
    from atoll.job.delivery import Delivery
    from atoll.job.hub_push import Destination
    from atoll.job.model_card import Labels
    from atoll.job.signs import Signs


app = typer.Typer(add_completion=False, help="Fetch the models of jobs.")

Round = Annotated[
    int | None, typer.Option("--round", min=0, help="The last settled one if excluded.")
]
License = Annotated[str, typer.Option("--license", help="For the card, as the Hub names it.")]
BaseModel = Annotated[str, typer.Option(help="For the card, as the Hub names it.")]
Folder = Annotated[Path, typer.Argument(help="Where the model goes.")]
PushTo = Annotated[
    str | None,
    typer.Option("--push-to", metavar="USER/NAME", help="Put it on the Hugging Face Hub, too."),
]
Force = Annotated[
    bool, typer.Option("--force", help="Let --push-to overwrite what that repository has.")
]
Merged = Annotated[
    bool,
    typer.Option("--merged", help="Adapters added to the model that they were trained on."),
]
Clean = Annotated[
    bool,
    typer.Option(
        "--clean",
        help="The last certified model before a strike, or before what was found false was merged.",
    ),
]


@dataclass(frozen=True, slots=True)
class Card:
    """What a model's card says that no manifest has."""

    license_: str
    base_model: str

    def labels(self) -> Labels:
        from atoll.job.model_card import Labels

        return Labels(self.license_, self.base_model)


@dataclass(frozen=True, slots=True)
class Push:
    """Where on the Hub a model goes, if anywhere."""

    push_to: str | None
    force: bool

    def destination(self) -> Destination | None:
        """Raises what `check_destination` raises."""
        from atoll.job.hub_push import check_destination

        return None if self.push_to is None else check_destination(self.push_to, force=self.force)


CARD: Final[Options] = {"license_": (License, "unknown"), "base_model": (BaseModel, "")}
HUB: Final[Options] = {"push_to": (PushTo, None), "force": (Force, False)}


@app.command()
@taking("card", CARD, Card)
@taking("push", HUB, Push)
@on_network()
def result(
    job: Job,
    folder: Folder,
    merged: Merged = False,
    clean: Clean = False,
    *,
    card: Card,
    push: Push,
    network: Network,
    json: Json = False,
) -> None:
    """Fetch the trained model, as `transformers` opens it, with its model card.

    Where somebody was slashed for the last round, that is merged once more without them, and said;
    where a round was struck, the first such is merged as its updates give it, and ends the result.
    Where it holds what somebody sent whose work was found false, that is said, too, and --clean
    fetches the last model before that. Of a job that trains adapters, what PEFT opens, or with
    --merged what `transformers` does.
    """
    from atoll.job.certified import check_folder
    from atoll.job.hub_push import push_model

    check_folder(folder)
    destination, labels = push.destination(), card.labels()

    async def work() -> tuple[int | None, Delivery | None, Signs]:
        async with network.open() as client:
            handle = client.attach(job)
            rounds = await handle.clean(folder, labels, merged=merged) if clean else None
            delivery = None if rounds is not None else await handle.delivery()
            if delivery is not None:
                await handle.result(folder, labels, merged=merged, delivery=delivery)
            return rounds, delivery, await handle.signs()

    rounds, delivered, signs = asyncio.run(work())
    document: dict[str, object] = {"job": job, "folder": str(folder)}
    if delivered is None:
        which = f"after round {rounds - 1}" if rounds else "that the job began with"
        say(f"the model {which}, the last clean one")
        document["clean_rounds"] = rounds
    else:
        if not delivered.is_certified:
            say(delivered.text())
        for line in sign_lines(delivered.signs(signs)):
            say(line)
        document["delivery"] = delivered.to_json_value()
    if destination is not None:
        document["pushed"] = push_model(folder, destination, f"Job {job} of Atoll")
        say(f"pushed: {document['pushed']}")
    emit(document | {"signs": signs.to_json_value()}, str(folder), as_json=json)


@app.command()
@taking("card", CARD, Card)
@on_network()
def checkpoint(
    job: Job,
    folder: Folder,
    round_: Round = None,
    merged: Merged = False,
    *,
    card: Card,
    network: Network,
    json: Json = False,
) -> None:
    """Fetch the model after a settled round, while the job goes on."""
    from atoll.job.certified import check_folder

    check_folder(folder)

    async def work() -> tuple[int, Signs]:
        async with network.open() as client:
            handle, labels = client.attach(job), card.labels()
            settled_round = await handle.settled_round(round_)
            await handle.checkpoint(folder, settled_round, labels, merged=merged)
            return settled_round, (await handle.signs()).after(settled_round + 1)

    settled_round, signs = asyncio.run(work())
    say(f"the model after round {settled_round}")
    for line in sign_lines(signs):
        say(line)
    emit({"job": job, "folder": str(folder), "round": settled_round}, str(folder), as_json=json)


@app.command()
@on_network()
def sample(
    job: Job,
    prompt: Annotated[str, typer.Option(help="What the text begins with.")],
    tokens: Annotated[int, typer.Option(min=1, max=1 << 16, help="How many to add.")] = 200,
    greedy: Annotated[
        bool, typer.Option("--greedy", help="The likeliest token each time.")
    ] = False,
    seed: Annotated[int, typer.Option(min=0, max=(1 << 64) - 1)] = 0,
    round_: Round = None,
    *,
    network: Network,
    json: Json = False,
) -> None:
    """Have the model after a settled round continue a prompt, on this machine.

    A seed's text is the same on every machine: what generates is what trains.
    """
    from atoll.job.asking import missing_extra

    try:
        from atoll.train.continue_text import Sampling
    except ImportError as error:
        raise missing_extra("sampling") from error

    async def work() -> tuple[int, str]:
        sampling = Sampling(length=tokens, is_greedy=greedy, seed=seed)
        async with network.open() as client:
            handle = client.attach(job)
            settled_round = await handle.settled_round(round_)
            return settled_round, await handle.sample(prompt, sampling, settled_round)

    settled_round, text = asyncio.run(work())
    emit({"job": job, "round": settled_round, "text": text}, text, as_json=json)
