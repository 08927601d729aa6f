"""`gangway reproduce`: repeats a recorded run on this machine (`rerun`) and compares the results (`compare`)."""
