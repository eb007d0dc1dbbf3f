"""Bodies and responses as the service defines them, without a service."""

from __future__ import annotations

import json
from typing import Any, Callable, Tuple

import pytest
from conftest import Faults, MakeClient

from sluicegate import Client, Reservation

STATUS = {"allowed": True, "limit": "day", "remaining": 5, "quota": 9}
DECISION = {"allowed": True, "statuses": [STATUS]}
CASES: list[Tuple[Callable[[Client, Reservation], object], str, Any, Any, object]] = [
    (
        lambda client, held: (
            client.reserve("d", {"k": "v"}, hits=8, ttl=30, wait=2.5).expires_after
        ),
        "/v1/reserve",
        {
            "domain": "d",
            "descriptors": [{"k": "v"}],
            "hits": 8,
            "ttl_ms": 30000,
            "timeout_ms": 2500,
        },
        {**DECISION, "reservation": "t", "expires_after_ms": 30000},
        30,
    ),
    (
        lambda client, held: held.commit(3, partial=True).held,
        "/v1/commit",
        {"reservation": "t", "hits": 3, "partial": True},
        {"returned": 0, "held": 5, "statuses": [STATUS]},
        5,
    ),
    (
        lambda client, held: held.commit(3).returned,
        "/v1/commit",
        {"reservation": "t", "hits": 3},
        {"returned": 5, "statuses": [STATUS]},
        5,
    ),
    (
        lambda client, held: held.renew(60).expires_after,
        "/v1/renew",
        {"reservation": "t", "ttl_ms": 60000},
        {"expires_after_ms": 60000},
        60,
    ),
    (
        lambda client, held: client.credit("d", {"k": "v"}, hits=100).statuses[0].remaining,
        "/v1/keys/credit",
        {"domain": "d", "descriptors": [{"k": "v"}], "hits": 100},
        DECISION,
        5,
    ),
    (
        lambda client, held: client.check("d", {"k": "v"}, limits=True).statuses[0].limits[0].used,
        "/v1/check",
        {"domain": "d", "descriptors": [{"k": "v"}], "limits": True},
        {"allowed": True, "statuses": [{**STATUS, "limits": [STATUS]}]},
        4,
    ),
]


@pytest.mark.parametrize("call,path,body,answer,result", CASES)
def test_the_form_of_calls(
    make_client: MakeClient,
    call: Callable[[Client, Reservation], object],
    path: str,
    body: Any,
    answer: Any,
    result: object,
) -> None:
    faults = Faults((200, json.dumps(answer).encode()))
    with make_client(transport=faults) as client:
        assert call(client, client.reservation("t")) == result
    (request,) = faults.requests
    assert (request.url.path, json.loads(request.content)) == (path, body)
