"""Rendered Dockerfiles and cloud-init: golden text, valid YAML, bash and systemd, and EC2's size limit."""

import ast
import base64
import gzip
import random
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from jinja2 import UndefinedError

from gangway.components.azure.launch import MAX_CUSTOM_DATA_BYTES
from gangway.components.core.job import JobSpec
from gangway.images.aws import AwsHeadSpec, AwsNodeSpec, render_aws_head, render_aws_node, user_data_base64gzip
from gangway.images.render import base64gzip, render_dockerfile
from gangway.images.specs import DOCKERFILE_FLAVOURS, Flavour
from tests.shellcheck import shell_mistakes

FLAVOURS: list[Flavour] = sorted(DOCKERFILE_FLAVOURS)


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_dockerfile_is_golden(flavour: Flavour, same_as_golden: Callable[[str, str], None]) -> None:
    same_as_golden(f"Dockerfile.{flavour}.txt", render_dockerfile(DOCKERFILE_FLAVOURS[flavour]))


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_dockerfile_pins_hashes_and_drops_root(flavour: Flavour) -> None:
    text = render_dockerfile(DOCKERFILE_FLAVOURS[flavour])
    stages = re.findall(r"^FROM (\S+) AS (\S+)$", text, re.MULTILINE)
    assert [name for _, name in stages] == ["python-packages", "trainer"]
    assert all(":" in image for image, _ in stages)
    assert "latest" not in text
    assert re.findall(r"pip install.*", text) == re.findall(r"pip install.*--require-hashes.*", text) != []
    # After the last USER no root is left, and ENTRYPOINT comes after it.
    assert re.findall(r"^USER (\S+)$", text, re.MULTILINE) == ["10001:10001"]
    assert text.index("\nUSER ") < text.index('\nENTRYPOINT ["python", "-m", "gangway.trainer.launch"]')
    copied = re.findall(r"^COPY (?!--from)(\S+) ", text, re.MULTILINE)
    assert copied == ["images/locks/", "trainer/"]
    assert 'org.opencontainers.image.revision="$REVISION"' in text


def test_every_line_of_a_run_goes_on_or_ends() -> None:
    """Shell of each RUN is parsed by bash: a lost backslash would cut a command in two."""
    for flavour in FLAVOURS:
        joined = render_dockerfile(DOCKERFILE_FLAVOURS[flavour]).replace("\\\n", " ")
        instructions = [line.split(" ", 1) for line in joined.splitlines() if line and not line.startswith("#")]
        known = {"ARG", "COPY", "ENTRYPOINT", "ENV", "FROM", "LABEL", "RUN", "USER", "WORKDIR"}
        assert {name for name, _ in instructions} <= known
        for command in (rest for name, rest in instructions if name == "RUN"):
            subprocess.run(["bash", "-n", "-c", command], check=True)


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_hadolint_finds_nothing(flavour: Flavour) -> None:
    """DL3008: Debian's archives drop old versions, so pinning them would break the build; the base image is pinned."""
    if shutil.which("hadolint") is None:
        pytest.skip("hadolint is not on PATH")
    done = subprocess.run(
        ["hadolint", "--ignore", "DL3008", "-"],
        input=render_dockerfile(DOCKERFILE_FLAVOURS[flavour]),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == ""
    assert done.returncode == 0


def test_efa_only_where_it_is_asked_for() -> None:
    efa = render_dockerfile(DOCKERFILE_FLAVOURS["cuda-efa"])
    assert "efa_installer.sh -y -g -d --skip-kmod --skip-limit-conf --no-verify" in efa
    assert "aws-efa-installer-1.50.0.tar.gz" in efa
    assert re.findall(r"\bFI_[A-Z_]+", efa.replace("FI_* ", "")) == ["FI_EFA_USE_HUGE_PAGE"]
    assert not re.search(r"\befa\b", render_dockerfile(DOCKERFILE_FLAVOURS["cpu"]).lower())


def test_efa_installer_is_checked_when_its_sum_is_known() -> None:
    spec = replace(DOCKERFILE_FLAVOURS["cuda-efa"], efa_installer_sha256="ab" * 32)
    assert f'echo "{"ab" * 32}  efa.tar.gz" | sha256sum --check' in render_dockerfile(spec)


def check_of_libraries(*names: str) -> str:
    """The line of the cuda Dockerfile that loads its libraries, with these names and this Python."""
    text = render_dockerfile(replace(DOCKERFILE_FLAVOURS["cuda"], shared_libraries=names))
    (line,) = re.findall(r"^RUN python3\.12 (-c .*)$", text, re.MULTILINE)
    return f"{shlex.quote(sys.executable)} {line}"


@pytest.mark.parametrize(("names", "loads"), [(("libc.so.6",), True), (("libc.so.6", "libno-such.so.1"), False)])
def test_an_image_whose_libraries_do_not_load_is_not_built(names: tuple[str, ...], loads: bool) -> None:
    done = subprocess.run(["sh", "-c", check_of_libraries(*names)], capture_output=True, text=True, check=False)
    assert (done.returncode == 0) == loads
    assert ("libno-such.so.1" in done.stderr) != loads


def test_googles_plugin_for_roce_finds_the_verbs() -> None:
    """On Google Cloud nodes run the flavour `cuda`; AWS's installer brings its own."""
    text = render_dockerfile(DOCKERFILE_FLAVOURS["cuda"])
    packages = {"ibverbs-providers", "libibverbs1", "librdmacm1"}
    assert packages <= set(re.findall(r"[\w.+-]+", text[text.index("AS trainer") :]))
    assert "libibverbs.so.1 libmlx5.so.1 librdmacm.so.1" in text
    assert all("ibverbs" not in render_dockerfile(DOCKERFILE_FLAVOURS[name]) for name in FLAVOURS if name != "cuda")


def test_a_name_that_the_template_does_not_know_is_an_error() -> None:
    from gangway.images.render import template_environment

    with pytest.raises(UndefinedError):
        template_environment().from_string("{{ no_such_name }}").render()


AWS = ["node", "plain_node", "head", "plain_head"]
GCP = ["gcp_node", "gcp_plain_node", "gcp_head"]
AZURE = ["azure_node", "azure_plain_node", "azure_head"]
OPENSTACK = ["openstack_node", "openstack_plain_node", "openstack_head"]


def cloud_of(name: str) -> str:
    """Whose machine a spec's fixture is."""
    return "aws" if name in AWS else "gcp" if name == "tpu_host" else name.partition("_")[0]


@pytest.fixture
def document(name: str, request: pytest.FixtureRequest, machines: Any) -> str:
    """What the machine of a spec's fixture is started with."""
    text: str = machines.rendered(request.getfixturevalue(name))
    return text


every_aws_node = pytest.mark.parametrize("name", AWS)
every_node = pytest.mark.parametrize("name", [*AWS, *AZURE, *GCP, *OPENSTACK])
every_machine = pytest.mark.parametrize("name", [*AWS, *AZURE, *GCP, *OPENSTACK, "tpu_host"])


@every_machine
def test_what_a_machine_is_started_with_is_golden(
    name: str, document: str, same_as_golden: Callable[[str, str], None]
) -> None:
    cloud, kind = (cloud_of(name), name.removeprefix(f"{cloud_of(name)}_"))
    same_as_golden("startup-gcp.tpu_host.sh" if name == "tpu_host" else f"cloud-init-{cloud}.{kind}.yaml", document)


@every_node
def test_cloud_init_itself_finds_nothing(name: str, document: str, tmp_path: Path) -> None:
    """No registry has its schema, so it takes a system's package: `apt-get install cloud-init`."""
    if shutil.which("cloud-init") is None:
        pytest.skip("cloud-init is not on PATH")
    (tmp_path / "user-data").write_text(document, "utf-8")
    command = ["cloud-init", "schema", "--config-file", str(tmp_path / "user-data")]
    # Its own Python, not the one of these tests.
    environment = {"PATH": "/usr/bin:/bin"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Valid" in done.stdout


@every_node
def test_cloud_init_is_a_cloud_config_of_known_files(name: str, document: str) -> None:
    assert document.startswith("#cloud-config\n")
    assert document.isascii()
    parts = yaml.safe_load(document)
    assert sorted(parts) == (["packages"] if name in ("head", "plain_head") else []) + ["runcmd", "write_files"]
    modes = {file["path"]: file["permissions"] for file in parts["write_files"]}
    # The job's environment may hold secrets.
    secret = [path for path in modes if re.search(r"/(job.env|job.json|fabric.env|credential.json|n\w+.env)$", path)]
    assert {modes[path] for path in secret} == {"0600"}
    _, enabled, started = parts["runcmd"]
    assert [command[1] for command in parts["runcmd"]] == ["daemon-reload", "enable", "start"]
    assert started[2] == "--no-block"
    assert enabled[2:] == started[3:]
    assert {f"/etc/systemd/system/{unit}" for unit in enabled[2:]} <= modes.keys()


@pytest.fixture
def files(document: str, machines: Any, tmp_path: Path) -> list[Path]:
    """The document's files, side by side."""
    paths = []
    for path, (_, text) in machines.files_of(document).items():
        paths.append(tmp_path / Path(path).name)
        paths[-1].write_text(text)
    return paths


SCRIPTS = {
    **{"node": 15, "plain_node": 10, "head": 8, "plain_head": 5},
    **{"azure_node": 19, "azure_plain_node": 13, "azure_head": 9},
    **{"gcp_node": 19, "gcp_plain_node": 12, "gcp_head": 10, "tpu_host": 14},
    **{"openstack_node": 16, "openstack_plain_node": 13, "openstack_head": 10},
}
"""How many files of bash there are."""


@every_machine
def test_every_script_passes_bash(name: str, files: list[Path]) -> None:
    bash = [path for path in files if path.suffix in (".sh", ".env")]
    assert len(bash) == SCRIPTS[name]
    for path in bash:
        subprocess.run(["bash", "-n", str(path)], check=True)


@pytest.mark.parametrize(
    "name",
    [
        "node",
        "head",
        "azure_node",
        "azure_head",
        "gcp_node",
        "gcp_head",
        "openstack_node",
        "openstack_head",
        "tpu_host",
    ],
)
def test_scripts_lose_their_comments_and_nothing_else(
    name: str, document: str, machines: Any, request: pytest.FixtureRequest
) -> None:
    """Bash prints a function without comments, so both texts must become the same function. Python in quotes may have
    another indentation.
    """

    def printed(script: str) -> str:
        command = ["bash", "-c", f"whole() {{\n{script}\n}}; declare -f whole"]
        whole = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        return re.sub(r"(?<=-c ')\n.*?(?=')", lambda found: ast.unparse(ast.parse(found[0])), whole, flags=re.DOTALL)

    folder = request.getfixturevalue(f"{cloud_of(name)}_scripts")
    files = {Path(path).name: text for path, (_, text) in machines.files_of(document).items() if path.endswith(".sh")}
    for script, text in files.items():
        source = (folder / script).read_text()
        assert not re.search(r"^\s*#(?!!)", text, re.MULTILINE), script
        assert len(text) < len(source)
        assert printed(text) == printed(source), script


@pytest.mark.parametrize("cloud", ["aws", "azure", "gcp", "openstack"])
def test_every_script_passes_shellcheck(cloud: str, request: pytest.FixtureRequest) -> None:
    scripts = sorted(request.getfixturevalue(f"{cloud}_scripts").glob("*.sh"))
    assert len(scripts) > 10
    assert shell_mistakes(scripts) == ""


@every_machine
def test_systemd_accepts_every_unit(files: list[Path], tmp_path: Path) -> None:
    if not (analyze := shutil.which("systemd-analyze")):
        pytest.skip("no systemd-analyze on this machine")
    # Units that other packages bring, and programs that only the node has.
    (tmp_path / "docker.service").write_text("[Service]\nExecStart=/bin/true\n")
    units = [path for path in files if path.suffix in (".service", ".timer")]
    for unit in units:
        unit.write_text(re.sub(r"^(Exec\w+=-?)\S+", r"\1/bin/true", unit.read_text(), flags=re.MULTILINE))
    command = [analyze, "verify", "--man=no", *map(str, units)]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env={"SYSTEMD_UNIT_PATH": f"{tmp_path}:"}
    )
    complaints = [line for line in done.stderr.splitlines() if "gangway" in line]
    assert (done.returncode, complaints) == (0, []), done.stderr


HARDENED = {
    "CapabilityBoundingSet=",
    "NoNewPrivileges=yes",
    "ProtectSystem=strict",
    "ProtectHome=yes",
    "PrivateTmp=yes",
}


@every_machine
def test_what_reads_others_words_has_none_of_roots_rights(files: list[Path]) -> None:
    """Python that reads the job's lines, or a cloud's answers. It writes where it remembers, nowhere else."""
    units = [path.read_text() for path in files if path.suffix == ".service"]
    lasting = [text.splitlines() for text in units if "python3 -m gangway.images.node" in text]
    for lines in lasting:
        assert set(lines) >= HARDENED
        writes = not any("heartbeat" in line for line in lines)
        assert any(line.startswith("RuntimeDirectory=gangway") for line in lines) == writes
        # Others have files there too.
        assert "RuntimeDirectory=gangway" not in lines or "RuntimeDirectoryPreserve=yes" in lines


def test_prometheus_finds_the_workers_of_its_stack_alone(head: AwsHeadSpec) -> None:
    files = yaml.safe_load(render_aws_head(head))["write_files"]
    (text,) = [file["content"] for file in files if file["path"] == "/etc/gangway/prometheus.yaml"]
    (job,) = yaml.safe_load(text)["scrape_configs"]
    (discovery,) = job["ec2_sd_configs"]
    assert (discovery["region"], discovery["port"]) == ("us-east-2", 9400)
    assert {"name": "tag:gangway:stack", "values": ["demo"]} in discovery["filters"]


@every_aws_node
def test_user_data_leaves_room(document: str) -> None:
    """14.5 KiB of EC2's 16: the rest is for a user's variables and tags."""
    assert len(base64.b64decode(user_data_base64gzip(document))) < 29 * 512


@pytest.mark.parametrize("name", AZURE)
def test_custom_data_leaves_room(document: str) -> None:
    """Half of what Azure takes."""
    assert len(base64.b64decode(base64gzip(document))) < MAX_CUSTOM_DATA_BYTES // 2


@pytest.mark.parametrize("name", [*GCP, "tpu_host"])
def test_metadata_leaves_room(document: str) -> None:
    """Half of the 256 KiB that Compute Engine takes as one value; a start-up script goes there as it is."""
    assert len(document) < 128 * 1024


def test_user_data_is_the_text_and_always_the_same(node: AwsNodeSpec) -> None:
    text = render_aws_node(node)
    packed = user_data_base64gzip(text)
    assert packed == user_data_base64gzip(text)
    raw = base64.b64decode(packed)
    assert gzip.decompress(raw).decode() == text
    assert raw[4:8] == bytes(4), "a time in the header would replace every node at each `up`"


def test_user_data_above_ec2s_limit_is_refused_with_its_size(node: AwsNodeSpec, job: JobSpec) -> None:
    noise = random.Random(0).randbytes(20_000).hex()
    text = render_aws_node(replace(node, job=job.model_copy(update={"env": {"NOISE": noise}})))
    with pytest.raises(ValueError, match=r"user data: \d{5} bytes after gzip; allowed: at most 16384 .*fix: shorten"):
        user_data_base64gzip(text)


def test_the_limit_itself_is_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    size = len(base64.b64decode(user_data_base64gzip("#cloud-config\n")))
    monkeypatch.setattr("gangway.images.aws.USER_DATA_LIMIT_BYTES", size)
    assert user_data_base64gzip("#cloud-config\n")
    monkeypatch.setattr("gangway.images.aws.USER_DATA_LIMIT_BYTES", size - 1)
    with pytest.raises(ValueError, match="user data"):
        user_data_base64gzip("#cloud-config\n")
