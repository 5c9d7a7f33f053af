"""`export`: write the best traces of a warehouse to a file."""

import re
from collections.abc import Generator, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from shutil import copyfileobj
from tempfile import NamedTemporaryFile
from typing import IO, TYPE_CHECKING, Any, TextIO

import click

from kp_batch.cli import kp_batch
from kp_batch.cli.options import (
    FaultySettingsError,
    TableCommand,
    complete_domains,
    given,
    json_line,
    json_option,
    warehouse_option,
)
from kp_batch.errors import KpBatchError
from kp_batch.files import replacing, writing_to_named
from kp_batch.log import echo, user_err, user_out, writing_to
from kp_batch.text import Terminal, count_of, printable

if TYPE_CHECKING:
    from kp_batch.exports.comparing import ExportComparison
    from kp_batch.exports.export import ExportResult
    from kp_batch.exports.export_options import ExportOptions

_STDOUT = "-"
_STREAM = re.compile("/dev/std(out|err)|/(?:dev|proc/self)/fd/([12])")
_LINKS = 40  # the most links to follow, as in Linux


def _options() -> "type[ExportOptions]":
    from kp_batch.exports.export_options import ExportOptions

    return ExportOptions


@kp_batch.command(cls=TableCommand, table=_options, completions={"domain": complete_domains})
@warehouse_option
@click.option(
    "-o",
    "--output",
    required=True,
    metavar="FILE",
    help="A .jsonl, .parquet or .csv file, depending on the format; - for stdout.",
)
@json_option
def export(warehouse: Path, output: str, *, as_json: bool, **values: Any) -> None:
    """Export traces with their scores.

    By default, exports the traces at or above the threshold; formats of scores alone export all.
    Reads the traces from the archive. Leaves out private, missing and changed traces.
    """
    options = _options().checked(given(values), error=FaultySettingsError)
    from kp_batch.exports.export import check_parts
    from kp_batch.exports.export import export as export_traces
    from kp_batch.exports.formats import FORMATS
    from kp_batch.exports.output import check_output, output_names

    if output == _STDOUT and (as_json or options.split):
        also = "--json and -o - both write to stdout" if as_json else "--split writes two files"
        raise click.UsageError(f"{also}; name a file with -o")
    ending = ending_of(output, tuple(FORMATS[options.format].files))
    with ExitStack() as stack:
        files: list[Path] = []
        for name in output_names(options, output):
            if name != _STDOUT:
                check_output(warehouse, Path(name).absolute())
            files.append(stack.enter_context(output_file(name, private=options.include_private)))
        exported = export_traces(warehouse, options, *files, ending=ending)
        # stdout may be the export itself.
        text = json_line(exported) if as_json else exported_text(exported, output)
        echo(text, err=output == _STDOUT)
        check_parts(exported, options, output)


def exported_text(result: "ExportResult", output: str) -> str:
    """Format the result for a terminal."""
    left_out = [
        ("private", result.private),
        ("similar", result.dropped_similar),
        ("over --per", result.dropped_by_per),
        ("over --top", result.dropped_by_top),
        *result.not_found.items(),
        ("no score", result.ids_without_score),
    ]
    where = "stdout" if output == _STDOUT else printable(output)
    lines = [
        f"{result.exported:,} of {count_of(result.chosen, 'chosen trace')} written to {where}",
        *(_condition_text(*condition) for condition in result.conditions.items()),
        *(f"  {reason:<10} {count_of(count, 'trace')}" for reason, count in left_out if count),
        *(f"  see        {printable(file)}" for file in result.not_found_files),
        *(
            f"  left out   {count_of(count, 'trace')} {reason}"
            for reason, count in result.not_written.items()
        ),
    ]
    if result.training is not None:
        train, test = result.training, result.exported - result.training
        lines.append(f"  split      {count_of(train, 'trace')} to train, {test:,} to test")
    if result.deleted is not None:
        lines.append(f"  deleted    {count_of(result.deleted, 'score')} to delete")
    return "\n".join([*lines, *_comparison_lines(result.comparison)])


def _comparison_lines(comparison: "ExportComparison | None") -> Iterator[str]:
    if comparison is None:
        return
    yield f"  in both    {count_of(comparison.in_both, 'trace')}"
    for what, reasons in (("entered", comparison.entered), ("left", comparison.left)):
        for reason, count in reasons.items():
            yield f"  {what:<10} {count_of(count, 'trace')}: {reason}"


def _condition_text(words: str, left_out: int) -> str:
    leaves_out = f"; leaves out {left_out:,}" if left_out else ""
    return f"  chosen by  {printable(words)}{leaves_out}"


def ending_of(output: str, endings: Sequence[str]) -> str:
    """Return the ending of the output's name; for stdout, the first of `endings`."""
    ending = endings[0] if output == _STDOUT else Path(output).suffix.lower()
    if ending not in endings:
        named = " or ".join(filter(None, (", ".join(endings[:-1]), endings[-1])))
        raise click.BadParameter(
            f"the file must end with {named}, or be - for stdout: got {output!r}", param_hint="-o"
        )
    return ending


@contextmanager
def output_file(output: str, *, private: bool = False) -> Generator[Path]:
    """Yield a file to write. When it is complete, it replaces the output.

    If the output is stdout, a pipe or a device, the file is copied there instead. See `replacing`.

    Args:
        output: a name, or -. If the name is a link, the link is replaced, not its target.
        private: whether only the user may read the file.
    """
    target = None if output == _STDOUT else Path(output)
    stream = _stream(target)
    if stream or target is None or _is_device(target):
        if stream is target is None:
            raise KpBatchError("stdout is closed; name a file with -o")
        with NamedTemporaryFile() as file:
            yield Path(file.name)
            if stream:
                _copy_to(stream, file)
            elif target:
                with writing_to_named(target), target.open("wb") as out:
                    copyfileobj(file, out)
        return
    with replacing(target, private=private) as partial:
        yield partial


def _is_device(target: Path) -> bool:
    """Whether to write into the file instead of replacing it: a pipe, or stdout by its name."""
    is_stream = str(target.absolute()).startswith(("/dev/std", "/dev/fd/", "/proc/"))
    with writing_to_named(target):
        is_written = target.exists() and not target.is_dir()
        return is_written and (is_stream or not target.is_file())


def _stream(target: Path | None) -> TextIO | None:
    """Return the stream of the user that an output names, directly or by links; see `supervise`."""
    if target is None:
        return user_out()
    for _ in range(_LINKS):
        if match := _STREAM.fullmatch(str(target)):
            return user_out() if {"out", "1"} & {*match.groups()} else user_err()
        with writing_to_named(target):
            if not target.is_symlink():
                break
            target = target.parent / target.readlink()
    return None


def _copy_to(stream: TextIO, file: IO[bytes]) -> None:
    with writing_to("stdout" if stream is user_out() else "stderr"):
        if stream.isatty():
            Terminal(stream).writelines(line.decode() for line in file)
        else:
            copyfileobj(file, stream.buffer)
        stream.flush()
