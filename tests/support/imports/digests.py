"""`python -m tests.support.imports.digests`: what every fixture comes to, in golden/imports.json.

It writes nothing where that has changed and `IMPORTER` has not: then archives would hold traces
as they were made before, beside such as are made now.
"""

import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import astuple
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory

from kp_batch.conversion.apply_rules import Row, apply_rules
from kp_batch.conversion.model import Refused, Skipped, TraceDraft
from kp_batch.conversion.rules import load_rules
from kp_batch.imports.importing import IMPORTER
from tests.support import GOLDEN
from tests.support.formats.agent_runs import OF_AGENTS, RUNS, SYSTEMS, TELLING
from tests.support.formats.kits import KITS
from tests.support.imports.drafting import always, drafted

DIGESTS = GOLDEN / "imports.json"
_RULES = always(recovery="after_tool_error")
_OTHER_RULES = {
    "knowledgepulse": load_rules(None, {}),
    "messages": always(recovery="after_tool_error", created_at="field:created_at"),
}


def fixtures(folder: Path) -> Iterator[tuple[str, str, Path]]:
    """Each with its name, its format and its path; made in an empty folder, or kept."""
    made: dict[str, tuple[str, Callable[[Path], object]]] = {}
    for name, kit in KITS.items():
        trace = kit.make("aa", kit.at, 1.0)
        made[name] = kit.name, lambda path, kit=kit, trace=trace: kit.write(path, [trace])
    for system, write in SYSTEMS.items():
        for name, (run, _) in (RUNS | (OF_AGENTS if system in TELLING else {})).items():
            form = system.partition(" ")[0]
            made[f"{system}: {name}"] = form, lambda path, x=write, run=run: x(path, run)
    for number, (name, (form, write)) in enumerate(made.items()):
        write(folder / str(number))
        yield name, form, folder / str(number)
    for path in sorted((GOLDEN / "imports").iterdir()):
        yield f"{path.name}, as it stands here", path.name, path


def digest(name: str, folder: Path) -> str:
    """Of all that the files of a format come to: drafts, traces, what is refused or passed over."""
    rules = _OTHER_RULES.get(name, _RULES)
    made = drafted(name, folder, rules)
    drafts = [*made.drafts.values()]
    results = [*drafts, *(apply_rules(draft, rules, name) for draft in drafts)]
    results += [*(refusal for _, refusal in made.refused), *map(Skipped, made.skipped)]
    return sha256("\n".join(sorted(map(_values, results))).encode()).hexdigest()[:16]


def _values(result: TraceDraft | Row | Refused | Skipped) -> str:
    """What it tells, whatever its fields are called."""
    return json.dumps(result if isinstance(result, dict) else astuple(result), default=str)


def digests() -> dict[str, str]:
    """The digest of each fixture, by its name."""
    with TemporaryDirectory() as folder:
        return {name: digest(form, path) for name, form, path in fixtures(Path(folder))}


def main() -> None:
    """Write them."""
    before = json.loads(DIGESTS.read_text("utf-8")) if DIGESTS.exists() else {"traces": {}}
    now = digests()
    changed = [name for name, old in before["traces"].items() if now.get(name, old) != old]
    if changed and before["importer"] == IMPORTER:
        sys.exit(f"raise IMPORTER first: other traces than before from {'; '.join(changed)}")
    content = {"importer": IMPORTER, "traces": now}
    DIGESTS.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", "utf-8")


if __name__ == "__main__":
    main()
