"""What `prefect deploy` takes beside a project's file: prefect.yaml, and the flows that it names.

They are files of the user's own, to be changed; they import the parts of the flow from kp_batch.
"""

import json
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

from kp_batch.settings import PROJECT_FILE


def deployment_of(file: Path) -> dict[Path, str]:
    """The files to write beside a project's, with their texts."""
    template = files("kp_batch.operations").joinpath("prefect.yaml").read_text("utf-8")
    project = f"project: {json.dumps(file.name, ensure_ascii=False)}"
    flows = {
        file.parent / "flows" / flow.name: flow.read_text("utf-8")
        for flow in _flows().iterdir()
        if flow.name.endswith(".py") and flow.name != "__init__.py"
    }
    return {
        file.parent / "prefect.yaml": template.replace(f"project: {PROJECT_FILE}", project),
        **flows,
    }


def _flows() -> Traversable:
    """The folder of the flows: a wheel has it in the package, and a checkout beside that."""
    package = files("kp_batch")
    shipped = package / "flows"
    return shipped if shipped.is_dir() else Path(str(package)).parent / "flows"
