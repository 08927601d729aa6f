"""Google Cloud: managed instance groups and TPU slices, Cloud Logging, and SSH through Identity-Aware Proxy."""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import datetime
from typing import Any, cast

from gangway.components.core.findings import InputError
from gangway.components.core.safe_text import google_filter_text
from gangway.components.gcp.tpu.api import GOOGLE_API_URL, TpuError, open_session
from gangway.finops.audit.gcp import LABEL
from gangway.jobs.systemd.scaling.base import Rest
from gangway.jobs.systemd.scaling.gcp import GcpScaler, open_scaler
from gangway.live.nodes import HEAD, LogLine, Node, payload_text
from gangway.stacks.config.stack_config import StackConfig

LOGS_URL = "https://logging.googleapis.com"
_PAGE, _MOST_PAGES = 1000, 50
_FIX = "gcloud auth application-default login, with the role Viewer on the project"
_SLICE = "slice"


def list_nodes(config: StackConfig, outputs: Mapping[str, Any]) -> list[Node]:
    """Instances of the groups, or TPU slices; and the head, whose state is not read."""
    names = [str(name) for name in outputs.get("group_names") or ()]
    head = str(outputs.get("head_instance_id") or "").rpartition("/")[2]
    found = [Node(head, head, HEAD, "unknown", str(outputs["zone"]))] if head else []
    if outputs.get("queued_resource"):
        return [*found, *_slices(config, outputs)]
    groups = cast("GcpScaler", open_scaler(config, outputs, names, is_held=False))
    for name in names:
        for row in groups.managed(name):
            doing = str(row.get("currentAction", "NONE"))
            state = str(row.get("instanceStatus") or doing if doing in ("NONE", "VERIFYING") else doing).lower()
            found.append(Node(row["name"], str(row.get("id", row["name"])), name, state, groups.zones[name]))
    return found


def _slices(config: StackConfig, outputs: Mapping[str, Any]) -> Iterator[Node]:
    parent = f"/v2/projects/{outputs['project']}/locations/{outputs['zone']}/nodes"
    for row in _pages(_rest(GOOGLE_API_URL), "TPU nodes", "GET", parent, "nodes"):
        if (row.get("labels") or {}).get(LABEL) == config.stack:
            name = str(row["name"]).rpartition("/")[2]
            yield Node(
                name, str(row.get("id", name)), _SLICE, str(row.get("state", "unknown")).lower(), outputs["zone"]
            )


def read_log(config: StackConfig, outputs: Mapping[str, Any], since: datetime) -> list[LogLine]:
    """Entries of the stack's log, with the nodes' names where they still exist."""
    names = {}
    with suppress(InputError):  # the log has ids, which are better than no log
        names = {node.id: node.name for node in list_nodes(config, outputs)}
    log = google_filter_text(str(outputs["log_group"]))
    body = {
        "resourceNames": [f"projects/{outputs['project']}"],
        "filter": f"logName={log} AND timestamp>={google_filter_text(since.isoformat())}",
        "orderBy": "timestamp asc",
        "pageSize": _PAGE,
    }
    found = []
    for entry in _pages(_rest(LOGS_URL), f"the log {log}", "POST", "/v2/entries:list", "entries", body):
        identity = str(entry.get("resource", {}).get("labels", {}).get("instance_id", "unknown"))
        text = payload_text(entry.get("jsonPayload", entry.get("textPayload", "")))
        at = datetime.fromisoformat(entry["timestamp"])
        found.append(LogLine(at, names.get(identity, identity), text, str(entry.get("insertId", text))))
    return found


def shell_argv(config: StackConfig, outputs: Mapping[str, Any], node: Node) -> list[str]:
    """Through Identity-Aware Proxy: machines have no external address."""
    slice_words = ["gcloud", "alpha", "compute", "tpus", "tpu-vm", "ssh", node.name, "--worker", "0"]
    words = slice_words if node.rung == _SLICE else ["gcloud", "compute", "ssh", node.name]
    return [*words, "--tunnel-through-iap", "--project", str(outputs["project"]), "--zone", node.place]


def _rest(api_url: str) -> Rest:
    try:
        return Rest(open_session(api_url), api_url, _FIX)
    except TpuError as problem:
        raise InputError("Google Cloud", str(problem), fix="gcloud auth application-default login") from None


def _pages(
    rest: Rest, what: str, method: str, path: str, key: str, body: Mapping[str, Any] | None = None
) -> Iterator[Mapping[str, Any]]:
    token = ""
    for _ in range(_MOST_PAGES):
        more = {"pageToken": token} if token else {}
        params = more if body is None else {}
        page = rest.call(what, method, path, params, None if body is None else {**body, **more})
        yield from page.get(key, [])
        if not (token := str(page.get("nextPageToken") or "")):
            return
