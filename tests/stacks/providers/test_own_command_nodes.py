"""Stacks of other providers than AWS whose command runs on several nodes: where they meet, what that costs, what their
machines are told of the fabric, and what does not go together.
"""

from collections.abc import Callable
from typing import Any

import pytest

from gangway.components.core.findings import InputError
from gangway.components.core.job import JobSpec
from gangway.stacks.config.stack_config import StackConfig
from gangway.stacks.plan.plan import Plan, make_plan
from gangway.stacks.providers.hosts.plan import plan
from gangway.stacks.providers.hosts.user_data import installer, job_spec

SHIPPED = {"gcp": "gcp-a3-spot", "azure": "azure-ndv5-spot", "openstack": "openstack-gpu", "hosts": "hosts-lab"}
ONE_RUNG: dict[str, Any] = {"cluster": {"capacity": [{"kind": "on-demand"}]}}
Own = Callable[..., StackConfig]
UserData = Callable[[Plan, str], dict[str, str]]
every_provider = pytest.mark.parametrize("provider", list(SHIPPED))
every_cloud = pytest.mark.parametrize("provider", ["gcp", "azure", "openstack"])


@pytest.fixture
def own(command_stack: Own) -> Own:
    """A shipped stack of several nodes of that provider with a command, `processes` of it on each."""

    def config(provider: str, processes: int | None = 8, **sections: Any) -> StackConfig:
        job = {"command": ["python", "train.py"], **({} if processes is None else {"processes_per_node": processes})}
        changes = [*(ONE_RUNG.items() if provider == "azure" else ()), *sections.items()]
        return command_stack(provider, SHIPPED[provider], job, changes)

    return config


def codes(made: Plan) -> set[str]:
    return {finding.code for finding in made.findings}


def get_job(made: Plan) -> JobSpec:
    return JobSpec.model_validate(made.job)


@pytest.mark.slow
@every_provider
def test_they_meet_at_the_head_without_a_key_and_the_plan_says_so(provider: str, own: Own) -> None:
    config = own(provider)
    made = make_plan(config)
    assert not made.has_errors, made.errors
    job, nodes = get_job(made), config.cluster.nodes
    assert nodes.max > 1
    assert job.command_meets
    assert not job.rendezvous.standalone
    assert job.rendezvous.port == 29400
    assert (job.env["GANGWAY_NNODES"], job.env["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"]) == (
        f"{nodes.min}:{nodes.max}",
        "1",
    )
    assert "job.rendezvous-without-key" in codes(made)
    assert "fabric.check" not in codes(made), "the fabric is not tested before a custom command"
    assert not [one.name for one in made.resources if one.name.endswith("member-key") and provider != "azure"]


@pytest.mark.slow
@every_cloud
def test_the_head_is_priced_and_holds_the_store_alone(provider: str, own: Own, user_data: UserData) -> None:
    made = make_plan(own(provider))
    files = user_data(made, "head")
    assert "TCPStore" in files["/etc/systemd/system/gangway-rendezvous.service"]
    assert not [path for path in files if "prometheus" in path or "record" in path or "fetch-key" in path]
    assert "--rdzv-endpoint=" in user_data(made, "worker")["/etc/gangway/job.env"]
    lines = [line["name"] for line in made.to_json()["cost"]["components"]]
    assert [line for line in lines if "head" in line] or provider == "openstack", lines


@pytest.mark.slow
@every_provider
def test_without_torchrun_they_meet_nowhere(provider: str, own: Own) -> None:
    head = {"head": None, "openstack": {"head_image": None}} if provider == "openstack" else {}
    made = make_plan(own(provider, None, **head))
    assert not made.has_errors, made.errors
    job = get_job(made)
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
    assert "rendezvous" in (caught.value.allowed or "")


@pytest.mark.slow
@pytest.mark.parametrize("provider", ["azure", "openstack", "hosts"])
def test_nccl_gets_settings_of_the_fabric_only(provider: str, own: Own) -> None:
    job = get_job(make_plan(own(provider)))
    assert job.env["NCCL_NET"] == "IB"
    if provider == "azure":
        assert {volume.target for volume in job.volumes} >= {"/etc/nccl.conf", "/opt/microsoft"}


def test_who_says_otherwise_is_heard(own: Own) -> None:
    config = own("openstack")
    assert config.own_command is not None
    mine = config.own_command.model_copy(update={"env": {"NCCL_NET": "Socket"}})
    assert get_job(make_plan(config.model_copy(update={"job": mine}))).env["NCCL_NET"] == "Socket"


@pytest.mark.slow
def test_on_google_cloud_gradients_go_over_tcp_and_the_plan_says_so(own: Own) -> None:
    made = make_plan(own("gcp"))
    assert "NCCL_NET" not in get_job(made).env
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
