"""What a person should know before `up` on Google Cloud about what machines install at boot, and from where. Pure.

All other findings about machines are `findings`. How things are installed is `images`.
"""

from collections.abc import Iterable

from components.choices import Egress
from components.findings import Finding, Severity
from components.gcp.nccl import nccl_plugin, secure_boot_allowed
from stacks.providers.gcp.plan import GcpPlan
from stacks.providers.shared_findings import CLUSTER
from stacks.settings.config import StackConfig

__all__ = ["egress", "lustre_kernel"]


def lustre_kernel(config: StackConfig, planned: GcpPlan) -> Iterable[Finding]:
    """Google builds its client's modules for some kernels only."""
    if planned.tpu is not None:
        yield Finding(
            Severity.WARNING,
            "storage.lustre-kernel",
            "gangway:storage.kind",
            "Google builds the modules of Lustre's client for some kernels only, and nobody has tried that of a TPU's "
            "runtime image: hosts try to build them, and those that cannot give up again and again, in a slice that is "
            "paid",
            "try one small slice first, or take kind: filestore",
        )
        return
    own_image = config.cluster.image_id is not None
    secure_boot = secure_boot_allowed(planned.gpu_machine, own_image=own_image)
    if own_image and secure_boot:
        yield Finding(
            Severity.WARNING,
            "storage.lustre-secure-boot",
            f"{CLUSTER}.image_id",
            "nodes start under Secure Boot, which loads no module that was built on the node, and Google builds those "
            "of Lustre's client for some kernels only: where the image holds no client that is signed for its kernel, "
            "one node after the other may give itself up",
            "try one node first, or take kind: filestore",
        )
    elif not own_image:
        built = "builds them itself, also in the middle of a run, which takes minutes and was never tried"
        yield Finding(
            Severity.INFO,
            "storage.floating-image",
            f"{CLUSTER}.image_id",
            "each node starts from the newest image of its family, and Google builds the modules of Lustre's client "
            "for some kernels only: a node with another "
            + ("gives itself up, since Secure Boot loads none that was built there" if secure_boot else built),
            "once a run has worked, set image_id: to the image that its nodes show",
        )


def egress(config: StackConfig, planned: GcpPlan) -> Iterable[Finding]:
    """Endpoints lead to Google's APIs alone, and most of what a machine installs at boot comes from elsewhere."""
    if config.network.egress is not Egress.ENDPOINTS:
        return
    if planned.tpu is not None:
        yield _hosts_without_packages(config)
        return
    path, own_image = "gangway:network.egress", config.cluster.image_id is not None
    if not own_image:
        yield Finding(
            Severity.ERROR,
            "network.no-packages",
            path,
            "the default image holds no Docker, and endpoints lead to Google's APIs alone: nothing can be installed, "
            "and one node after the other would give itself up",
            "set egress: nat"
            + ("" if planned.head else f", or pin an image_id that holds {_image_holds(config, planned)}"),
        )
    elif planned.head:
        yield Finding(
            Severity.ERROR,
            "network.head-no-packages",
            path,
            "the head node starts from Canonical's image, not from image_id, and has to install Docker, and endpoints "
            "lead to Google's APIs alone: the workers would wait, and cost, without a place to meet",
            "set egress: nat",
        )
    else:
        yield Finding(
            Severity.INFO,
            "network.image-holds",
            f"{CLUSTER}.image_id",
            f"endpoints lead to Google's APIs alone, so the image has to hold {_image_holds(config, planned)}",
            "set egress: nat where it lacks one of them",
        )


def _image_holds(config: StackConfig, planned: GcpPlan) -> str:
    """All that a worker would otherwise install at boot."""
    plugin = nccl_plugin(planned.gpu_machine, own_image=True)
    modules = plugin.host.kernel_modules if plugin is not None else ()
    things = ["Docker", "NVIDIA's driver", "NVIDIA's container toolkit"]
    if config.storage is not None:
        things.append("the Lustre client" if config.storage.kind == "lustre" else "nfs-common")
    things += [f"the kernel module {name}" for name in modules]
    return f"{', '.join(things[:-1])} and {things[-1]}"


def _hosts_without_packages(config: StackConfig) -> Finding:
    """Google's "TPU software versions": a runtime's image holds Docker. No list says which clients it holds."""
    kind = "bucket" if config.storage is None else config.storage.kind
    client = {"bucket": "Cloud Storage FUSE", "filestore": "nfs-common", "lustre": "the Lustre client"}[kind]
    return Finding(
        Severity.ERROR if kind == "lustre" else Severity.WARNING,
        "network.no-packages",
        "gangway:network.egress",
        f"a TPU's runtime image holds Docker; {client} is installed at boot where it lacks that, and endpoints lead to "
        "Google's APIs alone: such a host gives up",
        "set egress: nat",
    )
