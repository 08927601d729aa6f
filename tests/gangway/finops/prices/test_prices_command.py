"""`gangway prices` from outside: what is printed, what is written, exit codes, and mistakes."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from gangway.cli import main
from gangway.components.catalog.loader import load_provider
from gangway.components.catalog.validators import Observed
from gangway.components.core.findings import InputError
from gangway.finops.prices import source as opening
from gangway.finops.prices.aws import AwsPublicSource
from gangway.finops.prices.azure import AzureSource
from gangway.finops.prices.gcp import GcpSource
from gangway.finops.prices.source import Answer, Gap, PriceSource, Query, SourceError, UnreachableError, open_source

Open = Callable[[str, datetime], PriceSource]


def run(*arguments: str, exit_code: int = 0) -> Result:
    result = CliRunner().invoke(main.app, ["prices", *arguments], env={"COLUMNS": "160"})
    assert result.exit_code == exit_code, result.output
    return result


def mistake(*arguments: str) -> InputError:
    result = CliRunner().invoke(main.app, ["prices", *arguments])
    assert isinstance(result.exception, InputError), result.output
    return result.exception


class Fixed:
    """A source that always has a cheaper p5, a defect and a gap."""

    name = "aws"
    how = "a test"

    def fetch(self, queries: Sequence[Query]) -> Iterable[Answer]:
        region = queries[0].region
        if region == "eu-west-1":
            raise SourceError("opted out")
        day = datetime.now().date()
        yield Observed("aws", "p5.48xlarge", region, "on_demand", 50.0, "a list", day, url="https://example.com")
        yield Observed("aws", "g5.xlarge", region, "on_demand", 700.0, "a list", day)
        yield Gap(region, "spot prices", "not [authorized]")


@pytest.fixture
def fixed(monkeypatch: pytest.MonkeyPatch, overlays: Path) -> Path:
    def opened(provider: str, now: datetime) -> PriceSource:
        if provider == "gcp":
            raise SourceError("no credentials")
        if provider == "azure":
            raise UnreachableError("no route")
        return Fixed()

    monkeypatch.setattr(opening, "open_source", opened)
    return overlays


def test_a_machines_prices_are_shown_with_their_sources() -> None:
    text = run("show", "p5.48xlarge").stdout
    assert "spot, high" in text
    assert "18.7089" in text
    assert "spot, typical" in text
    assert "2 SkyPilot catalogue v9 (two undated copies), list-price" in text
    assert "unknown in us-east-1: reserved, 1 year; reserved, 3 years; capacity block" in text
    assert "45 known, 39 unknown" in text


def test_at_80_columns_names_of_machines_and_regions_stay_whole() -> None:
    result = CliRunner().invoke(main.app, ["prices", "show", "--provider", "azure"], env={"COLUMNS": "80"})
    table = result.stdout.partition("\n1 ")[0]
    assert "…" not in table
    cells = {line.split("│")[1].strip() for line in table.splitlines() if line.startswith("│")}
    words = {word for cell in cells for word in cell.split()}
    catalog = load_provider("azure")
    machines = {(row.machine_type, row.region) for row in catalog.prices if row.on_demand.value is not None}
    services = {(row.service, row.region) for row in catalog.services if row.usd.value is not None}
    assert {name for names in machines | services for name in names} == words
    assert max(map(len, table.splitlines())) <= 80


def test_json_has_every_price_with_its_source() -> None:
    rows = json.loads(run("show", "--provider", "gcp", "--region", "us-central1", "--json").stdout)
    assert {row["region"] for row in rows} == {"us-central1"}
    chips = [row for row in rows if row["item"] == "v5e"]
    assert [(row["kind"], row["value"], row["unit"]) for row in chips] == [
        ("on_demand", 1.2, "USD/chip-hour"),
        ("spot_high", 0.29771, "USD/chip-hour"),
    ]
    for row in rows:
        assert row["source"]
        assert row["confidence"]
        assert row["origin"] == "catalogue"


def test_a_chip_says_that_it_is_one() -> None:
    text = run("show", "v5p", "--region", "us-central1").stdout
    assert "on demand, per chip-hour" in text


def test_a_refresh_writes_what_is_good_and_says_the_rest(fixed: Path) -> None:
    result = run("refresh", "--provider", "aws", "--region", "us-east-1")
    (path,) = fixed.iterdir()
    assert result.stderr == "aws: a test\n"
    text = result.stdout
    assert "-9.2%" in text
    assert "g5.xlarge us-east-1 on demand: 700 refused: 700 is a placeholder of public lists" in text
    assert "us-east-1 spot prices unknown: not [authorized]" in text
    assert f"1 changed, 0 confirmed, 1 refused; wrote {path}" in text
    assert "overlay 1" in run("show", "p5.48xlarge").stdout
    assert "1 prices differ" in run("diff").stdout
    assert json.loads(run("diff", "catalogue", "overlay", "--json").stdout)[0]["now"] == 50.0


def test_a_dry_run_writes_nothing(fixed: Path) -> None:
    text = run("refresh", "--provider", "aws", "--region", "us-east-1", "--dry-run").stdout
    assert "1 changed, 0 confirmed, 1 refused; nothing written" in text
    assert not fixed.exists()


def test_what_could_not_be_read_is_said_and_the_rest_is_kept(fixed: Path) -> None:
    result = run("refresh", exit_code=1)
    assert [path.name.partition("-")[0] for path in fixed.iterdir()] == ["aws"]
    assert "eu-west-1 not read, prices unchanged: opted out" in result.stdout
    assert "gcp: not read: no credentials" in result.stderr
    assert "azure: not read: no route" in result.stderr


def test_json_of_a_refresh_has_what_became_of_each_price(fixed: Path) -> None:
    answer = json.loads(run("refresh", "--json", exit_code=1).stdout)
    (aws,) = answer["providers"]
    assert aws["failed"] == {"eu-west-1": "opted out"}
    assert answer["failed"] == {"aws eu-west-1": "opted out", "gcp": "no credentials", "azure": "no route"}
    first = next(change for change in aws["changes"] if change["region"] == "us-east-1")
    assert (first["before"], first["value"], first["unit"]) == (55.04, 50.0, "USD/hour")
    assert aws["refused"][0]["reason"].startswith("700 is a placeholder")
    assert aws["written"] == str(next(fixed.iterdir()))


def test_no_network_is_one_clear_error_and_nothing_is_written(fixed: Path) -> None:
    caught = mistake("refresh", "--provider", "azure")
    assert "no price could be read; nothing was written\n  azure: no route" in str(caught)
    assert not fixed.exists()
    assert "eu-west-1" not in str(caught)
    assert "opted out" in str(mistake("refresh", "--provider", "aws", "--region", "eu-west-1"))


def test_a_refresh_that_is_stopped_leaves_nothing(fixed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(self: object, queries: Sequence[Query]) -> Iterable[Answer]:
        raise KeyboardInterrupt

    monkeypatch.setattr(Fixed, "fetch", stopped)
    result = run("refresh", "--provider", "aws", exit_code=130)
    assert "stopped: nothing of aws was written" in result.stderr
    assert not fixed.exists()


def test_a_folder_that_cannot_be_written_is_named(fixed: Path) -> None:
    fixed.write_text("a file where the folder belongs", "utf-8")
    caught = mistake("refresh", "--provider", "aws", "--region", "us-east-1")
    assert caught.place == str(fixed)
    assert "cannot be written" in caught.problem


def test_nothing_new_writes_nothing(fixed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Fixed, "fetch", lambda self, queries: iter(()))
    assert "0 changed, 0 confirmed, 0 refused; nothing written" in run("refresh", "--provider", "aws").stdout
    assert not fixed.exists()


def test_overlays_that_are_turned_off_are_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GANGWAY_PRICES", "none")
    caught = mistake("refresh")
    assert (caught.place, caught.fix) == ("GANGWAY_PRICES", "unset GANGWAY_PRICES, or add --dry-run")


@pytest.mark.parametrize(
    ("arguments", "place", "fix"),
    [
        (("show", "p5.48xlarg"), "ITEM", "did you mean 'p5.48xlarge'?"),
        (("show", "--provider", "aws1"), "--provider", "did you mean 'aws'?"),
        (("refresh", "--region", "us-central11"), "--region", "did you mean 'us-central1'?"),
        (("show", "--provider", "aws", "--region", "eu-nord-1"), "--region", "did you mean 'eu-north-1'?"),
        (("diff", "yesterday"), "A", "run `gangway prices refresh`, which writes the first overlay"),
    ],
)
def test_mistakes_name_the_place_and_the_nearest(arguments: tuple[str, ...], place: str, fix: str) -> None:
    caught = mistake(*arguments)
    assert caught.place == place
    assert caught.fix == fix


def test_the_source_fits_the_credentials(monkeypatch: pytest.MonkeyPatch, now: datetime, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("CLOUDSDK_CONFIG", str(tmp_path))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.delenv("GOOGLE_APPLICATION_CREDENTIALS", raising=False)
    monkeypatch.setenv("NO_GCE_CHECK", "true")
    assert isinstance(open_source("azure", now), AzureSource)
    public = open_source("aws", now)
    assert isinstance(public, AwsPublicSource)
    assert "without credentials: neither spot nor capacity blocks" in public.how
    with pytest.raises(SourceError, match=r"no Application Default Credentials.*GANGWAY_GOOGLE_API_KEY"):
        open_source("gcp", now)
    monkeypatch.setenv("GANGWAY_GOOGLE_API_KEY", "a-key")
    assert isinstance(open_source("gcp", now), GcpSource)
    monkeypatch.setenv("AWS_PROFILE", "nobody")
    with pytest.raises(SourceError, match="nobody"):
        open_source("aws", now)


def test_with_credentials_aws_is_asked_itself(monkeypatch: pytest.MonkeyPatch, now: datetime) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "x")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "x")
    source: Any = open_source("aws", now)
    assert source.how.endswith("with your credentials")
    client = source._clients("ec2", "us-west-2")
    assert client is source._clients("ec2", "us-west-2")
    assert client.meta.region_name == "us-west-2"
    assert client.meta.config.retries["total_max_attempts"] == 6


def test_the_command_line_loads_none_of_it() -> None:
    program = (
        "import sys, gangway.cli; print([m for m in ('boto3', 'requests', 'gangway.components.catalog', 'rich.table') "
        "if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
