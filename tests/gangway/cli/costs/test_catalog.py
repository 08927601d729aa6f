"""`gangway catalog`: what it lists, what it compares, and how it ends."""

import json
import re
from datetime import date
from typing import Any

import boto3
import pytest
from botocore.stub import Stubber
from rich.console import Console
from typer.testing import CliRunner

from gangway.cli.costs import catalog as catalog_check
from gangway.cli.costs.catalog import app, check_live, differences_table, machine_row, machines_table, tpus_table
from gangway.components.catalog.loader import PROVIDERS, load, load_provider, load_tpus
from gangway.components.core.findings import InputError
from gangway.stacks.base.registry import sellers


def answer(**changes: Any) -> dict[str, Any]:
    """EC2's answer for g5.xlarge, with some of it changed."""
    return {
        "InstanceType": "g5.xlarge",
        "VCpuInfo": {"DefaultVCpus": 4},
        "MemoryInfo": {"SizeInMiB": 16384},
        "InstanceStorageInfo": {"TotalSizeInGB": 250},
        **changes,
    }


def stubbed(*rows: dict[str, Any]) -> Any:
    ec2 = boto3.client("ec2", region_name="us-east-2", aws_access_key_id="testing", aws_secret_access_key="testing")
    stub = Stubber(ec2)
    stub.add_response("describe_instance_types", {"InstanceTypes": list(rows)})
    stub.activate()
    return ec2


@pytest.fixture
def live(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Makes the command's own client a stub with these rows."""

    def put(*rows: dict[str, Any]) -> None:
        client = stubbed(*rows)
        monkeypatch.setattr(boto3, "client", lambda *args, **kwargs: client)

    return put


def printed(table: Any) -> str:
    console = Console(width=160)
    with console.capture() as capture:
        console.print(table)
    return capture.get()


def test_a_region_that_agrees_has_no_differences() -> None:
    outcome = check_live("us-east-2", stubbed(answer()))
    assert (outcome.region, outcome.compared, outcome.differences) == ("us-east-2", 1, ())
    assert "p5.48xlarge" in outcome.not_offered
    assert len(outcome.not_offered) == sum(m.provider == "aws" for m in load().machines.values()) - 1


def test_a_difference_stands_in_the_table_with_both_values() -> None:
    outcome = check_live("us-east-2", stubbed(answer(VCpuInfo={"DefaultVCpus": 8})))
    text = printed(differences_table(outcome))
    (row,) = [line for line in text.splitlines() if "g5.xlarge" in line]
    assert row.replace("│", " ").split() == ["g5.xlarge", "vcpus", "4", "8"]
    (difference,) = outcome.differences
    assert difference.to_json() == {"machine_type": "g5.xlarge", "field": "vcpus", "catalogue": 4, "live": 8}


def test_check_without_live_asks_nobody() -> None:
    done = CliRunner().invoke(app, ["check"])
    assert done.exit_code == 0
    known = sum(len(load_provider(provider).machines) for provider in PROVIDERS)
    assert f"{known} machine types and {len(load_tpus().generations)} TPU generations are valid" in done.stdout


def test_check_counts_prices_by_the_age_of_their_sources() -> None:
    """What bears no date never counts as young; years later nothing does."""
    now, later = (catalog_check.price_ages(date(year, 11, 21)) for year in (2026, 2036))
    known, young, old, undated = (
        int(number) for number in re.findall(r"\d+(?= prices| from the| older| undated)", now)
    )
    assert known == young + old + undated
    assert young > 0 < undated
    assert f": 0 from the last 180 days, {young + old} older, {undated} undated" in later


def test_check_live_exits_0_when_all_agree(live: Any) -> None:
    live(answer())
    done = CliRunner().invoke(app, ["check", "--live", "--region", "us-east-2"])
    assert done.exit_code == 0
    assert "1 types compared in us-east-2, 0 differences" in done.stdout
    assert "not offered in us-east-2: p3.2xlarge" in done.stdout


def test_check_live_exits_1_on_a_difference(live: Any) -> None:
    live(answer(MemoryInfo={"SizeInMiB": 32768}))
    done = CliRunner().invoke(app, ["check", "--live"])
    assert done.exit_code == 1
    assert "memory_gib" in done.stdout
    assert "1 differences" in done.stdout


@pytest.mark.slow
def test_check_live_as_json(live: Any) -> None:
    live(answer(VCpuInfo={"DefaultVCpus": 8}))
    done = CliRunner().invoke(app, ["check", "--live", "--json"])
    assert done.exit_code == 1
    outcome = json.loads(done.stdout)
    assert (outcome["region"], outcome["compared"]) == ("us-east-1", 1)
    assert outcome["differences"][0]["live"] == 8


def test_without_credentials_there_is_one_clear_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    """No profile, no file, no metadata service: botocore's own search for credentials ends with nothing."""
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    done = CliRunner().invoke(app, ["check", "--live", "--region", "us-east-2"])
    assert isinstance(done.exception, InputError), "the gangway command prints it and exits 2"
    assert done.exception.place == "--live --region us-east-2"
    assert "Unable to locate credentials" in str(done.exception)


def test_the_list_of_azure_shows_infiniband_whole_on_a_narrow_terminal() -> None:
    done = CliRunner().invoke(app, ["list", "--provider", "azure"], env={"COLUMNS": "80"})
    assert done.exit_code == 0
    (row,) = [line for line in done.stdout.splitlines() if "Standard_ND128isr_NDR_GB200_v6" in line]
    assert row.replace("│", " ").split()[1:] == ["GB200x4", "192", "128", "1600", "4", "IB", "108.160"]
    (row,) = [line for line in done.stdout.splitlines() if "Standard_ND96isr_H100_v5" in line]
    assert row.replace("│", " ").split()[1:] == ["H100x8", "80", "96", "3200", "8", "IB", "98.320"]


def test_the_list_shows_machine_fabric_and_price() -> None:
    done = CliRunner().invoke(app, ["list"], env={"COLUMNS": "140"})
    assert done.exit_code == 0
    (row,) = [line for line in done.stdout.splitlines() if "p5.48xlarge" in line]
    for value in ("H100x8", "80", "192", "3200", "32 EFA", "55.04"):
        assert value in row
    assert "p5e.48xlarge" in done.stdout


def test_a_narrow_terminal_cuts_neither_names_nor_prices() -> None:
    console = Console(width=80)
    with console.capture() as capture:
        console.print(machines_table(load(), "us-east-1"))
        console.print(tpus_table("us-central1"))
    shown = capture.get()
    assert "…" not in shown
    for name in load().machines:
        assert name in shown


def test_what_nobody_knows_is_a_question_mark() -> None:
    text = printed(machines_table(load(), "us-east-1"))
    (unpriced,) = [line for line in text.splitlines() if "p5e.48xlarge" in line]
    (plain,) = [line for line in text.splitlines() if "g5.xlarge" in line]
    assert "?" in unpriced
    assert "none" in plain
    assert "?" not in plain


def test_the_list_as_json_carries_sources() -> None:
    done = CliRunner().invoke(app, ["list", "--provider", "aws", "--json"])
    rows = {row["name"]: row for row in json.loads(done.stdout)}
    assert list(rows) == [m.name for m in load().machines.values() if m.provider == "aws"]
    fact = rows["p5.48xlarge"]["num_accelerators"]
    assert (fact["value"], fact["confidence"]) == (8, "documented")
    assert rows["p5.48xlarge"]["price"]["on_demand"]["value"] == 55.04
    assert rows["p5.48xlarge"]["fabric"]["kind"] == "efa"


def test_a_machine_without_a_price_row_says_null() -> None:
    catalog = load()
    without = catalog.model_copy(update={"prices": ()})
    assert machine_row(catalog.machine("p5.48xlarge"), without, "us-east-1")["price"] is None


def test_an_unknown_provider_names_the_nearest() -> None:
    done = CliRunner().invoke(app, ["list", "--provider", "awss"])
    assert isinstance(done.exception, InputError)
    assert done.exception.fix == "did you mean 'aws'?"


def test_every_provider_has_a_region_for_its_prices() -> None:
    homes = {provider.name: provider.home_region for provider in sellers()}
    assert set(homes) == set(PROVIDERS)
    assert all(homes[one.name] in one.catalog_here().regions for one in sellers())


def test_the_list_of_google_cloud_has_gpu_machines_and_tpus() -> None:
    done = CliRunner().invoke(app, ["list", "--provider", "gcp"], env={"COLUMNS": "180"})
    assert done.exit_code == 0
    (mega,) = [line for line in done.stdout.splitlines() if "a3-megagpu-8g" in line]
    assert all(value in mega for value in ("H100x8", "8 GVNIC", "92.214"))
    (v5p,) = [line for line in done.stdout.splitlines() if "v5p-TENSORCORES" in line]
    assert all(value in v5p for value in ("95", "us-central1", "4.200"))
    assert "p5.48xlarge" not in done.stdout


def test_the_list_of_google_cloud_as_json_has_generations_with_sources() -> None:
    done = CliRunner().invoke(app, ["list", "--provider", "gcp", "--json"])
    rows = {row["name"]: row for row in json.loads(done.stdout)}
    assert list(rows) == [*load_provider("gcp").machines, *load_tpus().generations]
    assert rows["v5e"]["chip_watts"]["value"] is None
    assert "no power figure" in rows["v5e"]["chip_watts"]["source"]
    assert rows["v5e"]["price"]["region"] == "us-central1"
