"""What a cluster with a queue cannot have: an engine that its provider has not, and settings of one job."""

from collections.abc import Iterator, Mapping
from types import MappingProxyType

from components.core.findings import InputError
from stacks.base.registry import all_providers, get_provider
from stacks.config.engine_settings import SlurmConfig
from stacks.config.stack_config import StackConfig
from stacks.loading.explicit_settings import written

OF_ONE_JOB: Mapping[str, str] = MappingProxyType(
    {
        "observe.no_steps_minutes": "nothing is known of the steps of a queue's jobs",
    }
)
UNREAD: Mapping[str, Mapping[str, str]] = MappingProxyType(
    {
        "slurm": MappingProxyType({**OF_ONE_JOB, "head.prometheus_image": "its head runs no Prometheus so far"}),
        "kubernetes": MappingProxyType(
            {
                **OF_ONE_JOB,
                "cluster.breaker": "the cluster's autoscaler waits ever longer, up to half an hour, for a group whose "
                "machines do not become nodes",
                "head": "the provider runs the control plane",
            }
        ),
    }
)
"""By kind of engine: config path -> why nothing reads it."""


def unavailable_queue(provider: str, kind: str) -> InputError | None:
    """The refusal of an engine with a queue that the provider does not have; None where it has it."""
    settings = {each.name: each.settings for each in all_providers()}
    able = [name for name, each in settings.items() if kind in each.queues]
    if provider not in settings or kind not in UNREAD or provider in able:
        return None
    return InputError(
        "gangway:engine.kind",
        f"no cluster of its own with provider: {provider} so far",
        value=kind,
        allowed=f"only with provider: {' or '.join(able)}" if able else "systemd",
        fix="leave gangway:engine out, or submit to one that is there: gangway job submit FILE --on "
        f"{'slurm:PARTITION' if kind == 'slurm' else 'kubernetes:CONTEXT'}",
    )


def queue_mistakes(config: StackConfig) -> Iterator[InputError]:
    """One InputError for each setting that does not go with a queue."""
    kind = config.engine.kind
    if not config.engine.has_queue:
        return
    if mistake := unavailable_queue(config.provider, kind):
        yield mistake
    else:
        yield from _teams_without_accounting(config)
    for path, why in UNREAD[kind].items():
        for place in written(config, path):
            yield InputError(
                f"gangway:{place}",
                f"of no effect with engine: {kind}: {why}",
                allowed="left out",
                fix=f"leave {place.rpartition('.')[2]} out",
            )


def _teams_without_accounting(config: StackConfig) -> Iterator[InputError]:
    """Slurm keeps the quotas of teams in its accounting database, which not every provider sets up."""
    engine = config.engine
    if not isinstance(engine, SlurmConfig) or not engine.teams:
        return
    if not get_provider(config.provider).settings.has_accounting:
        able = [provider.name for provider in all_providers() if provider.settings.has_accounting]
        yield InputError(
            "gangway:engine.teams",
            f"not available with provider: {config.provider}: Slurm keeps quotas in its accounting database, which "
            "Gangway does not set up there",
            value=[team.name for team in engine.teams],
            allowed=f"only with provider: {' or '.join(able)}",
            fix="leave teams out",
        )
    elif not engine.accounting:
        yield InputError(
            "gangway:engine.accounting",
            "Slurm keeps the quotas of teams in its accounting database",
            value=engine.accounting,
            allowed="true beside teams",
            fix="add accounting: true",
        )
