"""The asynchronous client, for asyncio and trio."""

from __future__ import annotations

import asyncio
import contextlib
from types import TracebackType
from typing import (
    Any,
    AsyncIterator,
    Awaitable,
    Callable,
    Generator,
    Iterable,
    Optional,
    Tuple,
    Type,
    TypeVar,
)

import anyio  # of httpx
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


class AsyncClient:
    """As `Client`, with coroutines; `reserve` is awaited, or entered by `async with`."""

    def __init__(
        self,
        url: str = "http://127.0.0.1:8080",
        *,
        timeout: float = 1.0,
        retries: int = 1,
        on_unavailable: UnavailablePolicy = "allow",
        token: Optional[str] = None,
        transport: Optional[httpx.AsyncBaseTransport] = None,
    ) -> None:
        self._protocol = Protocol(
            url, timeout=timeout, retries=retries, on_unavailable=on_unavailable, token=token
        )
        self._http = httpx.AsyncClient(base_url=self._protocol.url, transport=transport)

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Closes the connections."""
        await self._http.aclose()

    async def check(
        self,
        domain: str,
        *descriptors: AnyDescriptor,
        hits: Optional[int] = None,
        limits: bool = False,
        idempotency_key: Optional[str] = None,
    ) -> Decision:
        """As `Client.check`."""
        request = Request(domain, *descriptors, hits=hits)
        return await self._run(self._protocol.check(request, limits, idempotency_key))

    async def check_many(
        self,
        requests: Iterable[Request],
        *,
        limits: bool = False,
        idempotency_key: Optional[str] = None,
    ) -> Tuple[Decision, ...]:
        """As `Client.check_many`."""
        return await self._run(self._protocol.check_many(requests, limits, idempotency_key))

    async def peek(
        self,
        domain: str,
        *descriptors: AnyDescriptor,
        hits: Optional[int] = None,
        limits: bool = False,
    ) -> Decision:
        """As `Client.peek`."""
        request = Request(domain, *descriptors, hits=hits)
        return await self._run(self._protocol.peek(request, limits))

    async def refund(self, decision: Decision) -> Decision:
        """As `Client.refund`."""
        return await self._run(self._protocol.refund(decision))

    async def wait(
        self,
        domain: str,
        *descriptors: AnyDescriptor,
        hits: Optional[int] = None,
        timeout: float = 30.0,
        limits: bool = False,
        idempotency_key: Optional[str] = None,
    ) -> Decision:
        """As `Client.wait`."""
        request = Request(domain, *descriptors, hits=hits)
        return await self._run(self._protocol.wait(request, timeout, limits, idempotency_key))

    def reserve(
        self,
        domain: str,
        *descriptors: AnyDescriptor,
        hits: Optional[int] = None,
        ttl: Optional[float] = None,
        wait: Optional[float] = None,
        limits: bool = False,
        idempotency_key: Optional[str] = None,
    ) -> PendingReservation:
        """As `Client.reserve`: `async with client.reserve(…) as held`, or
        `held = await client.reserve(…)`."""
        request = Request(domain, *descriptors, hits=hits)
        exchange = self._protocol.reserve(request, ttl, wait, limits, idempotency_key)
        return PendingReservation(self, exchange)

    def reservation(self, token: str) -> AsyncReservation:
        """As `Client.reservation`."""
        decision = Decision(True, "service", reservation=token)
        return AsyncReservation(self, Issued(token, None, decision))

    async def inspect(self, domain: str, *descriptors: AnyDescriptor) -> Tuple[KeyState, ...]:
        """As `Client.inspect`."""
        return await self._run(self._protocol.inspect(Request(domain, *descriptors)))

    async def explain(
        self, domain: str, *descriptors: AnyDescriptor, hits: Optional[int] = None
    ) -> Explanation:
        """As `Client.explain`."""
        return await self._run(self._protocol.explain(Request(domain, *descriptors, hits=hits)))

    async def reset(self, domain: str, *descriptors: AnyDescriptor) -> Decision:
        """As `Client.reset`."""
        return await self._run(self._protocol.reset(Request(domain, *descriptors)))

    async def credit(
        self,
        domain: str,
        *descriptors: AnyDescriptor,
        hits: int,
        idempotency_key: Optional[str] = None,
    ) -> Credit:
        """As `Client.credit`."""
        request = Request(domain, *descriptors, hits=hits)
        return await self._run(self._protocol.credit(request, idempotency_key))

    async def _run(self, exchange: Exchange[T]) -> T:
        event: Event = None
        while True:
            try:
                action = exchange.send(event)
            except StopIteration as end:
                result: T = end.value
                return result
            if isinstance(action, Pause):
                await anyio.sleep(action.seconds)
                event = None
                continue
            try:
                response = await self._http.post(
                    action.path,
                    content=action.body,
                    headers=action.headers,
                    timeout=httpx.Timeout(action.timeout, connect=action.connect_timeout),
                )
                event = Answer(response.status_code, response.content)
            except httpx.TransportError as error:
                event = error


class AsyncReservation(ReservationState):
    """As `Reservation`, with coroutines."""

    def __init__(self, client: AsyncClient, issued: Issued) -> None:
        super().__init__(issued)
        self._client = client

    async def __aenter__(self) -> AsyncReservation:
        return self

    async def __aexit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        if self.is_settled:
            return
        protocol = self._client._protocol
        # Also in a cancelled task.
        with anyio.move_on_after(protocol.longest, shield=True):
            try:
                await self._client._run(protocol.release(self))
            except SluicegateError:
                pass  # It expires.

    async def commit(
        self, hits: int, *, partial: bool = False, idempotency_key: Optional[str] = None
    ) -> Settlement:
        """As `Reservation.commit`."""
        protocol = self._client._protocol
        exchange = protocol.commit(self.token, hits, partial, idempotency_key)
        settled = await self._client._run(exchange)
        self.is_settled = not partial
        return settled

    async def commit_total(self, used: int, *, partial: bool = False) -> Settlement:
        """As `Reservation.commit_total`."""
        return await self._client._run(self._client._protocol.commit_total(self, used, partial))

    async def cancel(self, *, idempotency_key: Optional[str] = None) -> Settlement:
        """As `Reservation.cancel`."""
        protocol = self._client._protocol
        settled = await self._client._run(protocol.cancel(self.token, idempotency_key))
        self.is_settled = True
        return settled

    async def renew(self, ttl: float) -> Renewal:
        """As `Reservation.renew`."""
        return await self._client._run(self._client._protocol.renew(self, ttl))

    @contextlib.asynccontextmanager
    async def auto_renew(self, ttl: Optional[float] = None) -> AsyncIterator[None]:
        """As `Reservation.auto_renew`, in a task: `async with held.auto_renew():`."""
        exchange = self._client._protocol.auto_renew(self, ttl)
        cancel = _spawn(lambda: self._client._run(exchange))
        try:
            yield
        finally:
            cancel()


class PendingReservation:
    """A reservation to be made, by `await` or by `async with`."""

    def __init__(self, client: AsyncClient, exchange: Exchange[Issued]) -> None:
        self._client = client
        self._exchange = exchange
        self._held: Optional[AsyncReservation] = None

    async def _reserve(self) -> AsyncReservation:
        return AsyncReservation(self._client, await self._client._run(self._exchange))

    def __await__(self) -> Generator[Any, None, AsyncReservation]:
        return self._reserve().__await__()

    async def __aenter__(self) -> AsyncReservation:
        self._held = await self._reserve()
        return self._held

    async def __aexit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        if self._held is not None:
            await self._held.__aexit__(kind, error, trace)


def _spawn(work: Callable[[], Awaitable[None]]) -> Callable[[], object]:
    """Runs a task in the background; returns what cancels it. Without a task group, which would
    wrap the exceptions of the block, and cannot span the `yield` of a generator."""
    scope = anyio.CancelScope()

    async def run() -> None:
        # `RuntimeError`: the client is closed.
        with scope, contextlib.suppress(RuntimeError):
            await work()

    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        import trio

        trio.lowlevel.spawn_system_task(run)
        return scope.cancel
    # The bound method holds the task; the loop has only a weak reference.
    return loop.create_task(run()).cancel
