"""Data that is still there holds its key and its protections: under the real engine, over stand-ins of the clouds."""

import json
from typing import Any

import pytest

pytestmark = [pytest.mark.engine, pytest.mark.timeout(900)]

HEAD = """
import json, pathlib, pulumi
from types import SimpleNamespace
from gangway.components.core.lookup import record_choice
from gangway.components.core.findings import InputError
from gangway.stacks.base.ownership import check_encryption, own_state
encryption = json.loads(pathlib.Path("args.json").read_text())["encryption"]
try:  # as stacks/__main__.py does before it declares anything
    check_encryption(SimpleNamespace(stack="dev", encryption=encryption), own_state())
except InputError as mistake:
    raise pulumi.RunError(str(mistake)) from None
record_choice("dev", encryption)
key = None
"""
AWS = """
from gangway.components.aws.identity import EncryptionKey
from gangway.components.aws.storage import RunBucket
import pulumi_aws as aws
opts = pulumi.ResourceOptions(providers={"aws": aws.Provider("dev", region="us-east-1")})
if encryption == "customer-key":
    key = EncryptionKey("dev", {"region": "us-east-1", "tags": {}}, opts).key_arn
RunBucket("dev", {"kms_key_arn": key, "tags": {}}, opts)
"""
GCP = """
from gangway.components.gcp.identity import EncryptionKey
from gangway.components.gcp.storage import ImageRegistry
from gangway.components.gcp.storage import RunBucket
import pulumi_gcp as gcp
opts = pulumi.ResourceOptions(providers={"gcp": gcp.Provider("dev", project="lab", region="us-central1")})
place = {"project": "lab", "region": "us-central1", "tags": {}}
agents = {name: f"serviceAccount:{name}@lab.iam.gserviceaccount.com" for name in ("storage", "logging")}
if encryption == "customer-key":
    users = {"project_number": "123456789012", "services": [], "agents": agents}
    key = EncryptionKey("dev", {**place, **users}, opts).key_name
RunBucket("dev", {**place, "kms_key_name": key}, opts)
ImageRegistry("dev", {**place, "kms_key_name": key}, opts)
"""
AZURE = """
from gangway.components.azure.identity import EncryptionKey, ResourceGroup
from gangway.components.azure.storage import RunBucket
import pulumi_azure_native as azure
location, subscription = "eastus", "00000000-0000-0000-0000-000000000000"
made = azure.Provider("dev", location=location, subscription_id=subscription)
opts = pulumi.ResourceOptions(providers={"azure-native": made})
group = ResourceGroup("dev", {"location": "eastus", "tags": {}}, opts)
place = {"resource_group_name": group.resource_group_name, "location": "eastus", "tags": {}}
if encryption == "customer-key":
    whose = {"subscription_id": subscription, "tenant_id": subscription, "stack": "dev"}
    made = EncryptionKey("dev", {**place, **whose}, opts)
    key = {name: getattr(made, name) for name in ("key_name", "key_url", "vault_uri", "vault_id", "identity_id")}
RunBucket("dev", {**place, "zone": "", "key": key}, opts)
"""
PROGRAMS = {"aws": HEAD + AWS, "gcp": HEAD + GCP, "azure": HEAD + AZURE}
BUCKETS = {"aws": "aws:s3/bucket:Bucket", "gcp": "gcp:storage/bucket:Bucket"}
# The disks of machines go with the machines, and what encrypts them too.
OF_MACHINES = ("azure-native:compute:DiskEncryptionSet", "-disks-use")
# Images can be built again.
REBUILT = "gcp:artifactregistry/repository:Repository"


def standing(engine: Any) -> dict[str, dict[str, Any]]:
    """What the cloud holds, by URN, with its inputs; without what tests put there."""
    return {one["urn"]: one["inputs"] for one in engine.resources() if one["urn"]}


@pytest.mark.parametrize("provider", BUCKETS)
def test_a_bucket_with_records_holds_its_key_and_protections(make_program_engine: Any, provider: str) -> None:
    engine = make_program_engine(PROGRAMS[provider], {"encryption": "customer-key"})
    engine.applied("up")
    before = standing(engine)
    (bucket,) = (one["id"] for one in engine.resources() if one["type"] == BUCKETS[provider])
    record = engine.put(bucket, "run.json")
    destroy = engine.run("destroy", "--yes", "--skip-preview")
    assert destroy.status != 0
    assert bucket in destroy.text
    left = standing(engine)
    assert {urn for urn in before if REBUILT not in urn} <= left.keys()
    assert all(before[urn] == inputs for urn, inputs in left.items()), "with the same settings"
    # The stack can be brought up again over what is there, and ends once the bucket is empty.
    engine.applied("up")
    assert standing(engine).keys() == before.keys()
    record.unlink()
    engine.applied("destroy")
    # What S3 deletes with the bucket itself, the stand-in's cloud still has.
    assert {urn for urn in standing(engine) if "$aws:s3/bucket" not in urn or f"${BUCKETS['aws']}::" in urn} == set()
    assert json.loads(engine.plain("stack", "export"))["deployment"].get("resources", []) == []


def test_azure_leaves_data_with_everything_that_guards_it(make_program_engine: Any) -> None:
    engine = make_program_engine(PROGRAMS["azure"], {"encryption": "customer-key"})
    engine.applied("up")
    before = {urn: inputs for urn, inputs in standing(engine).items() if not any(one in urn for one in OF_MACHINES)}
    engine.applied("destroy")
    assert standing(engine) == before
    kinds = {urn.split("::")[2].rpartition("$")[2] for urn in before}
    assert {"azure-native:keyvault:Key", "azure-native:storage:StorageAccount"} < kinds


@pytest.mark.parametrize("first", ["customer-key", "provider-key"])
def test_another_kind_of_key_is_refused_before_anything_changes(make_program_engine: Any, first: str) -> None:
    """The same on any provider: every program records the choice (tests/stacks/plan/rules/test_retention.py)."""
    engine = make_program_engine(PROGRAMS["aws"], {"encryption": first})
    first_preview = engine.run("preview")
    assert first_preview.status == 0, first_preview.text
    engine.applied("up")
    before = standing(engine)
    other = {"customer-key": "provider-key", "provider-key": "customer-key"}[first]
    (engine.project / "args.json").write_text(json.dumps({"encryption": other}), "utf-8")
    for command in (["preview"], ["up", "--yes", "--skip-preview"]):
        outcome = engine.run(*command)
        assert outcome.status != 0
        assert "gangway:encryption: cannot be changed" in outcome.text
        assert f"set encryption: {first}" in outcome.text
        assert "Traceback" not in outcome.text, outcome.text
    assert standing(engine) == before
    (engine.project / "args.json").write_text(json.dumps({"encryption": first}), "utf-8")
    engine.applied("up", "--expect-no-changes")
