"""Builds of an image template: run once, awaited, tried again after a failure; old images go."""

import asyncio
from typing import Any

import pulumi
import pytest

from gangway.components.azure import image_builds
from gangway.components.azure.api import API_URL
from gangway.components.azure.image_builds import finish_build, old_versions

GROUP = "/subscriptions/s/resourceGroups/demo-gangway-images/providers"
TEMPLATE = f"{GROUP}/Microsoft.VirtualMachineImages/imageTemplates/demo"
DEFINITION = f"{GROUP}/Microsoft.Compute/galleries/g/images/nodes"


@pytest.fixture(autouse=True)
def azure(azure_vm: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv(API_URL, azure_vm.url)
    monkeypatch.setattr(image_builds, "PAUSES_SEC", (0.0, 0.0))
    monkeypatch.setattr(image_builds, "POLL_SEC", 0.0)
    monkeypatch.setattr(pulumi.log, "info", lambda *_: None)
    return azure_vm


async def token() -> str:
    return "token"


def build(keep: int | None = 2, template: str = TEMPLATE) -> str:
    loop = asyncio.new_event_loop()  # asyncio.run would take Pulumi's away
    try:
        return loop.run_until_complete(finish_build(template, DEFINITION, keep, token))
    finally:
        loop.close()


def posts(azure: Any) -> int:
    return sum(call.method == "POST" for call in azure.calls)


def test_a_template_runs_once(azure: Any) -> None:
    image = build()
    assert image in azure.images
    assert build() == image
    assert posts(azure) == 1


def test_a_build_that_is_under_way_is_awaited(azure: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    build()
    states = iter(["Running", "Running", "Succeeded"])
    monkeypatch.setattr(
        image_builds, "_last_run", lambda *_: {"runState": next(states, "Succeeded"), "startTime": "then"}
    )
    build()
    assert posts(azure) == 1, "an interrupted `up` pays for no second build"


def test_after_a_failure_the_next_up_builds_again(azure: Any) -> None:
    azure.next_run = "Failed"
    with pytest.raises(pulumi.RunError, match=r"ended with Failed: as the test wants; customization.log"):
        build()
    azure.next_run = "Succeeded"
    assert build() in azure.images
    assert posts(azure) == 2


def test_a_preview_starts_no_build_and_deletes_nothing(azure: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pulumi.runtime, "is_dry_run", lambda: True)
    assert build() == ""
    assert {call.method for call in azure.calls} == {"GET"}


def test_the_newest_images_stay(azure: Any) -> None:
    made = [build(template=f"{TEMPLATE}{number}") for number in range(4)]
    assert list(azure.images) == made[2:]


def test_without_a_number_all_stay(azure: Any) -> None:
    made = [build(None, f"{TEMPLATE}{number}") for number in range(4)]
    assert list(azure.images) == made


def version(name: str, day: int, state: str = "Succeeded") -> dict[str, Any]:
    profile = {"publishedDate": f"2026-12-{day:02d}T00:00:00Z"}
    return {"id": name, "properties": {"publishingProfile": profile, "provisioningState": state}}


def test_a_failed_image_counts_for_none() -> None:
    versions = [version("old", 1), version("used", 2), version("bad", 3, "Failed"), version("new", 4)]
    assert old_versions([*versions, version("made", 5, "Creating")], 2) == ["bad", "old"]


@pytest.mark.parametrize(("status", "asked"), [(403, 1), (500, 3)])
def test_a_refusal_is_reported_with_a_fix(azure: Any, monkeypatch: pytest.MonkeyPatch, status: int, asked: int) -> None:
    monkeypatch.setattr(azure, "api", lambda call: (status, b""))
    with pytest.raises(pulumi.RunError, match=r"no machine image: .*; run `az login`, then `pulumi up --refresh`"):
        build()
    assert len(azure.calls) == asked
