"""Carries out parts on a Ray cluster: processes of this machine, or a cluster that already runs.

Ray places the parts, repeats those of a killed worker or node, and moves the results. The steps
themselves stay in this process.
"""

import os
import socket
import sys
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import chdir, closing, contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from logging import LogRecord, StreamHandler, getLogger
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir
from typing import Any, Concatenate

import polars as pl
from polars.exceptions import PanicException

from kp_batch.config import RescoreConfig
from kp_batch.errors import WorkerError
from kp_batch.files import note_leftover, temporary_sibling
from kp_batch.log import capture, replay_log
from kp_batch.steps.step import PART_BYTES, Executor, P, R, Step, T, ThreadExecutor, begun_ahead
from kp_batch.text import one_line, shortened
from kp_batch.warehouse.layout import make_folder

_ANSWER_TIMEOUT_S = 5.0  # to wait for a cluster's answer
_NODE_TIMEOUT_S = 120.0  # for a node's answer: a worker starts, and imports what it needs
_PRIVATE = "kp-ray-"  # in the paths of a cluster that belongs to one run
_SHORT = 25  # letters of the path of Ray's temporary folder
_ATTEMPTS = 3  # attempts at a part whose worker dies
_OF_PART = 300  # characters of a part in a message
_MESSAGES = "kp_messages"  # the attribute of a part's error that holds the part's log records
_DECIDING = ("kp-batch", "polars", "numpy", "pyarrow", "torch", "tokenizers")  # decide bits
# Before Ray is imported; the user's environment wins.
_SETTINGS = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_task_oom_retries": str(_ATTEMPTS - 1),  # the default is to retry for ever
}
_LOG = StreamHandler(sys.__stderr__)  # for messages that are not for the user


@contextmanager
def executor_of(config: RescoreConfig) -> Generator[Executor]:
    """Return the executor of a run: this process, or Ray if the settings ask for it.

    Raises:
        WorkerError: Ray is not installed, no cluster answers, or its nodes cannot do the work.
    """
    if config.ray is None:
        yield ThreadExecutor()
        return
    with _ray() as ray, _cluster(ray, config) as executor:
        yield executor


@contextmanager
def _cluster(ray: Any, config: RescoreConfig) -> Generator[Executor]:
    # The path of a socket has at most 107 letters, and Ray takes 64 of these.
    parent = gettempdir() if len(gettempdir()) <= _SHORT else "/tmp"  # noqa: S108 (as Ray does)
    with TemporaryDirectory(prefix=_PRIVATE, dir=parent) as folder:
        note_leftover(Path(folder))
        try:
            _start(ray, config, folder)
            check_room(ray)
            if config.workers is None:
                check_nodes(ray, config)
            yield RayExecutor(ray)
        finally:
            ray.shutdown()


@contextmanager
def _ray() -> Generator[Any]:
    """Import Ray; its messages go to the log alone: to stderr itself, not `sys.stderr`."""
    for name, value in _SETTINGS.items():
        os.environ.setdefault(name, value)
    try:
        import ray
    except ImportError as error:
        raise WorkerError("--ray needs Ray: pip install 'kp-batch[ray]'") from error
    own, all_ = getLogger("ray"), getLogger()
    before, own.propagate = own.propagate, True
    all_.addHandler(_LOG)
    try:
        yield ray
    finally:
        own.propagate = before
        all_.removeHandler(_LOG)


def _start(ray: Any, config: RescoreConfig, folder: str) -> None:
    try:
        if config.workers is None:
            _check_address(config.ray)
        # The workers look for modules in the folder that is current now: it may hold a polars.py.
        with chdir(folder), _inherited(_share_of(config)):
            ray.init(**_settings(config, folder))
    except Exception as error:
        raise WorkerError(f"Ray does not start: {one_line(str(error))}") from error


def _check_address(address: str | None) -> None:
    """Check that somebody answers at an address: Ray itself would wait for minutes."""
    if address in (None, "auto"):
        return
    host, _, port = address.rpartition(":")
    if not (host and port.isdecimal()):
        raise ValueError(f"an address must be HOST:PORT, or auto, got {address!r}")
    socket.create_connection((host.strip("[]"), int(port)), _ANSWER_TIMEOUT_S).close()


def _settings(config: RescoreConfig, folder: str) -> Mapping[str, Any]:
    quiet = {"configure_logging": False, "log_to_driver": False}
    if config.workers is None:
        # A part has one core; without this, Polars would take all cores of its node.
        alone = {"env_vars": {"POLARS_MAX_THREADS": "1"}}
        return {"address": config.ray, "runtime_env": alone, **quiet}
    return {
        "address": "local",
        "num_cpus": config.workers,
        "include_dashboard": False,
        "_temp_dir": folder,
        "_node_ip_address": "127.0.0.1",  # no other machine reaches it
        **quiet,
    }


def _share_of(config: RescoreConfig) -> Mapping[str, str]:
    """Return the environment of this machine's workers: the threads that each may start."""
    if config.workers is None:
        return {}
    share = str(max(pl.thread_pool_size() // config.workers, 1))
    return dict.fromkeys(("OMP_NUM_THREADS", "POLARS_MAX_THREADS"), share)


@contextmanager
def _inherited(environment: Mapping[str, str]) -> Generator[None]:
    """Set environment variables for processes that start within the context; the user's win."""
    new = {name: value for name, value in environment.items() if name not in os.environ}
    os.environ.update(new)
    try:
        yield
    finally:
        for name in new:
            os.environ.pop(name, None)


def check_nodes(ray: Any, config: RescoreConfig) -> None:
    """Refuse a cluster with a node that lacks the run's paths or has other versions.

    Raises:
        WorkerError: a node does not fit; the message names it.
    """
    make_folder(config.warehouse)
    probe = temporary_sibling(config.warehouse.absolute() / "probe")
    probe.touch()
    try:
        archive = [str(Path(name).absolute()) for name in config.archive if Path(name).exists()]
        paths = [str(Path.cwd()), str(probe), *archive]
        nodes = [node for node in ray.nodes() if node["Alive"]]
        for node, answer in [(node, ask_node(ray, node, paths)) for node in nodes]:
            check_node(ray, node, answer)
    finally:
        probe.unlink()


def check_room(ray: Any) -> None:
    """Refuse a cluster on which no node has room for a part, or for the model.

    Raises:
        WorkerError: there is no room; the message says how much there is.
    """
    most = max(node.get("memory", 0) for node in nodes_with_a_core(ray))
    if most < PART_BYTES:
        raise WorkerError(
            "no node of the Ray cluster has enough memory: a part of the work, or the model, needs "
            f"{PART_BYTES >> 20} MiB, but the largest node has {int(most) >> 20} MiB for tasks; "
            "give a node more memory"
        )


def nodes_with_a_core(ray: Any) -> list[Mapping[str, float]]:
    """Return the resources of each node that can do a part.

    Raises:
        WorkerError: there is no such node.
    """
    alive = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    nodes = [node for node in alive if node.get("CPU", 0) >= 1]
    if not nodes:
        raise WorkerError("no node of the Ray cluster has a core for kp-batch; start a node")
    return nodes


def ask_node(ray: Any, node: Mapping[str, Any], paths: Sequence[str]) -> Any:
    """Ask a node for its versions and for the paths that it lacks; return Ray's reference."""
    at = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
    return ray.remote(_answer).options(scheduling_strategy=at, num_cpus=0).remote(paths)


def check_node(ray: Any, node: Mapping[str, Any], answer: Any) -> None:
    """Refuse a node by its answer; see `check_nodes`."""
    name = f"the Ray node {node['NodeManagerAddress']}"
    if _PRIVATE in node["ObjectStoreSocketName"]:
        raise WorkerError(
            f"{name} belongs to another run's --ray N; start a cluster: ray start --head"
        )
    try:
        versions, lacking = ray.get(answer, timeout=_NODE_TIMEOUT_S)
    except ray.exceptions.GetTimeoutError as error:
        message = f"{name} did not answer within {_NODE_TIMEOUT_S:.0f} s; check that machine"
        raise WorkerError(message) from error
    except ray.exceptions.RayError as error:
        raise WorkerError(
            f"{name} cannot run kp-batch: {one_line(str(error))}; install there what is installed "
            "here"
        ) from error
    if versions != local_versions():
        reason = f"has {versions}, but this machine has {local_versions()}; install the same"
        raise WorkerError(f"{name} {reason}")
    if lacking:
        reason = f"does not see {lacking[0]}; use a disk that all nodes share"
        raise WorkerError(f"{name} {reason}")


def _answer(paths: Sequence[str]) -> tuple[str, list[str]]:
    return local_versions(), [path for path in paths if not Path(path).exists()]


def local_versions() -> str:
    """Return the versions that must be the same on all nodes."""
    python = ".".join(map(str, sys.version_info[:2]))
    return ", ".join([f"Python {python}", *(f"{name} {version(name)}" for name in _DECIDING)])


@dataclass(frozen=True)
class PartResult:
    """The result of a part, and its log records."""

    result: Any
    messages: list[LogRecord]


def run_part(common: Any, part: object) -> PartResult:
    """Do one part in a worker."""
    step, args, kwargs, folder = common
    os.chdir(folder)  # because paths may be relative
    with capture() as messages:
        try:
            return PartResult(step(part, *args, **kwargs), messages)
        except PanicException as panic:  # it is no Exception, and would end the worker
            error: Exception = RuntimeError(f"PanicException: {panic}")
        except Exception as fault:  # noqa: BLE001 (it is raised below)
            error = fault
    setattr(error, _MESSAGES, messages)
    raise error


@dataclass(frozen=True)
class RayExecutor:
    """Carries out each part as a task of Ray, which takes one core, or one GPU."""

    ray: Any

    def has_gpu(self) -> bool:
        """See `Executor`."""
        return any(node.get("GPU", 0) >= 1 for node in nodes_with_a_core(self.ray))

    def map(
        self,
        step: Step[Concatenate[T, P], R],
        parts: Iterable[T],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> Generator[R]:
        """See `Executor`; after an error, begun parts go on until `executor_of` ends.

        No task is cancelled. Ray itself ends a driver that cancels a task just when its result
        arrives (2.60: "Tried to complete task that was not pending").
        """
        if not parts:
            return
        with self._explained(step.name):
            common = self.ray.put((step, args, kwargs, str(Path.cwd())))
            needs = {"name": step.name, "max_retries": _ATTEMPTS - 1, **self._needs(step)}
            task = self.ray.remote(run_part).options(**needs)

        def begin(part: T) -> tuple[T, Any]:
            with self._explained(step.name):
                return part, task.remote(common, part)

        with closing(begun_ahead(begin, parts, self._at_once(step))) as begun:
            for part, reference in begun:
                done = self._result(step.name, part, reference)
                replay_log(done.messages)
                yield done.result

    def _at_once(self, step: Step[..., Any]) -> int:
        """Return about how many parts of a step the nodes can do at once."""
        unit = "GPU" if step.on_gpu and self.has_gpu() else "CPU"
        return int(sum(node.get(unit, 0) for node in nodes_with_a_core(self.ray)))

    def _needs(self, step: Step[..., Any]) -> dict[str, int]:
        """Return what a part of a step takes, at most what a node has: it would wait for ever."""
        nodes = nodes_with_a_core(self.ray)
        with_gpu = [node for node in nodes if node.get("GPU", 0) >= 1] if step.on_gpu else []
        memory = max(int(node.get("memory", 0)) for node in with_gpu or nodes)
        gpus = int(bool(with_gpu))
        return {"num_cpus": 1, "num_gpus": gpus, "memory": min(step.memory, memory)}

    def _result(self, step: str, part: object, reference: Any) -> PartResult:
        errors = self.ray.exceptions
        try:
            with self._explained(step, errors.RayTaskError, *_lost(errors)):
                return self.ray.get(reference)
        except errors.RayTaskError as error:
            replay_log(getattr(error.cause, _MESSAGES, ()))
            raise error.cause from error  # the cause's traceback in the log shows the place
        except _lost(errors) as error:
            lack = " for lack of memory" if isinstance(error, errors.OutOfMemoryError) else ""
            raise WorkerError(
                f"{step} lost its worker {_ATTEMPTS} times{lack}, each time with "
                f"{shortened(one_line(repr(part)), _OF_PART)}; give the nodes more memory, or "
                "check that part"
            ) from error

    @contextmanager
    def _explained(self, step: str, *others: type[Exception]) -> Generator[None]:
        """Explain Ray's own errors, except for some kinds."""
        try:
            yield
        except others:
            raise
        except self.ray.exceptions.RayError as error:
            raise WorkerError(
                f"{step} failed on the Ray cluster: {one_line(str(error))}; run again when the "
                "cluster works"
            ) from error


def _lost(errors: Any) -> tuple[type[Exception], ...]:
    """Return Ray's errors for a part whose worker died."""
    return errors.WorkerCrashedError, errors.NodeDiedError, errors.OutOfMemoryError
