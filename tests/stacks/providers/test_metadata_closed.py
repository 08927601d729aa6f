"""Every machine of every shipped stack keeps users from the metadata service: at its boot, and before each job."""

import base64
import gzip
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from gangway.images.slurm.hosts import render_slurm_host_installer
from gangway.stacks.config.stack_config import StackConfig
from gangway.stacks.loading.loader import from_file
from gangway.stacks.plan.plan import make_plan

STACKS = sorted((Path(__file__).parents[3] / "stacks").glob("Pulumi.*.yaml"))
MACHINES = {
    "aws-demo": 2, "aws-existing": 2, "aws-g5-dev": 1, "aws-p4d-block": 2, "aws-p5-slurm": 2, "aws-p5-spot": 2,
    "azure-nc-dev": 2, "azure-ndv4": 2, "azure-ndv5-spot": 2,
    "gcp-a3-spot": 2, "gcp-v5e-pod": 1, "gcp-v5p-multislice": 1,
    "azure-existing": 2, "gcp-existing": 2, "openstack-existing": 2,
    "hosts-lab": 2, "hosts-slurm": 2, "openstack-gpu": 2,
    "aks-ndv5": 0, "eks-p5-kueue": 0, "gke-a3-jobset": 0, "gke-tpu-v5e": 0,
}  # fmt: skip
"""Kinds of machines that run our scripts. Kubernetes' nodes are the provider's, and pods are kept in by other means."""
BIN, ETC, UNITS = "/opt/gangway/bin", "/etc/gangway", "/etc/systemd/system"
CLOSES = f"{BIN}/close-metadata.sh"
HEREDOC = re.compile(
    r"^(?:install -D -m \d+ /dev/stdin|put) (\S+)(?: \d+)? <<'(\w+)'\n(.*?)\n\2$", re.MULTILINE | re.DOTALL
)
"""A file in the startup script of a TPU host, or in the installer of an existing machine."""


def texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list | tuple):
        for one in value.values() if isinstance(value, dict) else value:
            yield from texts(one)


def unpacked(text: str) -> str:
    """User data as a machine sees it."""
    if not re.fullmatch(r"[A-Za-z0-9+/]{200,}={0,2}", text):
        return text
    raw = base64.b64decode(text)
    return (gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw).decode("utf-8", "replace")


def files_of(document: str) -> tuple[dict[str, str], str]:
    """The files that a machine gets, by path, and the rest, which enables its units; no files where it is no script."""
    if document.startswith("#cloud-config"):
        read = yaml.safe_load(document)
        return {file["path"]: file["content"] for file in read["write_files"]}, str(read["runcmd"])
    return {path: text for path, _, text in HEREDOC.findall(document)}, HEREDOC.sub("", document)


def hosts_scripts(config: StackConfig) -> Iterator[str]:
    from gangway.stacks.providers.hosts.plan import installer, job_spec, machine_spec, plan

    planned = plan(config)
    for at in range(2):
        if config.engine.has_queue:
            yield render_slurm_host_installer(machine_spec(config, planned, at))
        else:
            yield installer(config, planned, job_spec(config, planned), at)


def machines(config: StackConfig) -> list[tuple[dict[str, str], str]]:
    documents = {unpacked(text): None for text in texts([one.inputs for one in make_plan(config).resources])}
    if config.provider == "hosts":  # what is copied there by SSH is no input that a plan shows
        documents = dict.fromkeys(hosts_scripts(config))
    return [found for document in documents if (found := files_of(document))[0]]


@pytest.mark.attack("a job or user of a node", "wants the node's token")
@pytest.mark.parametrize("path", STACKS, ids=lambda path: path.stem.removeprefix("Pulumi."))
def test_every_machine_is_closed_at_boot_and_before_each_job(path: Path) -> None:
    found = machines(from_file(path))
    kinds = {(files[f"{ETC}/node.env"], *sorted(files)) for files, _ in found}
    assert len(kinds) >= MACHINES[path.stem.removeprefix("Pulumi.")]
    for files, started in found:
        assert "gangway-metadata.service" in started
        unit = files[f"{UNITS}/gangway-metadata.service"]
        assert f"ExecStart={CLOSES} rules\n" in unit
        assert "Before=network-pre.target" in unit
        assert {CLOSES, f"{BIN}/common.sh", f"{BIN}/cloud.sh", f"{ETC}/node.env"} <= files.keys()
        assert "METADATA_IPV4='169.254.169.254" in files[f"{BIN}/cloud.sh"]
        if f"{UNITS}/gangway-trainer.service" in files:
            run = files[f"{BIN}/run-trainer.sh"]
            assert run.index('"$(dirname "$0")/close-metadata.sh" || exit 1\n') < run.index('exec "${RUN[@]}"')
        if f"{UNITS}/gangway-slurmd.service" in files:
            assert re.search(r"^HEALTH_CHECKS=.*close-metadata.sh", files[f"{ETC}/check.env"], re.MULTILINE)
        if conf := files.get("/etc/slurm/slurm.conf", files.get(f"{ETC}/slurm/slurm.conf")):
            assert f"\nProlog={BIN}/slurm-health.sh\n" in conf
            assert "\nPrologFlags=Alloc\n" in conf
        assert "\nMETADATA_USERS=" not in files[f"{ETC}/node.env"] or "\nROLE=head\n" in files[f"{ETC}/node.env"]


def test_every_shipped_stack_is_looked_at() -> None:
    assert {path.stem.removeprefix("Pulumi.") for path in STACKS} == MACHINES.keys()
