"""What Pulumi finds in the project's environment: no plugin, so that it downloads only those that a stack uses."""

import json
import subprocess
import sys
from importlib.metadata import distributions
from pathlib import Path

import pytest


def _with_plugins() -> set[str]:
    """Installed packages that name a plugin, as Pulumi's language host recognises them."""
    found = set()
    for each in distributions():
        for file in each.files or ():
            declares = file.name == "pulumi-plugin.json"
            if declares and json.loads(Path(str(each.locate_file(file))).read_text("utf-8")).get("resource"):
                found.add(each.name.lower().replace("_", "-"))
    return found


@pytest.mark.slow
def test_no_package_with_a_plugin_is_listed(repo: Path) -> None:
    argv = [sys.executable, "-m", "pip", "list", "--format", "json"]
    env = {"PIP_CONFIG_FILE": str(repo / "tools" / "pip.conf"), "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    listed = json.loads(subprocess.run(argv, env=env, capture_output=True, check=True).stdout)
    names = {row["name"].lower().replace("_", "-") for row in listed}
    assert "pulumi" in names
    assert len(_with_plugins()) >= 7
    assert names & _with_plugins() == set()
