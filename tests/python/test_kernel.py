"""In a notebook: cells of a real kernel of Jupyter, which stays alive whatever they do."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.python.notebooks import Kernel, kernel
from tests.support.make.archives import trace, write_jsonl
from tests.support.make.tiny_traces import Traces, write_traces

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("notebook")
    rows = [trace(id=f"kp:trace:{n}", objective=f"fix {n}") for n in range(3)]
    write_jsonl(folder / "archive" / "a.jsonl", [*rows, trace(success=None)])
    write_traces(folder / "long", Traces(10_000, days=10, files=3))
    return folder


@pytest.fixture(scope="module")
def cells(folder: Path) -> Iterator[Kernel]:
    """A kernel whose notebook has its imports."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("IPYTHONDIR", str(folder / "ipython"))
        patch.setenv("JUPYTER_CONFIG_DIR", str(folder / "jupyter"))
        with kernel(folder) as started:
            begun = started.run("import asyncio\nimport kp_batch as kp\nwh = kp.Warehouse('w')")
            assert begun.error is None
            yield started
    assert (folder / "stderr").read_text() == ""


def test_a_frame_of_scores_is_shown_as_a_table(cells: Kernel) -> None:
    cell = cells.run("kp.score('archive', embedder='hashing')")

    assert (cell.error, cell.out, cell.err) == (None, "", "")
    [shown] = cell.shown
    assert "3 of 4 rows are scored" in shown["text/plain"]
    assert "<table" in shown["text/html"]


def test_a_run_and_what_is_asked_of_it_are_shown_as_tables_and_cards(cells: Kernel) -> None:
    ran = cells.run("wh.run('archive', embedder='hashing', max_reject_share=1)")
    explained = cells.run("wh.explain('kp:trace:2')")

    for cell, text in ((ran, "<table"), (explained, "kp:trace:2")):
        assert (cell.error, cell.out, cell.err) == (None, "", "")
        [shown] = cell.shown
        assert text in shown["text/html"]


def test_a_run_in_a_thread_leaves_the_running_event_loop_free(cells: Kernel) -> None:
    code = """
    ticks = 0
    async def tick():
        global ticks
        while True:
            ticks += 1
            await asyncio.sleep(0.005)
    ticking = asyncio.create_task(tick())
    run = await asyncio.to_thread(
        kp.Warehouse('threaded').run, 'archive', embedder='none', max_reject_share=1
    )
    ticking.cancel()
    print(run.status, ticks > 1)
    """
    cell = cells.run("\n".join(line[4:] for line in code.splitlines()))

    assert (cell.error, cell.out, cell.err) == (None, "done True\n", "")


def test_an_interrupted_cell_leaves_the_kernel_alive_and_succeeds_the_next_time(
    cells: Kernel,
) -> None:
    code = "kp.Warehouse('long-w', progress=True).run('long', embedder='hashing').status"
    cell = cells.run(code, interrupted_after="replay")

    assert cell.error is not None
    assert cell.error[0] == "KeyboardInterrupt"
    again = cells.run(code.replace(", progress=True", ""))
    assert (again.error, again.err) == (None, "")
    assert [shown["text/plain"] for shown in again.shown] == ["'done'"]


def test_bars_are_shown_where_they_are_asked_for(cells: Kernel) -> None:
    cell = cells.run(
        "kp.Warehouse('w', progress=True).run(cache_size=2, max_reject_share=1).status"
    )

    assert cell.error is None
    assert "kp-batch: " in cell.err
