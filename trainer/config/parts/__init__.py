"""What TrainConfig is made of: its fields, which of them belong to an architecture or a loss, and rules on several."""
