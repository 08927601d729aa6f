"""The table of docs/security-access.md has every type of resource that holds or protects data, in its class."""

from pathlib import Path

import pytest

from gangway.stacks.base.registry import get_provider

PAGE = Path(__file__).resolve().parents[2] / "docs/security-access.md"
PROVIDERS = {"AWS": "aws", "Google Cloud": "gcp", "Azure": "azure", "OpenStack": "openstack"}
CLASSES = {
    "holds records": ("data", "holders"),
    "protects them": ("protections",),
    "their key": ("keys", "key_grants"),
    "contains or gives access to them": ("surroundings",),
    "file system: deleted by `destroy`": ("copies",),
}


def table() -> dict[str, dict[str, set[str]]]:
    """Class -> provider -> types, as the page has them."""
    section = PAGE.read_text("utf-8").partition("### Retained data\n")[2].partition("\n## ")[0]
    head, _, *rows = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in section.splitlines() if line[:1] == "|"
    ]
    return {
        name: {provider: set(cell.split(", ")) - {"-"} for provider, cell in zip(head[1:], cells, strict=True)}
        for name, *cells in rows
    }


@pytest.mark.parametrize("row", CLASSES)
def test_each_class_has_the_types_of_the_code(row: str) -> None:
    found = {
        provider: {
            type_.partition(":")[2] for class_ in CLASSES[row] for type_ in getattr(get_provider(key).retention, class_)
        }
        for provider, key in PROVIDERS.items()
    }
    assert table()[row] == found


def test_it_has_no_other_rows() -> None:
    assert set(table()) == set(CLASSES)
