"""Data sets: prepared into hashed shards, then read in an order that only the seed decides."""
