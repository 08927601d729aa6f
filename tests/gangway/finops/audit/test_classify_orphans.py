"""What is an orphan and what is not; the state it is compared with; what an hour of it costs."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangway.components.core.findings import InputError
from gangway.finops.audit.classify_orphans import Billed, CloudResource, classify_orphans, hourly_usd, price
from gangway.finops.audit.state import export_state, parse_state, read_state


def thing(key: str, *owners: str, **more: Any) -> CloudResource:
    return CloudResource(key, frozenset({key}), "kind", key, "us-east-1", frozenset(owners), **more)


def verdicts(resources: list[CloudResource], known: set[str]) -> dict[str, str]:
    return {each.resource.id: each.verdict for each in classify_orphans(resources, known)}


def test_each_resource_has_one_verdict() -> None:
    resources = [
        thing("vpc"),
        thing("node", "group"),
        thing("disk", "node"),
        thing("stray"),
        thing("stray-disk", "stray"),
        thing("old", gone="terminated"),
        thing("bucket", kept="runs"),
        thing("state-bucket", kept="runs"),
    ]
    assert verdicts(resources, {"vpc", "group", "state-bucket"}) == {
        "vpc": "in-state",
        "node": "belongs",
        "disk": "belongs",
        "stray": "orphan",
        "stray-disk": "orphan",
        "old": "gone",
        "bucket": "kept",
        "state-bucket": "in-state",
    }


def test_reasons_name_the_owner() -> None:
    node, disk = classify_orphans([thing("node", "group"), thing("disk", "nobody")], {"group"})
    assert node.reason == "belongs to group"
    assert disk.reason == "not in the state; its owner is not in the state either: nobody"


@given(known=st.sets(st.sampled_from("abcdef")), owners=st.lists(st.sampled_from("abcdefx"), min_size=6, max_size=6))
def test_orphans_are_what_no_chain_of_owners_leads_from_to_the_state(known: set[str], owners: list[str]) -> None:
    own = dict(zip("abcdef", owners, strict=True))
    found = verdicts([thing(key, owner) for key, owner in own.items()], known)
    for start, verdict in found.items():
        key, seen = start, set()
        while key not in known and key in own and key not in seen:
            seen.add(key)
            key = own[key]
        assert (verdict == "orphan") == (key not in known)


STATE = {
    "version": 3,
    "deployment": {
        "manifest": {"time": "2026-11-21T00:00:00Z", "magic": "", "version": "v3.200.0"},
        "resources": [
            {"urn": "urn:pulumi:s::gangway::pulumi:pulumi:Stack::s", "custom": False, "type": "pulumi:pulumi:Stack"},
            {
                "urn": "urn:pulumi:s::gangway::aws:ec2/vpc:Vpc::s",
                "custom": True,
                "id": "vpc-0123456789abcdef0",
                "type": "aws:ec2/vpc:Vpc",
                "inputs": {},
                "outputs": {"arn": "arn:aws:ec2:us-east-2:123456789012:vpc/vpc-0123456789abcdef0"},
            },
            {
                "urn": "urn:pulumi:s::gangway::aws:s3/bucket:Bucket::data",
                "custom": True,
                "external": True,
                "id": "somebody-elses",
                "type": "aws:s3/bucket:Bucket",
            },
        ],
    },
}


def test_the_state_is_read_without_components_and_without_what_is_only_read(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    path.write_text(json.dumps(STATE))
    state = read_state(path)
    (vpc,) = state.resources
    assert (vpc.type, vpc.id) == ("aws:ec2/vpc:Vpc", "vpc-0123456789abcdef0")
    assert state.source == f"--state {path}"
    assert parse_state('{"version": 3, "deployment": {"manifest": {}}}', "x").resources == ()


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"deployment": 3}', '{"deployment": {"resources": [{"id": "x"}]}}'])
def test_what_is_no_state_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "state.json"
    path.write_text(text)
    with pytest.raises(InputError, match="contains no Pulumi state") as caught:
        read_state(path)
    assert "--state state.json" in caught.value.fix


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="No such file"):
        read_state(tmp_path / "state.json")
    (tmp_path / "state.json").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="is not text"):
        read_state(tmp_path / "state.json")


def _pulumi(folder: Path, script: str) -> None:
    """A `pulumi` that does what the script says."""
    command = folder / "pulumi"
    command.write_text(f"#!/bin/sh\n{script}\n")
    command.chmod(0o755)


def test_the_cli_is_asked_for_the_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    (tmp_path / "export.json").write_text(json.dumps(STATE))
    _pulumi(tmp_path, f'echo "$@" > {tmp_path}/asked; cat {tmp_path}/export.json')
    assert len(export_state("aws-demo", tmp_path).resources) == 1
    asked = (tmp_path / "asked").read_text()
    assert asked == f"stack export --stack aws-demo --cwd {tmp_path} --non-interactive\n"
    _pulumi(tmp_path, "echo 'error: no stack named aws-demo found' >&2; exit 255")
    with pytest.raises(InputError, match="no stack named aws-demo found") as caught:
        export_state("aws-demo", tmp_path)
    assert "--no-state" in caught.value.fix
    monkeypatch.setenv("PATH", str(tmp_path / "nowhere"))
    with pytest.raises(InputError, match="not installed"):
        export_state("aws-demo", tmp_path)


def test_an_hour_costs_what_the_catalogue_says() -> None:
    def usd(*billed: Billed, provider: Any = "aws", region: str = "us-east-1") -> float | None:
        return hourly_usd(price(thing("x", billed=billed), provider, region))

    assert usd(Billed("p5.48xlarge", kind="machine")) == pytest.approx(55.04)
    assert usd(Billed("p5.48xlarge", kind="machine", market="spot")) == pytest.approx(18.7089)
    assert usd(Billed("t3.medium", kind="machine")) == pytest.approx(0.0416)
    assert usd(Billed("ebs-gp3", 730)) == pytest.approx(0.08)
    assert usd() == 0.0
    assert usd(Billed("p9.giant", kind="machine")) is None
    assert usd(Billed("ebs-gp3", 730), Billed("ebs-io9", 1)) is None
    assert usd(Billed("v5p-8", kind="slice"), provider="gcp", region="us-east5") == pytest.approx(4 * 4.2)
    assert usd(Billed("v99-8", kind="slice"), provider="gcp", region="us-east5") is None
    (unknown,) = price(thing("x"), "aws", "us-east-1")
    assert unknown.hourly is None
    assert "usage-based" in unknown.source


def test_a_price_of_another_region_says_so() -> None:
    (line,) = price(thing("x", billed=(Billed("p5.48xlarge", kind="machine"),)), "aws", "sa-east-1")
    assert "price of us-east-1" in line.source
