"""Many workers as one: who is who, what they send each other, and whether they still agree. Imports nothing."""
