"""A real Kubernetes control plane on loopback: etcd, API server, controller manager, scheduler, and the controllers of
JobSet and Kueue with their webhooks. There is no container runtime: its nodes are `tests.pretend_kubelet`.

PROGRAMS are on PATH. etcd is Debian's `etcd-server`; build the rest with Go:

- k8s.io/kubernetes v1.36.3: kube-apiserver, kube-controller-manager, kube-scheduler, kubectl. In go.mod, replace each
  k8s.io module of version v0.0.0 by v0.36.3; set the API server's version with the linker.
- sigs.k8s.io/jobset v0.12.0: jobset
- sigs.k8s.io/kueue v0.19.0: kueue

Next to the programs' folder, share/jobset and share/kueue hold each project's config/components/crd/bases and
config/components/webhook/manifests.yaml; for the upgrade test, share/jobset-before and share/kueue-before hold the CRDs
of 0.11.1 and 0.17.0.
"""

import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from gangway.components.kubernetes.charts import kueue_config
from gangway.components.kubernetes.spec import ClusterSpec, Node
from tests.pretend_kubelet import PretendKubelet
from tests.tls import loopback_certificate

PROGRAMS = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl", "jobset", "kueue")
_LIMIT_SEC = 120.0
_WITH_METRICS_CERTS = """set -e
etc=$1 certs=$2
shift 2
cp -a /etc "$etc"
mkdir -p "$etc/kueue/metrics/certs"
cp "$certs"/* "$etc/kueue/metrics/certs"
mount --make-rprivate /
mount --bind "$etc" /etc
exec "$@"
"""
"""Kueue looks for those of its metrics in one place of the file system."""
_KUEUE_CONFIG = {
    # As a cluster of Gangway's own has it, but for what needs a service network.
    **kueue_config(ClusterSpec((), Node(1, 1), 1, ()), rungs=2),
    "leaderElection": {"leaderElect": False},
    "internalCertManagement": {"enable": False},
    "featureGates": {"VisibilityOnDemand": False},
    # Namespaces of clusters that somebody else has made, too.
    "managedJobsNamespaceSelector": {
        "matchExpressions": [
            {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["kube-system", "kueue-system"]}
        ]
    },
}
_JOBSET_CONFIG = {
    "apiVersion": "config.jobset.x-k8s.io/v1alpha1",
    "kind": "Configuration",
    "leaderElection": {"leaderElect": False},
    "internalCertManagement": {"enable": False},
}


_CONTROLLERS: Mapping[str, Mapping[str, Any]] = {"jobset": _JOBSET_CONFIG, "kueue": _KUEUE_CONFIG}
_CRD = "CustomResourceDefinition"


def why_no_older() -> str:
    """Why there are no CRDs of older releases here; empty where there are."""
    missing = [str(folder) for name in _CONTROLLERS if not (folder := _share() / f"{name}-before").is_dir()]
    return f"no CRDs of older releases in {', '.join(missing)}" if missing else ""


def why_not() -> str:
    """Why there can be none here; empty where there can."""
    missing = [name for name in PROGRAMS if shutil.which(name) is None]
    if missing:
        return f"{', '.join(missing)} not on PATH (tests/kube_cluster.py says how they are built)"
    if not (_share() / "kueue").is_dir():
        return f"no CRDs in {_share()}"
    return "" if os.geteuid() == 0 else "pods' folders are mounted, as root alone may"


def _share() -> Path:
    found = shutil.which("jobset")
    assert found is not None, "asked for where there is one"
    return Path(found).parent.parent / "share"


@dataclass(frozen=True)
class KubeQueue:
    """A namespace of its own, with one queue. `runs`: where its run folders are on this machine."""

    namespace: str
    name: str
    cluster_queue: str
    runs: Path


@dataclass
class KubeCluster:
    """One that is up. `kubeconfig`: with which kubectl finds it, by a context `judge`."""

    folder: Path
    kubeconfig: Path
    kubelet: PretendKubelet
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def begin(self, name: str, *words: str, env: Mapping[str, str] | None = None) -> None:
        with (self.folder / f"{name}.out").open("ab") as output:
            self.processes[name] = subprocess.Popen(
                words,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
                env={**os.environ, **(env or {})},
            )

    def kubectl(self, *words: str, told: str | None = None) -> str:
        """What it prints."""
        done = subprocess.run(
            ("kubectl", f"--kubeconfig={self.kubeconfig}", *words),
            input=told, capture_output=True, text=True, timeout=_LIMIT_SEC,
        )  # fmt: skip
        assert done.returncode == 0, (words, done.stderr)
        return done.stdout

    def queue(self, cpus: int) -> KubeQueue:
        """A new one of so many CPUs, with a claim for run folders."""
        name = f"q{secrets.token_hex(4)}"
        runs = self.folder / "kubelet" / "claims" / name / "gangway-runs" / name
        runs.mkdir(parents=True)
        found = KubeQueue(name, "gpu", name, runs)
        self.kubectl("create", "namespace", name)
        self.set_quota(found, cpus)
        kueue = "kueue.x-k8s.io/v1beta2"
        volume = {"accessModes": ["ReadWriteMany"], "storageClassName": ""}
        self.apply(
            {
                "apiVersion": kueue, "kind": "LocalQueue", "metadata": {"name": "gpu", "namespace": name},
                "spec": {"clusterQueue": name},
            },
            {
                "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name},
                "spec": {
                    **volume, "capacity": {"storage": "1Gi"}, "hostPath": {"path": str(runs)},
                    "claimRef": {"name": "gangway-runs", "namespace": name},
                },
            },
            {
                "apiVersion": "v1", "kind": "PersistentVolumeClaim",
                "metadata": {"name": "gangway-runs", "namespace": name},
                "spec": {**volume, "resources": {"requests": {"storage": "1Gi"}}, "volumeName": name},
            },
        )  # fmt: skip
        return found

    def set_quota(self, queue: KubeQueue, cpus: int, **devices: int) -> None:
        """Of a queue that is there, or is to be."""
        room = {"cpu": str(cpus), "memory": "64Gi", **{name: str(number) for name, number in devices.items()}}
        quotas = [{"name": name, "nominalQuota": quantity} for name, quantity in room.items()]
        group = {"coveredResources": list(room), "flavors": [{"name": "plain", "resources": quotas}]}
        self.apply(
            {
                "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ClusterQueue",
                "metadata": {"name": queue.cluster_queue},
                "spec": {
                    "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": queue.namespace}},
                    "resourceGroups": [group],
                    "preemption": {"withinClusterQueue": "LowerPriority"},
                },
            }
        )  # fmt: skip

    def remove(self, queue: KubeQueue) -> None:
        """Its jobs have ended after it."""
        self.kubectl("delete", "jobsets", "--all", f"--namespace={queue.namespace}", "--grace-period=0", "--wait=true")
        self.kubectl("delete", "namespace", queue.namespace, "--wait=false")
        self.kubectl("delete", "clusterqueue", queue.cluster_queue, "--wait=false")

    def renew_crds(self) -> None:
        """As an upgrade does, under what runs."""
        for name in _CONTROLLERS:
            self.apply(*_crds(_share() / name))
        self.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=60s")

    def apply(self, *manifests: Mapping[str, Any]) -> None:
        """Strict: a field that no schema knows is an error."""
        for manifest in manifests:
            self.kubectl("apply", "--server-side", "--validate=strict", "-f", "-", told=json.dumps(manifest))


@contextmanager
def kubernetes(folder: Path, nodes: int = 3, *, older_crds: bool = False) -> Iterator[KubeCluster]:
    """A cluster of so many nodes, n1 and so on, each of one CPU. `older_crds`: of the releases before; see
    `why_no_older`.
    """
    ports = dict(zip(("etcd", "peer", "api", "jobset", "kueue", "kubelet"), _ports(6), strict=True))
    certificate = loopback_certificate(folder)
    tokens = {name: secrets.token_hex(16) for name in ("judge", "kubelet")}
    (folder / "tokens").write_text("".join(f"{token},{name},{name},system:masters\n" for name, token in tokens.items()))
    kubeconfig = _kubeconfig(folder, ports["api"], certificate.chain, tokens["judge"])
    server = f"https://127.0.0.1:{ports['api']}"
    kubelet = PretendKubelet(server, tokens["kubelet"], certificate, ports["kubelet"], folder / "kubelet", nodes)
    cluster = KubeCluster(folder, kubeconfig, kubelet)
    try:
        _begin_control_plane(cluster, ports, certificate.chain, certificate.key)
        _begin_controllers(cluster, ports, certificate.chain, certificate.key, "-before" if older_crds else "")
        kubelet.begin()
        _until_admitting(cluster)
        yield cluster
    finally:
        kubelet.end()
        for process in reversed(list(cluster.processes.values())):
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _begin_control_plane(cluster: KubeCluster, ports: Mapping[str, int], chain: Path, key: Path) -> None:
    folder, kubeconfig = cluster.folder, cluster.kubeconfig
    store = f"http://127.0.0.1:{ports['etcd']}"
    peer = f"http://127.0.0.1:{ports['peer']}"
    cluster.begin(
        "etcd", "etcd", f"--data-dir={folder}/etcd",
        f"--listen-client-urls={store}", f"--advertise-client-urls={store}",
        f"--listen-peer-urls={peer}", f"--initial-advertise-peer-urls={peer}", f"--initial-cluster=default={peer}",
        "--unsafe-no-fsync",
    )  # fmt: skip
    cluster.begin(
        "apiserver", "kube-apiserver", f"--etcd-servers={store}", "--bind-address=127.0.0.1",
        f"--secure-port={ports['api']}",
        f"--tls-cert-file={chain}", f"--tls-private-key-file={key}", f"--token-auth-file={folder}/tokens",
        "--authorization-mode=RBAC", "--service-cluster-ip-range=10.99.0.0/24", "--allow-privileged=false",
        "--service-account-issuer=https://judge.invalid", f"--service-account-key-file={key}",
        f"--service-account-signing-key-file={key}", "--kubelet-preferred-address-types=InternalIP",
        "--disable-admission-plugins=TaintNodesByCondition",
    )  # fmt: skip
    _until(cluster, lambda: _answers(cluster, "get", "--raw=/readyz"))
    cluster.begin(
        "manager", "kube-controller-manager", f"--kubeconfig={kubeconfig}", "--secure-port=0", "--leader-elect=false",
        f"--service-account-private-key-file={key}", f"--root-ca-file={chain}",
        # Nobody beats for the nodes, and nothing else is judged here.
        "--controllers=*,-node-lifecycle-controller,-node-ipam-controller,-taint-eviction-controller",
    )  # fmt: skip
    cluster.begin(
        "scheduler", "kube-scheduler", f"--kubeconfig={kubeconfig}", "--secure-port=0", "--leader-elect=false"
    )


def _begin_controllers(cluster: KubeCluster, ports: Mapping[str, int], chain: Path, key: Path, crds_of: str) -> None:
    certs = cluster.folder / "webhook-certs"
    certs.mkdir()
    shutil.copyfile(chain, certs / "tls.crt")
    shutil.copyfile(key, certs / "tls.key")
    for name, config in _CONTROLLERS.items():
        cluster.apply(*_crds(_share() / f"{name}{crds_of}"))
        cluster.apply(*(_by_url(each, ports[name], chain, name) for each in _webhooks(name)))
        path = cluster.folder / f"{name}.yaml"
        own = {
            "webhook": {"port": ports[name], "host": "127.0.0.1", "certDir": str(certs)},
            "health": {"healthProbeBindAddress": "0"},
            "metrics": {"bindAddress": "0"},
        }
        path.write_text(json.dumps({**config, **own}))
    cluster.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=60s")
    cluster.kubectl("create", "namespace", "kueue-system")
    env = {"KUBECONFIG": str(cluster.kubeconfig), "POD_NAMESPACE": "kueue-system"}
    own_etc = ("unshare", "--mount", "/bin/sh", "-c", _WITH_METRICS_CERTS, "kueue", f"{cluster.folder}/etc", str(certs))
    cluster.begin("jobset", "jobset", f"--config={cluster.folder}/jobset.yaml", env=env)
    cluster.begin("kueue", *own_etc, "kueue", f"--config={cluster.folder}/kueue.yaml", env=env)


def _crds(folder: Path) -> list[dict[str, Any]]:
    return [each for each in _manifests(folder) if each["kind"] == _CRD]


def _webhooks(name: str) -> list[dict[str, Any]]:
    return [each for each in _manifests(_share() / name) if each["kind"] != _CRD]


def _manifests(folder: Path) -> list[dict[str, Any]]:
    return [
        each
        for path in sorted(folder.glob("*.yaml"))
        for each in yaml.load_all(path.read_text(), Loader=yaml.CSafeLoader)
        if each
    ]


def _by_url(manifest: dict[str, Any], port: int, chain: Path, name: str) -> dict[str, Any]:
    """Webhooks without a service network: at an address, with our own certificate."""
    import base64

    manifest["metadata"]["name"] = f"{name}-{manifest['metadata']['name']}"
    kept = [each for each in manifest["webhooks"] if _is_of(each, name)]
    for each in kept:
        path = each["clientConfig"].pop("service")["path"]
        each["clientConfig"]["url"] = f"https://127.0.0.1:{port}{path}"
        each["clientConfig"]["caBundle"] = base64.b64encode(chain.read_bytes()).decode()
    manifest["webhooks"] = kept
    return manifest


def _is_of(webhook: Mapping[str, Any], name: str) -> bool:
    """Kueue has one for each framework; those that are switched off answer nobody."""
    own = ("jobset.x-k8s.io", "kueue.x-k8s.io") if name == "kueue" else ("jobset.x-k8s.io", "")
    return all(group in own for rule in webhook["rules"] for group in rule["apiGroups"])


def _until_admitting(cluster: KubeCluster) -> None:
    """Until the webhooks answer."""
    probe = json.dumps(
        {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ResourceFlavor", "metadata": {"name": "plain"}, "spec": {}}
    )
    _until(cluster, lambda: _answers(cluster, "apply", "-f", "-", told=probe))
    for name, value in (("high", 1000), ("low", -1000)):
        cluster.apply(
            {
                "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "WorkloadPriorityClass",
                "metadata": {"name": f"gangway-{name}"}, "value": value,
            }
        )  # fmt: skip


def _answers(cluster: KubeCluster, *words: str, told: str | None = None) -> bool:
    done = subprocess.run(
        ("kubectl", f"--kubeconfig={cluster.kubeconfig}", "--request-timeout=5s", *words),
        input=told, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    return done.returncode == 0


def _until(cluster: KubeCluster, what: Any) -> None:
    limit = time.monotonic() + _LIMIT_SEC
    while not what():
        for name, process in cluster.processes.items():
            assert process.poll() is None, (name, (cluster.folder / f"{name}.out").read_text()[-3000:])
        assert time.monotonic() < limit, [path.read_text()[-1000:] for path in cluster.folder.glob("*.out")]
        time.sleep(0.2)


def _kubeconfig(folder: Path, port: int, chain: Path, token: str) -> Path:
    path = folder / "kubeconfig"
    server = {"server": f"https://127.0.0.1:{port}", "certificate-authority": str(chain)}
    path.write_text(
        json.dumps(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "current-context": "judge",
                "clusters": [{"name": "judge", "cluster": server}],
                "users": [{"name": "judge", "user": {"token": token}}],
                "contexts": [{"name": "judge", "context": {"cluster": "judge", "user": "judge"}}],
            }
        )
    )
    path.chmod(0o600)
    return path


def _ports(number: int) -> Sequence[int]:
    held = [socket.socket() for _ in range(number)]
    for each in held:
        each.bind(("127.0.0.1", 0))
    ports = [int(each.getsockname()[1]) for each in held]
    for each in held:
        each.close()
    return ports
