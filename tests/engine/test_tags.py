"""Other tags on a stack that is up, by the real Pulumi engine: they change in place, and nothing is replaced."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import pytest
import yaml

from stacks.providers.registry import provider_of

pytestmark = [pytest.mark.engine, pytest.mark.timeout(1800)]


@pytest.mark.parametrize(
    "stack", ["aws-demo", "gcp-a3-spot", "gcp-v5p-multislice", "azure-ndv5-spot", "openstack-gpu", "hosts-lab"]
)
def test_other_tags_replace_nothing(
    make_engine: Callable[[str], Any],
    running_plugin: Callable[..., AbstractContextManager[Any]],
    standin: Any,
    stack: str,
) -> None:
    engine = make_engine(stack)

    def ask_the_standin(config: dict[str, Any]) -> None:
        if "gangway:gcp" in config:
            config["gangway:gcp"]["tpu_api_url"] = standin.url

    def other_tags(config: dict[str, Any]) -> None:
        config["gangway:tags"] = {"team": "vision", "cost_center": "4712", "owner": "somebody"}

    engine.change(ask_the_standin)
    file = engine.project / "stacks" / f"Pulumi.{stack}.yaml"
    provider = yaml.safe_load(file.read_text("utf-8"))["config"]["gangway:provider"]
    package = provider_of(provider).sdk.removeprefix("pulumi-")
    with running_plugin(package, engine.cloud) as plugin:
        engine.env["PULUMI_DEBUG_PROVIDERS"] = f"{package}:{plugin.port}"
        engine.applied("up")
        engine.change(other_tags)
        preview = engine.run("preview")
        assert preview.status == 0, preview.text
        assert set(preview.changes) <= {"same", "update"}
        changed = engine.applied("up")
    assert set(changed.changes) == ({"same"} if provider == "hosts" else {"same", "update"})
