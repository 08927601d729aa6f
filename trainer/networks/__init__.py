"""The networks, a module for each family, `base` for what all have in common, `factory` to make them."""
