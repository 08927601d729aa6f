"""What a worker on Azure checks and mounts before it trains: real bash; adapters, apt and mounts in small."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from gangway.components.azure.fabric import plan_fabric
from gangway.components.catalog.loader import load_provider
from gangway.components.catalog.schema import AzureMachineType
from gangway.images.azure import AzureHeadSpec, AzureNodeSpec, FabricSetup, azure_env_text, fabric_env_text
from gangway.images.specs import FileSystem

CONF = "NCCL_IB_PCI_RELAXED_ORDERING=1\nNCCL_TOPO_FILE=/opt/microsoft/ndv5/topo.xml\nNCCL_IGNORE_CPU_AFFINITY=1\n"


def adapter(
    root: Path, name: str, state: str = "4: ACTIVE", rate: str = "400 Gb/sec (4X NDR)", layer: str = "InfiniBand"
) -> None:
    """A device as sysfs shows it."""
    port = root / "sys/class/infiniband" / name / "ports/1"
    port.mkdir(parents=True, exist_ok=True)
    (port / "link_layer").write_text(f"{layer}\n")
    (port / "state").write_text(f"{state}\n")
    (port / "rate").write_text(f"{rate}\n")


@pytest.fixture
def ib(azure_machine: Any, tmp_path: Path) -> Any:
    """A machine with all that its size should have."""
    for number in range(8):
        adapter(tmp_path, f"mlx5_ib{number}")
    adapter(tmp_path, "mlx5_an0", rate="100 Gb/sec (4X EDR)", layer="Ethernet")
    topology = tmp_path / "opt/microsoft/ndv5/topo.xml"
    topology.parent.mkdir(parents=True)
    topology.write_text("<system/>")
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/nccl.conf").write_text(CONF)
    azure_machine.fake("modprobe")
    azure_machine.env |= {
        "GANGWAY_SYSFS": f"{tmp_path}/sys",
        "GANGWAY_RDMA_DEADLINE_SEC": "0",
        "GANGWAY_NCCL_DEADLINE_SEC": "0",
    }
    return azure_machine


def given_up(machine: Any, script: str) -> str:
    """Why the machine gave itself up."""
    done = machine.run(script)
    assert (done.returncode, machine.verbs()) == (1, ["DELETE 3"]), done.stderr
    (event,) = machine.events()
    assert event["event"] == "node-given-up"
    return str(event["reason"])


def test_a_machine_with_all_that_was_planned_is_taken(ib: Any) -> None:
    checked, loaded = ib.run("check-rdma.sh"), ib.run("check-nccl.sh")
    assert (checked.returncode, loaded.returncode, ib.verbs()) == (0, 0, []), checked.stderr + loaded.stderr
    assert ib.calls("modprobe") == [["nvidia-peermem"]]
    assert "8 adapters up at 400 Gb/s" in checked.stderr


def test_names_do_not_matter_before_the_image_has_renamed_devices(ib: Any, tmp_path: Path) -> None:
    for device in (tmp_path / "sys/class/infiniband").glob("mlx5_ib*"):
        device.rename(device.with_name(device.name.replace("ib", "")))
    assert ib.run("check-rdma.sh").returncode == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"state": "1: DOWN"}, "mlx5_ib3: 1: DOWN, 400 Gb/sec (4X NDR)"),
        ({"state": "2: INIT"}, "mlx5_ib3: 2: INIT"),
        ({"rate": "200 Gb/sec (2X NDR)"}, "mlx5_ib3: 4: ACTIVE, 200 Gb/sec"),
        ({"rate": "2.5 Gb/sec (1X SDR)"}, "mlx5_ib3: 4: ACTIVE, 2.5 Gb/sec"),
        ({"layer": "Ethernet"}, "7 adapters up at 400 Gb/s, 8 planned"),
    ],
)
def test_one_adapter_that_is_not_up_gives_the_node_up(
    ib: Any, tmp_path: Path, changed: dict[str, str], said: str
) -> None:
    adapter(tmp_path, "mlx5_ib3", **changed)
    reason = given_up(ib, "check-rdma.sh")
    assert "InfiniBand after 0 s: 7 adapters up at 400 Gb/s, 8 planned" in reason
    assert said in reason


def test_a_machine_without_any_adapter_is_given_up(ib: Any, tmp_path: Path) -> None:
    (tmp_path / "sys/class/infiniband").rename(tmp_path / "gone")
    assert "0 adapters up at 400 Gb/s, 8 planned" in given_up(ib, "check-rdma.sh")


def test_a_link_that_comes_up_late_is_waited_for(ib: Any, tmp_path: Path) -> None:
    adapter(tmp_path, "mlx5_ib3", state="1: DOWN")
    port = tmp_path / "sys/class/infiniband/mlx5_ib3/ports/1"
    ib.fake("sleep", f"echo '4: ACTIVE' >{port}/state")
    assert ib.run("check-rdma.sh", RDMA_DEADLINE_SEC="10").returncode == 0


@pytest.mark.parametrize("file", ["opt/microsoft/ndv5/topo.xml", "etc/nccl.conf"])
def test_files_that_nccl_needs_must_be_there_and_say_what_is_planned(ib: Any, tmp_path: Path, file: str) -> None:
    (tmp_path / file).write_text("")
    assert "NCCL's files are incomplete; required: /opt/microsoft/ndv5/topo.xml" in given_up(ib, "check-nccl.sh")


def test_a_module_that_does_not_load_gives_the_node_up(ib: Any) -> None:
    ib.fake("modprobe", "exit 1")
    assert "cannot load nvidia-peermem" in given_up(ib, "check-nccl.sh")


def test_a_size_with_files_and_no_infiniband_checks_those_alone(ib: Any, azure_node: AzureNodeSpec) -> None:
    assert azure_node.fabric is not None
    ib.plan(fabric=FabricSetup(topology_file=azure_node.fabric.topology_file, nccl_conf=azure_node.fabric.nccl_conf))
    ib.fake("modprobe", "exit 1")
    assert ib.run("check-nccl.sh").returncode == 0


@pytest.fixture
def bare_azure(azure_machine: Any, tmp_path: Path) -> Any:
    """A fresh machine: nothing is mounted, and apt has all that it is asked for."""
    for folder in ("etc/apt/sources.list.d", "usr/share/keyrings"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "etc/os-release").write_text("VERSION_CODENAME=noble\n")
    azure_machine.fake("curl", "echo key")
    show = "case $* in *--show-keys*) printf 'pub:\\nfpr:::::::::BC528686B50D79E339D3721CEB3E94ADBE1229CF:\\n' ;;"
    azure_machine.fake("gpg", f'{show} *) cat >"${{@: -1}}" ;; esac')
    azure_machine.fake("mountpoint", "exit 1")
    azure_machine.fake("uname", "echo 6.8.0-1044-azure")
    azure_machine.fake("dpkg", "echo amd64")
    azure_machine.fake(
        "apt-cache",
        "case $1 in\n"
        "search) printf '%s - Metapackage\\n' amlfs-lustre-client-2.16.1-14-gbc76088"
        ' amlfs-lustre-client-2.17.0-24-gf517bc4 amlfs-lustre-client-dkms-2.17.0-24-gf517bc4 | grep -E "$3" ;;\n'
        'madison) case $2 in *2.16.1*) echo "$2 | 6.8.0-1044-azure | https://x noble/main" ;;'
        ' *) echo "$2 | 6.8.0-1060-azure | https://x noble/main" ;; esac ;;\n'
        "esac",
    )
    for name in ("apt-get", "mount", "modprobe"):
        azure_machine.fake(name)
    azure_machine.plan(file_system=replace(azure_machine.azure.file_system, mount_point=f"{tmp_path}/shared"))
    return azure_machine


def test_the_images_own_client_mounts(bare_azure: Any, tmp_path: Path) -> None:
    done = bare_azure.run("mount-lustre.sh")
    assert done.returncode == 0, done.stderr
    assert bare_azure.calls("apt-get") == []
    address = ["10.42.8.4@tcp:/lustrefs", f"{tmp_path}/shared"]
    assert bare_azure.calls("mount") == [["-t", "lustre", "-o", "noatime,flock", *address]]


def test_the_newest_client_for_the_running_kernel_is_installed(bare_azure: Any, tmp_path: Path) -> None:
    bare_azure.fails_at_first("modprobe", 1)
    done = bare_azure.run("mount-lustre.sh")
    assert done.returncode == 0, done.stderr
    source = (tmp_path / "etc/apt/sources.list.d/gangway-amlfs.list").read_text()
    assert source.endswith("https://packages.microsoft.com/repos/amlfs-noble/ noble main\n")
    install = bare_azure.calls("apt-get")[-1]
    assert install[-2:] == ["install", "amlfs-lustre-client-2.16.1-14-gbc76088=6.8.0-1044-azure"]


def test_for_another_kernel_the_client_is_built(bare_azure: Any) -> None:
    bare_azure.fails_at_first("modprobe", 1)
    bare_azure.fake("uname", "echo 7.0.0-1-azure")
    done = bare_azure.run("mount-lustre.sh")
    assert done.returncode == 0, done.stderr
    assert bare_azure.calls("apt-get")[-1][-3:] == [
        "install",
        "linux-headers-7.0.0-1-azure",
        "amlfs-lustre-client-dkms-2.17.0-24-gf517bc4",
    ]
    assert "building it" in done.stderr


def test_a_kernel_without_a_client_gives_the_node_up_and_says_so(bare_azure: Any) -> None:
    bare_azure.fake("modprobe", "exit 1")
    bare_azure.fake("uname", "echo 7.0.0-1-azure")
    assert bare_azure.run("mount-lustre.sh", LUSTRE_DEADLINE_SEC="0").returncode == 1
    assert bare_azure.verbs() == ["DELETE 3"]
    (event,) = bare_azure.events()
    assert event["reason"] == "cannot install the Lustre client for kernel 7.0.0-1-azure within 0 s"


def test_what_cannot_be_mounted_gives_the_node_up(bare_azure: Any) -> None:
    bare_azure.fake("mount", "exit 32")
    assert bare_azure.run("mount-lustre.sh", LUSTRE_DEADLINE_SEC="0").returncode == 1
    assert bare_azure.verbs() == ["DELETE 3"]


def test_what_is_mounted_is_left(bare_azure: Any) -> None:
    bare_azure.fake("mountpoint")
    assert bare_azure.run("mount-lustre.sh").returncode == 0
    assert bare_azure.calls("mount") == []


def test_docker_that_is_there_is_left(azure_machine: Any) -> None:
    azure_machine.fake("docker", """[ $1 != info ] || echo '{"nvidia":{},"runc":{}}'""")
    azure_machine.fake("apt-get")
    assert azure_machine.run("install-docker.sh").returncode == 0
    assert azure_machine.calls("apt-get") == []
    assert azure_machine.calls("systemctl") == [["start", "docker.service"]]


def test_an_own_image_is_told_of_nvidias_runtime(azure_machine: Any) -> None:
    azure_machine.fake("docker", """[ $1 != info ] || echo '{"runc":{}}'""")
    azure_machine.fake("nvidia-ctk")
    assert azure_machine.run("install-docker.sh").returncode == 0
    assert azure_machine.calls("nvidia-ctk") == [["runtime", "configure", "--runtime=docker"]]
    assert ["restart", "docker.service"] in azure_machine.calls("systemctl")


@pytest.mark.parametrize(
    ("broken", "said"),
    [("exit 1", "cannot configure NVIDIA's runtime for docker"), ("", "the image has no NVIDIA container toolkit")],
)
def test_an_image_that_cannot_give_gpus_to_containers_gives_the_node_up(
    azure_machine: Any, broken: str, said: str
) -> None:
    azure_machine.fake("docker", """[ $1 != info ] || echo '{"runc":{}}'""")
    if broken:
        azure_machine.fake("nvidia-ctk", broken)
    assert azure_machine.run("install-docker.sh").returncode == 1
    assert [event["reason"] for event in azure_machine.events()] == [said]


def test_the_head_installs_docker(azure_machine: Any, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    azure_machine.azure = request.getfixturevalue("azure_head")
    system = tmp_path / "system"
    system.mkdir()
    for part in ("/usr/bin", "/bin"):
        for path in Path(part).iterdir():
            link = system / path.name
            if path.name != "docker" and not link.is_symlink():  # one may point to nothing, as a system's own do
                link.symlink_to(path)
    azure_machine.env["PATH"] = f"{tmp_path}/fake:{system}"
    azure_machine.fake("apt-get")
    assert azure_machine.run("install-docker.sh", DOCKER_DEADLINE_SEC="0").returncode == 0
    assert azure_machine.calls("apt-get")[-1][-2:] == ["install", "docker.io"]


def test_scratch_is_where_the_image_has_put_it(azure_machine: Any, tmp_path: Path) -> None:
    azure_machine.plan(scratch_mount_point=f"{tmp_path}/scratch")
    azure_machine.fake("mountpoint", '[ "${@: -1}" = /mnt/resource_nvme ]')
    azure_machine.fake("mount")
    azure_machine.fake("chown")
    assert azure_machine.run("mount-scratch.sh").returncode == 0
    assert azure_machine.calls("mount") == [["--bind", "/mnt/resource_nvme", f"{tmp_path}/scratch"]]


@pytest.mark.parametrize("mounted", ["/mnt", "/mnt/resource"])
def test_a_temporary_disk_is_where_the_image_has_mounted_it(azure_machine: Any, tmp_path: Path, mounted: str) -> None:
    """Sizes without NVMe have one: nobody would find the other kind there, and every node would give itself up."""
    azure_machine.plan(scratch_mount_point=f"{tmp_path}/scratch", scratch_is_temporary_disk=True)
    azure_machine.fake("findmnt", f"echo {mounted}")
    azure_machine.fake("mountpoint", f'[ "${{@: -1}}" = {mounted} ]')
    azure_machine.fake("mount")
    azure_machine.fake("chown")
    assert azure_machine.run("mount-scratch.sh").returncode == 0
    assert azure_machine.calls("mount") == [["--bind", mounted, f"{tmp_path}/scratch"]]


def test_a_temporary_disk_that_nobody_has_mounted(azure_machine: Any, tmp_path: Path) -> None:
    disk, links = tmp_path / "sdb1", tmp_path / "azure"
    disk.touch()
    links.mkdir()
    (links / "resource-part1").symlink_to(disk)
    azure_machine.plan(scratch_mount_point=f"{tmp_path}/scratch", scratch_is_temporary_disk=True)
    azure_machine.fake("findmnt", "exit 1")
    azure_machine.fake("mountpoint", "exit 1")
    # There is a file system as soon as one has been made.
    azure_machine.fake("blkid", f'[ -e "{tmp_path}/made" ] && echo {disk}')
    azure_machine.fake("mkfs.ext4", f'touch "{tmp_path}/made"')
    azure_machine.fake("mount")
    azure_machine.fake("chown")
    done = azure_machine.run("mount-scratch.sh", DISK_BY_ID=str(links))
    assert done.returncode == 0, done.stderr
    assert azure_machine.calls("mkfs.ext4")[0][-1] == str(disk)
    assert azure_machine.calls("mount") == [["-o", "noatime", str(disk), f"{tmp_path}/scratch"]]


ETC = "/etc/systemd/system/"


def test_what_a_worker_prepares_is_what_was_planned(
    unit: Any, steps: Any, azure_node: AzureNodeSpec, azure_plain_node: AzureNodeSpec
) -> None:
    first = ["check-gpu.sh", "check-rdma.sh", "check-nccl.sh", "mount-scratch.sh", "fetch-key.sh", "install-docker.sh"]
    assert steps(azure_node) == [*first, "mount-lustre.sh", "pull-image.sh"]
    assert steps(azure_plain_node) == ["check-gpu.sh", "install-docker.sh", "pull-image.sh"]
    assert unit(azure_node, "gangway-prepare.service", "Restart") == [], "a worker is given up, not prepared again"
    (after,) = unit(azure_node, "gangway-prepare.service", "After")
    assert {"nvme-raid.service", "sku-customizations.service"} <= set(after.split())


@pytest.mark.parametrize(("shutdown_sec", "stop_sec"), [(25, 30), (10, 25), (29, 30), (60, 61)])
def test_an_evicted_machines_30_seconds_are_kept(
    unit: Any, azure_node: AzureNodeSpec, shutdown_sec: int, stop_sec: int
) -> None:
    changed = replace(azure_node, job=azure_node.job.model_copy(update={"shutdown_timeout_sec": shutdown_sec}))
    assert unit(changed, "gangway-trainer.service", "TimeoutStopSec") == [str(stop_sec)]


def test_a_run_on_the_machines_own_disk_has_time_to_be_put(unit: Any, azure_plain_node: AzureNodeSpec) -> None:
    (stop_sec,) = unit(azure_plain_node, "gangway-trainer.service", "TimeoutStopSec")
    assert "RESULTS_SEC=300\n" in azure_env_text(azure_plain_node)
    assert int(stop_sec) >= 300 + 30


def test_lines_are_sent_where_a_table_is_planned(
    unit: Any, machines: Any, azure_node: AzureNodeSpec, azure_plain_node: AzureNodeSpec
) -> None:
    (command,) = unit(azure_node, "gangway-logs.service", "ExecStart")
    shipped = "gangway-prepare.service gangway-trainer.service"
    url = azure_node.ingestion_url
    assert command == f'/usr/bin/python3 -m gangway.images.node.azure.logs "{url}" worker {shipped}'
    (given,) = unit(azure_node, "gangway-logs.service", "Environment")
    assert given == f"PYTHONPATH=/opt/gangway/lib GANGWAY_CLIENT_ID={azure_node.client_id}"
    files = machines.files_of(machines.rendered(azure_plain_node))
    assert f"{ETC}gangway-logs.service" not in files
    assert not [path for path in files if path.endswith(("ship.py", "lines.py"))]


def test_every_machine_says_that_it_lives(
    unit: Any, azure_node: AzureNodeSpec, azure_plain_node: AzureNodeSpec, azure_head: AzureHeadSpec
) -> None:
    tell = "/usr/bin/python3 -m gangway.images.node.azure.heartbeat"
    for spec, role in ((azure_node, "worker"), (azure_head, "head")):
        assert unit(spec, "gangway-alive.service", "ExecStart") == [f'{tell} {role} "{spec.ingestion_url}"']
    assert unit(azure_plain_node, "gangway-alive.service", "ExecStart") == [f"{tell} worker"]


def test_a_machines_python_is_all_there(
    machines: Any, azure_node: AzureNodeSpec, azure_plain_node: AzureNodeSpec, azure_head: AzureHeadSpec
) -> None:
    """Whatever a module imports of ours is on the machine too."""
    place, found = "/opt/gangway/lib/", set[str]()
    for spec in (azure_node, azure_plain_node, azure_head):
        files = machines.files_of(machines.rendered(spec))
        for path, (_, text) in files.items():
            if path.startswith(place):
                wanted = re.findall(r"^from (gangway\.images\.\S+) import", text, re.MULTILINE)
                assert {f"{place}{name.replace('.', '/')}.py" for name in wanted} <= files.keys(), path
                found.update(wanted)
    assert "gangway.images.node.web" in found


def test_the_head_fills_and_puts_what_it_is_told(unit: Any, azure_head: AzureHeadSpec, machines: Any) -> None:
    (fill,) = unit(azure_head, "gangway-fill.service", "ExecStart")
    runs = "https://gwdemo.blob.core.windows.net/runs/demo"
    held = f"{runs}/{azure_head.job.name}/breaker/held.json"
    assert fill.split()[-3:] == ["/etc/gangway/fallback.json", runs, held]
    files = machines.files_of(machines.rendered(azure_head))
    assert "def reconcile(" in files["/opt/gangway/lib/gangway/images/node/fill_order.py"][1]
    assert json.loads(files["/etc/gangway/fallback.json"][1]) == azure_head.fallback
    started = yaml.safe_load(machines.rendered(azure_head))["runcmd"][1][3:]
    services = ["rendezvous", "prometheus", "alive", "logs"]
    timers = ["gangway-record.timer", "gangway-fill.timer"]
    assert started == [*(f"gangway-{name}.service" for name in services), *timers]


def test_a_head_that_only_keeps_the_rendezvous(azure_head: AzureHeadSpec, machines: Any) -> None:
    plain = replace(azure_head, file_system=None, prometheus_image=None, fallback=None)
    started = yaml.safe_load(machines.rendered(plain))["runcmd"][1][3:]
    assert started == ["gangway-rendezvous.service", "gangway-alive.service", "gangway-logs.service"]
    assert not [path for path in machines.files_of(machines.rendered(plain)) if "fill" in path]


def test_hours_are_the_nodes_alone(azure_head: AzureHeadSpec, azure_node: AzureNodeSpec, machines: Any) -> None:
    """Other hours make another mark of the job's end, and another node, but the same head."""
    assert replace(azure_node, max_hours=9).ended_object != azure_node.ended_object
    assert machines.rendered(replace(azure_node, max_hours=9)) != machines.rendered(azure_node)
    assert machines.rendered(replace(azure_head, max_hours=9)) == machines.rendered(azure_head)


def test_prometheus_finds_the_workers_of_its_stack_alone(azure_head: AzureHeadSpec, machines: Any) -> None:
    _, text = machines.files_of(machines.rendered(azure_head))["/etc/gangway/prometheus.yaml"]
    (job,) = yaml.safe_load(text)["scrape_configs"]
    (found,) = job["azure_sd_configs"]
    assert (found["subscription_id"], found["resource_group"]) == (azure_head.subscription_id, "demo-rg")
    assert (found["authentication_method"], found["client_id"], found["port"]) == (
        "ManagedIdentity",
        azure_head.client_id,
        9400,
    )
    first, *_, last = job["relabel_configs"]
    assert first == {"source_labels": ["__meta_azure_machine_scale_set"], "regex": ".+", "action": "keep"}
    assert last == {"target_label": "stack", "replacement": "demo"}


@pytest.mark.parametrize("size", ["Standard_ND96isr_H100_v5", "Standard_ND96asr_v4", "Standard_NC24ads_A100_v4"])
def test_a_setup_is_made_of_a_plan(size: str) -> None:
    """The names of a plan that a setup takes; values keep their meaning."""
    machine = load_provider("azure").machine(size, "machine_type")
    assert isinstance(machine, AzureMachineType)
    plan = plan_fabric(machine)
    setup = FabricSetup(
        num_hcas=plan.num_hcas,
        gbps_each=plan.gbps_each,
        devices=plan.devices,
        kernel_modules=plan.kernel_modules,
        topology_file=plan.topology_file or "",
        nccl_conf=plan.nccl_conf,
    )
    text = fabric_env_text(setup)
    assert (setup.rdma is not None) == (plan.num_hcas > 0)
    for name, value in plan.nccl_conf.items():
        assert f"    {name}={value}\n" in text


def test_what_a_machine_would_find_out_too_late_is_refused(
    azure_node: AzureNodeSpec, azure_head: AzureHeadSpec
) -> None:
    tagged = azure_node.job.model_copy(update={"image": "example/gangway:v1"})
    with pytest.raises(ValueError, match=r"AzureNodeSpec\.job\.image: 'example/gangway:v1' can change"):
        replace(azure_node, job=tagged)
    with pytest.raises(ValueError, match=r"AzureNodeSpec\.job\.env: InfiniBand without NCCL_NET"):
        replace(azure_node, job=azure_node.job.model_copy(update={"env": {}}))
    with pytest.raises(ValueError, match=r"AzureNodeSpec\.file_system: 'nfs'; allowed: 'lustre'"):
        replace(azure_node, file_system=FileSystem("nfs", "10.0.0.2:/share", "/shared"))
    with pytest.raises(ValueError, match=r"AzureNodeSpec\.max_hours: 0"):
        replace(azure_node, max_hours=0)
    with pytest.raises(ValueError, match=r"AzureHeadSpec\.prometheus_image: 'prom/prometheus'"):
        replace(azure_head, prometheus_image="prom/prometheus")
