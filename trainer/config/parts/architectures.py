"""Fields and limits of each architecture."""

from typing import Annotated, Literal

from gangway.trainer.config.parts.fields import Frames, FullWidthUpTo, GroupSize, GroupWidth, NotNegative, Positive
from gangway.trainer.config.parts.part import Choice, Narrower, Own, Part

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
