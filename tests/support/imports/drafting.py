"""What files of a format come to without an archive, and the steps of a trace as plain data."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kp_batch.bounds import TOO_LARGE, TooLargeError, parse
from kp_batch.conversion.apply_rules import IMPORTED, Row
from kp_batch.conversion.conversation.messages import CutContentError
from kp_batch.conversion.formats import FORMATS
from kp_batch.conversion.model import (
    Format,
    Input,
    InTurn,
    ReadItem,
    Refused,
    Skipped,
    SourceRecord,
    TraceDraft,
)
from kp_batch.conversion.rules import Rules, load_rules
from kp_batch.errors import UnreadableError
from kp_batch.imports.days import frame_of
from kp_batch.imports.reading import content_of, items_of
from kp_batch.imports.traces import ImportCounts, make_row


def always(**tables: Any) -> Rules:
    """Rules that leave nothing open, but for what these tables say."""
    usual = {"success": {"always": True}, "confidence": {"always": 0.5}}
    return load_rules(None, {**usual, "task_domain": {"otherwise": "default"}, **tables})


ALWAYS = always()


@dataclass(frozen=True)
class Conversion:
    """What files come to.

    Attributes:
        drafts: of traces, by their ids, where no rule is applied.
        rows: of an archive, likewise, where rules are.
        refused: the file of each, and why.
        skipped: in the words of messages.
    """

    drafts: dict[str, TraceDraft] = field(default_factory=dict[str, TraceDraft])
    rows: dict[str, Row] = field(default_factory=dict[str, Row])
    refused: list[tuple[str, Refused]] = field(default_factory=list[tuple[str, Refused]])
    skipped: list[str] = field(default_factory=list[str])

    @property
    def reasons(self) -> list[list[str]]:
        """Of each that is refused."""
        return [[*refusal.reasons] for _, refusal in self.refused]

    @property
    def draft(self) -> TraceDraft:
        """The only one."""
        (draft,) = self.drafts.values()
        return draft

    @property
    def row(self) -> Row:
        """The only one."""
        (row,) = self.rows.values()
        return row

    def drop(self, item: Refused | Skipped, file: str) -> None:
        """Take what comes to no trace."""
        if isinstance(item, Skipped):
            self.skipped.append(item.kind)
        else:
            self.refused.append((file, item))


def drafted(name: str, source: Path, rules: Rules = ALWAYS) -> Conversion:
    """What a file, or the files of a folder, come to before the rules of an import."""
    form, result = FORMATS[name], Conversion()
    for trace, (file, records) in _read(form, source, result, rules).items():
        try:
            draft = form.draft(trace, records, rules)
        except CutContentError as error:
            draft = Refused(["cut_content"], str(error), id=form.id_of(trace))
        if isinstance(draft, TraceDraft):
            result.drafts[draft.id] = draft
        else:
            result.drop(draft, file)
    return result


def converted(name: str, source: Path, rules: Rules = ALWAYS) -> Conversion:
    """What they come to in an archive."""
    form, result = FORMATS[name], Conversion()
    for trace, (file, records) in _read(form, source, result, rules).items():
        made = make_row(form, rules, trace, records, ImportCounts())
        if isinstance(made, dict):
            result.rows[made["id"]] = frame_of([made]).select(IMPORTED.names()).to_dicts()[0]
        else:
            result.drop(made, file)
    return result


def items_of_file(form: Format, file: Input, rules: Rules) -> Iterator[ReadItem]:
    """What a file comes to, whose sessions are cut."""
    items = [*items_of(form, file)]
    if not form.turns:
        yield from items
        return
    lines = [item for item in items if isinstance(item, SourceRecord)]
    yield from (item for item in items if not isinstance(item, SourceRecord))
    numbered = [(line.line or 0, parse(content_of(line))) for line in lines]
    if lines:
        for item in form.turns(lines[0].trace, numbered, rules):
            if not isinstance(item, InTurn):
                yield item


def _read(
    form: Format, source: Path, result: Conversion, rules: Rules
) -> dict[str, tuple[str, list[SourceRecord]]]:
    """The first file and the records of each trace: each content once, in the order of files."""
    paths = [source] if source.is_file() else source.rglob("*")
    files = sorted(str(path) for path in paths if path.is_file())
    traces: dict[str, tuple[str, dict[bytes, SourceRecord]]] = {}
    chosen = form.inputs(files, lambda path: form.probe(path, Path(path).read_bytes()))
    for file in sorted(chosen, key=lambda file: file.path):
        try:
            items = [file.refused] if file.refused else [*items_of_file(form, file, rules)]
        except UnreadableError as error:
            items = [Refused([fault.code for fault in error.faults], str(error))]
        except TooLargeError as error:
            items = [Refused([TOO_LARGE], str(error))]
        for item in items:
            if isinstance(item, SourceRecord):
                content = content_of(item)
                _, contents = traces.setdefault(item.trace, (file.path, {}))
                record = SourceRecord(item.trace, parse(content), item.line)
                contents.setdefault(content, record)
            elif isinstance(item, Refused | Skipped):
                result.drop(item, file.path)
    return {trace: (file, [*contents.values()]) for trace, (file, contents) in traces.items()}


def transcript(trace: TraceDraft | Row) -> list[tuple[object, ...]]:
    """Its steps: the type of each, then the tool, the content and the input that it has."""
    steps = trace.steps if isinstance(trace, TraceDraft) else trace["steps"]
    return [
        (step["type"], *(each for each in _step_values(step) if each is not None)) for step in steps
    ]


def _step_values(step: Mapping[str, Any]) -> Iterator[object]:
    tool = step["tool"]
    if tool:
        server = tool["mcp_server"]
        yield f"{server}/{tool['name']}" if server else tool["name"]
    yield step["content"]
    yield step["input"]
