"""The papers' own rows, from papers.yaml beside this file. Theirs, never ours: they enter no mean."""

from pathlib import Path
from typing import Literal

import yaml
from pydantic import BaseModel, ConfigDict, TypeAdapter

__all__ = ["PUBLISHED", "Paper", "PaperRow", "paper_of"]

PUBLISHED = "published"
"""The provenance of a paper's figure: somebody else's, from print."""


class PaperRow(BaseModel):
    """A row of a paper's table.

    Attributes:
        label: what the paper calls it.
        change: whether its cells are per cent of another row.
        cells: by measure.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    label: str
    change: bool = False
    cells: dict[str, float]


class Paper(BaseModel):
    """A paper's table.

    Attributes:
        title: of ours, which is shaped after it.
        source: where its figures stand.
        setting: what it trained, and on what.
        columns: measures that it has.
        units: where the paper's differ from ours.
        rows: in its order.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    title: str
    source: str
    setting: str
    columns: tuple[str, ...]
    units: dict[str, str] = {}
    rows: tuple[PaperRow, ...]


def paper_of(name: Literal["P2", "P3"]) -> Paper:
    """A paper's table, by the name that suites call it."""
    text = Path(__file__).with_name("papers.yaml").read_text("utf-8")
    return TypeAdapter(dict[str, Paper]).validate_python(yaml.safe_load(text))[name]
