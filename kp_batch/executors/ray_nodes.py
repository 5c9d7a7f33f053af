"""Looks at the nodes of a Ray cluster before a run: can they do its work?"""

import sys
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from kp_batch.config import RescoreConfig
from kp_batch.errors import WorkerError
from kp_batch.text import one_line
from kp_batch.warehouse.layout import make_folder
from kp_batch.whole_files import beside


def check_nodes(ray: Any, config: RescoreConfig) -> None:
    """Refuse a cluster with a node that lacks the paths of the run or has other versions.

    Args:
        ray: connected to the cluster.
        config: of the run.

    Raises:
        WorkerError: names that node.
    """
    make_folder(config.warehouse)
    probe = beside(config.warehouse.absolute() / "probe")
    probe.touch()
    try:
        here = [str(Path(each).absolute()) for each in config.archive if Path(each).exists()]
        paths = [str(Path.cwd()), str(probe), *here]
        for node in (each for each in ray.nodes() if each["Alive"]):
            check_node(ray, node, paths)
    finally:
        probe.unlink()


def check_node(ray: Any, node: Mapping[str, Any], paths: Sequence[str]) -> None:
    """Refuse a node; see `check_nodes`.

    Args:
        ray: connected to the cluster.
        node: as Ray describes it.
        paths: it has to see each of these.
    """
    at = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
    task = ray.remote(_seen).options(scheduling_strategy=at, num_cpus=0)
    name = f"the Ray node {node['NodeManagerAddress']}"
    try:
        versions, lacking = ray.get(task.remote(paths))
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
    return f"Python {python}, kp-batch {version('kp-batch')}, polars {version('polars')}"
