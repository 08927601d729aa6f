"""Checks on OpenStack: openstacksdk's own login and calls, against an HTTP stand-in."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gangway.components.core.findings import InputError
from gangway.live.preflight.check import Answer, State
from gangway.live.preflight.openstack import get_checks
from gangway.stacks.loading.loader import from_file
from gangway.stacks.plan.plan import Plan, make_plan

# openstacksdk warns of its own optional parts.
pytestmark = pytest.mark.filterwarnings("ignore:Support for")
EXTERNAL, RDMA = "11111111-0000-4000-8000-111111111111", "22222222-0000-4000-8000-222222222222"
SERVICES = ("compute", "image", "network", "block-storage", "shared-file-system")
Checked = Callable[..., dict[str, Answer]]


@pytest.fixture(scope="module")
def plan(repo: Path) -> Plan:
    return make_plan(from_file(repo / "stacks" / "Pulumi.openstack-gpu.yaml"))


@pytest.fixture
def good(cloud: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    clouds = tmp_path / "clouds.yaml"
    clouds.write_text(
        f"clouds: {{lab: {{auth: {{auth_url: '{cloud.url}/v3', username: u, password: p, project_name: p, "
        "user_domain_name: d, project_domain_name: d}, region_name: RegionOne}}\n"
    )
    monkeypatch.setenv("OS_CLIENT_CONFIG_FILE", str(clouds))
    catalog = [
        {"type": name, "endpoints": [{"interface": "public", "region_id": "RegionOne", "url": f"{cloud.url}/{name}"}]}
        for name in SERVICES
    ]
    token = {"catalog": catalog, "expires_at": "2099-01-01T00:00:00Z", "methods": ["password"]}
    version = {"id": "v3.14", "status": "stable", "links": [{"rel": "self", "href": f"{cloud.url}/v3/"}]}
    cloud.answers = {
        "/v3": {"version": version},
        "/v3/auth/tokens": {"token": token},
        "/compute/limits": {
            "limits": {"absolute": {"maxTotalInstances": 10, "totalInstancesUsed": 1, "maxTotalCores": -1}}
        },
        "/compute/flavors": {"flavors": [{"id": "1", "name": "gpu.h100x8"}, {"id": "2", "name": "m1.medium"}]},
        "/image/v2/images": {
            "images": [
                {"id": "3", "name": "ubuntu-24.04-nvidia-580", "status": "active"},
                {"id": "4", "name": "ubuntu-24.04", "status": "active"},
            ]
        },
        "/network/v2.0/networks": {"networks": [{"id": each, "status": "ACTIVE"} for each in (EXTERNAL, RDMA)]},
        "/shared-file-system/types": {"share_types": [{"id": "5", "name": "cephfsnfstype"}]},
    }
    return cloud


@pytest.fixture
def checked(good: Any, plan: Plan, outcomes: Any) -> Checked:
    def run(changes: dict[str, Any]) -> dict[str, Answer]:
        good.answers.update(changes)
        found: dict[str, Answer] = outcomes(get_checks(plan))
        return found

    return run


def test_a_cloud_with_everything_is_fine(checked: Checked) -> None:
    found = checked({})
    assert {name: answer.result for name, answer in found.items() if answer.result.state is not State.OK} == {}
    assert found["quota of vCPUs of the nodes"].result.answer == "768 needed, no limit"


@pytest.mark.parametrize(
    ("changes", "subject", "state", "words"),
    [
        (
            {"/compute/limits": {"limits": {"absolute": {"maxTotalInstances": 3, "maxTotalCores": 1000}}}},
            "quota of instances", State.ERROR, "5 needed, limit 3",
        ),
        ({"/compute/limits": 403}, "quota of instances", State.UNKNOWN, "no permission"),
        ({"/compute/flavors": {"flavors": []}}, "flavour gpu.h100x8", State.ERROR, "gangway:cluster.machine_type"),
        (
            {"/image/v2/images": {"images": [{"id": "3", "name": "ubuntu-24.04", "status": "queued"}]}},
            "image ubuntu-24.04", State.ERROR, "queued",
        ),
        (
            {"/image/v2/images": {"images": [{"id": each, "name": "ubuntu-24.04"} for each in "34"]}},
            "image ubuntu-24.04", State.ERROR, "2 have this name",
        ),
        ({"/network/v2.0/networks": {"networks": []}}, f"RDMA network {RDMA}", State.ERROR, "not among 0"),
    ],
)  # fmt: skip
def test_what_is_missing(checked: Checked, changes: Any, subject: str, state: State, words: str) -> None:
    found = checked(changes)[subject].result
    assert found.state is state
    assert words in f"{found.answer} {found.fix}"


def test_no_credentials(good: Any, plan: Plan) -> None:
    good.answers["/v3/auth/tokens"] = 401
    with pytest.raises(InputError, match="no valid credentials") as caught:
        get_checks(plan)
    assert "clouds.yaml" in caught.value.fix
