"""Bodies of requests and responses, in JSON."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Callable, Dict, Mapping, Optional, Tuple, TypeVar, Union

from ._errors import ServiceError, SettledReservation, Unavailable, UnknownReservation
from ._types import (
    Decision,
    Descriptor,
    LimitState,
    Request,
    ReturnedHits,
    Settlement,
    Status,
)

T = TypeVar("T")
Json = Dict[str, Any]

_RESERVED_KEYS = frozenset(("entries", "hits", "limit"))


@dataclass(frozen=True)
class Answer:
    """A response."""

    status: int
    body: bytes


Event = Union[Answer, Exception, None]


# === encoding ===


def encode(body: Json) -> bytes:
    return json.dumps(body, separators=(",", ":")).encode()


def millis(seconds: float) -> int:
    return max(round(seconds * 1000), 0)


def ttl_millis(seconds: float) -> int:
    if seconds <= 0:
        raise ValueError(f"ttl {seconds!r}: must be above 0 seconds")
    return max(millis(seconds), 1)


def request_body(request: Request, limits: bool) -> Json:
    body: Json = {
        "domain": request.domain,
        "descriptors": [_descriptor(one) for one in request.descriptors],
    }
    if request.hits is not None:
        body["hits"] = request.hits
    if limits:
        body["limits"] = True
    return body


def _descriptor(descriptor: Descriptor) -> Json:
    pairs = tuple(descriptor.entries)
    body: Json = dict(pairs)  # type: ignore[arg-type]
    if len(body) != len(pairs) or not _RESERVED_KEYS.isdisjoint(body):
        body = {"entries": [{"key": key, "value": value} for key, value in pairs]}
    if descriptor.hits is not None:
        body["hits"] = descriptor.hits
    if descriptor.limit is not None:
        limit = descriptor.limit
        body["limit"] = {"requests_per_unit": limit.requests_per_unit, "unit": limit.unit}
    return body


# === decoding ===


def failure_of(event: Event) -> Unavailable:
    if isinstance(event, Answer):
        return Unavailable(_error_of(event)[2])
    failure = Unavailable(f"no response: {type(event).__name__}: {event}")
    failure.__cause__ = event
    return failure


def parse_answer(path: str, answer: Answer, parse: Callable[[Json], T]) -> T:
    if answer.status >= 500:
        raise failure_of(answer)
    body = _json(answer)
    is_result = answer.status == 200 or (answer.status == 429 and "allowed" in body)
    if is_result:
        try:
            return parse(body)
        except (KeyError, TypeError, AttributeError) as error:
            what = f"{path}: not a response of Sluicegate ({error!r}); is this its HTTP address?"
            raise ServiceError(answer.status, "invalid_response", what, {}) from error
    code, context, message = _error_of(answer)
    kinds = {
        "unknown_reservation": UnknownReservation,
        "settled_reservation": SettledReservation,
    }
    raise kinds.get(code, ServiceError)(answer.status, code, message, context)


def _json(answer: Answer) -> Json:
    try:
        body = json.loads(answer.body)
    except ValueError:
        return {}
    return body if isinstance(body, dict) else {}


def _error_of(answer: Answer) -> Tuple[str, Mapping[str, Any], str]:
    """Code, context and message, of the envelope or of an RFC 9457 problem."""
    body = _json(answer)
    error = body.get("error")
    if isinstance(error, dict):
        return (
            str(error.get("code", "")),
            error.get("context") or {},
            str(error.get("message", "")),
        )
    if "detail" in body:
        return str(body.get("code", "")), body, str(body["detail"])
    excerpt = answer.body[:200].decode(errors="replace")
    return "invalid_response", {}, f"status {answer.status}, not from Sluicegate: {excerpt!r}"


def seconds_of(json: Mapping[str, Any], name: str) -> Optional[float]:
    millis = json.get(name)
    return None if millis is None else millis / 1000


def decision_of(answer: Json) -> Decision:
    return Decision(
        allowed=answer["allowed"],
        source="service",
        statuses=tuple(map(status_of, answer["statuses"])),
        message=(answer.get("error") or {}).get("message"),
        waited=seconds_of(answer, "waited_ms"),
        reservation=answer.get("reservation"),
    )


def status_of(json: Json) -> Status:
    return Status(
        allowed=json["allowed"],
        rule=json.get("rule"),
        limit=json.get("limit"),
        quota=json.get("quota"),
        remaining=json.get("remaining"),
        reset_after=seconds_of(json, "reset_after_ms"),
        retry_after=seconds_of(json, "retry_after_ms"),
        estimated=json.get("estimated", False),
        max_cost=json.get("max_cost"),
        reason=json.get("reason"),
        wait=seconds_of(json, "wait_ms"),
        limits=limits_of(json),
        returned=tuple(
            ReturnedHits(one["limit"], one["hits"]) for one in json.get("returned") or ()
        ),
        raw=json,
    )


def limits_of(json: Json) -> Tuple[LimitState, ...]:
    return tuple(map(_limit, json.get("limits") or ()))


def _limit(json: Json) -> LimitState:
    return LimitState(
        limit=json["limit"],
        allowed=json.get("allowed"),
        algorithm=json.get("algorithm"),
        quota=json.get("quota"),
        window=seconds_of(json, "window_ms"),
        remaining=json.get("remaining"),
        reset_after=seconds_of(json, "reset_after_ms"),
        retry_after=seconds_of(json, "retry_after_ms"),
        enforced=json.get("enforced", True),
    )


def settlement_of(answer: Json) -> Settlement:
    return Settlement(
        source="service",
        returned=answer.get("returned", 0),
        held=answer.get("held", 0),
        statuses=tuple(map(status_of, answer.get("statuses") or ())),
    )
