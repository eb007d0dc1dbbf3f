"""Exceptions."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Mapping, Optional

if TYPE_CHECKING:
    from ._types import Decision


class SluicegateError(Exception):
    """Base class of all exceptions of this package."""


class Denied(SluicegateError):
    """The request was denied. If `decision.source` is `service`, a limit denied it and charged
    nothing. If it is `policy`, the service did not answer, and may have charged it all the same."""

    def __init__(self, decision: Decision) -> None:
        limit = f" by `{decision.limit}`" if decision.limit else ""
        if decision.source == "policy":
            reason = "the service is unavailable"
        elif decision.retry_after is None:
            reason = "waiting does not help"
        else:
            reason = f"retry after {decision.retry_after:g} s"
        super().__init__(f"denied{limit}: {reason}")
        self.decision = decision

    @property
    def retry_after(self) -> Optional[float]:
        """Seconds to wait; `None` if waiting does not help, or the policy denied the request."""
        return self.decision.retry_after

    @property
    def retry_after_header(self) -> Optional[str]:
        """Value of a `Retry-After` header, in whole seconds; `None` if no retry helps."""
        return None if self.retry_after is None else str(math.ceil(self.retry_after))


class Unavailable(SluicegateError):
    """The service did not answer, or is overloaded or shutting down."""


class ServiceError(SluicegateError):
    """The service rejected the request: an error to fix, not a denial."""

    def __init__(self, status: int, code: str, message: str, context: Mapping[str, Any]) -> None:
        super().__init__(f"{status} {code}: {message}")
        self.status = status
        self.code = code
        self.message = message
        self.context = context


class UnknownReservation(ServiceError):
    """The service has never issued this reservation, or has dropped it long after its expiry."""


class SettledReservation(ServiceError):
    """Nothing is held any more; `reason` says why."""

    @property
    def reason(self) -> str:
        """`committed` or `cancelled` before. `expired`: it cannot be renewed, but a commit within a
        day is accepted, and charged in full. `unknown`: its counters were lost in a restart, or
        another node has settled it; a commit is not accepted."""
        return str(self.context.get("reason", "unknown"))
