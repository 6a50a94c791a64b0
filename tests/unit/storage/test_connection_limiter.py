"""Who is let in and who has to go: counted on paper, with a clock that the test moves."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest

from atoll.storage.connection_limiter import Budget, ConnectionLimiter, address_of

BUDGET = Budget(connections=8, per_address=4, per_member=2, reserved=3, header_s=10, patience_s=10,
                least_bytes_per_s=100)  # fmt: skip


@dataclass
class House:
    """A connection limiter, who left it, and what waits for whom."""

    connection_limiter: ConnectionLimiter
    now: float = 1000.0
    gone: list[str] = field(default_factory=list)
    waiting: dict[str, int] = field(default_factory=dict)

    def arrive(self, *names: str, host: str = "203.0.113.1") -> None:
        for name in names:
            self.now += 1
            self.connection_limiter.arrived(name, host, lambda n=name: self.gone.append(n),
                              waiting=lambda n=name: self.waiting.get(n, 0))  # fmt: skip

    def ask(self, name: str, member: str | None = None) -> None:
        connection = self.connection_limiter.connection(name)
        assert connection is not None
        self.now += 1
        self.connection_limiter.asked(connection)
        self.connection_limiter.begins(connection)
        self.connection_limiter.ends(connection)
        if member is not None:
            self.connection_limiter.recognised(connection, member)


@pytest.fixture
def house() -> House:
    house = House(ConnectionLimiter(BUDGET, lambda: house.now))
    return house


def test_of_one_address_who_was_silent_longest_goes(house: House) -> None:
    house.arrive("a", "b", "c", "d")
    house.ask("a")
    house.arrive("e")
    assert house.gone == ["b"]
    house.arrive("f", "g", "h")
    assert house.gone == ["b", "c", "d", "a"]


def test_whom_we_answer_stays_and_who_just_came_may_speak(house: House) -> None:
    house.arrive("a", "b", "c", "d")
    for name in "abc":
        connection = house.connection_limiter.connection(name)
        assert connection is not None
        house.connection_limiter.asked(connection)
        house.connection_limiter.begins(connection)
    house.ask("d")
    house.arrive("e", "f")
    assert house.gone == ["d", "e"]


def test_who_waits_for_a_turn_goes_before_who_just_came(house: House) -> None:
    for name in "abcd":
        house.arrive(name)
        connection = house.connection_limiter.connection(name)
        assert connection is not None
        house.connection_limiter.asked(connection)
    house.arrive("m")
    assert house.gone == ["a"]
    house.ask("m", member="one")


def test_who_asked_once_and_stays_does_not_keep_others_out(house: House) -> None:
    for i in range(8):
        house.arrive(f"s{i}", host=f"203.0.113.{i}")
        if house.connection_limiter.connection(f"s{i}") is not None:
            house.ask(f"s{i}")
    house.arrive("m", host="198.51.100.1")
    house.ask("m", member="one")
    assert "m" not in house.gone


def test_strangers_leave_room_for_members(house: House) -> None:
    for i in range(20):
        house.arrive(f"s{i}", host=f"203.0.113.{i}")
    assert len(house.gone) == 20 - 5
    for i in range(3):
        house.arrive(f"m{i}", host="198.51.100.1")
        house.ask(f"m{i}", member=f"member {i}")
    for i in range(20, 40):
        house.arrive(f"s{i}", host=f"203.0.113.{i}")
    assert not any(name.startswith("m") for name in house.gone)
    assert {f"m{i}" for i in range(3)} == {
        n for n in ("m0", "m1", "m2") if house.connection_limiter.connection(n)
    }


def test_strangers_make_room_for_more_members_than_are_expected(house: House) -> None:
    for i in range(5):
        house.arrive(f"m{i}", host=f"198.51.100.{i}")
        house.ask(f"m{i}", member=f"member {i}")
    house.arrive("a", "b", "c")
    assert house.gone == []
    house.arrive("late", host="198.51.100.99")
    assert house.gone == ["a"]
    house.ask("late", member="late")
    assert house.connection_limiter.connections == BUDGET.connections


def test_a_member_has_its_own_limit(house: House) -> None:
    house.arrive("a", "b", "c")
    for name in "abc":
        house.ask(name, member="one")
    house.arrive("d", "e", "f", "g")
    assert house.gone == ["c"]  # which counts as a stranger's


def test_more_members_than_there_is_room_for_wait_outside(house: House) -> None:
    for i in range(8):
        house.arrive(f"m{i}", host=f"198.51.100.{i}")
        house.ask(f"m{i}", member=f"member {i}")
    house.arrive("late", host="198.51.100.99")
    assert house.gone == ["late"]


def test_who_does_not_speak_has_to_go(house: House) -> None:
    house.arrive("silent", "speaks")
    house.ask("speaks")
    house.now += 9.5
    house.connection_limiter.sweep()
    assert house.gone == ["silent"]
    house.now += 1000
    house.connection_limiter.sweep()
    assert house.gone == ["silent"]


@pytest.mark.parametrize(("taken", "stays"), [(999, False), (1001, True)])
def test_who_takes_its_bytes_too_slowly_has_to_go(house: House, taken: int, stays: bool) -> None:
    house.arrive("reader")
    house.ask("reader")
    connection = house.connection_limiter.connection("reader")
    assert connection is not None
    connection.written, house.waiting["reader"] = 5000, 5000
    house.connection_limiter.sweep()
    house.now += 10
    house.waiting["reader"] -= taken
    house.connection_limiter.sweep()
    assert (house.gone == []) is stays
    assert house.connection_limiter.sent_away == ({} if stays else {"rate": 1})


def test_who_has_taken_everything_may_wait(house: House) -> None:
    house.arrive("reader")
    house.ask("reader")
    for _ in range(5):
        house.now += 100
        house.connection_limiter.sweep()
    assert house.gone == []


@pytest.mark.parametrize(
    ("host", "address"),
    [
        ("203.0.113.7", "203.0.113.7"),
        ("::ffff:203.0.113.7", "203.0.113.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:0db8:0001:0002"),
        ("2001:db8:1:2::9", "2001:0db8:0001:0002"),
        ("odd", "odd"),
    ],
)
def test_what_counts_as_one_address(host: str, address: str) -> None:
    assert address_of(host) == address


def test_whom_there_is_no_room_for_is_told_unless_an_answer_is_on_its_line(house: House) -> None:
    limiter, told = house.connection_limiter, list[str]()
    for name in "abcd":
        house.now += 1
        limiter.arrived(
            name,
            "203.0.113.1",
            lambda n=name: house.gone.append(n),  # type: ignore[misc]
            refuse=lambda n=name: told.append(n),  # type: ignore[misc]
            waiting=lambda: 0,
        )
        connection = limiter.connection(name)
        assert connection is not None
        limiter.asked(connection)
        if name != "a":
            limiter.begins(connection)
    house.arrive("e", "f", "g", "h")
    assert told == ["a"]
    assert house.gone == ["e", "f", "g"]


def test_a_submitter_is_not_pushed_out_and_has_a_few_connections(house: House) -> None:
    limiter = house.connection_limiter
    limiter.budget = replace(BUDGET, per_submitter=2)
    limiter.admit_submitters(["submitter"])
    house.arrive("a", "b", "c", host="203.0.113.2")
    for name in "abc":
        house.ask(name, "submitter")
    for i in range(20):
        house.arrive(f"s{i}", host=f"203.0.113.{i + 10}")
    assert limiter.connection("a") is not None and limiter.connection("b") is not None
    assert limiter.connection("c") is None


def test_a_submitter_waits_for_no_stranger_with_what_it_brings_alone(house: House) -> None:
    house.connection_limiter.admit_submitters(["submitter"])
    house.arrive("a", "m")
    house.ask("a", "submitter")
    house.ask("m", "member")
    a, m = (house.connection_limiter.connection(name) for name in "am")
    assert a is not None and m is not None
    methods = ("GET", "HEAD", "PUT")
    assert [a.asks_as_stranger(each) for each in methods] == [True, False, False]
    assert not any(m.asks_as_stranger(each) for each in methods)
    house.connection_limiter.admit_submitters(["another"])  # the job has begun
    assert all(a.asks_as_stranger(each) for each in methods) and not a.is_looked_at
    assert not any(m.asks_as_stranger(each) for each in methods)
