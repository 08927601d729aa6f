"""OpenStack under the real engine: what a change of one machine does to the others."""

import base64
import gzip
from collections.abc import Callable
from typing import Any

import pytest

pytestmark = [pytest.mark.engine, pytest.mark.timeout(600)]

INSTANCE = "openstack:compute/instance:Instance"
TEMP_URL = "openstack:objectstorage/tempUrl:TempUrl"


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


def test_another_url_or_key_replaces_no_machine_and_no_user_data_have_a_secret(cloud: Any, set_value: Any) -> None:
    """The next period is simulated: the program's clock is set, as an `up` on the next day finds it."""
    before = {**instances(cloud, "worker"), **instances(cloud, "head")}
    first = signatures(cloud)
    cloud.set_clock(86_400)
    again = cloud.applied("up")
    assert again.types("replace") == {TEMP_URL}
    assert again.types("update") == {INSTANCE}
    assert {**instances(cloud, "worker"), **instances(cloud, "head")} == before
    assert len(first) == len(signatures(cloud)) == 1
    assert signatures(cloud) != first
    cloud.change(set_value("job.member_key_refresh", 1))
    rotated = cloud.applied("up")
    assert rotated.types("replace") == {TEMP_URL, "openstack:objectstorage/containerObject:ContainerObject"}
    assert rotated.types("update") == {INSTANCE}
    assert {**instances(cloud, "worker"), **instances(cloud, "head")} == before
    exported = cloud.plain("stack", "export")
    for secret in ("credential-secret-", "temp_url_sig", "PRIVATE KEY"):
        assert secret not in exported
    for made in cloud.resources():
        if made["type"] == INSTANCE:
            text = gzip.decompress(base64.b64decode(made["inputs"]["userData"])).decode()
            for secret in ("credential-secret-", "temp_url_sig", "PRIVATE KEY-----"):
                assert secret not in text


def signatures(cloud: Any) -> set[str]:
    """What opens the machines' secrets, as their metadata say."""
    made = [r for r in cloud.resources() if r["type"] == INSTANCE]
    return {machine["inputs"]["metadata"]["gangway:secrets-signature"] for machine in made}
