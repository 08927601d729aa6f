"""Azure components, named as on AWS and Google Cloud. Imports nothing: planning must not load the SDK."""
