"""The engine that has no submit, as far as a test can judge it beside the others: a stack on AWS whose job is a command
of one's own. What its nodes are told at boot is rendered as `pulumi up` has it, and run as it is below a folder, under
systemd in small (`tests.systemd_unit`) and with docker, AWS's command line and EC2's metadata in small.

    FOLDER/<id>/Pulumi.<id>.yaml    the stack
    FOLDER/<id>/fsx                 its file system, which outlives a node
    FOLDER/<id>/bucket              its run bucket
    FOLDER/<id>/<instance>          a node's whole disk

A node that marks itself unhealthy is replaced by its group, and so is one that the cloud takes. The registry serves one
stack at a time here: the nodes of another wait in their preparation.
"""

import json
import os
import re
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml

from gangway.components.aws.node_pool import LIFECYCLE_HOOK
from gangway.components.core.findings import Finding
from gangway.images.aws import AwsNodeSpec, render_aws_node
from gangway.images.specs import Breaker, FileSystem, job_key
from gangway.jobs.base import JobStatus, Phase, Room, after
from gangway.jobs.job_folder import JobFolder, OwnJobFolder
from gangway.jobs.job_folders import LOG_FILE, FolderEngine, read_job, read_status, write_status
from gangway.jobs.run_intervals import RunningInterval, end_interval, get_run_intervals
from gangway.stacks.base.shared import run_dir
from gangway.stacks.config.job_file import JobFile
from gangway.stacks.loading.loader import from_file
from gangway.stacks.providers.aws.plan import MOUNT, job_spec, plan
from tests.conftest import REPO, Imds
from tests.images.machines import OWN_DOCKER, files_of
from tests.systemd_unit import Service

_IMAGE = f"123456789012.dkr.ecr.us-east-1.amazonaws.com/mine@sha256:{'0' * 64}"
_STORAGE = {"kind": "lustre", "capacity_gib": 1200, "throughput_mbps_per_tib": 125}
_PLACES = re.compile(
    r"(?<![\w/.])/(?:opt/gangway|etc/gangway|etc/systemd/system|run/gangway-notices|run/gangway|scratch"
    r"|usr/bin/docker|usr/bin/python3|tmp/gangway-notices\.jsonl)(?![\w.-])"
)
"""A node's own, wherever its files name them."""
_AWS = """
case "$1 $2" in
    "autoscaling set-instance-health") touch "$node/unhealthy" ;;
    "autoscaling suspend-processes") echo "$*" >>"$stack/suspended" ;;
    "autoscaling describe-auto-scaling-groups") echo own-0-on-demand ;;
    "s3 cp") target=$stack/bucket/${@: -1}; mkdir -p "$(dirname "$target")" && cp -r "${@: -2:1}" "$target" ;;
    "s3 ls") ls "$stack/bucket/${@: -1}" ;;
esac
"""
_PULL = """
case $1 in
    pull) ln -s "$stack" "$stack/../registry" 2>/dev/null || [ "$(readlink "$stack/../registry")" = "$stack" ]; exit ;;
    run) echo >>"$stack/starts" ;;
esac
"""
_PROGRAMS = {
    "aws": _AWS,
    "docker": _PULL + OWN_DOCKER,
    "nvidia-smi": "[ $1 != --query-gpu=index ] || echo 0",
    "systemctl": "exit 3",
    "setpriv": "exit 7",
    **dict.fromkeys(("chown", "dmesg", "ip6tables", "iptables", "mountpoint"), ""),
}
"""What a node has besides this machine's: its GPU is well, its disks are mounted, its firewall works."""


class _Metadata(Imds):
    """A node's own. Its group wants it to go once it has marked itself."""

    def __init__(self, node: Path) -> None:
        super().__init__()
        self._node = node
        self.items["instance-id"] = node.name

    def answer(self, item: str) -> str | None:
        if item == "autoscaling/target-lifecycle-state" and (self._node / "unhealthy").exists():
            return "Terminated"
        if item == "spot/instance-action" and (self._node / "taken").exists():
            return json.dumps({"action": "terminate", "time": "2026-11-21T08:22:00Z"})
        return super().answer(item)


class Node:
    """A machine of a stack's group, from its boot on."""

    def __init__(self, disk: Path, spec: AwsNodeSpec, metadata_url: str) -> None:
        self._disk, stack = disk, disk.parent
        for path, (mode, text) in files_of(render_aws_node(spec)).items():
            file = Path(f"{disk}{path}")
            file.parent.mkdir(parents=True, exist_ok=True)
            text = _PLACES.sub(lambda place: f"{disk}{place[0]}", text)
            file.write_text(re.sub(rf"(?<![\w/.]){MOUNT}\b", f"{stack}{MOUNT}", text))
            file.chmod(int(mode, 8))
        for folder in ("usr/bin", "tmp", "scratch", "run/gangway-notices"):
            (disk / folder).mkdir(parents=True, exist_ok=True)
        for name, body in _PROGRAMS.items():
            program = disk / "usr/bin" / name
            program.write_text(f"#!/bin/bash\nnode={disk} stack={stack}\n{body}")
            program.chmod(0o755)
        (disk / "usr/bin/python3").symlink_to(sys.executable)
        self._env = {
            "PATH": f"{disk}/usr/bin:{Path(sys.executable).parent}:{os.environ['PATH']}",
            "HOSTNAME": disk.name,
            "GANGWAY_IMDS_URL": metadata_url,
            "GANGWAY_POLL_SEC": "0.05",
        }
        self._state = disk / "run/gangway" / job_key(spec.job)
        self._prepare = self._service("gangway-prepare.service", disk / "prepare.log")
        self._notices = self._service("gangway-notices.service", disk / "notices.log")
        self._trainer = self._service("gangway-trainer.service", stack / LOG_FILE)

    def _service(self, name: str, journal: Path) -> Service:
        return Service((self._disk / "etc/systemd/system" / name).read_text(), self._env, journal)

    def live(self) -> None:
        """Until its trainer is dead: what that requires and wants, and it, as often as its unit has it begin."""

        folder, stretches = OwnJobFolder(self._disk.parent), list[RunningInterval]()

        def on_node(begins: bool) -> None:
            if begins:
                stretches.append(RunningInterval(folder, 1))
            else:
                stretches[-1].update()
                end_interval(folder)

        if self._prepare.run():
            notices = threading.Thread(target=self._notices.run)
            notices.start()
            self._trainer.run(on_node)
            self._notices.stop()
            notices.join()

    def shut_down(self) -> None:
        """Its machine goes, and systemd stops what runs."""
        self._trainer.stop()
        self._prepare.stop()

    @property
    def ended(self) -> int | None:
        """With what code the job has ended for all, as this node has it."""
        marker = self._state / "ended"
        return int(marker.read_text().split()[0]) if marker.exists() else None

    @property
    def is_gone(self) -> bool:
        """Whether its group is to bring another: it has marked itself, or the cloud has taken it."""
        return any((self._disk / name).exists() for name in ("unhealthy", "taken"))

    def take(self) -> None:
        """As EC2 takes spot capacity: it says so two minutes before."""
        (self._disk / "taken").touch()


class StackNodes(FolderEngine):
    """See the module. What a job file says and a stack does not, restarts and grace, its JobSpec is given."""

    kind = "systemd"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._nodes: dict[str, Node] = {}
        self._cancelled: set[str] = set()
        self._turn = threading.Lock()

    def findings(self, job: JobFile) -> Sequence[Finding]:
        return ()

    def room(self, job: JobFile) -> Room:
        return Room(True, "`pulumi up` brings its nodes")

    def _has_started(self, folder: OwnJobFolder) -> bool:
        return True

    def _begin(self, job_id: str) -> None:
        """`pulumi up`."""
        folder = self._open_job(job_id)
        folder.touch("starts")
        spec = _node_of(folder.path, read_job(folder))
        threading.Thread(target=self._group, args=(job_id, folder, spec)).start()

    def _group(self, job_id: str, folder: OwnJobFolder, spec: AwsNodeSpec) -> None:
        """The stack's Auto Scaling group: one node, and another in the place of one that is unhealthy."""
        names: list[str] = []
        while True:
            names.append(f"i-{len(names):017x}")
            with _metadata(folder.path / names[-1]) as url:
                node = Node(folder.path / names[-1], spec, url)
                with self._turn:
                    self._nodes[job_id] = node
                    is_cancelled = job_id in self._cancelled
                if not is_cancelled:
                    write_status(folder, replace(read_status(folder), nodes=(names[-1],)))
                    node.live()
            if not self._is_replaced(job_id, folder, node):
                break
        registry = folder.path.parent / "registry"
        if registry.is_symlink() and registry.readlink() == folder.path:
            registry.unlink()
        write_status(folder, self._over(job_id, folder, node))

    def _is_replaced(self, job_id: str, folder: OwnJobFolder, node: Node) -> bool:
        held = folder.path / "suspended"
        launches = not held.exists() or " Launch" not in held.read_text()
        return node.is_gone and node.ended is None and launches and job_id not in self._cancelled

    def _over(self, job_id: str, folder: OwnJobFolder, node: Node) -> JobStatus:
        """What the last node has left."""
        found = self.status(job_id)
        phase = Phase.CANCELLED if job_id in self._cancelled else Phase.FAILED
        if node.ended is not None:
            phase = after(node.ended, 0, 0, other_nodes=True).phase or phase
        return replace(found, phase=phase, exit_code=node.ended, ended_at=datetime.now(UTC))

    def status(self, job_id: str) -> JobStatus:
        return self._read_any(self._open_job(job_id))

    def _read_any(self, folder: JobFolder) -> JobStatus:
        found = read_status(folder)
        stretches = get_run_intervals(folder, runs=not found.phase.is_over)
        starts = len(folder.read("starts").splitlines())
        phase = Phase.RUNNING if starts and not found.phase.is_over else found.phase
        began = stretches[0].start if stretches else None
        return replace(found, phase=phase, starts=starts, started_at=began, stretches=stretches)

    def _failures(self, folder: JobFolder) -> int:
        """As its nodes keep them in the job's folder: one alone counts, several have a file for each round."""
        alone = sum(int(path.read_text()) for path in folder.path.glob("fsx/**/.launch/*/failures"))
        return alone + len(list(folder.path.glob("fsx/**/.launch/*/failed-*")))

    def _interruptions(self, folder: JobFolder) -> int:
        """Nobody asks: no job is moved from a stack."""
        raise NotImplementedError

    def stop(self, job_id: str) -> None:
        """`pulumi destroy`, which returns before the machine is gone."""
        if self.status(job_id).phase.is_over:
            return
        with self._turn:
            self._cancelled.add(job_id)
            node = self._nodes.get(job_id)
        if node is not None:
            node.shut_down()

    def take_node(self, job_id: str) -> None:
        """The one that the job is on, as spot capacity is taken."""
        self._nodes[job_id].take()


@contextmanager
def _metadata(node: Path) -> Iterator[str]:
    service = _Metadata(node)
    thread = threading.Thread(target=service.server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield service.url
    finally:
        service.server.shutdown()
        thread.join()
        service.server.server_close()


def _node_of(folder: Path, job: JobFile) -> AwsNodeSpec:
    """A worker of the shipped small stack on AWS, with that job and a file system, as its user data has it. A stack
    file's command has no lines, as a job file's may have: its words reach the node all the same.
    """
    values: dict[str, Any] = yaml.safe_load((REPO / "stacks/Pulumi.aws-g5-dev.yaml").read_text())["config"]
    own = job.model_dump(mode="json", include={"command", "env", "workdir", "exit_codes", "processes_per_node"})
    own["command"] = [" ".join(word.split()) for word in job.command]
    values["gangway:job"] = {**own, "image": _IMAGE, "max_hours": 1}
    values["gangway:storage"] = _STORAGE
    path = folder / f"Pulumi.{folder.name}.yaml"
    path.write_text(yaml.safe_dump({"config": values}))
    config = from_file(path)
    told = job_spec(config, plan(config), _IMAGE)
    assert told.command is not None, "it is no preset"
    command = told.command.model_copy(update={"words": job.command})
    more = {"command": command, "max_restarts": job.max_restarts, "shutdown_timeout_sec": job.grace_sec}
    return AwsNodeSpec(
        job=told.model_copy(update=more),
        stack=config.stack,
        region=config.region,
        image_registry=_IMAGE.partition("/")[0],
        bucket_uri=f"s3://runs/{config.stack}",
        run_dir=run_dir(config, MOUNT),
        file_system=FileSystem("lustre", "fs-0123456789abcdef0.fsx.us-east-1.amazonaws.com@tcp:/abcdefgh", MOUNT),
        # A stack's least is longer than a test.
        max_hours=job.max_hours,
        scratch_mount_point="/scratch",
        lifecycle_hook=LIFECYCLE_HOOK,
        breaker=Breaker(config.cluster.given_up_limit, config.cluster.breaker.minutes),
    )
