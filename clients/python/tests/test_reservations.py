"""Reservations: context managers, partial commits, renewals."""

from __future__ import annotations

import anyio
import pytest
from conftest import denied

from sluicegate import AsyncClient, Client


def remaining(client: Client, name: str) -> int:
    left = client.peek("test", {"tokens": name}).remaining
    assert left is not None
    return left


def test_a_commit_returns_what_was_not_used(client: Client, name: str) -> None:
    with client.reserve("test", {"tokens": name}, hits=800, ttl=30) as held:
        assert held.expires_after == 30
        assert held.decision.remaining == 200
        assert held.commit(250).returned == 550
    assert remaining(client, name) == 750


def test_an_exception_cancels(client: Client, name: str) -> None:
    with pytest.raises(ZeroDivisionError):
        with client.reserve("test", {"tokens": name}, hits=800):
            raise ZeroDivisionError
    assert remaining(client, name) == 1000


def test_the_end_of_the_block_releases_what_was_not_committed(client: Client, name: str) -> None:
    with client.reserve("test", {"tokens": name}, hits=800) as held:
        pass
    assert held.is_settled
    assert remaining(client, name) == 1000


def test_a_denied_reservation_is_an_exception(client: Client, name: str) -> None:
    client.check("test", {"user": name}, hits=2)
    with denied() as raised:
        client.reserve("test", {"user": name}, hits=2)
    assert raised.value.decision.limit == "calls"
    assert raised.value.retry_after > 0


def test_tokens_and_a_slot_in_one_step(client: Client, name: str) -> None:
    both = ({"tokens": name}, {"slot": name})
    with client.reserve("test", *both):
        with denied() as raised:
            client.reserve("test", *both)
        assert raised.value.decision.limit == "running"
        status = raised.value.decision.deciding_status
        assert status.retry_after is not None and status.estimated
    with client.reserve("test", *both) as held:
        held.commit(1)


def test_another_process_settles_by_the_token(client: Client, name: str) -> None:
    held = client.reserve("test", {"tokens": name}, hits=800)
    assert held.token is not None
    assert client.reservation(held.token).commit(250).returned == 550


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_async_with_and_await(service: str, name: str, backend: str) -> None:
    async def program() -> None:
        async with AsyncClient(service, on_unavailable="raise") as client:
            async with client.reserve("test", {"tokens": name}, hits=800) as held:
                assert (await held.commit(250)).returned == 550
            held = await client.reserve("test", {"tokens": name}, hits=100)
            await held.cancel()
            assert (await client.peek("test", {"tokens": name})).remaining == 750

    anyio.run(program, backend=backend)


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_cancelled_task_releases_its_reservation(service: str, name: str, backend: str) -> None:
    """As in a web framework whose client has disconnected: every await of the task is cancelled."""

    async def program() -> None:
        async with AsyncClient(service, on_unavailable="raise") as client:
            with anyio.CancelScope() as scope:
                async with client.reserve("test", {"tokens": name}, hits=800):
                    scope.cancel()
                    await anyio.sleep_forever()
            assert (await client.peek("test", {"tokens": name})).remaining == 1000

    anyio.run(program, backend=backend)
