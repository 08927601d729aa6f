"""Starts and ends machines on AWS as Slurm's power saving requests. A timer runs it repeatedly, and Slurm runs it as
its ResumeProgram and SuspendProgram.

    python3 -m gangway.images.node.aws.slurm_scaler CONFIG_FILE STATE_FILE

`decide` of `gangway.images.node.slurm_plan` plans; this module calls Slurm, Auto Scaling and EC2. It runs on the
controller, as Slurm's user, with Python 3.10 and the distribution's boto3, and logs actions as lines of JSON.
CONFIG_FILE: {"region", "most", "patience_sec", "rest_sec", "given_up", "given_up_sec",
"rungs": [{"name", "group", "count", "nodes_up"}]}.
"""

import fcntl
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import boto3
from botocore.exceptions import BotoCoreError, ClientError

from gangway.images.node.slurm_plan import (
    Action,
    Close,
    Decision,
    End,
    Group,
    Ladder,
    Machine,
    Memory,
    Name,
    Node,
    Open,
    Reset,
    Rung,
    Wake,
    decide,
    read_nodes,
)

NODE_TAG = "gangway:slurm-node"
"""Holds the name of the machine's node."""
_TIMEOUT_SEC = 60
_MAX_VALUES = 200
"""Per filter (EC2 API reference, "Filtering")."""


class Slurm:
    """The controller, through scontrol."""

    def nodes(self) -> dict[str, Node]:
        """All nodes."""
        return read_nodes(_scontrol("show", "nodes", "--oneliner"))

    def update(self, node: str, *words: str) -> None:
        """Changes a node."""
        _scontrol("update", f"nodename={node}", *words)


class AwsGroups:
    """The ladder's Auto Scaling groups, by rung."""

    def __init__(self, region: str, names: Mapping[str, str]) -> None:
        self._scaling, self._ec2 = (boto3.client(service, region_name=region) for service in ("autoscaling", "ec2"))
        self._names = names

    def read(self) -> dict[str, Group]:
        """All groups. Raises KeyError for a missing one."""
        pages = self._scaling.get_paginator("describe_auto_scaling_groups").paginate(
            AutoScalingGroupNames=list(self._names.values())
        )
        found = {group["AutoScalingGroupName"]: group for page in pages for group in page["AutoScalingGroups"]}
        machines = self._machines([one["InstanceId"] for group in found.values() for one in group["Instances"]])
        return {rung: _group(found[name], machines) for rung, name in self._names.items()}

    def _machines(self, ids: Sequence[str]) -> dict[str, tuple[str, str]]:
        """Node name and address by machine."""
        pages = self._ec2.get_paginator("describe_instances")
        found = [
            one
            for start in range(0, len(ids), _MAX_VALUES)
            # A filter, since an unknown id in InstanceIds is an error.
            for page in pages.paginate(
                Filters=[{"Name": "instance-id", "Values": list(ids[start : start + _MAX_VALUES])}]
            )
            for each in page["Reservations"]
            for one in each["Instances"]
        ]
        return {one["InstanceId"]: (_tag(one), one.get("PrivateIpAddress", "")) for one in found}

    def name(self, machine: str, node: str) -> None:
        """Tags a machine with its node's name."""
        self._ec2.create_tags(Resources=[machine], Tags=[{"Key": NODE_TAG, "Value": node}])

    def end(self, machine: str) -> None:
        """Terminates a machine; its group shrinks."""
        self._scaling.terminate_instance_in_auto_scaling_group(InstanceId=machine, ShouldDecrementDesiredCapacity=True)

    def resize(self, rung: str, size: int) -> None:
        """Sets a group's size."""
        self._scaling.set_desired_capacity(AutoScalingGroupName=self._names[rung], DesiredCapacity=size)


def _group(found: Mapping[str, Any], machines: Mapping[str, tuple[str, str]]) -> Group:
    # EC2 may not know a new machine yet; the next run will.
    known = [one for one in found["Instances"] if one["InstanceId"] in machines]
    return Group(
        found["DesiredCapacity"],
        found["MaxSize"],
        tuple(
            Machine(
                one["InstanceId"],
                *machines[one["InstanceId"]],
                is_leaving=one["LifecycleState"].startswith("Terminat"),
            )
            for one in known
        ),
    )


def _tag(instance: Mapping[str, Any]) -> str:
    return next((str(tag["Value"]) for tag in instance.get("Tags", ()) if tag["Key"] == NODE_TAG), "")


def apply(action: Action, slurm: Slurm, groups: AwsGroups) -> None:
    """Performs one action."""
    if isinstance(action, Close):
        slurm.update(action.node, "state=drain", f"reason={action.reason}")
    elif isinstance(action, Open):
        slurm.update(action.node, "state=undrain")
    elif isinstance(action, Reset):
        # Down first: Slurm requeues the node's job with the reason.
        slurm.update(action.node, "state=down", f"reason={action.reason}")
        slurm.update(action.node, "state=power_down_force")
    elif isinstance(action, Wake):
        slurm.update(action.node, "state=power_up")
    elif isinstance(action, Name):
        address = action.machine.address
        slurm.update(action.node, f"nodeaddr={address}", f"nodehostname={address}")
        groups.name(action.machine.id, action.node)
    elif isinstance(action, End):
        groups.end(action.machine)
    else:
        groups.resize(action.rung, action.size)


def plan(config: Mapping[str, Any], memory: Memory, slurm: Slurm, groups: AwsGroups, now: float) -> Decision:
    """Plans once. Reads Slurm before the cloud, so that a node's state is never newer than its machine."""
    rungs = tuple(Rung(rung["name"], _names(rung), rung["nodes_up"]) for rung in config["rungs"])
    limits = (config[name] for name in ("patience_sec", "rest_sec", "given_up", "given_up_sec"))
    ladder = Ladder(rungs, config["most"], *limits)
    nodes = slurm.nodes()
    return decide(ladder, nodes, groups.read(), memory, now)


def _names(rung: Mapping[str, Any]) -> tuple[str, ...]:
    """As in slurm.conf (gangway.images.slurm.conf)."""
    return tuple(f"{rung['name']}-n{number}" for number in range(1, rung["count"] + 1))


def run(
    config: Mapping[str, Any], state: Path, slurm: Slurm, groups: AwsGroups, say: Callable[[str], None] = print
) -> None:
    """Plans and acts under a lock: concurrent runs wait and then see Slurm's newest requests."""
    with state.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        decision = plan(config, read_memory(state), slurm, groups, time.monotonic())
        write_memory(state, decision.memory)
        for action in decision.actions:
            line = {"event": f"slurm-{type(action).__name__.lower()}", **action._asdict()}
            try:
                apply(action, slurm, groups)
            except (BotoCoreError, ClientError, OSError, subprocess.SubprocessError) as error:
                # Continue with the others; the next run plans it again.
                line["error"] = str(error)
            say(json.dumps(line))


def read_memory(state: Path) -> Memory:
    """The previous run's memory, by this boot's clock; empty if missing or incomplete."""
    try:
        fields = json.loads(state.read_text("utf-8"))
    except (FileNotFoundError, ValueError):
        return Memory()
    return Memory(**{**fields, "missing": frozenset(fields["missing"])})


def write_memory(state: Path, memory: Memory) -> None:
    """Saves it for the next run."""
    new = state.with_suffix(".new")
    new.write_text(json.dumps({**memory._asdict(), "missing": sorted(memory.missing)}), "utf-8")
    new.replace(state)


def _scontrol(*words: str) -> str:
    done = subprocess.run(["scontrol", *words], capture_output=True, text=True, timeout=_TIMEOUT_SEC)
    if done.returncode:
        raise OSError(f"scontrol {' '.join(words)}: {(done.stderr or done.stdout).strip()}")
    return done.stdout


def main(argv: Iterable[str], slurm: Slurm) -> None:
    """Runs once."""
    config_file, state_file = argv
    config = json.loads(Path(config_file).read_text("utf-8"))
    names = {rung["name"]: rung["group"] for rung in config["rungs"]}
    run(config, Path(state_file), slurm, AwsGroups(config["region"], names))


if __name__ == "__main__":
    main(sys.argv[1:], Slurm())
