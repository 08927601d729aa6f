"""What a template puts into a unit is one word to systemd, whatever it holds; read back here by systemd's own rules."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangway.images.render import unit, unit_text

pytestmark = pytest.mark.attack("a stack file's author", "values that add a line or a word to a unit")

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


@given(st.one_of(st.text(st.characters(exclude_characters="\0", codec="utf-8")), st.sampled_from(HOSTILE)))
def test_every_text_is_one_word_that_means_it(text: str) -> None:
    assert read_back(str(unit_text(text))) == text


def test_several_are_several_and_none_is_nothing() -> None:
    assert unit_text(["--image", "a b", "%h"]) == '--image "a b" "%%h"'
    assert unit_text([]) == ""
    assert unit_text(7) == 7


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
