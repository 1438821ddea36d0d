"""Sentences and code lines of reports."""
