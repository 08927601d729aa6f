"""What all of the trainer stands on: its errors, its files, what it says on a console, and which machine it is on."""
