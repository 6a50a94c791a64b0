"""report.json and the summary of a run: from a job's events alone, with a ledger that adds up."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import pytest
from tests.support.manifests import make_manifest, make_terms
from tests.unit.dashboard.jobs import LIAR, ledger_of, play
from tests.unit.protocol.script import PROVIDERS, VERIFIERS, WATCHER, Script

from atoll.chain.structs import Escrow
from atoll.dashboard.page import embedded, page
from atoll.protocol.events import HolderSlashed
from atoll.protocol.types import TOKEN, Address, RoundIndex
from atoll_devnet.processes.cluster import Cluster
from atoll_devnet.report.measured import GAS_LABELS, RunResult
from atoll_devnet.report.run_document import build_report, slashed_honest, write_report
from atoll_devnet.report.summary import summary


@dataclass(frozen=True)
class FakeMember:
    """What a report reads of a member."""

    kind: str
    index: int
    account: Address
    cheat: str | None
    metrics_file: Path

    @property
    def name(self) -> str:
        return f"{self.kind} {self.index}"


@dataclass
class FakeCluster:
    """What a report reads of a network."""

    folder: Path
    cheats: dict[int, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.config = type("Config", (), {"backend": "anvil"})
        self.chain = type("Chain", (), {"chain_id": 31337})
        self.providers = [
            self._member("provider", i, PROVIDERS[i], self.cheats.get(i)) for i in range(4)
        ]
        self.verifiers = [self._member("verifier", i, VERIFIERS[i], None) for i in range(4)]
        self.watchers = [self._member("watcher", 0, WATCHER, None)]

    @property
    def members(self) -> list[FakeMember]:
        return [*self.providers, *self.verifiers, *self.watchers]

    @property
    def names(self) -> dict[Address, str]:
        return {member.account: member.name for member in self.members}

    def _member(self, kind: str, index: int, account: Address, cheat: str | None) -> FakeMember:
        return FakeMember(kind, index, account, cheat, self.folder / f"{kind}-{index}.json")


def result_of(script: Script, folder: Path, cheats: dict[int, str]) -> RunResult:
    """What a run that came to this would be reported from."""
    net = script.net
    balance = net.funded - net.claimed - net.burnt - net.refunded
    return RunResult(
        cluster=cast(Cluster, FakeCluster(folder, cheats)),
        manifest=make_manifest(),
        ledger=ledger_of(script),
        escrow=Escrow(net.funded, net.claimed, net.refunded, net.burnt, balance),
        losses={-1: 5.5, 0: 5.0, 1: 4.5},
        blocks=net.number,
        parameters=1000,
        update_bytes=1200,
        result_dir=None,
    )


def finished_run(through_round: int = 0) -> Script:
    """Two rounds, audited and paid; seat 3 lied in both and was slashed after its first game, which
    was about round 0 and came in the window of `through_round`."""
    script = Script.ready(make_terms(rounds=2))
    net = script.net
    first, last = script.honest_round(), script.honest_round()
    for round in (first, last):
        for id in script.auditors(round):
            mismatch = {LIAR: 2} if LIAR in net.duties(round, id) else None
            script.audit_report(round, id, script.body(round, id, mismatch))
    for round in (first, last):
        net.wait_until(net.settled[round].ends["audit"])
        script.open_all(round)
    for round in (first, last):
        net.wait_until(net.settled[round].ends["open"])
        script.show_keys(round)
        if round == through_round:
            play(script, 1, VERIFIERS[0], through_round=through_round)
    net.wait_until(net.settled[last].ends["window"])
    for role, id in list(net.members):
        net.claim(role, id, 2)
    net.burn(2)
    return script


@pytest.fixture
def finished() -> Script:
    return finished_run()


@pytest.fixture
def report(finished: Script, tmp_path: Path) -> dict[str, Any]:
    return build_report(result_of(finished, tmp_path, {LIAR: "lazy"}))


def test_a_round_says_who_was_there_and_who_was_audited(report: dict[str, Any]) -> None:
    last = report["rounds"][1]
    assert (last["status"], last["available"], last["excluded"]) == ("settled", [0, 1, 2, 3], [])
    assert last["drawn"] == [0, 1, 2, 3]
    assert (last["valid"], last["mismatch"]) == ([0, 1, 2], [LIAR])
    assert {item["seat"] for item in last["accusations"]} == {LIAR}
    assert last["paid"] == [0, 1, 2]
    assert (last["merged"], last["signed"]) == (4, [0, 1, 2, 3])


def test_a_report_says_what_speaks_against_the_models(
    report: dict[str, Any], finished: Script, tmp_path: Path
) -> None:
    told = report["signs"]
    assert [item["round"] for item in told["tainted"]] == [0, 1]
    assert (told["moved_nothing"], told["clean"]) == ([], {"before": 0, "digest": None})
    text = " ".join(summary(report, "", tmp_path).split())
    assert f"SIGN: rounds 0, 1 are tainted: what seat {LIAR} sent was merged" in text
    still = replace(result_of(finished, tmp_path, {}), losses={-1: 5.5, 0: 5.5, 1: math.nan})
    assert build_report(still)["signs"]["moved_nothing"] == [0]


def test_a_round_says_whose_updates_were_merged(tmp_path: Path) -> None:
    """Seat 2 did too little of the round to be merged, and is available and not excluded."""
    script = Script.ready(make_terms(rounds=1))
    script.train({2: 1})
    script.say()
    script.net.wait(1)
    script.settle(excluded={1}, merged=2)
    report = build_report(result_of(script, tmp_path, {}))
    (told,) = report["rounds"]
    assert (told["available"], told["excluded"]) == ([0, 1, 2, 3], [1])
    row = next(line for line in summary(report, "", tmp_path).splitlines() if "0 1 2 3" in line)
    assert [part.strip() for part in row.split("│")[2:5]] == ["0 1 2 3", "0 3", "1"]


def test_a_model_that_diverged_leaves_json_that_can_be_read(tmp_path: Path) -> None:
    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is no JSON")

    result = replace(result_of(finished_run(), tmp_path, {}), losses={-1: 5.5, 0: 5.0, 1: math.nan})
    write_report(build_report(result), tmp_path / "report.json")
    told = json.loads((tmp_path / "report.json").read_text(), parse_constant=refuse)
    assert [item["eval_loss"] for item in told["rounds"]] == [5.0, None]
    assert told["eval"] == {"loss_start": 5.5, "loss_end": None}


@pytest.mark.parametrize(
    ("losses", "told"),
    [
        ({-1: 6.1029, 0: 6.0925}, "6.1029 before, 6.0925 after (0.2% less)"),
        ({-1: 5.0, 0: 5.5}, "5.0000 before, 5.5000 after (10.0% more)"),
    ],
)
def test_a_loss_that_fell_by_little_or_rose_is_told_so(
    losses: dict[int, float], told: str, tmp_path: Path
) -> None:
    report = build_report(replace(result_of(finished_run(), tmp_path, {}), losses=losses))
    assert f"loss on held-out text: {told}" in summary(report, "", tmp_path)


def test_a_game_says_who_won_after_how_many_moves(report: dict[str, Any]) -> None:
    (game,) = report["games"]
    assert (game["seat"], game["round"], game["segment"]) == (LIAR, 0, 2)
    assert (game["challenger"], game["winner"]) == ("verifier 0", "verifier 0")
    assert game["outcome"] == "holder lost"
    assert [move["is_move"] for move in game["moves"]].count(True) == 2


def test_the_cheat_is_caught_by_its_game_and_nobody_else_lost_anything(
    report: dict[str, Any],
) -> None:
    (cheat,) = report["cheats"]
    assert (cheat["caught"], cheat["round"]) == (True, 0)
    assert cheat["by"] == "verifier 0: a game about segment 2"
    assert slashed_honest(report) == []
    assert [v["won_wei"] for v in report["verifiers"]] == [str(30 * TOKEN), "0", "0", "0"]
    assert cheat["slashed_wei"] == str(100 * TOKEN)
    (loss,) = report["losses"]
    assert (loss["name"], loss["slashed"]) == (f"provider {LIAR}", True)
    assert loss["for"] == "game 1, about segment 2 of seat 3 in round 0"


def test_a_game_that_came_by_a_later_round_of_the_reset_period_says_so(tmp_path: Path) -> None:
    report = build_report(result_of(finished_run(through_round=1), tmp_path, {LIAR: "lazy"}))
    (game,), (loss,), (cheat,) = report["games"], report["losses"], report["cheats"]
    assert (game["round"], game["through_round"], loss["round"]) == (0, 1, 0)
    assert loss["for"] == "game 1, about segment 2 of seat 3 in round 0 through round 1"
    assert cheat["by"] == "verifier 0: a game about segment 2 through round 1"
    text = summary(report, "", tmp_path)
    assert "verifier 0 disputes segment 2 of seat 3 in round 0 through round 1: verifier 0" in text


def test_a_bond_that_is_lost_is_told_with_the_round_that_the_game_was_about(
    finished: Script, tmp_path: Path
) -> None:
    """Pay is lost from the first round on that is not FINAL, which is another one as a rule."""
    log = finished.net.log
    (at,) = (at for at, (event, _) in enumerate(log) if isinstance(event, HolderSlashed))
    log[at] = (replace(log[at][0], lost_from=RoundIndex(1)), log[at][1])
    result = result_of(finished, tmp_path, {LIAR: "lazy"})
    (loss,) = build_report(result)["losses"]
    assert loss["round"] == 0
    assert loss["for"].endswith("in round 0")


def test_an_honest_party_that_lost_was_slashed(finished: Script, tmp_path: Path) -> None:
    report = build_report(result_of(finished, tmp_path, {}))
    assert slashed_honest(report) == [PROVIDERS[LIAR]]


def test_a_machine_that_was_too_slow_was_not_slashed(tmp_path: Path) -> None:
    script = Script.ready(make_terms(rounds=1))
    net = script.net
    net.advance()
    for seat in range(1, 4):
        script.commit(seat)
    net.wait_until(net.deadline)
    net.advance()
    net.penalise_seat(0)
    report = build_report(result_of(script, tmp_path, {}))
    late = report["providers"][0]
    assert int(late["slashed_wei"]) > 0
    assert late["missed_wei"] == late["slashed_wei"]
    assert slashed_honest(report) == []


def test_the_ledger_adds_up_and_say_what_was_paid_for(
    report: dict[str, Any], finished: Script
) -> None:
    escrow, net = report["money"], finished.net
    assert escrow["faults"] == []
    assert sum(map(int, escrow["paid_for_wei"].values())) == net.claimed
    assert int(escrow["burnt_wei"]) == net.burnt > 0
    training = 3 * 2 * 8 * net.terms.segment_pay
    assert int(escrow["paid_for_wei"]["training"]) == training
    assert all(item["paid_wei"] == "0" for item in report["providers"] if item["cheat"])


def test_a_contract_that_says_another_balance_is_a_fault(finished: Script, tmp_path: Path) -> None:
    result = result_of(finished, tmp_path, {})
    short = replace(result.escrow, balance=result.escrow.balance - 1)
    (fault,) = build_report(replace(result, escrow=short))["money"]["faults"]
    assert fault.startswith("the contract has balance")


def test_bytes_are_told_by_role(finished: Script, tmp_path: Path) -> None:
    result = result_of(finished, tmp_path, {})
    traffic = {"bytes_up": 6000.0, "bytes_down": 2000.0}
    for member in (result.cluster.providers[0], result.cluster.verifiers[1]):
        metrics = {"jobs": {"0": {"-1": traffic}}, "gas": {}}
        member.metrics_file.write_text(json.dumps(metrics), encoding="utf-8")
    # 1,000 parameters, two rounds, four of each role.
    assert build_report(result)["measured"]["bytes"]["by_role"] == {
        "provider": {"up_per_parameter": 0.75, "down_per_parameter": 0.25},
        "verifier": {"up_per_parameter": 0.75, "down_per_parameter": 0.25},
    }


def test_a_round_that_a_provider_did_not_reveal_in_is_no_part_of_its_utilisation(
    tmp_path: Path,
) -> None:
    """Seat 2 trained in both rounds and revealed in the first only."""
    script = Script.ready(make_terms(rounds=2))
    script.train()
    script.say()
    script.net.wait(40)
    script.settle()
    script.net.wait(10)
    for seat in range(4):
        script.commit(seat)
    for seat in (0, 1, 3):
        script.reveal(seat)
    script.net.wait_until(script.net.deadline)
    script.net.advance()
    script.say(has=0b1011)
    script.net.wait(1)
    script.settle()
    result = result_of(script, tmp_path, {})
    metrics = {"jobs": {"7": {"0": {"train_seconds": 30.0}, "1": {"train_seconds": 25.0}}}}
    result.cluster.providers[2].metrics_file.write_text(json.dumps(metrics), encoding="utf-8")
    report = build_report(result)
    assert [item["revealed"] for item in report["rounds"]] == [[0, 1, 2, 3], [0, 1, 3]]
    assert report["measured"]["utilisation"]["providers"]["2"] == 30 / 40


def test_the_summary_tells_the_story(report: dict[str, Any], tmp_path: Path) -> None:
    text = summary(report, "", tmp_path)
    assert "game 1: verifier 0 disputes segment 2 of seat 3 in round 0: verifier 0 wins" in text
    assert "provider 3, lazy: caught in round 0" in text
    assert "paid for:" in text
    assert "THE LEDGER" not in text


def test_the_reports_parties_are_the_documents_members(report: dict[str, Any]) -> None:
    parties = {p["account"]: p for p in (*report["providers"], *report["verifiers"])}
    members = {member["account"]: member for member in report["members"]}
    assert parties.keys() <= members.keys()
    for account, party in parties.items():
        shared = ("paid_wei", "slashed_wei", "rounds", "paid_rounds", "tokens", "audits")
        assert all(party[name] == members[account][name] for name in shared)
    assert {f"provider {LIAR}", "verifier 0"} <= {m["name"] for m in report["members"]}


def test_losses_of_the_observer_are_those_of_the_curve(report: dict[str, Any]) -> None:
    assert [item["own"] for item in report["curve"]] == [5.5, 5.0, 4.5]


def test_the_page_of_a_run_is_its_report(report: dict[str, Any]) -> None:
    assert report["measured"]["gas"].keys() == GAS_LABELS.keys()
    assert embedded(report) in page(report)
