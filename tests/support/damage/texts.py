"""What stands in JSON in the place of a text, and is too large there; all of it is JSON."""

from kp_batch import bounds

_REST = 4_000  # bytes of the line around it, at the most


def of_length(size: int) -> bytes:
    return b'"' + b"x" * size + b'"'


def escaped() -> bytes:
    """Control characters, which take six times as much as JSON, and seven as JSON within JSON."""
    return b'"' + rb"\u0000" * ((bounds.LINE_BYTES - _REST) // 7) + b'"'


def deep() -> bytes:
    """Lists within lists."""
    half = (bounds.LINE_BYTES - _REST) // 2
    return b"[" * half + b"]" * half


def values(lines: float = 1) -> bytes:
    """Numbers and texts of few letters, each of which takes far more memory than a file."""
    some = [b'"ab"', b"{}", b"1.5"] * int((bounds.LINE_BYTES - _REST) * lines / 12)
    return b"[" + b",".join(some) + b"]"


def inner_values(size: int) -> bytes:
    """A text that is JSON of many values."""
    return b'"[' + b"{}," * (size // 4) + b'{}]"'
