"""Fields and limits of each loss."""

from typing import Annotated, Literal

from gangway.trainer.config.parts.fields import Fraction, NotNegative, Positive
from gangway.trainer.config.parts.part import Choice, Narrower, Own, Part

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
