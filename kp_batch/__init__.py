"""Rescore archives of AI reasoning traces: every trace gets the score it had at its own time."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

import kp_batch.forked  # noqa: F401 (notes each fork)
from kp_batch.errors import KpBatchError

if TYPE_CHECKING:
    from kp_batch.config import RescoreConfig
    from kp_batch.novelty.cache import VectorCache
    from kp_batch.novelty.replay import replay
    from kp_batch.operations.live import Session, compare_profiles, evaluate_value, reset
    from kp_batch.python.nested_rows import rows_from
    from kp_batch.python.score_frame import ScoredFrame, score
    from kp_batch.python.warehouse import Project, Warehouse
    from kp_batch.scoring.profiles import WeightProfile, load_profiles

__all__ = [
    "KpBatchError",
    "Project",
    "RescoreConfig",
    "ScoredFrame",
    "Session",
    "VectorCache",
    "Warehouse",
    "WeightProfile",
    "compare_profiles",
    "evaluate_value",
    "load_profiles",
    "replay",
    "reset",
    "rows_from",
    "score",
]

_MODULES = {
    "Project": "kp_batch.python.warehouse",
    "RescoreConfig": "kp_batch.config",
    "ScoredFrame": "kp_batch.python.score_frame",
    "Session": "kp_batch.operations.live",
    "VectorCache": "kp_batch.novelty.cache",
    "Warehouse": "kp_batch.python.warehouse",
    "WeightProfile": "kp_batch.scoring.profiles",
    "compare_profiles": "kp_batch.operations.live",
    "evaluate_value": "kp_batch.operations.live",
    "load_profiles": "kp_batch.scoring.profiles",
    "replay": "kp_batch.novelty.replay",
    "reset": "kp_batch.operations.live",
    "rows_from": "kp_batch.python.nested_rows",
    "score": "kp_batch.python.score_frame",
}


def __getattr__(name: str) -> Any:
    """Import a public name at its first use, so that the command line starts without polars."""
    if name not in _MODULES:
        raise AttributeError(f"module 'kp_batch' has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    """List the public names alone, imported or not yet, as completion shows them."""
    return __all__
