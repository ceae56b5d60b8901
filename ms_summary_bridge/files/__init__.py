"""Bytes and names on disk: records, event files, and how files are named, found and written."""
