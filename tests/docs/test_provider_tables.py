"""What docs/deploying.md says of each provider, from the code: who looks for another owner, and who keeps records."""

import re
from pathlib import Path

import pytest

from gangway.stacks.base.registry import all_providers

REPOSITORY = Path(__file__).resolve().parents[2]
PAGE = (REPOSITORY / "docs/deploying.md").read_text("utf-8")
TITLES = {"aws": "AWS", "gcp": "Google Cloud", "azure": "Azure", "openstack": "OpenStack", "hosts": "hosts"}
PERMISSION = re.compile(r"\b(?:iam|kms|tag):[A-Z]\w+|\b(?:iam|secretmanager)\.\w+\.list\b|role Reader")


def rows(heading: str) -> dict[str, str]:
    """The rows of the table whose heading is this, by their first cell."""
    table = PAGE.partition(heading)[2].partition("\n\n")[0]
    return {
        line.split("|")[1].strip(): line for line in table.splitlines() if line.startswith("|") and "---" not in line
    }


@pytest.mark.parametrize("provider", [one.name for one in all_providers()])
def test_the_table_says_who_keeps_records(provider: str) -> None:
    (settings,) = (one.settings for one in all_providers() if one.name == provider)
    own = [row for first, row in rows("| stack | its setting |").items() if TITLES[provider] in first]
    assert own
    assert all(("is refused" in row) is not settings.deletes_runs for row in own)
    named = {kind for kind in ("job", "engine") for row in own if f"`{kind}.keep_runs`" in row}
    assert named == ({"job", "engine"} if settings.deletes_runs else set())


@pytest.mark.parametrize("provider", [one.name for one in all_providers()])
def test_the_table_says_which_permission_the_look_for_an_owner_takes(provider: str) -> None:
    own = "\n".join(row for first, row in rows("| | what is looked for |").items() if TITLES[provider] in first)
    assert own
    modules = {path.stem: path.read_text("utf-8") for path in (REPOSITORY / "stacks/providers" / provider).glob("*.py")}
    lookups = [text for text in modules.values() if "ownership import Owner" in text]
    assert bool(lookups) is ("check_unclaimed(" in modules["program"]) is (provider != "hosts")
    needed = {permission for text in lookups for permission in PERMISSION.findall(text)}
    assert needed or provider in ("hosts", "openstack")
    assert needed == {*PERMISSION.findall(own)}
