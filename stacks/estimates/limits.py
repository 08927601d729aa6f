"""`gangway:budget.limits` against a plan: what a stack may cost an hour, and its job on its nodes. Pure."""

from collections.abc import Iterable, Sequence

from gangway.components.catalog.schema import MachineType
from gangway.components.core.findings import Finding, InputError
from gangway.stacks.config.sections import LimitsConfig
from gangway.stacks.config.stack_config import StackConfig
from gangway.stacks.estimates.expected_run import ExpectedRun
from gangway.stacks.estimates.run_costs import RungCost

_PLACE = "gangway:budget.limits"
_SAME = 0.999
"""Prices that differ by less are equal: the stack file has rounded ones."""


def limit_findings(
    config: StackConfig, machine: MachineType, rungs: Sequence[RungCost], run: ExpectedRun
) -> Iterable[Finding]:
    """What the limits do. InputError: the plan is above one, or cannot be compared with it."""
    limits = config.budget.limits
    if limits is None:
        return []
    rungs = [rung for rung in rungs if rung.in_reach]
    if limits.usd_per_hour is not None:
        _check_hourly(config, limits.usd_per_hour, rungs)
    if config.job is None:
        return [_for_submits()]
    return [] if limits.job_usd is None else list(_job(config, machine, limits, rungs, run))


def _check_hourly(config: StackConfig, most: float, rungs: Sequence[RungCost]) -> None:
    for rung in rungs:
        place = f"capacity[{rung.position}], {rung.kind}"
        if rung.hourly_high is None or rung.nodes_hourly is None:
            raise InputError(
                f"{_PLACE}.usd_per_hour",
                f"the price of {place} is unknown, so it cannot be compared",
                value=most,
                allowed="a limit for priced nodes only",
                fix="run `gangway prices refresh`, or remove usd_per_hour",
            )
        if rung.hourly_high > most:
            per_node = rung.nodes_hourly / rung.num_nodes
            fitting = int(rung.num_nodes - (rung.hourly_high - most) / per_node)
            fewer = f"set cluster.nodes.max: {fitting}, or " if fitting >= max(1, config.cluster.nodes.min) else ""
            raise InputError(
                f"{_PLACE}.usd_per_hour",
                f"below the cost of an hour of this stack on {place}",
                value=most,
                allowed=f"at least {rung.hourly_high:.2f} USD",
                fix=f"{fewer}raise usd_per_hour, or remove that rung",
            )


def _for_submits() -> Finding:
    return Finding.info(
        "limits.submits",
        _PLACE,
        "limits hold for jobs that `gangway job submit` submits by an engine's name, not for commands of Slurm or "
        "Kubernetes",
        "write `limits` or `stack: FILE` for that engine in ~/.gangway/engines.yaml",
    )


def _job(
    config: StackConfig, machine: MachineType, limits: LimitsConfig, rungs: Sequence[RungCost], run: ExpectedRun
) -> Iterable[Finding]:
    job_usd, price, nodes = limits.job_usd, limits.usd_per_node_hour, config.cluster.nodes
    assert job_usd is not None
    assert price is not None, "checked by gangway.stacks.loading.unsupported_settings"
    if machine.backend == "xla":
        raise InputError(
            f"{_PLACE}.job_usd", "hosts of TPU slices do not count what a slice costs", value=job_usd,
            allowed="no job_usd with TPUs", fix="remove job_usd; job.max_hours ends the job",
        )  # fmt: skip
    known = [rung for rung in rungs if rung.nodes_hourly is not None]
    top = max(known, key=lambda rung: (rung.nodes_hourly or 0.0) / rung.num_nodes, default=None)
    listed = None if top is None or top.nodes_hourly is None else top.nodes_hourly / top.num_nodes
    least_hours = None if run.hours is None else run.hours.low
    if least_hours is not None and least_hours * nodes.min * price > job_usd:
        raise InputError(
            f"{_PLACE}.job_usd",
            f"below what the run costs even if it is fast: {least_hours:.2g} h on {nodes.min} nodes at {price:g} USD",
            value=job_usd,
            allowed=f"at least {least_hours * nodes.min * price:.2f} USD",
            fix="raise job_usd, or shorten the run: job.kimg",
        )
    if listed is not None and top is not None and price < listed * _SAME:
        yield Finding.warning(
            "limits.price-low",
            f"{_PLACE}.usd_per_node_hour",
            f"{price:g} USD is below the plan's price of capacity[{top.position}], {top.kind}, {listed:.4g} USD: there "
            "the job costs more than job_usd when it ends",
            f"write usd_per_node_hour: {listed:.4g}, or keep your discount",
        )
    hours = job_usd / price / nodes.max
    command = " A command's nodes count hours only, as if all were up." if config.own_command else ""
    yield Finding.info(
        "limits.job",
        f"{_PLACE}.job_usd",
        f"the job saves and ends once its nodes have cost {job_usd:,.2f} USD, {hours:.3g} h of all {nodes.max} at "
        f"{price:g} USD, or after max_hours. Boots, head, file system and traffic do not count.{command}",
    )
