"""A Slurm of one's own as Gangway renders it, whose machines are those of moto's Auto Scaling groups: for each that is
named, a slurmd is begun here, as the node's own unit does on a real one.
"""

import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

import boto3

from gangway.images.slurm.conf import SlurmMachine, SlurmRung, SlurmSpec, conf_files
from tests.moto_http import query_services
from tests.slurm_cluster import SlurmCluster, begin_munge, end_all, free_port

REGION = "us-east-2"
TAG = "gangway:slurm-node"
IDLE_SEC, SUSPEND_SEC, RESUME_SEC = 3, 4, 60
PATIENCE_SEC, REST_SEC = 3, 3600
RUNGS = (SlurmRung("spot", "spot", 2), SlurmRung("on-demand", "on-demand", 2))

_AT_ONCE = "sched_min_interval=0,batch_sched_delay=0,bf_interval=1"
_HEALTH = """#!/bin/sh
[ -e {folder}/sick ] || exit 0
rm {folder}/sick
scontrol update "nodename=$SLURMD_NODENAME" state=drain "reason=gangway: unfit: as a test wants it"
exit 1
"""
_SCALE = """#!/bin/sh
exec >>{folder}/scale.out 2>&1
PYTHONPATH={repo} AWS_ENDPOINT_URL={url} AWS_ACCESS_KEY_ID=testing AWS_SECRET_ACCESS_KEY=testing AWS_REGION={region} \\
    exec {python} {repo}/tests/loopback_scaler.py {folder}/scaler.json {folder}/scaler.state
"""
"""As the head's own, but for where AWS and Slurm are."""


@dataclass
class CloudSlurm:
    """One that is up. `stock`: how many machines each rung may have; what is above that never comes. `broken`: rungs
    whose machines end before they become nodes, as with a wrong image.
    """

    slurm: SlurmCluster
    stock: dict[str, int]
    scaling: Any
    ec2: Any
    broken: set[str] = field(default_factory=set)
    launched: set[str] = field(default_factory=set)
    """The ids of all machines of broken rungs."""
    ended: threading.Event = field(default_factory=threading.Event)

    def group(self, rung: str) -> tuple[int, int]:
        """How many are wanted, and are there."""
        found = self.scaling.describe_auto_scaling_groups(AutoScalingGroupNames=[rung])["AutoScalingGroups"][0]
        return found["DesiredCapacity"], len(found["Instances"])

    def machines(self) -> dict[str, str]:
        """The names of those that run, by their ids."""
        found = self.ec2.describe_instances(Filters=[{"Name": "instance-state-name", "Values": ["running"]}])
        return {
            one["InstanceId"]: next((tag["Value"] for tag in one.get("Tags", []) if tag["Key"] == TAG), "")
            for page in found["Reservations"]
            for one in page["Instances"]
        }

    def set_given_up(self, count: int) -> None:
        """The breaker's limit: so many machines of a rung, and it is held."""
        path = self.slurm.folder / "scaler.json"
        path.with_suffix(".new").write_text(json.dumps({**json.loads(path.read_text()), "given_up": count}))
        path.with_suffix(".new").replace(path)

    def look(self) -> None:
        """What the head's timer does every minute."""
        subprocess.run([str(self.slurm.folder / "bin" / "slurm-scale.sh")], env=self.slurm.env, timeout=60)

    def until(self, holds: Callable[[], bool]) -> None:
        """Until that is so."""
        limit = time.monotonic() + 60
        while not holds():
            assert time.monotonic() < limit, (self.slurm.folder / "scale.out").read_text()[-4000:]
            time.sleep(0.2)

    def run_machines(self) -> None:
        """Begins and ends slurmds, and looks, until it is over: both go on whatever a test waits for."""
        while not self.ended.wait(0.3):
            running = self.machines()
            broken = {machine for machine, name in running.items() if name.rsplit("-n", 1)[0] in self.broken}
            if broken:
                self.launched |= broken
                self.ec2.terminate_instances(InstanceIds=sorted(broken))
            names = {name for machine, name in running.items() if name and machine not in broken}
            up = {name.removeprefix("slurmd-") for name in self.slurm.processes if name.startswith("slurmd-")}
            for name in names - up:
                # -b: as after a machine's boot, which is what a node that was wanted has to show.
                self.slurm.begin(f"slurmd-{name}", "slurmd", "-D", "-b", "-N", name)
            for name in up - names:
                process = self.slurm.processes.pop(f"slurmd-{name}")
                process.kill()
                process.wait()
            self.look()


def spec(folder: Path, port: int) -> SlurmSpec:
    """Two rungs of two small nodes, and times of seconds."""
    host = socket.gethostname().split(".")[0].lower()
    return SlurmSpec(
        cluster="gangway",
        release="22.05",
        head_host=host,
        head_name=host,
        machine=SlurmMachine(cpus=1, memory_gib=0.5, fabric="efa"),
        rungs=RUNGS,
        idle_minutes=IDLE_SEC / 60,
        resume_minutes=RESUME_SEC / 60,
        suspend_sec=SUSPEND_SEC,
        controller_port=port,
        state_dir=str(folder),
        log_dir=str(folder),
        bin_dir=str(folder / "bin"),
        user="root",
    )


def on_loopback(text: str, folder: Path, rungs: Sequence[SlurmRung]) -> str:
    """slurm.conf, but for what a machine of many nodes cannot have: cgroups, one port, its own folders."""
    places = {
        "SlurmctldHost": f"{socket.gethostname().split('.')[0].lower()}(127.0.0.1)",
        "ProctrackType": "proctrack/linuxproc",
        "TaskPlugin": "task/none",
        "SlurmdSpoolDir": f"{folder}/spool/%n",
        "SlurmctldPidFile": f"{folder}/slurmctld.pid",
        "SlurmdPidFile": f"{folder}/slurmd-%n.pid",
        "KillWait": "2",
    }
    lines = []
    for line in text.splitlines():
        name, _, rest = line.partition("=")
        if name == "NodeName":
            count = next(rung.count for rung in rungs if rest.startswith(f"{rung.name}-n"))
            line += f" Port=[{(first := free_ports(count))}-{first + count - 1}]"
        lines.append(f"{name}={places[name]}" if name in places else line)
    return (
        "\n".join(
            [
                *lines,
                f"AuthInfo=socket={folder}/munge.sock",
                "SlurmdUser=root",
                "SlurmdParameters=config_overrides",
                "",
            ]
        )
        .replace("nohold_on_prolog_fail", f"nohold_on_prolog_fail,{_AT_ONCE}")
        .replace("idle_on_node_suspend", "idle_on_node_suspend,power_save_interval=1")
    )


def free_ports(count: int) -> int:
    """The first of so many, side by side."""
    while True:
        first = free_port()
        with suppress(OSError, OverflowError):
            for port in range(first, first + count):
                with socket.socket() as found:
                    found.bind(("127.0.0.1", port))
            return first


def written(made: SlurmSpec, folder: Path) -> SlurmCluster:
    """One whose files are there, and nothing of it runs."""
    for each in ("state", "spool", "bin"):
        (folder / each).mkdir()
    for name, text in conf_files(made).items():
        (folder / name).write_text(on_loopback(text, folder, made.rungs) if name == "slurm.conf" else text)
    outer = {name: value for name, value in os.environ.items() if not name.startswith("SLURM")}
    path = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
    return SlurmCluster(folder, {**outer, "SLURM_CONF": str(folder / "slurm.conf"), "PATH": path}, nodes=0)


@contextmanager
def cloud_slurm(folder: Path) -> Iterator[CloudSlurm]:
    """Within `mock_aws`."""
    slurm = written(spec(folder, free_port()), folder)
    stock = {rung.name: rung.count for rung in RUNGS}
    server = ThreadingHTTPServer(("127.0.0.1", 0), query_services(partial(wants_too_many, stock)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    _write_programs(folder, f"http://127.0.0.1:{server.server_port}")
    clients = [boto3.client(service, region_name=REGION) for service in ("autoscaling", "ec2")]
    cloud = CloudSlurm(slurm, stock, *clients)
    _make_groups(cloud)
    machines = threading.Thread(target=cloud.run_machines)
    try:
        begin_munge(slurm)
        slurm.begin_controller()
        slurm.until(("scontrol", "ping"), "UP")
        machines.start()
        yield cloud
    finally:
        cloud.ended.set()
        if machines.is_alive():
            machines.join()
        end_all(slurm)
        server.shutdown()
        server.server_close()


def _write_programs(folder: Path, url: str) -> None:
    repo = Path(__file__).resolve().parent.parent
    scale = _SCALE.format(folder=folder, repo=repo, url=url, region=REGION, python=sys.executable)
    for name, text in {"slurm-scale": scale, "slurm-health": _HEALTH.format(folder=folder)}.items():
        program = folder / "bin" / f"{name}.sh"
        program.write_text(text)
        program.chmod(0o755)
    config = {
        "region": REGION,
        "most": sum(rung.count for rung in RUNGS),
        "patience_sec": PATIENCE_SEC,
        "given_up": 0,
        "given_up_sec": 3600,
        "rest_sec": REST_SEC,
        "rungs": [{"name": rung.name, "group": rung.name, "count": rung.count, "nodes_up": 0} for rung in RUNGS],
    }
    (folder / "scaler.json").write_text(json.dumps(config))


def _make_groups(cloud: CloudSlurm) -> None:
    """Those that a stack has."""
    cloud.ec2.create_launch_template(
        LaunchTemplateName="node", LaunchTemplateData={"ImageId": "ami-12c6146b", "InstanceType": "t3.micro"}
    )
    for rung in RUNGS:
        cloud.scaling.create_auto_scaling_group(
            AutoScalingGroupName=rung.name,
            LaunchTemplate={"LaunchTemplateName": "node", "Version": "$Latest"},
            MinSize=0,
            MaxSize=rung.count,
            DesiredCapacity=0,
            AvailabilityZones=[f"{REGION}a"],
        )


def wants_too_many(stock: Mapping[str, int], action: str, words: Mapping[str, str]) -> bool:
    """Moto's hand is held back where there is no machine to be had: the group wants them, and has none."""
    rung = words.get("AutoScalingGroupName", "")
    if action != "SetDesiredCapacity" or int(words["DesiredCapacity"]) <= stock[rung]:
        return False
    from moto.autoscaling.models import autoscaling_backends

    group = autoscaling_backends["123456789012"][REGION].autoscaling_groups[rung]
    group.desired_capacity = int(words["DesiredCapacity"])
    return True
