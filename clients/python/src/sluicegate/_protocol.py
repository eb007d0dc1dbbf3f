"""The protocol without I/O, shared by both clients.

An exchange is a generator: it yields actions (`Send` a request, `Pause` before a retry), receives
the `Answer` or the failure, and returns the result. A client only performs the actions.
"""

from __future__ import annotations

import json
import random
import time
import uuid
from dataclasses import dataclass, replace
from typing import (
    Any,
    Callable,
    Dict,
    Generator,
    Iterable,
    Literal,
    Mapping,
    Optional,
    Tuple,
    TypeVar,
    Union,
)

from ._errors import (
    ServiceError,
    SettledReservation,
    Unavailable,
    UnknownReservation,
)
from ._types import (
    Decision,
    Descriptor,
    Explanation,
    KeyState,
    LimitState,
    Renewal,
    Request,
    ReturnedHits,
    Settlement,
    Status,
)

T = TypeVar("T")
Json = Dict[str, Any]
UnavailablePolicy = Literal["allow", "deny", "raise"]

_RESERVED_KEYS = frozenset(("entries", "hits", "limit"))
_RETRIED = frozenset((502, 503, 504))
_RETRY_PAUSE = 0.05
_DEFAULT_TTL = 60.0
_now = time.monotonic


@dataclass(frozen=True)
class Send:
    """A POST request, and the time to wait for a connection and for its response."""

    path: str
    body: bytes
    headers: Mapping[str, str]
    timeout: float
    connect_timeout: float


@dataclass(frozen=True)
class Pause:
    """A delay, in seconds."""

    seconds: float


@dataclass(frozen=True)
class Answer:
    """A response."""

    status: int
    body: bytes


Action = Union[Send, Pause]
Event = Union[Answer, Exception, None]
Exchange = Generator[Action, Event, T]


@dataclass(frozen=True)
class Issued:
    """An admitted reservation; the token is `None` if the policy admitted it."""

    token: Optional[str]
    expires_after: Optional[float]
    decision: Decision


class ReservationState:
    """What both kinds of reservations know."""

    def __init__(self, issued: Issued) -> None:
        self.token = issued.token
        """Its name, for another process; `None` if the policy admitted it."""
        self.expires_after = issued.expires_after
        """Seconds after which the service releases it, unless it is renewed."""
        self.decision = issued.decision
        self.is_settled = False
        self.is_expired = False
        """Whether `auto_renew` found it expired: what it held is released, and a commit within a
        day is charged in full."""


class Protocol:
    """Builds exchanges from the settings of a client."""

    def __init__(
        self,
        url: str,
        *,
        timeout: float,
        retries: int,
        on_unavailable: UnavailablePolicy,
        token: Optional[str],
    ) -> None:
        if not url.startswith(("http://", "https://")):
            raise ValueError(f"url {url!r}: must begin with http:// or https://")
        if on_unavailable not in ("allow", "deny", "raise"):
            raise ValueError(
                f"on_unavailable {on_unavailable!r}: must be 'allow', 'deny' or 'raise'"
            )
        if timeout <= 0:
            raise ValueError(f"timeout {timeout!r}: must be above 0 seconds")
        if retries < 0:
            raise ValueError(f"retries {retries!r}: must be 0 or more")
        self.url = url.rstrip("/")
        self.timeout = timeout
        self.retries = retries
        self.on_unavailable = on_unavailable
        self.longest = (retries + 1) * timeout + 2**retries * _RETRY_PAUSE
        """Upper bound of a call that does not wait, in seconds."""
        self._operator = {"Authorization": f"Bearer {token}"} if token else {}

    # === decisions ===

    def check(self, request: Request, limits: bool, key: Optional[str]) -> Exchange[Decision]:
        proof = (key or _new_key(), _encode(_request(request, limits)))

        def parse(answer: Json) -> Decision:
            decision = _decision(answer)
            return replace(decision, proof=proof) if decision.allowed else decision

        return self._decide("/v1/check", proof[1], parse, self._policy, key=proof[0])

    def check_many(
        self, requests: Iterable[Request], limits: bool, key: Optional[str]
    ) -> Exchange[Tuple[Decision, ...]]:
        checks = [_request(one, limits) for one in requests]

        def parse(answer: Json) -> Tuple[Decision, ...]:
            return tuple(map(_decision, answer["answers"]))

        def policy(error: Unavailable) -> Tuple[Decision, ...]:
            return (self._policy(error),) * len(checks)

        body = _encode({"checks": checks})
        return self._decide("/v1/check", body, parse, policy, key=key or _new_key())

    def peek(self, request: Request, limits: bool) -> Exchange[Decision]:
        body = _encode(_request(request, limits))
        return self._decide("/v1/peek", body, _decision, self._policy)

    def refund(self, decision: Decision) -> Exchange[Decision]:
        if decision.source == "policy":
            return _finished(decision)
        if decision.proof is None:
            raise ValueError("only an admitted check can be refunded; cancel a reservation instead")
        key, body = decision.proof
        return self._decide("/v1/refund", body, _decision, self._policy, key=key)

    def wait(
        self, request: Request, timeout: float, limits: bool, key: Optional[str]
    ) -> Exchange[Decision]:
        body = _encode({**_request(request, limits), "timeout_ms": _millis(timeout)})
        key = key or _new_key()
        return self._decide("/v1/wait", body, _decision, self._policy, key=key, wait=timeout)

    # === reservations ===

    def reserve(
        self,
        request: Request,
        ttl: Optional[float],
        wait: Optional[float],
        limits: bool,
        key: Optional[str],
    ) -> Exchange[Issued]:
        body = _request(request, limits)
        if ttl is not None:
            body["ttl_ms"] = max(_millis(ttl), 1)
        if wait is not None:
            body["timeout_ms"] = _millis(wait)

        def parse(answer: Json) -> Issued:
            decision = _decision(answer).or_raise()
            return Issued(answer["reservation"], _seconds(answer, "expires_after_ms"), decision)

        def policy(error: Unavailable) -> Issued:
            return Issued(None, None, self._policy(error).or_raise())

        return self._decide(
            "/v1/reserve",
            _encode(body),
            parse,
            policy,
            key=key or _new_key(),
            wait=wait,
        )

    def commit(
        self, token: Optional[str], hits: int, partial: bool, key: Optional[str]
    ) -> Exchange[Settlement]:
        body: Json = {"reservation": token, "hits": hits}
        if partial:
            body["partial"] = True
        return self._settle("/v1/commit", token, body, key, is_final=not partial)

    def cancel(self, token: Optional[str], key: Optional[str]) -> Exchange[Settlement]:
        return self._settle("/v1/cancel", token, {"reservation": token}, key, is_final=True)

    def renew(self, token: Optional[str], ttl: float) -> Exchange[Renewal]:
        if token is None:
            return _finished(Renewal("policy"))
        body = _encode({"reservation": token, "ttl_ms": max(_millis(ttl), 1)})

        def parse(answer: Json) -> Renewal:
            return Renewal("service", _seconds(answer, "expires_after_ms"))

        def policy(error: Unavailable) -> Renewal:
            return Renewal("policy", error=error)

        return self._decide("/v1/renew", body, parse, policy)

    def auto_renew(self, held: ReservationState, ttl: Optional[float]) -> Exchange[None]:
        """Renews a reservation three times per lifetime, until it has expired or is settled."""
        if ttl is None:
            ttl = held.expires_after or _DEFAULT_TTL
        elif ttl <= 0:
            raise ValueError(f"ttl {ttl!r}: must be above 0 seconds")
        return self._auto_renew(held, ttl)

    def _auto_renew(self, held: ReservationState, ttl: float) -> Exchange[None]:
        while held.token is not None:
            # The lease of a slot may be shorter.
            yield Pause(min(ttl, held.expires_after or ttl) / 3)
            if held.is_settled:
                return
            try:
                renewal = yield from self.renew(held.token, ttl)
                held.expires_after = renewal.expires_after or held.expires_after
            except Unavailable:
                pass  # The next one may be in time.
            except ServiceError as error:
                held.is_expired = not held.is_settled and error.status == 410
                return

    def _settle(
        self, path: str, token: Optional[str], body: Json, key: Optional[str], is_final: bool
    ) -> Exchange[Settlement]:
        if token is None:
            return _finished(Settlement("policy"))

        def policy(error: Unavailable) -> Settlement:
            return Settlement("policy", error=error)

        encoded = _encode(body)
        return self._decide(
            path, encoded, _settlement, policy, key=key or _new_key(), settles=is_final
        )

    # === operators ===

    def inspect(self, request: Request) -> Exchange[Tuple[KeyState, ...]]:
        def parse(answer: Json) -> Tuple[KeyState, ...]:
            return tuple(KeyState(k.get("rule"), _limits(k)) for k in answer["keys"])

        return self._operate("/v1/keys/inspect", request, parse)

    def explain(self, request: Request) -> Exchange[Explanation]:
        def parse(answer: Json) -> Explanation:
            return Explanation(answer["allowed"], answer["why"], answer.get("hint"), answer)

        return self._operate("/v1/explain", request, parse)

    def reset(self, request: Request) -> Exchange[Decision]:
        return self._operate("/v1/keys/reset", request, _decision)

    def credit(self, request: Request, key: Optional[str]) -> Exchange[Decision]:
        return self._operate("/v1/keys/credit", request, _decision, key or _new_key())

    def _operate(
        self,
        path: str,
        request: Request,
        parse: Callable[[Json], T],
        key: Optional[str] = None,
    ) -> Exchange[T]:
        body = _encode(_request(request, limits=False))
        return self._exchange(self._send(path, body, self._headers(key, True)), parse)

    # === exchanges ===

    def _policy(self, error: Unavailable) -> Decision:
        return Decision(self.on_unavailable == "allow", "policy", error=error)

    def _decide(
        self,
        path: str,
        body: bytes,
        parse: Callable[[Json], T],
        policy: Callable[[Unavailable], T],
        key: Optional[str] = None,
        wait: Optional[float] = None,
        settles: bool = False,
    ) -> Exchange[T]:
        """An exchange that the policy finishes if the service is unavailable."""
        send = self._send(path, body, self._headers(key, False))
        deadline = None if wait is None else _now() + wait + self.timeout
        try:
            return (yield from self._exchange(send, parse, settles, deadline))
        except Unavailable as error:
            if self.on_unavailable == "raise":
                raise
            return policy(error)

    def _send(self, path: str, body: bytes, headers: Mapping[str, str]) -> Send:
        return Send(path, body, headers, self.timeout, self.timeout)

    def _exchange(
        self,
        send: Send,
        parse: Callable[[Json], T],
        settles: bool = False,
        deadline: Optional[float] = None,
    ) -> Exchange[T]:
        """Sends a request, and sends it again if there is no response. With a deadline, all
        attempts together end by then."""
        for attempt in range(self.retries + 1):
            if deadline is not None:
                send = _within(send, deadline - _now())
            event = yield send
            pause = _RETRY_PAUSE * 2**attempt
            is_late = deadline is not None and deadline - _now() <= pause
            is_last, is_retry = is_late or attempt == self.retries, attempt > 0
            if isinstance(event, Answer) and event.status not in _RETRIED:
                # The reservation was settled by the attempt without a response.
                if settles and is_retry and event.status == 410:
                    return parse({})
                # The service has not noticed yet that the connection of that attempt is closed.
                is_in_progress = is_retry and event.status == 409
                if is_last or not is_in_progress:
                    return _parse(send.path, event, parse)
            elif is_last:
                raise _failure(event)
            yield Pause(pause * random.uniform(0.5, 1.0))
        raise AssertionError("the last attempt returns or raises")

    def _headers(self, key: Optional[str], is_operator: bool) -> Mapping[str, str]:
        headers = {"Content-Type": "application/json"}
        if key is not None:
            headers["Idempotency-Key"] = key
        if is_operator:
            headers.update(self._operator)
        return headers


def _finished(result: T) -> Exchange[T]:
    """An exchange without a request."""
    return result
    yield  # a generator


def _within(send: Send, seconds: float) -> Send:
    """The request with so much time left."""
    return replace(send, timeout=seconds, connect_timeout=min(seconds, send.connect_timeout))


def _new_key() -> str:
    return uuid.uuid4().hex


# === encoding ===


def _encode(body: Json) -> bytes:
    return json.dumps(body, separators=(",", ":")).encode()


def _millis(seconds: float) -> int:
    return max(round(seconds * 1000), 0)


def _request(request: Request, limits: bool) -> Json:
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


def _failure(event: Event) -> Unavailable:
    if isinstance(event, Answer):
        return Unavailable(_error_of(event)[2])
    failure = Unavailable(f"no response: {type(event).__name__}: {event}")
    failure.__cause__ = event
    return failure


def _parse(path: str, answer: Answer, parse: Callable[[Json], T]) -> T:
    if answer.status >= 500:
        raise _failure(answer)
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


def _seconds(json: Mapping[str, Any], name: str) -> Optional[float]:
    millis = json.get(name)
    return None if millis is None else millis / 1000


def _decision(answer: Json) -> Decision:
    return Decision(
        allowed=answer["allowed"],
        source="service",
        statuses=tuple(map(_status, answer["statuses"])),
        message=(answer.get("error") or {}).get("message"),
        waited=_seconds(answer, "waited_ms"),
        reservation=answer.get("reservation"),
    )


def _status(json: Json) -> Status:
    return Status(
        allowed=json["allowed"],
        rule=json.get("rule"),
        limit=json.get("limit"),
        quota=json.get("quota"),
        remaining=json.get("remaining"),
        reset_after=_seconds(json, "reset_after_ms"),
        retry_after=_seconds(json, "retry_after_ms"),
        estimated=json.get("estimated", False),
        max_cost=json.get("max_cost"),
        reason=json.get("reason"),
        wait=_seconds(json, "wait_ms"),
        limits=_limits(json),
        returned=tuple(
            ReturnedHits(one["limit"], one["hits"]) for one in json.get("returned") or ()
        ),
        raw=json,
    )


def _limits(json: Json) -> Tuple[LimitState, ...]:
    return tuple(map(_limit, json.get("limits") or ()))


def _limit(json: Json) -> LimitState:
    return LimitState(
        limit=json["limit"],
        allowed=json["allowed"],
        algorithm=json.get("algorithm"),
        quota=json.get("quota"),
        window=_seconds(json, "window_ms"),
        remaining=json.get("remaining"),
        reset_after=_seconds(json, "reset_after_ms"),
        retry_after=_seconds(json, "retry_after_ms"),
        enforced=json.get("enforced", True),
    )


def _settlement(answer: Json) -> Settlement:
    return Settlement(
        source="service",
        returned=answer.get("returned", 0),
        held=answer.get("held", 0),
        statuses=tuple(map(_status, answer.get("statuses") or ())),
    )
