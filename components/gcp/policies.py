"""The small grammar of our grants: who gets which role where, under which condition; and what is wider than we wish.

Pure data. A role is bound on the one resource it is for. Where a service has no policy of its own the project is the
smallest there is: those grants are in PROJECT_WIDE, with the reason. No role is one of the basic ones (viewer, editor,
owner), and no account ever has a key.

Roles on a bucket are for the whole of it. A condition on the names of objects would not do: what is not there is "not
found" only for those who may list the bucket, and "forbidden" for all others; a listing is of the bucket, so no name of
an object is in it, and the attribute that has its prefix (`objectListPrefix`) is documented for Credential Access
Boundaries, not for policies like these. A managed folder could have a policy of its own, but only one stack could
declare that of data which several read. So a bucket that has more than this stack may see is not one to name.
"""

from collections.abc import Mapping
from types import MappingProxyType

__all__ = ["DATA_READER", "IMAGE_READER", "KEY_USER", "PROJECT_WIDE", "RUN_WRITER", "bucket_of", "prefix_of"]

DATA_READER = "roles/storage.objectViewer"
# Overwriting an object needs the permission to delete it; the bucket, which is the stack's own, keeps every version.
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


def bucket_of(url: str) -> str:
    """The bucket of a `gs://bucket/prefix`."""
    return url.removeprefix("gs://").partition("/")[0]


def prefix_of(url: str) -> str:
    """The prefix of a `gs://bucket/prefix`, without slashes around it; empty for the whole bucket.

    >>> prefix_of("gs://data/celeba/")
    'celeba'
    """
    return url.removeprefix("gs://").partition("/")[2].strip("/")
