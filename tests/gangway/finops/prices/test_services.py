"""Services in each provider's list: stand-ins that hold rows in the public shapes, evaluate what is asked, and reject
what the providers reject.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from gangway.components.catalog.loader import load_provider
from gangway.components.catalog.validators import Observed
from gangway.finops.prices.aws import AWS_SERVICES, AWS_UNREAD, FILES_URL, AwsPublicSource, AwsSource
from gangway.finops.prices.azure import API_URL, AZURE_SERVICES, AZURE_UNREAD, AzureSource
from gangway.finops.prices.gcp import E2_MACHINES, GCP_SERVICES, GCP_UNREAD, GcpSource
from gangway.finops.prices.refresh import refresh, write_overlay
from gangway.finops.prices.source import INSTANCE, Gap, PriceSource, Query, Web
from tests.gangway.finops.prices.conftest import NOW, PlayedReply

TODAY = NOW.date()


def asked(source: PriceSource, region: str, *services: str) -> dict[str, float]:
    found = list(source.fetch([Query(name, region, is_service=True) for name in services]))
    assert all(isinstance(each, Observed) for each in found), found
    catalog = load_provider(source.name)  # type: ignore[arg-type]  # the protocol says str
    for each in found:
        assert isinstance(each, Observed)
        assert (each.region, each.unit) == (region, catalog.service_price(source.name, region, each.item).unit)
    return {each.item: each.value for each in found if isinstance(each, Observed)}


@pytest.mark.parametrize(
    ("provider", "units"),
    [
        ("aws", {name: product.unit for name, product in AWS_SERVICES.items()}),
        ("azure", {name: meter.unit for name, meter in AZURE_SERVICES.items()}),
        ("gcp", {name: entry.unit for name, entry in GCP_SERVICES.items()}),
    ],
)
def test_what_is_read_are_services_of_the_catalogue_in_its_units(provider: Any, units: Mapping[str, str]) -> None:
    catalog = load_provider(provider)
    assert {name: catalog.service_price(provider, "", name).unit for name in units} == dict(units)


@pytest.mark.parametrize(
    ("provider", "read", "unread"),
    [("aws", {*AWS_SERVICES}, AWS_UNREAD), ("azure", {*AZURE_SERVICES}, AZURE_UNREAD),
     ("gcp", {*GCP_SERVICES, *E2_MACHINES}, GCP_UNREAD)],
)  # fmt: skip
def test_every_service_of_the_catalogue_is_read_or_has_a_reason(
    provider: Any, read: set[str], unread: Mapping[str, str]
) -> None:
    services = load_provider(provider).get_services(provider)
    # AWS and Azure list machines by their names; Google's are sums.
    machines = {name for name in services if name.startswith(INSTANCE) and provider != "gcp"}
    assert read | set(unread) == services - machines
    assert not read & set(unread)
    assert all(unread.values())


# Azure

_FIELDS = ("armRegionName", "serviceName", "productName", "armSkuName", "priceType")
_TERM = re.compile(r"(\w+) eq '([^']*)'")


@dataclass
class AzureStandIn:
    """The retail prices API: case-sensitive equality of documented fields, 100 rows a page; else it answers 400."""

    rows: Sequence[Mapping[str, Any]]

    def get(self, url: str, *, params: Any = None, timeout: Any = None, stream: bool = False) -> PlayedReply:
        if urlsplit(url).query.startswith("skip="):
            return PlayedReply(json.dumps({"Items": [], "NextPageLink": None}))
        wanted = params["$filter"]
        terms = _TERM.findall(wanted)
        rest = _TERM.sub("", wanted).replace(" and ", "").replace(" or ", "").strip("()")
        if rest.strip(" ()") or any(field not in _FIELDS for field, _ in terms) or params["currencyCode"] != "'USD'":
            return PlayedReply("Invalid OData parameters supplied", 400)
        both, _, either = wanted.partition("(")
        every, some = _TERM.findall(both), _TERM.findall(either)
        items = [
            row
            for row in self.rows
            if all(row.get({"priceType": "type"}.get(k, k)) == v for k, v in every)
            and any(row.get(k) == v for k, v in some)
        ]
        return PlayedReply(json.dumps({"Items": items, "NextPageLink": f"{API_URL}?skip=100"}))


def meter(service: str, product: str, name: str, sku: str, usd: float, unit: str, **more: Any) -> dict[str, Any]:
    return {
        **{"serviceName": service, "productName": product, "meterName": name, "skuName": sku, "retailPrice": usd},
        **{"unitOfMeasure": unit, "armRegionName": "westeurope", "currencyCode": "USD", "type": "Consumption"},
        **{"tierMinimumUnits": 0.0, "effectiveStartDate": "2025-01-01T00:00:00Z", "armSkuName": "", **more},
    }


DISKS, MGN = "Premium SSD Managed Disks", "Rtn Preference: MGN"
NET, AKS, MONITOR, WATCHER = "Virtual Network", "Azure Kubernetes Service", "Azure Monitor", "Network Watcher"
GLOBAL, ZONE = {"armRegionName": "Global"}, {"armRegionName": "Zone 1"}
AZURE = [
    meter("Storage", DISKS, "P10 LRS Disk", "P10 LRS", 21.68, "1/Month"),
    meter("Storage", DISKS, "P10 LRS Disk Mount", "P10 LRS", 1.1, "1/Month"),
    meter("Storage", DISKS, "P10 LRS Disk", "P10 LRS", 99.0, "1/Month", armRegionName="eastus"),
    meter("Storage", DISKS, "P20 LRS Disk", "P20 LRS", 80.54, "1/Month", effectiveStartDate="2027-01-01T00:00:00Z"),
    meter("Storage", "Azure Managed Lustre", "Provisioned Capacity", "AMLFS-Durable-Premium-125", 0.0002, "1 GiB/Hour"),
    meter("NAT Gateway", "NAT Gateway", "Standard Gateway", "Standard", 0.045, "1 Hour", armRegionName="Global"),
    # In no order of tiers, the first of which is free; an older price of one of them.
    meter("Bandwidth", MGN, "Standard Data Transfer Out", "Standard", 0.083, "1 GB", tierMinimumUnits=10240.0),
    meter("Bandwidth", MGN, "Standard Data Transfer Out", "Standard", 0.0, "1 GB"),
    meter("Bandwidth", MGN, "Standard Data Transfer Out", "Standard", 0.087, "1 GB", tierMinimumUnits=100.0),
    meter("Bandwidth", MGN, "Standard Data Transfer Out", "Standard", 0.09, "1 GB", tierMinimumUnits=100.0,
          effectiveStartDate="2020-01-01T00:00:00Z"),
    meter("Bandwidth", MGN, "Standard Inter-Availability Zone Data Transfer Out", "Standard", 0.01, "1 GB"),
    meter(NET, "Virtual Network Private Link", "Standard Private Endpoint", "Standard", 0.01, "1 Hour", **GLOBAL),
    meter(NET, "Virtual Network Private Link", "Standard Data Processed - Egress", "Standard", 0.02, "1 GB", **GLOBAL),
    meter("Azure DNS", "Azure DNS", "Private Zone", "Private", 0.1, "1", tierMinimumUnits=25.0, **ZONE),
    meter("Azure DNS", "Azure DNS", "Private Zone", "Private", 0.5, "1", **ZONE),
    meter("Azure DNS", "Azure DNS", "Private Zone", "Private", 0.6, "1", armRegionName="US Gov Zone 1"),
    meter("Azure DNS", "Azure DNS", "Public Zone", "Public", 0.55, "1", **ZONE),
    meter("Azure Bastion", "Azure Bastion", "Basic Gateway", "Basic", 0.19, "1 Hour"),
    meter("Azure Bastion", "Azure Bastion", "Standard Gateway", "Standard", 0.29, "1 Hour"),
    meter("Azure Bastion", "Azure Bastion", "Standard Additional Gateway", "Standard", 0.14, "1 Hour"),
    meter(MONITOR, MONITOR, "Alerts System Log Monitored at 5 Minute Frequency", "Alerts", 1.5, "1/Month"),
    meter(MONITOR, MONITOR, "Alerts System Log Monitored at 10 Minute Frequency", "Alerts", 1.0, "1/Month"),
    meter(MONITOR, MONITOR, "Alerts System Log Monitored at 15 Minute Frequency", "Alerts", 0.5, "1/Month"),
    meter(MONITOR, MONITOR, "Alerts Resource Monitored at 15 Minute Frequency", "Alerts", 0.05, "1/Month"),
    meter(AKS, AKS, "Standard Uptime SLA", "Standard", 0.1, "1 Hour"),
    meter(AKS, AKS, "Standard Long Term Support", "Standard", 0.6, "1 Hour"),
    meter(WATCHER, WATCHER, "Standard VNet Flow Logs Collected", "Standard", 0.0, "1 GB"),
    meter(WATCHER, WATCHER, "Standard VNet Flow Logs Collected", "Standard", 0.5, "1 GB", tierMinimumUnits=5.0),
    meter(WATCHER, WATCHER, "Standard Network Logs Collected", "Standard", 0.7, "1 GB", tierMinimumUnits=5.0),
    meter("Key Vault", "Key Vault", "Operations", "Premium", 0.04, "10K"),
    meter("Key Vault", "Key Vault", "Operations", "Standard", 0.03, "10K"),
    meter("Key Vault", "Key Vault", "Advanced Key Operations", "Standard", 0.15, "10K"),
    meter("Virtual Machines", "BS Series", "B2s", "B2s", 0.048, "1 Hour", armSkuName="Standard_B2s"),
    meter("Virtual Machines", "BS Series", "B2s Spot", "B2s Spot", 0.01, "1 Hour", armSkuName="Standard_B2s"),
]  # fmt: skip


def test_azure_by_meter_tier_and_region() -> None:
    source = AzureSource(Web(AzureStandIn(AZURE)), TODAY)
    services = load_provider("azure").get_services("azure") - set(AZURE_UNREAD)
    assert asked(source, "westeurope", *services) == pytest.approx(
        {
            "premium-ssd-p10": 21.68,
            "managed-lustre-125": 0.146,
            "nat-gateway": 0.045,
            "egress-internet": 0.087,
            "egress-internet-from-10tb": 0.083,
            "egress-internet-from-50tb": 0.083,
            "egress-internet-from-150tb": 0.083,
            "instance-Standard_B2s": 0.048,
            "private-endpoint": 0.01,
            "private-dns-zone": 0.5,
            "bastion-basic": 0.19,
            "bastion-standard": 0.29,
            "query-alert-PT5M": 1.5,
            "query-alert-PT10M": 1.0,
            "query-alert-PT15M": 0.5,
            "aks-cluster": 0.1,
            "flow-log-collection": 0.5,
            "key-operations": 0.03,
        }
    )


def test_what_is_not_read_is_told_once_with_the_reason(overlays: Path) -> None:
    source = AzureSource(Web(AzureStandIn(AZURE)), TODAY)
    report = refresh(source, "azure", ["westeurope", "eastus"], TODAY, lambda region: None)
    assert set(report.gaps) == {Gap("", name, why) for name, why in AZURE_UNREAD.items()}
    assert len(report.gaps) == len(AZURE_UNREAD)
    assert {change.observed.item for change in report.changes}.isdisjoint(AZURE_UNREAD)


def test_a_refresh_writes_services_and_refuses_other_units(overlays: Path) -> None:
    rows = [
        *AZURE,
        meter("Virtual Network", "IP Addresses", "Standard IPv4 Static Public IP", "Standard", 5.0, "1 Day"),
    ]
    source = AzureSource(Web(AzureStandIn(rows)), TODAY)
    report = refresh(source, "azure", ["westeurope"], TODAY, lambda region: None)
    assert ("public-ip", "per 1 Day, not per hour") in {(r.observed.item, r.reason) for r in report.refused}
    assert "premium-ssd-p10" not in {change.observed.item for change in report.changes}, "confirmed"
    write_overlay(overlays, report, TODAY)
    catalog = load_provider("azure")
    own = catalog.service_price("azure", "westeurope", "egress-internet")
    assert (own.usd.value, own.region, own.unit) == (0.087, "westeurope", "GiB")
    assert own.usd.source.startswith("overlay, 2026-11-21: Azure retail prices API")
    assert catalog.service_price("azure", "uksouth", "premium-ssd-p10").usd.value == 23.848, "what was not asked stays"


# AWS


def product(code: str, family: str, usage: str, unit: str, *tiers: tuple[str, str, str], **more: str) -> dict[str, Any]:
    attributes = {"servicecode": code, "usagetype": usage, "regionCode": "eu-west-1", **more}
    rates = {
        f"R.{begin}": {"unit": unit, "beginRange": begin, "endRange": end, "pricePerUnit": {"USD": usd}}
        for begin, end, usd in tiers
    }
    term = {"effectiveDate": "2026-11-01T00:00:00Z", "priceDimensions": rates}
    about = {**({"productFamily": family} if family else {}), "attributes": attributes}
    return {"product": about, "terms": {"OnDemand": {"T": term}}, "publicationDate": "2026-11-18T00:00:00Z"}


ALL = ("0", "Inf")
NAT, WATCH, IOPS, LUSTRE = "NAT Gateway", "AmazonCloudWatch", "Provisioned IOPS", "CreateFileSystem:Lustre"
AWS = [
    product("AmazonEC2", "Storage", "EU-EBS:VolumeUsage.gp3", "GB-Mo", (*ALL, "0.088")),
    product("AmazonEC2", "Storage", "EU-EBS:VolumeUsage.gp2", "GB-Mo", (*ALL, "0.11")),
    product("AmazonEC2", "Provisioned Throughput", "EU-EBS:VolumeP-Throughput.gp3", "GiBps-mo", (*ALL, "45.056")),
    product("AmazonEC2", NAT, "EU-NatGateway-Hours", "Hrs", (*ALL, "0.048")),
    product("AmazonEC2", NAT, "EU-RegionalNatGateway-Hours", "Hrs", (*ALL, "0.07")),
    product("AmazonEC2", NAT, "EU-NatGateway-Prvd-Hours", "Hrs", (*ALL, "0.06")),
    product(
        "AWSDataTransfer",
        "Data Transfer",
        "EU-DataTransfer-Out-Bytes",
        "GB",
        ("0", "10240", "0.09"),
        ("10240", "51200", "0.085"),
        ("51200", "153600", "0.07"),
        ("153600", "Inf", "0.05"),
        fromRegionCode="eu-west-1",
    ),
    product("AmazonFSx", "Storage", "EU-Storage", "GB-Mo", (*ALL, "0.154"), operation=LUSTRE),
    product("AmazonFSx", "Storage", "EU-Storage", "GB-Mo", (*ALL, "0.143"), operation="CreateFileSystem:Windows"),
    product("AmazonFSx", "Storage", "EU-Storage.SSD.50", "GB-Mo", (*ALL, "0.155"), operation=LUSTRE),
    product("AmazonFSx", IOPS, "EU-MetadataIOPS", "IOPS-Mo", (*ALL, "0.06"), operation=LUSTRE),
    product("AmazonFSx", IOPS, "EU-ProvisionedIOPS", "IOPS-Mo", (*ALL, "0.02"), operation="CreateFileSystem:ONTAP"),
    product("awskms", "Encryption Key", "eu-west-1-KMS-Keys", "Keys", (*ALL, "1.0")),
    product("awskms", "API Request", "eu-west-1-KMS-Requests", "Requests", ("0", "20000", "0"),
            ("20000", "Inf", "0.000003")),
    product("awskms", "API Request", "eu-west-1-KMS-Requests-Asymmetric", "Requests", (*ALL, "0.000015")),
    product("AmazonEKS", "Compute", "EU-AmazonEKS-Hours:perCluster", "Hours", (*ALL, "0.1")),
    product("AmazonEKS", "Compute", "EU-AmazonEKS-Hours:extendedSupport", "Hours", (*ALL, "0.5")),
    product("AmazonVPC", "", "EU-PublicIPv4:InUseAddress", "Hrs", (*ALL, "0.005")),
    product("AmazonVPC", "", "EU-PublicIPv4:IdleAddress", "Hrs", (*ALL, "0.006")),
    product("AmazonRoute53", "DNS Zone", "HostedZone", "HostedZone", ("0", "25", "0.5"), ("25", "Inf", "0.1"),
            regionCode=""),
    product("AmazonRoute53", "DNS Domain Names", "EU-DNS-FirewallDomainName", "Mo", (*ALL, "0.0005")),
    product(WATCH, "Dashboard", "DashboardsUsageHour", "Dashboards", ("0", "3", "0"), ("3", "Inf", "3.0"),
            regionCode=""),
    product(WATCH, "Dashboard", "DashboardsUsageHour-Basic", "Dashboards", (*ALL, "2.0"), regionCode=""),
    product(WATCH, "Alarm", "EU-CW:CompositeAlarmMonitorUsage", "Alarms", (*ALL, "0.5")),
    product(WATCH, "Alarm", "EU-CW:HighResAlarmMonitorUsage", "Alarms", (*ALL, "0.3")),
]  # fmt: skip
AWS_EXPECTED = {
    "lustre-scratch-2": 0.154,
    "lustre-metadata-iops": 0.06,
    "kms-key": 1.0,
    "key-operations": 0.03,
    "eks-cluster": 0.1,
    "public-ipv4": 0.005,
    "dns-zone": 0.5,
    "dns-firewall-name": 0.0005,
    "dashboard": 3.0,
    "composite-alarm": 0.5,
    "ebs-gp3": 0.088,
    "ebs-gp3-throughput": 0.044,
    "nat-gateway": 0.048,
    "egress-internet": 0.09,
    "egress-internet-from-10tb": 0.085,
    "egress-internet-from-50tb": 0.07,
    "egress-internet-from-150tb": 0.05,
}


class PriceList:
    """The Price List Query API: filters of known fields by equality; another service code or field is refused."""

    def get_paginator(self, operation: str) -> "PriceList":
        assert operation == "get_products"
        return self

    def paginate(self, *, ServiceCode: str, Filters: list[dict[str, str]]) -> Iterator[dict[str, Any]]:  # noqa: N803
        from botocore.exceptions import ClientError

        known = {"productFamily", "regionCode", "instanceType", "usagetype"} | (
            {"fromRegionCode"} if ServiceCode == "AWSDataTransfer" else set()
        )
        machine = {"operatingSystem", "tenancy", "preInstalledSw", "licenseModel", "capacitystatus", "marketoption"}
        if not ServiceCode.startswith(("Amazon", "AWS", "aws")) or any(
            f["Field"] not in known | machine for f in Filters
        ):
            raise ClientError(
                {"Error": {"Code": "InvalidParameterException", "Message": "no such field"}}, "GetProducts"
            )

        def holds(row: dict[str, Any]) -> bool:
            values = {**row["product"]["attributes"], "productFamily": row["product"].get("productFamily")}
            return all(f["Type"] == "TERM_MATCH" and values.get(f["Field"]) == f["Value"] for f in Filters)

        rows = [row for row in AWS if row["product"]["attributes"]["servicecode"] == ServiceCode and holds(row)]
        yield {"PriceList": [json.dumps(row) for row in rows]}


def test_aws_by_usage_type_and_tier() -> None:
    source = AwsSource(lambda service, region: PriceList(), datetime(2026, 11, 21, tzinfo=UTC))
    assert asked(source, "eu-west-1", *AWS_SERVICES) == pytest.approx(AWS_EXPECTED)


_COLUMNS = (
    "TermType",
    "Unit",
    "PricePerUnit",
    "Currency",
    "EffectiveDate",
    "Product Family",
    "operation",
    "usageType",
    "StartingRange",
    "EndingRange",
)
_MACHINE = ("Instance Type", "Region Code", "Operating System", "Tenancy", "Pre Installed S/W", "License Model",
            "CapacityStatus", "MarketOption")  # fmt: skip


class OfferFiles:
    """The public offer files, one a service and region, and one a service with all of them; 404 where there is none.
    `missing`: a service that the region does not have.
    """

    def __init__(self, missing: str = "") -> None:
        self._missing = missing
        self.asked: list[str] = []

    def get(self, url: str, *, params: Any = None, timeout: Any = None, stream: bool = False) -> PlayedReply:
        self.asked.append(url)
        found = re.fullmatch(rf"{re.escape(FILES_URL)}/(\w+)/current(/(?:eu-west-1|us-east-1))?/index\.csv", url)
        codes = {each.code for each in AWS_SERVICES.values()} - {self._missing}
        if found is None or found[1] not in codes:
            return PlayedReply("<Error><Code>NoSuchKey</Code></Error>", 404)
        rows = [row for row in AWS if row["product"]["attributes"]["servicecode"] == found[1]]
        regional = [row for row in rows if f"/{row['product']['attributes']['regionCode']}" == found[2]]
        head = ['"FormatVersion","v1.0"', '"Disclaimer","x"', '"Publication Date","2026-11-18T00:00:00Z"']
        lines = [*head, '"Version","1"', f'"OfferCode","{found[1]}"', _csv([*_COLUMNS, *_MACHINE])]
        return PlayedReply("\n".join([*lines, *(line for row in regional or rows for line in _lines(row))]))


def _lines(row: dict[str, Any]) -> Iterator[str]:
    attributes = row["product"]["attributes"]
    about = [row["product"].get("productFamily", ""), attributes.get("operation", ""), attributes["usagetype"]]
    for rate in row["terms"]["OnDemand"]["T"]["priceDimensions"].values():
        price = ["OnDemand", rate["unit"], rate["pricePerUnit"]["USD"], "USD", "2026-11-01"]
        yield _csv([*price, *about, rate["beginRange"], rate["endRange"], *[""] * len(_MACHINE)])


def _csv(cells: Sequence[str]) -> str:
    return ",".join(f'"{cell}"' for cell in cells)


def test_the_public_files_say_the_same() -> None:
    source = AwsPublicSource(Web(OfferFiles()), TODAY)
    assert asked(source, "eu-west-1", *AWS_SERVICES) == pytest.approx(AWS_EXPECTED)


def test_a_service_that_a_region_lacks_costs_only_itself_and_global_files_are_read_once() -> None:
    files = OfferFiles(missing="AmazonEKS")
    source = AwsPublicSource(Web(files), TODAY)
    queries = [Query(name, region, is_service=True) for region in ("eu-west-1", "us-east-1") for name in AWS_SERVICES]
    answers = list(source.fetch(queries))
    gaps = [each for each in answers if isinstance(each, Gap)]
    assert [(gap.region, gap.what) for gap in gaps] == [("eu-west-1", "eks-cluster"), ("us-east-1", "eks-cluster")]
    assert "answered 404" in gaps[0].reason
    zones = [each for each in answers if isinstance(each, Observed) and each.item == "dns-zone"]
    assert [(each.region, each.value) for each in zones] == [("eu-west-1", 0.5), ("us-east-1", 0.5)]
    assert files.asked.count(f"{FILES_URL}/AmazonRoute53/current/index.csv") == 1


def test_another_unit_than_the_expected_one_is_refused(overlays: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    odd = product("AmazonEKS", "Compute", "EU-AmazonEKS-Hours:perCluster", "Clusters", (*ALL, "0.1"))
    monkeypatch.setattr("tests.gangway.finops.prices.test_services.AWS", [odd])
    report = refresh(AwsPublicSource(Web(OfferFiles()), TODAY), "aws", ["eu-west-1"], TODAY, lambda region: None)
    assert [(each.observed.item, each.reason) for each in report.refused] == [
        ("eks-cluster", "per Clusters, not per hour")
    ]


# Google Cloud


def sku(
    description: str,
    group: str,
    *tiers: float | tuple[float, float],
    unit: str = "GiBy.mo",
    words: str = "",
    **more: Any,
) -> dict[str, Any]:
    """`tiers`: US dollars, with where it begins unless it is the only one."""
    pairs = [tier if isinstance(tier, tuple) else (0.0, tier) for tier in tiers]
    rates = [
        {"startUsageAmount": start, "unitPrice": {"currencyCode": "USD", "units": str(int(usd)),
                                                  "nanos": round((usd - int(usd)) * 1e9)}}
        for start, usd in pairs
    ]  # fmt: skip
    expression = {"usageUnit": unit, "usageUnitDescription": words, "tieredRates": rates}
    return {
        "description": description,
        "category": {"usageType": "OnDemand", "resourceGroup": group},
        "serviceRegions": ["europe-west1"],
        "pricingInfo": [{"pricingExpression": expression}],
        **more,
    }


def egress(places: str, *prices: float) -> dict[str, Any]:
    tiers = zip((0.0, 1024.0, 10240.0), prices, strict=True)
    return sku(f"Network Internet Data Transfer Out from {places}", "PremiumInternetEgress", *tiers, unit="GiBy")


ALL_REGIONS: dict[str, Any] = {"serviceRegions": ["global"]}
CATALOG = {
    "services/6F81-5844-456A": ("Compute Engine", [
        sku("Balanced PD Capacity in Belgium", "SSD", 0.1),
        sku("Regional Balanced PD Capacity in Belgium", "SSD", 0.2),
        sku("Hyperdisk Balanced Capacity in Belgium", "SSD", 0.088),
        egress("Belgium to Americas", 0.12, 0.11, 0.085),
        egress("Belgium to China", 0.23, 0.22, 0.2),
        sku("Network Inter Zone Data Transfer Out", "InterzoneEgress", 0.01, unit="GiBy"),
        sku("E2 Instance Core running in Belgium", "CPU", 0.024, unit="h"),
        sku("E2 Instance Ram running in Belgium", "RAM", 0.003, unit="GiBy.h"),
        sku("E2 Custom Instance Core running in Belgium", "CPU", 0.03, unit="h"),
    ]),
    "services/AAAA": ("Cloud Storage", [
        sku("Standard Storage Belgium", "RegionalStorage", (0.0, 0.0), (5.0, 0.02)),
        sku("Standard Storage Belgium Dual-region", "DualRegionStorage", 0.03),
    ]),
    "services/BBBB": ("Cloud Filestore", [sku("Filestore Capacity Zonal Belgium", "SSD", 0.28)]),
    "services/CCCC": ("Cloud SQL", []),
    "services/DDDD": ("Google Cloud Managed Lustre", [
        sku("Managed Lustre Capacity 125-Perf Belgium", "SSD", 0.16),
        sku("Managed Lustre Capacity 500-Perf Belgium", "SSD", 0.374),
        sku("Managed Lustre Capacity Dynamic-Perf Belgium", "SSD", 0.06),
    ]),
    "services/EEEE": ("Networking", [
        sku("Networking Cloud Nat Gateway Uptime", "Nat", 0.0014, unit="h", **ALL_REGIONS),
        sku("Networking Private Nat Gateway Uptime", "Nat", 0.044, unit="h", **ALL_REGIONS),
        sku("Networking Cloud Nat Data Processing", "Nat", 0.045, unit="GiBy", **ALL_REGIONS),
        sku("Networking Cloud NAT IP Usage", "Nat", 0.005, unit="h", **ALL_REGIONS),
    ]),
    "services/FFFF": ("Cloud Key Management Service (KMS)", [
        sku("Active software symmetric key versions", "KMS", 0.06, unit="1", words="active key versions"),
        sku("Active HSM symmetric key versions", "KMS", 1.0, unit="1", words="active key versions"),
        sku("Cryptographic operations with a software symmetric key", "KMS", 0.000003, unit="count"),
        sku("HSM symmetric cryptographic operations", "KMS", 0.000004, unit="count"),
    ]),
    "services/GGGG": ("Secret Manager", [
        sku("Secret version replica storage", "Secret", (0.0, 0.0), (6.0, 0.06), unit="mo", **ALL_REGIONS),
    ]),
    "services/HHHH": ("Kubernetes Engine", [
        sku("Regional Kubernetes Clusters", "Compute", 0.1, unit="h", **ALL_REGIONS),
        sku("Zonal Kubernetes Clusters", "Compute", 0.09, unit="h", **ALL_REGIONS),
    ]),
    "services/JJJJ": ("Cloud Logging", [
        sku("Log Storage cost", "Logs", (0.0, 0.0), (50.0, 0.5), unit="GiBy"),
        sku("Log Retention cost", "Logs", 0.01),
    ]),
    "services/KKKK": ("Cloud DNS", [
        sku("ManagedZone", "Dns", (0.0, 0.2), (25.0, 0.1), (10000.0, 0.03), unit="mo", **ALL_REGIONS),
    ]),
    "services/LLLL": ("Artifact Registry", [
        sku("Artifact Registry Storage", "Storage", (0.0, 0.0), (0.5, 0.1), **ALL_REGIONS),
    ]),
}  # fmt: skip
EVERYWHERE = {
    "cloud-nat": 0.0448,
    "cloud-nat-machine": 0.0014,
    "nat-data": 0.045,
    "public-ipv4": 0.005,
    "secret-version": 0.06,
    "gke-cluster": 0.1,
    "dns-zone": 0.2,
    "image-storage": 0.1,
}


@dataclass
class CatalogStandIn:
    """The Cloud Billing Catalog, v1: services, and the entries of each; pages of at most 5,000."""

    catalog: Mapping[str, tuple[str, Sequence[Mapping[str, Any]]]] = field(default_factory=lambda: CATALOG)

    def get(self, url: str, *, params: Any = None, timeout: Any = None, stream: bool = False) -> PlayedReply:
        path = url.removeprefix("https://cloudbilling.googleapis.com/v1/")
        if int(params["pageSize"]) > 5000 or set(params) - {"pageSize", "pageToken", "currencyCode", "key"}:
            return PlayedReply('{"error": {"code": 400}}', 400)
        if path == "services" and "currencyCode" not in params:
            rows = [{"name": name, "displayName": shown} for name, (shown, _) in self.catalog.items()]
            return PlayedReply(json.dumps({"services": rows}))
        name = path.removesuffix("/skus")
        if name not in self.catalog:
            return PlayedReply('{"error": {"code": 404}}', 404)
        assert name != "services/CCCC", "a list without any of the services is not read"
        return PlayedReply(json.dumps({"skus": self.catalog[name][1]}))


def test_google_by_description_from_the_lists_that_have_them() -> None:
    source = GcpSource(Web(CatalogStandIn()), {}, date(2026, 11, 21), "a test")
    expected = {
        **EVERYWHERE,
        "gcs-standard": 0.02,
        "pd-balanced": 0.1,
        "hyperdisk-balanced": 0.088,
        "filestore-zonal": 0.28,
        "managed-lustre-125": 0.16,
        "managed-lustre-500": 0.374,
        "egress-internet": 0.12,
        "egress-internet-from-1tb": 0.11,
        "egress-internet-from-10tb": 0.085,
        "transfer-between-zones": 0.01,
        "kms-key": 0.06,
        "key-operations": 0.03,
        "log-ingestion": 0.5,
        "instance-e2-small": 0.5 * 0.024 + 2 * 0.003,
        "instance-e2-medium": 0.024 + 4 * 0.003,
        "instance-e2-standard-2": 2 * 0.024 + 8 * 0.003,
        "instance-e2-standard-4": 4 * 0.024 + 16 * 0.003,
    }
    services = (*GCP_SERVICES, *E2_MACHINES)
    assert asked(source, "europe-west1", *services) == pytest.approx(expected)
    assert asked(source, "us-east1", *services) == pytest.approx(EVERYWHERE)


def test_what_google_lists_no_longer_or_by_another_unit_is_told(overlays: Path) -> None:
    catalog = {name: row for name, row in CATALOG.items() if row[0] != "Cloud DNS"}
    nightly = sku("Regional Kubernetes Clusters", "Compute", 0.1, unit="d", **ALL_REGIONS)
    catalog["services/HHHH"] = ("Kubernetes Engine", [nightly])
    machines: Any = load_provider("gcp").machines
    source = GcpSource(Web(CatalogStandIn(catalog)), machines, TODAY, "a test")
    report = refresh(source, "gcp", ["europe-west1"], TODAY, lambda region: None)
    assert set(report.gaps) == {
        Gap("", "dns-zone", "the Catalog has no service 'Cloud DNS'"),
        *(Gap("", name, why) for name, why in GCP_UNREAD.items()),
    }
    assert [(each.observed.item, each.reason) for each in report.refused] == [("gke-cluster", "per d, not per hour")]
    prices = {change.observed.item: change.observed.region for change in report.changes}
    assert prices["managed-lustre-500"] == "europe-west1"
