"""Lost responses, retries, and the policy for an unavailable service."""

from __future__ import annotations

import json
import socket
from typing import Tuple

import httpx
import pytest
from conftest import LOSE, Faults, MakeClient, denied, unreachable

import sluicegate._protocol
from sluicegate import Client, Request, ServiceError, SettledReservation, Unavailable
from sluicegate._protocol import Pause, Protocol


def test_a_retry_after_a_lost_response_is_charged_once(make_client: MakeClient, name: str) -> None:
    faults = Faults(LOSE)
    with make_client(transport=faults, on_unavailable="raise") as client:
        assert client.check("test", {"user": name}).remaining == 2
        first, second = faults.requests
        assert first.headers["Idempotency-Key"] == second.headers["Idempotency-Key"]
        assert client.check("test", {"user": name}).remaining == 1
        assert faults.requests[2].headers["Idempotency-Key"] != first.headers["Idempotency-Key"]


def test_every_charging_call_survives_a_lost_response(make_client: MakeClient, name: str) -> None:
    faults = Faults()
    with make_client(transport=faults, on_unavailable="raise") as client:

        def losing() -> Client:
            faults.script.append(LOSE)
            return client

        checked = losing().check("test", {"tokens": name}, hits=100)
        assert losing().refund(checked).remaining == 1000
        assert losing().wait("test", {"tokens": name}, hits=100).remaining == 900
        losing().check_many([Request("test", {"tokens": name}, hits=100)])
        held = losing().reserve("test", {"tokens": name}, hits=300)
        assert losing() and held.commit(100).returned == 200
        held = losing().reserve("test", {"tokens": name}, hits=300)
        assert losing() and held.cancel().returned == 300
        assert client.peek("test", {"tokens": name}).remaining == 700


def test_the_key_of_a_refund_is_that_of_its_check(make_client: MakeClient, name: str) -> None:
    faults = Faults()
    with make_client(transport=faults) as client:
        client.refund(client.check("test", {"user": name}, idempotency_key=name))
    check, refund = faults.requests
    assert check.headers["Idempotency-Key"] == refund.headers["Idempotency-Key"] == name
    assert check.content == refund.content


def test_retries_are_bounded(make_client: MakeClient, name: str) -> None:
    faults = Faults(*[LOSE] * 9)
    with make_client(transport=faults, retries=2, on_unavailable="raise") as client:
        with pytest.raises(Unavailable, match="ReadError: the response is lost"):
            client.check("test", {"user": name})
    assert len(faults.requests) == 3


def test_the_policy_is_visible_in_the_decision(make_client: MakeClient) -> None:
    with make_client(unreachable()) as client:
        decision = client.check("test", {"user": "x"})
        assert decision and decision.source == "policy"
        assert isinstance(decision.error, Unavailable)
        assert [bool(one) for one in client.check_many([Request("test", {"user": "x"})] * 2)] == [
            True
        ] * 2
        assert client.refund(decision) is decision
        with client.reserve("test", {"user": "x"}) as held:
            assert held.decision.source == "policy" and held.token is None
            assert held.renew(1).source == "policy"
            assert held.commit(1).source == "policy"
    with make_client(unreachable(), on_unavailable="deny") as client:
        decision = client.check("test", {"user": "x"})
        assert not decision and decision.source == "policy"
        with denied() as raised:
            client.reserve("test", {"user": "x"})
        assert str(raised.value) == "denied: the service is unavailable"
        assert raised.value.retry_after_header is None
    with make_client(unreachable(), on_unavailable="raise") as client:
        with pytest.raises(Unavailable, match="no response: ConnectError"):
            client.check("test", {"user": "x"})


def test_a_lost_settlement_is_visible_and_does_not_raise(
    make_client: MakeClient, name: str
) -> None:
    faults = Faults()
    with make_client(transport=faults) as client:
        held = client.reserve("test", {"tokens": name}, hits=300)
        busy = (503, b'{"error":{"code":"overloaded","message":"too many","context":{}}}')
        faults.script += [busy] * 4
        for result in (held.renew(60), held.commit(100)):
            assert result.source == "policy" and str(result.error) == "too many"


def test_a_service_that_does_not_answer_costs_no_more_than_the_timeout(
    make_client: MakeClient,
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with make_client(url, timeout=0.05, retries=0) as client:
            decision = client.check("test", {"user": "x"})
    assert decision.source == "policy" and "ReadTimeout" in str(decision.error)


@pytest.mark.parametrize("failure", [httpx.ReadTimeout("hung"), httpx.ReadError("lost")])
def test_all_attempts_of_a_waiting_call_share_one_deadline(
    failure: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [100.0]
    monkeypatch.setattr(sluicegate._protocol, "_now", lambda: clock[0])
    monkeypatch.setattr(sluicegate._protocol, "_RETRY_PAUSE", 0.05)
    protocol = Protocol("http://x", timeout=1, retries=3, on_unavailable="allow", token=None)
    is_hung = isinstance(failure, httpx.ReadTimeout)
    for call in (
        protocol.reserve(Request("d", {"k": "v"}), None, 10, False, None),
        protocol.wait(Request("d", {"k": "v"}), 10, False, None),
    ):
        start, attempts = clock[0], 0
        action = next(call)
        with pytest.raises(StopIteration):
            while True:
                if isinstance(action, Pause):
                    clock[0] += action.seconds
                    action = next(call)
                    continue
                assert action.connect_timeout <= 1
                assert clock[0] + action.timeout <= start + 11
                attempts += 1
                clock[0] += action.timeout if is_hung else 4
                action = call.send(failure)
        assert clock[0] - start <= (11 if is_hung else 12.2)
        assert attempts == (1 if is_hung else 3)


def test_connections_are_reused(make_client: MakeClient, name: str) -> None:
    faults = Faults()
    with make_client(transport=faults) as client:
        for _ in range(5):
            client.check("test", {"tokens": name})
    assert len(faults.connections) == 1


def test_operator_calls_never_follow_the_policy(make_client: MakeClient) -> None:
    with make_client(unreachable()) as client, pytest.raises(Unavailable):
        client.inspect("test", {"user": "x"})


@pytest.mark.parametrize("body", [b"", b"hello", b"[]", b"{}", b'{"allowed":true}'])
def test_another_server_is_an_error_with_a_remedy(make_client: MakeClient, body: bytes) -> None:
    with make_client(transport=Faults((200, body))) as client:
        with pytest.raises(ServiceError, match="not a response of Sluicegate.* HTTP address"):
            client.check("test", {"user": "x"})
    with make_client(transport=Faults((404, body))) as client:
        with pytest.raises(ServiceError, match="status 404, not from Sluicegate"):
            client.check("test", {"user": "x"})


def test_errors_as_problems_have_the_same_form(make_client: MakeClient) -> None:
    problem = b'{"status":400,"detail":"line 1","code":"invalid_request","line":1}'
    with make_client(transport=Faults((400, problem))) as client:
        with pytest.raises(ServiceError, match="400 invalid_request: line 1") as raised:
            client.check("test", {"user": "x"})
    assert raised.value.context["line"] == 1


def test_only_operator_calls_carry_the_token(make_client: MakeClient, name: str) -> None:
    faults = Faults()
    with make_client(transport=faults, token="secret") as client:
        client.check("test", {"user": name})
        client.inspect("test", {"user": name})
    assert [r.headers.get("Authorization") for r in faults.requests] == [None, "Bearer secret"]


def test_settings_are_validated() -> None:
    with pytest.raises(ValueError, match="url '127.0.0.1:8080': must begin with http"):
        Client("127.0.0.1:8080")
    with pytest.raises(ValueError, match="on_unavailable 'open': must be 'allow'"):
        Client(on_unavailable="open")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="timeout 0: must be above 0"):
        Client(timeout=0)
    with pytest.raises(ValueError, match="retries -1: must be 0 or more"):
        Client(retries=-1)


def error(status: int, code: str) -> Tuple[int, bytes]:
    return status, json.dumps({"error": {"code": code, "message": "m", "context": {}}}).encode()


def test_a_retry_that_finds_the_reservation_settled_has_settled_it(
    make_client: MakeClient, name: str
) -> None:
    """As behind a load balancer, where the retry reaches a node without the first response."""
    faults = Faults()
    with make_client(transport=faults, on_unavailable="raise") as client:
        held = client.reserve("test", {"tokens": name}, hits=300)
        faults.script += [LOSE, error(410, "settled_reservation")]
        assert held.commit(100).source == "service"
        faults.script += [error(410, "settled_reservation")]
        with pytest.raises(SettledReservation):
            held.commit(100)


def test_a_retry_waits_for_its_first_attempt_to_end(make_client: MakeClient, name: str) -> None:
    in_use = error(409, "idempotency_key_in_use")
    with make_client(transport=Faults(LOSE, in_use), retries=2) as client:
        assert client.wait("test", {"tokens": name}).remaining == 999
    with make_client(transport=Faults(in_use)) as client, pytest.raises(ServiceError, match="409"):
        client.wait("test", {"tokens": name})
