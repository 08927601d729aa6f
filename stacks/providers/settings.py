"""Settings that only one provider has, or spells its own way: told at the door, with the place and the way out.

Only what can be said of a setting by itself. What needs the catalogue (sizes, zones, machine types) is said by the
provider's own plan; what a provider would ignore although it is written is a mistake here, never silence.
"""

import re
from collections.abc import Callable, Iterator

from components.findings import InputError
from stacks.config import StackConfig

__all__ = ["provider_mistakes"]

_AMI = re.compile(r"ami-[0-9a-f]{8,17}")
_SCHEMES = {"aws": "s3", "gcp": "gs"}
# By provider: the image as it is written there.
_IMAGES = {
    "aws": (_AMI, "ami-0123456789abcdef0"),
    "gcp": (re.compile(r"projects/.+"), "projects/my-project/global/images/my-image"),
}
# By kind of file system: settings that mean nothing to it.
_FOREIGN_STORAGE = {
    "lustre": ("tier",),
    "filestore": ("deployment", "throughput_mbps_per_tib", "efa", "metadata_iops", "export_runs"),
}
_GCP_SECTION = "{project: my-project, billing_account: 012345-6789AB-CDEF01}"


def provider_mistakes(config: StackConfig, place: str) -> list[InputError]:
    """One InputError for each setting that `config.provider` does not have, or not in this form.

    Args:
        config: the stack.
        place: file or stack, put before each config path.
    """
    checks: tuple[Callable[[StackConfig], Iterator[InputError]], ...] = (
        _section, _image, _topology, _storage, _source, _only_on_aws,
    )  # fmt: skip
    return [mistake.within(place) for check in checks for mistake in check(config)]


def _section(config: StackConfig) -> Iterator[InputError]:
    if config.provider == "gcp" and config.gcp is None:
        yield InputError(
            "gangway:gcp",
            "missing",
            allowed="it is required with provider: gcp: project and billing_account",
            fix=f"add gangway:gcp: {_GCP_SECTION}",
        )
    if config.provider != "gcp" and config.gcp is not None:
        yield InputError(
            "gangway:gcp",
            f"of no effect with provider: {config.provider}",
            allowed="only with provider: gcp",
            fix="leave it out, or set provider: gcp",
        )


def _image(config: StackConfig) -> Iterator[InputError]:
    image, (pattern, example) = config.cluster.image_id, _IMAGES[config.provider]
    if image is not None and not pattern.fullmatch(image):
        yield InputError(
            "gangway:cluster.image_id",
            f"no image of provider: {config.provider}",
            value=image,
            allowed=f"like {example}",
            fix=f"write image_id: {example}",
        )


def _topology(config: StackConfig) -> Iterator[InputError]:
    cluster = config.cluster
    if cluster.topology is not None and (config.provider != "gcp" or cluster.accelerator is None):
        yield InputError(
            "gangway:cluster.topology",
            "only TPU slices have a topology",
            value=cluster.topology,
            allowed="beside a TPU's accelerator type, with provider: gcp",
            fix="leave topology out, or write accelerator: v5p-64",
        )


def _storage(config: StackConfig) -> Iterator[InputError]:
    storage = config.storage
    if storage is None:
        return
    if storage.kind == "filestore" and config.provider != "gcp":
        yield InputError(
            "gangway:storage.kind",
            f"no such file system with provider: {config.provider}",
            value=storage.kind,
            allowed="lustre",
            fix="set kind: lustre",
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
    scheme = _SCHEMES[config.provider]
    if source is not None and not source.startswith(f"{scheme}://"):
        own = f"{scheme}://{source.partition('://')[2]}"
        yield InputError(
            "gangway:storage.source",
            f"not an object store of provider: {config.provider}",
            value=source,
            allowed=f"{scheme}://bucket/prefix",
            fix=f"copy the data there, and write source: {own}",
        )


def _only_on_aws(config: StackConfig) -> Iterator[InputError]:
    if config.provider == "aws":
        return
    if "root_device_name" in config.cluster.model_fields_set:
        yield InputError(
            "gangway:cluster.root_device_name",
            "Google Cloud knows an image's boot disk by itself",
            value=config.cluster.root_device_name,
            allowed="only with provider: aws",
            fix="leave root_device_name out",
        )
    if config.budget.activate_tag:
        yield InputError(
            "gangway:budget.activate_tag",
            "labels of Google Cloud count from the hour they are on a resource; nothing has to be activated",
            value=True,
            allowed="only with provider: aws",
            fix="leave activate_tag out",
        )
