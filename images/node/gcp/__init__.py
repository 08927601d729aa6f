"""Programs on machines of Google Cloud."""
