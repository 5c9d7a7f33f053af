"""What `prefect deploy` takes beside a project's file: prefect.yaml, and the file of its flows.

Both are the user's own, to be changed. The flows are public: see `kp_batch.flows`.
"""

import json
from importlib.resources import files
from pathlib import Path

from kp_batch.files import PROJECT_FILE

_FLOWS = '''\
"""The flows that prefect.yaml deploys. Change them here, or call them from a flow of your own."""

from kp_batch.flows import import_and_rescore, rescore

__all__ = ["import_and_rescore", "rescore"]
'''


def deployment_of(file: Path) -> dict[Path, str]:
    """The files to write beside a project's, with their texts."""
    template = files("kp_batch.operations").joinpath("prefect.yaml").read_text("utf-8")
    project = f"project: {json.dumps(file.name, ensure_ascii=False)}"
    return {
        file.parent / "prefect.yaml": template.replace(f"project: {PROJECT_FILE}", project),
        file.parent / "flows" / "nightly.py": _FLOWS,
    }
