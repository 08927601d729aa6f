"""Settings that a provider, a queue or a custom command does not support: each is a mistake, never ignored silently."""

import re
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType

from gangway.components.core.findings import InputError
from gangway.components.core.image_reference import BY_DIGEST, is_reference
from gangway.stacks.base.registry import all_providers, get_provider
from gangway.stacks.config.corrections import Span, explain_conversion
from gangway.stacks.config.engine_settings import SlurmConfig
from gangway.stacks.config.provider_settings import ProviderSettings
from gangway.stacks.config.stack_config import StackConfig, signature_mistakes

_ACCELERATOR = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]*x[1-9][0-9]?")
_SITE_HOLDS = "as_of, accelerator, vcpus, memory_gib and interconnect"
_SITE_EXAMPLE = '{as_of: "2026-11-01", accelerator: H100x8, vcpus: 224, memory_gib: 2048, interconnect: nvswitch}'
_SITE_PRICE = "gangway:site.usd_per_node_hour"
_CONTROLLER = "gangway:job.controller"

Reasons = Mapping[str, str]
"""Config path -> why it has no effect."""
_QUEUE_OTHERS = {
    "observe.no_steps_minutes": "the steps of a queue's jobs are not known",
    "cluster.idle_stop": "engine.idle_minutes removes nodes without a job",
}
_QUEUE_UNSUPPORTED: Mapping[str, Reasons] = {
    "slurm": {
        **_QUEUE_OTHERS,
        "head.prometheus_image": "its head runs Prometheus only with observe.hardware: true",
    },
    "kubernetes": {
        **_QUEUE_OTHERS,
        "cluster.machine_image": "its nodes run the provider's image for Kubernetes",
        "cluster.breaker": "the cluster's autoscaler itself waits longer and longer, up to half an hour, for a "
        "group whose machines do not become nodes",
        "cluster.software_refresh": "its nodes have no software of Gangway's, and jobs bring their images",
        "head": "the provider runs the control plane",
    },
}
_COMMAND_UNSUPPORTED: Reasons = MappingProxyType(
    {
        "head.prometheus_image": "it is unknown where a command exports metrics, and observe.hardware is false",
        "observe.no_steps_minutes": "a command does not report steps",
    }
)
_UNSUPPORTED_STORAGE = {
    "lustre": ("tier",),
    "filestore": ("deployment", "throughput_mbps_per_tib", "efa", "efa_setup_sha256", "metadata_iops", "export_runs"),
    "manila": (
        *("deployment", "throughput_mbps_per_tib", "efa", "efa_setup_sha256", "metadata_iops", "export_runs"),
        *("source", "tier"),
    ),
}


def provider_mistakes(config: StackConfig, place: str) -> list[InputError]:
    """One InputError for each unsupported setting. `place`: file or stack, put before each config path."""
    checks: tuple[Callable[[StackConfig], Iterator[InputError]], ...] = (
        _sections, _image_form, _topology, _storage, _source_scheme, _settings_of_others, _run_deletion, _site,
        _provider_section, _unsupported, signature_mistakes, _node_bounds, _unknown_prices, _unknown_carbon, _command,
        _queue, _limits,
    )  # fmt: skip
    return [mistake.within(place) for check in checks for mistake in check(config)]


def _providers_with(test: Callable[[ProviderSettings], bool]) -> list[str]:
    return [provider.name for provider in all_providers() if test(provider.settings)]


def _without_effect(config: StackConfig, path: str, reason: str) -> Iterator[InputError]:
    """A mistake if the setting or section at `path` is explicitly set to another value than the default."""
    section, _, name = path.partition(".")
    value, is_explicit = getattr(config, section), False
    if not name:
        is_explicit = value != type(config).model_fields[section].get_default()
    elif value is not None and name in value.model_fields_set:
        is_explicit = getattr(value, name) != type(value).model_fields[name].get_default()
    if is_explicit:
        name = name or section
        yield InputError(
            f"gangway:{path}", f"of no effect {reason}", allowed=f"no {name} here", fix=f"leave {name} out"
        )


def _unsupported(config: StackConfig) -> Iterator[InputError]:
    for path, why in get_provider(config.provider).settings.unsupported.items():
        yield from _without_effect(config, path, f"with provider: {config.provider}: {why}")


def _sections(config: StackConfig) -> Iterator[InputError]:
    """Sections that only some providers read."""
    owners = [(own.name, [each.name], own) for each in all_providers() if (own := each.settings.own) is not None]
    known = [(name, readers, own.holds, own.example, own.is_required) for name, readers, own in owners]
    site_readers = sorted(_providers_with(lambda settings: settings.reads_site))
    site = ("site", site_readers, _SITE_HOLDS, _SITE_EXAMPLE, True)
    for section, readers, holds, example, is_required in (*known, site):
        is_present = getattr(config, section) is not None
        if config.provider in readers and not is_present and is_required:
            yield InputError(
                f"gangway:{section}",
                "missing",
                allowed=f"it is required with provider: {config.provider}: {holds}",
                fix=f"add gangway:{section}: {example}",
            )
        elif config.provider not in readers and is_present:
            yield InputError(
                f"gangway:{section}",
                f"of no effect with provider: {config.provider}",
                allowed=f"only with provider: {' or '.join(readers)}",
                fix=f"leave it out, or set provider: {readers[0]}",
            )


def _provider_section(config: StackConfig) -> Iterator[InputError]:
    """Mistakes that the provider finds itself, unless its section is missing."""
    provider = get_provider(config.provider)
    own = provider.settings.own
    if own is None or getattr(config, own.name) is not None:
        yield from provider.mistakes(config)


def _site(config: StackConfig) -> Iterator[InputError]:
    """The accelerator of a site's machines, and the trainer's image, which nothing builds there."""
    if not get_provider(config.provider).settings.reads_site:
        return
    cluster, site, image = config.cluster.accelerator, config.site, config.image.prebuilt
    if site is None:
        pass
    elif site.accelerator is None and cluster is None:
        yield InputError(
            "gangway:site.accelerator",
            "missing",
            allowed="it is required with cluster.machine_type: model and number per machine",
            fix="add accelerator: H100x8",
        )
    elif site.accelerator is not None and cluster is not None and cluster != site.accelerator:
        yield InputError(
            "gangway:cluster.accelerator",
            "not the accelerator of the site's machines",
            value=cluster,
            allowed=f"{site.accelerator}, the value of gangway:site.accelerator",
            fix=f"set accelerator: {site.accelerator}",
        )
    elif cluster is not None and not _ACCELERATOR.fullmatch(cluster):
        yield InputError(
            "gangway:cluster.accelerator",
            "not a model and a number per machine",
            value=cluster,
            allowed="letters, digits and -, then x and 1 to 99",
            fix=explain_conversion("accelerator", cluster, _ACCELERATOR.pattern, Span()) or "write accelerator: H100x8",
        )
    if config.trains and (image is None or not is_reference(image, BY_DIGEST)):
        yield InputError(
            "gangway:image.prebuilt",
            "missing" if image is None else "not an image with a digest",
            value=image,
            allowed=f"it is required with provider: {config.provider}, which has no registry for the stack: "
            "<registry>/<repository>@sha256:<digest>",
            fix="build and push the image as `gangway dockerfile cuda > Dockerfile` explains, and write its digest",
        )


def _image_form(config: StackConfig) -> Iterator[InputError]:
    image, form = config.cluster.image_id, get_provider(config.provider).settings.image
    if image is None or form is None or form.pattern.fullmatch(image):
        return
    yield InputError(
        "gangway:cluster.image_id",
        f"not an image of provider: {config.provider}",
        value=image,
        allowed=f"like {form.example}",
        fix=f"write image_id: {form.example}",
    )


def _topology(config: StackConfig) -> Iterator[InputError]:
    cluster, able = config.cluster, _providers_with(lambda settings: settings.has_slices)
    if cluster.topology is not None and (config.provider not in able or cluster.accelerator is None):
        yield InputError(
            "gangway:cluster.topology",
            "only TPU slices have a topology",
            value=cluster.topology,
            allowed=f"with a TPU's accelerator type and provider: {' or '.join(able)}",
            fix="leave topology out, or write accelerator: v5p-64",
        )


def _storage(config: StackConfig) -> Iterator[InputError]:
    storage = config.storage
    if storage is None:
        return
    kinds = get_provider(config.provider).settings.storage_kinds or (storage.kind,)
    if storage.kind not in kinds:
        yield InputError(
            "gangway:storage.kind",
            f"no such file system with provider: {config.provider}",
            value=storage.kind,
            allowed=" or ".join(kinds),
            fix=f"set kind: {kinds[0]}",
        )
    for name in _UNSUPPORTED_STORAGE[storage.kind]:
        if name in storage.model_fields_set and getattr(storage, name) is not None:
            yield InputError(
                f"gangway:storage.{name}",
                f"not a setting of {storage.kind}",
                value=getattr(storage, name),
                allowed=f"no {name} with kind: {storage.kind}",
                fix=f"leave {name} out",
            )


def _source_scheme(config: StackConfig) -> Iterator[InputError]:
    source = config.storage.source if config.storage else None
    store = get_provider(config.provider).settings.store
    if source is None or store is None or source.startswith(f"{store.scheme}://"):
        return
    address = f"{store.scheme}://{source.partition('://')[2]}" if store.keeps_name else store.folder
    yield InputError(
        "gangway:storage.source",
        f"not an object store of provider: {config.provider}",
        value=source,
        allowed=store.folder,
        fix=f"copy the data there, and write source: {address}",
    )


def _settings_of_others(config: StackConfig) -> Iterator[InputError]:
    for path, why in get_provider(config.provider).settings.lacking.items():
        section, _, name = path.partition(".")
        own = getattr(config, section)
        if name in own.model_fields_set and (value := getattr(own, name)):
            known = ((one.name, one.settings) for one in all_providers())
            able = [one for one, settings in known if path not in {*settings.lacking, *settings.unsupported}]
            yield InputError(
                f"gangway:{path}",
                why,
                value=value,
                allowed=f"only with provider: {' or '.join(able)}",
                fix=f"leave {name} out",
            )


def _run_deletion(config: StackConfig) -> Iterator[InputError]:
    if not config.work.keep_runs and not get_provider(config.provider).settings.deletes_runs:
        able = _providers_with(lambda settings: settings.deletes_runs)
        yield InputError(
            f"gangway:{'engine' if config.engine.has_queue else 'job'}.keep_runs",
            f"`destroy` keeps the runs with provider: {config.provider}",
            value=False,
            allowed=f"only with provider: {' or '.join(able)}",
            fix="leave keep_runs out",
        )


def _node_bounds(config: StackConfig) -> Iterator[InputError]:
    asked, nodes = config.work.controller, config.cluster.nodes
    bounds = None if asked is None else asked.bounds.nodes
    if bounds is None or nodes.min <= bounds[0] <= bounds[1] <= nodes.max:
        return
    least, most = (min(max(bound, nodes.min), nodes.max) for bound in bounds)
    yield InputError(
        f"{_CONTROLLER}.bounds.nodes",
        "outside the cluster's nodes",
        value=list(bounds),
        allowed=f"within {nodes.min} to {nodes.max}, gangway:cluster.nodes",
        fix=f"write nodes: [{least}, {most}]",
    )


def _unknown_prices(config: StackConfig) -> Iterator[InputError]:
    """Settings that need the price of a site's node, which the site does not give."""
    controller, autoscale, site = config.work.controller, config.work.autoscale, config.site
    if site is None or site.usd_per_node_hour is not None:
        return
    problem = f"the price of a node hour is not known with provider: {config.provider}"
    fix = "set gangway:site.usd_per_node_hour: 14.5, or"
    if controller is not None and controller.objective == "cost":
        yield InputError(
            f"{_CONTROLLER}.objective",
            problem,
            value=controller.objective,
            allowed=f"time, energy or carbon; cost with {_SITE_PRICE}",
            fix=f"{fix} write objective: time",
        )
    priced: list[tuple[str, str, object]] = []
    if controller is not None:
        priced.append((f"{_CONTROLLER}.bounds", "usd_per_hour", controller.bounds.usd_per_hour))
    if autoscale is not None:
        place = "gangway:job.autoscale"
        priced += [(place, name, getattr(autoscale, name)) for name in ("budget_usd", "least_images_per_usd")]
    for place, name, value in priced:
        if value is not None:
            yield InputError(
                f"{place}.{name}",
                problem,
                value=value,
                allowed=f"only with {_SITE_PRICE}",
                fix=f"{fix} leave {name} out",
            )


def _unknown_carbon(config: StackConfig) -> Iterator[InputError]:
    """A world average instead of a site's grid is enough for an estimate, not for an objective."""
    controller, site = config.work.controller, config.site
    if controller is None or site is None or site.intensity_g_per_kwh is not None:
        return
    if controller.objective == "carbon":
        yield InputError(
            f"{_CONTROLLER}.objective",
            "the carbon intensity of this site's grid is not known",
            value=controller.objective,
            allowed="time, cost or energy; carbon with gangway:site.intensity_g_per_kwh",
            fix="set gangway:site.intensity_g_per_kwh: 380, or write objective: energy",
        )


def _command(config: StackConfig) -> Iterator[InputError]:
    """What a stack with a custom command requires, and what it cannot have."""
    own = config.own_command
    if own is None:
        return
    settings = get_provider(config.provider).settings
    if not settings.runs_commands:
        able = _providers_with(lambda settings: settings.runs_commands)
        yield InputError(
            "gangway:job.command",
            f"nodes of provider: {config.provider} only run the trainer so far",
            value=list(own.command),
            allowed=f"only with provider: {' or '.join(able)}",
            fix="write a preset, or submit the command to an engine: gangway job submit FILE",
        )
    if own.image is None:
        yield InputError(
            "gangway:job.image",
            "missing",
            allowed="it is required with command in a stack: <registry>/<repository>@sha256:<digest>",
            fix="push the image that contains the command, and write its digest",
        )
    if config.image.prebuilt is not None:
        yield InputError(
            "gangway:image.prebuilt",
            "the trainer's image, which a command does not use",
            value=config.image.prebuilt,
            allowed="no prebuilt with job.command",
            fix="write the command's image as image in gangway:job",
        )
    for path, why in _without_hardware(config, _COMMAND_UNSUPPORTED).items():
        section, _, name = path.partition(".")
        if path not in settings.unsupported and getattr(getattr(config, section), name) is not None:
            yield from _without_effect(config, path, f"with job.command: {why}")
    nodes = config.cluster.nodes
    if nodes.max > 1 and not settings.joins_commands:
        able = _providers_with(lambda settings: settings.joins_commands)
        yield InputError(
            "gangway:cluster.nodes",
            f"a command runs on one node with provider: {config.provider} so far",
            value={"min": nodes.min, "max": nodes.max},
            allowed=f"{{min: 1, max: 1}} with job.command; several with provider: {' or '.join(able)}",
            fix="set nodes: {min: 1, max: 1}, or submit the command to Slurm: gangway job submit FILE",
        )


def _without_hardware(config: StackConfig, unsupported: Reasons) -> Reasons:
    """Hardware metrics are a use for Prometheus."""
    used = {"head.prometheus_image"} if config.observe.hardware else set()
    return {path: why for path, why in unsupported.items() if path not in used}


def unavailable_queue(provider: str, kind: str) -> InputError | None:
    """The refusal of an engine with a queue that the provider does not have; None if it has it."""
    able = _providers_with(lambda settings: kind in settings.queues)
    known = {each.name for each in all_providers()}
    if provider not in known or kind not in _QUEUE_UNSUPPORTED or provider in able:
        return None
    return InputError(
        "gangway:engine.kind",
        f"provider: {provider} has no such cluster",
        value=kind,
        allowed=f"only with provider: {' or '.join(able)}" if able else "systemd",
        fix="leave gangway:engine out, or submit to an existing one: gangway job submit FILE --on "
        f"{'slurm:PARTITION' if kind == 'slurm' else 'kubernetes:CONTEXT'}",
    )


def _queue(config: StackConfig) -> Iterator[InputError]:
    """What a cluster with a queue cannot have."""
    if not config.engine.has_queue:
        return
    kind = config.engine.kind
    if mistake := unavailable_queue(config.provider, kind):
        yield mistake
    else:
        yield from _accounting(config)
    for path, why in _without_hardware(config, _QUEUE_UNSUPPORTED[kind]).items():
        yield from _without_effect(config, path, f"with engine: {kind}: {why}")


def _limits(config: StackConfig) -> Iterator[InputError]:
    """Limits that this kind of stack cannot keep."""
    limits = config.budget.limits
    if limits is None:
        return
    unsupported = {
        "user_usd_per_month": "a stack's own job has no user: budget.monthly_usd limits the stack",
        "team_usd_per_month": "a stack's own job has no team's queue: budget.monthly_usd limits the stack",
    }
    if config.job is not None and limits.job_usd is not None and limits.usd_per_node_hour is None:
        yield InputError(
            "gangway:budget.limits.usd_per_node_hour", "missing: nodes count by it what the job costs",
            allowed="it is required with job_usd: the price of one node, in US dollars",
            fix="write usd_per_node_hour: 55.04, for example; `gangway plan` names the price if yours is lower",
        )  # fmt: skip
    if config.engine.has_queue:
        unsupported = {"usd_per_node_hour": "jobs are priced by engines.yaml"}
    for name, why in unsupported.items():
        if getattr(limits, name) is not None:
            yield InputError(
                f"gangway:budget.limits.{name}", f"of no effect with engine: {config.engine.kind}: {why}",
                allowed=f"no {name} here", fix=f"leave {name} out",
            )  # fmt: skip


def _accounting(config: StackConfig) -> Iterator[InputError]:
    """Slurm stores team quotas in its accounting database, which not every provider sets up."""
    engine = config.engine
    if not isinstance(engine, SlurmConfig) or not engine.teams:
        return
    if not get_provider(config.provider).settings.has_accounting:
        able = _providers_with(lambda settings: settings.has_accounting)
        yield InputError(
            "gangway:engine.teams",
            f"not available with provider: {config.provider}: Slurm stores quotas in its accounting database, which "
            "Gangway does not set up there",
            value=[team.name for team in engine.teams],
            allowed=f"only with provider: {' or '.join(able)}",
            fix="leave teams out",
        )
    elif not engine.accounting:
        yield InputError(
            "gangway:engine.accounting",
            "Slurm stores team quotas in its accounting database",
            value=engine.accounting,
            allowed="true with teams",
            fix="add accounting: true",
        )
