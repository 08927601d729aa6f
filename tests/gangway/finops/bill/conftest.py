"""Bills and run records to reconcile. The files in samples/ are made by hand, in the shapes of the clouds' exports."""

import csv
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from gangway.finops.bill.charge import Charge
from gangway.finops.bill.reader import Bills
from gangway.trainer.records.cost_carbon import carbon, cost, energy
from gangway.trainer.records.quantity import Quantity
from gangway.trainer.records.run_record import RunContext, RunRecord, SessionRecord

DAY = datetime(2026, 10, 5, tzinfo=UTC)
PRICES = {"spot": 22.98, "on-demand": 55.04}


def priced(kind: str) -> Quantity:
    return Quantity(value=PRICES[kind], unit="USD/h", provenance="list-price", source="catalogue", as_of="2026-09-06")


@pytest.fixture(scope="session")
def samples() -> Path:
    """Hand-made bills of 2026-10-05."""
    return Path(__file__).parent / "samples"


@pytest.fixture(scope="session")
def session_of() -> Callable[..., SessionRecord]:
    """A session from and to an hour of the day."""

    def make(begin: float, end: float, *capacity: str, joules: float | None = 3.6e6) -> SessionRecord:
        it_joules = Quantity.absent("J", "no meter") if joules is None else Quantity.measured(joules, "J", "NVML")
        return SessionRecord(
            start=(DAY + timedelta(hours=begin)).isoformat(),
            end=(DAY + timedelta(hours=end)).isoformat(),
            world_size=8 * len(capacity),
            num_nodes=len(capacity),
            images_from=0,
            images_to=1000,
            ended_by="done",
            wall_sec=(end - begin) * 3600,
            backend="nccl",
            device="H100",
            capacity=capacity,
            it_joules=it_joules,
        )

    return make


@pytest.fixture(scope="session")
def report_samples(repo: Path) -> ModuleType:
    """What the report's tests are made of: a whole record, a plan, lines of statistics, a picture."""
    spec = spec_from_file_location("gangway_report_samples", repo / "tests" / "gangway" / "report" / "conftest.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def get_record(report_samples: ModuleType) -> Callable[..., RunRecord]:
    """A record of some sessions, with the dollars and emissions that they come to."""
    whole: RunRecord = report_samples.build_record()

    def make(
        sessions: Iterable[SessionRecord],
        run_id: str = "run-1",
        stack: str = "aws-p5-spot",
        provider: str = "aws",
        context: RunContext | None = None,
    ) -> RunRecord:
        given = list(sessions)
        known = context or RunContext(
            capacity=("spot", "on-demand"),
            usd_per_hour=priced("spot"),
            usd_per_hour_by_kind={kind: priced(kind) for kind in PRICES},
            accelerators_per_node=8,
            embodied_kg_per_accelerator=Quantity(value=575, unit="kg", provenance="assumed", source="recalled"),
            accelerator_life_hours=Quantity(value=35040, unit="h", provenance="assumed", source="four years"),
            intensity_g_per_kwh=Quantity(value=400, unit="gCO2e/kWh", provenance="assumed", source="grid"),
        )
        known = known.model_copy(
            update={"pue": Quantity(value=1.25, unit="1", provenance="assumed", source="operator")}
        )
        numbered = dict(enumerate(given))
        contexts = dict.fromkeys(numbered, known)
        joules = sum(session.it_joules.value or 0.0 for session in given)
        used = energy({"node0/gpu0": Quantity.measured(joules, "J", "NVML")}, numbered, contexts)
        return whole.model_copy(
            update={
                "id": run_id,
                "stack": stack,
                "provider": provider,
                "region": "us-east-2",
                "machine_type": "p5.48xlarge",
                "sessions": tuple(given),
                "energy": used,
                "cost": cost(numbered, contexts),
                "carbon": carbon(used, numbered, 1000, contexts),
            }
        )

    return make


@pytest.fixture(scope="session")
def run_1(get_record: Callable[..., RunRecord], session_of: Callable[..., SessionRecord]) -> RunRecord:
    """Two spot nodes from 10:00 to 13:30."""
    return get_record([session_of(10, 13.5, "spot", "spot")])


@pytest.fixture(scope="session")
def charge_of() -> Callable[..., Charge]:
    """A charge from and to an hour of the day; further fields by name."""

    def make(begin: float, end: float, usd: float, stack: str | None = "aws-p5-spot", **fields: Any) -> Charge:
        plain: dict[str, Any] = {
            "service_provider_name": "aws",
            "billing_account_id": "1",
            "sub_account_id": "2",
            "billing_period": "2026-10-01",
            "service_category": "Compute",
            "service_name": "EC2",
            "region_id": "us-east-2",
            "resource_id": "",
            "charge_category": "Usage",
            "charge_class": "",
            "charge_period_start": DAY + timedelta(hours=begin),
            "charge_period_end": DAY + timedelta(hours=end),
            "billed_cost": usd,
            "effective_cost": usd,
            "billing_currency": "USD",
            "tags": {"gangway_stack": stack} if stack else {},
        }
        return Charge(**{**plain, **fields})

    return make


@pytest.fixture
def write_csv(tmp_path: Path) -> Callable[..., Path]:
    """Writes rows as a CSV file and gives its path."""

    def write(rows: Iterable[Mapping[str, Any]], name: str = "bill.csv") -> Path:
        path, given = tmp_path / name, list(rows)
        with path.open("w", newline="") as file:
            writer = csv.DictWriter(file, list(given[0]))
            writer.writeheader()
            writer.writerows(given)
        return path

    return write


@pytest.fixture
def focus_row() -> Callable[..., dict[str, str]]:
    """A row of FOCUS with the columns that are needed; others and other values by name."""

    def make(**values: str) -> dict[str, str]:
        return {
            "BilledCost": "1.5",
            "EffectiveCost": "1.5",
            "BillingCurrency": "USD",
            "ChargeCategory": "Usage",
            "ChargePeriodStart": "2026-10-05T10:00:00Z",
            "ChargePeriodEnd": "2026-10-05T11:00:00Z",
            "ServiceProviderName": "AWS",
            "ServiceName": "EC2",
            "Tags": '{"gangway:stack": "aws-p5-spot"}',
            **values,
        }

    return make


@pytest.fixture
def charges_in() -> Callable[..., list[Charge]]:
    """All charges of some files."""
    return lambda *paths: list(Bills(paths).charges())


@pytest.fixture
def run_dir(tmp_path: Path, run_1: RunRecord) -> Path:
    """A directory with the record of run-1."""
    path = tmp_path / "runs" / "run-1"
    path.mkdir(parents=True)
    run_1.write(path / "run.json")
    return path
