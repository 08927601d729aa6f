"""Which of several engines a job goes to, by what it would come to there."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from gangway.components.catalog.loader import load_provider
from gangway.components.core.findings import Finding, InputError
from gangway.components.estimate.energy import estimate_carbon, estimate_energy
from gangway.components.estimate.regions import Place, read_place, traffic_price
from gangway.jobs.base import JobStatus, Phase, Room, RunInterval
from gangway.jobs.local.engine import LocalQueue
from gangway.jobs.sites import (
    By,
    Nodes,
    Site,
    charge,
    choose_engine,
    find_nodes,
    get_engine,
    get_site,
    get_sites,
    usage_cost,
)
from gangway.stacks.config import engines_file
from gangway.stacks.config.engines_file import NamedEngine
from gangway.stacks.config.job_file import JobFile


@dataclass
class _Pretended:
    """An engine that is only asked."""

    where: str
    has_room: bool
    region: Place | None = None
    refuses: bool = False
    kind: str = "local"

    def findings(self, job: JobFile) -> list[Finding]:
        return [Finding.error("no", "nodes", "too many", "fewer")] if self.refuses else []

    def room(self, job: JobFile) -> Room:
        return Room(self.has_room, "so it is")

    def submit(self, job: JobFile) -> str:
        raise NotImplementedError

    def status(self, job_id: str) -> JobStatus:
        raise NotImplementedError

    def jobs(self) -> Sequence[JobStatus]:
        raise NotImplementedError

    def log(self, job_id: str, offset: int = 0) -> tuple[str, int]:
        raise NotImplementedError

    def cancel(self, job_id: str) -> None:
        raise NotImplementedError

    def ensure_begun(self, job_id: str) -> None:
        raise NotImplementedError


def site(where: str, usd: float | None, *, room: bool = True, **more: Any) -> Site:
    return Site(_Pretended(where, room, **more), where, Nodes(usd, "a list"))


def job(**more: Any) -> JobFile:
    return JobFile.model_validate({"name": "a", "command": ["true"], "max_hours": 2, **more})


def chosen(sites: list[Site], by: By | None = None, **more: Any) -> str:
    return choose_engine(sites, job(**more), by).engine.where


def test_the_cheapest_with_room_where_all_are_priced() -> None:
    sites = [site("dear", 9), site("full", 1, room=False), site("cheap", 3)]
    placed = choose_engine(sites, job())
    assert (placed.engine.where, placed.now) == ("cheap", True)
    assert any("6.00 USD at most (1 x 2 h at 3 USD: a list)" in line for line in placed.lines)


def test_without_a_price_the_first_with_room() -> None:
    assert chosen([site("a", None, room=False), site("b", None), site("c", 1)]) == "b"
    assert chosen([site("a", 9), site("b", None), site("c", 1)]) == "a"


def test_what_is_asked_for_decides() -> None:
    sites = [site("dear", 9), site("unknown", None), site("cheap", 3)]
    assert chosen(sites, By.ORDER) == "dear"
    assert chosen(sites, By.COST) == "cheap"
    assert chosen(sites[:2][::-1], By.COST) == "dear", "what nobody knows comes last"


def test_where_none_has_room_it_waits_for_the_fewest_dollars() -> None:
    placed = choose_engine([site("dear", 9, room=False), site("cheap", 3, room=False)], job())
    assert (placed.engine.where, placed.now) == ("cheap", False)
    assert placed.lines[-1] == "local, cheap: the job waits there, at the lowest cost"


def test_who_refuses_it_is_not_counted() -> None:
    assert chosen([site("unfit", None, refuses=True), site("dear", 9), site("cheap", 3)]) == "cheap"
    with pytest.raises(InputError, match="no engine accepts this job"):
        choose_engine([site("unfit", 1, refuses=True)], job())


def test_outputs_go_past_an_engine_without_containers(tmp_path: Path) -> None:
    here, containers = Site(LocalQueue(tmp_path / "here")), site("containers", None, room=False)
    placed = choose_engine([here, containers], job(outputs=["/work/results"]))
    assert placed.engine.where == "containers"
    assert any("cannot run it: outputs" in line for line in placed.lines)
    with pytest.raises(InputError, match="no engine accepts this job") as refused:
        choose_engine([here], job(outputs=["/work/results"]))
    assert "$GANGWAY_RUN_DIR" in refused.value.fix
    assert not (tmp_path / "here").exists()


def test_data_on_their_way_are_in_the_price() -> None:
    near, far = read_place("aws:us-east-1", ""), read_place("aws:eu-central-1", "")
    sites = [site("near", 5, region=near), site("far", 4.9, region=far)]
    assert chosen(sites) == "far"
    data = {"region": "aws:us-east-1", "gib": 40}
    assert chosen(sites, data=data) == "near"
    price = traffic_price(near, far).value
    assert price
    assert charge(sites[1], job(data=data)).usd == pytest.approx(4.9 * 2 + 40 * price)


def test_a_way_that_nobody_has_priced_makes_no_price() -> None:
    data = {"region": "hosts:lab/DE", "gib": 1}
    assert charge(site("a", 5, region=read_place("aws:us-east-1", "")), job(data=data)).usd is None
    assert charge(site("a", 5), job(data=data)).usd is None, "nobody has said where it stands"


@given(
    st.lists(st.tuples(st.one_of(st.none(), st.floats(0, 1e6)), st.booleans()), min_size=1, max_size=8),
    st.sampled_from([None, *By]),
)
def test_one_with_room_goes_before_all_without(given: list[tuple[float | None, bool]], by: By | None) -> None:
    placed = choose_engine([site(str(at), usd, room=room) for at, (usd, room) in enumerate(given)], job(), by)
    assert placed.now is any(room for _, room in given)
    usd, _ = given[int(placed.engine.where)]
    known = [usd for usd, room in given if room is placed.now and usd is not None]
    if by is By.COST and known:
        assert usd == min(known)


def test_the_catalogue_has_what_nodes_cost_and_emit() -> None:
    named = NamedEngine(engine="local", region="aws:us-east-1", machine_type="p5.48xlarge")
    nodes = find_nodes("a", named)
    catalog = load_provider("aws")
    on_demand = catalog.price("p5.48xlarge", "us-east-1", "on-demand")
    on_spot = catalog.price("p5.48xlarge", "us-east-1", "spot")
    assert on_demand is not None
    assert on_spot is not None
    assert nodes.usd_per_hour == on_demand.usd
    assert on_demand.source in nodes.source
    charged = charge(Site(_Pretended("a", True), "a", nodes), job(nodes={"min": 1, "max": 3}))
    region = catalog.region("us-east-1", "aws")
    energy = estimate_energy(catalog.machine("p5.48xlarge"), 3, 2, region)
    assert charged.gco2e == estimate_carbon(energy, region).gco2e
    spot = find_nodes("a", named.model_copy(update={"capacity": "spot"}))
    assert spot.usd_per_hour == on_spot.high
    own = find_nodes("a", named.model_copy(update={"usd_per_node_hour": 1.0}))
    assert (own.usd_per_hour, own.source) == (1.0, "engines.a.usd_per_node_hour")


def test_a_price_does_not_travel_to_another_region() -> None:
    catalog = load_provider("aws")
    listed = {price.region for price in catalog.prices if price.machine_type == "p5.48xlarge"}
    other = next(name for name in catalog.regions if name not in listed)
    nodes = find_nodes("a", NamedEngine(engine="local", region=f"aws:{other}", machine_type="p5.48xlarge"))
    assert nodes.usd_per_hour is None
    assert other in nodes.source


def test_the_cleaner_region_where_carbon_decides() -> None:
    regions = load_provider("aws").regions
    grams = {name: each.intensity_g_per_kwh.value for name, each in regions.items()}
    known = {name: value for name, value in grams.items() if value is not None}
    dirty, clean = (choose(known, key=lambda name: known[name]) for choose in (max, min))

    def of(region: str) -> Site:
        named = NamedEngine(engine="local", region=f"aws:{region}", machine_type="p5.48xlarge", usd_per_node_hour=1)
        return Site(_Pretended(region, True), region, find_nodes(region, named))

    assert chosen([of(dirty), of(clean)], By.CARBON) == clean


@pytest.fixture
def engines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "engines.yaml"
    own = {"engine": f"local:{tmp_path}/a", "region": "hosts:lab/DE", "usd_per_node_hour": 2}
    path.write_text(yaml.safe_dump({"engines": {"mine": own, "other": {"engine": f"local:{tmp_path}/b"}}}), "utf-8")
    monkeypatch.setenv(engines_file.VARIABLE, str(path))


@pytest.mark.usefixtures("engines")
def test_a_name_stands_for_an_engine(tmp_path: Path) -> None:
    found = get_site("mine")
    assert (found.engine.kind, found.engine.where, found.asked) == ("local", str(tmp_path / "a"), "mine")
    assert found.engine.region == read_place("hosts:lab/DE", "")
    assert found.nodes is not None
    assert found.nodes.usd_per_hour == 2
    assert [site.asked for site in get_sites(f"mine,other,local:{tmp_path}/c#hosts:x/DE")] == [
        "mine", "other", f"local:{tmp_path}/c#hosts:x/DE",
    ]  # fmt: skip
    assert len(get_sites(f"mine,local:{tmp_path}/a#hosts:lab/DE")) == 1


@pytest.mark.usefixtures("engines")
def test_a_name_that_nobody_gave_is_refused() -> None:
    with pytest.raises(InputError, match="no engine") as refused:
        get_engine("mien")
    assert "mine" in refused.value.fix
    with pytest.raises(InputError, match="defines the region of a named engine"):
        get_engine("mine#aws:us-east-1")


def test_what_a_job_has_cost_is_its_time_on_nodes() -> None:
    noon = datetime(2026, 11, 1, 12, tzinfo=UTC)
    whole, open_end = RunInterval(noon, noon + timedelta(hours=2), 3), RunInterval(noon + timedelta(hours=4), None, 1)
    status = JobStatus("a-1", "a", "ann", "", Phase.RUNNING, (), 2, None, "", stretches=(whole, open_end))
    found = usage_cost(site("x", 10).nodes, status, noon + timedelta(hours=4.5))
    assert (found.node_hours, found.usd, found.source) == (6.5, 65.0, "a list")
    assert usage_cost(None, status, noon + timedelta(hours=5)).usd is None
    assert usage_cost(site("x", None).nodes, status, noon + timedelta(hours=5)).usd is None
    forgotten = usage_cost(site("x", 10).nodes, replace(status, stretches=None), noon)
    assert (forgotten.node_hours, forgotten.usd) == (None, None)
