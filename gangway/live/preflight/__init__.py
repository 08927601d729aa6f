"""Checks of a stack against its cloud before `up`, read-only: `check` runs them, one module per provider makes them."""
