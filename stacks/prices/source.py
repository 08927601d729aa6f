"""What a source of prices is: asked about items in a region, it tells what it observed and what it could not.

A source judges nothing (`components.catalog.validators` does) and writes nothing. It tells raw values in the words of
the catalogue: machine types, generations of TPUs, the fields of a price row.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from components.catalog.validators import Observed

__all__ = ["Answer", "Gap", "PriceSource", "Query", "SourceError", "UnreachableError"]


@dataclass(frozen=True)
class Query:
    """One item in one region: a machine type, or a generation of TPUs."""

    item: str
    region: str


@dataclass(frozen=True)
class Gap:
    """Something that a source could not tell, while it went on with the rest."""

    region: str
    what: str
    reason: str


Answer: TypeAlias = Observed | Gap


class SourceError(Exception):
    """A source could not be read: no network, no credentials, refused, or no such answer as it documents.

    Args:
        reason: one sentence, with what to do where that is known.
    """


class UnreachableError(SourceError):
    """Nobody answers: no network, or not this far. To ask about another region is of no use."""


class PriceSource(Protocol):
    """One provider's own lists."""

    @property
    def name(self) -> str:
        """The provider."""
        ...

    @property
    def how(self) -> str:
        """What it reads and with which credentials, in a few words."""
        ...

    def fetch(self, queries: Sequence[Query]) -> Iterable[Answer]:
        """What the lists say of `queries`; of what they do not have, nothing.

        Raises:
            SourceError: nothing can be told at all.
        """
        ...
