"""Limits the cores of matrix products while parts of a step run in parallel.

BLAS libraries have one number of threads for the whole process. Several runs may map parts at once,
and end in any order. While any of them runs, a library gets the smallest of their shares. After the
last one, it gets back the number that it had before.
"""

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from threading import Lock
from typing import Any

from kp_batch.stopping import parts_in_threads, result_of

_LOCK = Lock()
_SHARES: list["_Share"] = []  # of the mappings under way
_BEFORE: dict[str, int] = {}  # the threads that each library had before, by its file


class _Share:
    def __init__(self, cores: int) -> None:
        self.cores = cores
        with parts_in_threads(1) as threads:  # it calls back from C, where an interrupt is lost
            found = result_of(threads.begin(_found))
        self.libraries: dict[str, Any] = {library.filepath: library for library in found}


def _found() -> Sequence[Any]:
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController().select(user_api="blas").lib_controllers


@contextmanager
def computing_on(cores: int) -> Generator[None]:
    """Limit each matrix product of this process to some cores, within the context."""
    with _LOCK:
        share = _Share(cores)
        for file, library in share.libraries.items():
            _BEFORE.setdefault(file, library.num_threads)
        _SHARES.append(share)
        _set(share)
    try:
        yield
    finally:
        with _LOCK:
            _SHARES.remove(share)
            _set(share)


def _set(changed: _Share) -> None:
    """Set the threads of a share's libraries, after the share was added or removed."""
    for file, library in changed.libraries.items():
        shares = [share.cores for share in _SHARES if file in share.libraries]
        _release(library)  # OpenBLAS obeys only the first thread that set it
        library.set_num_threads(min(shares) if shares else _BEFORE.pop(file))
        _release(library)


def _release(library: Any) -> None:
    if hasattr(library, "clear_controlling_thread"):
        library.clear_controlling_thread(force=True)
