"""Translate advice about command-line flags to fields of a file."""

import re

# A flag with its value, which is no word of the surrounding sentence.
_FLAG = re.compile(r"--([a-z][a-z0-9-]*)(?: (?!that\b|and\b|or\b|--)([\w.][\w.-]*))?")
_NEIGHBOURS = re.compile(r"(\b\w+: [\w.-]+) (?=\w+: )")


def as_keys(text: str) -> str:
    """Replace flags by fields.

    >>> as_keys("--r1-gamma 0, or --loss wgan-gp; a --batch-gpu that divides --batch-size")
    'r1_gamma: 0, or loss: wgan-gp; a batch_gpu that divides batch_size'
    """

    def field(found: re.Match[str]) -> str:
        name, value = found[1].replace("-", "_"), found[2]
        return name if value is None else f"{name}: {value}"

    return _NEIGHBOURS.sub(r"\1, ", _FLAG.sub(field, text))
