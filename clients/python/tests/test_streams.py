"""Long streams: reservations that wait, partial commits, renewals; top-ups and states of limits."""

from __future__ import annotations

import pytest

from sluicegate import Client, SettledReservation, UnknownReservation


def used(client: Client, name: str) -> list[object]:
    (state,) = client.inspect("test", {"tokens": name})
    return [one.used for one in state.limits]


def test_partial_commits_count_what_was_used_since(client: Client, name: str) -> None:
    with client.reserve("test", {"tokens": name}, hits=800) as held:
        assert held.commit(300, partial=True).held == 500
        assert held.commit(100, partial=True).held == 400
        assert not held.is_settled
        assert held.commit(50).returned == 350
    assert used(client, name) == [450, 450]


def test_partial_commits_are_final(client: Client, name: str) -> None:
    with pytest.raises(ZeroDivisionError):
        with client.reserve("test", {"tokens": name}, hits=800) as held:
            held.commit(300, partial=True)
            raise ZeroDivisionError
    assert used(client, name) == [300, 300]


def test_a_renewal_extends_the_reservation(client: Client, name: str) -> None:
    with client.reserve("test", {"tokens": name}, {"slot": name}, hits=1, ttl=30) as held:
        renewal = held.renew(120)
        assert (renewal.source, renewal.expires_after) == ("service", 120)
        assert held.expires_after == 120


def test_settled_and_unknown_reservations_differ(client: Client, name: str) -> None:
    held = client.reserve("test", {"tokens": name}, hits=800)
    held.commit(100)
    for settle in (held.cancel, lambda: held.commit(100), lambda: held.renew(10)):
        with pytest.raises(SettledReservation) as raised:
            settle()
        assert (raised.value.status, raised.value.code) == (410, "settled_reservation")
    assert held.token is not None
    never_issued = held.token[:-4] + ("AAAA" if held.token[-4:] != "AAAA" else "BBBB")
    with pytest.raises(UnknownReservation):
        client.reservation(never_issued).cancel()


def test_a_reservation_waits_and_settles_what_it_waited_for(client: Client, name: str) -> None:
    client.check("test", {"fast": name})
    with client.reserve("test", {"fast": name}, wait=5) as held:
        assert held.token is not None
        assert held.commit(0).source == "service"


def test_a_top_up_needs_no_proof(client: Client, name: str) -> None:
    client.check("test", {"tokens": name}, hits=900)
    assert not client.check("test", {"tokens": name}, hits=200)
    assert client.credit("test", {"tokens": name}, hits=500).allowed
    assert used(client, name) == [400, 400]


def test_every_limit_on_request(client: Client, name: str) -> None:
    decision = client.check("test", {"tokens": name}, hits=100, limits=True)
    limits = decision.statuses[0].limits
    assert [(one.limit, one.remaining) for one in limits] == [("minute", 900), ("day", 4900)]
    assert client.check("test", {"tokens": name}).statuses[0].limits == ()
    with client.reserve("test", {"tokens": name}, limits=True) as held:
        assert len(held.decision.statuses[0].limits) == 2
