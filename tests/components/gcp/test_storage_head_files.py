"""The bucket of what `up` writes for the head: as closed as the other, and it never holds a destroy up."""

from collections.abc import Callable
from typing import Any

import pytest

from gangway.components.gcp.storage import HeadFiles


@pytest.mark.parametrize("key", [None, "projects/lab/locations/us-east5/keyRings/r/cryptoKeys/k"])
def test_it_is_closed_and_goes_with_the_stack(
    make: Callable[..., Any], labels: dict[str, str], key: str | None, api_mistakes: Callable[..., list[str]]
) -> None:
    args = {"project": "lab", "region": "us-east5", "kms_key_name": key, "tags": labels}
    bucket = make(HeadFiles, args).one("Bucket").inputs
    assert bucket["forceDestroy"] is True
    assert "versioning" not in bucket, "an earlier version would be left behind"
    assert bucket["softDeletePolicy"] == {"retentionDurationSeconds": 0}
    assert (bucket["uniformBucketLevelAccess"], bucket["publicAccessPrevention"]) == (True, "enforced")
    assert bucket.get("encryption") == ({"defaultKmsKeyName": key} if key else None)
    assert (bucket["location"], bucket["labels"]) == ("us-east5", labels)
    body = {
        "iamConfiguration": {"publicAccessPrevention": bucket["publicAccessPrevention"]},
        "softDeletePolicy": bucket["softDeletePolicy"],
        "labels": bucket["labels"],
    }
    assert api_mistakes("storage.v1", "Bucket", body) == []
