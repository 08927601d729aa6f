"""The systemd units: what starts what, after what, and what is started again."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from gangway.images.aws import AwsHeadSpec, AwsNodeSpec, aws_env_text, render_aws_head, render_aws_node
from gangway.images.render import unit, unit_text
from gangway.trainer.core.errors import EXIT_CODES, EXIT_FAILED, EXIT_INTERRUPTED


def parse_unit(text: str) -> dict[str, dict[str, list[str]]]:
    """A systemd unit; unlike configparser it keeps every value of a repeated key, in order."""
    unit: dict[str, dict[str, list[str]]] = {}
    section = ""
    for line in text.splitlines():
        if match := re.fullmatch(r"\[(\w+)\]", line):
            section = match[1]
            unit[section] = {}
        elif line and not line.startswith("#"):
            key, equals, value = line.partition("=")
            assert equals, f"neither a section, a comment nor key=value: {line!r}"
            unit[section].setdefault(key, []).append(value)
    return unit


def document_of(spec: AwsNodeSpec | AwsHeadSpec) -> str:
    return render_aws_head(spec) if isinstance(spec, AwsHeadSpec) else render_aws_node(spec)


def units_of(spec: AwsNodeSpec | AwsHeadSpec) -> dict[str, dict[str, dict[str, list[str]]]]:
    files = yaml.safe_load(document_of(spec))["write_files"]
    return {Path(f["path"]).name: parse_unit(f["content"]) for f in files if f["path"].endswith((".service", ".timer"))}


def test_trainer_unit_restarts_an_interrupted_job_and_not_a_wrong_one(node: AwsNodeSpec) -> None:
    unit = units_of(node)["gangway-trainer.service"]
    service = unit["Service"]
    assert service["RestartForceExitStatus"] == ["75"]
    final = [code for code in EXIT_CODES if code not in (0, EXIT_FAILED, EXIT_INTERRUPTED)]
    assert service["RestartPreventExitStatus"] == [" ".join(map(str, final))]
    # systemd would count interruptions as well; the launcher counts failures.
    assert unit["Unit"]["StartLimitIntervalSec"] == ["0"]
    assert "StartLimitBurst" not in unit["Unit"]
    assert service["KillSignal"] == ["SIGTERM"]
    assert int(service["TimeoutStopSec"][0]) > node.job.shutdown_timeout_sec
    # The record is put before the node may go.
    scripts = [f"-/opt/gangway/bin/{name}" for name in ("upload-record.sh", "leave-node.sh")]
    assert service["ExecStopPost"][-2:] == scripts
    assert "gangway-prepare.service" in unit["Unit"]["Requires"][0].split()
    assert "gangway-prepare.service" in unit["Unit"]["After"][0].split()


def test_a_run_on_the_nodes_own_disk_has_time_to_be_put(node: AwsNodeSpec, plain_node: AwsNodeSpec) -> None:
    """What follows a command that ran out of time is not run: the node would not learn that its job has ended."""
    stop_sec = [
        int(units_of(spec)["gangway-trainer.service"]["Service"]["TimeoutStopSec"][0]) for spec in (node, plain_node)
    ]
    assert stop_sec == [40, 340]
    assert "RESULTS_SEC=300\n" in aws_env_text(plain_node)


def test_preparation_has_the_planned_steps_in_order(node: AwsNodeSpec, plain_node: AwsNodeSpec) -> None:
    def steps(spec: AwsNodeSpec) -> list[str]:
        return [Path(step).name for step in units_of(spec)["gangway-prepare.service"]["Service"]["ExecStart"]]

    first = ["check-gpu.sh", "check-efa.sh", "mount-scratch.sh", "mount-lustre.sh"]
    assert steps(node) == [*first, "fetch-key.sh", "pull-image.sh"]
    assert steps(plain_node) == ["pull-image.sh"]


@pytest.mark.parametrize("name", ["node", "plain_node", "head", "plain_head"])
def test_units_start_only_what_is_on_the_node(name: str, request: pytest.FixtureRequest) -> None:
    spec = request.getfixturevalue(name)
    document = yaml.safe_load(document_of(spec))
    written = {file["path"]: file["permissions"] for file in document["write_files"]}
    started = [
        value.removeprefix("-").split()[0]
        for unit in units_of(spec).values()
        for key, values in unit.get("Service", {}).items()
        if key.startswith("Exec")
        for value in values
    ]
    ours = [path for path in started if path.startswith("/opt/gangway/")]
    assert ours
    assert all(written[path] == "0755" for path in ours)


def test_the_head_node_serves_and_starts_again_for_ever(head: AwsHeadSpec) -> None:
    units = units_of(head)
    store = units["gangway-rendezvous.service"]
    (start,) = store["Service"]["ExecStart"]
    said = "-m gangway.trainer.launch.rendezvous --member-key /run/gangway-member.pem --port 29400"
    assert "--cap-drop ALL --security-opt no-new-privileges --read-only" in start
    assert f"--entrypoint python {head.job.image} {said}" in start
    assert (store["Service"]["Restart"], store["Unit"]["StartLimitIntervalSec"]) == (["always"], ["0"])
    assert units["gangway-prepare.service"]["Service"]["Restart"] == ["on-failure"], "the image may not be pushed yet"
    assert units["gangway-record.timer"]["Timer"]["OnUnitInactiveSec"] == ["60"]
    (prometheus,) = units["gangway-prometheus.service"]["Service"]["ExecStart"]
    assert " prom/prometheus:v3.7.3" in prometheus


def test_every_worker_looks_each_minute_whether_it_is_needed(node: AwsNodeSpec, plain_node: AwsNodeSpec) -> None:
    for spec in (node, plain_node):
        units = units_of(spec)
        assert units["gangway-watch.timer"]["Timer"]["OnUnitInactiveSec"] == ["60"]
        assert units["gangway-watch.service"]["Service"]["ExecStart"] == ["/opt/gangway/bin/watch-node.sh"]
        _, enabled, _ = yaml.safe_load(render_aws_node(spec))["runcmd"]
        assert "gangway-watch.timer" in enabled


def test_a_head_nodes_containers_write_to_the_log_group(head: AwsHeadSpec, plain_head: AwsHeadSpec) -> None:
    for name in ("rendezvous", "prometheus"):
        (start,) = units_of(head)[f"gangway-{name}.service"]["Service"]["ExecStart"]
        assert " --log-driver awslogs --log-opt awslogs-group=/gangway/demo " in start
        assert f" --log-opt awslogs-stream=head/{name} " in start
    (start,) = units_of(plain_head)["gangway-rendezvous.service"]["Service"]["ExecStart"]
    assert "--log-" not in start


@pytest.mark.parametrize(("name", "tries_again"), [("head", True), ("node", False)])
def test_only_a_head_node_prepares_again(name: str, tries_again: bool, request: pytest.FixtureRequest) -> None:
    """A worker that cannot be prepared is given up."""
    service = units_of(request.getfixturevalue(name))["gangway-prepare.service"]["Service"]
    assert ("Restart" in service) == tries_again


def test_a_plain_head_node_is_only_the_rendezvous(plain_head: AwsHeadSpec) -> None:
    assert sorted(units_of(plain_head)) == [
        "gangway-metadata.service",
        "gangway-prepare.service",
        "gangway-rendezvous.service",
    ]


_attack = pytest.mark.attack("a stack file's author", "values that add a line or a word to a unit")

HOSTILE = ["a\nExecStartPre=/bin/touch /tmp/x", "%n", "$HOME", "${HOME}", 'a" "b', "a b", "\\", "'", ";", "", "\t", "ü"]
_ESCAPE = re.compile(r'\\x([0-9a-f]{2})|\\([\\"])|%%|\$\$')


def read_back(word: str) -> str:
    """One word as systemd.syntax(7) and systemd.service(5) have it: quotes and escapes first, then %% and $$."""
    assert "\n" not in word
    if not word.startswith('"'):
        assert re.fullmatch(r"[^\s\"'\\\\%$;]+", word), "nothing of this means anything without quotes"
        return word
    assert word.endswith('"')
    inner = word[1:-1]
    assert not re.search(r"[^ -~]", inner)
    rest = _ESCAPE.sub("", inner)
    assert not set(rest) & set('"\\%$'), "nothing is left that means more"

    def meant(found: re.Match[str]) -> bytes:
        if found[1]:
            return bytes.fromhex(found[1])
        return (found[2] or found[0][0]).encode()

    parts, at = [], 0
    for found in _ESCAPE.finditer(inner):
        parts += [inner[at : found.start()].encode(), meant(found)]
        at = found.end()
    return b"".join([*parts, inner[at:].encode()]).decode()


@_attack
@given(st.one_of(st.text(st.characters(exclude_characters="\0", codec="utf-8")), st.sampled_from(HOSTILE)))
def test_every_text_is_one_word_that_means_it(text: str) -> None:
    assert read_back(str(unit_text(text))) == text


@_attack
def test_several_are_several_and_none_is_nothing() -> None:
    assert unit_text(["--image", "a b", "%h"]) == '--image "a b" "%%h"'
    assert unit_text([]) == ""
    assert unit_text(7) == 7


@_attack
@pytest.mark.parametrize("image", HOSTILE)
def test_no_value_adds_a_line_or_a_word_to_a_unit(image: str, tmp_path: Path) -> None:
    def rendered(name: str) -> str:
        spec = {"image": name, "member_mount": [], "user_argv": [], "store_argv": ["--port", "29400"], "signed": True}
        values = {"log_options": lambda stream: [], "image_has_docker": False, "spec": spec}
        return unit("hosts", "gangway-rendezvous.service", values).text

    plain, hostile = rendered("image").splitlines(), rendered(image).splitlines()
    assert len(hostile) == len(plain)
    changed = [(was, now) for was, now in zip(plain, hostile, strict=True) if was != now]
    ((was, now),) = changed
    before, _, after = was.partition(" image ")
    assert now.startswith(f"{before} ")
    assert now.endswith(f" {after}")
    assert read_back(now.removeprefix(f"{before} ").removesuffix(f" {after}")) == image
    if analyze := shutil.which("systemd-analyze"):
        path = tmp_path / "x.service"
        path.write_text(re.sub(r"^(Exec\w+=-?)\S+", r"\1/bin/true", "\n".join(hostile) + "\n", flags=re.MULTILINE))
        (tmp_path / "gangway-prepare.service").write_text("[Service]\nExecStart=/bin/true\n")
        done = subprocess.run([analyze, "verify", "--man=no", path], capture_output=True, text=True, check=False)
        assert "x.service" not in done.stderr, done.stderr
