"""Writes docs/reference from the models, commands and tables of the code."""
