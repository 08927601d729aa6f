"""The least privileges that a stack's commands need, with reasons. One adapter per provider makes the documents."""
