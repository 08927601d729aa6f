"""The plan of stacks on existing machines: the job, its figures, and each machine's script."""

import hashlib
import json
from collections.abc import Callable
from typing import Any

import pytest

from gangway.components.core.findings import InputError, Severity
from gangway.stacks.config.stack_config import StackConfig
from gangway.stacks.plan.plan import Plan, make_plan
from gangway.stacks.providers.hosts.plan import installer, job_spec, plan

Edited = Callable[..., StackConfig]


def codes(made: Plan) -> dict[str, Severity]:
    return {finding.code: finding.severity for finding in made.findings}


def test_several_machines_meet_at_the_first(lab: StackConfig, lab_plan: Plan) -> None:
    job = lab_plan.job
    assert job["rendezvous"] == {"host": "10.30.0.11", "port": 29400, "standalone": False}
    assert (job["num_nodes_min"], job["num_nodes_max"], job["processes_per_node"]) == (1, 2, 8)
    assert job["image"] == lab.image.prebuilt
    training = job["training"]
    assert training["run_dir"] == "/shared/gangway/runs/hosts-lab"
    assert training["data_dir"] == "/shared/data/celeba"
    # A quarter of 8 x 400.
    assert training["fabric_min_gbps"] == 800
    assert job["env"]["NCCL_NET"] == "IB"
    mounts = {(volume["source"], volume["read_only"]) for volume in job["volumes"]}
    assert mounts == {("/shared/gangway/runs/hosts-lab", False), ("/shared/data/celeba", True)}


def test_a_machine_alone_needs_no_meeting_and_no_share(alone: StackConfig) -> None:
    job = job_spec(alone, plan(alone))
    assert job.rendezvous.standalone
    assert job.training is not None
    assert job.training.run_dir == "/var/lib/gangway/runs/hosts-lab"
    assert (job.training.data_dir, job.training.fabric_min_gbps) == ("", None)
    assert set(job.env) == {"GANGWAY_CONTEXT"}


def test_the_record_gets_the_figures_of_the_stack_file(lab_plan: Plan) -> None:
    context = json.loads(lab_plan.job["env"]["GANGWAY_CONTEXT"])
    assert (context["provider"], context["region"], context["machine_type"]) == ("hosts", "lab", "dgx-h100")
    price = context["usd_per_hour"]
    assert price["value"] == 14.5
    assert "gangway:site.usd_per_node_hour" in price["source"]
    assert price["as_of"] == "2026-11-01"
    assert context["intensity_g_per_kwh"]["value"] == 380
    assert context["fabric_gbps"]["value"] == 3200


def test_the_bill_is_the_owners_own(lab_plan: Plan) -> None:
    (line,) = lab_plan.cost.components
    assert (line.quantity, line.price, line.hourly, line.confidence) == (2, 14.5, 29.0, "stated")
    assert lab_plan.rungs[0].nodes_hourly == 29.0
    assert lab_plan.energy.pue == 1.3
    data = lab_plan.to_json()
    assert set(data["versions"]) == {"gangway", "pulumi", "pulumi-command"}
    assert json.loads(json.dumps(data, allow_nan=False))["provider"] == "hosts"


def test_missing_prices_are_unknown_and_not_zero(alone: StackConfig) -> None:
    made = make_plan(alone)
    assert made.cost.unknown == ("hosts-lab-0-on-demand: 1 x H100x8",)
    assert made.rungs[0].run is None
    assert made.idle_hourly is None
    price = json.loads(made.job["env"]["GANGWAY_CONTEXT"])["usd_per_hour"]
    assert (price["value"], price["provenance"]) == (None, "absent")
    assert price["source"] == "not said: gangway:site.usd_per_node_hour"
    assert {"cost.price-unknown", "site.price-unsaid", "site.assumed"} <= set(codes(made))
    assert made.energy.kwh is not None


def test_usage_per_gib_is_ignored(edited_lab: Edited) -> None:
    made = make_plan(edited_lab(estimate={"log_gib": 3, "nat_gib": 2, "images_per_second": 900}))
    ignored = {finding.path for finding in made.findings if finding.code == "estimate.ignored"}
    assert ignored == {"gangway:estimate.log_gib", "gangway:estimate.nat_gib"}
    assert len(made.cost.components) == 1
    assert "cost.usage-unsaid" not in codes(made)


def test_findings_name_missing_cloud_services(lab_plan: Plan) -> None:
    said = codes(lab_plan)
    assert said["budget.not-enforced"] is Severity.WARNING
    for code in ("observe.prometheus-only", "hosts.ports", "hosts.agent", "fabric.site", "fabric.check"):
        assert said[code] is Severity.INFO
    assert not {"hosts.unknown-key", "site.price-unsaid", "storage.not-shared"} & set(said)
    assert not lab_plan.has_errors


def test_findings_of_a_single_machine(alone: StackConfig) -> None:
    made = make_plan(alone)
    said = codes(made)
    assert said["hosts.unknown-key"] is Severity.WARNING
    assert said["storage.records-in-folder"] is Severity.INFO
    assert not {"hosts.ports", "hosts.agent", "fabric.check", "storage.not-shared"} & set(said)
    (observed,) = [finding for finding in made.findings if finding.code == "observe.prometheus-only"]
    assert "no Prometheus" in observed.message


def test_one_finding_reports_many_unknown_machines(edited_lab: Edited, one_machine: Callable[..., Any]) -> None:
    machines = [one_machine(address=f"10.20.0.{number}") for number in range(1, 6)]
    made = make_plan(edited_lab(hosts={"machines": machines}, cluster={"nodes": {"min": 2, "max": 5}}))
    (finding,) = [finding for finding in made.findings if finding.code == "hosts.unknown-key"]
    assert "10.20.0.1, 10.20.0.2, 10.20.0.3 and 2 more" in finding.message


def test_several_machines_without_a_share_are_an_error(edited_lab: Edited) -> None:
    made = make_plan(edited_lab(hosts={"shared_dir": None}))
    assert made.has_errors
    assert codes(made)["storage.not-shared"] is Severity.ERROR


def test_a_fabric_check_without_a_fabric_is_reported(edited_lab: Edited) -> None:
    made = make_plan(edited_lab(site={"fabric": None}, cluster={"fabric_check": {"min_fraction": 0.5}}))
    assert codes(made)["fabric.check-ignored"] is Severity.WARNING
    (ports,) = [finding for finding in made.findings if finding.code == "hosts.ports"]
    assert "NCCL and the gradients" in ports.message


@pytest.mark.parametrize(
    ("changes", "place", "said"),
    [
        ({"cluster": {"nodes": {"min": 2, "max": 4}}}, "gangway:cluster.nodes.max", "set nodes: {min: 2, max: 2}"),
        ({"cluster": {"capacity": [{"kind": "spot"}]}}, "gangway:cluster.capacity[0].kind", "on-demand"),
        ({"site": {"accelerator": "RTX4090x8"}}, "gangway:site.accelerator_watts", "add accelerator_watts"),
        ({"tags": {"gangway.run": "mine"}}, "gangway:tags.gangway.run", "give the tag another name"),
        ({"tags": {"naïve": "yes"}}, "gangway:tags.naïve", "remove the characters"),
        ({"budget": {"monthly_usd": 1}}, "gangway:budget.monthly_usd", "at least 29.00 USD"),
    ],
)
def test_refused_settings(edited_lab: Edited, changes: dict[str, Any], place: str, said: str) -> None:
    with pytest.raises(InputError) as caught:
        make_plan(edited_lab(**changes))
    assert caught.value.place == place
    assert said in str(caught.value)


def test_each_machine_gets_a_separate_script(lab: StackConfig, lab_plan: Plan) -> None:
    planned = plan(lab)
    job = job_spec(lab, planned)
    first, second = (installer(lab, planned, job, position) for position in (0, 1))
    for part in ("gangway-rendezvous.service", "gangway-prometheus.service", "gangway-record.timer"):
        assert part in first
        assert part not in second
    for part in ("check-rdma.sh", "RDMA_DEVICES=8", "SHARED_DIR=/shared/gangway", "BUCKET_URI=s3://my-bucket/runs"):
        assert part in first
        assert part in second
    digests = {r.name: r.inputs["triggers"] for r in lab_plan.resources if r.type.endswith(":CopyToRemote")}
    assert digests == {
        "hosts-lab-dgx-1-files": [hashlib.sha256(first.encode()).hexdigest()],
        "hosts-lab-dgx-2-files": [hashlib.sha256(second.encode()).hexdigest()],
    }


def test_the_words_of_its_setup_reach_the_machine(alone: StackConfig) -> None:
    planned = plan(alone)
    text = installer(alone, planned, job_spec(alone, planned), 0)
    assert "nvidia.com/gpu=all" in text
    assert "podman-docker" in text
    assert "BUCKET_URI=/srv/results/hosts-lab" in text
    assert "gangway-prometheus.service" not in text.partition("write_files")[2]


def test_roce_is_looked_for_on_ethernet(edited_lab: Edited) -> None:
    config = edited_lab(
        site={"fabric": {"kind": "roce", "devices": 2, "gbps": 100, "gid_index": 3}, "interface": "bond0"}
    )
    planned = plan(config)
    job = job_spec(config, planned)
    assert job.env["NCCL_IB_GID_INDEX"] == "3"
    assert job.env["NCCL_SOCKET_IFNAME"] == "=bond0"
    assert "RDMA_LINK_LAYER=Ethernet" in installer(config, planned, job, 0)


def test_exports_have_the_names_that_others_read(lab: StackConfig) -> None:
    from gangway.stacks.plan.plan import run_program
    from gangway.stacks.recording import PlaceholderCloud

    result = run_program(lab, PlaceholderCloud()).result
    assert result["run_bucket"] == result["run_bucket_url"] == "s3://my-bucket/runs"
    assert result["group_names"] == ["dgx-1", "dgx-2"]
    assert result["host_addresses"] == ["10.20.0.11", "10.20.0.12"]
    assert result["mount_point"] == "/shared/gangway"
