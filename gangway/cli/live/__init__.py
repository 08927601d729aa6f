"""Commands about what is running now: one file each."""
