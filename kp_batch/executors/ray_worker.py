"""Does one part in a worker of a Ray cluster, and brings home what it told and asked for."""

import os
from dataclasses import dataclass
from logging import LogRecord
from typing import Any

from polars.exceptions import PanicException

from kp_batch.progress import overheard
from kp_batch.storage.store import Traffic, counted

TOLD = "kp_told"  # the attribute of a part's error that holds what the part told before


@dataclass(frozen=True)
class Done:
    """A part that is done: what it gives, what it told, and what it asked of object stores."""

    result: Any
    told: list[LogRecord]
    traffic: Traffic


def carried_out(common: Any, part: object) -> Done:
    """Do one part in a worker."""
    step, args, kwargs, folder = common
    os.chdir(folder)  # paths may be relative
    with overheard() as told:
        try:
            with counted() as traffic:
                result = step(part, *args, **kwargs)
            return Done(result, told, traffic)
        except PanicException as panic:  # no Exception, which would end the worker
            error: Exception = RuntimeError(f"PanicException: {panic}")
        except Exception as fault:  # noqa: BLE001 (it is raised below)
            error = fault
    setattr(error, TOLD, told)
    raise error
