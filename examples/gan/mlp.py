"""The fully connected GAN of Goodfellow et al. 2014 (arXiv:1406.2661)."""

from torch import Tensor, nn

from gangway.trainer.networks import base
from gangway.trainer.networks.base import ClassEmbedding, ProjectionHead

__all__ = ["Discriminator", "Generator"]

_HIDDEN = 8
"""Hidden features per unit of `width`: 32 is then a sensible width, as for convolutions."""


class Generator(base.Generator):
    """Latents to images."""

    def __init__(self, z_dim: int, width: int, channels: int, resolution: int, num_classes: int = 0) -> None:
        super().__init__()
        self.with_class = ClassEmbedding(z_dim, num_classes)
        hidden, self.shape = _HIDDEN * width, (channels, resolution, resolution)
        self.layers = nn.Sequential(
            nn.Linear(self.with_class.width, hidden),
            nn.ReLU(),
            nn.Linear(hidden, hidden),
            nn.ReLU(),
            nn.Linear(hidden, channels * resolution**2),
            nn.Tanh(),
        )

    def forward(self, latents: Tensor, labels: Tensor | None = None) -> Tensor:
        """[N, z_dim] standard normal to [N, channels, resolution, resolution] in -1..1."""
        pixels: Tensor = self.layers(self.with_class(latents, labels))
        return pixels.reshape(-1, *self.shape)


class Discriminator(base.Discriminator):
    """Images to logits; high means real."""

    def __init__(self, width: int, channels: int, resolution: int, num_classes: int = 0) -> None:
        super().__init__()
        hidden = _HIDDEN * width
        self.features = nn.Sequential(
            nn.Linear(channels * resolution**2, hidden), nn.LeakyReLU(0.2), nn.Linear(hidden, hidden), nn.LeakyReLU(0.2)
        )
        self.to_logit = nn.Linear(hidden, 1)
        self.with_projection = ProjectionHead(hidden, num_classes)

    def forward(self, images: Tensor, labels: Tensor | None = None) -> Tensor:
        """[N, channels, resolution, resolution] in -1..1 to [N] logits."""
        features = self.features(images.flatten(1))
        logits: Tensor = self.with_projection(self.to_logit(features).flatten(), features, labels)
        return logits
