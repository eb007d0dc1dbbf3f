"""The protocol without I/O, shared by both clients.

An exchange is a generator: it yields actions (`Send` a request, `Pause` before a retry), receives
the `Answer` or the failure, and returns the result. A client only performs the actions.
"""

from __future__ import annotations

import random
import time
import uuid
from dataclasses import dataclass, replace
from typing import (
    Callable,
    Generator,
    Iterable,
    Literal,
    Mapping,
    Optional,
    Tuple,
    TypeVar,
    Union,
)

from ._errors import Denied, ServiceError, SettledReservation, Unavailable
from ._types import Credit, Decision, Explanation, KeyState, Renewal, Request, Settlement
from ._wire import (
    Answer,
    Event,
    Json,
    decision_of,
    encode,
    failure_of,
    limits_of,
    millis,
    parse_answer,
    request_body,
    seconds_of,
    settlement_of,
    status_of,
    ttl_millis,
)

T = TypeVar("T")
UnavailablePolicy = Literal["allow", "deny", "raise"]

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


Action = Union[Send, Pause]
Exchange = Generator[Action, Event, T]


@dataclass(frozen=True)
class Issued:
    """An admitted reservation; the token is `None` if the policy admitted it."""

    token: Optional[str]
    expires_after: Optional[float]
    decision: Decision
    request: Optional[Request] = None


@dataclass(frozen=True)
class UnconfirmedCommit:
    """A commit without a response. It is sent again under its key, so that it is charged once."""

    hits: int
    partial: bool
    key: str


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
        """Whether a renewal found it expired: what it held is released, and a commit within a day
        is charged in full."""
        self.committed = 0
        """Hits of `commit_total` that the service has confirmed."""
        self.request = issued.request
        self.unconfirmed: Optional[UnconfirmedCommit] = None


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
        proof = (key or _new_key(), encode(request_body(request, limits)))

        def parse(answer: Json) -> Decision:
            decision = decision_of(answer)
            return replace(decision, proof=proof) if decision.allowed else decision

        return self._decide("/v1/check", proof[1], parse, self._policy, key=proof[0])

    def check_many(
        self, requests: Iterable[Request], limits: bool, key: Optional[str]
    ) -> Exchange[Tuple[Decision, ...]]:
        checks = [request_body(one, limits) for one in requests]

        def parse(answer: Json) -> Tuple[Decision, ...]:
            return tuple(map(decision_of, answer["answers"]))

        def policy(error: Unavailable) -> Tuple[Decision, ...]:
            return (self._policy(error),) * len(checks)

        body = encode({"checks": checks})
        return self._decide("/v1/check", body, parse, policy, key=key or _new_key())

    def peek(self, request: Request, limits: bool) -> Exchange[Decision]:
        body = encode(request_body(request, limits))
        return self._decide("/v1/peek", body, decision_of, self._policy)

    def refund(self, decision: Decision) -> Exchange[Decision]:
        if decision.source == "policy":
            return _finished(decision)
        if decision.proof is None:
            raise ValueError("only an admitted check can be refunded; cancel a reservation instead")
        key, body = decision.proof
        return self._decide("/v1/refund", body, decision_of, self._policy, key=key)

    def wait(
        self, request: Request, timeout: float, limits: bool, key: Optional[str]
    ) -> Exchange[Decision]:
        body = encode({**request_body(request, limits), "timeout_ms": millis(timeout)})
        key = key or _new_key()
        return self._decide("/v1/wait", body, decision_of, self._policy, key=key, wait=timeout)

    # === reservations ===

    def reserve(
        self,
        request: Request,
        ttl: Optional[float],
        wait: Optional[float],
        limits: bool,
        key: Optional[str],
    ) -> Exchange[Issued]:
        body = request_body(request, limits)
        if ttl is not None:
            body["ttl_ms"] = ttl_millis(ttl)
        if wait is not None:
            body["timeout_ms"] = millis(wait)

        def parse(answer: Json) -> Issued:
            decision = decision_of(answer).or_raise()
            expires_after = seconds_of(answer, "expires_after_ms")
            return Issued(answer["reservation"], expires_after, decision, request)

        def policy(error: Unavailable) -> Issued:
            return Issued(None, None, self._policy(error).or_raise(), request)

        return self._decide(
            "/v1/reserve",
            encode(body),
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

    def commit_total(
        self, held: ReservationState, used: int, partial: bool
    ) -> Exchange[Settlement]:
        """Commits what was used since the last confirmed commit, after an unconfirmed one."""
        if used < 0:
            raise ValueError(f"used {used!r}: must be 0 or more")
        return self._commit_total(held, used, partial)

    def _commit_total(
        self, held: ReservationState, used: int, partial: bool
    ) -> Exchange[Settlement]:
        earlier = held.unconfirmed
        if earlier is not None:
            settlement = yield from self._confirm(held, earlier)
            is_done = not earlier.partial and used <= held.committed
            if settlement.source == "policy" or is_done:
                return settlement
        hits = max(used - held.committed, 0)
        if hits == 0 and held.is_settled:
            return Settlement("service")
        return (yield from self._confirm(held, UnconfirmedCommit(hits, partial, _new_key())))

    def release(self, held: ReservationState) -> Exchange[None]:
        """Releases what was not committed, after an unconfirmed commit."""
        is_away = False
        if held.unconfirmed is not None:
            settlement = yield from self._confirm(held, held.unconfirmed)
            is_away = settlement.source == "policy"
        if not is_away:
            yield from self.cancel(held.token, None)
        held.is_settled = True

    def _confirm(self, held: ReservationState, commit: UnconfirmedCommit) -> Exchange[Settlement]:
        """Commits; charges anew if the service has no such reservation: after a restart without a
        snapshot, or for a call that the policy admitted."""
        is_repeated = held.unconfirmed is commit
        held.unconfirmed = commit
        token, hits, is_final = held.token, commit.hits, not commit.partial
        try:
            settlement = yield from self.commit(token, hits, commit.partial, commit.key)
        except SettledReservation as error:
            is_ours = is_final and is_repeated and error.reason in ("committed", "unknown")
            if is_ours:
                settlement = Settlement("service")
            elif error.reason == "unknown" and held.request is not None:
                token = None
            else:
                held.unconfirmed = None
                raise
        if token is None and held.request is not None:
            settlement = yield from self._commit_anew(held, held.request, commit)
        if settlement.source == "service":
            held.unconfirmed = None
            held.committed += hits
        # A final commit without a response is not followed by a cancellation.
        held.is_settled = is_final
        return settlement

    def _commit_anew(
        self, held: ReservationState, request: Request, commit: UnconfirmedCommit
    ) -> Exchange[Settlement]:
        """Reserves nothing, which is admitted even in debt, and commits to that."""
        # Those with a cost of their own, such as slots, have nothing to commit.
        shared = [one for one in request.descriptors if one.hits is None]
        if not shared:
            return Settlement("service")
        nothing = Request(request.domain, *shared, hits=0)
        try:
            issued = yield from self.reserve(nothing, None, None, False, None)
        except Denied as denied:
            return Settlement("policy", error=denied)
        if issued.token is None:
            return Settlement("policy", error=issued.decision.error)
        held.token = issued.token
        return (yield from self.commit(held.token, commit.hits, commit.partial, commit.key))

    def renew(self, held: ReservationState, ttl: float) -> Exchange[Renewal]:
        if held.token is None:
            return _finished(Renewal("policy"))
        return self._renew(held, encode({"reservation": held.token, "ttl_ms": ttl_millis(ttl)}))

    def _renew(self, held: ReservationState, body: bytes) -> Exchange[Renewal]:

        def parse(answer: Json) -> Renewal:
            return Renewal("service", seconds_of(answer, "expires_after_ms"))

        def policy(error: Unavailable) -> Renewal:
            return Renewal("policy", error=error)

        try:
            renewal = yield from self._decide("/v1/renew", body, parse, policy)
        except SettledReservation as error:
            held.is_expired = error.reason == "expired"
            raise
        held.expires_after = renewal.expires_after or held.expires_after
        return renewal

    def auto_renew(self, held: ReservationState, ttl: Optional[float]) -> Exchange[None]:
        """Renews a reservation three times per lifetime, until it has expired or is settled."""
        if ttl is None:
            ttl = held.expires_after or _DEFAULT_TTL
        ttl_millis(ttl)
        return self._auto_renew(held, ttl)

    def _auto_renew(self, held: ReservationState, ttl: float) -> Exchange[None]:
        while held.token is not None:
            # The lease of a slot may be shorter.
            yield Pause(min(ttl, held.expires_after or ttl) / 3)
            if held.is_settled:
                return
            try:
                yield from self.renew(held, ttl)
            except Unavailable:
                pass  # The next one may be in time.
            except ServiceError:
                return

    def _settle(
        self, path: str, token: Optional[str], body: Json, key: Optional[str], is_final: bool
    ) -> Exchange[Settlement]:
        if token is None:
            return _finished(Settlement("policy"))

        def policy(error: Unavailable) -> Settlement:
            return Settlement("policy", error=error)

        encoded = encode(body)
        return self._decide(
            path, encoded, settlement_of, policy, key=key or _new_key(), settles=is_final
        )

    # === operators ===

    def inspect(self, request: Request) -> Exchange[Tuple[KeyState, ...]]:
        def parse(answer: Json) -> Tuple[KeyState, ...]:
            keys = answer["keys"]
            return tuple(KeyState(k.get("rule"), limits_of(k), k.get("reason")) for k in keys)

        return self._operate("/v1/keys/inspect", request, parse)

    def explain(self, request: Request) -> Exchange[Explanation]:
        def parse(answer: Json) -> Explanation:
            return Explanation(answer["allowed"], answer["why"], answer.get("hint"), answer)

        return self._operate("/v1/explain", request, parse)

    def reset(self, request: Request) -> Exchange[Decision]:
        return self._operate("/v1/keys/reset", request, decision_of)

    def credit(self, request: Request, key: Optional[str]) -> Exchange[Credit]:
        def parse(answer: Json) -> Credit:
            return Credit(answer["allowed"], tuple(map(status_of, answer["statuses"])))

        return self._operate("/v1/keys/credit", request, parse, key or _new_key())

    def _operate(
        self,
        path: str,
        request: Request,
        parse: Callable[[Json], T],
        key: Optional[str] = None,
    ) -> Exchange[T]:
        body = encode(request_body(request, limits=False))
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
                    return parse_answer(send.path, event, parse)
            elif is_last:
                raise failure_of(event)
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
