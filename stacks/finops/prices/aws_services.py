"""AWS's services in its price lists: which product is which service of the catalogue, in the Price List API and in the
public offer files, which use the same usage types.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ["AWS_SERVICES", "Product", "holds"]

_EGRESS = {"": 0.0, "-from-10tb": 20_000.0, "-from-50tb": 100_000.0, "-from-150tb": 200_000.0}
"""An amount in GB within each tier."""


@dataclass(frozen=True)
class Product:
    """One service in AWS's words.

    Attributes:
        code: of the list that has it, such as `AmazonEC2`.
        family: its `productFamily`.
        usage: its usage type after the region's prefix, which us-east-1 often lacks: `EUC1-EBS:VolumeUsage.gp3`.
        listed_unit: of the list.
        unit: of the catalogue.
        factor: what makes a price of `unit` of a listed one.
        amount: in listed units; the tier that holds it counts.
    """

    code: str
    family: str
    usage: str
    listed_unit: str
    unit: str
    factor: float = 1.0
    amount: float = 0.0

    @property
    def region_field(self) -> str:
        """Traffic has two ends, of which the first is the region."""
        return "fromRegionCode" if self.code == "AWSDataTransfer" else "regionCode"

    def matches(self, usage_type: str) -> bool:
        """Whether a usage type is this one, in whichever region."""
        return re.fullmatch(rf"(?:[A-Z]+\d*-)?{re.escape(self.usage)}", usage_type) is not None


def holds(begin: str, end: str, amount: float) -> bool:
    """Whether a tier, whose ends a list writes, holds an amount.

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
}
