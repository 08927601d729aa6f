"""Commands about recorded runs."""
