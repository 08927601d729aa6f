"""Own fields and narrower limits of each architecture and each loss, as annotated classes.

A part belongs to one word of a field. It lists its own fields, which keep their default with other words, and fields
with narrower limits. The rules (gangway.trainer.config.parts.rules) and the schema for editors
(gangway.trainer.config.editor_schema) are made from parts.
"""

import operator
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Annotated, Any, Literal, NamedTuple, get_args, get_origin, get_type_hints

from gangway.trainer.config.parts.fields import (
    ConfigFields,
    Fraction,
    Frames,
    FullWidthUpTo,
    GroupSize,
    GroupWidth,
    NotNegative,
    Positive,
)

_COMPARISONS = MappingProxyType({"gt": operator.gt, "ge": operator.ge, "lt": operator.lt, "le": operator.le})
"""Comparisons of bounds, by name."""


class Part:
    """The base of all parts, which are never instantiated: a configuration stays flat."""


class Narrower(NamedTuple):
    """A field's narrower limits with a part: the allowed values, and a fix for others."""

    allowed: str
    fix: str


class Own(NamedTuple):
    """A field of one part: `why` it keeps its default with others, if that needs a reason."""

    why: str = ""


class PartField(NamedTuple):
    """A field with one part: its type there, and the message for other values, None without narrower limits."""

    type: Any
    narrower: Narrower | None

    def takes(self, value: Any) -> bool:
        """Whether a generally valid value is valid here."""
        kind, *about = get_args(self.type) if get_origin(self.type) is Annotated else (self.type,)
        if get_origin(kind) is Literal:
            return value in get_args(kind)
        bounds = (bound for each in about for bound in each.metadata)
        return all(
            compare(value, getattr(bound, name))
            for bound in bounds
            for name, compare in _COMPARISONS.items()
            if hasattr(bound, name)
        )


class Choice:
    """One discriminated union: `by` is the deciding field, `parts` are by its words, `fields` by word: the part's
    fields, and those of other parts with the one value they may have.
    """

    def __init__(self, by: str, *parts: type[Part]) -> None:
        hints = {part: get_type_hints(part, include_extras=True) for part in parts}
        self.by = by
        self.parts: Mapping[str, type[Part]] = MappingProxyType(
            {word: part for part in parts for word in get_args(hints[part].pop(by))}
        )
        owners: dict[str, dict[str, Own]] = {}
        listed: dict[str, dict[str, PartField]] = {}
        for word, part in self.parts.items():
            listed[word] = {name: _get_field(hint) for name, hint in hints[part].items()}
            for name, hint in hints[part].items():
                for own in _annotations(hint, Own):
                    owners.setdefault(name, {})[word] = own
        foreign = {name: self._foreign_field(name, own) for name, own in owners.items()}
        self.fields: Mapping[str, Mapping[str, PartField]] = MappingProxyType(
            {
                word: {**fields, **{name: each for name, each in foreign.items() if word not in owners[name]}}
                for word, fields in listed.items()
            }
        )

    def _foreign_field(self, field: str, owners: Mapping[str, Own]) -> PartField:
        default = ConfigFields.model_fields[field].default
        value = int(default) if isinstance(default, float) and default.is_integer() else default
        first, why = next((word, own.why) for word, own in owners.items())
        allowed = f"{value} unless the {self.by} is {' or '.join(owners)}{': ' if why else ''}{why}"
        fix = f"--{field.replace('_', '-')} {value}, or --{self.by} {first}"
        return PartField(Literal[value], Narrower(allowed, fix))


def _annotations(hint: Any, kind: type[Narrower] | type[Own]) -> Iterator[Any]:
    return (each for each in get_args(hint) if isinstance(each, kind))


def _get_field(hint: Any) -> PartField:
    kind, *about = get_args(hint) if get_origin(hint) is Annotated else (hint,)
    bounds = [each for each in about if not isinstance(each, Narrower | Own)]
    for each in bounds:
        kind = Annotated[kind, each]
    return PartField(kind, next(_annotations(hint, Narrower), None))


_WHOLE = "--shard ddp"
_NO_LATENTS = "with cyclegan's networks, which make images of images: there are no latents"


class OfLatents(Part):
    """Networks that make images of latents, and judge whole images."""

    loss: Annotated[
        Literal["nonsaturating", "wgan-gp", "relativistic"],
        Narrower(
            "nonsaturating, wgan-gp or relativistic: lsgan goes with cyclegan's networks",
            "--loss nonsaturating, or --architecture cyclegan",
        ),
    ]


class Dcgan(OfLatents):
    """Strided convolutions without residuals, after Radford et al. 2016."""

    architecture: Literal["dcgan"]
    activation_checkpointing: Annotated[
        Literal[False],
        Narrower(
            "false with dcgan's networks, whose layers are too small to gain by it",
            "--activation-checkpointing false, or --architecture resnet, for example",
        ),
    ]


class Resnet(OfLatents):
    """Residual blocks, after Gulrajani et al. 2017."""

    architecture: Literal["resnet"]


class R3gan(OfLatents):
    """Grouped convolutions in residual blocks without normalisation, after Huang et al. 2024."""

    architecture: Literal["r3gan"]
    full_width_up_to: Annotated[FullWidthUpTo, Own()]
    group_width: Annotated[GroupWidth, Own()]


class Progressive(OfLatents):
    """Networks that grow from 4x4 on, of images and of clips, after Karras et al. 2018."""

    architecture: Literal["progressive"]
    frames: Annotated[Frames, Own("other networks make single images")]
    minibatch_std: Annotated[GroupSize, Own()]
    stable_kimg: Annotated[
        Positive,
        Own(),
        Narrower(
            "above 0 for progressive networks, or each resolution would last no step",
            "--stable-kimg 800, as in the paper",
        ),
    ]
    fade_kimg: Annotated[NotNegative, Own()]
    shard: Annotated[
        Literal["ddp"], Narrower("ddp for progressive networks, parts of which are unused at times", _WHOLE)
    ]


class Cyclegan(Part):
    """Two generators and two discriminators, which translate between two domains, after Zhu et al. 2017."""

    architecture: Literal["cyclegan"]
    loss: Annotated[
        Literal["lsgan"],
        Narrower(
            "lsgan with cyclegan's networks, whose discriminators judge patches",
            "--loss lsgan, or another --architecture",
        ),
    ]
    cycle_weight: Annotated[
        Positive,
        Own(),
        Narrower(
            "above 0 with cyclegan's networks, or nothing ties an image to its translation",
            "--cycle-weight 10, as in the paper",
        ),
    ]
    identity_weight: Annotated[NotNegative, Own("only its generators see real images of their own domain")]
    num_classes: Annotated[
        Literal[0],
        Narrower("0 with cyclegan's networks: the two labels of their images are the two domains", "--num-classes 0"),
    ]
    z_dim: Annotated[Literal[1], Narrower(f"1 {_NO_LATENTS}", "--z-dim 1")]
    latents: Annotated[Literal["normal"], Narrower(f"normal {_NO_LATENTS}", "--latents normal")]
    augment: Annotated[
        Literal["none"],
        Narrower(
            "none with cyclegan's networks", "--augment none, or --mirror true, which shows each image mirrored too"
        ),
    ]
    dequantise: Annotated[Literal[False], Narrower("false with cyclegan's networks", "--dequantise false")]
    shard: Annotated[
        Literal["ddp"], Narrower("ddp for cyclegan's networks, several of which learn in one loss", _WHOLE)
    ]
    metrics: Annotated[
        Literal["none"],
        Narrower(
            "none with cyclegan's networks: metrics here judge images that are made of latents",
            "--metrics none --metrics-kimg 0; look at samples/ and at loss_cycle",
        ),
    ]


ARCHITECTURES = Choice("architecture", Dcgan, Resnet, R3gan, Progressive, Cyclegan)


_OWN_PENALTY = "0 with the wgan-gp loss, which has its own penalty"
_NO_PENALTY = "0 with the lsgan loss, which has no penalty"


class Nonsaturating(Part):
    """Both networks play for the log-likelihood of real and fake, after Goodfellow et al. 2014."""

    loss: Literal["nonsaturating"]
    ada_target: Annotated[Fraction, Own("with other losses the sign of a logit has no meaning")]


class WganGp(Part):
    """A Wasserstein critic with a penalty on its gradients, after Gulrajani et al. 2017."""

    loss: Literal["wgan-gp"]
    gp_weight: Annotated[
        Positive,
        Own(),
        Narrower(
            "above 0 with the wgan-gp loss, whose critic needs the penalty",
            "--gp-weight 10, as in the paper; or another --loss",
        ),
    ]
    r1_gamma: Annotated[Literal[0], Narrower(_OWN_PENALTY, "--r1-gamma 0")]
    r2_gamma: Annotated[Literal[0], Narrower(_OWN_PENALTY, "--r2-gamma 0")]
    r1_interval: Annotated[
        Literal[1],
        Narrower(
            "1 with the wgan-gp loss, whose critic needs the penalty in every step",
            "--r1-interval 1",
        ),
    ]
    drift: Annotated[NotNegative, Own("the other losses do not let logits drift")]


class Relativistic(Part):
    """Real and fake are judged beside each other, after Jolicoeur-Martineau 2019 and Huang et al. 2024."""

    loss: Literal["relativistic"]
    g_reals: Annotated[Literal["same", "fresh"], Own("no other generator's loss looks at real images")]


class Lsgan(Part):
    """Squared distances of patches' logits, after Mao et al. 2017."""

    loss: Literal["lsgan"]
    r1_gamma: Annotated[Literal[0], Narrower(_NO_PENALTY, "--r1-gamma 0")]
    r2_gamma: Annotated[Literal[0], Narrower(_NO_PENALTY, "--r2-gamma 0")]


LOSSES = Choice("loss", Nonsaturating, WganGp, Relativistic, Lsgan)
