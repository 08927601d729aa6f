"""HostPool: a stack's files and services on existing machines, over SSH; and their ladder of one rung."""

import hashlib
from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import NotRequired, TypedDict

import pulumi
from pulumi_command import remote

from gangway.components.core.capacity import LADDER, AnyRung, OnDemand
from gangway.components.core.findings import InputError
from gangway.components.core.outputs import register_outputs

INSTALLED = "/opt/gangway/installer.sh"  # outside home folders so that removal does not depend on them
MEMBER_KEY = "/etc/gangway/member.pem"  # the machine's member key: readable by root only, never in the script
SIGNING_KEY = "/etc/gangway/signing.pem"  # the key that signs the run's record, likewise
MUNGE_KEY = "/etc/gangway/munge.key"  # the munge key of a Slurm, likewise
DIAL_TRIES = 5
# The SSH user is root or has passwordless sudo: there is no terminal to type a password.
_AS_ROOT = 'as_root=; [ "$(id -u)" = 0 ] || as_root="sudo -n"'


def check_ladder(rungs: Sequence[AnyRung]) -> None:
    """Check that the ladder is one rung of the cluster's own machines. InputError otherwise."""
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
    server's public key as in known_hosts, without the name; if omitted, any server is trusted. `keys` are added to the
    pool's.
    """

    name: str
    address: str
    port: int
    user: str
    host_key: NotRequired[str | None]
    installer: pulumi.Input[str]
    keys: NotRequired[dict[str, pulumi.Input[str]]]


class HostPoolArgs(TypedDict):
    """Inputs of HostPool. The first machine is set up first and removed last. `private_key` is the SSH user's, in
    OpenSSH's format; by default the keys of the agent at SSH_AUTH_SOCK. `keys`: by file, readable by root only:
    MEMBER_KEY, SIGNING_KEY, MUNGE_KEY.
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
    return f"sh -c '{_AS_ROOT}; {command}'"


class HostPool(pulumi.ComponentResource):
    """Machines that run the trainer: `host_names` in order, `addresses` of their SSH servers."""

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
        register_outputs(self)

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
        # In the user's home: SFTP has no sudo, and root must not run files from a world-writable folder.
        path = f".gangway-{pool}-{host}.sh"
        script = pulumi.Output.from_input(machine["installer"])
        digest = script.apply(lambda text: hashlib.sha256(text.encode()).hexdigest())
        # Another address is another machine: remove from the old one, install on the new one.
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
            # The sum is in the command and not in a trigger: the SDK replaces a command whose triggers change, and the
            # old one's `delete` would then remove what the new one has installed.
            create=install,
            update=install,
            delete=_as_root(f"if [ -e {INSTALLED} ]; then {remove}; fi && rm -f {path}"),
            # Servers refuse variables that are not allowed.
            add_previous_output_in_env=False,
            opts=pulumi.ResourceOptions(
                parent=self, depends_on=[copy, *keys, *after], replace_on_changes=elsewhere, delete_before_replace=True
            ),
        )

    def _key(
        self, name: str, connection: remote.ConnectionArgs, file: str, secret: pulumi.Input[str]
    ) -> remote.Command:
        """Send the key by standard input: arguments appear in the machine's process list."""
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
