"""Every manifest against the schemas of three versions of Kubernetes, strictly: a field nobody knows is an error."""

from typing import Any

import kubernetes_validate  # type: ignore[import-untyped]  # ships no types
import pytest

from gangway.components.kubernetes.namespaces import namespace_manifests
from gangway.components.kubernetes.spec import ClusterSpec

VERSIONS = ("1.35", "1.36", "1.37")
LUSTRE = {"csi": {"driver": "fsx.csi.aws.com", "volumeAttributes": {"dnsname": "fs", "mountname": "m"}}}


@pytest.fixture
def manifests(two_teams: ClusterSpec) -> tuple[dict[str, Any], ...]:
    """Those of kinds that Kubernetes has itself; Kueue's are judged by its own webhooks (tests/gangway/jobs)."""
    made = namespace_manifests(two_teams, {**LUSTRE, "mountOptions": ["flock"]}, 1200)
    assert made
    return made


@pytest.mark.parametrize("version", VERSIONS)
def test_they_are_valid(manifests: tuple[dict[str, Any], ...], version: str) -> None:
    for each in manifests:
        kubernetes_validate.validate(each, version, strict=True)


@pytest.mark.slow
@pytest.mark.parametrize("version", VERSIONS)
def test_a_misspelt_field_is_found(manifests: tuple[dict[str, Any], ...], version: str) -> None:
    for each in manifests:
        body = next((key for key in ("spec", "metadata") if key in each), "metadata")
        wrong = {**each, body: {**each[body], "podSelectr": {}}}
        with pytest.raises(kubernetes_validate.ValidationError):
            kubernetes_validate.validate(wrong, version, strict=True)
