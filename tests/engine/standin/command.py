"""The stand-in for Pulumi's command plugin: no machine is reached, nothing is run; what would be is written down.

`commands.jsonl` beside the resources has a line for each copy and each command, in the order they were asked for. It
refuses what the real plugin, or the SSH below it, would: a source that is no asset, a host key that is none.
"""

import base64
import binascii
import json
import os
import secrets
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from .records import STATE_VARIABLE, records
from .service import Service
from .shapes import Fault

COPY, COMMAND = "command:remote:CopyToRemote", "command:remote:Command"
LOG = "commands.jsonl"


class Command(Service):
    """Machines that answer whoever asks. Inputs are as the plugin's schema has them (v1.2.1)."""

    sdk = "pulumi_command"
    replacing: Mapping[str, frozenset[str]] = MappingProxyType({COPY: frozenset({"triggers"})})
    open_enums: frozenset[str] | None = frozenset()

    def faults(self, type_token: str, inputs: Mapping[str, Any]) -> Iterator[Fault]:
        """See Service."""
        key = inputs["connection"].get("hostKey")
        if isinstance(key, str) and not _is_host_key(key):
            yield "connection.hostKey", "failed to parse host key: ssh: no key found"
        if type_token == COPY and not isinstance(inputs["source"], dict):
            yield "asset", "either asset or archive must be set"

    def identify(self, type_token: str, name: str, inputs: Mapping[str, Any]) -> str:
        """See Service."""
        return secrets.token_hex(8)

    def computed(
        self, type_token: str, id_: str, inputs: Mapping[str, Any], before: Mapping[str, Any]
    ) -> dict[str, Any]:
        """See Service. Called for what is really made or changed, never for a preview."""
        if type_token == COPY:
            _write_down(inputs, "copy", inputs["source"].get("text", ""))
            return {}
        verb = "update" if before else "create"
        _write_down(inputs, verb, inputs.get(verb) or inputs.get("create", ""))
        return {"stdout": "", "stderr": ""}

    def release(self, type_token: str, id_: str, others: Iterable[Mapping[str, Any]]) -> None:
        """See Service. The plugin runs `delete` with the inputs of the last create or update."""
        if type_token != COMMAND:
            return
        (inputs,) = [record["inputs"] for _, record in records(_folder()) if record["id"] == id_]
        _write_down(inputs, "delete", inputs.get("delete", ""))


def _folder() -> Path:
    return Path(os.environ[STATE_VARIABLE])


def _write_down(inputs: Mapping[str, Any], verb: str, text: str) -> None:
    connection = inputs["connection"]
    line = {"host": connection["host"], "verb": verb, "text": text, "connection": connection}
    with (_folder() / LOG).open("a", encoding="utf-8") as log:
        log.write(json.dumps(line) + "\n")


def _is_host_key(key: str) -> bool:
    """Whether SSH would read it: an algorithm, and base64 that begins with the algorithm's name."""
    words = key.split()
    if len(words) < 2:
        return False
    try:
        blob = base64.b64decode(words[1], validate=True)
    except binascii.Error:
        return False
    return blob[4 : 4 + len(words[0])] == words[0].encode()
