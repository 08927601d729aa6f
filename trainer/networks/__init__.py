"""Networks: one module per architecture, `base` for what they share, `factory` to build them, their precision."""
