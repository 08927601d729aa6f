"""The first error of a document that a pydantic model rejects."""

from dataclasses import dataclass

from pydantic import ValidationError


@dataclass(frozen=True)
class FirstWrong:
    """The first error of a document; `where` is such as `nodes.most`, empty for the whole document."""

    where: str
    what: str
    value: object

    def __str__(self) -> str:
        return f"{self.where}: {self.what}" if self.where else self.what

    def within(self, document: str) -> str:
        """The place of the error inside a named document."""
        return f"{document}: {self.where}" if self.where else document


def first_wrong(error: ValidationError) -> FirstWrong:
    """The first of the errors that a model found."""
    first = error.errors(include_url=False)[0]
    value = None if first["type"] == "missing" else first["input"]
    return FirstWrong(".".join(map(str, first["loc"])), first["msg"].removeprefix("Value error, "), value)
