"""The least privileges that a stack's commands need, with a reason for each. One adapter per provider makes the document."""
