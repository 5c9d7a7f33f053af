"""Who ran a run, and their note on it."""

import os
import pwd

from kp_batch.text import encodable, one_line, printable

_LONGEST = 200  # the most characters of a note


def current_user() -> str:
    """Return the login name of this process's user id; the id if it has no name.

    LOGNAME and the like may name who logged in, or what cron or sudo left there.
    """
    uid = os.geteuid()
    try:
        return encodable(pwd.getpwuid(uid).pw_name)
    except KeyError:  # for example in a container
        return str(uid)


def parse_note(text: str) -> str | None:
    """Return a note as it is kept, on one line; None if it is empty.

    Raises:
        ValueError: the note is too long.
    """
    note = one_line(encodable(text))
    if len(note) > _LONGEST:
        raise ValueError(f"a note has at most {_LONGEST} characters, got {len(note):,}")
    return note or None


def signed(user: str, note: str | None) -> str:
    """Return who ran a run, and the note, for a terminal."""
    return printable(f"by {user}: {note}" if note else f"by {user}")
