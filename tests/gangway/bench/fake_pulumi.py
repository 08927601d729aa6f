#!/usr/bin/env python3
"""A Pulumi CLI in small, for tests without the real one: it keeps stacks as JSON files, delays, and fails as told.

What it is told is $FAKE_PULUMI/orders.json, by command: {"up": {"sleep": 3, "fail": "no capacity"}}; what a run does in
the stack, by the run's seed as well: {"up": {"record": FILE, "by_seed": {"1": {"ended": {...}, "place": "s3://b/x"}}}}.
It answers the commands of the Automation API that a suite uses, and refuses all others.
"""

import json
import os
import signal
import sys
import time
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

HOME = Path(os.environ["FAKE_PULUMI"])
PAGE = [{"kind": "update", "startTime": "2026-01-01T00:00:00.000Z", "message": "", "environment": {}, "config": {},
         "result": "succeeded", "endTime": "2026-01-01T00:00:00.000Z", "version": 1}]  # fmt: skip
RESOURCES = [
    {"urn": "urn:pulumi:s::p::aws:s3/bucket:Bucket::runs", "type": "aws:s3/bucket:Bucket", "id": "runs-1"},
    {"urn": "u", "type": "azure-native:storage:StorageAccount", "id": "/kept", "retainOnDelete": True},
]


def fail(text: str, code: int = 255) -> NoReturn:
    print(f"error: {text}", file=sys.stderr)
    sys.exit(code)


def on_interrupt(number: int, frame: FrameType | None) -> None:
    (HOME / "interrupted").write_text("yes")
    if not orders.get("stubborn"):
        fail("update canceled")


def get_value(flag: str) -> str:
    return words[words.index(flag) + 1]


def save(stack: dict[str, Any]) -> None:
    file.write_text(json.dumps(stack))


def report(config: str) -> str:
    """Puts the record, or the end, where the stack's run would, with id and seed as the stack file says; the place."""
    said = dict(line.strip().split(": ", 1) for line in config.splitlines() if ": " in line)
    own = {**orders, **orders.get("by_seed", {}).get(said["seed"], {})}
    if "record" not in own:
        return ""
    folder = HOME / "runs" / name
    folder.mkdir(parents=True)
    if "ended" in own:
        ended = {"version": 1, "run_id": said["run_id"], "stack": name, "node": "node-1", **own["ended"]}
        (folder / "ended.json").write_text(json.dumps(ended))
    elif template := own["record"]:
        record = {**json.loads(Path(template).read_text()), "id": said["run_id"], "seed": int(said["seed"])}
        (folder / "run.json").write_text(json.dumps(record))
    return str(own.get("place", folder.as_uri()))


words = [word for word in sys.argv[1:] if word not in ("--non-interactive", "--show-secrets")]
given = json.loads((HOME / "orders.json").read_text()) if (HOME / "orders.json").exists() else {}
name = get_value("--stack") if "--stack" in words else words[-1]
file = HOME / f"{name}.stack.json"
command = (
    " ".join(words[:2])
    if words[0] == "stack" and words[1] in ("init", "select", "output", "history", "export", "rm")
    else words[0]
)
orders = given.get(command, {})
signal.signal(signal.SIGINT, on_interrupt)
with (HOME / "commands.log").open("a") as log:
    log.write(f"{command} {name}\n")
if "sleep" in orders:
    time.sleep(orders["sleep"])
if text := orders.get("fail"):
    times = orders.get("times", 1000) - 1
    if times >= 0:
        orders["times"] = times
        (HOME / "orders.json").write_text(json.dumps(given))
        fail(text)
stack = json.loads(file.read_text()) if file.exists() else None

match command:
    case "version":
        print(orders.get("number", "v3.272.0"))
    case "whoami":
        url = given.get("backend", os.environ.get("PULUMI_BACKEND_URL", "https://app.pulumi.com/somebody"))
        print(json.dumps({"user": "somebody", "url": url}))
    case "stack init":
        save({"resources": [], "pending_operations": []})
    case _ if stack is None:
        fail(f"no stack named '{name}' found")
    case "stack select" | "cancel":
        pass
    case "up":
        config = Path(f"Pulumi.{name}.yaml").read_text()
        stack["resources"] = RESOURCES
        stack["pending_operations"] = orders.get("pending", [])
        save({**stack, "runs_url": report(config)})
        print("resources: 2 created")
    case "stack output":
        print(json.dumps({"run_bucket": "runs-1", "runs_url": stack.get("runs_url", "")}))
    case "stack history":
        print(json.dumps(PAGE))
    case "stack export":
        print(
            json.dumps({"version": 3, "deployment": {key: stack[key] for key in ("resources", "pending_operations")}})
        )
    case "destroy":
        save({"resources": [], "pending_operations": []})
    case "stack rm":
        if stack["resources"]:
            fail("stack still has resources")
        file.unlink()
    case _:
        fail(f"the stand-in knows no {command}")
