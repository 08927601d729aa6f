"""What a stack's run is expected to do (speed, memory, hours, dollars), and the findings that gives. Asks no cloud."""
