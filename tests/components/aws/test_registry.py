"""ImageRegistry: tags that cannot be moved, scans on push, old images dropped; references by digest."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from components.aws.registry import ImageRegistry, digest_reference, lifecycle_policy
from components.findings import InputError

DIGEST = "sha256:" + "0a" * 32


def test_the_repository_is_immutable_scanned_and_goes_with_the_stack(make: Callable[..., Any]) -> None:
    inputs = make(ImageRegistry).one("Repository").inputs
    assert inputs["imageTagMutability"] == "IMMUTABLE"
    assert inputs["imageScanningConfiguration"] == {"scanOnPush": True}
    assert inputs["forceDelete"] is True
    (encryption,) = inputs["encryptionConfigurations"]
    assert encryption == {"encryptionType": "KMS", "kmsKey": "arn:aws:kms:us-east-2:1:key/x"}
    assert "encryptionConfigurations" not in make(ImageRegistry, kms_key_arn=None).one("Repository").inputs


def test_untagged_images_go_after_two_weeks_and_the_newest_stay(make: Callable[..., Any]) -> None:
    made = make(ImageRegistry)
    declared = made.one("LifecyclePolicy").inputs
    assert declared["repository"] == "${Repository.demo-trainer.name}"
    assert json.loads(declared["policy"]) == lifecycle_policy()
    untagged, newest = lifecycle_policy()["rules"]
    assert (untagged["selection"]["tagStatus"], untagged["selection"]["countNumber"]) == ("untagged", 14)
    assert newest["selection"] == {"tagStatus": "any", "countType": "imageCountMoreThan", "countNumber": 20}
    assert untagged["rulePriority"] < newest["rulePriority"], "ECR refuses a rule for any tag that is not the last"


def test_an_image_is_named_by_its_content() -> None:
    assert digest_reference("host/x", DIGEST) == f"host/x@{DIGEST}"


@pytest.mark.parametrize("digest", ["", "latest", "sha256:12", DIGEST.upper(), f"{DIGEST}0", f" {DIGEST}"])
def test_what_is_no_digest_is_refused(digest: str) -> None:
    with pytest.raises(InputError) as caught:
        digest_reference("host/x", digest)
    assert (caught.value.place, caught.value.value) == ("gangway:job.image_digest", digest)
