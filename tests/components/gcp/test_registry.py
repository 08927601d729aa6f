"""The image repository: scanned, cleaned up, with tags that may move."""

from collections.abc import Callable
from typing import Any

from gangway.components.gcp.registry import LOGIN_USER, ImageRegistry

KEY = "projects/lab/locations/us-east5/keyRings/r/cryptoKeys/k"


def test_the_repository(
    make: Callable[..., Any], labels: dict[str, str], api_mistakes: Callable[..., list[str]]
) -> None:
    args: Any = {"project": "lab", "region": "us-east5", "kms_key_name": KEY, "tags": labels}
    repository = make(ImageRegistry, args).one("Repository").inputs
    assert (repository["repositoryId"], repository["location"]) == ("demo-trainer", "us-east5")
    assert (repository["kmsKeyName"], repository["labels"]) == (KEY, labels)
    assert repository["dockerConfig"] == {"immutableTags": False}, "`up` pushes the same tag again"
    assert repository["vulnerabilityScanningConfig"] == {"enablementConfig": "INHERITED"}
    keep, delete = repository["cleanupPolicies"]
    assert (keep["action"], keep["mostRecentVersions"]) == ("KEEP", {"keepCount": 40})
    assert (delete["action"], delete["condition"]) == ("DELETE", {"tagState": "ANY", "olderThan": "1209600s"})
    named = ("format", "mode", "dockerConfig", "vulnerabilityScanningConfig", "kmsKeyName", "labels")
    policies = {policy["id"]: policy for policy in repository["cleanupPolicies"]}
    body = {**{key: repository[key] for key in named}, "cleanupPolicies": policies}
    assert api_mistakes("artifactregistry.v1", "Repository", body) == []


def test_what_others_need_of_it(declare: Callable[..., Any], labels: dict[str, str]) -> None:
    seen: dict[str, str] = {}
    args: Any = {"project": "lab", "region": "us-east5", "tags": labels}

    def program() -> None:
        registry = ImageRegistry("demo", args)
        for key in ("repository_url", "repository_id", "registry_host"):
            getattr(registry, key).apply(lambda value, key=key: seen.update({key: value}))

    made = declare(program)
    assert seen == {
        "repository_url": "${Repository.demo-trainer.registryUri}/trainer",
        "repository_id": "${Repository.demo-trainer.id}",
        "registry_host": "us-east5-docker.pkg.dev",
    }
    (own,) = [r for r in made.resources if r.type == "gangway:gcp:ImageRegistry"]
    assert made.outputs[own.urn] == set(seen)
    assert LOGIN_USER == "oauth2accesstoken"
    assert "kmsKeyName" not in made.one("Repository").inputs
