"""Commands about what runs now: `status`, `logs`, `ssh`, `down`."""
