"""Ways in which what we read is damaged or too large: `table` names each, and what comes of it."""

from hashlib import md5
from pathlib import Path


def id_in(path: Path, name: str = "good") -> str:
    """The id of a trace in a file or folder, which no other has."""
    return md5(f"{path.name} {name}".encode()).hexdigest()
