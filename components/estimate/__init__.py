"""Money, energy, carbon and time before anything runs: offers, quotes, ownership, scaling. Pure."""
