"""The script that a machine is given: golden text, and what it does to a machine in small, by real bash."""

import json
import re
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gangway.components.core.job import JobSpec, Training
from gangway.images.hosts import HostSpec, host_docker_argv, host_files, render_host_installer
from gangway.images.specs import job_key
from tests.shellcheck import shell_mistakes

UNITS = "/etc/systemd/system/gangway-"
Words = list[str]


def test_the_first_machines_script_is_golden(first: HostSpec, same_as_golden: Callable[[str, str], None]) -> None:
    same_as_golden("installer-hosts.first.sh", render_host_installer(first))


def test_the_script_of_one_machine_alone_is_golden(alone: HostSpec, same_as_golden: Callable[[str, str], None]) -> None:
    same_as_golden("installer-hosts.alone.sh", render_host_installer(alone))


@pytest.mark.parametrize("which", ["first", "alone"])
def test_it_is_plain_ascii_that_bash_and_shellcheck_accept(
    which: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    text = render_host_installer(request.getfixturevalue(which))
    assert text.isascii()
    path = tmp_path / "installer.sh"
    path.write_text(text)
    subprocess.run(["bash", "-n", path], check=True)
    assert shell_mistakes([path]) == ""


def test_what_is_put_there_is_what_was_rendered(owned: Any, first: HostSpec) -> None:
    done = owned.install(first)
    assert done.returncode == 0, done.stderr
    for file in host_files(first):
        path = owned.root / file.path.lstrip("/")
        assert path.read_text().rstrip() == file.text.rstrip(), file.path
        assert oct(path.stat().st_mode)[-3:] == file.mode[-3:], file.path
    own = {f"/opt/gangway/{name}" for name in ("digest", "files", "installer.sh", "name", "services", "stack")}
    theirs = {"/etc/systemd/system/sshd.service"}
    assert owned.files() == {file.path for file in host_files(first)} | own | theirs


def test_services_are_enabled_and_started_without_waiting(owned: Any, first: HostSpec) -> None:
    owned.install(first)
    services = [
        *("gangway-metadata.service", "gangway-rendezvous.service", "gangway-prometheus.service"),
        *("gangway-trainer.service", "gangway-watch.timer", "gangway-record.timer"),
    ]
    assert owned.systemctl() == [["daemon-reload"], ["enable", *services], ["start", "--no-block", *services]]
    # What is enabled has to say into which target; what it pulls in has to be there.
    units = {file.path for file in host_files(first)}
    for service in services:
        assert "[Install]" in (owned.root / f"etc/systemd/system/{service}").read_text()
        if service.endswith(".timer"):
            assert f"/etc/systemd/system/{service.removesuffix('timer')}service" in units
    assert f"{UNITS}prepare.service" in units


def test_one_machine_alone_needs_no_store_and_no_prometheus(owned: Any, alone: HostSpec) -> None:
    assert owned.install(alone).returncode == 0
    names = {path.rpartition("gangway-")[2] for path in owned.files() if path.startswith(UNITS)}
    assert names == {"metadata.service", "prepare.service", "trainer.service", "watch.service", "watch.timer"}
    prepare = (owned.root / f"{UNITS}prepare.service".lstrip("/")).read_text()
    assert "check-gpu.sh" not in prepare
    assert "pull-image.sh" in prepare


def test_the_same_again_touches_nothing(owned: Any, first: HostSpec) -> None:
    """As after a new key of the SSH user: the trainer is not stopped for it."""
    owned.install(first)
    before = owned.systemctl()
    done = owned.install(first)
    assert (done.returncode, owned.systemctl()) == (0, before)
    assert "nothing to do" in done.stderr


MARKS = ("ended", "told", "kept", "end-put", "unfit", "failed", "first-start", "rests")


def test_other_settings_let_a_job_that_has_ended_go_on_and_the_same_do_not(owned: Any, first: HostSpec) -> None:
    """`max_hours` are no part of the job's key: more of them are the same job."""
    owned.install(first)
    state = owned.root / "run/gangway" / job_key(first.job)
    state.mkdir(parents=True)
    for mark in MARKS:
        (state / mark).write_text("6 max-hours\n")
    assert owned.install(first).returncode == 0
    assert {path.name for path in state.iterdir()} == set(MARKS)
    more = replace(first, max_hours=16)
    assert job_key(more.job) == state.name
    before = len(owned.systemctl())
    # The trainer's own end must not leave marks again.
    owned.small.fake("systemctl", f"[ $1 != disable ] || touch {state}/failed")
    assert owned.install(more).returncode == 0
    assert not state.exists()
    start = owned.systemctl()[before:][-1]
    assert start[:2] == ["start", "--no-block"]
    assert "gangway-trainer.service" in start


def test_another_job_stops_the_old_one_first(owned: Any, first: HostSpec, host_job: JobSpec) -> None:
    owned.install(first)
    before = len(owned.systemctl())
    other = replace(
        first,
        job=host_job.model_copy(update={"training": Training(config={"kimg": 9}, run_dir="/runs")}),
        prometheus_image=None,
    )
    done = owned.install(other)
    assert done.returncode == 0, done.stderr
    stop, *_, start = owned.systemctl()[before:]
    assert stop[:2] == ["disable", "--now"]
    assert {"gangway-trainer.service", "gangway-prometheus.service", "gangway-prepare.service"} < set(stop)
    assert start[:2] == ["start", "--no-block"]
    assert "gangway-prometheus.service" not in start
    assert not {f"{UNITS}prometheus.service", "/etc/gangway/prometheus.yaml"} & owned.files()
    assert json.loads((owned.root / "etc/gangway/train.json").read_text()) == {"kimg": 9}


def test_removal_leaves_what_was_there_and_what_the_job_wrote(owned: Any, first: HostSpec) -> None:
    before = owned.files()
    owned.install(first)
    (owned.root / "run/gangway/key").mkdir(parents=True)
    (owned.root / "run/gangway/key/ended").write_text("0 done")
    (owned.root / "run/gangway-member.pem").write_text("the trainer's copy")
    done = owned.remove()
    assert done.returncode == 0, done.stderr
    assert owned.files() == before
    assert not (owned.root / "opt/gangway").exists()
    assert (owned.root / "opt").is_dir(), "not ours"
    assert (owned.root / "var/lib/gangway/runs/lab/run.json").read_text() == "{}"
    removed = [call[2] for call in owned.small.calls("docker") if call[0] == "rm"]
    names = ("trainer", "rendezvous", "prometheus", "dcgm-exporter", "node-exporter")
    assert removed == [f"gangway-{name}" for name in names]
    assert ["disable", "--now"] in [call[:2] for call in owned.systemctl()]


def test_a_machine_that_was_given_another_name_is_left_alone_by_its_old_one(owned: Any, first: HostSpec) -> None:
    """Pulumi makes what is new before it deletes what is old."""
    owned.install(first, "dgx-1")
    owned.install(first, "renamed")
    there = owned.files()
    done = owned.remove("dgx-1")
    assert (done.returncode, owned.files()) == (0, there)
    assert "stack lab is not installed under the name dgx-1" in done.stderr
    assert owned.remove("renamed").returncode == 0
    assert f"{UNITS}trainer.service" not in owned.files()


LACKS: dict[str, tuple[Callable[[Any], object], str]] = {
    "root": (lambda owned: owned.small.fake("id", "echo 1000"), "whose sudo needs no password"),
    "an engine": (lambda owned: (owned.root / "usr/bin/docker").unlink(), "no /usr/bin/docker: install Docker Engine"),
    "a running engine": (lambda owned: owned.small.fake("docker", "exit 1"), "docker info fails: start"),
    "the right processor": (lambda owned: owned.small.fake("uname", "echo aarch64"), "a aarch64 machine"),
    "a driver": (lambda owned: owned.small.root.joinpath("fake/nvidia-smi").unlink(), "no nvidia-smi: install"),
    "a client": (lambda owned: owned.small.root.joinpath("fake/aws").unlink(), "no aws: install the AWS CLI"),
    "itself": (
        lambda owned: [(owned.root / "opt/gangway").mkdir(), (owned.root / "opt/gangway/stack").write_text("other\n")],
        "this machine belongs to stack other: destroy that stack first",
    ),
}


@pytest.mark.parametrize("what", LACKS)
def test_a_machine_that_lacks_something_is_told_and_not_touched(owned: Any, first: HostSpec, what: str) -> None:
    take_away, said = LACKS[what]
    take_away(owned)
    before = owned.files()
    done = owned.install(first)
    assert (done.returncode, owned.files(), owned.systemctl()) == (1, before, [])
    assert "not ready; nothing was changed:\ngangway:   " in done.stderr
    assert said in done.stderr


def test_everything_that_is_lacking_is_told_at_once(owned: Any, first: HostSpec) -> None:
    for what in ("root", "a driver", "a client"):
        LACKS[what][0](owned)
    assert len(owned.install(first).stderr.splitlines()) == 4


def test_half_a_copy_is_not_run(owned: Any, first: HostSpec) -> None:
    before = owned.files()
    path, digest = owned.script(first)
    text = path.read_text()
    path.write_text(text.replace("TRAINER_UID=1", "TRAINER_UID=3"))
    done = owned.run(path, "install", digest, "dgx-1")
    assert (done.returncode, owned.files()) == (1, before)
    assert "incomplete: run pulumi up again" in done.stderr
    # The last line alone runs anything.
    path.write_text(text[: text.rindex("main ")])
    assert owned.run(path, "install", digest, "dgx-1").returncode == 0
    assert (owned.files(), owned.systemctl()) == (before, [])


@pytest.mark.parametrize("verb", ["enable", "start", "daemon-reload"])
def test_what_cannot_be_started_is_taken_away_again(owned: Any, first: HostSpec, verb: str) -> None:
    before = owned.files()
    owned.small.fake(
        "systemctl", f'[ "$1" != {verb} ] || [ -e {owned.root}/tried ] || {{ touch {owned.root}/tried; exit 1; }}'
    )
    done = owned.install(first)
    assert (done.returncode, owned.files()) == (1, before), done.stderr
    assert "installation failed and was undone" in done.stderr


def test_a_word_it_does_not_know_is_told(owned: Any, first: HostSpec) -> None:
    path, _ = owned.script(first)
    done = owned.run(path, "upgrade")
    assert (done.returncode, "install SHA256 NAME" in done.stderr) == (2, True)


def test_a_container_gets_gpus_and_adapters_as_its_engine_knows_them(first: HostSpec) -> None:
    def after(argv: Words, option: str) -> list[str]:
        return [argv[index + 1] for index, word in enumerate(argv) if word == option]

    docker, podman = (host_docker_argv(replace(first, container_engine=engine)) for engine in ("docker", "podman"))
    assert after(docker, "--gpus") == ["all"]
    assert after(docker, "--device") == ["/dev/infiniband"]
    assert after(podman, "--gpus") == []
    assert after(podman, "--device") == ["nvidia.com/gpu=all", "/dev/infiniband"]
    assert "type=bind,source=/data,target=/data,readonly" in after(docker, "--mount")
    assert "--watch" not in docker, "nobody takes these machines back"
    assert f"--rdzv-endpoint={first.job.rendezvous.host}:29400" in docker


def test_prometheus_asks_every_machine(owned: Any, first: HostSpec) -> None:
    owned.install(first)
    targets = re.findall(r'^ +- "(.*)"$', (owned.root / "etc/gangway/prometheus.yaml").read_text(), re.MULTILINE)
    assert targets == ["10.30.0.11:9400", "[fd00::12]:9400"]
    unit = (owned.root / f"{UNITS}prometheus.service".lstrip("/")).read_text()
    (start,) = re.findall(r"^ExecStart=(.*)$", unit, re.MULTILINE)
    assert start.endswith(" --web.listen-address=127.0.0.1:9090"), "it asks nobody who they are"


def test_a_fabric_without_its_word_for_nccl_is_refused(first: HostSpec, host_job: JobSpec) -> None:
    with pytest.raises(ValueError, match="a fabric without NCCL_NET"):
        replace(first, job=host_job.model_copy(update={"env": {}}))


def test_systemd_accepts_every_unit(first: HostSpec, tmp_path: Path) -> None:
    if not (analyze := shutil.which("systemd-analyze")):
        pytest.skip("no systemd-analyze on this machine")
    units = []
    for file in host_files(first):
        if file.path.startswith(UNITS):
            units.append(tmp_path / Path(file.path).name)
            units[-1].write_text(re.sub(r"^(Exec\w+=-?)\S+", r"\1/bin/true", file.text, flags=re.MULTILINE))
    (tmp_path / "docker.service").write_text("[Service]\nExecStart=/bin/true\n")
    done = subprocess.run(
        [analyze, "verify", "--man=no", *map(str, units)],
        env={"SYSTEMD_UNIT_PATH": f"{tmp_path}:"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
