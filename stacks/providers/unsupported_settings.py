"""Settings that only one provider has, does not read, or spells its own way: each a mistake with its place, its
reason and the way out, never silence.
"""

import re
from collections.abc import Callable, Iterator, Mapping

from pulumi.runtime.config import is_config_secret

from components.core.findings import InputError
from stacks.config.provider_sections import ENCRYPTED
from stacks.config.stack_config import StackConfig

__all__ = ["SITE_PROVIDERS", "UNSUPPORTED", "provider_mistakes", "site_mistakes", "unsupported_settings"]


_NO_BILL = "nobody bills these machines through an account, so nothing counts against the budget"
_NO_LOGS = "there is no log service: lines stay in the machines' journals"
_NO_TAGS = "no bill counts by tags here; nothing has to be activated"
UNSUPPORTED: Mapping[str, Mapping[str, str]] = {
    "hosts": {
        "storage": "the machines mount their own file systems: gangway:hosts.shared_dir and data_dir name them",
        "network": "the machines' network is there already",
        "cluster.zone": "the machines are where they are",
        "cluster.image_id": "the machines run the system that they have",
        "cluster.root_volume_gib": "the machines have the disks that they have",
        "cluster.root_device_name": "the machines have the disks that they have",
        "head.machine_type": "the store in which nodes meet is on the first machine",
        "observe.log_days": _NO_LOGS,
        "observe.no_steps_minutes": f"{_NO_LOGS}, and nobody sends alarms",
        "budget.stop_at_percent": _NO_BILL,
        "budget.activate_tag": _NO_TAGS,
        "job.terminate_when_done": "machines that are there stay when the trainer has stopped",
        "encryption": "disks are under the key of whoever set the machines up",
    },
    "openstack": {
        "network.flow_logs": "OpenStack's network has no flow log",
        "cluster.image_id": "an image of OpenStack's is gangway:openstack.image, by id or name",
        "cluster.root_device_name": "OpenStack knows an image's boot disk by itself",
        "observe.log_days": _NO_LOGS,
        "observe.no_steps_minutes": f"{_NO_LOGS}, and nobody sends alarms",
        "budget.stop_at_percent": "OpenStack knows rates, and no budget that could stop anything",
        "budget.activate_tag": _NO_TAGS,
    },
}
"""Provider -> config path -> why nothing reads it there."""


def unsupported_settings(config: StackConfig) -> Iterator[InputError]:
    """A mistake for each setting somebody wrote that `config.provider` does not read."""
    for path, why in UNSUPPORTED.get(config.provider, {}).items():
        for written in _written(config, path):
            yield InputError(
                f"gangway:{written}",
                f"of no effect with provider: {config.provider}: {why}",
                allowed="left out",
                fix=f"leave {written.rpartition('.')[2]} out",
            )


def _written(config: StackConfig, path: str) -> Iterator[str]:
    """The config paths at or below `path` that differ from what is there when nobody writes anything."""
    section, _, name = path.partition(".")
    value = getattr(config, section)
    default = type(config).model_fields[section].get_default()
    if name:
        # A required section has no default to compare with: what it holds beside its own defaults was written.
        own = type(value).model_fields[name].get_default() if value is not None else None
        if value is not None and name in value.model_fields_set and getattr(value, name) != own:
            yield path
    elif value != default:
        yield path


SITE_PROVIDERS = ("hosts", "openstack")
"""Whose machines the stack file describes itself, in gangway:site."""
_ACCELERATOR = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]*x[1-9][0-9]?")
_DIGEST = re.compile(r"[^\s@]+@sha256:[0-9a-f]{64}")


def site_mistakes(config: StackConfig) -> Iterator[InputError]:
    """One InputError for each setting that is missing, contradicts another, or is a secret in plain text."""
    if config.provider in SITE_PROVIDERS:
        yield from _accelerator(config)
        yield from _prebuilt(config)
        yield from _ssh_key(config)


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
            fix="write accelerator: H100x8",
        )


def _prebuilt(config: StackConfig) -> Iterator[InputError]:
    """Where nothing builds the trainer's image, it is there already."""
    image = config.image.prebuilt
    if image is None or not _DIGEST.fullmatch(image):
        yield InputError(
            "gangway:image.prebuilt",
            "missing" if image is None else "not an image by its digest",
            value=image,
            allowed=f"it is required with provider: {config.provider}, whose machines share no registry of the stack: "
            "<registry>/<repository>@sha256:<digest>",
            fix="push the trainer's image to a registry the machines can pull from, and write its digest",
        )


def _ssh_key(config: StackConfig) -> Iterator[InputError]:
    """A private key that stands in plain text. The value is a secret, and is not repeated."""
    key = config.hosts.private_key if config.hosts else None
    if key not in (None, ENCRYPTED) and not is_config_secret("gangway:hosts"):
        yield InputError(
            "gangway:hosts.private_key",
            "a private key in plain text",
            allowed="a secret of the stack; or none, for the keys of your SSH agent",
            fix="make a new key, and run `pulumi config set --path --secret gangway:hosts.private_key < KEYFILE`",
        )


_AZURE_FOLDER = "az://account/container/folder"
_AMI = re.compile(r"ami-[0-9a-f]{8,17}")
# By provider: the scheme of its object store, and how a folder there is called.
_STORES = {"aws": ("s3", "s3://bucket/prefix"), "gcp": ("gs", "gs://bucket/prefix"), "azure": ("az", _AZURE_FOLDER)}
# By provider: the image as it is written there.
_IMAGES = {
    "aws": (_AMI, "ami-0123456789abcdef0"),
    "gcp": (re.compile(r"projects/.+"), "projects/my-project/global/images/my-image"),
    "azure": (
        re.compile(r"/(subscriptions|communitygalleries|sharedgalleries)/.+|[^/:]+(:[^/:]+){2,3}", re.IGNORECASE),
        "microsoft-dsvm:ubuntu-hpc:2404:latest",
    ),
}
# By kind of file system: settings that mean nothing to it.
_FOREIGN_STORAGE = {
    "lustre": ("tier",),
    "filestore": ("deployment", "throughput_mbps_per_tib", "efa", "metadata_iops", "export_runs"),
    "manila": ("deployment", "throughput_mbps_per_tib", "efa", "metadata_iops", "export_runs", "source", "tier"),
}
# By provider: the kinds it has, the usual one first.
_KINDS_OF_STORAGE = {
    "aws": ("lustre",),
    "gcp": ("lustre", "filestore"),
    "azure": ("lustre",),
    "openstack": ("manila",),
}
# By section that not every provider reads: who does, what it has to hold, and an example.
_SECTIONS: dict[str, tuple[tuple[str, ...], str, str]] = {
    "gcp": (
        ("gcp",),
        "project and billing_account",
        "{project: my-project, billing_account: 012345-6789AB-CDEF01}",
    ),
    "azure": (
        ("azure",),
        "subscription_id and budget_starts_on",
        '{subscription_id: 11111111-0000-0000-0000-111111111111, budget_starts_on: "2026-01-01"}',
    ),
    "openstack": (
        ("openstack",),
        "auth_url, image and external_network_id",
        "{auth_url: https://cloud.example.com:5000/v3, image: ubuntu-24.04-nvidia-580, "
        "external_network_id: 11111111-0000-4000-8000-111111111111}",
    ),
    "hosts": (
        ("hosts",),
        "machines and run_store",
        "{machines: [{address: 10.20.0.11, host_key: ssh-ed25519 ...}], run_store: /shared/gangway/results}",
    ),
    "site": (
        ("hosts", "openstack"),
        "as_of, accelerator, vcpus, memory_gib and interconnect",
        '{as_of: "2026-11-01", accelerator: H100x8, vcpus: 224, memory_gib: 2048, interconnect: nvswitch}',
    ),
}
# Azure's section: what each id is of. The application is Managed Lustre's, the same in every directory.
_IMPORTER = "4392ab71-2ce2-4b0d-8770-b352745c73f5"
_AZURE_IDS = {
    "tenant_id": "the directory whose identities the stack's vault trusts",
    "source_account_id": "the resource id of the storage account that holds it",
    "importer_principal_id": "the object id, in your directory, of HPC Cache Resource Provider, which imports it",
}
# By provider that lacks it: why nobody misses it there.
_NO_ROOT_DEVICE = {
    "gcp": "Google Cloud knows an image's boot disk by itself",
    "azure": "Azure knows an image's boot disk by itself",
}
_NO_ACTIVATION = {
    "gcp": "labels of Google Cloud count from the hour they are on a resource; nothing has to be activated",
    "azure": "tags of Azure count from the day they are on a resource; nothing has to be activated",
}


def provider_mistakes(config: StackConfig, place: str) -> list[InputError]:
    """One InputError for each setting that `config.provider` does not have, or not in this form.

    Args:
        config: the stack.
        place: file or stack, put before each config path.
    """
    checks: tuple[Callable[[StackConfig], Iterator[InputError]], ...] = (
        _section, _image, _topology, _storage, _source, _only_on_aws, _kept_runs, _azure_ids,
        site_mistakes, unsupported_settings,
    )  # fmt: skip
    return [mistake.within(place) for check in checks for mistake in check(config)]


def _section(config: StackConfig) -> Iterator[InputError]:
    """A section that only some providers read."""
    for section, (readers, holds, example) in _SECTIONS.items():
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
    image = config.cluster.image_id
    if image is None or config.provider not in _IMAGES:
        return
    pattern, example = _IMAGES[config.provider]
    if not pattern.fullmatch(image):
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
    kinds = _KINDS_OF_STORAGE.get(config.provider, (storage.kind,))
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
    if source is None or config.provider not in _STORES:
        return
    scheme, folder = _STORES[config.provider]
    if not source.startswith(f"{scheme}://"):
        # A bucket may keep its name elsewhere; an account of Azure's is another thing.
        own = folder if config.provider == "azure" else f"{scheme}://{source.partition('://')[2]}"
        yield InputError(
            "gangway:storage.source",
            f"not an object store of provider: {config.provider}",
            value=source,
            allowed=folder,
            fix=f"copy the data there, and write source: {own}",
        )


def _only_on_aws(config: StackConfig) -> Iterator[InputError]:
    if config.provider not in _NO_ROOT_DEVICE:
        return
    if "root_device_name" in config.cluster.model_fields_set:
        yield InputError(
            "gangway:cluster.root_device_name",
            _NO_ROOT_DEVICE[config.provider],
            value=config.cluster.root_device_name,
            allowed="only with provider: aws",
            fix="leave root_device_name out",
        )
    if config.budget.activate_tag:
        yield InputError(
            "gangway:budget.activate_tag",
            _NO_ACTIVATION[config.provider],
            value=True,
            allowed="only with provider: aws",
            fix="leave activate_tag out",
        )


def _kept_runs(config: StackConfig) -> Iterator[InputError]:
    """Elsewhere `destroy` leaves what holds the runs, whatever the file says."""
    if not config.job.keep_runs and config.provider not in ("aws", "gcp"):
        yield InputError(
            "gangway:job.keep_runs",
            f"`destroy` leaves the runs on provider: {config.provider}",
            value=False,
            allowed="only with provider: aws or gcp",
            fix="leave keep_runs out, and delete the runs yourself",
        )


def _azure_ids(config: StackConfig) -> Iterator[InputError]:
    """Ids in Azure's section that another setting needs, or that nothing needs."""
    section = config.azure
    if config.provider != "azure" or section is None:
        return
    has_source = config.storage is not None and config.storage.source is not None
    has_key, prebuilt = config.encryption == "customer-key", config.image.prebuilt is not None
    # Name: whether it is needed, for what, and the command that shows it.
    needed = {
        "tenant_id": (has_key, "encryption: customer-key", "az account show --query tenantId"),
        "source_account_id": (has_source, "storage.source", "az storage account show --name ACCOUNT --query id"),
        "importer_principal_id": (has_source, "storage.source", f"az ad sp show --id {_IMPORTER} --query id"),
    }
    for name, (wanted, purpose, command) in needed.items():
        if wanted and getattr(section, name) is None:
            yield InputError(
                f"gangway:azure.{name}",
                "missing",
                allowed=f"it is required with {purpose}: {_AZURE_IDS[name]}",
                fix=f"copy it from `{command}`",
            )
    idle = {
        "tenant_id": (has_key, "encryption: customer-key"),
        "source_account_id": (has_source, "storage.source"),
        "importer_principal_id": (has_source, "storage.source"),
        "registry_id": (prebuilt, "image.prebuilt"),
        "network_watcher": (config.network.flow_logs, "network.flow_logs"),
    }
    for name, (used, beside) in idle.items():
        if getattr(section, name) is not None and not used:
            yield InputError(
                f"gangway:azure.{name}",
                f"of no effect without {beside}",
                value=getattr(section, name),
                allowed=f"only with {beside}",
                fix=f"leave it out, or add {beside}",
            )
