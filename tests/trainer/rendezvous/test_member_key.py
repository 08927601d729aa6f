"""The key of a job: what is none is refused in words, before anything is begun."""

import os
import re
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gangway.trainer.core.errors import TrainerError
from gangway.trainer.launch import launcher, rendezvous
from gangway.trainer.rendezvous.tunnel import MemberKey


def _parts(pem: Path) -> tuple[str, str]:
    """The private key and the certificate."""
    text = pem.read_text()
    at = text.index("-----BEGIN CERTIFICATE")
    return text[:at], text[at:]


def _encrypted(pem: Path, other: Path) -> str:
    words = ["openssl", "pkcs8", "-topk8", "-in", str(pem), "-passout", "pass:secret"]
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout + _parts(pem)[1]


BROKEN: dict[str, tuple[Callable[[Path, Path], str], str]] = {
    "empty": (lambda pem, other: "", "holds no private key"),
    "no certificate": (lambda pem, other: _parts(pem)[0], "holds no certificate"),
    "no private key": (lambda pem, other: _parts(pem)[1], "holds no private key"),
    "two certificates": (lambda pem, other: pem.read_text() + _parts(other)[1], "holds 2 certificates"),
    "two keys": (lambda pem, other: pem.read_text() + _parts(other)[0], "holds 2 private keys"),
    "of two jobs": (lambda pem, other: _parts(pem)[0] + _parts(other)[1], "do not belong together"),
    "damaged": (lambda pem, other: pem.read_text().replace("M", "N"), "cannot be read"),
    "with a passphrase": (_encrypted, "cannot be read"),
    "too long": (lambda pem, other: pem.read_text() + "#" * 100_000, "is too long for a key"),
}


@pytest.mark.parametrize("kind", BROKEN)
def test_what_is_no_key_is_refused(kind: str, job_pem: Path, other_pem: Path, tmp_path: Path) -> None:
    make, problem = BROKEN[kind]
    path = tmp_path / "job.pem"
    path.write_text(make(job_pem, other_pem))
    with pytest.raises(TrainerError, match=rf"--member-key: .*{problem}[\s\S]*openssl req"):
        MemberKey.read(path)


def test_a_missing_and_an_unreadable_file_are_named(job_pem: Path, tmp_path: Path) -> None:
    with pytest.raises(TrainerError, match=rf"No such file or directory[\s\S]*{tmp_path}"):
        MemberKey.read(tmp_path / "job.pem")
    with pytest.raises(TrainerError, match="it is a folder"):
        MemberKey.read(tmp_path)


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_a_file_of_others_is_named(job_pem: Path, tmp_path: Path) -> None:
    path = tmp_path / "job.pem"
    path.write_text(job_pem.read_text())
    path.chmod(0)
    with pytest.raises(TrainerError, match="Permission denied"):
        MemberKey.read(path)


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_either_order_and_newline_will_do(newline: str, job_pem: Path, tmp_path: Path, key: MemberKey) -> None:
    path = tmp_path / "job.pem"
    path.write_text("".join(reversed(_parts(job_pem))), newline=newline)
    assert MemberKey.read(path).certificate == key.certificate


def test_a_key_as_other_tools_write_it_will_do(job_pem: Path, tmp_path: Path) -> None:
    """SEC 1, as Pulumi's tls writes it: BEGIN EC PRIVATE KEY."""
    words = ["openssl", "ec", "-in", str(job_pem)]
    old = subprocess.run(words, check=True, capture_output=True, text=True).stdout
    assert "BEGIN EC PRIVATE KEY" in old
    path = tmp_path / "job.pem"
    path.write_text(old + _parts(job_pem)[1])
    assert MemberKey.read(path).certificate == MemberKey.read(job_pem).certificate


def test_both_commands_end_with_2_and_have_begun_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    missing = str(tmp_path / "none.pem")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        free = taken.getsockname()[1]
    assert rendezvous.main(["--port", str(free), "--member-key", missing]) == 2
    assert "--member-key: No such file" in capsys.readouterr().err
    socket.create_server(("127.0.0.1", free)).close()
    argv = ["--member-key", missing, "--job-dir", str(tmp_path / "job"), "--rdzv-backend=gangway", "--nnodes=2"]
    assert launcher.main([*argv, "--rdzv-endpoint=127.0.0.1:9", "-m", "gangway.trainer", "presets"]) == 2
    assert "--member-key: No such file" in capsys.readouterr().err
    assert not (tmp_path / "job").exists()


@pytest.mark.parametrize(
    ("backend", "environment", "told"),
    [
        ("c10d", {}, "this rendezvous has no use for a key"),
        ("gangway", {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}, "a store that a worker serves"),
    ],
)
def test_what_a_key_would_not_protect_is_refused(
    backend: str,
    environment: dict[str, str],
    told: str,
    job_pem: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    argv = ["--member-key", str(job_pem), f"--rdzv-backend={backend}", "--nnodes=2", "--rdzv-endpoint=127.0.0.1:9"]
    assert launcher.main([*argv, "-m", "gangway.trainer", "presets"]) == 2
    assert re.search(told, capsys.readouterr().err)


@pytest.mark.slow
def test_several_nodes_without_a_key_are_warned_of(start: Callable[..., Any]) -> None:
    argv = ("--rdzv-backend=gangway", "--rdzv-endpoint=127.0.0.1:9", "-m", "gangway.trainer", "presets")
    for nodes, warned in (("1:2", True), ("1", False)):
        code, text = start("-m", "gangway.trainer.launch", "--max-hours=0.0005", f"--nnodes={nodes}", *argv).finish()
        assert code == 6, text
        assert ("without --member-key whoever reaches the rendezvous is a member" in text) is warned, text
