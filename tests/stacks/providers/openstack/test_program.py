"""Stacks on OpenStack: connected components, and user data."""

import base64
import gzip
import json
from collections.abc import Callable
from typing import Any

import pytest
import yaml

from gangway.components.core.keys import public_half
from gangway.stacks.config.stack_config import StackConfig
from gangway.stacks.plan.plan import Plan, run_program
from gangway.stacks.providers.openstack.plan import plan
from gangway.stacks.providers.openstack.program import price
from gangway.stacks.recording import PlaceholderCloud, PlannedResource, Recording

Edited = Callable[..., StackConfig]
IMAGE = "33333333-0000-4000-8000-333333333333"
NATIVE = {"openstack": {"share_protocol": "CEPHFS"}}
VOLUME = {"openstack": {"boot": "volume", "image": IMAGE, "head_image": None, "volume_type": "luks"}}
INSIDE = {
    "network": {"egress": "endpoints"},
    "openstack": {"service_cidrs": ["192.0.2.0/24"], "share_network": True},
}
RESERVED = {"cluster": {"capacity": [{"kind": "reservation", "id": IMAGE}]}, "openstack": {"access_rules": False}}


@pytest.fixture(
    scope="module",
    params=[{}, NATIVE, VOLUME, INSIDE, RESERVED, None],
    ids=["shipped", "native", "volume", "inside", "reserved", "alone"],
)
def program(request: pytest.FixtureRequest, edited: Edited, alone: dict[str, Any]) -> tuple[StackConfig, Recording]:
    config = edited(**(alone if request.param is None else request.param))
    return config, run_program(config, PlaceholderCloud())


def of(recorded: Recording, kind: str) -> list[PlannedResource]:
    return [r for r in recorded.resources if r.type.startswith("openstack:") and r.type.endswith(f":{kind}")]


def machines(recorded: Recording, role: str) -> list[PlannedResource]:
    return [r for r in of(recorded, "Instance") if r.inputs["metadata"]["gangway:role"] == role]


def told(machine: PlannedResource) -> dict[str, str]:
    """The files that a machine's user data write, by path."""
    text = gzip.decompress(base64.b64decode(machine.inputs["userData"])).decode()
    return {file["path"]: file["content"] for file in yaml.safe_load(text)["write_files"]}


def test_everything_is_made_by_the_stacks_own_provider(program: tuple[StackConfig, Recording]) -> None:
    config, recorded = program
    (provider,) = [r for r in recorded.resources if r.type == "pulumi:providers:openstack"]
    assert (provider.inputs["cloud"], provider.inputs["region"]) == ("lab", config.region)
    assert not {"password", "applicationCredentialSecret", "token"} & set(provider.inputs), "clouds.yaml's business"
    components = {r.urn for r in recorded.resources if r.type.startswith("gangway:")}
    assert all(r.parent in components for r in recorded.resources if r.type.startswith("openstack:"))


def test_the_exports(program: tuple[StackConfig, Recording]) -> None:
    config, recorded = program
    exported = dict(recorded.result)
    assert set(exported) == {
        "dashboard", "group_names", "head_instance_id", "image", "job", "log_group", "mount_point", "run_bucket",
        "run_bucket_url", "signing_public_key", "zone",
    }  # fmt: skip
    assert len(exported["group_names"]) == config.cluster.nodes.max
    assert (exported["head_instance_id"] is None) is (config.cluster.nodes.max == 1)
    assert (exported["mount_point"] is None) is (config.storage is None)
    assert (exported["log_group"], exported["dashboard"]) == (None, None)
    assert exported["run_bucket_url"] == f"swift://{exported['run_bucket']}"


def test_no_machine_has_a_floating_address_or_a_key_pair(program: tuple[StackConfig, Recording]) -> None:
    _, recorded = program
    assert not [r for r in recorded.resources if "floatingIp" in r.type]
    assert all("keyPair" not in machine.inputs for machine in of(recorded, "Instance"))


def test_there_are_as_many_machines_as_planned_at_their_addresses(program: tuple[StackConfig, Recording]) -> None:
    config, recorded = program
    planned = plan(config)
    ports = {
        port.name: port.inputs["fixedIps"][0]["ipAddress"] for port in of(recorded, "Port") if "fixedIps" in port.inputs
    }
    workers = machines(recorded, "worker")
    assert [ports[worker.name] for worker in workers] == [
        planned.network.worker(index) for index in range(planned.num_machines)
    ]
    assert len(machines(recorded, "head")) == int(planned.head)
    if planned.head:
        assert ports[f"{config.stack}-head"] == planned.network.head


def test_user_data_has_the_job_and_no_secret(program: tuple[StackConfig, Recording]) -> None:
    config, recorded = program
    for machine in of(recorded, "Instance"):
        files = told(machine)
        assert (
            f"BUCKET_URI='swift://${{Container.{config.stack}-runs.name}}/{config.stack}'"
            in (files["/etc/gangway/node.env"])
        )
        text = json.dumps(files)
        for word in ("ApplicationCredential", "accessKey", "PRIVATE KEY-----", "TempUrl"):
            assert word not in text, word
        assert "/opt/gangway/bin/fetch-secrets.sh" in files
        assert ("/opt/gangway/bin/fetch-key.sh" in files) is (config.cluster.nodes.max > 1)
    spec = json.loads(told(machines(recorded, "worker")[0])["/etc/gangway/job.json"])
    assert spec == recorded.result["job"]


def test_machines_secrets_are_one_object_behind_a_url_of_hours(program: tuple[StackConfig, Recording]) -> None:
    config, recorded = program
    (stored,), (signed,) = of(recorded, "ContainerObject"), of(recorded, "TempUrl")
    content = json.loads(stored.inputs["content"]["value"])
    assert content["credential"] == {
        "auth_url": "https://cloud.example.com:5000/v3",
        "id": f"${{ApplicationCredential.{config.stack}-node.id}}",
        "region": config.region,
        "secret": f"${{ApplicationCredential.{config.stack}-node.secret}}",
    }
    assert ("PRIVATE KEY" in content["member_key"]) is (config.cluster.nodes.max > 1)
    assert public_half(content["signing_key"]) == dict(recorded.result)["signing_public_key"]
    assert signed.inputs["ttl"] == 8 * 3600
    for machine in of(recorded, "Instance"):
        assert "SIGNING_KEY=/etc/gangway/secrets.json\n" in told(machine)["/etc/gangway/node.env"]
        place = machine.inputs["metadata"]["gangway:secrets"]
        assert place["value"] == f"${{TempUrl.{config.stack}-secrets.url}}"
        assert machine.to_json()["inputs"]["metadata"]["gangway:secrets-signature"] == "[secret]"


def test_an_accounts_own_key_signs_where_a_container_has_none(edited: Edited) -> None:
    """Ceph's gateway."""
    recorded = run_program(edited(openstack={"temp_url_key": {"secure": "v1:abc:def"}}), PlaceholderCloud())
    (signed,) = of(recorded, "TempUrl")
    assert signed.inputs["digest"] == "sha1"
    assert signed.inputs["key"]["value"] == "[encrypted in the stack file]"
    (container,) = [r for r in of(recorded, "Container") if r.name.endswith("-secrets")]
    assert "Temp-URL-Key" not in container.inputs["metadata"]


def test_what_a_node_needs_stands_before_it(program: tuple[StackConfig, Recording]) -> None:
    """And outlives it: it meets the others, mounts, and saves with these."""
    _, recorded = program
    kinds = ("RouterInterface", "SecGroupRule", "ApplicationCredential", "Container", "ShareAccess", "Share", "TempUrl")
    needed = {r.urn for kind in kinds for r in of(recorded, kind)} | {r.urn for r in machines(recorded, "head")}
    assert len(needed) >= 5
    known = {r.urn: r.dependencies for r in recorded.resources}

    def above(urn: str, seen: set[str]) -> set[str]:
        for other in known.get(urn, frozenset()) - seen:
            seen.add(other)
            above(other, seen)
        return seen

    for worker in machines(recorded, "worker"):
        assert needed <= above(worker.urn, set())


@pytest.mark.slow
def test_the_share_admits_the_stacks_machines_alone(edited: Edited) -> None:
    def clients(**sections: Any) -> tuple[str, str]:
        (access,) = of(run_program(edited(**sections), PlaceholderCloud()), "ShareAccess")
        return access.inputs["accessType"], access.inputs["accessTo"]

    assert clients() == ("ip", "${Router.openstack-gpu-nat.externalFixedIps[0].ipAddress}")
    assert clients(**INSIDE) == ("ip", "10.42.0.0/16")
    assert clients(**NATIVE) == ("cephx", "gangway-openstack-gpu")


@pytest.mark.slow
def test_a_zone_is_the_machines(edited: Edited) -> None:
    """Manila's and the networks' are called otherwise."""
    recorded = run_program(edited(cluster={"zone": "az-1"}), PlaceholderCloud())
    zoned = {r.type for r in recorded.resources if r.inputs.get("availabilityZone") == "az-1"}
    assert zoned == {"openstack:compute/instance:Instance"}
    assert recorded.result["zone"] == "az-1"


def test_native_cephfs_has_its_key_on_the_machines_alone(edited: Edited) -> None:
    recorded = run_program(edited(**NATIVE), PlaceholderCloud())
    for machine in of(recorded, "Instance"):
        files = told(machine)
        assert "MOUNT_USER=gangway-openstack-gpu" in files["/etc/gangway/node.env"]
        assert "/opt/gangway/bin/mount-ceph.sh" in files
    (stored,) = of(recorded, "ContainerObject")
    assert json.loads(stored.inputs["content"]["value"])["mount_key"] == (
        "${ShareAccess.openstack-gpu-machines.accessKey}"
    )


def test_the_head_scrapes_where_it_can_fetch_prometheus(edited: Edited) -> None:
    shipped = edited()
    without = shipped.model_copy(update={"head": shipped.head.model_copy(update={"prometheus_image": None})})
    for config, scrapes in ((shipped, True), (edited(**INSIDE), False), (without, False)):
        (head,) = machines(run_program(config, PlaceholderCloud()), "head")
        assert ("/etc/gangway/prometheus.yaml" in told(head)) is scrapes


def test_boot_volumes(edited: Edited) -> None:
    recorded = run_program(edited(**VOLUME), PlaceholderCloud())
    sizes = {m.name: m.inputs["blockDevices"][0]["volumeSize"] for m in of(recorded, "Instance")}
    assert sizes.pop("openstack-gpu-head") == 64
    assert set(sizes.values()) == {200}
    bill = price(edited(**VOLUME), recorded.resources)
    assert "openstack-gpu-0-on-demand: boot volumes, 200 GiB each" in [line.name for line in bill]


def test_the_bill_names_every_resource_that_costs(made: Plan) -> None:
    lines = {line.name: line.hourly for line in made.cost.components}
    assert lines == {
        "openstack-gpu-0-on-demand: 4 x gpu.h100x8": 58.0,
        "openstack-gpu-head: m1.medium": None,
        "openstack-gpu-share: 4096 GiB, NFS": None,
        "openstack-gpu-runs: objects kept": None,
    }


def test_the_plan_is_whole(made: Plan, check_plan: Callable[[Plan], None]) -> None:
    check_plan(made)
    data = made.to_json()
    assert data["energy"]["kwh"] > 0
    assert data["carbon"]["gco2e"] > 0
    assert data["versions"]["pulumi-openstack"]
    secrets = json.dumps(data["resources"])
    # Of each of five machines two; key, content, name and URL's parts; and what is kept of the three keys.
    assert secrets.count("[secret]") == 18
    assert "PRIVATE KEY" not in secrets
    assert "ApplicationCredential.openstack-gpu-node.secret" not in secrets
