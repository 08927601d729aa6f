"""How a network gets to know the class: an embedding beside the latents, a projection behind the features (Miyato &
Koyama 2018, arXiv:1802.05637).
"""

import math

import torch
from torch import Tensor, nn

__all__ = ["WithClass", "WithProjection"]


class WithClass(nn.Module):
    """Latents with a learnt vector of the same length for the class beside them; as they are without classes. `width`
    is the length of what comes out.
    """

    def __init__(self, z_dim: int, num_classes: int) -> None:
        super().__init__()
        self.width = 2 * z_dim if num_classes else z_dim
        self.embedding = nn.Embedding(num_classes, z_dim) if num_classes else None

    def forward(self, latents: Tensor, labels: Tensor | None) -> Tensor:
        """[N, z_dim] and [N] to [N, width]."""
        if self.embedding is None:
            return latents
        assert labels is not None, "a network that knows classes is called with labels"
        return torch.cat([latents, self.embedding(labels)], dim=1)


class WithProjection(nn.Module):
    """Logits, plus how well the features agree with a learnt vector of the class; as they are without classes."""

    def __init__(self, num_features: int, num_classes: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(num_classes, num_features) if num_classes else None
        self._scale = 1 / math.sqrt(num_features)

    def forward(self, logits: Tensor, features: Tensor, labels: Tensor | None) -> Tensor:
        """Logits [N], features [N, num_features] or feature maps [N, num_features, ...], and labels [N] to [N]."""
        if self.embedding is None:
            return logits
        assert labels is not None, "a network that knows classes is called with labels"
        pooled = features.flatten(2).mean(dim=2) if features.dim() > 2 else features
        agreement = (self.embedding(labels) * pooled).sum(dim=1)
        combined: Tensor = logits + self._scale * agreement
        return combined
