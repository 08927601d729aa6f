"""Settings that only one provider has, does not read, or spells its own way: each a mistake with its place, its
reason and the way out, never silence.
"""

import re
from collections.abc import Callable, Iterator

from components.core.findings import InputError
from components.core.image_reference import BY_DIGEST, is_reference
from stacks.base.image_signature import signature_mistakes
from stacks.base.registry import all_providers, get_provider
from stacks.config.corrections import Span, explain_conversion
from stacks.config.provider_settings import ProviderSettings
from stacks.config.stack_config import StackConfig
from stacks.loading.command_settings import command_mistakes
from stacks.loading.controller_settings import controller_mistakes
from stacks.loading.explicit_settings import written
from stacks.loading.queue_settings import queue_mistakes

_ACCELERATOR = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]*x[1-9][0-9]?")
_SITE_HOLDS = "as_of, accelerator, vcpus, memory_gib and interconnect"
_SITE_EXAMPLE = '{as_of: "2026-11-01", accelerator: H100x8, vcpus: 224, memory_gib: 2048, interconnect: nvswitch}'


def unsupported_settings(config: StackConfig) -> Iterator[InputError]:
    """A mistake for each setting somebody wrote that `config.provider` does not read."""
    for path, why in get_provider(config.provider).settings.unsupported.items():
        for place in written(config, path):
            yield InputError(
                f"gangway:{place}",
                f"of no effect with provider: {config.provider}: {why}",
                allowed="left out",
                fix=f"leave {place.rpartition('.')[2]} out",
            )


def site_mistakes(config: StackConfig) -> Iterator[InputError]:
    """One InputError for each setting that is missing, contradicts another, or is a secret in plain text."""
    if get_provider(config.provider).settings.reads_site:
        yield from _accelerator(config)
        if config.trains:
            yield from _prebuilt(config)


def _accelerator(config: StackConfig) -> Iterator[InputError]:
    """A site's machines are all alike: their accelerator is said once, or twice the same."""
    cluster, site = config.cluster.accelerator, config.site
    if site is None:
        return
    if site.accelerator is None and cluster is None:
        yield InputError(
            "gangway:site.accelerator",
            "missing",
            allowed="it is required beside cluster.machine_type: model and number in one machine",
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
            "not a model and how many of them one machine has",
            value=cluster,
            allowed="letters, digits and -, then x and 1 to 99",
            fix=explain_conversion("accelerator", cluster, _ACCELERATOR.pattern, Span()) or "write accelerator: H100x8",
        )


def _prebuilt(config: StackConfig) -> Iterator[InputError]:
    """Where nothing builds the trainer's image, it is there already."""
    image = config.image.prebuilt
    if image is None or not is_reference(image, BY_DIGEST):
        yield InputError(
            "gangway:image.prebuilt",
            "missing" if image is None else "not an image by its digest",
            value=image,
            allowed=f"it is required with provider: {config.provider}, whose machines share no registry of the stack: "
            "<registry>/<repository>@sha256:<digest>",
            fix="`gangway dockerfile cuda > Dockerfile` says how to build and push it; then write its digest",
        )


# By kind of file system: settings that mean nothing to it.
_FOREIGN_STORAGE = {
    "lustre": ("tier",),
    "filestore": ("deployment", "throughput_mbps_per_tib", "efa", "efa_setup_sha256", "metadata_iops", "export_runs"),
    "manila": (
        "deployment",
        "throughput_mbps_per_tib",
        "efa",
        "efa_setup_sha256",
        "metadata_iops",
        "export_runs",
        "source",
        "tier",
    ),
}


def provider_mistakes(config: StackConfig, place: str) -> list[InputError]:
    """One InputError for each setting that `config.provider` does not have, or not in this form. `place`: file or
    stack, put before each config path.
    """
    checks: tuple[Callable[[StackConfig], Iterator[InputError]], ...] = (
        _section, _image, _topology, _storage, _source, _lacking, _kept_runs, site_mistakes, _own, unsupported_settings,
        signature_mistakes, controller_mistakes, command_mistakes, queue_mistakes,
    )  # fmt: skip
    return [mistake.within(place) for check in checks for mistake in check(config)]


def _where(reads: Callable[[ProviderSettings], bool]) -> list[str]:
    """The names of the providers of which something holds, in the registry's order."""
    return [provider.name for provider in all_providers() if reads(provider.settings)]


def _sections() -> Iterator[tuple[str, list[str], str, str]]:
    """Each section that not every provider reads: its name, who does, what it has to hold, and an example."""
    for provider in all_providers():
        if (own := provider.settings.own) is not None:
            yield own.name, [provider.name], own.holds, own.example
    yield "site", sorted(_where(lambda settings: settings.reads_site)), _SITE_HOLDS, _SITE_EXAMPLE


def _section(config: StackConfig) -> Iterator[InputError]:
    """A section that only some providers read."""
    for section, readers, holds, example in _sections():
        there = getattr(config, section) is not None
        if config.provider in readers and not there:
            yield InputError(
                f"gangway:{section}",
                "missing",
                allowed=f"it is required with provider: {config.provider}: {holds}",
                fix=f"add gangway:{section}: {example}",
            )
        elif config.provider not in readers and there:
            yield InputError(
                f"gangway:{section}",
                f"of no effect with provider: {config.provider}",
                allowed=f"only with provider: {' or '.join(readers)}",
                fix=f"leave it out, or set provider: {readers[0]}",
            )


def _image(config: StackConfig) -> Iterator[InputError]:
    image, form = config.cluster.image_id, get_provider(config.provider).settings.image
    if image is None or form is None or form.pattern.fullmatch(image):
        return
    yield InputError(
        "gangway:cluster.image_id",
        f"no image of provider: {config.provider}",
        value=image,
        allowed=f"like {form.example}",
        fix=f"write image_id: {form.example}",
    )


def _topology(config: StackConfig) -> Iterator[InputError]:
    cluster, sliced = config.cluster, _where(lambda settings: settings.has_slices)
    if cluster.topology is not None and (config.provider not in sliced or cluster.accelerator is None):
        yield InputError(
            "gangway:cluster.topology",
            "only TPU slices have a topology",
            value=cluster.topology,
            allowed=f"beside a TPU's accelerator type, with provider: {' or '.join(sliced)}",
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
    for name in _FOREIGN_STORAGE[storage.kind]:
        if name in storage.model_fields_set and getattr(storage, name) is not None:
            yield InputError(
                f"gangway:storage.{name}",
                f"not a setting of {storage.kind}",
                value=getattr(storage, name),
                allowed=f"no {name} with kind: {storage.kind}",
                fix=f"leave {name} out",
            )


def _source(config: StackConfig) -> Iterator[InputError]:
    source = config.storage.source if config.storage else None
    store = get_provider(config.provider).settings.store
    if source is None or store is None or source.startswith(f"{store.scheme}://"):
        return
    own = f"{store.scheme}://{source.partition('://')[2]}" if store.keeps_name else store.folder
    yield InputError(
        "gangway:storage.source",
        f"not an object store of provider: {config.provider}",
        value=source,
        allowed=store.folder,
        fix=f"copy the data there, and write source: {own}",
    )


def _lacking(config: StackConfig) -> Iterator[InputError]:
    """Peculiarities of other providers."""
    for path, why in get_provider(config.provider).settings.lacking.items():
        section, _, name = path.partition(".")
        written = getattr(config, section)
        if name in written.model_fields_set and (value := getattr(written, name)):
            rest = (one for one in all_providers() if path not in {*one.settings.lacking, *one.settings.unsupported})
            yield InputError(
                f"gangway:{path}",
                why,
                value=value,
                allowed=f"only with provider: {' or '.join(one.name for one in rest)}",
                fix=f"leave {name} out",
            )


def _kept_runs(config: StackConfig) -> Iterator[InputError]:
    """Elsewhere `destroy` leaves what holds the runs, whatever the file says."""
    if not config.work.keep_runs and not get_provider(config.provider).settings.deletes_runs:
        yield InputError(
            f"gangway:{'engine' if config.engine.has_queue else 'job'}.keep_runs",
            f"`destroy` leaves the runs on provider: {config.provider}",
            value=False,
            allowed=f"only with provider: {' or '.join(_where(lambda settings: settings.deletes_runs))}",
            fix="leave keep_runs out",
        )


def _own(config: StackConfig) -> Iterator[InputError]:
    """What the provider itself finds wrong, once its section is there."""
    provider = get_provider(config.provider)
    own = provider.settings.own
    if own is None or getattr(config, own.name) is not None:
        yield from provider.mistakes(config)
