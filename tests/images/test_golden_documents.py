"""How start documents are stored: a reference loses nothing, a change of any byte is noticed, nothing is left over."""

from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

GOLDEN = Path(__file__).parent / "golden"


def test_no_stored_content_is_unused(golden_documents: ModuleType) -> None:
    assert golden_documents.unused(GOLDEN) == set()


@pytest.mark.parametrize("machine", ["node", "gcp_node", "tpu_host"])
def test_a_change_of_any_line_changes_what_is_stored(
    golden_documents: ModuleType, machines: Any, machine: str, request: pytest.FixtureRequest
) -> None:
    text: str = machines.rendered(request.getfixturevalue(machine))
    stored = golden_documents.fold(text)
    lines = text.splitlines(keepends=True)
    for at in range(0, len(lines), 37):
        changed = "".join([*lines[:at], lines[at].replace("\n", "#\n"), *lines[at + 1 :]])
        assert golden_documents.fold(changed) != stored, lines[at]
