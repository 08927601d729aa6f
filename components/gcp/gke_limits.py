"""What pods without rights need of a GKE node for its RDMA NICs or its TPUs: that they may lock memory, and open the
chips' devices; pure. GKE has no setting for either.

Google's own examples run such pods as privileged ones (cluster-toolkit of 2026-06,
`examples/gke-tpu-7x`; ray-project/kuberay#2466 for v6e), and ask for 64 GiB of locked memory for TPUs.
"""

from components.kubernetes.charts import SYSTEM
from components.kubernetes.manifest import Manifest, daemon_set
from components.kubernetes.spec import JOBS

__all__ = ["node_limits"]

# Google's copy of Debian, of which util-linux, with prlimit, is an essential part.
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
    """A pod of the machine's own rights on each of the jobs' nodes."""
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
        # It has nothing to finish.
        "terminationGracePeriodSeconds": 1,
        "containers": [container],
    }
    return daemon_set("gangway-node-limits", SYSTEM, pod)
