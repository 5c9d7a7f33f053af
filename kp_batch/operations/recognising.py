"""Finds out which format a source is of, by what its files hold."""

from collections.abc import Sequence
from contextlib import closing
from itertools import islice

from kp_batch.errors import KpBatchError
from kp_batch.importers.catalogue import FORMATS
from kp_batch.importers.draft import Unit
from kp_batch.importers.format import Format, Here, Input, Read
from kp_batch.storage.urls import is_database

_FILES = 5  # that are tried
_UNITS = 5  # of each


def recognised(paths: Sequence[str], read: Read, here: Here) -> Format:
    """The one format of which the first files that can be read have traces.

    Args:
        paths: of the source's files.
        read: gives the content of a small file.
        here: gives the path of a file on this machine.

    Raises:
        KpBatchError: there is none, or more than one.
    """
    found = [form for form in FORMATS.values() if _is_of(form, paths, read, here)]
    if len(found) == 1:
        return found[0]
    if not found:
        known = ", ".join(FORMATS)
        raise KpBatchError(f"the source is of no format that is known here: {known}")
    which = " or ".join(form.name for form in found)
    raise KpBatchError(f"the source may be {which}; name the format in place of auto")


def _is_of(form: Format, paths: Sequence[str], read: Read, here: Here) -> bool:
    try:
        looks = form.inputs(paths, lambda path: form.tells(path, read(path)))
        inputs = [each for each in looks if not each.refused]
    except Exception:  # noqa: BLE001 (it is another format's)
        return False
    return any(_has_units(form, each, here) for each in inputs[:_FILES])


def _has_units(form: Format, given: Input, here: Here) -> bool:
    if is_database(given.path):
        return form.rows is not None  # whether its server answers or not
    try:
        with closing(form.read(given, here)) as found:
            return any(isinstance(each, Unit) for each in islice(found, _UNITS))
    except Exception:  # noqa: BLE001 (likewise)
        return False
