"""Findings for all providers about batch, data, prices, checkpoints and the budget. Pure."""

import re
from collections.abc import Iterable, Sequence
from datetime import UTC, date, datetime
from math import ceil

from gangway.components.catalog.schema import MachineType
from gangway.components.catalog.validators import STALE_DAYS, is_stale
from gangway.components.core.capacity import CapacityBlock, Spot
from gangway.components.core.findings import Finding, InputError
from gangway.components.estimate.cost import (
    HOURS_PER_MONTH,
    CostComponent,
    CostEstimate,
    foreign_mark,
    foreign_note,
    foreign_regions,
    load_billing,
)
from gangway.components.estimate.spot import best_interval_sec
from gangway.images.specs import DOCKERFILE_FLAVOURS, EXPORTER_PORTS, pinned_image
from gangway.stacks.base.registry import get_provider
from gangway.stacks.base.shared import has_exporters, nodes_meet
from gangway.stacks.config.stack_config import StackConfig
from gangway.stacks.estimates.autoscale import autoscale_findings, controller_findings
from gangway.stacks.estimates.boot import boot_findings
from gangway.stacks.estimates.expected_run import run_findings
from gangway.stacks.estimates.provider_findings import (
    idle_stop,
    placeholder_findings,
    region_limit_findings,
    runs_deleted,
)
from gangway.stacks.estimates.run_costs import (
    Pace,
    RungCost,
    most_expensive_rung,
    rung_in_use,
    save_sec,
)
from gangway.stacks.estimates.trainer_findings import memory_findings, round_down, trainer_findings
from gangway.stacks.estimates.usage_costs import idle_settings, missing_usage
from gangway.trainer.config.parts.fields import SELF_PREPARED
from gangway.trainer.config.presets import PRESETS
from gangway.trainer.config.refusals import prepare_command

_KNOWN_DATASETS = ("cifar10", "celeba", "ucf101", "digits")  # data sets with names that nothing else has
_MAX_LISTED = 4  # node counts that one finding lists
LONG_RUN_FACTOR = 1.05  # a run longer than with the best interval by this factor gets a warning
SMALL_SHARE = 0.01  # share of time for checkpoints below which saving less often is not worthwhile


def common_findings(
    config: StackConfig, machine: MachineType, cost: CostEstimate | None, *, shared: bool = False
) -> list[Finding]:
    """`cost`: None under the engine; `shared`: nodes share a run directory without a file system."""
    unpriced = [
        *(_training(config, machine, cost) if config.trains else run_findings(config, machine, cost)),
        *([] if shared else _state(config)),
        *(_data(config) if config.trains else ()),
        *_pins(config),
        *_hardware(config, machine),
        *region_limit_findings(config),
        *_stop_delay(config, cost),
        *placeholder_findings(config),
        *runs_deleted(config),
        *idle_stop(config, machine),
        *boot_findings(config, machine, cost),
    ]
    return unpriced if cost is None else [*unpriced, *_prices(config, cost), *_budget(config, cost)]


def _training(config: StackConfig, machine: MachineType, cost: CostEstimate | None) -> Iterable[Finding]:
    yield from _batch(config, machine)
    yield from trainer_findings(config, machine)
    yield from memory_findings(config, machine)
    yield from run_findings(config, machine, cost)
    yield from controller_findings(config, machine, cost)
    yield from autoscale_findings(config, machine, cost, datetime.now(UTC))


def _pins(config: StackConfig) -> Iterable[Finding]:
    bases = {spec.base_image for spec in DOCKERFILE_FLAVOURS.values()} if config.ready_image is None else ()
    for base in sorted(bases):
        if "@" not in pinned_image(base):
            yield Finding.warning(
                "image.base-by-tag",
                "gangway:image",
                f"the trainer's image is built on {base}, whose tag can be moved to another image",
                "make lock-images, which writes its digest into images/images.lock",
            )
    signed = config.image.signature
    if signed is not None and signed.identity is not None:
        yield Finding.info(
            "image.signed-keyless",
            "gangway:image.signature",
            f"only `up` verifies with cosign that {signed.identity} signed the image; machines and plans do not",
            "install cosign where `up` runs, with access to the registry; machines also verify a public key",
        )
    prometheus = config.head.prometheus_image
    if prometheus is not None and "@" not in pinned_image(prometheus):
        yield Finding.warning(
            "head.prometheus-by-tag",
            "gangway:head.prometheus_image",
            f"the tag {prometheus} can be moved to another image, which the head would run",
            f"add its digest: {prometheus}@sha256:...",
        )


def _hardware(config: StackConfig, machine: MachineType) -> Iterable[Finding]:
    """Whether Prometheus gets the hardware's metrics."""
    if not config.observe.hardware:
        return
    place = "gangway:observe.hardware"
    if machine.backend == "xla":
        yield Finding.warning("observe.hardware-ignored", place, "TPU hosts run no exporters", "leave hardware out")
    elif config.engine.kind == "kubernetes":
        what = "Prometheus in the cluster scrapes dcgm-exporter and node_exporter; it keeps no data on disk"
        yield Finding.info("observe.hardware", place, what)
    elif has_exporters(config):
        ports = ", ".join(f"{name.removeprefix('gangway-')} at port {port}" for name, port in EXPORTER_PORTS.items())
        has_reader = nodes_meet(config) or config.engine.has_queue
        yield Finding.info(
            "observe.hardware",
            place,
            f"each node runs {ports}; without NVIDIA GPUs only the second. It pulls their images from the internet, "
            f"which is usage of the network; {'the head' if has_reader else 'on a cloud nothing'} scrapes them",
        )
    else:
        yield Finding.warning(
            "observe.hardware-ignored",
            place,
            "no exporter is started, since no head runs Prometheus",
            "leave hardware out, or let a head run Prometheus: network.egress: nat, and not prometheus_image: null",
        )


def check_budget(config: StackConfig, cost: CostEstimate) -> None:
    """InputError: one hour on the first rung exceeds the budget. Unknown prices and fallback rungs do not count."""
    least = cost.upfront + cost.hourly
    if config.budget.monthly_usd < least:
        bought = f" and the {cost.upfront:.2f} USD that `up` pays upfront" if cost.upfront else ""
        raise InputError(
            "gangway:budget.monthly_usd",
            f"below the cost of one hour of this stack at {_basis(config, cost)}{bought}",
            value=config.budget.monthly_usd,
            allowed=f"at least {least:.2f} USD",
            fix=f"set monthly_usd: {ceil(cost.monthly)} for a full month",
        )


def _basis(config: StackConfig, cost: CostEstimate) -> str:
    position = rung_in_use(config, cost)
    kind = config.cluster.capacity[position].kind
    # Reserved nodes cost the on-demand price, flex-start at most that; a block is paid in advance.
    market = kind if kind in ("spot", "capacity-block") else "on-demand"
    return ", ".join(filter(None, [f"the {market} price of capacity[{position}]", foreign_note(cost.foreign_regions)]))


def _batch(config: StackConfig, machine: MachineType) -> Iterable[Finding]:
    """The global batch stays the same when nodes come and go: each worker needs an image or group."""
    trained, nodes = config.training.effective_config(), config.cluster.nodes
    batch_size, group, per_node = trained.batch_size, trained.group, machine.num_accelerators.value
    shared = "image" if group == 1 else f"group of {group} images (minibatch_std)"
    most, whose = batch_size // group // per_node, _origin(config, "batch_size")
    smaller = "choose an accelerator with fewer chips" if machine.backend == "xla" else "choose a smaller machine type"
    if nodes.max > most:
        yield Finding.error(
            "batch.too-small",
            "gangway:cluster.nodes",
            f"batch_size {batch_size} of {whose} has less than one {shared} for each of {nodes.max * per_node} workers",
            _add_batch_size(
                config,
                f"set nodes: {{min: {min(nodes.min, most)}, max: {most}}}" if most else smaller,
                nodes.max * per_node * group,
            ),
        )
    sizes = range(1, min(nodes.max, most) + 1)
    uneven = [num for num in sizes if num >= nodes.min and batch_size % (num * per_node * group)]
    even = [str(num) for num in sizes if batch_size % (num * per_node * group) == 0]
    if uneven:
        also = f" (also even: {', '.join(even[:-1])})" if even[1:] else ""
        fix = f"set nodes: {{min: {even[-1]}, max: {even[-1]}}}{also}" if even else ""
        problem = f"batch_size {batch_size} of {whose} does not divide evenly"
        if machine.backend == "xla":
            why = "on XLA all workers need the same share, and the trainer refuses to start"
            yield Finding.error(
                "batch.uneven",
                "gangway:cluster.nodes",
                f"{problem} by {uneven[0] * per_node} workers: {why}",
                _add_batch_size(config, fix or smaller, uneven[0] * per_node * group),
            )
            return
        waiting = _idle_shares(batch_size // group, per_node, uneven, shared)
        if len(uneven) == 1:
            fix = _add_batch_size(config, fix, uneven[0] * per_node * group)
        yield Finding.info("batch.uneven", "gangway:cluster.nodes", f"{problem} (idle is estimated): {waiting}", fix)


def _origin(config: StackConfig, field: str) -> str:
    return "job.settings" if field in config.training.settings else config.training.preset


def _add_batch_size(config: StackConfig, fix: str, workers: int) -> str:
    if "batch_size" not in config.training.settings:
        return fix
    batch_size = config.training.effective_config().batch_size
    even = f"gangway:job.settings.batch_size: {ceil(batch_size / workers) * workers}"
    return f"{fix}, or {even}" if fix else f"set {even}"


def _idle_shares(batch_size: int, per_node: int, uneven: list[int], shared: str) -> str:
    def idle(num: int) -> float:  # estimated: a step takes as long as its largest share has images
        workers = num * per_node
        return 1 - batch_size / (ceil(batch_size / workers) * workers)

    sentences = [
        f"on {num} node{'s' if num > 1 else ''} {num * per_node - batch_size % (num * per_node)} of {num * per_node} "
        f"workers get one {shared} fewer ({idle(num):.0%} idle)"
        for num in uneven[:_MAX_LISTED]
    ]
    rest = uneven[_MAX_LISTED:]
    if rest:
        worst = max(map(idle, rest))
        sentences.append(f"likewise for {len(rest)} other numbers of nodes up to {rest[-1]} (at most {worst:.0%} idle)")
    return "; ".join(sentences)


def _state(config: StackConfig) -> Iterable[Finding]:
    if config.storage is not None:
        return
    if config.cluster.nodes.max > 1:
        yield Finding.error(
            "storage.not-shared",
            "gangway:storage",
            "several nodes need a shared file system for data and checkpoints, but this stack has none",
            "set gangway:cluster.nodes: {min: 1, max: 1}, or add a storage section",
        )
    if any(isinstance(rung, Spot) for rung in config.cluster.capacity):
        yield Finding.warning(
            "storage.lost-with-node",
            "gangway:storage",
            "checkpoints are on the node's volume, which a spot interruption deletes",
            "add a storage section",
        )


def _data(config: StackConfig) -> Iterable[Finding]:
    """Data that nodes cannot fetch by themselves; otherwise it would be missing once the cluster is paid for."""
    trained = config.training.effective_config()
    provider = get_provider(config.provider)
    named = (config.storage and config.storage.source) or provider.own_data(config)
    if named and (other := _misnamed_data(config, trained.dataset, named)):
        yield other
        return
    if trained.dataset in SELF_PREPARED:
        return
    setting = provider.settings.data_setting
    store = provider.settings.store
    prepare = prepare_command(trained, "DIR")
    if named:
        size = f"{trained.resolution}x{trained.resolution}"
        if store is None:
            fix = f"write them with `{prepare_command(trained, named)}` on a machine that has that folder"
        else:
            fix = f"write them with `{prepare} && {store.upload_command('DIR', named)}`; if {named} contains the "
            fix += f"originals, use it as the source of that command and name another folder in {setting}"
        yield Finding.info(
            "data.prepared",
            "gangway:job.settings" if "dataset" in config.training.settings else "gangway:job.preset",
            f"the job reads shards of {trained.dataset} at {size} from {named}: index.json and 00000.npy, 00001.npy, "
            "... must exist there before `up`, since nodes do not decode original files",
            f"{fix}; docs/data.md",
        )
        return
    uploads = [store.upload_command("DIR", store.folder)] if store else []
    ready = [name for name, preset in PRESETS.items() if preset.dataset in SELF_PREPARED]
    yield Finding.error(
        "data.missing",
        f"gangway:{setting}",
        f"{_origin(config, 'dataset')} trains on {trained.dataset}, which nodes cannot fetch by themselves, and no "
        "setting names its location",
        f"write it with `{' && '.join([prepare, *uploads])}` and name its folder in {setting}, or use a preset "
        f"with data that nodes generate: {', '.join(ready)}",
    )


def _misnamed_data(config: StackConfig, dataset: str, named: str) -> Finding | None:
    """A folder with the name of another data set, whose shards the trainer would refuse; the name proves nothing."""
    words = re.split(r"[^a-z0-9]+", named.lower())
    called = [name for name in _KNOWN_DATASETS if any(word.startswith(name) for word in words)]
    if not called or dataset in (*called, "folder"):
        return None
    on_it = [name for name, preset in PRESETS.items() if preset.dataset == called[0]]
    return Finding.warning(
        "data.other-name",
        "gangway:job.settings" if "dataset" in config.training.settings else "gangway:job.preset",
        f"the job trains on {dataset}, but {named} has the name of {called[0]}: if its shards are of that data set, "
        "the trainer refuses them on the nodes",
        f"use a preset for {called[0]} ({', '.join(on_it)}), or name the folder with the shards of {dataset}",
    )


def _prices(config: StackConfig, cost: CostEstimate) -> Iterable[Finding]:
    if regions := foreign_regions(cost.components):
        lines = sum(bool(component.priced_in) for component in cost.components)
        yield Finding.info(
            "cost.other-region",
            "gangway:region",
            f"{lines} of {len(cost.components)} prices are not listed for {config.region}: those of "
            f"{', '.join(regions)} replace them, so totals are not bounds; each line names its region",
            "run `gangway prices refresh`, which reads most of them",
        )
    fix = "run `gangway prices refresh`, which reads most of them; else add the cost yourself"
    if config.site is not None:
        fix = "write your price of a node hour: gangway:site.usd_per_node_hour"
    for name in cost.unknown:
        message = f"not in the estimate, price unknown: {name}"
        yield Finding.warning("cost.price-unknown", "gangway:cluster", message, fix)


def _budget(config: StackConfig, cost: CostEstimate) -> Iterable[Finding]:
    path, budget = "gangway:budget.monthly_usd", config.budget.monthly_usd
    if cost.monthly > budget:
        yield Finding.warning(
            "budget.below-estimate",
            path,
            f"{budget:.2f} USD is less than a full month at {cost.monthly:.2f} USD, {_basis(config, cost)}",
            f"set monthly_usd: {ceil(cost.monthly)}, or destroy the stack when the run is done",
        )
    unknown = [component.name for component in cost.components if component.hourly is None]
    if unknown:
        yield Finding.warning(
            "budget.unknown-price",
            path,
            f"the budget is compared with known prices only, without: {'; '.join(unknown)}",
            "add the cost of these to monthly_usd yourself",
        )
    yield from _fallback_budget(config, cost)


def _fallback_budget(config: StackConfig, cost: CostEstimate) -> Iterable[Finding]:
    fallback, stack_hourly = most_expensive_rung(config, cost)
    budget, monthly = config.budget.monthly_usd, stack_hourly * HOURS_PER_MONTH + cost.upfront
    if fallback == rung_in_use(config, cost) or monthly <= budget:
        return
    rung = f"the fallback capacity[{fallback}] ({config.cluster.capacity[fallback].kind})"
    lasts = "not one hour" if stack_hourly > budget else f"{budget / stack_hourly:.0f} of {HOURS_PER_MONTH} hours"
    yield Finding.warning(
        "budget.fallback",
        "gangway:budget.monthly_usd",
        f"at {stack_hourly:.2f} USD an hour on {rung}{foreign_mark(cost.components)}, {budget:.2f} USD last {lasts}",
        f"set monthly_usd: {ceil(monthly)} for a full month of it, or leave that rung out",
    )


def _stop_delay(config: StackConfig, cost: CostEstimate | None) -> Iterable[Finding]:
    budget, delay = config.budget, load_billing().delays.get(config.provider)
    if budget.stop_at_percent is None or delay is None:
        return
    (least, most), fact = delay.stop_hours, delay.most_hours
    hours = f"{least:g} to {most:g} h" if least else f"up to {most:g} h"
    late = f"no hard limit: the stop typically comes {hours} after the cost ({fact.source}; {fact.dated})"
    position, hourly = (0, 0.0) if cost is None else most_expensive_rung(config, cost)
    if cost is not None and hourly:
        kind, regions = config.cluster.capacity[position].kind, foreign_regions(cost.components)
        prices = f", in part at the prices of {', '.join(regions)}" if regions else ""
        prices += ", without what has no known price" if any(c.hourly is None for c in cost.components) else ""
        usd = f"{hourly * least:,.0f} to {hourly * most:,.0f}" if least else f"up to {hourly * most:,.0f}"
        late += (
            f": {usd} USD more with all nodes on capacity[{position}] ({kind}), at {hourly:,.2f} USD an hour{prices}; "
            f"that is up to {hourly * most / budget.monthly_usd:.0%} of monthly_usd"
        )
    yield Finding.info(
        "budget.late",
        "gangway:budget.stop_at_percent",
        late,
        "keep that margin between stop_at_percent and your real limit",
    )


def money_findings(
    config: StackConfig, rungs: Sequence[RungCost], job: Pace | None, lines: Sequence[CostComponent], today: date
) -> Iterable[Finding]:
    """All findings about the estimate. `job`: None for a custom command, whose checkpoints are unknown."""
    rungs = [rung for rung in rungs if rung.in_reach]
    if job is not None:
        yield from _interruptions(config, rungs, job)
    for position, rung in enumerate(config.cluster.capacity):
        if isinstance(rung, CapacityBlock) and not rung.purchase and rung.paid_usd_per_hour is None:
            yield Finding.warning(
                "cost.block-not-included",
                f"gangway:cluster.capacity[{position}].paid_usd_per_hour",
                f"the block {rung.id} was paid for earlier, and no total includes its cost",
                "write its price per node hour in US dollars: paid_usd_per_hour",
            )
    yield from stale_prices(lines, rungs, today)
    if missing := missing_usage(config):
        yield Finding.info(
            "cost.usage-unsaid",
            "gangway:estimate",
            f"not in the estimate, because the amounts are unknown: {'; '.join(missing)}",
            "write the amounts of an earlier run under gangway:estimate",
        )
    for name, why in idle_settings(config).items():
        yield Finding.warning("estimate.ignored", f"gangway:estimate.{name}", f"of no effect: {why}", f"remove {name}")


def _interruptions(config: StackConfig, rungs: Sequence[RungCost], job: Pace) -> Iterable[Finding]:
    for rung in rungs:
        yield from _spot(config, rung, job)
    ending = [rung for rung in rungs if rung.spot.feasible]
    known = [rung for rung in ending if rung.taken is not None and rung.taken.value is not None]
    # Without a spot rung of known rate, checkpoints matter on the first rung, and one finding is enough.
    for rung in known or [rung for rung in rungs[:1] if rung.spot.feasible]:
        yield from _interval(config, rung, job)


def _spot(config: StackConfig, rung: RungCost, job: Pace) -> Iterable[Finding]:
    path = f"gangway:cluster.capacity[{rung.position}]"
    if not rung.spot.feasible:
        yield _infeasible(config, rung, job, path)
    elif rung.taken is not None and rung.taken.value is None:
        yield Finding.info(
            "capacity.spot-rate-unknown",
            path,
            f"the interruption rate of these nodes is not known, so only failures are priced: {rung.taken.source}",
            "if you have measured it, write gangway:estimate.taken_percent_per_month",
        )


def _infeasible(config: StackConfig, rung: RungCost, job: Pace, path: str) -> Finding:
    """An error if it is true for the whole band of speeds, a warning if only for the rung's speed."""
    spot, restart_sec = rung.spot, config.estimate.restart_sec
    mtbf_sec = spot.mtbf_hours * 3600
    lost_sec = spot.interval_sec / 2 + restart_sec
    alternative = "use fewer nodes, or another kind of capacity"
    best_sec = spot.best_interval_sec
    every = round_down(best_sec * job.images_per_second / 1000)
    is_enough = best_sec / 2 + restart_sec < mtbf_sec
    surely = job.shortest_sec / 2 + restart_sec >= mtbf_sec
    faster = "" if surely else f" at {job.images_per_second:,.0f} images/s ({job.source}); it may be faster"
    make = Finding.error if surely else Finding.warning
    return make(
        "capacity.spot-infeasible",
        path,
        f"on {rung.kind} this job will probably never end: its {config.cluster.nodes.max} nodes lose one every "
        f"{spot.mtbf_hours:.2f} h, and each loss costs {lost_sec / 3600:.2f} h (half a checkpoint interval, and the "
        f"restart){faster}",
        f"set gangway:job.checkpoint_kimg: {every:g}, or {alternative}" if is_enough else alternative,
    )


def _interval(config: StackConfig, rung: RungCost, job: Pace) -> Iterable[Finding]:
    spot, restart_sec = rung.spot, config.estimate.restart_sec
    mtbf_sec, run_sec = spot.mtbf_hours * 3600, config.work.max_hours * 3600
    saving_sec = save_sec(config)

    def longer(interval_sec: float) -> float:
        return (1 + saving_sec / interval_sec) / (1 - (interval_sec / 2 + restart_sec) / mtbf_sec)

    def ratio(interval_sec: float) -> float:
        return longer(interval_sec) / longer(min(best_interval_sec(saving_sec, mtbf_sec, restart_sec), run_sec))

    best_sec = min(spot.best_interval_sec, run_sec)
    often = job.interval_sec < best_sec
    if often and job.checkpoint_kimg >= config.training.kimg:
        return  # saved once, at its end
    surely = ratio(job.longest_sec if often else job.shortest_sec)
    if min(surely, ratio(job.interval_sec)) <= LONG_RUN_FACTOR or often != (job.longest_sec < best_sec):
        return
    # Near the optimum the gain is small: do not advise hours without a checkpoint.
    advised_sec = min(best_sec, saving_sec / SMALL_SHARE) if often else best_sec
    yield Finding.warning(
        "checkpoint.interval",
        "gangway:job.checkpoint_kimg",
        f"a checkpoint every {job.checkpoint_kimg:g} kimg, {span(job.interval_sec)} at "
        f"{job.images_per_second:,.0f} images/s ({job.source}), is too {'often' if often else 'seldom'} for "
        f"{rung.kind}: the run takes {ratio(job.interval_sec) - 1:.0%} longer than with the best interval, "
        f"{span(best_sec)} (Young and Daly; a checkpoint is assumed to take {saving_sec:.2g} s: "
        "gangway:estimate.checkpoint_sec)",
        f"set checkpoint_kimg: {round_down(advised_sec * job.images_per_second / 1000):g}, "
        f"one every {span(advised_sec)}",
    )


def stale_prices(lines: Sequence[CostComponent], rungs: Sequence[RungCost], today: date) -> Iterable[Finding]:
    """Prices and interruption rates whose source is too old, or has no date."""
    used = {line.name: (line.as_of, line.read_on, line.confidence) for line in lines if line.price is not None}
    for rung in rungs:
        if rung.taken is not None and rung.taken.value is not None:
            fact = rung.taken
            name = f"rate of interruptions of capacity[{rung.position}]"
            used[name] = (fact.as_of_text, fact.seen_on.isoformat(), fact.confidence)
    stale = {name: source for name, source in used.items() if is_stale(source[0], source[2], today)}
    old = {name: as_of for name, (as_of, _, confidence) in stale.items() if as_of and confidence != "recalled"}
    undated = {name: source for name, source in stale.items() if name not in old}
    parts = []
    if old:
        parts.append(
            f"{len(old)} older than {STALE_DAYS} days, the oldest of {min(old.values())} ({_first_name(list(old))})"
        )
    if undated:
        read = sorted(day for as_of, read_on, _ in undated.values() if (day := read_on or as_of))
        since = f", read from {read[0]} on" if read else ""
        parts.append(f"{len(undated)} undated or recalled{since} ({_first_name(list(undated))})")
    if parts:
        yield Finding.warning(
            "prices.stale",
            "gangway:region",
            f"of {len(used)} figures, {'; '.join(parts)}",
            "run `gangway prices refresh`, which reads most of them",
        )


def _first_name(names: Sequence[str]) -> str:
    return names[0].split(":")[0] + (", ..." if len(names) > 1 else "")


def span(seconds: float) -> str:
    """Formats a duration in s, min or h."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
