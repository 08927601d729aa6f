"""Keeps discouraged words from returning to pages, messages and docstrings."""
