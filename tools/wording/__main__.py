"""Counts the discouraged words of words.yaml in pages, code and templates; tests are left out.

python -m tools.wording           # as `make lint`: exits 1 if a package has more, or fewer, than in counts.yaml
python -m tools.wording --lower   # writes the lower counts after an improvement
"""

import argparse
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import yaml

from gangway.stacks.config.paths import ROOT

FOLDER = Path(__file__).parent
PACKAGES = ("components", "gangway", "images", "stacks", "tools", "trainer")
SUFFIXES = (".py", ".yaml", ".j2")

Counts = dict[str, dict[str, int]]
"""By package and word; only what is above 0."""


def get_texts(root: Path) -> Iterator[tuple[str, Path]]:
    """The package and path of each file to read."""
    yield from (("docs", path) for path in (root / "README.md", *sorted(root.glob("docs/*.md"))))
    for package in PACKAGES:
        for path in sorted((root / package).rglob("*.*")):
            if path.suffix in SUFFIXES and path.parent != FOLDER:
                yield package, path


def find(root: Path, words: Mapping[str, str]) -> Iterator[tuple[str, str, str]]:
    """Package, word and place of each use; a line break counts as a blank."""
    patterns = {word: re.compile(rf"\b(?:{word})\b".replace(" ", r"\s+(?:# )?"), re.IGNORECASE) for word in words}
    for package, path in get_texts(root):
        text = path.read_text("utf-8")
        for word, pattern in patterns.items():
            for match in pattern.finditer(text):
                line = text.count("\n", 0, match.start()) + 1
                yield package, word, f"{path.relative_to(root)}:{line}: {match[0]!r}"


def compare(found: Mapping[tuple[str, str], list[str]], counts: Counts, words: Mapping[str, str]) -> Iterator[str]:
    """A message for each count that differs; with the places where there are more."""
    allowed = {(package, word): count for package, of in counts.items() for word, count in of.items()}
    for package, word in sorted(found.keys() | allowed.keys()):
        places, most = found.get((package, word), []), allowed.get((package, word), 0)
        if len(places) > most:
            yield "\n  ".join([f"{package}: {len(places)} times {word!r}, not {most}: write {words[word]}", *places])
        elif len(places) < most:
            yield f"{package}: {len(places)} times {word!r}, not {most}: run `python -m tools.wording --lower`"


def lowered(found: Mapping[tuple[str, str], list[str]], counts: Counts) -> Counts:
    """The counts, none of them higher than before."""
    lower = {
        package: {word: min(count, len(found.get((package, word), []))) for word, count in of.items()}
        for package, of in counts.items()
    }
    return {package: {word: count for word, count in of.items() if count} for package, of in lower.items()}


def main() -> int:
    """Checks or lowers the counts."""
    parser = argparse.ArgumentParser(prog="python -m tools.wording", description=__doc__)
    parser.add_argument("--lower", action="store_true", help="write the counts that have fallen")
    is_lower = parser.parse_args().lower
    words, counts = (yaml.safe_load((FOLDER / f"{name}.yaml").read_text("utf-8")) for name in ("words", "counts"))
    found: dict[tuple[str, str], list[str]] = {}
    for package, word, place in find(ROOT, words):
        found.setdefault((package, word), []).append(place)
    if is_lower:
        counts = lowered(found, counts)
        (FOLDER / "counts.yaml").write_text(yaml.safe_dump(counts), "utf-8")
    problems = list(compare(found, counts, words))
    print("\n".join(problems), end="\n" * bool(problems))
    return int(bool(problems))


if __name__ == "__main__":
    sys.exit(main())
