"""Runs for tables: one recorded run, and others made from it with other seeds, arms and figures, which are invented."""

import json
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from gangway.report.comparison.groups import Member, Source
from gangway.report.comparison.tables import Report, get_report
from gangway.trainer.records.quantity import Quantity
from gangway.trainer.records.run_record import InterruptionRecord, RunRecord

RECORDED = Path(__file__).parent / "recorded"
CIFAR10 = {"dataset": "cifar10"}
"""Makes of the recorded run, a DCGAN on digits, one of the papers' task."""
HOSTILE = "<script>alert('x')</script> | $\\frac$ & `*_"


@cache
def recorded() -> RunRecord:
    return RunRecord.model_validate_json((RECORDED / "run.json").read_bytes())


@cache
def recorded_lines() -> tuple[dict[str, Any], ...]:
    return tuple(json.loads(line) for line in (RECORDED / "stats.jsonl").read_text().splitlines())


def scaled(figure: Quantity, factor: float) -> Quantity:
    value = None if figure.value is None else figure.value * factor
    return figure.model_copy(update={"value": value})


def build_record(
    run_id: str = "run-s0",
    seed: int = 0,
    factor: float = 1.0,
    config: Mapping[str, Any] | None = None,
    world_size: int = 1,
    usd: float | None = None,
    stops: int = 0,
    **fields: Any,
) -> RunRecord:
    """The recorded run with another seed, its figures times a factor; further fields by name."""
    whole = recorded()
    dollars = whole.cost.total_usd
    if usd is not None:
        dollars = Quantity(value=usd, unit="USD", provenance="list-price", source="catalogue", as_of="2026-09-06")
    session = whole.sessions[0].model_copy(update={"world_size": world_size})
    stop = InterruptionRecord(
        at=session.end, images=3008, cause="spot-interruption", lost_sec=Quantity.measured(9.8, "s", "clock of rank 0")
    )
    quality = tuple(one.model_copy(update={"trained": scaled(one.trained, factor)}) for one in whole.quality)
    update = {
        "id": run_id,
        "seed": seed,
        "config": whole.config.replace({"seed": seed, **(config or {})}),
        "wall_sec": scaled(whole.wall_sec, factor),
        "sec_per_kimg": scaled(whole.sec_per_kimg, factor),
        "images_per_sec": scaled(whole.images_per_sec, world_size / factor),
        "energy": whole.energy.model_copy(update={"it_joules": scaled(whole.energy.it_joules, factor)}),
        "cost": whole.cost.model_copy(update={"total_usd": dollars}),
        "quality": quality,
        "sessions": (session,),
        "interruptions": (stop,) * stops,
        **fields,
    }
    return whole.model_copy(update=update)


def build_member(
    run_id: str = "run-s0",
    seed: int = 0,
    *,
    stats: tuple[dict[str, Any], ...] | None = None,
    stack: str = "local",
    arm: str = "",
    suite: str = "",
    paper: str = "",
    path: Path = RECORDED,
    **more: Any,
) -> Member:
    lines = recorded_lines() if stats is None else stats
    return Member(build_record(run_id, seed, **more), path, lines, stack, arm, suite, paper)


def build_arms(paper: str = "P3") -> tuple[Member, ...]:
    """Two arms and two seeds of a suite; the treatment takes 0.8 of the control's time and energy."""
    suite: dict[str, Any] = {"suite": "arms", "paper": paper}
    return tuple(
        build_member(
            f"local-{arm}-s{seed}",
            seed,
            arm=arm,
            config={**CIFAR10, **config},
            factor=factor * (1 + seed / 10),
            **suite,
        )
        for arm, config, factor in (("control", {}, 1.0), ("half", {"precision": "bf16"}, 0.8))
        for seed in (0, 1)
    )


def build_environments() -> tuple[Member, ...]:
    """Three stacks and three seeds, with prices: the second is dear and slow, the third was interrupted."""
    places: dict[str, dict[str, Any]] = {
        "single-node": {"factor": 2.0, "usd": 1.0},
        "aws": {"factor": 2.5, "usd": 3.0},
        "gcp": {"factor": 1.0, "usd": 2.0, "world_size": 4, "stops": 1},
    }
    return tuple(
        build_member(
            f"{stack}-s{seed}",
            seed,
            stack=stack,
            suite="places",
            paper="P2",
            machine_type="made-up-4",
            config=CIFAR10,
            **{**more, "factor": more["factor"] * (1 + seed / 20)},
        )
        for stack, more in places.items()
        for seed in (0, 1, 2)
    )


def write_run(folder: Path, record: RunRecord) -> Path:
    """A run's directory, as the trainer leaves it."""
    path = folder / record.id
    path.mkdir(parents=True)
    record.write(path / "run.json")
    (path / "stats.jsonl").write_text("".join(json.dumps(line) + "\n" for line in recorded_lines()))
    Image.effect_noise((256, 128), 60 + record.seed).save(path / "samples.png")
    return path


def write_suite(folder: Path, members: tuple[Member, ...], paper: str | None) -> Path:
    """A suite's folder, with one run more that failed."""

    def row(name: str, stack: str, arm: str, status: str = "recorded", reason: str = "") -> dict[str, Any]:
        ids = {"item": name, "run_id": name, "stack": stack, "arm": arm, "seed": 0}
        return {**ids, "status": status, "reason": reason}

    items = [row(one.name, one.stack, one.arm) for one in members]
    items.append(row("azure-s0", "azure", "", "failed", "no quota"))
    for one in members:
        write_run(folder, one.record)
    results = {"suite": "made-up", "title": HOSTILE, "paper": paper, "items": items}
    (folder / "results.json").write_text(json.dumps(results))
    return folder


@pytest.fixture(scope="session")
def member_of() -> Callable[..., Member]:
    return build_member


@pytest.fixture(scope="session")
def get_record() -> Callable[..., RunRecord]:
    return build_record


@pytest.fixture(scope="session")
def hostile() -> str:
    return HOSTILE


@pytest.fixture(scope="session")
def arms() -> Report:
    """Control against treatment, two seeds each."""
    return get_report(Source(build_arms(), ()), None)


@pytest.fixture(scope="session")
def environments() -> Report:
    """Three environments, three seeds each."""
    return get_report(Source(build_environments(), ()), None)


@pytest.fixture(scope="session")
def members() -> dict[str, tuple[Member, ...]]:
    """The runs of both tables."""
    return {"arms": build_arms(), "environments": build_environments()}


@pytest.fixture
def write() -> Callable[[Path, RunRecord], Path]:
    return write_run


@pytest.fixture(scope="session")
def suite_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A suite's folder on disk: three environments, a run that failed, and a hostile title. Look, do not touch."""
    return write_suite(tmp_path_factory.mktemp("suite") / "made-up", build_environments(), "P2")


@pytest.fixture(scope="session")
def arms_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same of two arms."""
    return write_suite(tmp_path_factory.mktemp("arms") / "made-up", build_arms(), "P3")
