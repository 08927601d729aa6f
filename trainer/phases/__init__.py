"""What the phases of a training step consist of: batches, losses, augmentation, roles, optimisers, updates."""
