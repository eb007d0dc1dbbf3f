"""A real service, and a client of each kind with one blocking interface."""

from __future__ import annotations

import itertools
import json
import os
import socket
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Any, Callable, ContextManager, Iterator, Optional, Tuple, Type, Union, cast

import anyio.from_thread
import httpx
import pytest

import sluicegate._protocol
from sluicegate import AsyncClient, AsyncReservation, Client, Denied

HERE = Path(__file__).parent
MakeClient = Callable[..., Client]


def start_service(http: str, *settings: str) -> Tuple["subprocess.Popen[bytes]", str]:
    """A service with the rules of this folder, and its URL."""
    program = os.environ.get(
        "SLUICEGATE_TEST_SERVICE", str(HERE / "../../../target/debug/sluicegate")
    )
    if not Path(program).exists():
        pytest.exit(f"no service at {program}: build it, or set SLUICEGATE_TEST_SERVICE to it", 1)
    args = [program, "serve", "--json", "--rules", str(HERE / "rules.yaml"), "--http", http]
    for endpoint in ("--grpc", "--admin"):
        args += [endpoint, "127.0.0.1:0"]
    process = subprocess.Popen([*args, *settings], stdout=subprocess.PIPE)
    assert process.stdout is not None
    return process, f"http://{json.loads(process.stdout.readline())['http']}"


@pytest.fixture(scope="session")
def service() -> Iterator[str]:
    """The URL of a service."""
    process, url = start_service("127.0.0.1:0")
    with process:
        try:
            yield url
        finally:
            process.kill()


class RestartedService:
    """A service that stops and starts again at the same address."""

    def __init__(self, *settings: str) -> None:
        self._settings = settings
        self._process, self.url = start_service("127.0.0.1:0", *settings)

    def start(self) -> None:
        self._process, _ = start_service(self.url.removeprefix("http://"), *self._settings)

    def stop(self) -> None:
        self._process.terminate()
        self._process.communicate(timeout=30)


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Retries do not wait."""
    monkeypatch.setattr(sluicegate._protocol, "_RETRY_PAUSE", 0)


_names = itertools.count()


@pytest.fixture
def name() -> str:
    """A value that no other test uses."""
    return f"n{next(_names)}"


@pytest.fixture(params=["sync", "asyncio", "trio"])
def make_client(request: pytest.FixtureRequest, service: str) -> Iterator[MakeClient]:
    """Creates clients of one kind; the same test thus covers all of them."""
    if request.param == "sync":
        yield lambda url=service, **settings: Client(url, **_quick(settings))
        return
    with anyio.from_thread.start_blocking_portal(request.param) as portal:

        def make(url: str = service, **settings: Any) -> Client:
            # In the event loop, and with it the interface of `Client`.
            return cast(Client, Blocking(portal, portal.call(lambda: _make(url, settings))))

        yield make


@pytest.fixture
def client(make_client: MakeClient) -> Iterator[Client]:
    with make_client(on_unavailable="raise") as client:
        yield client


async def _make(url: str, settings: Any) -> AsyncClient:
    return AsyncClient(url, **_quick(settings))


def _quick(settings: Any) -> Any:
    return {"transport": Faults(), **settings}


class Blocking:
    """An `AsyncClient` or an `AsyncReservation` that blocks."""

    def __init__(self, portal: anyio.from_thread.BlockingPortal, target: Any) -> None:
        self._portal = portal
        self._target = target

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._target, name)
        if not callable(found):
            return found

        def call(*args: Any, **named: Any) -> Any:
            async def perform() -> Any:
                result = found(*args, **named)
                return await result if hasattr(result, "__await__") else result

            result = self._portal.call(perform)
            is_held = isinstance(result, AsyncReservation)
            return Blocking(self._portal, result) if is_held else result

        return call

    def __enter__(self) -> Blocking:
        self._portal.call(self._target.__aenter__)
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        self._portal.call(self._target.__aexit__, kind, error, trace)


LOSE = "lose"
"""The service performs the request, and its response is lost."""
Fault = Union[str, Tuple[int, bytes]]


class Faults(httpx.BaseTransport, httpx.AsyncBaseTransport):
    """A transport with a script: `LOSE` or a status and a body for each request, then no faults."""

    def __init__(self, *script: Fault) -> None:
        self.script = list(script)
        self.requests: list[httpx.Request] = []
        self.connections: set[object] = set()
        # Certificates take long to load, and none is used here.
        self._sync = httpx.HTTPTransport(verify=False)
        self._async = httpx.AsyncHTTPTransport(verify=False)

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        fault = self._next(request)
        return _answer(fault) or self._lose(fault, self._sync.handle_request(request))

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        fault = self._next(request)
        return _answer(fault) or self._lose(fault, await self._async.handle_async_request(request))

    def _next(self, request: httpx.Request) -> Optional[Fault]:
        self.requests.append(request)
        return self.script.pop(0) if self.script else None

    def _lose(self, fault: Optional[Fault], response: httpx.Response) -> httpx.Response:
        stream = response.extensions["network_stream"]
        self.connections.add(stream.get_extra_info("client_addr"))
        if fault == LOSE:
            raise httpx.ReadError("the response is lost")
        return response


def _answer(fault: Optional[Fault]) -> Optional[httpx.Response]:
    return httpx.Response(fault[0], content=fault[1]) if isinstance(fault, tuple) else None


def unreachable() -> str:
    """The URL of a port that was just free."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{free.getsockname()[1]}"


def denied() -> ContextManager[Any]:
    return pytest.raises(Denied)
