"""`gangway catalog`: list the machine catalogue, and compare it with other sources. Never changes it."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import date
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from gangway.cli.common import EXIT_FINDINGS, print_json

if TYPE_CHECKING:
    from pydantic import BaseModel
    from rich.table import Table

    from gangway.components.aws.pricing import Difference, Ec2Client
    from gangway.components.catalog.crosscheck import Difference as Disagreement
    from gangway.components.catalog.crosscheck import Value
    from gangway.components.catalog.loader import Catalog
    from gangway.components.catalog.schema import MachinePrice, MachineType, TpuPrice
    from gangway.stacks.base.provider import Provider

RowT = TypeVar("RowT", "MachinePrice", "TpuPrice")
_NAMED = 3
"""Machine types that a row names one by one."""

app = typer.Typer(help="The known machine types, with the source of each fact.", no_args_is_help=True)


@dataclass(frozen=True)
class LiveCheck:
    """The result of a comparison with one region of EC2."""

    region: str
    compared: int
    not_offered: tuple[str, ...]
    differences: "tuple[Difference, ...]"


def check_live(region: str, client: "Ec2Client") -> LiveCheck:
    """Compare the catalogue's AWS machines with EC2. InputError: no credentials, or EC2 cannot be reached."""
    from gangway.components.aws.pricing import compare, fetch_types, not_offered
    from gangway.components.catalog.loader import load

    machines = list(load().machines.values())
    answer = fetch_types(client, f"--live --region {region}")
    absent = not_offered(machines, answer)
    return LiveCheck(region, len(machines) - len(absent), tuple(absent), tuple(compare(machines, answer)))


@app.command("list")
def list_machines(
    provider: Annotated[str | None, typer.Option(help="Only machines of this provider.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, each value with its source.")] = False,
) -> None:
    """List the machine types: accelerators, memory, network, fabric and list price."""
    from gangway.stacks.base.registry import chosen_sellers

    shown = chosen_sellers(provider, "--provider")
    if as_json:
        print_json([row for one in shown for row in _rows(one)])
        return
    from rich.console import Console

    for one in shown:
        Console().print(machines_table(one.catalog_here(), one.home_region))
        if one.has_tpus:
            Console().print(tpus_table(one.home_region))


@app.command("check")
def check(
    live: Annotated[bool, typer.Option("--live", help="Compare with EC2; needs credentials, changes nothing.")] = False,
    region: Annotated[str, typer.Option(help="AWS region to compare with.")] = "us-east-1",
    as_json: Annotated[bool, typer.Option("--json", help="Print the outcome as JSON.")] = False,
) -> None:
    """Compare the catalogue with other public catalogues or, with --live, with EC2.

    Exit code 0: no difference without a known reason. 1: differences. 2: EC2 could not be read.
    """
    if not live:
        raise typer.Exit(0 if _check_offline(as_json=as_json) else EXIT_FINDINGS)
    import boto3

    outcome = check_live(region, boto3.client("ec2", region_name=region))
    if as_json:
        print_json(asdict(outcome))
    else:
        from rich.console import Console

        console = Console()
        if outcome.differences:
            console.print(differences_table(outcome))
        console.print(f"{outcome.compared} types compared in {region}, {len(outcome.differences)} differences")
        if outcome.not_offered:
            console.print(f"not offered in {region}: {', '.join(outcome.not_offered)}")
    raise typer.Exit(EXIT_FINDINGS if outcome.differences else 0)


def _check_offline(*, as_json: bool) -> bool:
    from gangway.components.catalog.crosscheck import check as compare_with_others
    from gangway.components.catalog.loader import PROVIDERS, load_tpus
    from gangway.stacks.base.registry import sellers

    outcomes = {provider: compare_with_others(provider) for provider in PROVIDERS}
    if as_json:
        print_json({provider: outcome.to_json() for provider, outcome in outcomes.items()})
        return all(outcome.passes for outcome in outcomes.values())
    from rich.console import Console

    console = Console()
    known = sum(len(one.catalog_here().machines) for one in sellers())
    generations = len(load_tpus().generations)
    typer.echo(f"{known} machine types and {generations} TPU generations are valid")
    for provider, outcome in outcomes.items():
        for differences, title in ((outcome.explained, "explained"), (outcome.unexplained, "unexplained")):
            if differences:
                console.print(crosscheck_table(differences, f"{provider}: {title}"))
        for source, fact, item in outcome.idle:
            typer.echo(f"{provider}: unused reason in crosscheck.yaml: {item}, {fact}, {source}")
        typer.echo(
            f"{provider}: {outcome.compared} facts compared with {len(outcome.sources)} other catalogues: "
            f"{len(outcome.explained)} explained differences, {len(outcome.unexplained)} unexplained"
        )
    typer.echo(price_ages(date.today()))
    typer.echo("--live also compares with EC2; --json prints every source")
    return all(outcome.passes for outcome in outcomes.values())


def crosscheck_table(differences: "Iterable[Disagreement]", title: str) -> "Table":
    """Differences from other catalogues with their reasons, grouped by source, fact and reason."""
    from rich.table import Table

    groups: dict[tuple[str, str, str], list[Disagreement]] = {}
    for one in differences:
        groups.setdefault((one.source, one.field, one.why), []).append(one)
    table = Table(title=title, title_justify="left", expand=True)
    for column in ("source and fact", "ours / theirs"):
        table.add_column(column, overflow="fold")
    for (source, fact, why), group in groups.items():
        values = "; ".join(f"{one.item} {_cell(one.ours)} / {_cell(one.theirs)}" for one in group[:_NAMED])
        more = f"; and {len(group) - _NAMED} more" if len(group) > _NAMED else ""
        table.add_row(f"{source}\n{fact}", f"{values}{more}\n[dim]{why or 'add the reason to crosscheck.yaml'}[/]")
    return table


def _cell(value: "Value") -> str:
    return ", ".join(value) if isinstance(value, tuple) else _number(value)


def price_ages(today: date) -> str:
    """Count recent, old and undated prices by the dates of their sources."""
    from gangway.components.catalog.loader import load_tpus
    from gangway.components.catalog.schema import Fact
    from gangway.components.catalog.validators import STALE_DAYS, is_stale
    from gangway.stacks.base.registry import sellers

    catalogs = [one.catalog_here() for one in sellers()]
    rows = [*(row for catalog in catalogs for row in (*catalog.prices, *catalog.services)), *load_tpus().prices]
    values = [getattr(row, name) for row in rows for name in type(row).model_fields]
    prices = [fact for fact in values if isinstance(fact, Fact) and fact.value is not None]
    stale = [fact for fact in prices if is_stale(fact.as_of_text, fact.confidence, today)]
    old = sum(fact.as_of is not None for fact in stale)
    return (
        f"{len(prices)} prices: {len(prices) - len(stale)} from the last {STALE_DAYS} days, {old} older, "
        f"{len(stale) - old} undated or recalled; `gangway prices refresh` updates most of them"
    )


def _rows(provider: "Provider") -> list[dict[str, Any]]:
    from gangway.components.catalog.loader import load_tpus

    catalog = provider.catalog_here()
    rows = [machine_row(machine, catalog, provider.home_region) for machine in catalog.machines.values()]
    if provider.has_tpus:
        tpus = load_tpus()
        for generation in tpus.generations.values():
            price = _home_price(tpus.get_prices(generation.name), provider.home_region)
            rows.append({"provider": provider.name, **_with_price(generation, price)})
    return rows


def _home_price(rows: Sequence[RowT], region: str) -> RowT | None:
    home = (row for row in rows if row.region == region)
    return next(home, rows[0] if rows else None)


def tpus_table(region: str) -> "Table":
    """The TPU generations with prices per chip in `region`, or the first region with a price."""
    from rich.table import Table

    from gangway.components.catalog.loader import load_tpus
    from gangway.components.catalog.offerings import zone_names

    tpus = load_tpus()
    # Fits 80 columns: names that people copy are never cut.
    table = Table(title="TPU generations, on-demand list prices of a chip", title_justify="left", padding=(0, 1, 0, 0))
    for heading in ("types", "GiB a\nchip", "chips\na host", "USD/\nchip h", "in region", "zones"):
        table.add_column(heading, justify="right" if "\n" in heading else "left", no_wrap=True)
    for tpu in tpus.generations.values():
        price, sold = _home_price(tpus.get_prices(tpu.name), region), tpu.offered.zones.value or {}
        table.add_row(
            f"{tpu.prefix}-{tpu.suffix_counts.upper()}",
            _number(tpu.hbm_gib.value),
            str(tpu.chips_per_host.value),
            _usd(price.on_demand.value if price else None),
            price.region if price else "?",
            "\n".join(name for region, zones in sold.items() for name in zone_names("gcp", region, zones)),
        )
    return table


def machine_row(machine: "MachineType", catalog: "Catalog", region: str) -> dict[str, Any]:
    """One machine as JSON data, each fact with its source, and its price if known."""
    return _with_price(machine, _home_price(catalog.get_prices(machine.name), region))


def _with_price(item: "BaseModel", price: "MachinePrice | TpuPrice | None") -> dict[str, Any]:
    return {**item.model_dump(mode="json"), "price": None if price is None else price.model_dump(mode="json")}


def machines_table(catalog: "Catalog", region: str) -> "Table":
    """The machines with prices in `region`; `?` for unknown values."""
    from rich.table import Table

    # Fits 80 columns.
    title = f"machine types, on-demand list prices of {region}"
    table = Table(title=title, title_justify="left", padding=(0, 1, 0, 0), show_edge=False)
    for heading in ("machine type", "accelerators"):
        table.add_column(heading, no_wrap=True)  # people copy these into stack files: never cut them
    for heading in ("GiB\neach", "vCPU", "Gbit\n/s", "fabric", "USD/h"):
        table.add_column(heading, justify="left" if heading == "fabric" else "right")
    for machine in catalog.machines.values():
        price = _home_price(catalog.get_prices(machine.name), region)
        table.add_row(
            machine.name,
            machine.accelerator,
            _number(machine.accelerator_memory_gib.value),
            str(machine.vcpus.value),
            _number(machine.network_gbps.value),
            _fabric(machine),
            _usd(price.on_demand.value if price else None),
        )
    return table


def differences_table(outcome: LiveCheck) -> "Table":
    """Differences between the catalogue and EC2."""
    from rich.table import Table

    table = Table("machine type", "field", "catalogue", "EC2", title=f"differences, {outcome.region}")
    for difference in outcome.differences:
        catalogue = "unknown" if difference.catalogue is None else str(difference.catalogue)
        table.add_row(difference.machine_type, difference.field, catalogue, str(difference.live))
    return table


def _fabric(machine: "MachineType") -> str:
    if machine.fabric:
        return f"{machine.fabric.num_efa_interfaces} EFA"
    if (infiniband := getattr(machine, "infiniband", None)) is not None:
        return f"{infiniband.num_hcas.value} IB"
    gpu_fabric = getattr(machine, "gpu_fabric", None)
    return f"{gpu_fabric.num_gpu_nics.value} {gpu_fabric.nic_type.value}" if gpu_fabric else "none"


def _number(value: float | None) -> str:
    return "?" if value is None else f"{value:g}"


def _usd(value: float | None) -> str:
    return "?" if value is None else f"{value:.3f}"
