"""The small grammar of our grants: who gets which role where, under which condition; and what is wider than we wish.

Pure data. A role is bound on the one resource it is for. Where a service has no policy of its own the project is the
smallest there is: those grants are in PROJECT_WIDE, with the reason. No role is one of the basic ones (viewer, editor,
owner), and no account ever has a key.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

__all__ = [
    "DATA_READER",
    "IMAGE_READER",
    "KEY_USER",
    "PROJECT_WIDE",
    "RUN_WRITER",
    "Condition",
    "below",
    "bucket_of",
    "prefix_of",
]

DATA_READER = "roles/storage.objectViewer"
# Overwriting an object needs the permission to delete it; the bucket keeps every version.
RUN_WRITER = "roles/storage.objectUser"
IMAGE_READER = "roles/artifactregistry.reader"
KEY_USER = "roles/cloudkms.cryptoKeyEncrypterDecrypter"

_GROUPS = "a managed instance group has no policy of its own, and conditions on resource names do not cover it"
PROJECT_WIDE: Mapping[str, str] = MappingProxyType(
    {
        "roles/logging.logWriter": "a log takes no policy; it only writes",
        "roles/monitoring.metricWriter": "metrics take no policy; it only writes",
        "roles/workflows.invoker": "a workflow takes no policy; it only starts them",
        "roles/tpu.admin": "queued resources take no policy; only the budget's stop has it, where it has any to delete",
        "compute.instanceGroupManagers.get": _GROUPS,
        "compute.instanceGroupManagers.list": _GROUPS,
        "compute.instanceGroupManagers.update": _GROUPS,
        "compute.instances.get": "read only; the workers are not known beforehand",
        "compute.instances.list": "read only; instances have no narrower place to be listed in",
        "compute.instances.stop": "the head's name is not known when the role is made; only the budget's stop has it",
        "compute.zoneOperations.get": "read only; an operation is not known beforehand",
        "lustre.instances.get": "Managed Lustre takes no policy on an instance; read only",
        "lustre.instances.importData": "Managed Lustre takes no policy on an instance",
        "lustre.operations.get": "read only; an operation is not known beforehand",
    }
)
"""Every role and permission that our accounts have on a whole project, and why there is nothing narrower."""


@dataclass(frozen=True)
class Condition:
    """When a grant holds: a title for people, an expression in CEL for IAM."""

    title: str
    expression: str


def bucket_of(url: str) -> str:
    """The bucket of a `gs://bucket/prefix`."""
    return url.removeprefix("gs://").partition("/")[0]


def prefix_of(url: str) -> str:
    """The prefix of a `gs://bucket/prefix`, without slashes around it; empty for the whole bucket.

    >>> prefix_of("gs://data/celeba/")
    'celeba'
    """
    return url.removeprefix("gs://").partition("/")[2].strip("/")


def below(bucket: str, prefix: str) -> Condition:
    """Objects below `prefix`, and listing their names: a listing is of the bucket, so its prefix is asked apart."""
    # A string of JSON is one of CEL, whatever characters the prefix has.
    objects = json.dumps(f"projects/_/buckets/{bucket}/objects/{prefix}/", ensure_ascii=False)
    names = json.dumps(f"{prefix}/", ensure_ascii=False)
    listed = f'api.getAttribute("storage.googleapis.com/objectListPrefix", "").startsWith({names})'
    return Condition(f"below {prefix}"[:100], f"resource.name.startsWith({objects}) || {listed}")
