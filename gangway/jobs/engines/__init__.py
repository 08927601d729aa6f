"""The engine that a name stands for, and the server side of an engine reached over SSH."""
