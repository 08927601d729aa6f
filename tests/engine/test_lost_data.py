"""A change that would lose what a file system or a bucket holds, under the real Pulumi engine: refused by name."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import pytest

pytestmark = [pytest.mark.engine, pytest.mark.timeout(900)]

Edit = Callable[[dict[str, Any]], None]
LUSTRE = "aws:fsx/lustreFileSystem:LustreFileSystem"


def delete_storage(config: dict[str, Any]) -> None:
    del config["gangway:storage"]


def file_systems(engine: Any) -> list[str]:
    return [one["id"] for one in engine.resources() if one["type"] == LUSTRE]


@pytest.fixture
def engine(
    make_engine: Callable[[str], Any], running_plugin: Callable[..., AbstractContextManager[Any]]
) -> Iterator[Any]:
    made = make_engine("aws-demo")
    with running_plugin("aws", made.cloud) as plugin:
        made.env["PULUMI_DEBUG_PROVIDERS"] = f"aws:{plugin.port}"
        yield made


def test_a_file_system_is_replaced_or_removed_by_name_alone(engine: Any, set_value: Callable[..., Edit]) -> None:
    engine.applied("up")
    first = file_systems(engine)

    engine.change(set_value("storage.deployment", "scratch"))
    engine.change(set_value("storage.throughput_mbps_per_tib", None))
    for command in (["preview"], ["up", "--yes", "--skip-preview"]):
        refused = engine.run(*command)
        assert refused.status != 0
        assert "gangway:allow_replace: aws-demo-lustre: this change would replace" in refused.text
        assert "write gangway:allow_replace: [aws-demo-lustre]" in refused.text
        assert "Traceback" not in refused.text
    assert file_systems(engine) == first

    before = engine.resources()
    engine.change(set_value("cluster.nodes", {"min": 1, "max": 1}))  # several need a file system
    engine.change(delete_storage)
    for command in (["preview"], ["up", "--yes", "--skip-preview"]):
        refused = engine.run(*command)
        assert refused.status != 0
        assert "gangway:allow_replace: aws-demo-lustre: this change would remove" in refused.text
    assert engine.resources() == before, "nothing was sent"

    engine.change(set_value("allow_replace", ["aws-demo-lustre"]))
    allowed = engine.applied("up")
    assert "aws-demo-lustre may be replaced or removed" in allowed.text
    assert file_systems(engine) == []
    engine.applied("destroy")
    assert engine.resources() == [], "no run has been recorded"
