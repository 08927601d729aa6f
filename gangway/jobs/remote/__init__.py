"""An engine at the other end of an SSH connection."""
