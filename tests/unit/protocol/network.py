"""The contracts' model with the product's fold of its events beside it."""

from __future__ import annotations

from tests.support.contracts import Contracts
from tests.support.identities import DOMAIN, JOB
from tests.support.manifests import make_terms

from atoll.protocol.events import ContractEvent
from atoll.protocol.rounds import apply
from atoll.protocol.types import Terms
from atoll.protocol.views import JobView


class Network(Contracts):
    """One job, and what everybody who follows it knows.

    Attributes:
        view: folded from the events so far.
    """

    def __init__(self, terms: Terms | None = None, funded: int = 10**24) -> None:
        self.view = JobView.of(DOMAIN, JOB)
        super().__init__(terms or make_terms(), funded)

    def emit(self, event: ContractEvent) -> None:
        super().emit(event)
        self.view = apply(self.view, event, self.block)
