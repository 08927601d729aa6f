"""Data sets: prepared once into hashed shards, and read in an order that the seed alone decides."""
