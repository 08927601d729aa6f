"""HostPool: a stack's files and services on machines that are there already, over SSH; and their ladder of one rung."""

import hashlib
from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import NotRequired, TypedDict

import pulumi
from pulumi_command import remote

from components.core.capacity import AnyRung, OnDemand
from components.core.findings import InputError

__all__ = ["LADDER", "HostArgs", "HostPool", "HostPoolArgs", "check_ladder"]


LADDER = "gangway:cluster.capacity"
INSTALLED = "/opt/gangway/installer.sh"
"""Where a machine keeps the script: what takes things away must not depend on a copy in somebody's home."""
MEMBER_KEY = "/etc/gangway/member.pem"
"""Where a machine keeps the key by which it knows the others: root's alone, and no word of the script."""
SIGNING_KEY = "/etc/gangway/signing.pem"
"""Likewise the key by which it signs the run's record."""
MUNGE_KEY = "/etc/gangway/munge.key"
"""Likewise the key by which machines of a Slurm know each other."""
DIAL_TRIES = 5
# The SSH user is root, or has a sudo that asks for nothing: a password would have nobody to type it.
_AS_ROOT = 'as_root=; [ "$(id -u)" = 0 ] || as_root="sudo -n"'


def check_ladder(rungs: Sequence[AnyRung]) -> None:
    """Refuses (InputError) all but one rung of machines that one has, of the cluster's own."""
    for index, rung in enumerate(rungs):
        if not isinstance(rung, OnDemand):
            raise InputError(
                f"{LADDER}[{index}].kind",
                "the machines are there: nobody lends them, reserves them or takes them back",
                value=rung.kind,
                allowed="on-demand",
                fix="write capacity: [{kind: on-demand}]",
            )
        if rung.machine_types or rung.zones:
            raise InputError(
                f"{LADDER}[{index}]",
                "the machines are those of gangway:hosts.machines, wherever they stand",
                value=", ".join((*rung.machine_types, *rung.zones)),
                allowed="no machine_types and no zones",
                fix="remove them",
            )
    if len(rungs) > 1:
        raise InputError(
            LADDER,
            "there are no other machines to turn to",
            value=", ".join(rung.kind for rung in rungs),
            allowed="one rung",
            fix="write capacity: [{kind: on-demand}]",
        )


class HostArgs(TypedDict):
    """One machine. `installer` is a bash script with `install SHA256 NAME` and `remove NAME`. `host_key` is the
    server's public key as in known_hosts, without the name; left out, whoever answers is believed. `keys` are this
    machine's own, as those of all.
    """

    name: str
    address: str
    port: int
    user: str
    host_key: NotRequired[str | None]
    installer: pulumi.Input[str]
    keys: NotRequired[dict[str, pulumi.Input[str]]]


class HostPoolArgs(TypedDict):
    """Inputs of HostPool. The first machine is there before the others, and stays until they have left. `private_key`
    is the SSH user's, in OpenSSH's format; left out, the keys of the agent at SSH_AUTH_SOCK. `keys`: by the file
    in which each machine keeps one, for root alone: MEMBER_KEY, SIGNING_KEY, MUNGE_KEY.
    """

    machines: list[HostArgs]
    keys: NotRequired[dict[str, pulumi.Input[str]]]
    private_key: NotRequired[pulumi.Input[str] | None]


def _connection(machine: HostArgs, private_key: pulumi.Input[str] | None) -> remote.ConnectionArgs:
    return remote.ConnectionArgs(
        host=machine["address"],
        port=machine["port"],
        user=machine["user"],
        host_key=machine.get("host_key"),
        private_key=None if private_key is None else pulumi.Output.secret(private_key),
        dial_error_limit=DIAL_TRIES,
    )


def _as_root(command: str) -> str:
    """`command`, in which $as_root stands for root's rights, for any login shell."""
    return f"sh -c '{_AS_ROOT}; {command}'"


class HostPool(pulumi.ComponentResource):
    """Machines that run the trainer: `host_names` in order, `addresses` where their SSH servers answer."""

    host_names: pulumi.Output[list[str]]
    addresses: pulumi.Output[list[str]]

    def __init__(self, name: str, args: HostPoolArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gangway:hosts:HostPool", name, None, opts)
        first, *others = args["machines"]
        head = self._machine(name, first, args, [])
        for machine in others:
            self._machine(name, machine, args, [head])
        self.host_names = pulumi.Output.from_input([machine["name"] for machine in args["machines"]])
        self.addresses = pulumi.Output.from_input([machine["address"] for machine in args["machines"]])
        self.register_outputs({"host_names": self.host_names, "addresses": self.addresses})

    def _machine(
        self,
        pool: str,
        machine: HostArgs,
        args: HostPoolArgs,
        after: Sequence[pulumi.Resource],
    ) -> remote.Command:
        host, connection = machine["name"], _connection(machine, args.get("private_key"))
        kept = {**args.get("keys", {}), **machine.get("keys", {})}
        keys = [self._key(f"{pool}-{host}", connection, file, secret) for file, secret in kept.items()]
        # In the user's home: SFTP knows no sudo, and a folder that all may write to is no place for what root runs.
        path = f".gangway-{pool}-{host}.sh"
        script = pulumi.Output.from_input(machine["installer"])
        digest = script.apply(lambda text: hashlib.sha256(text.encode()).hexdigest())
        # Another address is another machine: the old one is told to remove it all, the new one to install it.
        elsewhere = ["connection.host"]
        copy = remote.CopyToRemote(
            f"{pool}-{host}-files",
            connection=connection,
            source=script.apply(pulumi.StringAsset),
            remote_path=path,
            triggers=[digest],
            opts=pulumi.ResourceOptions(parent=self, replace_on_changes=elsewhere),
        )
        install = digest.apply(lambda sha256: _as_root(f"$as_root bash {path} install {sha256} {host}"))
        remove = f"$as_root bash {INSTALLED} remove {host}"
        return remote.Command(
            f"{pool}-{host}-services",
            connection=connection,
            # The sum stands in the words and in no trigger: the SDK replaces a command whose triggers change, and the
            # old one's `delete` would then take away what the new one has just put there.
            create=install,
            update=install,
            delete=_as_root(f"if [ -e {INSTALLED} ]; then {remove}; fi && rm -f {path}"),
            # Servers refuse variables that nobody allowed them.
            add_previous_output_in_env=False,
            opts=pulumi.ResourceOptions(
                parent=self, depends_on=[copy, *keys, *after], replace_on_changes=elsewhere, delete_before_replace=True
            ),
        )

    def _key(
        self, name: str, connection: remote.ConnectionArgs, file: str, secret: pulumi.Input[str]
    ) -> remote.Command:
        """By standard input: what a machine is told in words stands in its list of processes."""
        keep = _as_root(f"$as_root install -D -m 0400 /dev/stdin {file}")
        return remote.Command(
            f"{name}-{PurePosixPath(file).stem}-key",
            connection=connection,
            create=keep,
            update=keep,
            delete=_as_root(f"$as_root rm -f {file}"),
            stdin=pulumi.Output.secret(secret),
            logging=remote.Logging.NONE,
            add_previous_output_in_env=False,
            opts=pulumi.ResourceOptions(
                parent=self, replace_on_changes=["connection.host"], delete_before_replace=True
            ),
        )
