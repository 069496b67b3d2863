"""The size of a stored file, and a tag that is another one whenever the file was published again. Neither lists its folder."""

from dataclasses import dataclass
from pathlib import Path

from .folder import Folder
from .uri import is_bucket


@dataclass(frozen=True)
class FileStat:
    """`etag`: of S3, or of a file system's inode, which each publishing replaces."""

    bytes: int
    etag: str


def file_stat(folder: Folder, name: str) -> FileStat:
    """Of the file `name` in the folder. Raises `OSError`, as the folder's own methods do."""
    if is_bucket(folder.where):
        from .s3_folder import BucketFolder  # imports s3fs, which few need

        assert isinstance(folder, BucketFolder)
        found = folder.head(name)
        return FileStat(int(found["ContentLength"]), str(found["ETag"]))
    file = Path(folder.where, name).stat()
    return FileStat(file.st_size, f"{file.st_ino}-{file.st_mtime_ns}-{file.st_ctime_ns}")
