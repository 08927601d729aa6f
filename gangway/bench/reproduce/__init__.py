"""`gangway reproduce`: a record run again on this machine (`rerun`), and whether the same came out (`compare`)."""
