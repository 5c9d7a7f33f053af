"""Settings of the whole process, kept at a value while any work needs it."""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from threading import Lock
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class ProcessSetting(Generic[T]):
    """Keeps a setting of a library at a value; afterwards, it is what it was before.

    Contexts may overlap: the first one sets the value, and the last one restores the setting.

    Args:
        read: returns the setting.
        write: sets the setting.
        value: the value to keep it at.
    """

    def __init__(self, read: Callable[[], T], write: Callable[[T], object], value: T) -> None:
        self._read, self._write, self._value = read, write, value
        self._lock = Lock()
        self._before: list[T] = []  # one element, while it is kept
        self._holders = 0

    @contextmanager
    def kept(self) -> Generator[None]:
        """Keep the setting at the value within the context."""
        with self._lock:
            if not self._holders:
                self._before = [self._read()]
                self._write(self._value)
            self._holders += 1
        try:
            yield
        finally:
            with self._lock:
                self._holders -= 1
                if not self._holders:
                    self._write(self._before.pop())


@contextmanager
def quiet() -> Generator[None]:
    """Silence warnings of transformers about unused weights and long texts."""
    with _VERBOSITY.kept(), _PROGRESS_BARS.kept():
        yield


def _logging() -> Any:
    from transformers.utils import logging

    return logging


def _show_bars(is_shown: bool) -> None:  # noqa: FBT001 (a setting)
    (_logging().enable_progress_bar if is_shown else _logging().disable_progress_bar)()


_VERBOSITY = ProcessSetting[int](
    lambda: _logging().get_verbosity(), lambda level: _logging().set_verbosity(level), 40
)
_PROGRESS_BARS = ProcessSetting[bool](
    lambda: _logging().is_progress_bar_enabled(), _show_bars, value=False
)
