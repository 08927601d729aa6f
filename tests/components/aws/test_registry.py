"""ImageRegistry: tags that cannot be moved but for those of `up`, scans on push, old images dropped."""

import json
from collections.abc import Callable
from typing import Any

from gangway.components.aws.registry import ImageRegistry, lifecycle_policy


def test_the_repository_is_immutable_scanned_and_goes_with_the_stack(make: Callable[..., Any]) -> None:
    inputs = make(ImageRegistry).one("Repository").inputs
    assert inputs["imageTagMutability"] == "IMMUTABLE_WITH_EXCLUSION"
    filters = inputs["imageTagMutabilityExclusionFilters"]
    assert filters == [{"filter": tags, "filterType": "WILDCARD"} for tags in ("buildcache", "content-*")]
    assert len(filters) <= 5, "as many as ECR takes"
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
