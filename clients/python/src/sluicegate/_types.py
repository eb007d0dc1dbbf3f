"""Requests and results. Durations are in seconds."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Iterable, Literal, Mapping, Optional, Tuple, Union

from ._errors import Denied

Source = Literal["service", "policy"]
"""Origin of a result: the service, or the client's policy for an unavailable service."""

Entries = Union[Mapping[str, str], Iterable[Tuple[str, str]]]
"""Entries of a descriptor, in order: a mapping, or pairs if a key occurs twice."""


@dataclass(frozen=True)
class LimitOverride:
    """A limit that a request carries instead of that of the rules."""

    requests_per_unit: int
    unit: str


@dataclass(frozen=True)
class Descriptor:
    """Entries with a cost or a limit of their own; otherwise a mapping is enough."""

    entries: Entries
    hits: Optional[int] = None
    """Cost, if not that of the request."""
    limit: Optional[LimitOverride] = None

    def __post_init__(self) -> None:
        # An iterator can be read once, and a mapping can be changed.
        pairs = self.entries.items() if isinstance(self.entries, Mapping) else self.entries
        object.__setattr__(self, "entries", tuple(pairs))


AnyDescriptor = Union[Mapping[str, str], Descriptor]


@dataclass(frozen=True, init=False)
class Request:
    """A domain and its descriptors, as in `Request("shop", {"user": "42"}, hits=10)`."""

    domain: str
    descriptors: Tuple[Descriptor, ...]
    hits: Optional[int]
    """Cost, 1 by default. A descriptor with its own cost ignores it."""

    def __init__(
        self, domain: str, *descriptors: AnyDescriptor, hits: Optional[int] = None
    ) -> None:
        all_of_them = (d if isinstance(d, Descriptor) else Descriptor(d) for d in descriptors)
        object.__setattr__(self, "domain", domain)
        object.__setattr__(self, "descriptors", tuple(all_of_them))
        object.__setattr__(self, "hits", hits)


@dataclass(frozen=True)
class LimitState:
    """State of one limit of an identity."""

    limit: str
    allowed: Optional[bool] = None
    """Of `inspect`: whether it admits a cost of 1. Beside a decision, which is about another cost,
    this and `retry_after` are `None`."""
    algorithm: Optional[str] = None
    quota: Optional[int] = None
    window: Optional[float] = None
    """Time in which the quota refills."""
    remaining: Optional[int] = None
    """Remaining quota; negative in debt."""
    reset_after: Optional[float] = None
    retry_after: Optional[float] = None
    enforced: bool = True
    """`False` for a shadow limit."""

    @property
    def used(self) -> Optional[int]:
        """Charged and reserved hits of the window, less those that a credit gave back."""
        if self.quota is None or self.remaining is None:
            return None
        return self.quota - self.remaining


@dataclass(frozen=True)
class ReturnedHits:
    """Hits that a limit got back."""

    limit: str
    hits: int
    """Slots of a concurrency limit, else quota."""


@dataclass(frozen=True)
class Status:
    """Result of one descriptor."""

    allowed: bool
    rule: Optional[str] = None
    """The rule that applied; `None` if no rule matched."""
    limit: Optional[str] = None
    """The limit that decided."""
    quota: Optional[int] = None
    remaining: Optional[int] = None
    """Remaining quota; negative in debt."""
    reset_after: Optional[float] = None
    retry_after: Optional[float] = None
    """Time until a denied request can be admitted; `None` if waiting does not help."""
    estimated: bool = False
    """Whether `retry_after` is an estimate, as for a slot, which is free when its holder ends."""
    max_cost: Optional[int] = None
    """The largest cost that can be admitted, if this one never can."""
    reason: Optional[str] = None
    """Why there is no rule: `no_domain`, `no_rule` (a mistyped key, for example) or `exempt`."""
    wait: Optional[float] = None
    """Delay of an admitted check under a shaping limit; a settlement has none."""
    limits: Tuple[LimitState, ...] = ()
    """Every limit of the rule, if the request asked for them with `limits=True`."""
    returned: Tuple[ReturnedHits, ...] = ()
    """What each limit got back by a refund, credit, commit or cancellation."""
    raw: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)
    """The JSON object, with every field of the service."""


def _wait(status: Status) -> float:
    return float("inf") if status.retry_after is None else status.retry_after


@dataclass(frozen=True)
class Decision:
    """Whether a request is admitted. True if it is."""

    allowed: bool
    source: Source
    statuses: Tuple[Status, ...] = ()
    """Status of each descriptor, in order; empty if the policy decided."""
    message: Optional[str] = None
    """Of a denial: a sentence for the user, such as "Request quota exceeded. Wait 2 hours and try
    again."; `None` if the policy decided."""
    waited: Optional[float] = None
    """Time that the service waited."""
    reservation: Optional[str] = None
    """Token of what the request holds, such as the slot of a concurrency limit."""
    error: Optional[Exception] = field(default=None, compare=False)
    """The failure, if the policy decided."""
    proof: Optional[Tuple[str, bytes]] = field(default=None, repr=False, compare=False)
    """Idempotency key and body of a charged check, which authorize its refund."""

    def __bool__(self) -> bool:
        return self.allowed

    def or_raise(self) -> Decision:
        """This decision; raises `Denied` if it is a denial."""
        if not self.allowed:
            raise Denied(self)
        return self

    @property
    def deciding_status(self) -> Optional[Status]:
        """Of a denial, the status with the longest wait; otherwise that with the least remaining
        quota."""
        if self.allowed:
            limited = [s for s in self.statuses if s.remaining is not None]
            return min(limited, key=lambda s: s.remaining or 0, default=None)
        denied = [s for s in self.statuses if not s.allowed]
        return max(denied, key=_wait, default=None)

    @property
    def retry_after(self) -> Optional[float]:
        """Time until a denied request can be admitted; `None` if waiting does not help."""
        status = self.deciding_status
        return None if self.allowed or status is None else status.retry_after

    @property
    def limit(self) -> Optional[str]:
        """The limit that decided."""
        status = self.deciding_status
        return None if status is None else status.limit

    @property
    def remaining(self) -> Optional[int]:
        """Remaining quota of the limit that decided; negative in debt."""
        status = self.deciding_status
        return None if status is None else status.remaining

    @property
    def reset_after(self) -> Optional[float]:
        """Time until the quota of the limit that decided is fully restored."""
        status = self.deciding_status
        return None if status is None else status.reset_after


@dataclass(frozen=True)
class Settlement:
    """Result of a commit or of a cancellation."""

    source: Source
    """`policy` if the service did not answer, or had not answered the reservation."""
    returned: int = 0
    """Hits that every limit got back at least; `Status.returned` has those of each limit."""
    held: int = 0
    """Hits that stay reserved after a partial commit."""
    statuses: Tuple[Status, ...] = ()
    error: Optional[Exception] = field(default=None, compare=False)


@dataclass(frozen=True)
class Credit:
    """Result of a top-up. Always true: a credit that is not given raises."""

    allowed_now: bool
    """Whether a check of one hit would pass now; `False` while debt remains."""
    statuses: Tuple[Status, ...] = ()
    """Status of each descriptor; `Status.returned` has what each limit got back."""

    def __bool__(self) -> bool:
        return True


@dataclass(frozen=True)
class Renewal:
    """Result of a renewal."""

    source: Source
    expires_after: Optional[float] = None
    error: Optional[Exception] = field(default=None, compare=False)


@dataclass(frozen=True)
class KeyState:
    """State of the limits of one descriptor."""

    rule: Optional[str]
    limits: Tuple[LimitState, ...]
    reason: Optional[str] = None
    """Why there is no rule, as in `Status`."""


@dataclass(frozen=True)
class Explanation:
    """The decision on a request, and its reason. Nothing is charged."""

    allowed: bool
    why: str
    hint: Optional[str]
    """Why no rule applies, with a suggested correction of a misspelt domain or key."""
    raw: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """The whole explanation: lookups, rules, counters."""
