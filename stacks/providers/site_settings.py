"""Settings of machines that no catalogue knows: what has to be said of them, and that a secret is one.

Told at the door, as `stacks.providers.settings` does for all providers, which asks here.
"""

import re
from collections.abc import Iterator

from pulumi.runtime.config import is_config_secret

from components.findings import InputError
from stacks.settings.config import StackConfig
from stacks.settings.provider_sections import ENCRYPTED

__all__ = ["SITE_PROVIDERS", "site_mistakes"]

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
