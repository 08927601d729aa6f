"""Follows one value of a stack file through the code."""
