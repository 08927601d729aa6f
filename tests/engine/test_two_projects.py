"""Two projects with one stack name in one account, under the real engine; the clouds are stand-ins."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import yaml

API = "gcp:projects/service:Service"

pytestmark = [pytest.mark.engine, pytest.mark.timeout(900)]


@pytest.fixture
def make_project(make_engine: Callable[[str], Any], standin: Any) -> Callable[[str], Any]:
    """Makes an Engine for a stack of the project `speech`."""

    def make(stack: str) -> Any:
        engine = make_engine(stack)

        def ask_the_standin(config: dict[str, Any]) -> None:
            if "gangway:gcp" in config:
                config["gangway:gcp"]["tpu_api_url"] = standin.url

        engine.change(ask_the_standin)
        call(engine, "speech")
        # The project has changed its name, and with it the backend's folder of the stack.
        engine.plain("stack", "init", stack)
        return engine

    return make


def call(engine: Any, name: str) -> None:
    """Gives the project another name; like one of `gangway init`, it then declares no settings of its own."""
    file = engine.project / "Pulumi.yaml"
    declared = {**yaml.safe_load(file.read_text("utf-8")), "name": name}
    declared.pop("config", None)
    file.write_text(yaml.safe_dump(declared, sort_keys=False), "utf-8")


def beside(engine: Any, folder: str, name: str, **changes: Any) -> Any:
    """A copy of an engine's project, in the same cloud."""
    project = engine.project.with_name(folder)
    shutil.copytree(engine.project, project, symlinks=True)
    copied = replace(engine, project=project, **changes)
    call(copied, name)
    copied.plain("stack", "init", engine.stack)
    return copied


def elsewhere(engine: Any) -> Any:
    """The same project with a backend that does not have the state."""
    state = engine.state.with_name("other-state")
    state.mkdir()
    return beside(engine, "other", "speech", state=state, env={**engine.env, "PULUMI_BACKEND_URL": state.as_uri()})


def texts(engine: Any, project: str) -> dict[str, str]:
    """What the cloud holds of a project: id -> everything about it. APIs are the Google project's own: either enables
    them, and none disables them.
    """
    mark = f"::{project}::"
    own = (one for one in engine.resources() if mark in one["urn"] and one["type"] != API)
    return {one["id"]: json.dumps(one) for one in own}


@pytest.mark.parametrize("stack", ["aws-g5-dev", "azure-nc-dev", "gcp-v5e-pod", "openstack-gpu"])
def test_two_projects_live_side_by_side(make_project: Callable[[str], Any], standin: Any, stack: str) -> None:
    speech = make_project(stack)
    speech.applied("up")
    before, queued = texts(speech, "speech"), list(standin.cloud.queued)
    assert before

    cardio = beside(speech, "cardio", "cardio")
    cardio.applied("up")
    own = texts(cardio, "cardio")
    assert len(own) == len(before)
    assert texts(speech, "speech") == before
    # No filter, tag, role, condition, log group or request of one names the other.
    assert not [text for text in own.values() if "speech" in text]
    assert not [text for text in before.values() if "cardio" in text]
    assert len(standin.cloud.queued) == 2 * len(queued)

    cardio.applied("destroy")
    assert texts(speech, "speech") == before
    assert list(standin.cloud.queued) == queued
    speech.applied("up", "--refresh", "--expect-no-changes")
    speech.applied("destroy")


@pytest.mark.parametrize("stack", ["aws-g5-dev", "azure-nc-dev", "gcp-v5e-pod", "openstack-gpu"])
def test_the_same_project_elsewhere_is_refused_before_its_first_resource(
    make_project: Callable[[str], Any], standin: Any, stack: str
) -> None:
    speech = make_project(stack)
    speech.applied("up")
    before, queued = speech.resources(), list(standin.cloud.queued)
    other = elsewhere(speech)
    for command in (("preview",), ("up", "--yes", "--skip-preview")):
        outcome = other.run(*command)
        assert outcome.status != 0
        assert "another stack of this identity is up" in outcome.text
        assert "team ml-platform" in outcome.text or stack == "gcp-v5e-pod"
        assert "delete" not in outcome.text.partition("another stack of this identity")[2]
        assert "Traceback" not in outcome.text
    assert speech.resources() == before
    assert list(standin.cloud.queued) == queued
    # A stack that is up asks nobody, and one with an identity of its own is another's neighbour.
    speech.applied("up", "--expect-no-changes")
    other.plain("config", "set", "gangway:identity", "speech-2", "--stack", stack)
    assert other.run("preview").status == 0


def test_a_key_that_destroy_left_is_refused_elsewhere(make_project: Callable[[str], Any]) -> None:
    speech = make_project("aws-g5-dev")
    speech.change(lambda config: config.update({"gangway:encryption": "customer-key"}))
    speech.applied("up")
    (bucket,) = (one["id"] for one in speech.resources() if one["type"] == "aws:s3/bucket:Bucket")
    record = speech.put(bucket, "run.json")
    assert speech.run("destroy", "--yes", "--skip-preview", "--continue-on-error").status != 0
    left = speech.resources()
    assert "aws:iam/role:Role" not in {one["type"] for one in left}
    outcome = elsewhere(speech).run("preview")
    assert outcome.status != 0
    assert "was destroyed and left its run records: KMS key alias/speech-aws-g5-dev-" in outcome.text
    assert "team ml-platform" in outcome.text
    assert speech.resources() == left
    # Its own state has the key.
    speech.applied("up")
    record.unlink()
    speech.applied("destroy")


def test_a_renamed_stack_is_refused_until_its_identity_is_kept(make_project: Callable[[str], Any]) -> None:
    engine = make_project("openstack-gpu")
    engine.applied("up")
    before = engine.resources()
    engine.plain("stack", "rename", "lab", "--stack", engine.stack)
    renamed = replace(engine, stack="lab")
    for command in (("preview",), ("up", "--yes", "--skip-preview")):
        outcome = renamed.run(*command)
        assert outcome.status != 0
        assert "stack lab: gangway:identity: this stack exists as 'speech-openstack-gpu-" in outcome.text
        assert "pulumi config set gangway:identity speech-openstack-gpu-" in outcome.text
        assert "Traceback" not in outcome.text
    assert renamed.resources() == before
    identity = outcome.text.partition("exists as '")[2].partition("'")[0]
    renamed.plain("config", "set", "gangway:identity", identity, "--stack", "lab")
    assert set(renamed.run("preview").changes) == {"same"}
    renamed.applied("up", "--expect-no-changes")
    renamed.applied("destroy")
