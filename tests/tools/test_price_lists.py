"""From lists as others publish them to rows of the catalogue: prices by hand, and what is left out."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml

from tools.price_lists import READERS, list_text

ABOUT = {"name": "a-list", "title": "A list", "url": "https://example.com/list", "read_on": "2026-11-30"}


def rows(text: str, table: str) -> list[str]:
    lists: list[dict[str, Any]] = yaml.safe_load(text)["lists"]
    return [line for one in lists for line in one.get(table, "").splitlines() if not line.startswith("#")]


def skypilot(folder: Path, name: str, lines: Iterable[str]) -> None:
    (folder / "a-list").mkdir(exist_ok=True)
    head = "InstanceType,Price,SpotPrice,Region,AvailabilityZone"
    (folder / "a-list" / name).write_text("\n".join([head, *lines, ""]), "utf-8")


def test_spot_is_low_typical_and_high_over_zones_and_copies(tmp_path: Path) -> None:
    skypilot(tmp_path, "old.csv", ["p5.48xlarge,60,9.5,us-east-2,use2-az1", "p5.48xlarge,60,20,us-east-2,use2-az2"])
    new = [
        *("p5.48xlarge,55.04,12,us-east-2,use2-az1", "p5.48xlarge,55.04,14,us-east-2,use2-az2"),
        # Without spare machines a zone asks the price on demand, which the list rounds.
        "p5.48xlarge,55.04,55.0401,us-east-2,use2-az3",
        # A Local Zone, a region that does not sell it, a placeholder, and a machine that the catalogue lacks.
        *("p5.48xlarge,55.04,1,us-east-2,use2-atl2-az1", "p5.48xlarge,55.04,5,eu-west-1,euw1-az1"),
        *("p5.48xlarge,700.0,,us-west-2,usw2-az1", "m5.large,0.1,0.05,us-east-2,use2-az1"),
    ]
    skypilot(tmp_path, "new.csv", new)
    text = list_text("aws", [{**ABOUT, "reader": "skypilot", "files": ["old.csv", "new.csv"]}], tmp_path)
    assert rows(text, "machines") == ["p5.48xlarge us-east-2 55.04 9.5 14 55.04 - -"]


def test_karpenter_names_its_regions_and_services(tmp_path: Path) -> None:
    (tmp_path / "a-list").mkdir()
    ours = ["// us-east-1", '"us-east-1": {', '"p5.48xlarge": 55.040000, "t3.small": 0.020800,', "},"]
    theirs = ['"nowhere-1": {', '"p5.48xlarge": 1.0,']
    (tmp_path / "a-list" / "x.go").write_text("\n".join([*ours, *theirs]), "utf-8")
    text = list_text("aws", [{**ABOUT, "reader": "karpenter", "files": ["x.go"]}], tmp_path)
    assert rows(text, "machines") == ["p5.48xlarge us-east-1 55.04 - - - - -"]
    assert rows(text, "services") == ["instance-t3.small us-east-1 0.0208"]


def test_tiers_that_a_list_mixes_up_are_left_out(tmp_path: Path) -> None:
    by_region = {"us-central1": [0.12, 0.11, 0.085], "asia-northeast1": [0.085, 0.12, 0.085]}
    tiers = {
        tier: {region: {"month": usd[at]} for region, usd in by_region.items()}
        for at, tier in enumerate(("0-1", "1-10", "10n"))
    }
    nothing: dict[str, Any] = {"cost": {}}
    network = {"nat": {"gateway": nothing, "data": nothing}, "ip": {"vm": nothing}}
    table = {
        "compute": {
            "instance": {"a3-highgpu-8g": {"cost": {"us-central1": {"hour": 88.0, "month_1y": 730.0}}}, "old": {}},
            "network": {**network, "traffic": {"egress": {"internet": {"cost": tiers}}}},
            "storage": {"balanced": nothing, "ssd": nothing},
        },
        "storage": {"bucket": {"standard": nothing}},
    }
    path = tmp_path / "pricing.yml"
    path.write_text(yaml.safe_dump(table), "utf-8")
    found = {(each.item, each.region, each.field): each.usd for each in READERS["gcosts"](path)}
    assert found["a3-highgpu-8g", "us-central1", "reserved_1y"] == 1.0
    assert found["egress-internet", "us-central1", "usd"] == 0.12
    assert not [key for key in found if key[1] == "asia-northeast1"]


def test_services_of_a_table_by_section_and_variant(tmp_path: Path) -> None:
    table = {
        "ebs_gb_month": {
            "us-east-1": {"gp3": 0.08, "gp2": 0.1},
            "us-east-2": {"gp2": 0.1},
            "us-east-1-bos-1": {"gp3": 1},
        },
        "nat_gateway_hour": {"eu-west-1": 0.048, "_value": 0.045},
        "lightsail_disk_gb_month": {"us-east-1": 0.1},
    }
    (tmp_path / "a-list").mkdir()
    (tmp_path / "a-list" / "x.json").write_text(json.dumps(table), "utf-8")
    text = list_text("aws", [{**ABOUT, "reader": "zombiescan", "files": ["x.json"]}], tmp_path)
    assert rows(text, "services") == ["ebs-gp3 us-east-1 0.08", "nat-gateway eu-west-1 0.048"]


def test_sizes_in_every_spelling_of_the_retail_api_and_lustre_by_the_month(tmp_path: Path) -> None:
    def meter(sku: str, usd: float, product: str = "ND Linux", name: str = "") -> dict[str, str | float]:
        return {
            "armRegionName": "swedencentral",
            "skuName": sku,
            "productName": product,
            "retailPrice": usd,
            "meterName": name,
        }

    meters = [
        *(meter("ND96isrH100v5", 127.8), meter("ND96isrH100v5 Spot", 23.6), meter("ND96isrH100v5 Low Priority", 9.0)),
        *(meter("Standard_NC24ads_A100_v4 Spot", 1.4), meter("Standard_NC24ads_A100_v4", 4.7)),
        *(meter("ND96isrH100v5", 999.0, "ND Series Windows"), meter("D2s v5", 0.1)),
        meter("AMLFS-Durable-Premium-125", 0.0002, "Azure Managed Lustre", "Provisioned Capacity"),
        meter("AMLFS-Durable-Premium-125", 9.0, "Azure Managed Lustre", "Something Else"),
    ]
    (tmp_path / "a-list").mkdir()
    (tmp_path / "a-list" / "x.json").write_text(json.dumps(meters), "utf-8")
    text = list_text("azure", [{**ABOUT, "reader": "retail", "files": ["x.json"]}], tmp_path)
    assert rows(text, "machines") == [
        "Standard_ND96isr_H100_v5 swedencentral 127.8 23.6 23.6 23.6 - -",
        "Standard_NC24ads_A100_v4 swedencentral 4.7 1.4 1.4 1.4 - -",
    ]
    assert rows(text, "services") == ["managed-lustre-125 swedencentral 0.146"]
