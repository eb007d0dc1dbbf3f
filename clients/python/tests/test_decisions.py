"""Checks, peeks, refunds, waits, batches and operator calls."""

from __future__ import annotations

import pytest

from sluicegate import (
    Client,
    Decision,
    Denied,
    Descriptor,
    LimitOverride,
    Request,
    ServiceError,
    Status,
)


def test_a_check_is_charged_until_it_is_denied(client: Client, name: str) -> None:
    for left in (2, 1, 0):
        decision = client.check("test", {"user": name})
        assert decision and decision.source == "service"
        assert (decision.limit, decision.remaining) == ("calls", left)
        assert decision.retry_after is None
    decision = client.check("test", {"user": name})
    assert not decision
    assert decision.retry_after is not None and 0 < decision.retry_after <= 86400 / 3
    with pytest.raises(Denied, match="denied by `calls`: retry after") as raised:
        decision.or_raise()
    assert raised.value.retry_after == decision.retry_after
    assert decision.message == "Request quota exceeded. Wait 8 hours and try again."
    assert client.peek("test", {"user": f"{name}-other"}).message is None


def test_a_cost_that_never_passes_has_no_retry_after(client: Client, name: str) -> None:
    decision = client.check("test", {"user": name}, hits=4)
    assert not decision and decision.retry_after is None
    assert decision.statuses[0].max_cost == 3
    with pytest.raises(Denied, match="waiting does not help") as raised:
        decision.or_raise()
    assert raised.value.retry_after_header is None


def test_a_retry_after_header_has_whole_seconds() -> None:
    for retry_after, header in [(0.001, "1"), (2.0, "2"), (2.1, "3")]:
        status = Status(False, retry_after=retry_after)
        assert Denied(Decision(False, "service", (status,))).retry_after_header == header


def test_costs_of_descriptors_and_keys_that_are_fields(client: Client, name: str) -> None:
    decision = client.check("test", {"tokens": name}, Descriptor({"hits": name}, hits=4), hits=100)
    assert [s.remaining for s in decision.statuses] == [900, 6]


def test_a_limit_override(client: Client, name: str) -> None:
    one = Descriptor([("tenant", name)], limit=LimitOverride(5, "day"))
    decision = client.check("test", one)
    assert (decision.limit, decision.remaining) == ("override", 4)


def test_a_peek_charges_nothing(client: Client, name: str) -> None:
    for _ in range(2):
        assert client.peek("test", {"user": name}, hits=3)
    assert not client.peek("test", {"user": name}, hits=4)


def test_a_refund_needs_only_the_decision(client: Client, name: str) -> None:
    decision = client.check("test", {"user": name}, hits=3)
    assert client.refund(decision).remaining == 3
    with pytest.raises(ValueError, match="only an admitted check"):
        client.refund(client.peek("test", {"user": name}))


def test_a_wait_ends_when_the_quota_is_back(client: Client, name: str) -> None:
    assert client.wait("test", {"fast": name}).waited == 0
    decision = client.wait("test", {"fast": name})
    assert decision and decision.waited is not None


def test_a_wait_that_would_take_too_long_is_denied_at_once(client: Client, name: str) -> None:
    client.check("test", {"user": name}, hits=3)
    assert not client.wait("test", {"user": name}, timeout=1)


def test_a_batch_is_decided_one_by_one(client: Client, name: str) -> None:
    requests = [Request("test", {"user": name}, hits=hits) for hits in (2, 2, 1)]
    decisions = client.check_many(requests)
    assert [bool(one) for one in decisions] == [True, False, True]


def test_usage_and_reset(client: Client, name: str) -> None:
    client.check("test", {"tokens": name}, hits=10)
    (state,) = client.inspect("test", {"tokens": name})
    assert state.rule == "test/tokens"
    assert [(one.limit, one.quota, one.used) for one in state.limits] == [
        ("minute", 1000, 10),
        ("day", 5000, 10),
    ]
    client.reset("test", {"tokens": name})
    (state,) = client.inspect("test", {"tokens": name})
    assert [one.used for one in state.limits] == [0, 0]


def test_an_explanation(client: Client, name: str) -> None:
    explanation = client.explain("test", {"user": name}, hits=4)
    assert not explanation.allowed and "test/user" in explanation.why
    assert explanation.hint is None
    assert "`test`" in str(client.explain("tets", {"user": name}).hint)


def test_a_mistyped_key_is_named(client: Client, name: str) -> None:
    (status,) = client.check("test", {"usr": name}).statuses
    assert (status.rule, status.reason) == (None, "no_rule")
    assert client.check("tets", {"user": name}).statuses[0].reason == "no_domain"
    assert client.check("test", {"user": name}).statuses[0].reason is None
    assert "`user`" in str(client.explain("test", {"usr": name}).hint)
    (state,) = client.inspect("test", {"usr": name})
    assert (state.rule, state.reason, state.limits) == (None, "no_rule", ())


def test_an_invalid_request_is_an_error_and_not_a_denial(client: Client) -> None:
    with pytest.raises(ServiceError, match=r"400 invalid_request: .*must be a string") as raised:
        client.check("test", {"user": 42})  # type: ignore[dict-item]
    assert raised.value.context["field"] == "descriptors[0].user"
    with pytest.raises(ServiceError, match="more than"):
        client.check_many([Request("test", {"user": "x"})] * 1001)
