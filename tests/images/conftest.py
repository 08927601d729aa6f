"""Specs, golden files and a stand-in node for the image tests.

Golden files are compared byte for byte, documents as golden_documents.py folds them; after a wanted change write them
anew, remove what the test of unused ones names, and read the diff before committing:

    GANGWAY_UPDATE_GOLDEN=1 pytest tests/images
"""

import os
import re
import shutil
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from gangway.components.core.job import JobSpec, Rendezvous, Training, Volume
from gangway.images.aws import AwsHeadSpec, AwsNodeSpec
from gangway.images.azure import AzureHeadSpec, AzureNodeSpec, FabricSetup
from gangway.images.gcp import DataSource, GcpHeadSpec, GcpNodeSpec, NcclSetup, TpuHostSpec
from gangway.images.openstack import SECRETS_FILE, OpenstackHeadSpec, OpenstackNodeSpec, OpenstackSecrets
from gangway.images.specs import Breaker, FileSystem, RdmaSetup

GOLDEN = Path(__file__).parent / "golden"
REGISTRY = "123456789012.dkr.ecr.us-east-2.amazonaws.com"


@pytest.fixture(scope="session")
def golden_documents(load_module: Callable[[Path], ModuleType]) -> ModuleType:
    """How documents are stored; see golden_documents.py."""
    return load_module(Path(__file__).with_name("golden_documents.py"))


@pytest.fixture
def same_as_golden(golden_documents: ModuleType) -> Callable[[str, str], None]:
    """Compares text with a golden file, or writes the file when GANGWAY_UPDATE_GOLDEN=1."""

    def check(name: str, text: str) -> None:
        is_document = name.startswith(("cloud-init-", "installer-", "startup-"))
        folded, contents = golden_documents.fold(text) if is_document else (text, {})
        if os.environ.get("GANGWAY_UPDATE_GOLDEN") == "1":
            golden_documents.update(GOLDEN, name, folded, contents)
        files = {f"files/{each}": content for each, content in contents.items()}
        for each, expected in {name: folded, **files}.items():
            assert expected.encode() == (GOLDEN / each).read_bytes(), f"{each} differs; see tests/images/conftest.py"

    return check


@pytest.fixture
def unit(machines: Any) -> Callable[[Any, str, str], list[str]]:
    """Reads a unit of what a machine is started with: the values of one key."""

    def values(spec: Any, name: str, key: str) -> list[str]:
        _, text = machines.files_of(machines.rendered(spec))[f"/etc/systemd/system/{name}"]
        return re.findall(rf"^{key}=(.*)$", text, re.MULTILINE)

    return values


@pytest.fixture
def steps(unit: Callable[[Any, str, str], list[str]]) -> Callable[[Any], list[str]]:
    """The scripts by which a machine is prepared."""
    return lambda spec: [word.rpartition("/")[2] for word in unit(spec, "gangway-prepare.service", "ExecStart")]


@pytest.fixture(scope="session")
def job() -> JobSpec:
    return JobSpec(
        name="dcgan-celeba64",
        image=f"{REGISTRY}/gangway-trainer@sha256:" + "ab" * 32,
        backend="nccl",
        num_nodes_min=2,
        num_nodes_max=4,
        processes_per_node=8,
        rendezvous=Rendezvous(host="head.gangway.internal", port=29400),
        volumes=(Volume(source="/fsx", target="/fsx"), Volume(source="/scratch", target="/data", read_only=True)),
        env={"GANGWAY_NOTE": 'it\'s "50 %" of $HOME\nüñí'},
        training=Training(config={"preset": "dcgan-celeba64"}, run_dir="/fsx/runs/dcgan-celeba64"),
    )


FSX = FileSystem("lustre", "fs-0123456789abcdef0.fsx.us-east-2.amazonaws.com@tcp:/abcdefgh", "/fsx")


@pytest.fixture(scope="session")
def node(job: JobSpec) -> AwsNodeSpec:
    """A p5.48xlarge worker with every part of the node planned."""
    return AwsNodeSpec(
        job=job,
        region="us-east-2",
        image_registry=REGISTRY,
        bucket_uri="s3://gangway-records/runs/",
        run_dir="/fsx/runs/dcgan-celeba64",
        efa_interfaces_planned=32,
        file_system=FSX,
        scratch_mount_point="/scratch",
        labels={"team": "ml-platform", "cost_center": "4711"},
        stack="demo",
        log_group="/gangway/demo",
        lifecycle_hook="gangway-leave",
        max_hours=8,
        terminate_when_done=True,
        breaker=Breaker(4, 180),
        member_key="/gangway/demo/member-key",
    )


@pytest.fixture(scope="session")
def plain_node(job: JobSpec) -> AwsNodeSpec:
    """A CPU worker: gloo, no EFA, no file system, no scratch."""
    return AwsNodeSpec(
        stack="",
        job=job.model_copy(update={"backend": "gloo", "volumes": (), "env": {}}),
        region="eu-west-1",
        image_registry=REGISTRY,
        bucket_uri="s3://gangway-records",
        run_dir="/var/lib/gangway/run",
    )


@pytest.fixture(scope="session")
def head(job: JobSpec) -> AwsHeadSpec:
    """A head node with a file system and Prometheus."""
    return AwsHeadSpec(
        job=job,
        region="us-east-2",
        image_registry=REGISTRY,
        stack="demo",
        bucket_uri="s3://gangway-records/runs/",
        run_dir="/fsx/runs/dcgan-celeba64",
        file_system=FSX,
        prometheus_image="prom/prometheus:v3.7.3",
        log_group="/gangway/demo",
        member_key="/gangway/demo/member-key",
        max_hours=8,
    )


@pytest.fixture(scope="session")
def plain_head(head: AwsHeadSpec) -> AwsHeadSpec:
    """A head node that only keeps the rendezvous."""
    return replace(head, file_system=None, prometheus_image=None, log_group=None, member_key=None)


GCP_REGISTRY = "us-central1-docker.pkg.dev"
KEY_OF_APT = """case $* in *--show-keys*) printf 'pub:\\nfpr:::::::::%s:\\n' {} ;; *) cat >"${{@: -1}}" ;; esac"""
"""What a gpg in small does: it finds that fingerprint in any key, and converts nothing."""

GCP_MEMBER_KEY = "projects/acme-ml/secrets/demo-member-key"
TPU_REQUEST = "projects/acme-ml/locations/us-central1-a/queuedResources/demo"
GCP: dict[str, Any] = {
    "stack": "demo",
    "project": "acme-ml",
    "region": "us-central1",
    "image_registry": GCP_REGISTRY,
    "bucket_uri": "gs://gangway-records/demo",
    "run_dir": "/shared/runs/demo",
    "file_system": FileSystem("lustre", "10.0.0.2@tcp:/gwdemo", "/shared"),
    "log_id": "gangway-demo",
    "max_hours": 8,
}


@pytest.fixture(scope="session")
def gcp_job(job: JobSpec) -> JobSpec:
    image = f"{GCP_REGISTRY}/acme-ml/gangway/trainer@sha256:" + "ab" * 32
    volumes = (Volume(source="/shared", target="/shared"), Volume(source="/var/lib/tcpxo/lib64", target="/tcpxo"))
    env = {
        **job.env,
        "NCCL_SOCKET_IFNAME": "enp0s12",
        "GLOO_SOCKET_IFNAME": "enp0s12",
        "LD_LIBRARY_PATH": "/var/lib/tcpxo/lib64",
        "NCCL_NET": "Plugin",
    }
    return job.model_copy(update={"image": image, "volumes": volumes, "env": env})


@pytest.fixture(scope="session")
def gcp_node(gcp_job: JobSpec) -> GcpNodeSpec:
    """An a3-megagpu-8g worker with every part of the node planned."""
    near = ("--privileged", "--network", "host", "--gpus", "all")
    return GcpNodeSpec(
        **GCP,
        job=gcp_job,
        data=DataSource("gs://acme-data/celeba", "head"),
        nccl=NcclSetup(
            install_argv=("run", "--rm", *near, "--volume", "/var/lib:/var/lib", "example/plugin:v1", "install"),
            devices=("/dev/infiniband",),
            env_script="/var/lib/tcpxo/lib64/nccl-env-profile.sh",
            kernel_modules=("import-helper",),
            aperture_device="1ae0:0084",
            side_name="gangway-rxdm",
            side_argv=("run", "--detach", "--name", "gangway-rxdm", *near, "example/rxdm:v1", "--num_nics=8"),
            side_ready="Buffer manager initialization complete",
        ),
        gvnics_planned=9,
        data_dir="/shared/data",
        scratch_mount_point="/scratch",
        labels={"team": "ml-platform", "cost_center": "4711"},
        terminate_when_done=True,
        breaker=Breaker(4, 180),
        member_key=GCP_MEMBER_KEY,
    )


@pytest.fixture(scope="session")
def gcp_plain_node(gcp_job: JobSpec) -> GcpNodeSpec:
    """A single worker with one GPU NIC, one disk and nothing shared."""
    shared = {**GCP, "file_system": None, "log_id": None, "max_hours": None}
    return GcpNodeSpec(**shared, job=gcp_job.model_copy(update={"volumes": (), "env": {}}))


@pytest.fixture(scope="session")
def tpu_host(gcp_job: JobSpec) -> TpuHostSpec:
    """A host of two slices without a file system of their own."""
    job = gcp_job.model_copy(
        update={
            "backend": "xla",
            "processes_per_node": 4,
            "volumes": (Volume(source="/var/lib/gangway", target="/var/lib/gangway"),),
            "training": Training(config={"backend": "xla"}, run_dir="/var/lib/gangway/runs/demo"),
        }
    )
    there = {
        **GCP,
        "run_dir": "/var/lib/gangway/runs/demo",
        "file_system": FileSystem("bucket", "gangway-records/demo/shared", "/var/lib/gangway/runs"),
    }
    return TpuHostSpec(
        **there,
        job=job,
        num_slices=2,
        queued_resource=TPU_REQUEST,
        labels={"team": "ml-platform"},
        member_key=GCP_MEMBER_KEY,
    )


@pytest.fixture(scope="session")
def gcp_head(gcp_job: JobSpec) -> GcpHeadSpec:
    """A head node with all that it may have to do."""
    request = {"url": "https://lustre.googleapis.com/v1/projects/p/locations/z/instances/i:importData", "body": {}}
    return GcpHeadSpec(
        **GCP,
        job=gcp_job,
        data=DataSource("gs://acme-data/celeba", "import", request),
        zones=("us-central1-a", "us-central1-c"),
        prometheus_image="prom/prometheus:v3.7.3",
        fallback_uri="gs://gangway-records/demo/fallback.json",
        member_key=GCP_MEMBER_KEY,
    )


AZURE_MEMBER_KEY = "https://demo-members12345678.vault.azure.net/secrets/member-key"
AZURE: dict[str, Any] = {
    "stack": "demo",
    "client_id": "11111111-2222-3333-4444-555555555555",
    "image_registry": "gangwaydemo.azurecr.io",
    "bucket_uri": "https://gwdemo.blob.core.windows.net/runs/demo",
    "run_dir": "/shared/runs/demo",
    "file_system": FileSystem("lustre", "10.42.8.4@tcp:/lustrefs", "/shared"),
    "ingestion_url": "https://demo-lines.westus-1.ingest.monitor.azure.com/dataCollectionRules/dcr-1/streams/"
    "Custom-Gangway?api-version=2023-01-01",
    "max_hours": 8,
    "member_key": AZURE_MEMBER_KEY,
}


@pytest.fixture(scope="session")
def azure_job(job: JobSpec) -> JobSpec:
    volumes = (
        Volume(source="/shared", target="/shared"),
        Volume(source="/etc/nccl.conf", target="/etc/nccl.conf", read_only=True),
        Volume(source="/opt/microsoft", target="/opt/microsoft", read_only=True),
    )
    env = {
        **job.env,
        "NCCL_SOCKET_IFNAME": "eth0",
        "GLOO_SOCKET_IFNAME": "eth0",
        "NCCL_NET": "IB",
        "NCCL_IB_HCA": "^mlx5_an",
    }
    image = "gangwaydemo.azurecr.io/gangway/trainer@sha256:" + "ab" * 32
    return job.model_copy(update={"image": image, "volumes": volumes, "env": env})


@pytest.fixture(scope="session")
def azure_node(azure_job: JobSpec) -> AzureNodeSpec:
    """An ND96isr_H100_v5 worker with every part of the node planned."""
    topology = "/opt/microsoft/ndv5/topo.xml"
    return AzureNodeSpec(
        **AZURE,
        job=azure_job,
        fabric=FabricSetup(
            num_hcas=8,
            gbps_each=400,
            devices=("/dev/infiniband",),
            kernel_modules=("nvidia-peermem",),
            topology_file=topology,
            nccl_conf={"NCCL_TOPO_FILE": topology, "NCCL_IB_PCI_RELAXED_ORDERING": "1"},
        ),
        data_dir="/shared/celeba",
        scratch_mount_point="/scratch",
        labels={"team": "ml-platform", "cost_center": "4711"},
        terminate_when_done=True,
        breaker=Breaker(4, 180),
    )


@pytest.fixture(scope="session")
def azure_plain_node(azure_job: JobSpec) -> AzureNodeSpec:
    """A single worker with one GPU, one disk and nothing shared."""
    alone = {**AZURE, "file_system": None, "ingestion_url": None, "max_hours": None, "member_key": None}
    return AzureNodeSpec(**alone, job=azure_job.model_copy(update={"volumes": (), "env": {}}))


@pytest.fixture(scope="session")
def azure_head(azure_job: JobSpec) -> AzureHeadSpec:
    """A head node with all that it may have to do."""
    return AzureHeadSpec(
        **AZURE,
        job=azure_job,
        subscription_id="00000000-0000-0000-0000-000000000001",
        resource_group_name="demo-rg",
        prometheus_image="prom/prometheus:v3.7.3",
        fallback={"version": 1, "groups": [], "together": False},
    )


OPENSTACK: dict[str, Any] = {
    "stack": "demo",
    "member_key": SECRETS_FILE,
    "image_registry": "registry.example.com",
    "bucket_uri": "swift://demo-runs/demo",
    "run_dir": "/shared/runs/demo",
    "file_system": FileSystem("nfs", "198.51.100.7:/volumes/demo", "/shared"),
    "max_hours": 8,
    "terminate_when_done": True,
}


@pytest.fixture(scope="session")
def openstack_job(job: JobSpec) -> JobSpec:
    volumes = (Volume(source="/shared", target="/shared"),)
    env = {**job.env, "NCCL_NET": "IB", "NCCL_IB_HCA": "=mlx5_0,mlx5_1"}
    image = "registry.example.com/gan/trainer@sha256:" + "ab" * 32
    rendezvous = Rendezvous(host="10.42.0.10", port=29400)
    return job.model_copy(update={"image": image, "volumes": volumes, "env": env, "rendezvous": rendezvous})


@pytest.fixture(scope="session")
def openstack_node(openstack_job: JobSpec) -> OpenstackNodeSpec:
    """A worker with every part of the node planned."""
    return OpenstackNodeSpec(
        **OPENSTACK,
        job=openstack_job,
        fabric=RdmaSetup("Ethernet", 2, 400.0, ("mlx5_0", "mlx5_1"), ("/dev/infiniband",)),
        data_dir="/shared/celeba",
        labels={"team": "ml-platform", "cost_center": "4711"},
    )


@pytest.fixture(scope="session")
def openstack_plain_node(openstack_job: JobSpec) -> OpenstackNodeSpec:
    """A single worker with one disk and nothing shared."""
    alone = {**OPENSTACK, "member_key": None, "file_system": None, "max_hours": None, "terminate_when_done": False}
    return OpenstackNodeSpec(**alone, job=openstack_job.model_copy(update={"volumes": (), "env": {}}))


@pytest.fixture(scope="session")
def openstack_head(openstack_job: JobSpec) -> OpenstackHeadSpec:
    """A head node with all that it may have to do."""
    return OpenstackHeadSpec(
        **OPENSTACK,
        job=openstack_job,
        workers=("10.42.0.16", "10.42.0.17"),
        prometheus_image="prom/prometheus:v3.7.3",
    )


@pytest.fixture(scope="session")
def machines(load_module: Callable[[Path], ModuleType]) -> Any:
    """The module `machines.py` beside this one."""
    return load_module(Path(__file__).with_name("machines.py"))


@pytest.fixture(scope="session")
def get_job(load_module: Callable[[Path], ModuleType]) -> Callable[..., JobSpec]:
    """A job of one's own, as AWS's nodes are tested with it."""
    made: Callable[..., JobSpec] = load_module(Path(__file__).with_name("test_own_node.py")).get_job
    return made


@pytest.fixture(scope="session")
def aws_scripts(tmp_path_factory: pytest.TempPathFactory, machines: Any) -> Path:
    folder: Path = machines.scripts_of("aws", tmp_path_factory.mktemp("aws") / "bin")
    return folder


@pytest.fixture
def machine(tmp_path: Path, node: AwsNodeSpec, imds: Any, aws_scripts: Path, machines: Any) -> Any:
    (tmp_path / "fake").mkdir()
    (tmp_path / "fake" / "python3").symlink_to(sys.executable)
    made = machines.Machine(tmp_path, node, {"GANGWAY_IMDS_URL": imds.url}, aws_scripts)
    made.fake("aws")
    return made


@pytest.fixture(scope="session")
def gcp_scripts(tmp_path_factory: pytest.TempPathFactory, machines: Any) -> Path:
    folder: Path = machines.scripts_of("gcp", tmp_path_factory.mktemp("gcp") / "bin")
    return folder


@pytest.fixture
def gcp_machine(
    tmp_path: Path, node: AwsNodeSpec, gcp_node: GcpNodeSpec, gce: Any, gcp_scripts: Path, machines: Any
) -> Any:
    (tmp_path / "fake").mkdir()
    # This Python without this environment's packages: the machine's has none of them.
    (tmp_path / "fake" / "python3").symlink_to(sys.executable)
    env = {"GANGWAY_METADATA_URL": gce.url, "GANGWAY_API_URL": gce.url, "GANGWAY_ROOT": str(tmp_path)}
    made = machines.GcpMachine(tmp_path, node, env, gcp_scripts, gcp=gcp_node, gce=gce)
    made.fake("systemctl", "[ $1 != is-system-running ] || echo running")
    return made


@pytest.fixture(scope="session")
def azure_scripts(tmp_path_factory: pytest.TempPathFactory, machines: Any) -> Path:
    folder: Path = machines.scripts_of("azure", tmp_path_factory.mktemp("azure") / "bin")
    return folder


@pytest.fixture
def azure_machine(
    tmp_path: Path, node: AwsNodeSpec, azure_node: AzureNodeSpec, azure_vm: Any, azure_scripts: Path, machines: Any
) -> Any:
    (tmp_path / "fake").mkdir()
    # This Python without this environment's packages: the machine's has none of them.
    (tmp_path / "fake" / "python3").symlink_to(sys.executable)
    env = {"GANGWAY_METADATA_URL": azure_vm.url, "GANGWAY_API_URL": azure_vm.url, "GANGWAY_ROOT": str(tmp_path)}
    made = machines.AzureMachine(tmp_path, node, env, azure_scripts, azure=azure_node, vm=azure_vm)
    made.fake("systemctl", "[ $1 != is-system-running ] || echo running")
    return made


@pytest.fixture(scope="session")
def openstack_scripts(tmp_path_factory: pytest.TempPathFactory, machines: Any) -> Path:
    folder: Path = machines.scripts_of("openstack", tmp_path_factory.mktemp("openstack") / "bin")
    return folder


@pytest.fixture
def openstack_machine(
    tmp_path: Path,
    node: AwsNodeSpec,
    openstack_node: OpenstackNodeSpec,
    swift: Any,
    openstack_scripts: Path,
    machines: Any,
) -> Any:
    (tmp_path / "fake").mkdir()
    # This Python without this environment's packages: the machine's has none of them.
    (tmp_path / "fake" / "python3").symlink_to(sys.executable)
    env = {"GANGWAY_ROOT": str(tmp_path), "GANGWAY_METADATA_URL": swift.url}
    made = machines.OpenstackMachine(
        tmp_path,
        node,
        env,
        openstack_scripts,
        spec_=openstack_node,
        secrets=OpenstackSecrets(swift.auth_url, "RegionOne", *swift.credential),
    )
    made.fake("systemctl", "[ $1 != is-system-running ] || echo running")
    return made


@pytest.fixture
def bare(gcp_machine: Any, tmp_path: Path) -> Any:
    """A fresh machine on Google Cloud: nothing is mounted, and apt has all that it is asked for."""
    for folder in ("etc/apt/sources.list.d", "usr/share/keyrings"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "etc/os-release").write_text("VERSION_CODENAME=noble\n")
    curl = shutil.which("curl")
    gcp_machine.fake("curl", f'case $* in *computeMetadata*) exec {curl} "$@" ;; *) echo key ;; esac')
    gcp_machine.fake("gpg", KEY_OF_APT.format("C95B321B61E88C1809C4F759DDCAE044F796ECB0"))
    gcp_machine.fake("mountpoint", "exit 1")
    gcp_machine.fake("uname", "echo 6.8.0-1020-gcp")
    gcp_machine.fake("dpkg", "echo amd64")
    gcp_machine.fake("dpkg-query")
    gcp_machine.fake("apt-mark")
    for name in ("apt-get", "mount", "modprobe"):
        gcp_machine.fake(name)
    return gcp_machine


@pytest.fixture
def job_node(machine: Any, tmp_path: Path) -> Any:
    """A node on which the trainer may be started."""
    machine.plan(run_dir=f"{tmp_path}/run")
    machine.fake("docker")
    machine.fake("install", 'mkdir -p "${@: -1}"')
    machine.fake("chown")
    return machine
