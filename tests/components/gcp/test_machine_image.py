"""MachineImage on Google Cloud: the calls that build it and delete old ones, to a stand-in with Google's fields."""

from typing import Any

import pytest

from gangway.components.gcp import machine_image
from gangway.components.gcp.machine_image import STARTUP, BuiltImageProvider, image_name
from gangway.components.gcp.tpu.api import TpuError

SCRIPT = "#!/usr/bin/env bash\necho hello\n"
LABELS = {"gangway-stack": "demo", "gangway-role": "machine-image", "team": "ml"}
PROVIDER = BuiltImageProvider()


def props(compute: Any, script: str = SCRIPT, **changed: Any) -> dict[str, Any]:
    base = "projects/p/global/images/base"
    return {
        "project": "acme-ml",
        "zone": "us-central1-a",
        "image": image_name("demo", base, script, 100),
        "base_image": base,
        "script": script,
        "subnet_id": "projects/acme-ml/regions/us-central1/subnetworks/demo",
        "security_group_ids": ["demo-fabric"],
        "service_account_email": "demo-node@acme-ml.iam.gserviceaccount.com",
        "root_volume_gib": 100,
        "secure_boot": True,
        "kms_key_name": None,
        "keep": 2,
        "labels": LABELS,
        "api_url": f"{compute.url}/compute.googleapis.com",
        **changed,
    }


@pytest.fixture(autouse=True)
def _hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine_image, "POLL_SEC", 0.01)


def test_a_builder_provisions_the_image_and_goes(compute: Any) -> None:
    compute.is_slow = True
    created = PROVIDER.create(props(compute))
    assert created.id == "acme-ml/demo/machine-image"
    (image,) = compute.images.values()
    assert image["name"] == (created.outs or {})["image"]
    assert image["labels"] == LABELS
    assert compute.instances == {}


def test_the_builder_has_the_script_no_address_and_an_end(compute: Any) -> None:
    key = "projects/acme-ml/locations/us-central1/keyRings/r/cryptoKeys/k"
    PROVIDER.create(props(compute, kms_key_name=key, secure_boot=False))
    body = next(call.body for call in compute.calls if call.path.endswith("/instances"))
    metadata = {item["key"]: item["value"] for item in body["metadata"]["items"]}
    assert metadata["gangway-script"] == SCRIPT
    assert metadata["startup-script"] == STARTUP
    assert metadata["enable-guest-attributes"] == "TRUE"
    (interface,) = body["networkInterfaces"]
    assert "accessConfigs" not in interface
    assert body["scheduling"]["instanceTerminationAction"] == "DELETE"
    assert int(body["scheduling"]["maxRunDuration"]["seconds"]) > machine_image.BUILD_SEC
    assert body["shieldedInstanceConfig"]["enableSecureBoot"] is False
    assert body["disks"][0]["diskEncryptionKey"] == {"kmsKeyName": key}
    (image,) = compute.images.values()
    assert image["imageEncryptionKey"] == {"kmsKeyName": key}


def test_an_image_that_exists_is_not_built_again(compute: Any) -> None:
    PROVIDER.create(props(compute))
    PROVIDER.update("id", props(compute), props(compute, keep=3))
    assert len(compute.made()) == 1


def test_only_another_image_keep_or_project_is_a_change(compute: Any) -> None:
    old = props(compute)
    assert not PROVIDER.diff(
        "id", old, props(compute, labels={**LABELS, "team": "other"}, zone="us-central1-b")
    ).changes
    assert PROVIDER.diff("id", old, props(compute, keep=3)).changes
    changed = PROVIDER.diff("id", old, props(compute, script="other"))
    assert (changed.changes, changed.replaces) == (True, [])
    assert PROVIDER.diff("id", old, props(compute, project="other")).replaces == ["project"]


def test_the_newest_stay_and_the_current_one_among_them(compute: Any) -> None:
    scripts = ["one", "two", "three"]
    for script in scripts:
        PROVIDER.create(props(compute, script))
    assert list(compute.images) == [props(compute, script)["image"] for script in ("two", "three")]
    PROVIDER.update("id", {}, props(compute, "two"))
    PROVIDER.update("id", {}, props(compute, "four"))
    PROVIDER.update("id", {}, props(compute, "three"))
    assert props(compute, "three")["image"] in compute.images
    assert len(compute.images) == 2


def test_images_of_others_stay(compute: Any) -> None:
    PROVIDER.create(props(compute))
    PROVIDER.create(props(compute, "other", labels={**LABELS, "gangway-stack": "other"}))
    PROVIDER.delete("id", props(compute))
    (left,) = compute.images.values()
    assert left["labels"]["gangway-stack"] == "other"


def test_what_an_interrupted_run_left_is_made_again(compute: Any) -> None:
    name = props(compute)["image"]
    compute.instances[name] = {"name": name, "status": "RUNNING"}
    compute.images[name] = {"name": name, "status": "FAILED", "labels": LABELS, "creationTimestamp": ""}
    PROVIDER.create(props(compute))
    assert compute.images[name]["status"] == "READY"
    assert compute.instances == {}


@pytest.mark.parametrize("result", ["failed: cannot pull trainer", "failed: "])
def test_a_script_that_fails_is_told_and_the_builder_goes(compute: Any, result: str) -> None:
    compute.result = result
    with pytest.raises(TpuError, match=f"the machine image was not built: {result}"):
        PROVIDER.create(props(compute))
    assert (compute.instances, compute.images) == ({}, {})


def test_a_builder_that_says_nothing_is_given_up(compute: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine_image, "BUILD_SEC", 0)
    compute.result = None
    with pytest.raises(TpuError, match="no result after 0 s"):
        PROVIDER.create(props(compute))
    assert compute.instances == {}


def test_an_operation_that_fails_is_told(compute: Any) -> None:
    compute.failing = "Quota 'CPUS' exceeded. Limit: 8.0"
    with pytest.raises(TpuError, match="Quota 'CPUS' exceeded"):
        PROVIDER.create(props(compute))


def test_names_follow_from_what_is_built() -> None:
    names = {
        image_name(stack, base, script, size)
        for stack, base, script, size in (
            ("demo", "b", "s", 100), ("demo", "c", "s", 100), ("demo", "b", "t", 100), ("demo", "b", "s", 200),
            ("a" * 63, "b", "s", 100),
        )
    }  # fmt: skip
    assert len(names) == 5
    assert all(len(name) <= 63 for name in names)
