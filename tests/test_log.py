"""Who hears the messages of a run: its own context, the command line, a user's own logging."""

import contextvars
import io
import json
import logging
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from importlib.machinery import ModuleSpec
from threading import Barrier
from types import ModuleType

import pytest

from kp_batch.log import (
    capture,
    echo,
    echo_result,
    info,
    listening,
    progress,
    recurring_warnings,
    replay_log,
    set_user_streams,
    show_on_stderr,
    show_only_new_warnings,
    user_out,
    warn,
)
from kp_batch.steps.step import Step, ThreadExecutor


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Stderr from now on; pytest has its own as a test begins."""
    stream = Terminal()
    monkeypatch.setattr(sys, "stderr", stream)
    return stream


def at_once(*works: Callable[[], None]) -> None:
    """Do all of these in threads, each in a context of its own."""
    with ThreadPoolExecutor(len(works)) as pool:
        for future in [pool.submit(contextvars.Context().run, work) for work in works]:
            future.result()


def read_three() -> None:
    with progress("reading", 3, "file") as shown:
        shown.add(1)


def warn_of(number: int) -> int:
    warn(f"about {number}")
    return number


def test_listening_hears_the_warnings_of_the_work_and_of_its_threads() -> None:
    with listening() as heard:
        warn("first")
        info("no warning")
        assert [*ThreadExecutor(2).map(Step("warn", warn_of), [1, 2, 3])] == [1, 2, 3]
    warn("after")
    assert heard[0] == "first"
    assert sorted(heard[1:]) == ["about 1", "about 2", "about 3"]


def test_listening_hears_what_logging_leaves_out_and_what_another_process_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("CRITICAL", "kp_batch")
    with capture() as records:
        warn("of a worker")
        info("of a worker, too")
    with listening() as heard:
        replay_log(records)
    assert [record.getMessage() for record in records] == ["of a worker", "of a worker, too"]
    assert (heard, caplog.messages) == (["of a worker"], [])


def test_works_at_once_hear_and_remember_their_own_warnings_alone() -> None:
    both, found = Barrier(2), dict[str, tuple[list[str], list[str], list[bool]]]()

    def work(name: str, told: list[str]) -> None:
        with listening() as heard, recurring_warnings(told) as digests, capture() as records:
            both.wait(20)
            warn(f"of {name}", recurring=True)
            both.wait(20)
        found[name] = (heard, digests, [vars(record)["repeated"] for record in records])

    at_once(lambda: work("one", []), lambda: work("two", []))
    assert {name: heard for name, (heard, _, _) in found.items()} == {
        "one": ["of one"],
        "two": ["of two"],
    }
    [[one], [two]] = [found[name][1] for name in ("one", "two")]
    assert one != two
    at_once(lambda: work("one", [one]), lambda: work("two", [one]))
    assert [found[name][2] for name in ("one", "two")] == [[True], [False]]


def test_nothing_is_printed_where_nobody_configures_logging(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    warn("a warning")
    assert capsys.readouterr() == ("", "")


def test_a_users_own_logging_gets_the_records_with_their_place_in_the_code(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO", "kp_batch")
    warn("a warning")
    info("a line")
    shown = [(each.name, each.levelname, each.getMessage()) for each in caplog.records]
    assert shown == [("kp_batch", "WARNING", "a warning"), ("kp_batch", "INFO", "a line")]
    assert {each.pathname for each in caplog.records} == {__file__}


def test_the_streams_of_a_context_are_those_of_its_copies_alone() -> None:
    out = io.StringIO()

    def tell() -> None:
        set_user_streams(out, None)
        echo("a line")
        contextvars.copy_context().run(echo, "another")

    at_once(tell)
    assert user_out() is sys.stdout
    assert out.getvalue() == "a line\nanother\n"


def test_a_result_that_nobody_reads_closes_stdout_for_who_began_as_well() -> None:
    class Closed(io.StringIO):
        def write(self, _: str) -> int:
            raise BrokenPipeError

    def tell() -> None:
        set_user_streams(Closed(), None)
        contextvars.copy_context().run(echo_result, "a line")
        echo("another")

    at_once(tell)


def test_bars_are_shown_by_a_command_in_a_terminal_unless_it_is_quiet(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stderr = terminal(monkeypatch)
    show_on_stderr()
    read_three()
    assert "kp-batch: reading:" in stderr.getvalue()
    stderr.truncate(0)
    show_only_new_warnings()
    read_three()
    assert stderr.getvalue().strip("\0") == ""


def test_a_line_as_json_is_no_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    stderr = terminal(monkeypatch)
    monkeypatch.setenv("KP_BATCH_LOG_FORMAT", "json")
    show_on_stderr()
    read_three()
    read = [json.loads(line) for line in stderr.getvalue().splitlines()]
    assert [(line["level"], line["message"]) for line in read] == [("info", "reading: 3 files")]


def test_elsewhere_bars_are_shown_only_where_they_are_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stderr = terminal(monkeypatch)
    read_three()
    with listening():
        read_three()
    assert stderr.getvalue() == ""
    with listening(progress=True):
        read_three()
    assert "kp-batch: reading:" in stderr.getvalue()


@pytest.mark.parametrize("has_widgets", [False, True])
def test_a_notebook_without_widgets_has_a_bar_of_text_and_no_warning(
    monkeypatch: pytest.MonkeyPatch, *, has_widgets: bool
) -> None:
    """Warnings are errors in this suite; what tqdm asks for the kernel is not started here."""
    widgets, auto = ModuleType("ipywidgets"), ModuleType("tqdm.auto")
    widgets.__spec__ = ModuleSpec("ipywidgets", None)
    vars(auto)["tqdm"] = lambda **_: pytest.fail("the notebook's bar")
    monkeypatch.setitem(sys.modules, "ipywidgets", widgets if has_widgets else None)  # type: ignore[arg-type]
    monkeypatch.setitem(sys.modules, "tqdm.auto", auto)
    stderr = terminal(monkeypatch)
    with listening(progress=True):
        if has_widgets:
            with pytest.raises(pytest.fail.Exception, match="the notebook's bar"):
                read_three()
        else:
            read_three()
    assert ("reading" in stderr.getvalue()) is not has_widgets
