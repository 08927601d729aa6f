"""What a stack whose job is a command of one's own has to have, and cannot have."""

from collections.abc import Iterator, Mapping
from types import MappingProxyType

from components.core.findings import InputError
from stacks.base.registry import all_providers, get_provider
from stacks.config.stack_config import StackConfig
from stacks.loading.explicit_settings import written

OF_TRAINING: Mapping[str, str] = MappingProxyType(
    {
        "head.prometheus_image": "nobody knows where a command has metrics",
        "observe.no_steps_minutes": "a command tells nobody of its steps",
    }
)
"""Config path -> why nothing reads it beside a command."""


def command_mistakes(config: StackConfig) -> Iterator[InputError]:
    """One InputError for each setting that does not go with a command."""
    own = config.own_command
    if own is None:
        return
    settings = get_provider(config.provider).settings
    if not settings.runs_commands:
        able = [provider.name for provider in all_providers() if provider.settings.runs_commands]
        yield InputError(
            "gangway:job.command",
            f"nodes of provider: {config.provider} run the trainer alone so far",
            value=list(own.command),
            allowed=f"only with provider: {' or '.join(able)}",
            fix="write a preset, or submit the command to an engine: gangway job submit FILE",
        )
    if own.image is None:
        yield InputError(
            "gangway:job.image",
            "missing",
            allowed="it is required beside command in a stack: <registry>/<repository>@sha256:<digest>",
            fix="push the image that holds the command, and write its digest",
        )
    if config.image.prebuilt is not None:
        yield InputError(
            "gangway:image.prebuilt",
            "the trainer's image, which a command does not run in",
            value=config.image.prebuilt,
            allowed="left out beside job.command",
            fix="write the command's image as image in gangway:job",
        )
    yield from _unread(config)
    nodes = config.cluster.nodes
    if nodes.max > 1 and not settings.joins_commands:
        able = [provider.name for provider in all_providers() if provider.settings.joins_commands]
        yield InputError(
            "gangway:cluster.nodes",
            f"a command runs on one node of provider: {config.provider} so far",
            value={"min": nodes.min, "max": nodes.max},
            allowed=f"{{min: 1, max: 1}} beside job.command, several with provider: {' or '.join(able)}",
            fix="set nodes: {min: 1, max: 1}, or submit the command to Slurm: gangway job submit FILE",
        )


def _unread(config: StackConfig) -> Iterator[InputError]:
    """Settings of a training that somebody wrote; what the provider itself does not read it says itself."""
    for path, why in OF_TRAINING.items():
        section, _, name = path.partition(".")
        if (
            path in get_provider(config.provider).settings.unsupported
            or getattr(getattr(config, section), name) is None
        ):
            continue
        for place in written(config, path):
            yield InputError(
                f"gangway:{place}",
                f"of no effect beside job.command: {why}",
                allowed="left out",
                fix=f"leave {name} out",
            )
