"""Client of Sluicegate, a distributed rate limiter.

    from sluicegate import Client

    with Client("http://127.0.0.1:8080") as client:
        decision = client.check("shop", {"user": "42"})
        if not decision:
            print(f"retry after {decision.retry_after} s")

`Client` blocks, `AsyncClient` has the same methods as coroutines. A denied check is a value; a
denied reservation is the exception `Denied`. `decision.or_raise()` turns the one into the other.
"""

from ._async import AsyncClient, AsyncReservation
from ._errors import (
    Denied,
    ServiceError,
    SettledReservation,
    SluicegateError,
    Unavailable,
    UnknownReservation,
)
from ._protocol import UnavailablePolicy
from ._sync import Client, Reservation
from ._types import (
    Credit,
    Decision,
    Descriptor,
    Explanation,
    KeyState,
    LimitOverride,
    LimitState,
    Renewal,
    Request,
    ReturnedHits,
    Settlement,
    Source,
    Status,
)

__all__ = [
    "AsyncClient",
    "AsyncReservation",
    "Client",
    "Credit",
    "Decision",
    "Denied",
    "Descriptor",
    "Explanation",
    "KeyState",
    "LimitOverride",
    "LimitState",
    "Renewal",
    "Request",
    "Reservation",
    "ReturnedHits",
    "ServiceError",
    "SettledReservation",
    "Settlement",
    "SluicegateError",
    "Source",
    "Status",
    "Unavailable",
    "UnavailablePolicy",
    "UnknownReservation",
]
