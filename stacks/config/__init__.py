"""The models of stack files and job files, with checks and explained mistakes. Does not know resources."""
