"""`MountedFiles`: what one source of a job's `files` had when the job first read it."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class MountedFiles:
    """The files that a program finds at one path."""

    target: str
    """Path in the working copy, and below the folder that SHARDYARD_FILES names."""
    source: str
    """Where they come from, as the spec says."""
    revision: str | None = None
    """Commit of a repository of the Hugging Face Hub."""
    digest: str | None = None
    """Digest of their names, sizes and checksums. Null for a path that all nodes see: it is linked as it is."""
    files: int | None = None
    """Number of files. Null for a path that all nodes see."""
    bytes: int | None = None
    """Size of all files together. Null for a path that all nodes see."""
