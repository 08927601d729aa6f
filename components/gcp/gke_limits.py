"""Node settings for unprivileged pods with RDMA NICs or TPUs: locked memory and access to the chips' devices; pure. GKE
has no setting for either. Google's own examples run such pods privileged (cluster-toolkit of 2026-06,
`examples/gke-tpu-7x`; ray-project/kuberay#2466 for v6e), and request 64 GiB of locked memory for TPUs.
"""

from gangway.components.kubernetes.charts import SYSTEM
from gangway.components.kubernetes.manifest import Manifest, daemon_set
from gangway.components.kubernetes.spec import JOBS

__all__ = ["node_limits"]

# Google's copy of Debian, whose essential util-linux has prlimit.
_IMAGE = "mirror.gcr.io/library/debian:12-slim"
_SCRIPT = """set -u
while :; do
    for each in /proc/[0-9]*; do
        # Containers inherit it from what begins them.
        [ "$(cat "$each/comm" 2>/dev/null)" != containerd ] || prlimit --pid "${each#/proc/}" --memlock=unlimited
    done
    # A container's devices have the modes of its node's: chips of v4 to v5p, and of v6e and later.
    chmod a+rw /proc/1/root/dev/accel* /proc/1/root/dev/vfio/* 2>/dev/null
    sleep 15
done
"""


def node_limits() -> Manifest:
    """A privileged pod on each job node."""
    container = {
        "name": "node",
        "image": _IMAGE,
        "command": ["/bin/sh", "-c", _SCRIPT],
        "securityContext": {"privileged": True},
        "resources": {"requests": {"cpu": "10m", "memory": "32Mi"}, "limits": {"memory": "64Mi"}},
    }
    pod = {
        "nodeSelector": dict(JOBS),
        "tolerations": [{"operator": "Exists"}],
        "hostPID": True,
        "terminationGracePeriodSeconds": 1,
        "containers": [container],
    }
    return daemon_set("gangway-node-limits", SYSTEM, pod)
