"""OpenStack under the real engine: what a change of one machine does to the others."""

from collections.abc import Callable
from typing import Any

import pytest

pytestmark = [pytest.mark.engine, pytest.mark.timeout(600)]

INSTANCE = "openstack:compute/instance:Instance"


def instances(engine: Any, role: str) -> dict[str, str]:
    """Ids of the machines of a role, by name."""
    made = [r for r in engine.resources() if r["type"] == INSTANCE]
    return {r["urn"].rpartition("::")[2]: r["id"] for r in made if r["inputs"]["metadata"]["gangway:role"] == role}


@pytest.fixture
def cloud(make_engine: Callable[[str], Any], running_plugin: Any) -> Any:
    """The shipped stack, up."""
    engine = make_engine("openstack-gpu")
    with running_plugin("openstack", engine.cloud) as plugin:
        engine.env["PULUMI_DEBUG_PROVIDERS"] = f"openstack:{plugin.port}"
        engine.applied("up")
        yield engine


def test_another_head_leaves_the_workers(cloud: Any, set_value: Any) -> None:
    """They train on; only joining waits. At the same address, so that nobody has to be told."""
    workers, head = instances(cloud, "worker"), instances(cloud, "head")
    assert (len(workers), len(head)) == (4, 1)
    cloud.change(set_value("head.prometheus_image", "docker.io/prom/prometheus:v3.6.0"))
    again = cloud.applied("up")
    assert again.types("replace") == {INSTANCE}
    assert again.changes["replace"] == 1
    assert instances(cloud, "worker") == workers
    assert instances(cloud, "head") != head
    cloud.change(set_value("job.kimg", 30000))
    renewed = cloud.applied("up")
    assert renewed.changes["replace"] == 5, "another job is another user data"
    assert not set(instances(cloud, "worker").values()) & set(workers.values())
    # The old machine goes first: it holds the port, and so the address.
    began = renewed.began("create-replacement")
    for urn, place in renewed.ended("delete-replaced").items():
        assert place < began[urn]
