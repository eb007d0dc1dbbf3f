"""Long streams: reservations that wait, partial commits, renewals; top-ups and states of limits."""

from __future__ import annotations

import json
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest
from conftest import LOSE, Faults, MakeClient, RestartedService

from sluicegate import (
    AsyncClient,
    Client,
    Decision,
    Descriptor,
    SettledReservation,
    UnknownReservation,
)
from sluicegate._protocol import Issued, Pause, Protocol, ReservationState, Send
from sluicegate._wire import Answer


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


@pytest.mark.parametrize("has_snapshot", [True, False])
def test_an_outage_in_a_stream_loses_no_usage(
    make_client: MakeClient, tmp_path: Path, has_snapshot: bool
) -> None:
    snapshot = ["--snapshot", str(tmp_path / "counters")] if has_snapshot else []
    service = RestartedService(*snapshot)
    try:
        with make_client(service.url) as client:
            slot = Descriptor({"slot": "a"}, hits=1)
            with client.reserve("test", {"tokens": "a"}, slot, hits=800) as held:
                assert held.commit_total(100, partial=True).source == "service"
                service.stop()
                assert held.commit_total(200, partial=True).source == "policy"
                assert held.committed == 100
                with client.reserve("test", {"tokens": "b"}, hits=50) as begun_in_outage:
                    assert begun_in_outage.token is None
                    assert begun_in_outage.commit_total(30).source == "policy"
                service.start()
                assert held.commit_total(250, partial=True).source == "service"
                assert held.commit_total(262).source == "service"
            assert begun_in_outage.commit_total(30).source == "service"
            assert begun_in_outage.commit_total(30).source == "service"
            lost_in_restart = 0 if has_snapshot else 100
            assert used(client, "a") == [262 - lost_in_restart] * 2
            assert used(client, "b") == [30, 30]
    finally:
        service.stop()


def test_a_total_whose_response_was_lost_is_charged_once(
    make_client: MakeClient, name: str
) -> None:
    faults = Faults()
    with make_client(transport=faults) as client:
        with client.reserve("test", {"tokens": name}, hits=800) as held:
            faults.script += [LOSE, LOSE]
            assert held.commit_total(100, partial=True).source == "policy"
            assert held.commit_total(150, partial=True).source == "service"
            faults.script += [LOSE, LOSE]
            assert held.commit_total(200).source == "policy"
        assert held.commit_total(200).source == "service" and held.committed == 200
        assert used(client, name) == [200, 200]


def test_an_exception_confirms_the_last_total_before_the_release(
    make_client: MakeClient, name: str
) -> None:
    faults = Faults()
    busy = (503, b'{"error":{"code":"overloaded","message":"too many","context":{}}}')
    with make_client(transport=faults) as client:
        with pytest.raises(ZeroDivisionError):
            with client.reserve("test", {"tokens": name}, hits=800) as held:
                faults.script += [busy, busy]
                assert held.commit_total(100, partial=True).source == "policy"
                raise ZeroDivisionError
        assert used(client, name) == [100, 100]


def test_a_total_below_the_committed_one_returns_nothing(client: Client, name: str) -> None:
    with client.reserve("test", {"tokens": name}, hits=800) as held:
        held.commit_total(300, partial=True)
        assert held.commit_total(250).returned == 500
    assert used(client, name) == [300, 300]
    with pytest.raises(ValueError, match="used -1: must be 0 or more"):
        held.commit_total(-1)


def test_a_total_of_a_cancelled_reservation_raises(client: Client, name: str) -> None:
    held = client.reserve("test", {"tokens": name}, hits=800)
    held.cancel()
    with pytest.raises(SettledReservation) as raised:
        held.commit_total(100)
    assert raised.value.reason == "cancelled"


def test_a_top_up_needs_no_proof(client: Client, name: str) -> None:
    client.check("test", {"tokens": name}, hits=900)
    assert not client.check("test", {"tokens": name}, hits=200)
    credit = client.credit("test", {"tokens": name}, hits=500)
    assert credit and credit.allowed_now
    assert used(client, name) == [400, 400]


def test_a_credit_is_true_while_debt_remains(client: Client, name: str) -> None:
    client.reserve("test", {"tokens": name}, hits=1000).commit(1500)
    credit = client.credit("test", {"tokens": name}, hits=100)
    assert credit and not credit.allowed_now
    returned = [(one.limit, one.hits) for one in credit.statuses[0].returned]
    assert returned == [("minute", 100), ("day", 100)]


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
    with pytest.raises(StopIteration):
        timer.send(gone("expired"))
    assert held.is_expired
    with pytest.raises(ValueError, match="ttl 0: must be above 0"):
        renewing(held, 0)


def gone(reason: str) -> Answer:
    error = {"code": "settled_reservation", "message": "m", "context": {"reason": reason}}
    return Answer(410, json.dumps({"error": error}).encode())


@pytest.mark.parametrize("reason", ["expired", "unknown"])
def test_a_renewal_tells_an_expired_reservation_from_a_lost_one(
    make_client: MakeClient, name: str, reason: str
) -> None:
    faults = Faults()
    with make_client(transport=faults) as client:
        held = client.reserve("test", {"tokens": name})
        answer = gone(reason)
        faults.script.append((answer.status, answer.body))
        with pytest.raises(SettledReservation) as raised:
            held.renew(60)
        assert raised.value.reason == reason
        assert held.is_expired == (reason == "expired")


def test_a_lifetime_is_above_zero(client: Client, name: str) -> None:
    with pytest.raises(ValueError, match="ttl 0: must be above 0 seconds"):
        client.reserve("test", {"tokens": name}, ttl=0)
    with client.reserve("test", {"tokens": name}) as held:
        with pytest.raises(ValueError, match="ttl -1: must be above 0 seconds"):
            held.renew(-1)


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
