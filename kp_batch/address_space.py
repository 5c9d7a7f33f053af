"""The limit on a process's address space (`ulimit -v`), below which libraries end it, or wait.

They reserve far more than they use, each thread for itself, and few of them say so where they get
no more: one aborts, another raises what seems a bug, and a third waits for a thread for ever.
"""

import resource

_KIB = 1024
# Below this no run was ever done: measured on one core and on two, with a small archive and without
# a model. Each core adds its threads. Only to ask a warehouse takes less.
_LEAST_KIB, _PER_CORE_KIB, _LEAST_OF_FEW_KIB = 2_200_000, 100_000, 1_200_000


def limit_kib() -> int | None:
    """The limit, as `ulimit -v` counts it; None if there is none."""
    most, _ = resource.getrlimit(resource.RLIMIT_AS)
    return None if most == resource.RLIM_INFINITY else most // _KIB


def limit_in_words() -> str | None:
    """The limit for a message; None if there is none."""
    kib = limit_kib()
    return None if kib is None else f"ulimit -v is {kib:,}"


def maybe_why() -> str:
    """What is added to the message of an error that the limit may be the cause of."""
    limit = limit_in_words()
    return f"; {limit}, which may be why: raise it" if limit else ""


def needed_kib(cores: int, *, few: bool) -> int:
    """The least that a command needs, or one that only asks a warehouse."""
    return _LEAST_OF_FEW_KIB if few else _LEAST_KIB + _PER_CORE_KIB * cores
