"""A suite is a contributor's file: every text in it is refused with its name, or names stacks and runs as it stands."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from gangway.bench.suite import SuiteConfig, get_items, get_preset, get_run_id, load_suite, stack_name
from gangway.components.core.findings import InputError
from tests.hostile import HOSTILE, Loc, changed, text_places

pytestmark = pytest.mark.attack("a suite's author", "texts of a suite that say more to a path or a terminal")
GOOD: dict[str, Any] = {
    "name": "mine",
    "title": "a table",
    "preset": "dcgan-digits",
    "kimg": 2,
    "seeds": [0],
    "settings": {"precision": "fp32"},
    "stacks": [{"stack": "aws-g5-dev", "label": "aws", "set": {"network.egress": "nat"}}],
    "arms": [{"name": "half"}],
    "budget": {"usd": 20},
    "deadline_hours": 2,
}


def mistakes(values: dict[str, Any], path: Path, stacks_dir: Path) -> list[InputError]:
    path.write_text(yaml.safe_dump(values, allow_unicode=True), "utf-8", "surrogatepass")
    try:
        get_preset(load_suite(path), str(path), stacks_dir)
    except InputError as mistake:
        return [mistake]
    except ExceptionGroup as group:
        return [mistake for mistake in group.exceptions if isinstance(mistake, InputError)]
    return []


def is_named(found: list[InputError], place: Loc) -> bool:
    """A stack's own settings are a plan's to refuse, all others the suite's."""
    words = [str(part) for part in place if isinstance(part, str)]
    return any(word in mistake.place for mistake in found for word in words)


@pytest.mark.slow
@pytest.mark.parametrize("name", HOSTILE)
def test_a_suites_texts_stay_texts(name: str, repo: Path, tmp_path: Path) -> None:
    text, path, taken = HOSTILE[name], tmp_path / "mine.yaml", []
    for place in text_places(GOOD):
        if found := mistakes(changed(GOOD, place, text=text), path, repo / "stacks"):
            assert is_named(found, place), (place, found)
            assert all(str(mistake).replace("\n", "").isprintable() for mistake in found)
        else:
            taken.append(place)
    assert set(taken) <= {("title",), ("stacks", 0, "set", "network.egress")}
    for item in get_items(SuiteConfig.model_validate(changed(GOOD, *taken, text=text)), local=False):
        names = get_run_id(item, "20260101"), stack_name(item, "20260101")
        assert all(set(each) <= set("abcdefghijklmnopqrstuvwxyz0123456789-") for each in names)
