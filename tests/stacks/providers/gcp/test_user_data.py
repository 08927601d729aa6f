"""What machines on Google Cloud read at boot: the plan's own names, rendered by `images`, in the declared resources."""

import base64
import gzip
import json
from collections.abc import Callable
from typing import Any

import pytest
import yaml

from gangway.components.gcp.fabric import nccl_plugin
from gangway.stacks.config.stack_config import StackConfig
from gangway.stacks.plan.plan import Plan, run_program
from gangway.stacks.providers.gcp.plan import plan
from gangway.stacks.providers.gcp.user_data import nccl_setup
from gangway.stacks.recording import PlaceholderCloud, PlannedResource

GPU, POD, SLICES = "gcp-a3-spot", "gcp-v5e-pod", "gcp-v5p-multislice"
Edited = Callable[..., StackConfig]


def files_of(resource: PlannedResource) -> dict[str, str]:
    """What a machine's cloud-init writes: path -> text."""
    text = gzip.decompress(base64.b64decode(resource.inputs["metadata"]["user-data"])).decode()
    assert text.startswith("#cloud-config")
    return {entry["path"]: entry["content"] for entry in yaml.safe_load(text)["write_files"]}


def machines(resources: tuple[PlannedResource, ...], kind: str) -> list[PlannedResource]:
    return [r for r in resources if r.type.startswith("gcp:compute/") and r.type.endswith(f":{kind}")]


def startup_script(resources: tuple[PlannedResource, ...]) -> str:
    (request,) = [r for r in resources if r.type.endswith(":QueuedTpuRequest")]
    script: str = request.inputs["startup_script"]
    return script


def test_workers_boot_with_the_plans_own_names(gcp_plans: dict[str, Plan]) -> None:
    made = gcp_plans[GPU]
    templates = machines(made.resources, "InstanceTemplate")
    assert len(templates) == 2
    for template in templates:
        files = files_of(template)
        assert json.loads(files["/etc/gangway/job.json"]) == made.job
        settings = files["/etc/gangway/node.env"]
        for word in (
            "${Instance.gcp-a3-spot-lustre.mountPoint}",
            "gs://${Bucket.gcp-a3-spot-runs.name}",
        ):
            assert word in settings or word in files["/etc/gangway/job.env"], word
        assert "tcpxo" in files["/etc/gangway/nccl.env"]
        assert json.loads(files["/etc/gangway/train.json"])["preset"] == "dcgan-digits"


def test_the_head_imports_the_data_and_fills_the_ladder(gcp_plans: dict[str, Plan]) -> None:
    (head,) = machines(gcp_plans[GPU].resources, "Instance")
    files = files_of(head)
    request = json.loads(files["/etc/gangway/import.json"])
    assert request["url"].endswith("${Instance.gcp-a3-spot-lustre.id}:importData")
    assert request["body"]["gcsPath"] == {"uri": "gs://my-bucket/digits/"}
    namespace: dict[str, Any] = {"__name__": "fill_order"}
    exec(compile(files["/opt/gangway/lib/gangway/images/node/fill_order.py"], "fill_order.py", "exec"), namespace)
    assert namespace["plan_fill"](4, [[1, 0, 0], [2, 0, 0]], [4, 0, 0]) == (4, 2, 0)
    fill = files["/etc/systemd/system/gangway-fill.service"].replace("$$", "$")
    assert "gs://${Bucket.gcp-a3-spot-head.name}/fallback.json" in fill
    template = machines(gcp_plans[GPU].resources, "InstanceTemplate")[0]
    (ladder,) = (
        json.loads(one.inputs["content"]["value"])
        for one in gcp_plans[GPU].resources
        if one.type.endswith(":BucketObject") and one.inputs["name"] == "fallback.json"
    )
    node = dict(line.split("=", 1) for line in files_of(template)["/etc/gangway/node.env"].splitlines())
    marked = "/".join(node[name].strip("'") for name in ("BUCKET_URI", "ENDED_OBJECT"))
    assert ladder["ended_uri"] == marked, "where the last node marks the job's end, the head looks"
    assert "/etc/gangway/import.json" not in files_of(machines(gcp_plans[GPU].resources, "InstanceTemplate")[0])


def test_one_rung_needs_no_filling(gcp_edited: Edited) -> None:
    config = gcp_edited(GPU, cluster={"capacity": [{"kind": "spot"}]})
    (head,) = machines(run_program(config, PlaceholderCloud()).resources, "Instance")
    assert not [path for path in files_of(head) if "fill" in path and "data" not in path]


@pytest.mark.slow
def test_without_a_head_a_worker_copies_the_data(gcp_edited: Edited) -> None:
    config = gcp_edited(GPU, cluster={"nodes": {"min": 1, "max": 1}, "capacity": [{"kind": "spot"}]})
    (template,) = machines(run_program(config, PlaceholderCloud()).resources, "InstanceTemplate")
    settings = files_of(template)["/etc/gangway/node.env"]
    assert "DATA_BY=copy" in settings.replace("'", "")
    assert "gs://my-bucket/digits" in settings


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "storage", "mount"),
    [
        # Its address comes from Google alone, and no plan knows it.
        (POD, {}, "MOUNT_SOURCE=:/gangway\n"),
        (SLICES, {}, "${Instance.gcp-v5p-multislice-lustre.mountPoint}"),
        (SLICES, None, "${Bucket.gcp-v5p-multislice-runs.name}/gcp-v5p-multislice/shared"),
    ],
)
def test_hosts_of_slices_mount_what_they_share(gcp_edited: Edited, name: str, storage: Any, mount: str) -> None:
    config = gcp_edited(name, storage=storage)
    script = startup_script(run_program(config, PlaceholderCloud()).resources)
    assert mount in script
    assert script.startswith("#!")
    assert len(script.encode()) < 256 * 1024, "what Google takes as one value of metadata"


@pytest.mark.slow
def test_the_same_configuration_gives_the_same_bytes(gcp_configs: dict[str, StackConfig]) -> None:
    """Another byte would be another template, and the head's another machine."""

    def data() -> list[str]:
        resources = run_program(gcp_configs[GPU], PlaceholderCloud()).resources
        found = [*machines(resources, "InstanceTemplate"), *machines(resources, "Instance")]
        return [resource.inputs["metadata"]["user-data"] for resource in found]

    assert data() == data()


@pytest.mark.parametrize("machine_type", ["a3-megagpu-8g", "a3-ultragpu-8g"])
def test_a_plug_in_is_set_up_as_it_says(gcp_edited: Edited, machine_type: str) -> None:
    planned = plan(gcp_edited(GPU, cluster={"machine_type": machine_type}))
    plugin = nccl_plugin(planned.gpu_machine, own_image=False)
    assert plugin is not None
    setup = nccl_setup(plugin)
    assert plugin.image in setup.install_argv
    assert setup.kernel_modules == plugin.host.kernel_modules
    assert (setup.side_argv != ()) is (plugin.side is not None)
    if plugin.side is not None:
        assert setup.side_name == plugin.side.name
        assert plugin.side.image in setup.side_argv
