"""Looks at the nodes of a Ray cluster before a run: can they do its work?"""

import sys
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from kp_batch.config import RescoreConfig
from kp_batch.errors import WorkerError
from kp_batch.executor import PART_BYTES
from kp_batch.files import temporary_sibling
from kp_batch.text import one_line
from kp_batch.warehouse.layout import make_folder

PRIVATE = "kp-ray-"  # in the paths of a cluster that belongs to one run
_PATIENCE_S = 120.0  # a worker starts, and imports what it needs
_DECIDING = ("kp-batch", "polars", "numpy", "pyarrow", "torch", "tokenizers")  # results' bits


def check_nodes(ray: Any, config: RescoreConfig) -> None:
    """Refuse a cluster with a node that lacks the paths of the run or has other versions.

    Args:
        ray: connected to the cluster.
        config: of the run.

    Raises:
        WorkerError: names that node.
    """
    make_folder(config.warehouse)
    probe = temporary_sibling(config.warehouse.absolute() / "probe")
    probe.touch()
    try:
        here = [str(Path(each).absolute()) for each in config.archive if Path(each).exists()]
        paths = [str(Path.cwd()), str(probe), *here]
        nodes = [each for each in ray.nodes() if each["Alive"]]
        for node, asked in [(each, ask_node(ray, each, paths)) for each in nodes]:
            check_node(ray, node, asked)
    finally:
        probe.unlink()


def check_room(ray: Any) -> None:
    """Refuse a cluster of which no node has room for a part, or the model.

    Args:
        ray: connected to the cluster.

    Raises:
        WorkerError: says how much there is.
    """
    most = max(each.get("memory", 0) for each in with_a_core(ray))
    if most < PART_BYTES:
        raise WorkerError(
            f"no node of the Ray cluster has room for a part of the work, or the model: it takes "
            f"{PART_BYTES >> 20} MiB, and the largest node has {int(most) >> 20} MiB for tasks"
        )


def with_a_core(ray: Any) -> list[Mapping[str, float]]:
    """What each node has that can do a part.

    Raises:
        WorkerError: there is none.
    """
    nodes = [each["Resources"] for each in ray.nodes() if each["Alive"]]
    able = [each for each in nodes if each.get("CPU", 0) >= 1]
    if not able:
        raise WorkerError("no node of the Ray cluster has a core for kp-batch")
    return able


def ask_node(ray: Any, node: Mapping[str, Any], paths: Sequence[str]) -> Any:
    """Ask a node what it has, and which of the paths it lacks; returns the answer to come.

    Args:
        ray: connected to the cluster.
        node: as Ray describes it.
        paths: it has to see each of these.
    """
    at = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
    return ray.remote(_seen).options(scheduling_strategy=at, num_cpus=0).remote(paths)


def check_node(ray: Any, node: Mapping[str, Any], asked: Any) -> None:
    """Refuse a node by its answer; see `check_nodes`."""
    name = f"the Ray node {node['NodeManagerAddress']}"
    if PRIVATE in node["ObjectStoreSocketName"]:
        raise WorkerError(
            f"{name} is of another run's --workers; start a cluster: ray start --head"
        )
    try:
        versions, lacking = ray.get(asked, timeout=_PATIENCE_S)
    except ray.exceptions.GetTimeoutError as error:
        raise WorkerError(f"{name} did not answer within {_PATIENCE_S:.0f} s") from error
    except ray.exceptions.RayError as error:
        raise WorkerError(f"{name} cannot run kp-batch: {one_line(str(error))}") from error
    if versions != versions_here():
        reason = f"has {versions}, and this machine {versions_here()}; install the same"
        raise WorkerError(f"{name} {reason}")
    if lacking:
        reason = f"does not see {lacking[0]}; a cluster needs a disk that all nodes share"
        raise WorkerError(f"{name} {reason}")


def _seen(paths: Sequence[str]) -> tuple[str, list[str]]:
    """What a node has, and which of the paths it lacks."""
    return versions_here(), [each for each in paths if not Path(each).exists()]


def versions_here() -> str:
    """What has to be the same on all nodes."""
    python = ".".join(map(str, sys.version_info[:2]))
    return ", ".join([f"Python {python}", *(f"{each} {version(each)}" for each in _DECIDING)])
