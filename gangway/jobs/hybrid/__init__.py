"""Chooses among several engines and moves jobs between them."""
