"""Runs on disk: records, arrays, locks, and reading them back."""
