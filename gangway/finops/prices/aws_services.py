"""Which AWS product is which service of the catalogue, in the Price List API and the public offer files (same usage
types). Names are from Infracost's resources (infracost/infracost, 95ba4f4) and from programs that read the lists;
Lustre's rows are selected by family and operation, as in AWSIM and IDEA.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ["AWS_SERVICES", "AWS_UNREAD", "Product", "holds"]

_EGRESS = {"": 0.0, "-from-10tb": 20_000.0, "-from-50tb": 100_000.0, "-from-150tb": 200_000.0}
"""An amount in GB within each tier."""
_HOUR = "Hrs"
_HOUR_SPELLINGS = ("hrs", "hours", "hour")
_LUSTRE = "CreateFileSystem:Lustre"


@dataclass(frozen=True)
class Product:
    """One service in AWS's terms.

    Attributes:
        code: of its price list, such as `AmazonEC2`.
        usage: its usage type after the region's prefix, which us-east-1 often lacks: `EUC1-EBS:VolumeUsage.gp3`, or
            `eu-west-1-KMS-Keys`. Empty if family and operation suffice.
        listed_unit: the list's unit; `Hrs` matches every spelling of an hour.
        unit: the catalogue's unit.
        factor: converts a listed price to `unit`.
        amount: in listed units; selects the tier.
        operation: empty if the usage type suffices.
        is_global: listed without a region, at one price for all.
    """

    code: str
    family: str
    usage: str
    listed_unit: str
    unit: str
    factor: float = 1.0
    amount: float = 0.0
    operation: str = ""
    is_global: bool = False

    def filters(self, region: str) -> dict[str, str]:
        """Filters for the Price List API."""
        # Traffic has two ends; the first is the region.
        field = "fromRegionCode" if self.code == "AWSDataTransfer" else "regionCode"
        place = {"usagetype": self.usage} if self.is_global else {field: region}
        return {**({"productFamily": self.family} if self.family else {}), **place}

    @property
    def mark(self) -> str:
        """A text in every offer file line of this product."""
        return f'{self.usage}"' if self.usage else f'"{self.operation}"'

    def matches(self, usage_type: str, operation: str) -> bool:
        """Whether usage type (in any region) and operation match."""
        prefix = r"(?:[A-Z]+\d*-|[a-z]{2}(?:-[a-z]+)+-\d+-)?"
        is_usage = not self.usage or re.fullmatch(rf"{prefix}{re.escape(self.usage)}", usage_type) is not None
        return is_usage and self.operation in ("", operation)

    def get_unit(self, listed: str) -> str:
        """The catalogue's unit for the expected listed one; any other unchanged, to be refused."""
        is_hour = self.listed_unit == _HOUR and listed.lower() in _HOUR_SPELLINGS
        return self.unit if is_hour or listed == self.listed_unit else listed


def holds(begin: str, end: str, amount: float) -> bool:
    """Whether a tier, with its ends as listed, holds an amount.

    >>> holds("0", "10240", 0.0), holds("10240", "Inf", 0.0)
    (True, False)
    """
    return float(begin) <= amount < float(end)


AWS_SERVICES: Mapping[str, Product] = {
    "ebs-gp3": Product("AmazonEC2", "Storage", "EBS:VolumeUsage.gp3", "GB-Mo", "GiB-month"),
    "ebs-gp3-throughput": Product(
        "AmazonEC2", "Provisioned Throughput", "EBS:VolumeP-Throughput.gp3", "GiBps-mo", "MiBps-month", 1 / 1024
    ),
    "nat-gateway": Product("AmazonEC2", "NAT Gateway", "NatGateway-Hours", "Hrs", "hour"),
    "nat-data": Product("AmazonEC2", "NAT Gateway", "NatGateway-Bytes", "GB", "GiB"),
    "interface-endpoint": Product("AmazonVPC", "VpcEndpoint", "VpcEndpoint-Hours", "Hrs", "hour"),
    "s3-standard": Product("AmazonS3", "Storage", "TimedStorage-ByteHrs", "GB-Mo", "GiB-month"),
    "image-storage": Product("AmazonECR", "EC2 Container Registry", "TimedStorage-ByteHrs", "GB-Mo", "GiB-month"),
    "log-ingestion": Product("AmazonCloudWatch", "Data Payload", "DataProcessing-Bytes", "GB", "GiB"),
    "metric": Product("AmazonCloudWatch", "Metric", "CW:MetricMonitorUsage", "Metrics", "month"),
    "metric-alarm": Product("AmazonCloudWatch", "Alarm", "CW:AlarmMonitorUsage", "Alarms", "month"),
    "transfer-between-zones": Product("AWSDataTransfer", "Data Transfer", "DataTransfer-Regional-Bytes", "GB", "GiB"),
    **{
        f"egress-internet{tier}": Product(
            "AWSDataTransfer", "Data Transfer", "DataTransfer-Out-Bytes", "GB", "GiB", amount=amount
        )
        for tier, amount in _EGRESS.items()
    },
    **{
        f"lustre-persistent-2-{tier}": Product("AmazonFSx", "Storage", f"Storage.SSD.{tier}", "GB-Mo", "GiB-month")
        for tier in (125, 250, 500, 1000)
    },
    # The oldest type of file system has the plainest name.
    "lustre-scratch-2": Product("AmazonFSx", "Storage", "Storage", "GB-Mo", "GiB-month", operation=_LUSTRE),
    "lustre-metadata-iops": Product("AmazonFSx", "Provisioned IOPS", "", "IOPS-Mo", "IOPS-month", operation=_LUSTRE),
    "kms-key": Product("awskms", "Encryption Key", "KMS-Keys", "Keys", "month"),
    # Above the free tier.
    "key-operations": Product(
        "awskms", "API Request", "KMS-Requests", "Requests", "10k-operations", 10_000, amount=1_000_000.0
    ),
    "eks-cluster": Product("AmazonEKS", "Compute", "AmazonEKS-Hours:perCluster", _HOUR, "hour"),
    "public-ipv4": Product("AmazonVPC", "", "PublicIPv4:InUseAddress", _HOUR, "hour"),
    "dns-zone": Product("AmazonRoute53", "DNS Zone", "HostedZone", "HostedZone", "month", is_global=True),
    "dns-firewall-name": Product("AmazonRoute53", "DNS Domain Names", "DNS-FirewallDomainName", "Mo", "month"),
    "dashboard": Product(
        "AmazonCloudWatch", "Dashboard", "DashboardsUsageHour", "Dashboards", "month", amount=100.0, is_global=True
    ),
    "composite-alarm": Product("AmazonCloudWatch", "Alarm", "CW:CompositeAlarmMonitorUsage", "Alarms", "month"),
}

AWS_UNREAD: Mapping[str, str] = {}
"""Services of the catalogue that are not read, and why."""
