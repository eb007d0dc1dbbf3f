"""Long streams: reservations that wait, partial commits, renewals; top-ups and states of limits."""

from __future__ import annotations

import threading
from collections import Counter
from typing import Any

import anyio
import httpx
import pytest
from conftest import Faults

from sluicegate import AsyncClient, Client, Decision, SettledReservation, UnknownReservation
from sluicegate._protocol import Answer, Issued, Pause, Protocol, ReservationState, Send


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


def renewing(held: ReservationState, ttl: float) -> Any:
    protocol = Protocol("http://x", timeout=1, retries=0, on_unavailable="allow", token=None)
    return protocol.auto_renew(held, ttl)


def reserved(expires_after: float) -> ReservationState:
    return ReservationState(Issued("t", expires_after, Decision(True, "service")))


def test_a_timer_renews_three_times_in_a_lifetime_until_the_end() -> None:
    held = reserved(60)
    timer = renewing(held, 60)
    assert next(timer) == Pause(20)
    send = next(timer)
    assert isinstance(send, Send) and send.path == "/v1/renew"
    # The lease of a slot is shorter.
    assert timer.send(Answer(200, b'{"expires_after_ms":30000}')) == Pause(10)
    assert held.expires_after == 30
    next(timer)
    assert timer.send(httpx.ConnectError("away")) == Pause(10)
    held.is_settled = True
    with pytest.raises(StopIteration):
        next(timer)


def test_a_timer_ends_at_an_expired_reservation() -> None:
    held = reserved(60)
    timer = renewing(held, 60)
    next(timer), next(timer)
    gone = b'{"error":{"code":"settled_reservation","message":"the reservation expired"}}'
    with pytest.raises(StopIteration):
        timer.send(Answer(410, gone))
    assert held.is_expired
    with pytest.raises(ValueError, match="ttl 0: must be above 0"):
        renewing(held, 0)


class Renewals(Faults):
    """A transport that reports the third renewal."""

    def __init__(self, event: Any) -> None:
        super().__init__()
        self.event = event

    def _next(self, request: httpx.Request) -> Any:
        fault = super()._next(request)
        if Counter(one.url.path for one in self.requests)["/v1/renew"] == 3:
            self.event.set()
        return fault


def test_a_pause_that_is_longer_than_the_ttl_loses_nothing(service: str, name: str) -> None:
    """The stream pauses until the third renewal, longer than the reservation would have lasted."""
    third = threading.Event()
    with Client(service, on_unavailable="raise", transport=Renewals(third)) as client:
        with client.reserve("test", {"tokens": name}, hits=800, ttl=0.3) as held:
            with held.auto_renew():
                assert third.wait(30)
                assert used(client, name) == [800, 800]
                assert held.commit(250).returned == 550
        assert not held.is_expired
    for thread in threading.enumerate():
        if thread.name == "sluicegate-renew":
            thread.join(30)
            assert not thread.is_alive()


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_task_renews_during_a_block(service: str, name: str, backend: str) -> None:
    async def program() -> None:
        third = anyio.Event()
        async with AsyncClient(service, transport=Renewals(third)) as client:
            with pytest.raises(ZeroDivisionError):
                async with client.reserve("test", {"tokens": name}, hits=800, ttl=0.3) as held:
                    async with held.auto_renew():
                        with anyio.fail_after(30):
                            await third.wait()
                        assert (await held.commit(250, partial=True)).held == 550
                        raise ZeroDivisionError
            assert (await client.peek("test", {"tokens": name})).remaining == 750

    anyio.run(program, backend=backend)


def test_a_commit_after_the_expiry_is_charged_in_full(client: Client, name: str) -> None:
    held = client.reserve("test", {"tokens": name}, hits=800, ttl=0.001)
    while used(client, name) != [0, 0]:
        pass  # A millisecond at most.
    with pytest.raises(SettledReservation, match="the reservation expired"):
        held.renew(60)
    assert held.commit(100, partial=True).held == 0
    assert held.commit(150).returned == 0
    assert used(client, name) == [250, 250]


def test_a_lost_reservation_is_charged_anew_into_debt(client: Client, name: str) -> None:
    client.check("test", {"tokens": name}, hits=900)
    held = client.reserve("test", {"tokens": name}, hits=100)
    assert held.token is not None
    client.reservation(held.token).cancel()
    with pytest.raises(SettledReservation):
        held.commit(250)
    for total in (1150, 1400):
        with client.reserve("test", {"tokens": name}, hits=0) as late:
            late.commit(250)
        assert used(client, name) == [total, total]
