"""Adds two files of the top to wheels. By pyproject.toml, editable installs would have them, too."""

from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class WheelLayout(BuildHookInterface[Any]):
    """Puts Pulumi.yaml and .dockerignore beside the packages: the trainer's image is built from there."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Names the files, before they are collected."""
        if version == "standard":
            build_data["force_include"].update({name: f"gangway/{name}" for name in ("Pulumi.yaml", ".dockerignore")})
