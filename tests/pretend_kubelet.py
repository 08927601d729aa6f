"""Nodes without a container runtime: pods that the scheduler puts on them run as processes of this machine, as root, in
a mount namespace with the pod's volumes. Images are not looked at. It serves pods' logs as a kubelet does.
"""

import base64
import json
import os
import re
import signal
import ssl
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.tls import Certificate

_POLL_SEC = 0.05
_LOG_PATH = re.compile(r"/containerLogs/([^/]+)/([^/]+)/[^/]+")
_MOUNTED = """set -e
hosts=$1 volumes=$2
shift 2
hostname "$HOSTNAME"
mount --make-rprivate /
mount -t tmpfs pod /mnt
mount --bind "$hosts" /etc/hosts
while read -r from to; do
    mkdir -p "$to"
    mount --bind "$from" "$to"
done <"$volumes"
exec "$@"
"""


@dataclass
class _Pod:
    """One that runs here, or has run."""

    namespace: str
    name: str
    folder: Path
    process: subprocess.Popen[bytes]
    grace_sec: int
    log: list[str] = field(default_factory=list)
    reader: threading.Thread | None = None
    told_at: float | None = None
    is_reported: bool = False


class PretendKubelet:
    """`server`: the API server's address, asked with `token`. Logs are served at `port`."""

    def __init__(self, server: str, token: str, certificate: Certificate, port: int, folder: Path, nodes: int) -> None:
        self._server, self._token, self._certificate = server, token, certificate
        self._port, self._folder, self._nodes = port, folder, nodes
        self._context = ssl.create_default_context(cafile=str(certificate.chain))
        self._pods: dict[str, _Pod] = {}
        self._over = threading.Event()
        self._threads: list[threading.Thread] = []
        self._http: ThreadingHTTPServer | None = None
        self.broken: list[str] = []
        """What went wrong in a thread; a test's end looks at it."""

    def begin(self) -> None:
        """Nodes n1 and so on, ready."""
        self._folder.mkdir()
        for number in range(1, self._nodes + 1):
            self._register(f"n{number}")
        self._http = _served(self._port, self._certificate, self._log_of)
        for work in (self._http.serve_forever, self._work):
            thread = threading.Thread(target=work, daemon=True)
            thread.start()
            self._threads.append(thread)

    def end(self) -> None:
        """Kills what still runs."""
        self._over.set()
        if self._http is not None:
            self._http.shutdown()
            self._http.server_close()
        for thread in self._threads:
            thread.join()
        for pod in self._pods.values():
            _kill(pod)

    def _register(self, name: str) -> None:
        labels = {"kubernetes.io/hostname": name}
        room = {"cpu": "1", "memory": "4Gi", "pods": "110"}
        node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}, "spec": {}}
        self._ask("POST", "/api/v1/nodes", node)
        status = {
            "capacity": room,
            "allocatable": room,
            "conditions": [{"type": "Ready", "status": "True", "reason": "Pretended"}],
            "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": self._port}},
        }
        self._ask("PATCH", f"/api/v1/nodes/{name}/status", {"status": status})

    def _work(self) -> None:
        while not self._over.wait(_POLL_SEC):
            try:
                for pod in self._ask("GET", "/api/v1/pods")["items"]:
                    if pod["spec"].get("nodeName"):
                        self._look(pod)
            except OSError as error:
                if not self._over.is_set():
                    self.broken.append(repr(error))

    def _look(self, pod: dict[str, Any]) -> None:
        """One pod: begun, told, ended, as its object asks."""
        uid, phase = pod["metadata"]["uid"], pod.get("status", {}).get("phase")
        mine = self._pods.get(uid)
        is_leaving = "deletionTimestamp" in pod["metadata"]
        if mine is None:
            if is_leaving:
                self._gone(pod)
            elif phase == "Pending":
                self._start(pod)
            return
        if is_leaving and mine.told_at is None and mine.process.poll() is None:
            mine.told_at = time.monotonic()
            mine.grace_sec = pod["metadata"].get("deletionGracePeriodSeconds", mine.grace_sec)
            mine.process.send_signal(signal.SIGTERM)  # the container's first process, alone
        if mine.told_at is not None and time.monotonic() - mine.told_at > mine.grace_sec:
            _kill(mine)
        if mine.process.poll() is not None and not mine.is_reported:
            self._report_end(pod, mine)
        if is_leaving and mine.is_reported:
            self._gone(pod)

    def _start(self, pod: dict[str, Any]) -> None:
        meta, spec = pod["metadata"], pod["spec"]
        [container] = spec["containers"]
        folder = self._folder / meta["uid"]
        folder.mkdir(exist_ok=True)
        try:
            volumes = self._volumes(pod, container, folder)
            env = self._variables(pod, container)
        except FileNotFoundError:
            return  # a Secret or a ConfigMap that is on its way: a kubelet waits for it, too
        (folder / "hosts").write_text(_hosts(pod))
        (folder / "volumes").write_text("".join(f"{source} {target}\n" for source, target in volumes))
        words = [_expanded(word, env) for word in (*container["command"], *container.get("args", ()))]
        apart = ("unshare", "--mount", "--uts", "/bin/sh", "-c", _MOUNTED, "pod", folder / "hosts", folder / "volumes")
        # The image's Python, which has the trainer, is first.
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        process = subprocess.Popen(
            [*apart, *words],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            env={"PATH": path, "HOSTNAME": spec.get("hostname", meta["name"]), **env},
            cwd=container.get("workingDir", "/"), start_new_session=True,
        )  # fmt: skip
        mine = _Pod(meta["namespace"], meta["name"], folder, process, spec["terminationGracePeriodSeconds"])
        mine.reader = threading.Thread(target=_read, args=(mine,), daemon=True)
        mine.reader.start()
        self._pods[meta["uid"]] = mine
        running = {"running": {"startedAt": _now()}}
        self._report(pod, "Running", running, ready=True)

    def _volumes(self, pod: dict[str, Any], container: dict[str, Any], folder: Path) -> list[tuple[Path, str]]:
        """Folder on this machine and path in the container, of each mount. FileNotFoundError: not there yet."""
        sources = {each["name"]: each for each in pod["spec"].get("volumes", ())}
        found = list[tuple[Path, str]]()
        for mount in container.get("volumeMounts", ()):
            volume, path = sources[mount["name"]], folder / mount["name"]
            if "configMap" in volume:
                self._written(path, self._named(pod, "configmaps", volume["configMap"]["name"]).get("data", {}))
            elif "persistentVolumeClaim" in volume:
                claim = volume["persistentVolumeClaim"]["claimName"]
                path = self._folder / "claims" / pod["metadata"]["namespace"] / claim
            elif "emptyDir" not in volume:
                raise NotImplementedError(f"no such volume here: {volume}")
            path = path / mount.get("subPath", "")
            path.mkdir(parents=True, exist_ok=True)
            found.append((path, mount["mountPath"]))
        return sorted(found, key=lambda each: each[1])

    @staticmethod
    def _written(folder: Path, files: dict[str, str]) -> None:
        folder.mkdir(exist_ok=True)
        for name, content in files.items():
            (folder / name).write_text(content)

    def _named(self, pod: dict[str, Any], kind: str, name: str) -> Any:
        return self._ask("GET", f"/api/v1/namespaces/{pod['metadata']['namespace']}/{kind}/{name}")

    def _variables(self, pod: dict[str, Any], container: dict[str, Any]) -> dict[str, str]:
        found = dict[str, str]()
        for each in container.get("envFrom", ()):
            secret = self._named(pod, "secrets", each["secretRef"]["name"])
            found |= {name: base64.b64decode(value).decode() for name, value in secret.get("data", {}).items()}
        for each in container.get("env", ()):
            value = each["value"] if "value" in each else _field(pod, each["valueFrom"]["fieldRef"]["fieldPath"])
            found[each["name"]] = _expanded(value, found)
        return found

    def _report_end(self, pod: dict[str, Any], mine: _Pod) -> None:
        assert mine.reader is not None, "begun with its process"
        mine.reader.join(1)
        code = mine.process.returncode
        code = 128 - code if code < 0 else code
        ended = {"exitCode": code, "reason": "Completed" if code == 0 else "Error", "finishedAt": _now()}
        self._report(pod, "Failed" if code else "Succeeded", {"terminated": ended}, ready=False)
        mine.is_reported = True

    def _report(self, pod: dict[str, Any], phase: str, state: dict[str, Any], *, ready: bool) -> None:
        [container] = pod["spec"]["containers"]
        told = {
            "name": container["name"], "image": container["image"], "imageID": "", "restartCount": 0,
            "ready": ready, "started": ready, "state": state,
        }  # fmt: skip
        status = {
            "phase": phase,
            "podIP": "127.0.0.1",
            "hostIP": "127.0.0.1",
            "startTime": pod.get("status", {}).get("startTime") or _now(),
            "conditions": [{"type": "Ready", "status": str(ready)}],
            "containerStatuses": [told],
        }
        with suppress(FileNotFoundError):
            self._ask("PATCH", f"{_path(pod)}/status", {"status": status})

    def _gone(self, pod: dict[str, Any]) -> None:
        """All of it has ended here: the object may go."""
        uid = pod["metadata"]["uid"]
        with suppress(FileNotFoundError):
            self._ask("DELETE", _path(pod), {"gracePeriodSeconds": 0, "preconditions": {"uid": uid}})

    def _log_of(self, namespace: str, name: str) -> list[str] | None:
        for pod in reversed(list(self._pods.values())):
            if (pod.namespace, pod.name) == (namespace, name):
                return pod.log
        return None

    def _ask(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        """FileNotFoundError: there is no such thing."""
        kind = "application/strategic-merge-patch+json" if method == "PATCH" else "application/json"
        request = urllib.request.Request(
            f"{self._server}{path}",
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Authorization": f"Bearer {self._token}", "Content-Type": kind},
        )
        try:
            with urllib.request.urlopen(request, context=self._context, timeout=30) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            told = error.read().decode()
            if error.code in (404, 409):
                raise FileNotFoundError(path) from None
            raise OSError(f"{method} {path}: {error.code} {told[:500]}") from None


def _served(port: int, certificate: Certificate, log_of: Any) -> ThreadingHTTPServer:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            split = urlsplit(self.path)
            found = _LOG_PATH.fullmatch(split.path)
            log = log_of(*found.groups()) if found else None
            if log is None:
                self.send_error(404)
                return
            stamped = parse_qs(split.query).get("timestamps") == ["true"]
            lines = log if stamped else [line.partition(" ")[2] for line in log]
            content = "".join(lines).encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/plain")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *args: Any) -> None:
            """Nothing to say."""

    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate.chain, certificate.key)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    return server


def _read(pod: _Pod) -> None:
    """Its lines, each with the time at which it was written."""
    assert pod.process.stdout is not None, "a pipe"
    with pod.process.stdout as output:
        for line in output:
            text = line.decode(errors="replace")
            pod.log.append(f"{_stamp(time.time_ns())} {text if text.endswith(chr(10)) else text + chr(10)}")


def _stamp(at_ns: int) -> str:
    return f"{datetime.fromtimestamp(at_ns // 10**9, UTC):%Y-%m-%dT%H:%M:%S}.{at_ns % 10**9:09d}Z"


def _kill(pod: _Pod) -> None:
    with suppress(ProcessLookupError):
        os.killpg(pod.process.pid, signal.SIGKILL)
    pod.process.wait()


def _hosts(pod: dict[str, Any]) -> str:
    """Every pod of a JobSet has a name, and all are on this machine."""
    lines, labels = ["127.0.0.1 localhost"], pod["metadata"].get("labels", {})
    lines.append(f"127.0.0.1 {pod['spec'].get('hostname', pod['metadata']['name'])}")
    if name := labels.get("jobset.sigs.k8s.io/jobset-name"):
        group, index = labels["jobset.sigs.k8s.io/replicatedjob-name"], labels["jobset.sigs.k8s.io/job-index"]
        lines += [f"127.0.0.1 {name}-{group}-{index}-{number}.{name}" for number in range(64)]
    return "\n".join(lines) + "\n"


def _field(pod: dict[str, Any], path: str) -> str:
    """`metadata.name`, `metadata.labels['app']`."""
    found = re.fullmatch(r"metadata\.(\w+)(?:\['([^']+)'\])?", path)
    assert found is not None, path
    value = pod["metadata"][found[1]]
    return str(value[found[2]] if found[2] else value)


def _expanded(text: str, env: dict[str, str]) -> str:
    """As Kubernetes has it: $(NAME) is the variable's value where there is one, and $$ a dollar."""
    return re.sub(r"\$\$|\$\((\w+)\)", lambda found: _one(found, env), text)


def _one(found: re.Match[str], env: dict[str, str]) -> str:
    if found.group(0) == "$$":
        return "$"
    return env.get(found.group(1), found.group(0))


def _path(pod: dict[str, Any]) -> str:
    return f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{pod['metadata']['name']}"


def _now() -> str:
    return f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"
