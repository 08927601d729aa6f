"""Checks of a stack on AWS: quotas, zones, capacity, images, permissions, names, buckets, budgets."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from gangway.components.aws.capacity import rung_machines
from gangway.components.core.capacity import LADDER, AnyRung, CapacityBlock, Reservation, Spot, named_zones
from gangway.components.core.limits import QuotaFinding
from gangway.live.permissions.needs import actions_of_up
from gangway.live.preflight.aws_api import Aws, Clients, Identity, find_identity, open_clients
from gangway.live.preflight.aws_existing import Provided, existing_checks
from gangway.live.preflight.aws_quotas import quota_check
from gangway.live.preflight.aws_service_roles import service_roles
from gangway.live.preflight.check import (
    OFFERS_FIX,
    ROLE_FIX,
    Check,
    NoAnswerError,
    Result,
    conflicts,
    first,
    plain_number,
    same_time,
)
from gangway.stacks.config.stack_config import StackConfig
from gangway.stacks.plan.plan import Plan
from gangway.stacks.program import get_program
from gangway.stacks.providers.aws.lookups import role_pattern
from gangway.stacks.providers.aws.plan import AwsPlan, head_type
from gangway.stacks.providers.aws.program import newest_images

GLOBAL_REGION = "us-east-1"
LOW_SCORE = 3
"""EC2 scores spot capacity from 1 to 10."""
_ACTIONS_PER_CALL = 100
_ENDED = ("expired", "cancelled", "failed", "payment-failed", "unsupported", "unavailable")


def get_checks(plan: Plan, clients: Clients | None = None) -> list[Check]:
    """All checks of a stack. InputError: no credentials."""
    config = plan.config
    aws = Aws(clients or open_clients(), config.region)
    identity = find_identity(aws)
    planned: AwsPlan = get_program("aws").plan(config)
    stack = _Stack(plan, config, planned, aws)
    needs = [one.need for one in plan.findings if isinstance(one, QuotaFinding)]
    return [
        *(quota_check(aws, config.stack, need) for need in needs if need.key),
        *_zones(stack),
        *_capacity(stack),
        *_images(stack),
        *_permissions(stack, identity),
        *_names(stack),
        *_stores(stack),
        *existing_checks(Provided(config, planned, aws, identity.account)),
        _budgets(stack, identity),
    ]


@dataclass(frozen=True)
class _Stack:
    plan: Plan
    config: StackConfig
    planned: AwsPlan
    aws: Aws


def _zones(stack: _Stack) -> Iterator[Check]:
    config, planned = stack.config, stack.planned
    source = "ec2:DescribeAvailabilityZones"

    def run() -> Result:
        found = {row["ZoneName"]: row.get("State", "available") for row in _zone_rows(stack.aws)}
        open_zones = sorted(name for name, state in found.items() if state == "available")
        if missing := [name for name in planned.zones if name not in open_zones]:
            return Result.error(f"not open to this account: {', '.join(missing)}", f"use {', '.join(open_zones)}")
        return Result.ok(f"open to this account: {', '.join(planned.zones)}")

    yield Check(f"zones in {config.region}", source, run, "gangway:cluster.zone")
    needed: dict[str, tuple[str, list[str]]] = {planned.machine.name: ("gangway:cluster.zone", [planned.zone])}
    for index, rung in enumerate(config.cluster.capacity):
        for machine in rung_machines(rung, planned.machine):
            path, zones = needed.setdefault(machine.name, (f"{LADDER}[{index}].machine_types", []))
            zones += named_zones(rung) or (planned.zone,)
    if planned.head:
        needed.setdefault(head_type(config), ("gangway:head.machine_type", []))[1].append(planned.zone)
    for name, (path, zones) in needed.items():
        yield _offering(stack, name, tuple(dict.fromkeys(zones)), path)


def _zone_rows(aws: Aws) -> list[Mapping[str, Any]]:
    rows: list[Mapping[str, Any]] = aws.call("ec2:DescribeAvailabilityZones")["AvailabilityZones"]
    return rows


def _offering(stack: _Stack, machine: str, zones: tuple[str, ...], path: str) -> Check:
    source = "ec2:DescribeInstanceTypeOfferings"

    def run() -> Result:
        filters = [{"Name": "instance-type", "Values": [machine]}]
        rows = stack.aws.pages(source, "InstanceTypeOfferings", LocationType="availability-zone", Filters=filters)
        offered = sorted(row["Location"] for row in rows)
        if not offered:
            return Result.error(f"no zone of {stack.config.region} has {machine}", OFFERS_FIX)
        missing = [zone for zone in zones if zone not in offered]
        if not missing:
            return Result.ok(f"{', '.join(zones)}; offered in {', '.join(offered)}")
        answer = f"not in {', '.join(missing)}; offered in {', '.join(offered)}"
        if len(missing) < len(zones):
            return Result.warning(answer, f"use only zones among {', '.join(offered)}")
        return Result.error(answer, f"set gangway:cluster.zone: {offered[0]}")

    return Check(f"machine type {machine}", source, run, path)


def _capacity(stack: _Stack) -> Iterator[Check]:
    for index, rung in enumerate(stack.config.cluster.capacity):
        path = f"{LADDER}[{index}]"
        if isinstance(rung, Spot):
            yield _spot_scores(stack, rung, path)
        elif isinstance(rung, CapacityBlock) and rung.purchase:
            yield _block_offering(stack, rung, path)
        elif isinstance(rung, CapacityBlock | Reservation):
            yield _reservation(stack, rung, path)


def _spot_scores(stack: _Stack, rung: AnyRung, path: str) -> Check:
    source, aws, number = "ec2:GetSpotPlacementScores", stack.aws, stack.config.cluster.nodes.max
    zones = named_zones(rung) or (stack.planned.zone,)

    def run() -> Result:
        names = {row["ZoneId"]: row["ZoneName"] for row in _zone_rows(aws)}
        rows = aws.call(
            source,
            InstanceTypes=[machine.name for machine in rung_machines(rung, stack.planned.machine)],
            TargetCapacity=number,
            TargetCapacityUnitType="units",
            SingleAvailabilityZone=True,
            RegionNames=[aws.region],
        )["SpotPlacementScores"]
        scores = {names.get(row["AvailabilityZoneId"], row["AvailabilityZoneId"]): row["Score"] for row in rows}
        listed = ", ".join(f"{zone} {score}" for zone, score in sorted(scores.items(), key=lambda item: -item[1]))
        own = max((scores.get(zone, 0) for zone in zones), default=0)
        answer = f"{own} of 10 in {', '.join(zones)} for {number} at once; {listed or 'no zone has a score'}"
        if own > LOW_SCORE:
            return Result.ok(answer)
        best = max(scores, key=lambda zone: scores[zone], default="")
        better = bool(best) and scores[best] > own
        return Result.warning(
            answer, f"set gangway:cluster.zone: {best}" if better else "add an on-demand rung, or try again later"
        )

    return Check("spot capacity (placement score)", source, run, path)


def _reservation(stack: _Stack, rung: CapacityBlock | Reservation, path: str) -> Check:
    source = "ec2:DescribeCapacityReservations"

    def run() -> Result:
        list_all = f"aws ec2 describe-capacity-reservations --region {stack.aws.region} lists yours"
        try:
            rows = stack.aws.call(source, CapacityReservationIds=[rung.id])["CapacityReservations"]
        except NoAnswerError as refusal:
            if not refusal.code.startswith("InvalidCapacityReservationId"):
                raise
            rows = []
        row = first(rows)
        if row is None:
            return Result.error(f"{rung.id} does not exist in {stack.aws.region}", list_all)
        return _judge_reservation(stack, rung, row, path)

    return Check(f"{rung.kind} {rung.id}", source, run, path)


def _judge_reservation(stack: _Stack, rung: CapacityBlock | Reservation, row: Mapping[str, Any], path: str) -> Result:
    machine, number = stack.planned.machine.name, stack.config.cluster.nodes.max
    its_machine, its_zone = row["InstanceType"], row["AvailabilityZone"]
    zone = next(iter(named_zones(rung)), stack.planned.zone)
    state, ends_at, free = row["State"], row.get("EndDate"), row["AvailableInstanceCount"]
    end = f", until {ends_at.isoformat()}" if ends_at else ""
    answer = f"{state}, {free} of {row['TotalInstanceCount']} {its_machine} free in {its_zone}{end}"
    if state in _ENDED or (ends_at is not None and ends_at <= datetime.now(UTC)):
        return Result.error(answer, "name another reservation")
    if row["InstanceType"] != machine:
        return Result.error(
            f"{answer}; the nodes are {machine}", f"set gangway:cluster.machine_type: {row['InstanceType']}"
        )
    if row["AvailabilityZone"] != zone:
        return Result.error(f"{answer}; the nodes are in {zone}", f"set {path}.zone: {row['AvailabilityZone']}")
    planned_end = rung.ends_at if isinstance(rung, CapacityBlock) else None
    if ends_at is not None and planned_end is not None and not same_time(ends_at, planned_end):
        return Result.warning(f"{answer}; the stack file says {planned_end.isoformat()}", f"set {path}.ends_at")
    if state != "scheduled" and free < number:
        return Result.warning(f"{answer}; {number} needed", "free some of it, unless this stack's own nodes use it")
    return Result.ok(answer)


def _block_offering(stack: _Stack, rung: CapacityBlock, path: str) -> Check:
    source = "ec2:DescribeCapacityBlockOfferings"

    def run() -> Result:
        assert rung.starts_at is not None, "a purchase has a start"
        assert rung.ends_at is not None, "a purchase has an end"
        rows = stack.aws.call(
            source,
            InstanceType=stack.planned.machine.name,
            InstanceCount=stack.config.cluster.nodes.max,
            StartDateRange=rung.starts_at - timedelta(days=1),
            EndDateRange=rung.ends_at + timedelta(days=1),
            CapacityDurationHours=round((rung.ends_at - rung.starts_at) / timedelta(hours=1)),
        )["CapacityBlockOfferings"]
        row = first(one for one in rows if one["CapacityBlockOfferingId"] == rung.offering_id)
        if row is None:
            fix = "aws ec2 describe-capacity-block-offerings shows current ones"
            return Result.warning(f"{rung.offering_id} is no longer offered, among {len(rows)} like it", fix)
        answer = f"{row['UpfrontFee']} {row.get('CurrencyCode', 'USD')} in {row['AvailabilityZone']}"
        if abs(float(row["UpfrontFee"]) - (rung.upfront_usd or 0)) > 0.01:
            return Result.warning(f"{answer}; the stack file says {rung.upfront_usd}", f"set {path}.upfront_usd")
        return Result.ok(answer)

    return Check(f"capacity block offering {rung.offering_id}", source, run, path)


def _images(stack: _Stack) -> Iterator[Check]:
    config, aws = stack.config, stack.aws
    if config.cluster.image_id is not None:
        yield _ami(aws, config.cluster.image_id, config.cluster.root_device_name)
    for what, reference in newest_images(config, stack.planned).items():
        yield _parameter(aws, what, reference.removeprefix("resolve:ssm:"))
    if stack.planned.repository_arn is not None and config.ready_image is not None:
        yield _container_image(aws, stack.planned.repository_arn, config.ready_image)


def _ami(aws: Aws, image: str, root_device: str) -> Check:
    source = "ec2:DescribeImages"

    def run() -> Result:
        try:
            row = first(aws.call(source, ImageIds=[image])["Images"])
        except NoAnswerError as refusal:
            if not refusal.code.startswith("InvalidAMIID"):
                raise
            row = None
        if row is None:
            return Result.error(f"not in {aws.region}, or not shared with this account", f"use an AMI of {aws.region}")
        answer = f"{row.get('Name', '')}, {row['State']}, {row.get('Architecture', '')}"
        if row["State"] != "available":
            return Result.error(answer, "use an AMI that is available")
        if row.get("RootDeviceName", root_device) != root_device:
            fix = f"set gangway:cluster.root_device_name: {row['RootDeviceName']}"
            return Result.error(f"{answer}; its root device is {row['RootDeviceName']}, not {root_device}", fix)
        return Result.ok(answer)

    return Check(f"machine image {image}", source, run, "gangway:cluster.image_id")


def _parameter(aws: Aws, what: str, name: str) -> Check:
    source, of_nodes = "ssm:GetParameter", what == "nodes"

    def run() -> Result:
        try:
            return Result.ok(aws.call(source, Name=name)["Parameter"]["Value"])
        except NoAnswerError as refusal:
            if refusal.code != "ParameterNotFound":
                raise
        fix = "set gangway:cluster.image_id to an AMI" if of_nodes else "choose another gangway:region"
        return Result.error(f"{name} does not exist in {aws.region}", fix)

    path = "gangway:cluster.image_id" if of_nodes else "gangway:region"
    return Check(f"newest machine image of the {what}", source, run, path)


def _container_image(aws: Aws, arn: str, image: str) -> Check:
    source, digest = "ecr:DescribeImages", image.rpartition("@")[2]
    _, _, _, _, account, resource = arn.split(":", 5)
    name = resource.partition("/")[2]

    def run() -> Result:
        try:
            aws.call(source, registryId=account, repositoryName=name, imageIds=[{"imageDigest": digest}])
        except NoAnswerError as refusal:
            if refusal.code in ("RepositoryNotFoundException", "ImageNotFoundException"):
                return Result.error(refusal.reason, f"push the image to {name}, or name another one")
            raise
        return Result.ok(f"{digest} exists")

    return Check(f"container image {name}", source, run, "gangway:image.prebuilt")


def _permissions(stack: _Stack, identity: Identity) -> Iterator[Check]:
    source, aws = "iam:SimulatePrincipalPolicy", stack.aws

    def run() -> Result:
        actions = actions_of_up(stack.plan)
        if identity.arn.endswith(":root"):
            return Result.ok("the account's root user may do everything")
        principal = _principal(aws, identity)
        rows: list[Mapping[str, Any]] = []
        for begin in range(0, len(actions), _ACTIONS_PER_CALL):
            names = actions[begin : begin + _ACTIONS_PER_CALL]
            parameters = {"PolicySourceArn": principal, "ActionNames": list(names)}
            rows += aws.pages(source, "EvaluationResults", GLOBAL_REGION, **parameters)
        by_decision: dict[str, list[str]] = {}
        for row in rows:
            by_decision.setdefault(row["EvalDecision"], []).append(row["EvalActionName"])
        if denied := by_decision.get("explicitDeny"):
            return Result.error(f"a policy denies {principal}: {', '.join(denied)}", "remove the deny statement")
        if lacking := by_decision.get("implicitDeny"):
            fix = f"{ROLE_FIX}; policies for certain resources only are not seen here"
            return Result.warning(f"{principal} lacks, for all resources: {', '.join(lacking)}", fix)
        return Result.ok(f"{principal} may call all {len(actions)} actions of `up`")

    yield Check("permissions", source, run)
    for name, service in service_roles(stack.plan).items():
        yield _service_role(aws, name, service)


def _principal(aws: Aws, identity: Identity) -> str:
    """The user or role that has the policies; an assumed role's ARN lacks its path."""
    if not identity.arn:
        raise NoAnswerError("sts:GetCallerIdentity gave no answer")
    if match := re.fullmatch(r"arn:[^:]+:sts::\d+:assumed-role/([^/]+)/.+", identity.arn):
        return str(aws.call("iam:GetRole", GLOBAL_REGION, RoleName=match[1])["Role"]["Arn"])
    return identity.arn


def _service_role(aws: Aws, name: str, service: str) -> Check:
    source = "iam:GetRole"

    def run() -> Result:
        try:
            return Result.ok(str(aws.call(source, GLOBAL_REGION, RoleName=name)["Role"]["Arn"]))
        except NoAnswerError as refusal:
            if refusal.code != "NoSuchEntity":
                raise
        answer = "does not exist; AWS creates it on demand if you may call iam:CreateServiceLinkedRole"
        return Result.warning(answer, f"aws iam create-service-linked-role --aws-service-name {service}")

    return Check(f"service-linked role {name}", source, run)


def _names(stack: _Stack) -> Iterator[Check]:
    aws, name = stack.aws, stack.config.stack
    stack_name = stack.config.stack_name

    def tagged() -> Result:
        filters = [{"Key": "gangway:stack", "Values": [name]}]
        rows = aws.pages("resourcegroupstaggingapi:GetResources", "ResourceTagMappingList", TagFilters=filters)
        arns = [row["ResourceARN"] for row in rows]
        return conflicts(arns, "this stack is up, it left what it keeps, or another stack has its identity", stack_name)

    def roles() -> Result:
        pattern = re.compile(role_pattern(name))
        rows = aws.pages("iam:ListRoles", "Roles", GLOBAL_REGION)
        names = [row["RoleName"] for row in rows if pattern.fullmatch(row["RoleName"])]
        return conflicts(names, "this stack is up, or another stack of the account has its identity", stack_name)

    path = "gangway:identity"
    yield Check(f"resources with the tag {name}", "resourcegroupstaggingapi:GetResources", tagged, path)
    yield Check(f"roles named {name}-...", "iam:ListRoles", roles, path)


def _stores(stack: _Stack) -> Iterator[Check]:
    storage = stack.config.storage
    if storage is None or storage.source is None:
        return
    bucket, _, prefix = storage.source.removeprefix("s3://").partition("/")
    source = "s3:ListObjectsV2"

    def run() -> Result:
        try:
            page = stack.aws.call(source, Bucket=bucket, Prefix=prefix, MaxKeys=1)
        except NoAnswerError as refusal:
            if refusal.code == "NoSuchBucket":
                return Result.error("the bucket does not exist", f"aws s3 mb s3://{bucket}, or name another one")
            raise
        if not page.get("KeyCount"):
            return Result.warning(f"no object begins with {prefix!r}" if prefix else "empty", "upload the data first")
        return Result.ok("readable, and not empty")

    yield Check(f"data {storage.source}", source, run, "gangway:storage.source")


def _budgets(stack: _Stack, identity: Identity) -> Check:
    source = "budgets:DescribeBudgets"

    def run() -> Result:
        if not identity.account:
            raise NoAnswerError("sts:GetCallerIdentity gave no answer")
        rows = stack.aws.call(source, GLOBAL_REGION, AccountId=identity.account).get("Budgets", ())
        amount = plain_number(stack.config.budget.monthly_usd)
        return Result.ok(f"AWS Budgets answers, {len(rows)} exist; this stack's has {amount} USD a month")

    return Check("budgets", source, run, "gangway:budget")
