"""Data sets: prepared once into hashed shards, then read in an order that only the seed decides."""
