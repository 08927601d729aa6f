"""A machine in small: a folder that node scripts take for one, with fake commands first on PATH. One kind a cloud.

Not a test; `conftest.py` loads it.
"""

import json
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

import yaml

import gangway.images
from gangway.images.aws import (
    AwsHeadSpec,
    AwsNodeSpec,
    aws_env_text,
    aws_job_env_text,
    render_aws_head,
    render_aws_node,
)
from gangway.images.azure import (
    AzureHeadSpec,
    AzureMachineSpec,
    AzureNodeSpec,
    azure_env_text,
    azure_job_env_text,
    fabric_env_text,
    render_azure_head,
    render_azure_node,
)
from gangway.images.gcp import (
    GcpHeadSpec,
    GcpMachineSpec,
    GcpNodeSpec,
    TpuHostSpec,
    gcp_env_text,
    gcp_job_env_text,
    nccl_env_text,
    render_gcp_head,
    render_gcp_node,
    render_tpu_startup,
)
from gangway.images.openstack import (
    OpenstackHeadSpec,
    OpenstackMachineSpec,
    OpenstackNodeSpec,
    OpenstackSecrets,
    openstack_env_text,
    openstack_job_env_text,
    render_openstack_head,
    render_openstack_node,
)
from gangway.images.specs import job_key

TEMPLATES = Path(gangway.images.__file__).parent / "templates"
PUT = ("upload-record.sh", "leave-node.sh", "watch-node.sh")
"""What may put a run's record."""
MEMORY = ["--memory", "260046848k"]
"""What the trainer's container gets of a machine's 256 GiB."""


def _without_stream(call: list[str]) -> list[str]:
    at = next((index for index, word in enumerate(call) if word.startswith("awslogs-stream=i-")), None)
    return call if at is None else [*call[: at - 1], *call[at + 1 :]]


OWN_DOCKER = """
[ "$1" = run ] || exit 0
shift
env=()
while [ $# -gt 0 ]; do
    case $1 in
        --env) env+=("$2"); shift 2 ;;
        --entrypoint) entry=$2; shift 2 ;;
        --workdir) cd "$2"; shift 2 ;;
        --rm | --init | --read-only) shift ;;
        --*) shift 2 ;;
        *) break ;;
    esac
done
shift
exec env "${env[@]}" "$entry" "$@"
"""
"""A docker that runs the words behind the image here."""


def exited(status: str, result: str = "exit-code") -> dict[str, str]:
    """What systemd tells ExecStopPost of a trainer that exited."""
    return {"SERVICE_RESULT": "success" if status == "0" else result, "EXIT_CODE": "exited", "EXIT_STATUS": status}


@dataclass
class Machine:
    """A directory that a node script takes for the machine: fake commands first on PATH, their calls recorded."""

    root: Path
    spec: AwsNodeSpec
    env: dict[str, str] = field(default_factory=dict)
    bin: Path = Path()
    more_settings: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Just booted, whatever this machine's uptime is: after half a day it is beyond a job's hours."""
        self.up_for(60.0)
        (self.root / "meminfo").write_text("MemTotal:       268435456 kB\nMemFree:        1024 kB\n")
        # Its firewall works: the job's user is refused.
        for name in ("iptables", "ip6tables", "iptables-restore", "ip6tables-restore"):
            self.fake(name)
        self.fake("setpriv", "exit 7")

    UNHEALTHY: ClassVar = [
        *("autoscaling", "set-instance-health", "--region", "us-east-2", "--instance-id", "i-0123456789abcdef0"),
        *("--health-status", "Unhealthy", "--no-should-respect-grace-period"),
    ]
    """What a node says of itself when it gives up."""

    OWN_GROUP: ClassVar = "[ $2 != describe-auto-scaling-groups ] || echo demo-0-spot"
    """What the fake `aws` does where the node asks for its group."""

    COMPLETED: ClassVar = [
        *("complete-lifecycle-action", "--region", "us-east-2", "--auto-scaling-group-name", "demo-0-spot"),
        *("--lifecycle-hook-name", "gangway-leave", "--instance-id", "i-0123456789abcdef0"),
        *("--lifecycle-action-result", "CONTINUE"),
    ]
    """What it tells that group's hook then."""

    LEFT: ClassVar = [
        *("terminate-instance-in-auto-scaling-group", "--region", "us-east-2", "--instance-id", "i-0123456789abcdef0"),
        "--should-decrement-desired-capacity",
    ]
    """What it tells its group when it leaves."""

    def fake(self, name: str, body: str = "exit 0") -> None:
        """A command that records its arguments, then runs `body` (bash)."""
        path = self.root / "fake" / name
        # Words end in ASCII's unit separator and calls in its record separator, so an argument may hold a newline. One
        # write for each call: the two ends of a pipe run at the same time.
        record = f"printf -v record '%s\\x1f' {name} \"$@\"; printf '%s\\x1e' \"$record\" >>'{self.root}/calls'"
        path.write_text(f"#!/usr/bin/env bash\n{record}\n{body}\n")
        path.chmod(0o755)

    def fails_at_first(self, name: str, times: int) -> None:
        """A command that works from its next call but `times` on."""
        tries = f"'{self.root}/tries.{name}'"
        self.fake(name, f'echo >>{tries}; [ "$(wc -l <{tries})" -gt {times} ]')

    def calls(self, name: str) -> list[list[str]]:
        """The argument lists with which the fake command `name` was called."""
        return [words[1:] for words in self.every_call() if words[0] == name]

    def started(self) -> list[list[str]]:
        """The arguments of containers that were run, as planned: without memory and name, which are the machine's."""
        calls = [_without_stream(call) for call in self.calls("docker") if call[0] == "run"]
        at = [call.index(MEMORY[0]) for call in calls]
        assert all(call[i : i + 2] == MEMORY for call, i in zip(calls, at, strict=True))
        return [[*call[:i], *call[i + 2 :]] for call, i in zip(calls, at, strict=True)]

    def every_call(self) -> list[list[str]]:
        """The calls of all fake commands, in their order, each with the command's name."""
        log = self.root / "calls"
        records = log.read_text(errors="surrogateescape").split("\x1e")[:-1] if log.exists() else []
        return [record.split("\x1f")[:-1] for record in records]

    def asked(self, service: str) -> list[list[str]]:
        """The calls of AWS's command line for one service."""
        return [call for call in self.calls("aws") if call[0] == service]

    def said_to_group(self) -> list[list[str]]:
        """What was asked of Auto Scaling, without its name."""
        return [call[1:] for call in self.asked("autoscaling")]

    def left(self) -> bool:
        """Whether the node has left its group."""
        return self.LEFT in self.said_to_group()

    def started_trainer(self, seconds_ago: float) -> None:
        """For the first time on this machine, which has been up for days."""
        self.up_for(1e6)
        self.state("first-start").write_text(f"{int(1e6 - seconds_ago)}\n")

    def up_for(self, seconds: float) -> None:
        """Since its boot."""
        (self.root / "uptime").write_text(f"{seconds:.2f} 28000.00\n")
        self.env["GANGWAY_UPTIME"] = f"{self.root}/uptime"

    def events(self) -> list[dict[str, Any]]:
        """The lines that were sent to the log group."""
        sent = [json.loads(call[-1]) for call in self.asked("logs") if call[1] == "put-log-events"]
        return [json.loads(entry["message"]) for entries in sent for entry in entries]

    def state(self, name: str) -> Path:
        """A file in which the scripts keep what they know from one call to the next."""
        folder = self.root / "state" / self.key()
        folder.mkdir(parents=True, exist_ok=True)
        return folder / name

    def key(self) -> str:
        """What the scripts know the job by."""
        return job_key(self.spec.job)

    def run(self, script: str, head: AwsHeadSpec | None = None, **settings: str) -> subprocess.CompletedProcess[str]:
        """Runs a node script as it is shipped; `settings` are its GANGWAY_... overrides. `head`: on that head node."""
        return self._bash(["bash", str(self.bin / script)], head, settings)

    def give_up(self, reason: str, **settings: str) -> subprocess.CompletedProcess[str]:
        """Calls the function of that name, as any of the scripts would."""
        line = f'. {shlex.quote(str(self.bin / "common.sh"))}; give_up "$1"'
        return self._bash(["bash", "-euo", "pipefail", "-c", line, "bash", reason], None, settings)

    def _bash(
        self, command: list[str], head: AwsHeadSpec | None, settings: dict[str, str]
    ) -> subprocess.CompletedProcess[str]:
        self.write_settings(head)
        with (self.root / "node.env").open("a") as file:
            puts = Path(command[1]).name in PUT
            # A run's files are those of whoever runs the tests.
            more = {**({"TRAINER_UID": str(os.getuid())} if puts else {}), **self.more_settings}
            file.writelines(f"{name}={value}\n" for name, value in more.items())
        env = {
            "PATH": f"{self.root}/fake:{os.environ['PATH']}",
            "GANGWAY_NODE_ENV": f"{self.root}/node.env",
            "GANGWAY_JOB_ENV": f"{self.root}/job.env",
            "GANGWAY_STATE_DIR": f"{self.root}/state",
            "GANGWAY_POLL_SEC": "0.05",
            "GANGWAY_MEMINFO": f"{self.root}/meminfo",
            # One look each; the tests that wait set their own.
            "GANGWAY_LET_GO_SEC": "0",
            "GANGWAY_COMPLETE_SEC": "0",
            "GANGWAY_END_SEC": "0",
            **self.env,
            **{f"GANGWAY_{name}": value for name, value in settings.items()},
        }
        return subprocess.run(
            command, env=env, capture_output=True, text=True, errors="surrogateescape", timeout=30, check=False
        )

    def write_settings(self, head: AwsHeadSpec | None) -> None:
        """The files that the scripts read."""
        (self.root / "node.env").write_text(aws_env_text(self.spec) if head is None else aws_env_text(head))
        (self.root / "job.env").write_text(aws_job_env_text(self.spec, str(self.bin)))

    def plan(self, **changes: Any) -> None:
        """Changes the spec that the scripts are told."""
        self.spec = replace(self.spec, **changes)

    def runs_commands(self) -> None:
        """Gives it the scripts of a job's own command, and a docker that runs that command here."""
        folder = self.root / "bin"
        shutil.copytree(self.bin, folder)
        for script in (TEMPLATES / "job").glob("*.sh"):
            shutil.copy(script, folder)
            (folder / script.name).chmod(0o755)
        (self.root / "lib").symlink_to(self.bin.parent / "lib")
        self.bin = folder
        self.fake("docker", OWN_DOCKER)


@dataclass
class GcpMachine(Machine):
    """The same on Google Cloud: real Python and curl on the machine, its metadata and APIs in small (`gce`)."""

    gcp: GcpMachineSpec = field(kw_only=True)
    gce: Any = field(kw_only=True)

    def write_settings(self, head: AwsHeadSpec | None) -> None:
        """The files that the scripts read."""
        (self.root / "node.env").write_text(gcp_env_text(self.gcp))
        if isinstance(self.gcp, GcpNodeSpec | TpuHostSpec):
            (self.root / "job.env").write_text(gcp_job_env_text(self.gcp, str(self.bin)))
        if isinstance(self.gcp, GcpNodeSpec) and self.gcp.nccl:
            (self.root / "nccl.env").write_text(nccl_env_text(self.gcp.nccl))
        self.env["GANGWAY_NCCL_ENV"] = f"{self.root}/nccl.env"

    def plan(self, **changes: Any) -> None:
        """Changes the spec that the scripts are told."""
        self.gcp = replace(self.gcp, **changes)

    def without(self, *names: str) -> None:
        """Takes commands away that this computer may have, from all but the fakes."""
        self.env["PATH"] = f"{self.root}/fake:{system_without(self.root, names)}"

    def brings(self, package: str, command: str) -> None:
        """A fake apt-get with which one package brings a command."""
        self.fake("later")
        fakes = f"{self.root}/fake"
        self.fake("apt-get", f'[ "${{@: -1}}" != {package} ] || mv {fakes}/later {fakes}/{command}')

    def repository(self, name: str) -> str:
        """A repository that was added to apt's, with its key."""
        text = (self.root / "etc/apt/sources.list.d" / f"{name}.list").read_text()
        assert (self.root / f"usr/share/keyrings/{name}.gpg").read_text() == "key\n"
        return text.replace(str(self.root), "")

    def key(self) -> str:
        """What the scripts know the job by."""
        return job_key(self.gcp.job)

    def verbs(self) -> list[str]:
        """What was asked of groups."""
        return [call.path.rpartition("/")[2] for call in self.gce.asked("compute")]

    def events(self) -> list[dict[str, Any]]:
        """The events that were sent to the log."""
        entries: list[dict[str, Any]] = self.gce.payloads()
        return entries


@dataclass
class AzureMachine(Machine):
    """The same on Azure: real Python and curl on the machine, its metadata and APIs in small (`vm`)."""

    azure: AzureMachineSpec = field(kw_only=True)
    vm: Any = field(kw_only=True)

    def write_settings(self, head: AwsHeadSpec | None) -> None:
        """The files that the scripts read."""
        (self.root / "node.env").write_text(azure_env_text(self.azure))
        if isinstance(self.azure, AzureNodeSpec):
            (self.root / "job.env").write_text(azure_job_env_text(self.azure, str(self.bin)))
            if self.azure.fabric is not None:
                (self.root / "fabric.env").write_text(fabric_env_text(self.azure.fabric))
        self.env["GANGWAY_FABRIC_ENV"] = f"{self.root}/fabric.env"

    def plan(self, **changes: Any) -> None:
        """Changes the spec that the scripts are told."""
        self.azure = replace(self.azure, **changes)

    def key(self) -> str:
        """What the scripts know the job by."""
        return job_key(self.azure.job)

    def verbs(self) -> list[str]:
        """What was asked of scale sets: the method and the last part of the address."""
        return [f"{call.method} {call.path.rpartition('/')[2]}" for call in self.vm.asked("management.azure.com")]

    def events(self) -> list[dict[str, Any]]:
        """The events that were sent to the log."""
        return [row["Line"] for row in self.vm.rows]


@dataclass
class OpenstackMachine(Machine):
    """The same on OpenStack: real Python on the machine, Keystone and the object store in small. `secrets`: what it has
    fetched; None for a machine that boots for the first time.
    """

    spec_: OpenstackMachineSpec = field(kw_only=True)
    secrets: OpenstackSecrets | None = field(kw_only=True)

    def write_settings(self, head: AwsHeadSpec | None) -> None:
        """The files that the scripts read."""
        (self.root / "node.env").write_text(openstack_env_text(self.spec_))
        self.env["GANGWAY_SECRETS"] = f"{self.root}/secrets.json"
        if self.secrets is not None:
            (self.root / "secrets.json").write_text(self.secrets.text())
        if isinstance(self.spec_, OpenstackNodeSpec):
            (self.root / "job.env").write_text(openstack_job_env_text(self.spec_, str(self.bin)))

    def plan(self, **changes: Any) -> None:
        """Changes the spec that the scripts are told."""
        self.spec_ = replace(self.spec_, **changes)

    def key(self) -> str:
        """What the scripts know the job by."""
        return job_key(self.spec_.job)

    def run_ended(self, status: int) -> subprocess.CompletedProcess[str]:
        """Runs what systemd runs when the trainer has ended with this status."""
        self.env |= {"SERVICE_RESULT": "success", "EXIT_CODE": "exited", "EXIT_STATUS": str(status)}
        return self.run("leave-node.sh")

    def without(self, *names: str) -> None:
        """Takes commands away that this computer may have, from all but the fakes."""
        self.env["PATH"] = f"{self.root}/fake:{system_without(self.root, names)}"


def system_without(root: Path, names: Sequence[str]) -> Path:
    """A folder with this computer's commands but these."""
    folder = root / "system"
    folder.mkdir()
    for part in ("/usr/bin", "/bin", "/usr/sbin", "/sbin"):
        for path in Path(part).iterdir():
            if path.name not in names and not os.path.lexists(folder / path.name):
                (folder / path.name).symlink_to(path)
    return folder


def rendered(spec: Any) -> str:
    """What a machine is started with."""
    renderers: dict[type, Any] = {
        AzureHeadSpec: render_azure_head,
        AzureNodeSpec: render_azure_node,
        AwsNodeSpec: render_aws_node,
        AwsHeadSpec: render_aws_head,
        GcpNodeSpec: render_gcp_node,
        GcpHeadSpec: render_gcp_head,
        OpenstackHeadSpec: render_openstack_head,
        OpenstackNodeSpec: render_openstack_node,
        TpuHostSpec: render_tpu_startup,
    }
    text: str = renderers[type(spec)](spec)
    return text


def files_of(document: str) -> dict[str, tuple[str, str]]:
    """Mode and text of each file that a machine's document writes, by its path."""
    if document.startswith("#cloud-config\n"):
        files = yaml.safe_load(document)["write_files"]
        return {file["path"]: (file["permissions"], file["content"]) for file in files}
    parts = re.findall(
        r"^install -D -m (\d+) /dev/stdin (\S+) <<'(\w+)'\n(.*?)^\3$", document, re.MULTILINE | re.DOTALL
    )
    return {path: (mode, text) for mode, path, _, text in parts}


def scripts_of(cloud: str, folder: Path) -> Path:
    """The scripts of a cloud's nodes as they are in the repository, side by side as on a node, and in `lib` beside
    their folder the Python: of the package only what is there too.
    """
    folder.mkdir()
    for part in ("node", cloud):
        for script in (TEMPLATES / part).glob("*.sh"):
            shutil.copy(script, folder)
            (folder / script.name).chmod(0o755)
    package = folder.parent / "lib" / "gangway" / "images"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "node").symlink_to(Path(gangway.images.__file__).parent / "node")
    return folder
