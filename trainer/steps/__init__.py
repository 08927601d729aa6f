"""The parts of one training step, each of which the loop (trainer.run.loop) calls by name. Imports nothing."""
