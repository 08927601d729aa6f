"""Loads a stack file: finds it, reads it, and checks it against its provider. Mistakes are InputErrors."""
