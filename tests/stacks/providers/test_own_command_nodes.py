"""Stacks of other providers than AWS whose command runs on several nodes: where they meet, what that costs, what their
machines are told of the fabric, and what does not go together.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from components.core.findings import InputError
from components.core.job import JobSpec
from stacks.config.loader import from_file
from stacks.config.stack_config import StackConfig
from stacks.planning.plan import Plan, make_plan
from stacks.providers.hosts.plan import plan
from stacks.providers.hosts.user_data import installer, job_spec

DIGEST = "@sha256:" + "ab" * 32
IMAGES = {
    "gcp": f"us-central1-docker.pkg.dev/my-project/mine/train{DIGEST}",
    "azure": f"myregistry.azurecr.io/mine/train{DIGEST}",
    "openstack": f"registry.example.com/mine/train{DIGEST}",
    "hosts": f"registry.example.com/mine/train{DIGEST}",
}
SHIPPED = {"gcp": "gcp-a3-spot", "azure": "azure-ndv5-spot", "openstack": "openstack-gpu", "hosts": "hosts-lab"}
REGISTRY_ID = (
    "/subscriptions/11111111-0000-0000-0000-111111111111/resourceGroups/g/providers/"
    "Microsoft.ContainerRegistry/registries/myregistry"
)
ONE_RUNG: dict[str, Any] = {"cluster": {"capacity": [{"kind": "on-demand"}]}}
CHANGED: dict[str, dict[str, Any]] = {
    "gcp": {},
    "azure": {"azure": {"registry_id": REGISTRY_ID}, **ONE_RUNG},
    "openstack": {"image": None},
    "hosts": {"image": None},
}
"""What a shipped stack has to say otherwise."""
Own = Callable[..., StackConfig]
every_provider = pytest.mark.parametrize("provider", list(SHIPPED))
every_cloud = pytest.mark.parametrize("provider", ["gcp", "azure", "openstack"])


@pytest.fixture
def own(repo: Path, tmp_path: Path) -> Own:
    """A shipped stack of several nodes of that provider with a command, `processes` of it on each."""

    def config(provider: str, processes: int | None = 8, **sections: Any) -> StackConfig:
        shipped = repo / "stacks" / f"Pulumi.{SHIPPED[provider]}.yaml"
        values = yaml.safe_load(shipped.read_text("utf-8"))["config"]
        values["gangway:job"] = {"command": ["python", "train.py"], "image": IMAGES[provider], "max_hours": 4}
        if processes is not None:
            values["gangway:job"]["processes_per_node"] = processes
        values.get("gangway:head", {}).pop("prometheus_image", None)
        values.get("gangway:observe", {}).pop("no_steps_minutes", None)
        for name, change in (*CHANGED[provider].items(), *sections.items()):
            there = values.pop(f"gangway:{name}", {})
            if change is not None:
                values[f"gangway:{name}"] = {key: new for key, new in {**there, **change}.items() if new is not None}
        path = tmp_path / "Pulumi.own.yaml"
        path.write_text(yaml.safe_dump({"config": values}), "utf-8")
        return from_file(path)

    return config


def codes(made: Plan) -> set[str]:
    return {finding.code for finding in made.findings}


def job_of(made: Plan) -> JobSpec:
    return JobSpec.model_validate(made.job)


@every_provider
def test_they_meet_at_the_head_without_a_key_and_the_plan_says_so(provider: str, own: Own) -> None:
    config = own(provider)
    made = make_plan(config)
    assert not made.has_errors, made.errors
    job, nodes = job_of(made), config.cluster.nodes
    assert nodes.max > 1
    assert job.command_meets
    assert not job.rendezvous.standalone
    assert job.rendezvous.port == 29400
    assert (job.env["GANGWAY_NNODES"], job.env["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"]) == (
        f"{nodes.min}:{nodes.max}",
        "1",
    )
    assert "job.rendezvous-without-key" in codes(made)
    assert "fabric.check" not in codes(made), "nobody tests the fabric before a command"
    assert not [one.name for one in made.resources if one.name.endswith("member-key") and provider != "azure"]


@every_provider
def test_without_torchrun_they_meet_nowhere(provider: str, own: Own) -> None:
    head = {"head": None, "openstack": {"head_image": None}} if provider == "openstack" else {}
    made = make_plan(own(provider, None, **head))
    assert not made.has_errors, made.errors
    job = job_of(made)
    assert job.rendezvous.standalone
    assert "TORCH_DISABLE_SHARE_RDZV_TCP_STORE" not in job.env
    assert "NCCL_NET" not in job.env
    assert "job.nodes-do-not-meet" in codes(made)
    assert "job.rendezvous-without-key" not in codes(made)


def test_openstack_needs_a_head_for_those_that_meet_alone(own: Own) -> None:
    with pytest.raises(InputError) as caught:
        make_plan(own("openstack", head=None))
    assert caught.value.place == "gangway:head.machine_type"
    with pytest.raises(InputError) as caught:
        make_plan(own("openstack", None))
    assert "meet" in (caught.value.allowed or "")


@pytest.mark.parametrize("provider", ["azure", "openstack", "hosts"])
def test_nccl_is_told_of_the_fabric_and_of_nothing_else(provider: str, own: Own) -> None:
    job = job_of(make_plan(own(provider)))
    assert job.env["NCCL_NET"] == "IB"
    if provider == "azure":
        assert {volume.target for volume in job.volumes} >= {"/etc/nccl.conf", "/opt/microsoft"}


def test_who_says_otherwise_is_heard(own: Own) -> None:
    config = own("openstack")
    assert config.own_command is not None
    mine = config.own_command.model_copy(update={"env": {"NCCL_NET": "Socket"}})
    assert job_of(make_plan(config.model_copy(update={"job": mine}))).env["NCCL_NET"] == "Socket"


def test_on_google_cloud_gradients_go_over_tcp_and_the_plan_says_so(own: Own) -> None:
    made = make_plan(own("gcp"))
    assert "NCCL_NET" not in job_of(made).env
    assert "fabric.not-for-commands" in codes(made)
    assert "fabric.not-for-commands" not in codes(make_plan(own("gcp", cluster={"nodes": {"min": 1, "max": 1}})))


def test_scale_sets_that_do_not_reach_each_other_are_refused(own: Own) -> None:
    two = {"capacity": [{"kind": "spot"}, {"kind": "on-demand"}]}
    assert "fabric.scale-sets-apart" in {finding.code for finding in make_plan(own("azure", cluster=two)).errors}
    assert "fabric.scale-sets-apart" not in codes(make_plan(own("azure")))


def test_nodes_without_a_folder_that_they_share_are_refused(own: Own) -> None:
    assert "storage.not-shared" in {finding.code for finding in make_plan(own("gcp", storage=None)).errors}
    made = make_plan(own("hosts", hosts={"shared_dir": None}))
    assert "storage.not-shared" in {finding.code for finding in made.errors}


def test_the_first_machine_holds_the_store(own: Own) -> None:
    config = own("hosts")
    planned = plan(config)
    job = job_spec(config, planned)
    first, second = (installer(config, planned, job, at) for at in (0, 1))
    assert "TCPStore" in first
    assert "TCPStore" not in second
    for script in (first, second):
        assert f"--rdzv-endpoint={job.rendezvous.host}:29400" in script
        assert "fetch-key.sh" not in script
        assert "/dev/infiniband" in script


def test_machines_whose_ports_are_open_are_a_warning(own: Own) -> None:
    (finding,) = [one for one in make_plan(own("hosts")).findings if one.code == "job.rendezvous-without-key"]
    assert str(finding.severity) == "warning"
