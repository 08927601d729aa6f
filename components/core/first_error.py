"""What is first wrong of a document that a model of pydantic's refuses."""

from dataclasses import dataclass

from pydantic import ValidationError


@dataclass(frozen=True)
class FirstWrong:
    """A document has one, or it is as its model asks.

    Attributes:
        where: such as `nodes.most`; empty for all of it.
        what: is the matter there.
        value: that is there; None where nothing is.
    """

    where: str
    what: str
    value: object

    def __str__(self) -> str:
        return f"{self.where}: {self.what}" if self.where else self.what

    def within(self, document: str) -> str:
        """Where it is, said of a document that has a name."""
        return f"{document}: {self.where}" if self.where else document


def first_wrong(error: ValidationError) -> FirstWrong:
    """Of all that a model found."""
    first = error.errors(include_url=False)[0]
    value = None if first["type"] == "missing" else first["input"]
    return FirstWrong(".".join(map(str, first["loc"])), first["msg"].removeprefix("Value error, "), value)
