"""Programs on machines of AWS."""
