"""The blocking client."""

from __future__ import annotations

import contextlib
import threading
import time
from types import TracebackType
from typing import Callable, Iterable, Iterator, Optional, Tuple, Type, TypeVar

import httpx

from ._errors import SluicegateError
from ._protocol import (
    Exchange,
    Issued,
    Pause,
    Protocol,
    ReservationState,
    UnavailablePolicy,
)
from ._types import (
    AnyDescriptor,
    Credit,
    Decision,
    Explanation,
    KeyState,
    Renewal,
    Request,
    Settlement,
)
from ._wire import Answer, Event

T = TypeVar("T")


class Client:
    """Client of a Sluicegate service. Threads can share it; it reuses connections.

    - `timeout`: seconds for each attempt of a call. A call with which the service waits (`wait`,
      `reserve` with `wait`) takes at most that time and `timeout`, all attempts together.
    - `retries`: further attempts if there is no response, under the same idempotency key, so that
      a call is charged once.
    - `on_unavailable`: what happens after the last attempt. `"allow"` (the default) and `"deny"`
      decide instead of the service, with `decision.source == "policy"`; `"raise"` raises
      `Unavailable`.
    - `token`: operator token, for `inspect`, `explain`, `reset` and `credit`.
    - `transport`: a transport of httpx, such as one with other pool sizes or TLS settings.
    """

    def __init__(
        self,
        url: str = "http://127.0.0.1:8080",
        *,
        timeout: float = 1.0,
        retries: int = 1,
        on_unavailable: UnavailablePolicy = "allow",
        token: Optional[str] = None,
        transport: Optional[httpx.BaseTransport] = None,
    ) -> None:
        self._protocol = Protocol(
            url, timeout=timeout, retries=retries, on_unavailable=on_unavailable, token=token
        )
        self._http = httpx.Client(base_url=self._protocol.url, transport=transport)

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connections."""
        self._http.close()

    def check(
        self,
        domain: str,
        *descriptors: AnyDescriptor,
        hits: Optional[int] = None,
        limits: bool = False,
        idempotency_key: Optional[str] = None,
    ) -> Decision:
        """Charges the request if all its limits admit it. With `limits`, each status lists all
        limits of its rule."""
        request = Request(domain, *descriptors, hits=hits)
        return self._run(self._protocol.check(request, limits, idempotency_key))

    def check_many(
        self,
        requests: Iterable[Request],
        *,
        limits: bool = False,
        idempotency_key: Optional[str] = None,
    ) -> Tuple[Decision, ...]:
        """Checks up to 1,000 requests, each decided separately, in one call."""
        return self._run(self._protocol.check_many(requests, limits, idempotency_key))

    def peek(
        self,
        domain: str,
        *descriptors: AnyDescriptor,
        hits: Optional[int] = None,
        limits: bool = False,
    ) -> Decision:
        """Decides without charging."""
        request = Request(domain, *descriptors, hits=hits)
        return self._run(self._protocol.peek(request, limits))

    def refund(self, decision: Decision) -> Decision:
        """Returns the cost of an admitted check, once and within ten minutes, at the node that
        answered it. What the policy admitted was not charged, and nothing is returned."""
        return self._run(self._protocol.refund(decision))

    def wait(
        self,
        domain: str,
        *descriptors: AnyDescriptor,
        hits: Optional[int] = None,
        timeout: float = 30.0,
        limits: bool = False,
        idempotency_key: Optional[str] = None,
    ) -> Decision:
        """Charges the request as soon as its limits admit it, in order of arrival. Denied at once
        if that would take longer than `timeout`."""
        request = Request(domain, *descriptors, hits=hits)
        return self._run(self._protocol.wait(request, timeout, limits, idempotency_key))

    def reserve(
        self,
        domain: str,
        *descriptors: AnyDescriptor,
        hits: Optional[int] = None,
        ttl: Optional[float] = None,
        wait: Optional[float] = None,
        limits: bool = False,
        idempotency_key: Optional[str] = None,
    ) -> Reservation:
        """Reserves an estimated cost; raises `Denied` if a limit denies it.

        The reservation expires after `ttl` seconds (60 by default). With `wait`, the service waits
        up to so many seconds until its limits admit it.

            with client.reserve("llm", {"user": "42"}, hits=800) as held:
                held.commit(call_the_model())

        At the end of the block, also by an exception, what was not committed is released.
        """
        request = Request(domain, *descriptors, hits=hits)
        exchange = self._protocol.reserve(request, ttl, wait, limits, idempotency_key)
        return Reservation(self, self._run(exchange))

    def reservation(self, token: str) -> Reservation:
        """A reservation by its token, such as that of another process or of `wait`."""
        decision = Decision(True, "service", reservation=token)
        return Reservation(self, Issued(token, None, decision))

    def inspect(self, domain: str, *descriptors: AnyDescriptor) -> Tuple[KeyState, ...]:
        """State of every limit of each descriptor (operators only)."""
        return self._run(self._protocol.inspect(Request(domain, *descriptors)))

    def explain(
        self, domain: str, *descriptors: AnyDescriptor, hits: Optional[int] = None
    ) -> Explanation:
        """The rules of a request, the decision, and its reason (operators only)."""
        return self._run(self._protocol.explain(Request(domain, *descriptors, hits=hits)))

    def reset(self, domain: str, *descriptors: AnyDescriptor) -> Decision:
        """Resets the limits of each descriptor (operators only)."""
        return self._run(self._protocol.reset(Request(domain, *descriptors)))

    def credit(
        self,
        domain: str,
        *descriptors: AnyDescriptor,
        hits: int,
        idempotency_key: Optional[str] = None,
    ) -> Credit:
        """Gives hits back without a charge: a top-up (operators only). The result is true, also
        while debt remains; `allowed_now` says whether a check of one hit would pass."""
        request = Request(domain, *descriptors, hits=hits)
        return self._run(self._protocol.credit(request, idempotency_key))

    def _run(self, exchange: Exchange[T], sleep: Callable[[float], object] = time.sleep) -> T:
        event: Event = None
        while True:
            try:
                action = exchange.send(event)
            except StopIteration as end:
                result: T = end.value
                return result
            if isinstance(action, Pause):
                sleep(action.seconds)
                event = None
                continue
            try:
                response = self._http.post(
                    action.path,
                    content=action.body,
                    headers=action.headers,
                    timeout=httpx.Timeout(action.timeout, connect=action.connect_timeout),
                )
                event = Answer(response.status_code, response.content)
            except httpx.TransportError as error:
                event = error


class Reservation(ReservationState):
    """A reserved cost. As a context manager, it releases at the end what was not committed."""

    def __init__(self, client: Client, issued: Issued) -> None:
        super().__init__(issued)
        self._client = client

    def __enter__(self) -> Reservation:
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        if not self.is_settled:
            try:
                self._client._run(self._client._protocol.release(self))
            except SluicegateError:
                pass  # It expires.

    def commit(
        self, hits: int, *, partial: bool = False, idempotency_key: Optional[str] = None
    ) -> Settlement:
        """Charges the actual cost, and releases the rest or charges the excess. With `partial`,
        the rest stays reserved, and the next commit counts what was used since this one."""
        protocol = self._client._protocol
        settled = self._client._run(protocol.commit(self.token, hits, partial, idempotency_key))
        self.is_settled = not partial
        return settled

    def commit_total(self, used: int, *, partial: bool = False) -> Settlement:
        """Charges what was used in total, less what earlier calls of this method have committed.

            with client.reserve("llm", {"user": "42"}, hits=800) as held:
                for chunk in stream:
                    used += 1
                    held.commit_total(used, partial=True)
                held.commit_total(used)

        Only what the service has confirmed counts as committed. If the service did not answer,
        `source` is `"policy"`; call it again, later, with the same total or a larger one. A call
        that the policy admitted, or that was lost in a restart, is charged anew, except for
        descriptors with hits of their own. Committed hits are final: a smaller total returns none.
        Not to be mixed with `commit`."""
        return self._client._run(self._client._protocol.commit_total(self, used, partial))

    def cancel(self, *, idempotency_key: Optional[str] = None) -> Settlement:
        """Releases what was not committed."""
        protocol = self._client._protocol
        settled = self._client._run(protocol.cancel(self.token, idempotency_key))
        self.is_settled = True
        return settled

    def renew(self, ttl: float) -> Renewal:
        """Extends the reservation to `ttl` seconds from now."""
        return self._client._run(self._client._protocol.renew(self, ttl))

    @contextlib.contextmanager
    def auto_renew(self, ttl: Optional[float] = None) -> Iterator[None]:
        """Renews the reservation by a timer during a block, in a thread: three times in `ttl`
        seconds, by default the time that it was reserved for.

            with client.reserve("llm", {"user": "42"}, hits=800) as held, held.auto_renew():
                held.commit(call_the_model())

        A service that was away for longer has released it; `is_expired` says so, and a commit is
        charged in full.
        """
        exchange = self._client._protocol.auto_renew(self, ttl)
        stopped = threading.Event()

        def sleep(seconds: float) -> None:
            if stopped.wait(seconds):
                raise _Stopped

        def renew() -> None:
            # `RuntimeError`: the client is closed.
            with contextlib.suppress(_Stopped, RuntimeError):
                self._client._run(exchange, sleep)

        threading.Thread(target=renew, name="sluicegate-renew", daemon=True).start()
        try:
            yield
        finally:
            stopped.set()


class _Stopped(Exception):
    """The block has ended."""
