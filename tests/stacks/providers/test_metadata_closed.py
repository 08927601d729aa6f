"""Every machine of every shipped stack keeps users from the metadata service: at its boot, and before each job."""

import base64
import gzip
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from images.slurm.hosts import render_slurm_host_installer
from stacks.config.loader import from_file
from stacks.config.stack_config import StackConfig
from stacks.planning.plan import make_plan

STACKS = sorted((Path(__file__).parents[3] / "stacks").glob("Pulumi.*.yaml"))
MACHINES = {
    "aws-demo": 2, "aws-g5-dev": 1, "aws-p4d-block": 2, "aws-p5-slurm": 2, "aws-p5-spot": 2,
    "azure-nc-dev": 2, "azure-ndv4": 2, "azure-ndv5-spot": 2,
    "gcp-a3-spot": 2, "gcp-v5e-pod": 1, "gcp-v5p-multislice": 1,
    "hosts-lab": 2, "hosts-slurm": 2, "openstack-gpu": 2,
    "aks-ndv5": 0, "eks-p5-kueue": 0, "gke-a3-jobset": 0, "gke-tpu-v5e": 0,
}  # fmt: skip
"""Kinds of machines that run our scripts. Kubernetes' nodes are the provider's, and pods are kept in by other means."""
BIN, ETC, UNITS = "/opt/gangway/bin", "/etc/gangway", "/etc/systemd/system"
CLOSES = f"{BIN}/close-metadata.sh"


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


def files_of(document: str) -> tuple[dict[str, str], str] | None:
    """What a machine is given by path, and the words that begin its units; None of what no machine runs."""
    if document.startswith("#cloud-config"):
        read = yaml.safe_load(document)
        started = " ".join(word for words in read["runcmd"] for word in words)
        return {file["path"]: file["content"] for file in read["write_files"]}, started
    if document.startswith("#!/usr/bin/env bash\n# A Gangway"):  # of a TPU
        mark, start = "GANGWAY_END_OF_FILE", r"^install -D -m \d+ /dev/stdin (\S+)"
    elif "SERVICES=(" in document and "write_files()" in document:  # of a host
        mark, start = "GANGWAY_FILE", r"^put (\S+) \d+"
    else:
        return None
    written: list[tuple[str, str]] = re.findall(
        rf"{start} <<'{mark}'\n(.*?)\n{mark}$", document, re.MULTILINE | re.DOTALL
    )
    enabled = re.findall(r"^(?:systemctl enable .*|SERVICES=\(.*?\))$", document, re.MULTILINE | re.DOTALL)
    return dict(written), " ".join(enabled)


def hosts_scripts(config: StackConfig) -> Iterator[str]:
    from stacks.providers.hosts.plan import plan
    from stacks.providers.hosts.slurm import machine_spec
    from stacks.providers.hosts.user_data import installer, job_spec

    planned = plan(config)
    for at in range(2):
        if config.engine.standing:
            yield render_slurm_host_installer(machine_spec(config, planned, at))
        else:
            yield installer(config, planned, job_spec(config, planned), at)


def machines(config: StackConfig) -> list[tuple[dict[str, str], str]]:
    documents = {unpacked(text): None for text in texts([one.inputs for one in make_plan(config).resources])}
    if config.provider == "hosts":  # what is copied there by SSH is no input that a plan shows
        documents = dict.fromkeys(hosts_scripts(config))
    return [found for document in documents if (found := files_of(document)) is not None]


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
        check_jobs(files)


def check_jobs(files: dict[str, str]) -> None:
    """Of a machine on which jobs run."""
    if f"{UNITS}/gangway-trainer.service" in files:
        lines = [line.strip() for line in files[f"{BIN}/run-trainer.sh"].splitlines()]
        assert lines.index('"$(dirname "$0")/close-metadata.sh" || exit 1') < lines.index(
            'exec "${RUN[@]}" "${DOCKER_ARGV[@]}"'
        )
    if f"{UNITS}/gangway-slurmd.service" in files:
        (checks,) = re.findall(r"^HEALTH_CHECKS=(.*)$", files[f"{ETC}/check.env"], re.MULTILINE)
        assert "close-metadata.sh" in checks
        assert "for check in $HEALTH_CHECKS" in files[f"{BIN}/slurm-health.sh"]
    if "TRAINER_UID=0" not in files[f"{ETC}/node.env"]:
        allowed = re.findall(r"^METADATA_USERS=(.*)$", files[f"{ETC}/node.env"], re.MULTILINE)
        head = "ROLE=head" in files[f"{ETC}/node.env"]
        assert not allowed or head, "on a node none but root"
    if conf := files.get("/etc/slurm/slurm.conf", files.get(f"{ETC}/slurm/slurm.conf")):
        assert f"\nProlog={BIN}/slurm-health.sh\n" in conf
        assert "\nPrologFlags=Alloc\n" in conf


def test_every_shipped_stack_is_looked_at() -> None:
    assert {path.stem.removeprefix("Pulumi.") for path in STACKS} == MACHINES.keys()
