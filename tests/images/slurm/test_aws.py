"""Machines of a Slurm on AWS as cloud-init: golden text, what fits, what starts."""

import json
import re
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from gangway.images.aws import user_data_base64gzip
from gangway.images.slurm.aws import AwsSlurmHeadSpec, AwsSlurmNodeSpec, render_slurm_head, render_slurm_node
from gangway.images.specs import FileSystem


@pytest.fixture
def documents(slurm_node: AwsSlurmNodeSpec, slurm_head: AwsSlurmHeadSpec) -> dict[str, str]:
    return {"slurm_node": render_slurm_node(slurm_node), "slurm_head": render_slurm_head(slurm_head)}


def files(document: str) -> dict[str, str]:
    return {file["path"]: file["content"] for file in yaml.safe_load(document)["write_files"]}


@pytest.mark.parametrize("name", ["slurm_node", "slurm_head"])
def test_documents_are_golden_and_fit(
    name: str, documents: dict[str, str], same_as_golden: Callable[[str, str], None]
) -> None:
    same_as_golden(f"cloud-init-aws.{name}.yaml", documents[name])
    assert user_data_base64gzip(documents[name])
    assert documents[name].isascii()


@pytest.mark.parametrize("name", ["slurm_node", "slurm_head"])
def test_scripts_and_units_are_whole(name: str, documents: dict[str, str], tmp_path: Path) -> None:
    found = files(documents[name])
    scripts = [text for path, text in found.items() if path.endswith((".sh", ".env"))]
    assert len(scripts) > 8
    for text in scripts:
        subprocess.run(["bash", "-n"], input=text, text=True, check=True)
    for path, text in found.items():
        if path.endswith(".py"):
            compile(text, path, "exec")
    if not (analyze := shutil.which("systemd-analyze")):
        pytest.skip("no systemd-analyze on this machine")
    units = []
    for path, text in found.items():
        if path.endswith((".service", ".timer")):
            units.append(tmp_path / Path(path).name)
            units[-1].write_text(re.sub(r"^(Exec\w+=-?)\S+", r"\1/bin/true", text, flags=re.MULTILINE))
    done = subprocess.run(
        [analyze, "verify", "--man=no", *map(str, units)],
        capture_output=True,
        text=True,
        env={"SYSTEMD_UNIT_PATH": f"{tmp_path}:"},
    )
    assert [line for line in done.stderr.splitlines() if "gangway" in line] == []


def test_what_is_started_is_there(documents: dict[str, str]) -> None:
    for document in documents.values():
        found = files(document)
        started = next(words[2:] for words in yaml.safe_load(document)["runcmd"] if words[1] == "enable")
        assert started
        assert all(f"/etc/systemd/system/{name}" in found for name in started)
        run = {
            line.partition("=")[2].lstrip("-").split()[0]
            for path, text in found.items()
            if path.endswith(".service")
            for line in text.splitlines()
            if line.startswith("Exec")
        }
        ours = {path for path in run if path.startswith("/opt/gangway")}
        assert ours
        assert ours <= found.keys()


def test_programs_that_slurm_runs_are_where_it_looks(documents: dict[str, str]) -> None:
    conf = files(documents["slurm_head"])["/etc/slurm/slurm.conf"]
    programs = dict(re.findall(r"^(\w*Program|Prolog|Epilog)=(/.+)$", conf, re.MULTILINE))
    on_the_head = {path for name, path in programs.items() if name.endswith("Program")}
    assert on_the_head <= files(documents["slurm_head"]).keys()
    assert set(programs.values()) - on_the_head <= files(documents["slurm_node"]).keys()
    assert len(programs) == 5


def test_no_key_is_in_any_document(documents: dict[str, str]) -> None:
    """Its name alone: who reads user data has no part in the cluster."""
    for document in documents.values():
        assert "MUNGE_KEY=/gangway/demo/munge-key" in document
        assert "munge.key" not in files(document)


def test_the_scaler_knows_each_rungs_group(documents: dict[str, str]) -> None:
    config = json.loads(files(documents["slurm_head"])["/etc/gangway/slurm-scaler.json"])
    assert [(rung["name"], rung["group"], rung["nodes_up"]) for rung in config["rungs"]] == [
        ("spot", "demo-0-spot-1a2b3c4", 1),
        ("on-demand", "demo-1-on-demand-5d6e7f8", 0),
    ]
    assert [rung["count"] for rung in config["rungs"]] == [8, 8]


def test_accounts_only_where_there_are_any(slurm_head: AwsSlurmHeadSpec, documents: dict[str, str]) -> None:
    with_accounts = files(documents["slurm_head"])
    assert "add account vision cluster=demo" in with_accounts["/etc/gangway/slurm-accounts"]
    plain = replace(slurm_head, slurm=replace(slurm_head.slurm, accounting=False, teams=()))
    without = files(render_slurm_head(plain))
    assert not any("slurmdbd" in path or "accounts" in path for path in without)
    assert "mariadb" not in without["/etc/gangway/node.env"]


def test_accounting_is_saved_only_where_a_file_system_outlives_the_head(
    slurm_head: AwsSlurmHeadSpec, documents: dict[str, str]
) -> None:
    on_lustre = files(documents["slurm_head"])
    dump = "/fsx/.gangway/slurm/accounting.sql.gz"
    assert f"SLURM_ACCOUNTING_DUMP={dump}\n" in on_lustre["/etc/gangway/node.env"]
    stopped = on_lustre["/etc/systemd/system/gangway-slurmdbd.service"]
    assert f"ExecStopPost=-/opt/gangway/bin/slurm-save.sh {dump}\n" in stopped
    assert f"RequiresMountsFor={dump}\n" in stopped
    started = next(words for words in yaml.safe_load(documents["slurm_head"])["runcmd"] if words[1] == "enable")
    assert "gangway-slurm-save.timer" in started
    local = replace(slurm_head.slurm, state_dir="/var/lib/gangway/slurm")
    for head in (
        replace(slurm_head, file_system=None, slurm=local),
        replace(slurm_head, slurm=local),
        replace(slurm_head, slurm=replace(slurm_head.slurm, accounting=False, teams=())),
    ):
        found = files(render_slurm_head(head))
        assert not any("save" in path for path in found)
        assert not any("slurm-save.sh" in text or "RequiresMountsFor" in text for text in found.values())
        assert "SLURM_ACCOUNTING_DUMP=''\n" in found["/etc/gangway/node.env"]


def test_what_cannot_be_is_refused(slurm_head: AwsSlurmHeadSpec) -> None:
    wrong: list[dict[str, Any]] = [
        {"groups": ("one",)},
        {"file_system": FileSystem("nfs", "10.0.0.1:/x", "/fsx")},
    ]
    for changes in wrong:
        with pytest.raises(ValueError, match="allowed:"):
            replace(slurm_head, **changes)
