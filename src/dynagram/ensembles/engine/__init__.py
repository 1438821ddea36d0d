"""Running jobs: chunks of members, executors, progress."""
