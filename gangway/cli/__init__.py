"""The `gangway` command: a file for each of its commands, thin; `main` has them all."""
