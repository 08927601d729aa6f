"""Who gets which GPUs: one policy a file, by the name that `gangway simulate --policy` takes."""
