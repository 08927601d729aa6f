"""Services in each provider's list: stand-ins that hold rows in the public shapes, evaluate what is asked, and reject
what the providers reject.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from components.catalog.loader import load_provider
from components.catalog.validators import Observed
from stacks.finops.prices.aws import FILES_URL, AwsPublicSource, AwsSource
from stacks.finops.prices.aws_services import AWS_SERVICES
from stacks.finops.prices.azure import API_URL, AzureSource
from stacks.finops.prices.azure_services import AZURE_SERVICES
from stacks.finops.prices.gcp import GcpSource
from stacks.finops.prices.gcp_services import GCP_SERVICES
from stacks.finops.prices.refresh import refresh, write_overlay
from stacks.finops.prices.source import PriceSource, Query, Web
from tests.stacks.finops.prices.conftest import NOW, PlayedReply

TODAY = NOW.date()


def asked(source: PriceSource, region: str, *services: str) -> dict[str, float]:
    found = list(source.fetch([Query(name, region, is_service=True) for name in services]))
    assert all(isinstance(each, Observed) for each in found), found
    return {each.item: each.value for each in found if isinstance(each, Observed)}


@pytest.mark.parametrize(
    ("provider", "units"),
    [
        ("aws", {name: product.unit for name, product in AWS_SERVICES.items()}),
        ("azure", {name: meter.unit for name, meter in AZURE_SERVICES.items()}),
        ("gcp", dict.fromkeys(GCP_SERVICES, "GiB-month")),
    ],
)
def test_what_is_read_are_services_of_the_catalogue_in_its_units(provider: Any, units: Mapping[str, str]) -> None:
    catalog = load_provider(provider)
    assert {name: catalog.service_price(provider, "", name).unit for name in units} == dict(units)


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
    meter("Virtual Machines", "BS Series", "B2s", "B2s", 0.048, "1 Hour", armSkuName="Standard_B2s"),
    meter("Virtual Machines", "BS Series", "B2s Spot", "B2s Spot", 0.01, "1 Hour", armSkuName="Standard_B2s"),
]  # fmt: skip


def test_azure_by_meter_tier_and_region() -> None:
    source = AzureSource(Web(AzureStandIn(AZURE)), TODAY)
    assert asked(source, "westeurope", *load_provider("azure").services_of("azure")) == pytest.approx(
        {
            "premium-ssd-p10": 21.68,
            "managed-lustre-125": 0.146,
            "nat-gateway": 0.045,
            "egress-internet": 0.087,
            "egress-internet-from-10tb": 0.083,
            "egress-internet-from-50tb": 0.083,
            "egress-internet-from-150tb": 0.083,
            "instance-Standard_B2s": 0.048,
        }
    )


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
    about = {"productFamily": family, "attributes": attributes}
    return {"product": about, "terms": {"OnDemand": {"T": term}}, "publicationDate": "2026-11-18T00:00:00Z"}


ALL = ("0", "Inf")
NAT = "NAT Gateway"
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
]
AWS_EXPECTED = {
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
        if not ServiceCode.startswith(("Amazon", "AWS")) or any(f["Field"] not in known | machine for f in Filters):
            raise ClientError(
                {"Error": {"Code": "InvalidParameterException", "Message": "no such field"}}, "GetProducts"
            )

        def holds(row: dict[str, Any]) -> bool:
            values = {**row["product"]["attributes"], "productFamily": row["product"]["productFamily"]}
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
    "usageType",
    "StartingRange",
    "EndingRange",
)
_MACHINE = ("Instance Type", "Region Code", "Operating System", "Tenancy", "Pre Installed S/W", "License Model",
            "CapacityStatus", "MarketOption")  # fmt: skip


class OfferFiles:
    """The public offer files, one a service and region; 404 where there is none."""

    def get(self, url: str, *, params: Any = None, timeout: Any = None, stream: bool = False) -> PlayedReply:
        found = re.fullmatch(rf"{re.escape(FILES_URL)}/(\w+)/current/eu-west-1/index\.csv", url)
        codes = {each.code for each in AWS_SERVICES.values()}
        if found is None or found[1] not in codes:
            return PlayedReply("<Error><Code>NoSuchKey</Code></Error>", 404)
        head = ['"FormatVersion","v1.0"', '"Disclaimer","x"', '"Publication Date","2026-11-18T00:00:00Z"']
        lines = [*head, '"Version","1"', f'"OfferCode","{found[1]}"', _csv([*_COLUMNS, *_MACHINE])]
        for row in (row for row in AWS if row["product"]["attributes"]["servicecode"] == found[1]):
            for rate in row["terms"]["OnDemand"]["T"]["priceDimensions"].values():
                usd, usage = rate["pricePerUnit"]["USD"], row["product"]["attributes"]["usagetype"]
                ends = (rate["beginRange"], rate["endRange"])
                lines.append(_csv(["OnDemand", rate["unit"], usd, "USD", "2026-11-01", usage, *ends, *[""] * 8]))
        return PlayedReply("\n".join(lines))


def _csv(cells: Sequence[str]) -> str:
    return ",".join(f'"{cell}"' for cell in cells)


def test_the_public_files_say_the_same() -> None:
    source = AwsPublicSource(Web(OfferFiles()), TODAY)
    assert asked(source, "eu-west-1", *AWS_SERVICES) == pytest.approx(AWS_EXPECTED)


# Google Cloud


def sku(description: str, group: str, *nanos: int, unit: str = "GiBy.mo", usage: str = "OnDemand") -> dict[str, Any]:
    rates = [
        {"startUsageAmount": i, "unitPrice": {"currencyCode": "USD", "units": "0", "nanos": n}}
        for i, n in enumerate(nanos)
    ]
    return {
        "description": description,
        "category": {"usageType": usage, "resourceGroup": group},
        "serviceRegions": ["europe-west1"],
        "pricingInfo": [{"pricingExpression": {"usageUnit": unit, "tieredRates": rates}}],
    }


CATALOG = {
    "services/6F81-5844-456A": ("Compute Engine", [
        sku("Balanced PD Capacity in Belgium", "SSD", 100_000_000),
        sku("Regional Balanced PD Capacity in Belgium", "SSD", 200_000_000),
        sku("Hyperdisk Balanced Capacity in Belgium", "SSD", 88_000_000),
    ]),
    "services/AAAA": ("Cloud Storage", [
        sku("Standard Storage Belgium", "RegionalStorage", 0, 20_000_000),
        sku("Standard Storage Belgium Dual-region", "DualRegionStorage", 30_000_000),
    ]),
    "services/BBBB": ("Cloud Filestore", [sku("Filestore Capacity Zonal Belgium", "SSD", 280_000_000)]),
    "services/CCCC": ("Cloud SQL", []),
}  # fmt: skip


class CatalogStandIn:
    """The Cloud Billing Catalog, v1: services, and the entries of each; pages of at most 5,000."""

    def get(self, url: str, *, params: Any = None, timeout: Any = None, stream: bool = False) -> PlayedReply:
        path = url.removeprefix("https://cloudbilling.googleapis.com/v1/")
        if int(params["pageSize"]) > 5000 or set(params) - {"pageSize", "pageToken", "currencyCode", "key"}:
            return PlayedReply('{"error": {"code": 400}}', 400)
        if path == "services" and "currencyCode" not in params:
            rows = [{"name": name, "displayName": shown} for name, (shown, _) in CATALOG.items()]
            return PlayedReply(json.dumps({"services": rows}))
        name = path.removesuffix("/skus")
        if name not in CATALOG:
            return PlayedReply('{"error": {"code": 404}}', 404)
        assert name != "services/CCCC", "a list without any of the services is not read"
        return PlayedReply(json.dumps({"skus": CATALOG[name][1]}))


def test_google_by_description_from_the_lists_that_have_them() -> None:
    source = GcpSource(Web(CatalogStandIn()), {}, date(2026, 11, 21), "a test")
    expected = {"gcs-standard": 0.02, "pd-balanced": 0.1, "hyperdisk-balanced": 0.088, "filestore-zonal": 0.28}
    assert asked(source, "europe-west1", *GCP_SERVICES) == pytest.approx(expected)
    assert asked(source, "us-east1", *GCP_SERVICES) == {}
