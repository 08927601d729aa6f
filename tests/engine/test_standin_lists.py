"""What the stand-ins replace, kept by hand, against the catalogue's tables, made from the providers' schemas. The
stand-ins do not read the tables: the offline update does, and is compared with what the engine shows of the stand-ins.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gangway.components.catalog.replaces import load
from gangway.stacks.base.rule import kind

STANDINS = Path(__file__).parent / "standin"
PACKAGES = {"aws": "", "azure": "azure-native:", "gcp": "", "openstack": "openstack:"}


def listed(provider: str, load_module: Callable[[Path], Any]) -> Iterator[tuple[str, str]]:
    """Type and input; of Google Cloud without the name and the place, which stand there for every type."""
    facts = load_module(STANDINS / f"{provider}_facts.py")
    lists = facts.ALSO_REPLACING if provider == "openstack" else facts.REPLACING_INPUTS
    for type_, inputs in lists.items():
        for name in sorted(inputs - getattr(facts, "_PLACE", frozenset())):
            yield kind(f"{PACKAGES[provider]}{type_}"), name


@pytest.mark.parametrize("provider", PACKAGES)
def test_a_stand_in_replaces_only_for_what_the_schemas_say(provider: str, load_module: Callable[[Path], Any]) -> None:
    table, found = load(), list(listed(provider, load_module))
    assert len(found) > 8

    def is_known(type_: str, name: str) -> bool:
        conditions = (path for one in table.conditions.get(type_, ()) for path in one.inputs)
        paths = (*table.paths.get(type_, ()), *conditions)
        return any(path.replace("#", ".").startswith(f"{name}.") or path == name for path in paths)

    assert [each for each in found if not is_known(*each)] == []
