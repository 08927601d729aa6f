"""Keeps the machines of a Slurm on AWS as Slurm's power saving wants them: one look. A timer repeats it, and Slurm runs
it as its ResumeProgram and SuspendProgram.

    python3 -m images.node.aws.slurm_scaler CONFIG_FILE STATE_FILE

What is decided is `decide` of `images.node.slurm_plan`; here Slurm, Auto Scaling and EC2 are asked and told. It runs on
the controller, as Slurm's own user, with Python 3.10 and its distribution's boto3. What it does are lines of JSON.
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

from images.node.slurm_plan import (
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
"""By which a machine knows which node it is."""
_TIMEOUT_SEC = 60
_MOST_VALUES = 200
"""Of one filter (EC2 API reference, "Filtering")."""


class Slurm:
    """The controller, by scontrol."""

    def nodes(self) -> dict[str, Node]:
        """All of them."""
        return read_nodes(_scontrol("show", "nodes", "--oneliner"))

    def tell(self, node: str, *words: str) -> None:
        """Changes one of them."""
        _scontrol("update", f"nodename={node}", *words)


class AwsGroups:
    """The Auto Scaling groups of the ladder, by the names of their rungs."""

    def __init__(self, region: str, names: Mapping[str, str]) -> None:
        self._scaling, self._ec2 = (boto3.client(service, region_name=region) for service in ("autoscaling", "ec2"))
        self._names = names

    def look(self) -> dict[str, Group]:
        """What they have. KeyError: one of them is not there."""
        pages = self._scaling.get_paginator("describe_auto_scaling_groups").paginate(
            AutoScalingGroupNames=list(self._names.values())
        )
        found = {group["AutoScalingGroupName"]: group for page in pages for group in page["AutoScalingGroups"]}
        machines = self._machines([one["InstanceId"] for group in found.values() for one in group["Instances"]])
        return {rung: _group(found[name], machines) for rung, name in self._names.items()}

    def _machines(self, ids: Sequence[str]) -> dict[str, tuple[str, str]]:
        """Name and address of each."""
        pages = self._ec2.get_paginator("describe_instances")
        found = [
            one
            for start in range(0, len(ids), _MOST_VALUES)
            # A filter, for of one that is not known yet nothing is said, and no error.
            for page in pages.paginate(
                Filters=[{"Name": "instance-id", "Values": list(ids[start : start + _MOST_VALUES])}]
            )
            for each in page["Reservations"]
            for one in each["Instances"]
        ]
        return {one["InstanceId"]: (_tag(one), one.get("PrivateIpAddress", "")) for one in found}

    def name(self, machine: str, node: str) -> None:
        """Tags it."""
        self._ec2.create_tags(Resources=[machine], Tags=[{"Key": NODE_TAG, "Value": node}])

    def end(self, machine: str) -> None:
        """Takes it away."""
        self._scaling.terminate_instance_in_auto_scaling_group(InstanceId=machine, ShouldDecrementDesiredCapacity=True)

    def resize(self, rung: str, size: int) -> None:
        """Asks for so many."""
        self._scaling.set_desired_capacity(AutoScalingGroupName=self._names[rung], DesiredCapacity=size)


def _group(found: Mapping[str, Any], machines: Mapping[str, tuple[str, str]]) -> Group:
    """One whose machines EC2 does not know yet has them at the next look."""
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


def do(action: Action, slurm: Slurm, groups: AwsGroups) -> None:
    """One action."""
    if isinstance(action, Close):
        slurm.tell(action.node, "state=drain", f"reason={action.reason}")
    elif isinstance(action, Open):
        slurm.tell(action.node, "state=undrain")
    elif isinstance(action, Reset):
        # Down first: Slurm gives the node's job back to the queue, and says why.
        slurm.tell(action.node, "state=down", f"reason={action.reason}")
        slurm.tell(action.node, "state=power_down_force")
    elif isinstance(action, Wake):
        slurm.tell(action.node, "state=power_up")
    elif isinstance(action, Name):
        address = action.machine.address
        slurm.tell(action.node, f"nodeaddr={address}", f"nodehostname={address}")
        groups.name(action.machine.id, action.node)
    elif isinstance(action, End):
        groups.end(action.machine)
    else:
        groups.resize(action.rung, action.size)


def look(config: Mapping[str, Any], memory: Memory, slurm: Slurm, groups: AwsGroups, now: float) -> Decision:
    """Looks once. Slurm before the cloud: what it says of a name is then never newer than the machine that has it."""
    rungs = tuple(Rung(rung["name"], _names(rung), rung["nodes_up"]) for rung in config["rungs"])
    limits = (config[name] for name in ("patience_sec", "rest_sec", "given_up", "given_up_sec"))
    ladder = Ladder(rungs, config["most"], *limits)
    nodes = slurm.nodes()
    return decide(ladder, nodes, groups.look(), memory, now)


def _names(rung: Mapping[str, Any]) -> tuple[str, ...]:
    """As slurm.conf has them (images.slurm.spec)."""
    return tuple(f"{rung['name']}-n{number}" for number in range(1, rung["count"] + 1))


def run(
    config: Mapping[str, Any], state: Path, slurm: Slurm, groups: AwsGroups, say: Callable[[str], None] = print
) -> None:
    """Looks and does, alone: whoever comes meanwhile looks after it, so that nothing Slurm has asked for is missed."""
    with state.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        found = look(config, read_memory(state), slurm, groups, time.monotonic())
        write_memory(state, found.memory)
        for action in found.actions:
            said = {"event": f"slurm-{type(action).__name__.lower()}", **action._asdict()}
            try:
                do(action, slurm, groups)
            except (BotoCoreError, ClientError, OSError, subprocess.SubprocessError) as error:
                # The others need not wait for it: what was not done is decided again at the next look.
                said["error"] = str(error)
            say(json.dumps(said))


def read_memory(state: Path) -> Memory:
    """What the last look left, by the clock of this boot; nothing before the first one, and after a file that a full
    disk has cut.
    """
    try:
        held = json.loads(state.read_text("utf-8"))
    except (FileNotFoundError, ValueError):
        return Memory()
    return Memory(**{**held, "missing": frozenset(held["missing"])})


def write_memory(state: Path, memory: Memory) -> None:
    """For the next look."""
    new = state.with_suffix(".new")
    new.write_text(json.dumps({**memory._asdict(), "missing": sorted(memory.missing)}), "utf-8")
    new.replace(state)


def _scontrol(*words: str) -> str:
    done = subprocess.run(["scontrol", *words], capture_output=True, text=True, timeout=_TIMEOUT_SEC)
    if done.returncode:
        raise OSError(f"scontrol {' '.join(words)}: {(done.stderr or done.stdout).strip()}")
    return done.stdout


def main(argv: Iterable[str], slurm: Slurm) -> None:
    """As the head's scripts call it."""
    config_file, state_file = argv
    config = json.loads(Path(config_file).read_text("utf-8"))
    names = {rung["name"]: rung["group"] for rung in config["rungs"]}
    run(config, Path(state_file), slurm, AwsGroups(config["region"], names))


if __name__ == "__main__":
    main(sys.argv[1:], Slurm())
