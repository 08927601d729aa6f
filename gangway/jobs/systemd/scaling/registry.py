"""The scaler of a stack: its provider's calls, with the login that this shell has."""

from collections.abc import Mapping, Sequence
from typing import Any

from components.core.findings import InputError
from gangway.jobs.systemd.scaling.base import Scaler
from stacks.config.stack_config import StackConfig
from stacks.program import get_program


def group_names(config: StackConfig, outputs: Mapping[str, Any]) -> list[str]:
    """Of the ladder's groups, in its order. InputError: the stack is not up."""
    names = outputs.get("group_names")
    if not names:
        raise InputError(
            f"pulumi stack output --stack {config.stack_name}", "no group_names: the stack is not up", fix="pulumi up"
        )
    return [str(name) for name in names]


def get_scaler(config: StackConfig, outputs: Mapping[str, Any], names: Sequence[str], *, is_held: bool) -> Scaler:
    """`outputs`: of the stack's program; `is_held`: whether nodes hold launches by the run's bucket. InputError: nobody
    is logged in.
    """
    if config.provider == "azure":
        return _azure(config, outputs, is_held=is_held)
    if config.provider == "gcp":
        return _gcp(config, names, is_held=is_held)
    assert config.provider == "aws", "it was checked"
    # Here and below, so that a stack loads what its own cloud takes.
    from gangway.jobs.systemd.scaling.aws import AwsScaler

    return AwsScaler(config.region)


def _azure(config: StackConfig, outputs: Mapping[str, Any], *, is_held: bool) -> Scaler:
    from gangway.jobs.systemd.scaling.azure import AzureScaler
    from gangway.sessions.azure import open_session

    planned = get_program(config.provider).plan(config)
    return AzureScaler(
        open_session(planned.subscription_id),
        planned.subscription_id,
        str(outputs["resource_group"]),
        together=planned.machine.infiniband is None,
        is_held=is_held,
    )


def _gcp(config: StackConfig, names: Sequence[str], *, is_held: bool) -> Scaler:
    from components.gcp.capacity import rung_zone
    from components.gcp.tpu.api import TpuError, open_session
    from gangway.jobs.systemd.scaling.gcp import API_URL, GcpScaler

    planned = get_program(config.provider).plan(config)
    try:
        session = open_session(API_URL)
    except TpuError as problem:
        raise InputError(
            f"Google Cloud, project {planned.project}", str(problem), fix="gcloud auth application-default login"
        ) from None
    rungs = zip(names, config.cluster.capacity, strict=True)
    zones = {name: rung_zone(rung, planned.zone) for name, rung in rungs}
    return GcpScaler(session, planned.project, zones, most=config.cluster.nodes.max, is_held=is_held)
