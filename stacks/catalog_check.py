"""`gangway catalog list` and `gangway catalog check --live`: the machine catalogue, and whether EC2 agrees with it.

    $ gangway catalog list --json
    $ gangway catalog check --live --region us-east-2

Prints and compares; it never rewrites the catalogue. What takes long to import is imported by the command that needs
it, because `gangway --help` imports this module.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from components.findings import InputError, nearest_hint

if TYPE_CHECKING:
    from rich.table import Table

    from components.aws.live_types import Difference, Ec2Client
    from components.catalog import Catalog, MachineType

__all__ = ["LiveCheck", "app", "check_live", "differences_table", "machine_row", "machines_table"]

EXIT_DIFFERENT = 1
HOME_REGION = {"aws": "us-east-1"}
"""The region whose prices the list shows, one a provider."""

app = typer.Typer(help="The machine types Gangway knows, and where each fact is from.", no_args_is_help=True)


@dataclass(frozen=True)
class LiveCheck:
    """The outcome of a comparison with one region of EC2."""

    region: str
    compared: int
    not_offered: tuple[str, ...]
    differences: "tuple[Difference, ...]"

    def to_json(self) -> dict[str, Any]:
        """Plain JSON data."""
        return {
            "region": self.region,
            "compared": self.compared,
            "not_offered": list(self.not_offered),
            "differences": [difference.to_json() for difference in self.differences],
        }


def check_live(region: str, client: "Ec2Client") -> LiveCheck:
    """Compares the catalogue's AWS machines with what `client` answers for `region`.

    Raises:
        InputError: no credentials, or EC2 cannot be reached.
    """
    from components.aws.live_types import compare, fetch_types, not_offered
    from components.catalog import load

    machines = [machine for machine in load().machines.values() if machine.provider == "aws"]
    answer = fetch_types(client, f"--live --region {region}")
    absent = not_offered(machines, answer)
    return LiveCheck(region, len(machines) - len(absent), tuple(absent), tuple(compare(machines, answer)))


@app.command("list")
def list_machines(
    provider: Annotated[str | None, typer.Option(help="Only this provider's machines.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, each value with its source.")] = False,
) -> None:
    """List the machine types: accelerators, memory, network, fabric and list price."""
    from components.catalog import PROVIDERS, load

    if provider not in (None, *PROVIDERS):
        hint = nearest_hint(str(provider), PROVIDERS)
        raise InputError("--provider", "no such provider", value=provider, allowed=", ".join(PROVIDERS), fix=hint)
    catalog = load()
    machines = [machine for machine in catalog.machines.values() if provider in (None, machine.provider)]
    if as_json:
        import json

        typer.echo(json.dumps([machine_row(machine, catalog) for machine in machines], indent=2))
    else:
        from rich.console import Console

        Console().print(machines_table(machines, catalog))


@app.command("check")
def check(
    live: Annotated[bool, typer.Option("--live", help="Ask EC2; needs credentials, changes nothing.")] = False,
    region: Annotated[str, typer.Option(help="Which region of AWS to ask.")] = "us-east-1",
    as_json: Annotated[bool, typer.Option("--json", help="Print the outcome as JSON.")] = False,
) -> None:
    """Check the catalogue: that it loads and, with --live, that EC2 says the same.

    Exit code 0: no difference. 1: differences. 2: EC2 could not be asked.
    """
    if not live:
        from components.catalog import load

        typer.echo(f"{len(load().machines)} machine types load and keep their layout rules; --live asks EC2 too")
        return
    import boto3

    outcome = check_live(region, boto3.client("ec2", region_name=region))
    if as_json:
        import json

        typer.echo(json.dumps(outcome.to_json(), indent=2))
    else:
        from rich.console import Console

        console = Console()
        if outcome.differences:
            console.print(differences_table(outcome))
        console.print(f"{outcome.compared} types compared in {region}, {len(outcome.differences)} differences")
        if outcome.not_offered:
            console.print(f"not offered in {region}: {', '.join(outcome.not_offered)}")
    raise typer.Exit(EXIT_DIFFERENT if outcome.differences else 0)


def machine_row(machine: "MachineType", catalog: "Catalog") -> dict[str, Any]:
    """One machine as plain JSON data, each fact with its source, and its price where one is known."""
    price = catalog.price(machine.name, HOME_REGION[machine.provider])
    return {
        **machine.model_dump(mode="json"),
        "price": None if price is None else price.model_dump(mode="json"),
    }


def machines_table(machines: "Iterable[MachineType]", catalog: "Catalog") -> "Table":
    """The machines as a person reads them; `?` stands where nobody knows."""
    from rich.table import Table

    regions = ", ".join(HOME_REGION.values())
    table = Table(title=f"machine types, on-demand list prices of {regions}", title_justify="left")
    for heading in ("machine type", "accelerators", "GiB each", "vCPU", "Gbit/s", "fabric", "USD/h"):
        table.add_column(heading, justify="left" if heading in ("machine type", "accelerators", "fabric") else "right")
    for machine in machines:
        price = catalog.price(machine.name, HOME_REGION[machine.provider])
        table.add_row(
            machine.name,
            machine.accelerator,
            _number(machine.accelerator_memory_gib.value),
            str(machine.vcpus.value),
            _number(machine.network_gbps.value),
            f"{machine.fabric.num_efa_interfaces} EFA" if machine.fabric else "none",
            _usd(price.on_demand.value if price else None),
        )
    return table


def differences_table(outcome: LiveCheck) -> "Table":
    """Where the catalogue and EC2 disagree."""
    from rich.table import Table

    table = Table("machine type", "field", "catalogue", "EC2", title=f"differences, {outcome.region}")
    for difference in outcome.differences:
        catalogue = "unknown" if difference.catalogue is None else str(difference.catalogue)
        table.add_row(difference.machine_type, difference.field, catalogue, str(difference.live))
    return table


def _number(value: float | None) -> str:
    return "?" if value is None else f"{value:g}"


def _usd(value: float | None) -> str:
    return "?" if value is None else f"{value:.3f}"
