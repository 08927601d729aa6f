"""Nodes asked of a stack's groups: what follows from a wanted number, and each provider's own calls for it."""
