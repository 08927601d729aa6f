"""Stacks with a custom command of every provider: plan, price, user data and refused settings."""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gangway.components.core.findings import InputError
from gangway.components.core.job import JobSpec
from gangway.stacks.config.stack_config import StackConfig
from gangway.stacks.loading.loader import from_file
from gangway.stacks.plan.plan import Plan, make_plan, run_program
from gangway.stacks.providers.hosts.plan import installer, job_spec, plan
from gangway.stacks.recording import PlaceholderCloud

DIGEST = "@sha256:" + "ab" * 32
SHIPPED = {
    "aws": "aws-g5-dev",
    "gcp": "gcp-a3-spot",
    "azure": "azure-nc-dev",
    "openstack": "openstack-gpu",
    "hosts": "hosts-lab",
}
ONE: dict[str, Any] = {"nodes": {"min": 1, "max": 1}}
CHANGED: dict[str, dict[str, Any]] = {
    "aws": {"cluster": {"capacity": [{"kind": "spot", "max_usd_per_hour": 0.9}, {"kind": "on-demand"}]}},
    "gcp": {"cluster": ONE},
    "azure": {},
    "openstack": {"cluster": ONE, "head": None, "openstack": {"head_image": None}},
    "hosts": {"cluster": ONE},
}
"""What a shipped stack has to say otherwise to have one node."""
RUN_DIRS = {
    "aws": "/var/lib/gangway/runs/own",
    "gcp": "/shared/runs/own",
    "azure": "/var/lib/gangway/runs/own",
    "openstack": "/shared/runs/own",
    "hosts": "/shared/gangway/runs/own",
}
Own = Callable[..., StackConfig]
UserData = Callable[[Plan, str], dict[str, str]]
every_provider = pytest.mark.parametrize(
    "provider", ["aws", *(pytest.param(name, marks=pytest.mark.slow) for name in SHIPPED if name != "aws")]
)
other_providers = pytest.mark.parametrize("provider", [name for name in SHIPPED if name != "aws"])


@pytest.fixture
def own(command_stack: Own) -> Own:
    """A shipped stack of that provider with a command on one node, and other sections changed; None removes."""
    job = {
        "command": ["python", "train.py", "--epochs", "3"],
        "env": {"GREETING": "two words"},
        "workdir": "/work",
        "processes_per_node": 1,
    }

    def config(provider: str, stack: str = "", **sections: Any) -> StackConfig:
        def first_alone(values: dict[str, Any]) -> None:
            if provider == "hosts":
                values["gangway:hosts"]["machines"] = values["gangway:hosts"]["machines"][:1]

        changes = [*CHANGED[provider].items(), *sections.items()]
        return command_stack(provider, stack or SHIPPED[provider], job, changes, first_alone)

    return config


def codes(made: Plan) -> set[str]:
    return {finding.code for finding in made.findings}


@every_provider
def test_the_plan_prices_all_of_max_hours_and_forecasts_nothing(provider: str, own: Own) -> None:
    made = make_plan(own(provider))
    assert not made.has_errors, made.errors
    data = made.to_json()
    assert (data["ladder"], data["checkpoints"]) == (None, None)
    assert data["expected_run"]["hours"] is None
    assert data["expected_run"]["throughput"]["provenance"] == "unknown"
    assert {(rung["run_hours"], rung["spot"]) for rung in data["rungs"]} == {(4, None)}
    for rung in made.rungs:
        assert rung.hourly is not None
        assert rung.run == pytest.approx(rung.hourly * 4)
    assert data["energy"]["kwh"] is data["carbon"]["gco2e"] is data["carbon"]["sci"]["g_per_kimg"] is None
    assert data["energy"]["source"].startswith("absent: ")
    assert data["cost"]["run_most"]["usd"] == pytest.approx(max(rung.run or 0.0 for rung in made.rungs))
    assert "run.own-command" in codes(made)
    trainers = ("batch.", "data.", "checkpoint.", "memory.", "controller.", "autoscale.", "capacity.spot-infeasible")
    assert not [code for code in codes(made) if code.startswith(trainers)]


@every_provider
def test_the_job_says_what_runs(provider: str, own: Own, command_images: dict[str, str]) -> None:
    job = JobSpec.model_validate(make_plan(own(provider)).job)
    assert job.command is not None
    assert job.command.words == ("python", "train.py", "--epochs", "3")
    assert job.image == command_images[provider]
    assert job.rendezvous.standalone
    assert job.shutdown_timeout_sec == (90 if provider in ("aws", "hosts") else 25)
    # No fabric's and no trainer's: one node has nobody to reach, and the image is somebody's own.
    assert {name for name in job.env if not name.startswith("GANGWAY_CODES_")} == {
        "GANGWAY_NOTICES",
        "GANGWAY_RUN_DIR",
        "GREETING",
    }
    assert job.env["GANGWAY_RUN_DIR"] == RUN_DIRS[provider]


@pytest.mark.parametrize(
    "provider", ["aws", *(pytest.param(name, marks=pytest.mark.slow) for name in ("gcp", "azure", "openstack"))]
)
def test_user_data_of_the_worker(provider: str, own: Own, user_data: UserData) -> None:
    files = user_data(make_plan(own(provider)), "worker")
    assert {"/opt/gangway/bin/own-node.sh", "/opt/gangway/bin/own-job.sh"} <= files.keys()
    assert "own-node.sh" in files["/etc/gangway/job.env"]
    assert "gangway.trainer.launch" not in files["/etc/gangway/job.env"]
    assert "run_folder" in files["/opt/gangway/bin/upload-record.sh"]
    assert not {"/opt/gangway/bin/fetch-key.sh", "/etc/gangway/nccl.env", "/etc/gangway/fabric.env"} & files.keys()


def test_script_of_the_machine(own: Own) -> None:
    config = own("hosts")
    planned = plan(config)
    script = installer(config, planned, job_spec(config, planned), 0)
    assert "own-node.sh" in script
    assert "gangway-prometheus.service" not in script
    assert "RESULTS_AT_END=yes" in script


@pytest.mark.slow
@pytest.mark.parametrize("provider", ["gcp", "azure"])
def test_the_head_fills_the_ladder_and_runs_nothing_of_the_commands_image(
    provider: str, own: Own, user_data: UserData
) -> None:
    files = user_data(make_plan(own(provider)), "head")
    assert "/etc/systemd/system/gangway-fill.timer" in files
    assert "/etc/systemd/system/gangway-rendezvous.service" not in files
    assert "/etc/gangway/prometheus.yaml" not in files


@pytest.mark.slow
@pytest.mark.parametrize("provider", ["gcp", "azure"])
def test_there_is_no_alarm_for_steps_or_idle_gpus(provider: str, own: Own) -> None:
    names = {resource.name for resource in make_plan(own(provider)).resources}
    assert "own-nodes-missing" in names
    assert not {"own-no-steps", "own-gpu-idle"} & names


@every_provider
def test_no_repository_is_made_for_an_image_that_is_there(provider: str, own: Own) -> None:
    assert not [one for one in make_plan(own(provider)).resources if one.type.endswith((":Repository", ":Registry"))]


@pytest.mark.parametrize(
    ("provider", "registry"), [("aws", "ECR"), ("gcp", "Artifact Registry"), ("azure", "Azure Container Registry")]
)
def test_an_image_of_another_registry_is_refused_by_its_place(provider: str, registry: str, own: Own) -> None:
    config = own(provider)
    assert config.own_command is not None
    elsewhere = config.own_command.model_copy(update={"image": f"registry.example.com/mine{DIGEST}"})
    with pytest.raises(InputError) as caught:
        make_plan(config.model_copy(update={"job": elsewhere}))
    assert caught.value.place == "gangway:job.image"
    assert registry in caught.value.fix


def test_slices_run_the_trainer_alone(own: Own) -> None:
    config = own("gcp", "gcp-v5e-pod")
    with pytest.raises(InputError) as caught:
        make_plan(config)
    assert caught.value.place == "gangway:cluster.accelerator"
    assert "GPUs" in (caught.value.allowed or "")


def test_a_missing_registry_id_is_refused(own: Own) -> None:
    config = own("azure", azure={"registry_id": None})
    with pytest.raises(InputError) as caught:
        make_plan(config)
    assert caught.value.place == "gangway:azure.registry_id"


@every_provider
def test_outputs_are_mounted_from_beside_the_run_folder(provider: str, own: Own) -> None:
    config = own(provider)
    assert config.own_command is not None
    with_outputs = config.own_command.model_copy(update={"outputs": ("/work/results",)})
    job = JobSpec.model_validate(make_plan(config.model_copy(update={"job": with_outputs})).job)
    (volume,) = [volume for volume in job.volumes if volume.target == "/work/results"]
    assert volume.source == f"{RUN_DIRS[provider]}.outputs/work/results"
    assert not volume.read_only


@pytest.mark.parametrize("folder", ["/data/runs", "/data/runs/results", "/data", "/sets/celeba"])
def test_outputs_where_a_machine_mounts_something_are_refused(own: Own, folder: str) -> None:
    config = own("hosts", hosts={"shared_dir": "/data/runs", "data_dir": "/sets/celeba"})
    assert config.own_command is not None
    within = config.own_command.model_copy(update={"outputs": (folder,)})
    with pytest.raises(InputError) as caught:
        make_plan(config.model_copy(update={"job": within}))
    assert caught.value.place == "gangway:job.outputs"
    assert "/work/results" in caught.value.fix


SHIPPED_own_command_nodes = {
    "gcp": "gcp-a3-spot",
    "azure": "azure-ndv5-spot",
    "openstack": "openstack-gpu",
    "hosts": "hosts-lab",
}
ONE_RUNG: dict[str, Any] = {"cluster": {"capacity": [{"kind": "on-demand"}]}}
every_cloud = pytest.mark.parametrize("provider", ["gcp", "azure", "openstack"])


@pytest.fixture
def several_nodes(command_stack: Own) -> Own:
    """A shipped stack of several nodes of that provider with a command, `processes` of it on each."""

    def config(provider: str, processes: int | None = 8, **sections: Any) -> StackConfig:
        job = {"command": ["python", "train.py"], **({} if processes is None else {"processes_per_node": processes})}
        changes = [*(ONE_RUNG.items() if provider == "azure" else ()), *sections.items()]
        return command_stack(provider, SHIPPED_own_command_nodes[provider], job, changes)

    return config


def get_job(made: Plan) -> JobSpec:
    return JobSpec.model_validate(made.job)


@pytest.mark.slow
@other_providers
def test_they_meet_at_the_head_without_a_key_and_the_plan_says_so(provider: str, several_nodes: Own) -> None:
    config = several_nodes(provider)
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
def test_the_head_is_priced_and_holds_the_store_alone(provider: str, several_nodes: Own, user_data: UserData) -> None:
    made = make_plan(several_nodes(provider))
    files = user_data(made, "head")
    assert "TCPStore" in files["/etc/systemd/system/gangway-rendezvous.service"]
    assert not [path for path in files if "prometheus" in path or "record" in path or "fetch-key" in path]
    assert "--rdzv-endpoint=" in user_data(made, "worker")["/etc/gangway/job.env"]
    lines = [line["name"] for line in made.to_json()["cost"]["components"]]
    assert [line for line in lines if "head" in line] or provider == "openstack", lines


@pytest.mark.slow
@other_providers
def test_without_torchrun_they_meet_nowhere(provider: str, several_nodes: Own) -> None:
    head = {"head": None, "openstack": {"head_image": None}} if provider == "openstack" else {}
    made = make_plan(several_nodes(provider, None, **head))
    assert not made.has_errors, made.errors
    job = get_job(made)
    assert job.rendezvous.standalone
    assert "TORCH_DISABLE_SHARE_RDZV_TCP_STORE" not in job.env
    assert "NCCL_NET" not in job.env
    assert "job.nodes-do-not-meet" in codes(made)
    assert "job.rendezvous-without-key" not in codes(made)


def test_openstack_needs_a_head_for_those_that_meet_alone(several_nodes: Own) -> None:
    with pytest.raises(InputError) as caught:
        make_plan(several_nodes("openstack", head=None))
    assert caught.value.place == "gangway:head.machine_type"
    with pytest.raises(InputError) as caught:
        make_plan(several_nodes("openstack", None))
    assert "rendezvous" in (caught.value.allowed or "")


@pytest.mark.slow
@pytest.mark.parametrize("provider", ["azure", "openstack", "hosts"])
def test_nccl_gets_settings_of_the_fabric_only(provider: str, several_nodes: Own) -> None:
    job = get_job(make_plan(several_nodes(provider)))
    assert job.env["NCCL_NET"] == "IB"
    if provider == "azure":
        assert {volume.target for volume in job.volumes} >= {"/etc/nccl.conf", "/opt/microsoft"}


def test_who_says_otherwise_is_heard(several_nodes: Own) -> None:
    config = several_nodes("openstack")
    assert config.own_command is not None
    mine = config.own_command.model_copy(update={"env": {"NCCL_NET": "Socket"}})
    assert get_job(make_plan(config.model_copy(update={"job": mine}))).env["NCCL_NET"] == "Socket"


@pytest.mark.slow
def test_on_google_cloud_gradients_go_over_tcp_and_the_plan_says_so(several_nodes: Own) -> None:
    made = make_plan(several_nodes("gcp"))
    assert "NCCL_NET" not in get_job(made).env
    assert "fabric.not-for-commands" in codes(made)
    assert "fabric.not-for-commands" not in codes(
        make_plan(several_nodes("gcp", cluster={"nodes": {"min": 1, "max": 1}}))
    )


def test_scale_sets_that_do_not_reach_each_other_are_refused(several_nodes: Own) -> None:
    two = {"capacity": [{"kind": "spot"}, {"kind": "on-demand"}]}
    assert "fabric.scale-sets-apart" in {
        finding.code for finding in make_plan(several_nodes("azure", cluster=two)).errors
    }
    assert "fabric.scale-sets-apart" not in codes(make_plan(several_nodes("azure")))


def test_nodes_without_a_folder_that_they_share_are_refused(several_nodes: Own) -> None:
    assert "storage.not-shared" in {finding.code for finding in make_plan(several_nodes("gcp", storage=None)).errors}
    made = make_plan(several_nodes("hosts", hosts={"shared_dir": None}))
    assert "storage.not-shared" in {finding.code for finding in made.errors}


def test_the_first_machine_holds_the_store(several_nodes: Own) -> None:
    config = several_nodes("hosts")
    planned = plan(config)
    job = job_spec(config, planned)
    first, second = (installer(config, planned, job, at) for at in (0, 1))
    assert "TCPStore" in first
    assert "TCPStore" not in second
    for script in (first, second):
        assert f"--rdzv-endpoint={job.rendezvous.host}:29400" in script
        assert "fetch-key.sh" not in script
        assert "/dev/infiniband" in script


def test_machines_whose_ports_are_open_are_a_warning(several_nodes: Own) -> None:
    (finding,) = [one for one in make_plan(several_nodes("hosts")).findings if one.code == "job.rendezvous-without-key"]
    assert str(finding.severity) == "warning"


class Untouched(PlaceholderCloud):
    def __call__(self, type_token: str, name: str, inputs: dict[str, Any]) -> tuple[str, dict[str, Any]]:
        raise AssertionError(f"{name} was declared")


@pytest.mark.parametrize(("provider", "most"), [("azure", "65535 bytes"), ("openstack", "65535 bytes of base64")])
def test_a_command_too_long_for_a_nodes_file_is_refused_before_anything_is_declared(
    provider: str, most: str, command_stack: Own
) -> None:
    letters = [chr(number) for number in range(0x4E00, 0x9FFF)]
    env = {f"K{number}": "".join(random.Random(number).choices(letters, k=4000)) for number in range(10)}
    config = command_stack(
        provider, SHIPPED[provider], {"command": ["python"], "env": env}, CHANGED[provider].items(), lambda _: None
    )
    with pytest.raises(InputError, match=f"at most {most}") as caught:
        run_program(config, Untouched())
    assert caught.value.place == "gangway:job"


@pytest.mark.parametrize(
    ("provider", "stack", "check"),
    [
        ("azure", "azure-ndv5-spot", "gangway.stacks.providers.azure.user_data.check_custom_data"),
        ("openstack", "openstack-gpu", "gangway.components.openstack.launch.check_user_data"),
    ],
)
def test_names_that_exist_later_take_no_more_bytes_than_their_stand_ins(
    provider: str, stack: str, check: str, repo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = from_file(repo / f"stacks/Pulumi.{stack}.yaml")
    checked: list[str] = []

    def record(user_data: str, *_: str) -> str:
        checked.append(user_data)
        return user_data

    monkeypatch.setattr(check, record)
    made = run_program(config, PlaceholderCloud())
    worker = next(one for one in made.resources if one.type.endswith((":VirtualMachineScaleSet", ":Instance")))
    profile = worker.inputs["virtualMachineProfile"]["osProfile"] if provider == "azure" else worker.inputs
    assert len(profile["customData" if provider == "azure" else "userData"]) < len(checked[0])
