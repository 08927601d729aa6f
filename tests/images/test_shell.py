"""Any value reaches the container as it was written: quoting through YAML, bash and docker's arguments."""

import json
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from gangway.components.core.job import JobSpec, Training
from gangway.images.aws import AwsNodeSpec, aws_docker_argv, aws_env_text, log_argv, render_aws_node
from gangway.images.shell import bash_quote
from gangway.images.specs import job_key
from tests.images.golden_documents import read

GOLDEN = Path(__file__).parent / "golden"

# Everything but NUL, which no argument can hold, and surrogates, which are no text.
TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=40)
NAMES = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,8}", fullmatch=True)


def bash_array(text: str, name: str) -> list[str]:
    """The elements of a bash array after `text` was sourced."""
    script = f". /dev/stdin; printf '%s\\0' \"${{{name}[@]}}\""
    done = subprocess.run(["bash", "-c", script], input=text.encode(), capture_output=True, check=True)
    return done.stdout.decode().split("\0")[:-1]


def files_of(document: str) -> dict[str, str]:
    return {file["path"]: file["content"] for file in yaml.safe_load(document)["write_files"]}


@settings(deadline=None, max_examples=60)
@given(words=st.lists(TEXT, min_size=1, max_size=8))
def test_bash_reads_back_what_was_quoted(words: list[str]) -> None:
    quoted = [bash_quote(word) for word in words]
    assert all(word.isascii() and word.isprintable() for word in quoted)
    assert bash_array("WORDS=(" + " ".join(quoted) + ")", "WORDS") == words


@pytest.mark.slow
@settings(deadline=None, max_examples=40)
@given(env=st.dictionaries(NAMES, TEXT, max_size=5), words=st.lists(TEXT, max_size=3), tag=TEXT)
def test_env_argv_and_configuration_survive_yaml_and_bash(
    node: AwsNodeSpec, job: JobSpec, env: dict[str, str], words: list[str], tag: str
) -> None:
    training = Training(config={"preset": tag}, run_dir="/fsx/runs/x", options=tuple(words))
    odd = job.model_copy(update={"env": env, "training": training})
    spec = replace(node, job=odd, labels={"note": tag})
    document = render_aws_node(spec)
    assert document.isascii()
    files = files_of(document)
    assert bash_array(files["/etc/gangway/job.env"], "DOCKER_ARGV") == aws_docker_argv(spec)
    assert json.loads(files["/etc/gangway/train.json"]) == {"preset": tag}
    assert {f"{name}={value}" for name, value in env.items()} <= set(aws_docker_argv(spec))


@pytest.mark.slow
@settings(deadline=None, max_examples=25)
@given(run_dir=TEXT.filter(bool))
def test_node_settings_survive_yaml_and_bash(node: AwsNodeSpec, run_dir: str) -> None:
    files = files_of(render_aws_node(replace(node, run_dir=run_dir)))
    assert bash_array(files["/etc/gangway/node.env"], "RUN_DIR") == [run_dir]


def test_container_sees_host_network_fabric_and_accelerators(node: AwsNodeSpec) -> None:
    argv = aws_docker_argv(node)
    line = " ".join(argv)
    for flags in (
        "--network host",
        "--cap-drop ALL",
        "--security-opt no-new-privileges",
        "--read-only",
        "--ipc host",
        "--ulimit memlock=-1 --ulimit nofile=131072",
        "--gpus all",
        "--device /dev/infiniband",
        "--mount type=bind,source=/fsx,target=/fsx",
        "--mount type=bind,source=/scratch,target=/data,readonly",
        "--label team=ml-platform",
    ):
        assert f" {flags} " in line
    # Without it NCCL goes on over TCP when the plugin does not load.
    assert argv[argv.index("NCCL_NET=AWS Libfabric") - 1] == "--env"
    image = argv.index(node.job.image)
    life = ["--job-dir", f"/fsx/runs/dcgan-celeba64/.launch/{job_key(node.job)}", "--max-hours", "8"]
    member = ["--member-key", "/run/gangway-member.pem"]
    assert argv[image + 1 :] == ["--watch", "/run/gangway-notices/held", *member, *life, *node.job.torchrun_argv()]


def test_lines_go_to_the_log_group_without_ever_blocking(node: AwsNodeSpec, plain_node: AwsNodeSpec) -> None:
    line = " ".join(aws_docker_argv(node))
    options = ("awslogs-group=/gangway/demo", "awslogs-region=us-east-2", "mode=non-blocking")
    assert " ".join(["--log-driver awslogs", *(f"--log-opt {option}" for option in options)]) in line
    assert "--log-" not in " ".join(aws_docker_argv(plain_node))


def test_lines_may_go_to_a_stream_of_a_known_name() -> None:
    assert "awslogs-stream=head/rendezvous" in log_argv("/gangway/demo", "us-east-2", "head/rendezvous")
    assert log_argv(None, "us-east-2", "head/rendezvous") == []


def test_scratch_is_the_containers_place_for_temporary_files(node: AwsNodeSpec, plain_node: AwsNodeSpec) -> None:
    line = " ".join(aws_docker_argv(node))
    assert " --mount type=bind,source=/scratch,target=/scratch --env TMPDIR=/scratch " in line
    assert "TMPDIR" not in " ".join(aws_docker_argv(plain_node))
    own = aws_docker_argv(replace(node, job=node.job.model_copy(update={"env": {"TMPDIR": "/fsx/tmp"}})))
    assert own.index("TMPDIR=/fsx/tmp") > own.index("TMPDIR=/scratch"), "docker takes the last of two values"


def test_lustre_over_efa_is_asked_for_by_name(node: AwsNodeSpec) -> None:
    assert "LUSTRE_EFA=''" in aws_env_text(node)
    assert "LUSTRE_EFA=8" in aws_env_text(replace(node, lustre_efa=True, lustre_efa_interfaces=8))


def test_job_may_override_the_nodes_nccl_net(node: AwsNodeSpec, job: JobSpec) -> None:
    argv = aws_docker_argv(replace(node, job=job.model_copy(update={"env": {"NCCL_NET": "Socket"}})))
    # Docker takes the last of two values.
    assert argv.index("NCCL_NET=Socket") > argv.index("NCCL_NET=AWS Libfabric")


def test_cpu_node_asks_for_no_accelerator_and_no_fabric(plain_node: AwsNodeSpec) -> None:
    argv = aws_docker_argv(plain_node)
    assert not {"--gpus", "--device", "NCCL_NET=AWS Libfabric"} & set(argv)


def job_commands() -> list[tuple[str, list[str]]]:
    """The arguments of docker by which each golden machine runs the job's image: the trainer and the rendezvous."""
    found = []
    for path in sorted(path for path in GOLDEN.iterdir() if path.is_file()):
        lines = [line.strip() for line in read(path).splitlines()]
        for start in (number for number, line in enumerate(lines) if line == "DOCKER_ARGV=("):
            found.append((f"{path.name}, trainer", lines[start + 1 : lines.index(")", start)]))
        found += [
            (f"{path.name}, rendezvous", line.split())
            for line in lines
            if line.startswith("ExecStart=/usr/bin/docker run") and "--name gangway-rendezvous" in line
        ]
    return found


@pytest.mark.attack("a stack file's author", "names an image whose own user is root")
@pytest.mark.parametrize(("where", "argv"), job_commands(), ids=[where for where, _ in job_commands()])
def test_an_image_does_not_say_who_the_job_is(where: str, argv: list[str]) -> None:
    """Root's alone is the container of TPU hosts, which has all capabilities whatever is said."""
    uid, _, gid = argv[argv.index("--user") + 1].partition(":")
    assert uid == gid
    assert (uid == "0") == ("tpu" in where)
    assert argv.count("--user") == 1
