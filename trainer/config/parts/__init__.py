"""Parts of TrainConfig: fields, choices by architecture and loss, and rules on several fields."""
