"""What somebody else made before a stack: how tests put it into the stand-ins' cloud, and spoil it."""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

Cloud = dict[tuple[str, str], dict[str, Any]]
"""Type and id -> outputs."""
Mistake = tuple[Callable[[Cloud], None] | None, dict[str, Any], list[str]]
"""What is wrong with the cloud, what with the keys of `existing`, and the words that say so."""


def put(engine: Any, cloud: Cloud) -> dict[Path, str]:
    """Puts resources where the stand-ins look for them; their files and texts."""
    texts = {}
    for (type_token, id_), outputs in cloud.items():
        record = {"type": type_token, "id": id_, "urn": "", "inputs": outputs, "outputs": outputs}
        file = engine.cloud / f"{hashlib.sha256(f'{type_token}|{id_}'.encode()).hexdigest()}.json"
        texts[file] = json.dumps(record)
        file.write_text(texts[file], "utf-8")
    return texts


def changed(type_token: str, part: str = "", **outputs: Any) -> Callable[[Cloud], None]:
    """Gives other outputs to the resources of a type whose id contains `part`."""

    def change(cloud: Cloud) -> None:
        for key in [key for key in cloud if key[0] == type_token and part in key[1]]:
            cloud[key] |= outputs

    return change


def without(type_token: str, part: str = "") -> Callable[[Cloud], None]:
    """Takes them away."""

    def change(cloud: Cloud) -> None:
        for key in [key for key in cloud if key[0] == type_token and part in key[1]]:
            del cloud[key]

    return change


def check_refused(engine: Any, set_value: Any, section: str, cloud: Cloud, mistake: Mistake) -> None:
    """One message, no traceback and no resource."""
    change, settings, words = mistake
    if change is not None:
        change(cloud)
    for key, value in settings.items():
        engine.change(set_value(f"{section}.existing.{key}", value))
    before = put(engine, cloud)
    outcome = engine.run("up", "--yes", "--skip-preview")
    assert outcome.status != 0
    assert [one for one in words if one not in outcome.text] == [], outcome.text
    assert "Traceback" not in outcome.text
    assert {file: file.read_text("utf-8") for file in engine.cloud.glob("*.json")} == before
