"""Folders on disks and in buckets."""
