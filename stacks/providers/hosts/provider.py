"""The provider for existing machines: facts that need no SDK."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from gangway.components.core.findings import InputError
from gangway.stacks.base.provider import EXAMPLE_IMAGE, EXAMPLE_SITE, NodeTypes, Program, Provider, Start
from gangway.stacks.config.engine_settings import SlurmConfig
from gangway.stacks.config.provider_settings import plaintext_mistakes
from gangway.stacks.config.stack_config import StackConfig
from gangway.stacks.providers.hosts.settings import SETTINGS, HostsConfig

if TYPE_CHECKING:
    from gangway.stacks.providers.hosts.plan import HostsPlan


def _program() -> "Program[HostsPlan]":
    from gangway.stacks.providers.hosts import program

    return program


def _data(config: StackConfig) -> str | None:
    section = config.find_section(HostsConfig)
    return section.data_dir if section else None


def _mistakes(config: StackConfig) -> Iterator[InputError]:
    section = config.find_section(HostsConfig)
    key = section.private_key if section else None
    yield from plaintext_mistakes("hosts", "private_key", key, "a private key", "the keys of your SSH agent")
    yield from _slurm_mistakes(config)


def _slurm_mistakes(config: StackConfig) -> Iterator[InputError]:
    engine, nodes = config.engine, config.cluster.nodes
    if not isinstance(engine, SlurmConfig):
        return
    if nodes.min != nodes.max:
        yield InputError(
            "gangway:cluster.nodes.min", "existing machines are always running", value=nodes.min,
            allowed=str(nodes.max), fix=f"set nodes: {{min: {nodes.max}, max: {nodes.max}}}",
        )  # fmt: skip
    for name, why in {
        "idle_minutes": "existing machines are not released",
        "accounting": "no Slurm database is set up on them",
    }.items():
        if name in engine.model_fields_set and getattr(engine, name) is not False:
            yield InputError(
                f"gangway:engine.{name}", why, value=getattr(engine, name),
                allowed="left out with provider: hosts", fix=f"leave {name} out",
            )  # fmt: skip
    if config.observe.hardware:
        yield InputError(
            "gangway:observe.hardware", "Slurm's head on existing machines runs no Prometheus so far", value=True,
            allowed="left out with engine: slurm", fix="leave hardware out",
        )  # fmt: skip
    if config.image.prebuilt is not None:
        yield InputError(
            "gangway:image.prebuilt", "Slurm jobs on existing machines run without a container",
            value=config.image.prebuilt, allowed="left out with engine: slurm", fix="leave image out",
        )  # fmt: skip


PROVIDER = Provider(
    name="hosts",
    sdk="pulumi-command",
    program=_program,
    adapters={"live": "gangway.live.clouds.hosts", "preflight": "gangway.live.preflight.hosts"},
    start=Start(
        "lab",
        "dgx-h100",
        sections={
            "hosts": {
                "user": "gangway",
                "machines": [
                    {
                        "address": "10.20.0.11",
                        "host_key": "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAyVss5jfKvNG9nAyvFya7awnZkQEwORPXLntYc4gg4R",
                    }
                ],
                "run_store": "/shared/gangway/results",
            },
            "site": EXAMPLE_SITE,
            "image": {"prebuilt": EXAMPLE_IMAGE},
        },
        questions={
            "hosts.machines.0.address": "Address of the machine",
            "hosts.machines.0.host_key": "Its SSH key (ssh-keyscan -t ed25519 ADDRESS)",
            "hosts.run_store": "Where records are kept",
            "image.prebuilt": "The trainer's image",
        },
        job={},  # existing machines are not terminated
    ),
    loads_by_name=False,
    instead_of_policies="`up` logs in by SSH as root or with sudo, and the hosts' accounts limit it",
    settings=SETTINGS,
    mistakes=_mistakes,
    own_data=_data,
    # Every changed command restarts the service of a host.
    nodes=NodeTypes(
        machines=frozenset({"command:remote:Command"}),
        restarting={"command:remote:Command": ("*",)},
    ),
)
