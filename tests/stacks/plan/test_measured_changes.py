"""What the offline update says of a changed setting is no milder than what the real engine shows of it:
docs/reference/changing-settings.md, which tests/engine/test_changed_settings.py measures.
"""

from collections.abc import Callable
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
import yaml

from gangway.stacks.base.registry import get_provider
from gangway.stacks.plan.replacement import Effect, Update
from gangway.stacks.recording import PlannedResource
from tests.settings_table import COLUMNS, SettingsTable

REPOSITORY = Path(__file__).parents[3]
GRAVITY = {
    "in place": Effect.IN_PLACE,
    "new nodes": Effect.NEW_NODES,
    "**replaces the head**": Effect.HEAD_REPLACED,
    "**restarts nodes**": Effect.NODES_RESTARTED,
    "**refused, loses data**": Effect.DATA_LOST,
}


UNSEEN = {
    ("Kubernetes", "engine.version"),
    ("AWS", "engine.kind"),
    ("AWS", "job.processes_per_node"),
    ("OpenStack", "head.machine_type"),
    ("OpenStack", "head.prometheus_image"),
    ("OpenStack", "network.egress"),
}
"""What two plans do not show. EKS: the image of nodes is looked up, by the version, when the stack is up. The others:
the engine counts nodes beside the head, which are the same in both plans.
"""


def gravity(cell: str) -> Effect:
    """The gravest word of a cell. A change that the program itself refuses is none of these."""
    return max(effect for word, effect in GRAVITY.items() if word in cell)


def plain(resources: tuple[PlannedResource, ...], module: Any) -> dict[str, dict[str, Any]]:
    return {
        one.urn: {"urn": one.urn, "type": one.type, "name": one.name, "inputs": module._comparable(one.inputs)}
        for one in resources
    }


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("column", COLUMNS)
def test_no_verdict_is_milder_than_the_engine(column: str, load_module: Callable[[Path], Any], tmp_path: Path) -> None:
    module = load_module(REPOSITORY / "tests/engine/setting_changes.py")
    values = yaml.safe_load((REPOSITORY / f"stacks/Pulumi.{COLUMNS[column]}.yaml").read_text("utf-8"))["config"]
    changes, settings = module.Changes(COLUMNS[column], values, tmp_path), module.every_setting()
    cells = [(name, cell) for name, cell in SettingsTable().measured(column, settings) if cell != "refused"]
    milder, compared = {}, 0
    for cell, rows in groupby(sorted(cells, key=lambda row: row[1]), key=lambda row: row[1]):
        for name, _ in rows:
            change = changes.of(settings[name])
            assert change is not None, name
            # Refused, or the same resources: the stack that the engine has up differs from the shipped one.
            if change.refusal or change.signature == "[]" or (column, name) in UNSEEN:
                continue
            compared += 1
            found = gravest(changes, change, module)
            if found < gravity(cell):
                milder[name] = f"measured {cell}, offline {found}"
    assert milder == {}
    assert compared > 10


def gravest(changes: Any, change: Any, module: Any) -> Effect:
    config = changes._read(change.settings)
    now = changes._record(config)
    before = plain(changes._declared, module)
    moves = config.region != changes._config.region
    update = Update(get_provider(config.provider), before, plain(now, module), now, moves=moves)
    found = {one.effect for urn in update.changed() for one in update.properties(urn)}
    found |= {update.effect_of_removal(urn) for urn in before.keys() - {one.urn for one in now}}
    return max(found, default=Effect.IN_PLACE)
