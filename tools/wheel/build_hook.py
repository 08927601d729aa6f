"""What hatchling cannot be told in pyproject.toml: the wheel's own package, and two files that lie at the top.

Not for an editable install, which reads the checkout itself.
"""

from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class WheelLayout(BuildHookInterface[Any]):
    """Puts `gangway_iac` at the top of the wheel, over the tree that pyproject.toml puts below it."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Names the files, before they are collected."""
        if version == "standard":
            tree = "gangway_iac/_tree"
            build_data["force_include"].update(
                {
                    "tools/wheel/gangway_iac": "gangway_iac",
                    "Pulumi.yaml": f"{tree}/Pulumi.yaml",
                    ".dockerignore": f"{tree}/.dockerignore",
                }
            )
