"""Carries parts out on a Ray cluster: one of this machine's processes, or one that runs already.

Ray places the parts, does again what a killed worker or node left, and moves the results. What
stays in this process are the steps themselves: settling, planning, publishing.
"""

import os
import socket
import sys
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from logging import StreamHandler, getLogger
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir
from typing import Any, Concatenate, cast

import polars as pl

from kp_batch.config import RescoreConfig
from kp_batch.errors import WorkerError
from kp_batch.executor import Executor, Local, P, R, Step, T
from kp_batch.executors.ray_nodes import PRIVATE, check_nodes, check_room, with_a_core
from kp_batch.executors.ray_worker import TOLD, Done, carried_out
from kp_batch.progress import repeat
from kp_batch.storage.store import TRAFFIC
from kp_batch.text import one_line, shortened

_PATIENCE_S = 5.0  # for a cluster's answer
_SHORT = 25  # letters of a folder for what Ray keeps meanwhile
_TRIES = 3  # of a part whose worker dies
_OF_PART = 300  # characters
# Before Ray is imported; what the user's environment sets wins.
_SETTINGS = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_task_oom_retries": str(_TRIES - 1),  # for ever, otherwise
}
_LOG = StreamHandler(sys.__stderr__)  # as all that is not for the user


@contextmanager
def workers_of(config: RescoreConfig) -> Generator[Executor]:
    """What carries out the parts of a run: this process, or Ray where the settings ask for it.

    Raises:
        WorkerError: Ray is missing, no such cluster answers, or its nodes cannot do the work.
    """
    if config.workers is None and config.ray is None:
        yield Local()
        return
    ray = _imported()
    # Sockets stand there, and a socket's path is short: 107 letters, of which Ray takes 64.
    place = gettempdir() if len(gettempdir()) <= _SHORT else "/tmp"  # noqa: S108 (as Ray does)
    with TemporaryDirectory(prefix=PRIVATE, dir=place) as folder:
        try:
            _start(ray, config, folder)
            check_room(ray)
            if config.ray is not None:
                check_nodes(ray, config)
            yield Cluster(ray)
        finally:
            ray.shutdown()


def _imported() -> Any:
    """Ray, which says what it has to say to the log alone: stderr itself, not `sys.stderr`."""
    for name, value in _SETTINGS.items():
        os.environ.setdefault(name, value)
    try:
        import ray
    except ImportError as error:
        raise WorkerError("--workers and --ray need Ray: pip install 'kp-batch[ray]'") from error
    getLogger("ray").propagate = True
    getLogger().addHandler(_LOG)
    return ray


def _start(ray: Any, config: RescoreConfig, folder: str) -> None:
    try:
        _knock(config.ray)
        ray.init(**_settings(config, folder))
    except Exception as error:
        raise WorkerError(f"Ray does not start: {one_line(str(error))}") from error


def _knock(address: str | None) -> None:
    """Try an address, since Ray would wait for minutes where nobody answers."""
    if address in (None, "auto"):
        return
    host, _, port = address.rpartition(":")
    if not (host and port.isdecimal()):
        raise ValueError(f"an address is HOST:PORT, or auto, got {address!r}")
    socket.create_connection((host.strip("[]"), int(port)), _PATIENCE_S).close()


def _settings(config: RescoreConfig, folder: str) -> Mapping[str, Any]:
    """What `ray.init` is given."""
    quiet = {"configure_logging": False, "log_to_driver": False}
    if config.ray is not None:
        # A part has one core: Polars would take all of its node's.
        alone = {"env_vars": {"POLARS_MAX_THREADS": "1"}}
        return {"address": config.ray, "runtime_env": alone, **quiet}
    workers = cast("int", config.workers)
    share = str(max(pl.thread_pool_size() // workers, 1))
    for name in ("OMP_NUM_THREADS", "POLARS_MAX_THREADS"):
        os.environ.setdefault(name, share)  # which the workers inherit
    return {
        "address": "local",
        "num_cpus": workers,
        "include_dashboard": False,
        "_temp_dir": folder,
        "_node_ip_address": "127.0.0.1",  # no other machine reaches it
        **quiet,
    }


@dataclass(frozen=True)
class Cluster:
    """Carries each part out as a task of Ray, which takes one core, or one card."""

    ray: Any

    def call(self, step: Step[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """See `Executor`: in this process."""
        return step(*args, **kwargs)

    def map(
        self,
        step: Step[Concatenate[T, P], R],
        parts: Sequence[T],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> Iterator[R]:
        """See `Executor`; after an error, the rest goes on until `workers_of` ends.

        Ray cannot be told to leave it: a driver that cancels a task just when its result comes is
        ended by Ray itself (2.60: "Tried to complete task that was not pending").
        """
        if not parts:
            return
        with self._explained(step.name):
            common = self.ray.put((step, args, kwargs, str(Path.cwd())))
            needs = {"name": step.name, "max_retries": _TRIES - 1, **self._needs(step)}
            task = self.ray.remote(carried_out).options(**needs)
            begun = [task.remote(common, part) for part in parts]
        for part, each in zip(parts, begun, strict=True):
            done = self._result(step.name, part, each)
            repeat(done.told)
            TRAFFIC.count(**asdict(done.traffic))
            yield done.result

    def _needs(self, step: Step[..., Any]) -> dict[str, int]:
        """What a part of a step takes of a node, which one has: it would wait for ever for more."""
        able = with_a_core(self.ray)
        with_card = [each for each in able if each.get("GPU", 0) >= 1] if step.on_card else []
        memory = max(int(each.get("memory", 0)) for each in with_card or able)
        card = int(bool(with_card))
        return {"num_cpus": 1, "num_gpus": card, "memory": min(step.memory, memory)}

    def _result(self, step: str, part: object, task: Any) -> Done:
        errors = self.ray.exceptions
        try:
            with self._explained(step, errors.RayTaskError, *_lost(errors)):
                return self.ray.get(task)
        except errors.RayTaskError as error:
            repeat(getattr(error.cause, TOLD, ()))
            raise error.cause from error  # which tells the log where
        except _lost(errors) as error:
            lack = " for want of memory" if isinstance(error, errors.OutOfMemoryError) else ""
            raise WorkerError(
                f"{step} lost its worker {_TRIES} times{lack}, with "
                f"{shortened(one_line(repr(part)), _OF_PART)}"
            ) from error

    @contextmanager
    def _explained(self, step: str, *others: type[Exception]) -> Generator[None]:
        """Explain what Ray itself fails over, but for errors of some other kinds."""
        try:
            yield
        except others:
            raise
        except self.ray.exceptions.RayError as error:
            raise WorkerError(
                f"{step} failed on the Ray cluster: {one_line(str(error))}"
            ) from error


def _lost(errors: Any) -> tuple[type[Exception], ...]:
    """What Ray tells of a part whose worker died."""
    return errors.WorkerCrashedError, errors.NodeDiedError, errors.OutOfMemoryError
