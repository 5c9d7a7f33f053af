"""Ray: the same tables as without it, whatever dies; one line where it cannot do the work."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import settings as trying
from hypothesis import strategies as st
from polars.exceptions import PanicException

from kp_batch.config import RescoreConfig
from kp_batch.embedding.encoders import Hashing
from kp_batch.errors import ArchiveError, WorkerError
from kp_batch.ingest import scan
from kp_batch.log import warn
from kp_batch.pipeline.rescore import rescore_archive
from kp_batch.planning import timeline, write_tasks
from kp_batch.steps import ray as rays
from kp_batch.steps.ray import RayExecutor, executor_of
from kp_batch.steps.step import AHEAD, step
from kp_batch.warehouse.bucket.location import folder_of
from tests.support.make.runs import config
from tests.support.make.sample import write_sample
from tests.support.oracle.tables import assert_same
from tests.support.processes.buckets import fill
from tests.support.processes.commands import children, is_running, until

if TYPE_CHECKING:
    from ray.cluster_utils import Cluster as Nodes

pytestmark = [pytest.mark.timeout(300), pytest.mark.process]


@pytest.fixture(scope="module")
def cluster(s3: str) -> Iterator[Any]:  # noqa: ARG001 (its workers have to know the server)
    folder = Path("/nowhere")
    with executor_of(config(folder, folder, ray="2")) as executor:
        yield executor


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("archive")
    write_sample(folder, traces=4_000, days=40, seed=5)
    return folder


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory, archive: Path) -> Path:
    """A warehouse of this archive that was made without Ray."""
    made = config(tmp_path_factory.mktemp("alone"), archive)
    rescore_archive(made)
    return made.warehouse


@pytest.fixture(scope="module")
def nodes() -> Iterator["Nodes"]:
    """A cluster that runs already."""
    from ray.cluster_utils import Cluster as Nodes

    head = {"num_cpus": 3, "num_gpus": 2}
    made = Nodes(initialize_head=True, head_node_args=head)
    try:
        yield made
    finally:
        made.shutdown()


@step("square")
def square(number: int, folder: Path) -> int:
    """A part that tells which process has done it; 3 kills it the first time, 9 every time."""
    begun = folder / f"{number}.{os.getpid()}"
    begun.touch()
    if number == 9 or (number == 3 and len([*folder.glob("3.*")]) == 1):
        os.kill(os.getpid(), signal.SIGKILL)
    if number in (5, 7):
        warn(f"about {number}")
    if number == 7:
        raise ArchiveError("seven")
    return number**2


@step("meet")
def meet(number: int, folder: Path, several: int) -> None:
    """A part that tells its GPU and its process, and ends when as many processes have begun one."""
    gpu = os.environ.get("CUDA_VISIBLE_DEVICES")
    (folder / f"{number}.{gpu}.{os.getpid()}").touch()
    until(lambda: len(met(folder)) >= several, 60)
    if number == 7:
        raise ArchiveError("seven")
    if number > 100:
        signal.pause()


def met(folder: Path) -> set[tuple[str, int]]:
    """The GPUs and the processes of those that have met."""
    names = [path.name.split(".") for path in folder.iterdir()]
    return {(gpu, int(process)) for _, gpu, process in names}


@step("panic")
def panic(_: int) -> None:
    raise PanicException("a fault in Rust")


@step("share")
def share(_: int) -> str | None:
    return os.environ.get("POLARS_MAX_THREADS")


@pytest.mark.telling
def test_workers_have_their_share_of_the_threads_and_this_process_has_its_environment(
    cluster: RayExecutor,
) -> None:
    assert [*cluster.map(share, [0])] == [str(max(pl.thread_pool_size() // 2, 1))]
    assert "POLARS_MAX_THREADS" not in os.environ


@pytest.mark.telling
def test_parts_are_done_by_several_processes_and_come_back_in_order(
    cluster: RayExecutor, tmp_path: Path
) -> None:
    numbers = [*range(6), 6, 8]
    assert [*cluster.map(square, numbers, tmp_path)] == [number**2 for number in numbers]
    assert [*cluster.map(square, (), tmp_path)] == []
    workers = {path.suffix for path in tmp_path.iterdir()}
    assert len(workers) >= 2
    assert f".{os.getpid()}" not in workers
    assert len([*tmp_path.glob("3.*")]) == 2  # its first worker was killed
    (at_once := tmp_path / "at once").mkdir()
    assert [*cluster.map(meet, [1, 2], at_once, 2)] == [None, None]


def test_a_part_that_asks_for_more_than_there_is_gets_what_there_is(
    cluster: RayExecutor, tmp_path: Path
) -> None:
    greedy = replace(square, memory=1 << 60, on_gpu=True)
    assert [*cluster.map(greedy, [1, 2], tmp_path)] == [1, 4]


@pytest.mark.telling
def test_a_fault_in_rust_is_reported(cluster: RayExecutor) -> None:
    with pytest.raises(RuntimeError, match="PanicException: a fault in Rust"):
        list(cluster.map(panic, [1]))


@pytest.mark.telling
def test_what_a_part_logs_is_logged_by_the_run(
    cluster: RayExecutor, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert [*cluster.map(square, [5], folder=tmp_path)] == [25]
    with pytest.raises(ArchiveError, match="seven"):
        list(cluster.map(square, [7], folder=tmp_path))
    assert [record.getMessage() for record in caplog.records] == ["about 5", "about 7"]


def test_a_part_that_kills_its_worker_each_time_is_named(
    cluster: RayExecutor, tmp_path: Path
) -> None:
    with pytest.raises(
        WorkerError, match=r"^square lost its worker 3 times, each time with 9; give"
    ):
        list(cluster.map(square, [1, 9, 2], tmp_path))
    assert len([*tmp_path.glob("9.*")]) == 3


@pytest.mark.telling
def test_tables_are_the_same_as_without_ray(cluster: RayExecutor, tmp_path: Path) -> None:
    archive = tmp_path / "archive"
    *_, last = write_sample(archive, traces=300, days=10, seed=5, dirty=0.05)
    aside = last.rename(tmp_path / "aside")
    shared = config(tmp_path, archive, max_reject_share=1, warehouse=tmp_path / "shared")
    alone = config(tmp_path, archive, max_reject_share=1, warehouse=tmp_path / "alone")
    for change in ({}, {"cache_size": 7}, {"ttl": timedelta(days=2)}):
        for settings, executor in ((shared, [cluster]), (alone, [])):
            rescore_archive(settings.model_copy(update=change), *executor)
        assert_same(shared.warehouse, alone.warehouse)
        if aside.exists():
            aside.rename(last)


@trying(max_examples=3, derandomize=True)
@given(
    seed=st.integers(0, 1_000),
    traces=st.integers(1, 200),
    rows=st.integers(5, 100),
    cache_size=st.integers(1, 60),
)
def test_no_size_of_the_parts_makes_a_difference(
    cluster: RayExecutor, seed: int, traces: int, rows: int, cache_size: int
) -> None:
    with TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patch:
        folder = Path(name)
        write_sample(folder / "archive", traces=traces, days=5, seed=seed)
        shared, alone = (
            config(folder, folder / "archive", cache_size=cache_size, warehouse=folder / name)
            for name in ("shared", "alone")
        )
        rescore_archive(alone)
        patch.setattr(scan, "MAX_PART_BYTES", rows * 2_000)
        patch.setattr(timeline, "RANGE_ROWS", rows)
        patch.setattr(write_tasks, "PART_ROWS", rows)
        patch.setattr(Hashing, "chunk_size", rows)
        for size in (cache_size, 3):
            for settings, executor in ((shared, [cluster]), (alone, [])):
                rescore_archive(settings.model_copy(update={"cache_size": size}), *executor)
            assert_same(shared.warehouse, alone.warehouse)


def test_workers_may_be_killed_at_any_moment(tmp_path: Path, archive: Path, alone: Path) -> None:
    chance = Random(11)
    with kp_batch(
        *("run", archive, "--warehouse", tmp_path / "wh", "--embedder", "hashing"),
        *("--ray", 2, "--no-prefect"),
    ) as running:
        killed = 0
        for line in running.stderr or ():
            if "identifying" in line:
                break
        while running.poll() is None and killed < 4:
            time.sleep(0.5 * chance.random())
            workers = [pid for pid in of_ray(running.pid) if is_at_work(pid)]
            if workers:
                with suppress(OSError):
                    os.kill(chance.choice(sorted(workers)), signal.SIGKILL)
                    killed += 1
        output, errors = running.communicate(timeout=200)
    assert killed
    if running.returncode:  # one part has lost three workers: it is named, and a rerun goes on
        assert "lost its worker 3 times, each time with" in errors.splitlines()[-1]
        again = rescore_archive(config(tmp_path, archive, warehouse=tmp_path / "wh"))
        assert again.counts.rescored == 4_000
    else:
        assert "4,000 of 4,000 traces rescored" in output, errors
    assert_same(tmp_path / "wh", alone)


def is_at_work(pid: int) -> bool:
    """Whether a process is a worker that does a part."""
    with suppress(OSError):
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
        return command.startswith(b"ray::") and command[5:6].islower()  # Ray's own are not
    return False


@pytest.mark.telling
@pytest.mark.parametrize(
    ("version", "paths", "message"),
    [
        ("Python 2.7", [], r"has Python 3.* but this machine has Python 2.7; install the same"),
        (None, ["/none/such"], "does not see /none/such; use a disk that all"),
    ],
)
def test_a_node_that_cannot_do_the_work_is_named(
    cluster: RayExecutor,
    monkeypatch: pytest.MonkeyPatch,
    version: str | None,
    paths: list[str],
    message: str,
) -> None:
    if version:
        monkeypatch.setattr(rays, "local_versions", lambda: version)
    [info] = cluster.ray.nodes()
    node = {**info, "ObjectStoreSocketName": ""}
    answer = rays.ask_node(cluster.ray, node, paths)
    with pytest.raises(WorkerError, match=f"^the Ray node [0-9.]+ {message}"):
        rays.check_node(cluster.ray, node, answer)


@pytest.mark.telling
def test_the_cluster_of_another_run_is_refused(cluster: RayExecutor) -> None:
    [node] = cluster.ray.nodes()
    with pytest.raises(WorkerError, match=r"^the Ray node .* belongs to another run's --ray"):
        rays.check_node(cluster.ray, node, None)


@pytest.mark.telling
def test_a_cluster_without_room_for_a_part_is_refused(
    cluster: RayExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    rays.check_room(cluster.ray)
    monkeypatch.setattr(rays, "PART_BYTES", 1 << 60)
    with pytest.raises(WorkerError, match=r"^no node .* the largest node has [0-9]+ MiB for tasks"):
        rays.check_room(cluster.ray)


ON_NODES = """
from dataclasses import replace
from pathlib import Path
from kp_batch.errors import ArchiveError
from kp_batch.steps.ray import executor_of
from tests.steps.test_ray import is_running, meet, met, until
from tests.support.make.runs import config

folder = Path({folder!r})
first, again, cores, failed = [folder / name for name in ("first", "again", "cores", "failed")]
for each in (first, again, cores, failed):
    each.mkdir()
try:
    with executor_of(config(folder, folder, ray={address!r})) as cluster:
        assert cluster.has_gpu()
        list(cluster.map(replace(meet, on_gpu=True), iter(range(6)), first, 2))
        list(cluster.map(replace(meet, on_gpu=True, name="then"), range(6), again, 2))
        list(cluster.map(meet, range(6), cores, 3))
        list(cluster.map(meet, [7, *range(101, 120)], failed, 3))
except ArchiveError as error:
    print(error)
    until(lambda: not any(is_running(process) for _, process in met(failed)), 60)
"""


@pytest.fixture(scope="module")
def on_nodes(nodes: "Nodes", tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """What parts have left that were done on a cluster that runs already, and what was printed."""
    folder = tmp_path_factory.mktemp("on nodes")
    code = ON_NODES.format(folder=str(folder), address=nodes.address)
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder, done.stdout


def test_each_gpu_has_one_worker_which_keeps_what_it_has_loaded_there(
    on_nodes: tuple[Path, str],
) -> None:
    folder, _ = on_nodes
    first, again = met(folder / "first"), met(folder / "again")
    assert sorted(gpu for gpu, _ in again) == ["0", "1"]
    assert {process for _, process in again} == {process for _, process in first}
    assert len(met(folder / "cores")) == 3


@pytest.mark.telling
def test_an_error_of_a_part_is_raised_here_and_ends_the_others(on_nodes: tuple[Path, str]) -> None:
    folder, printed = on_nodes
    assert printed == "seven\n"
    assert len([*(folder / "failed").iterdir()]) < 20


def test_parts_of_an_iterator_are_taken_as_they_are_done(
    cluster: RayExecutor, tmp_path: Path
) -> None:
    taken: list[int] = []

    def parts() -> Iterator[int]:
        for part in range(10, 30):
            taken.append(part)
            yield part

    mapped = cluster.map(square, parts(), tmp_path)
    assert next(mapped) == 100
    assert len(taken) <= 1 + 2 * AHEAD
    assert list(mapped) == [part**2 for part in range(11, 30)]
    assert not cluster.has_gpu()


@pytest.mark.telling
def test_without_ray_it_is_explained_how_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    settings = config(tmp_path, tmp_path, ray="2")
    with pytest.raises(WorkerError, match=r"pip install 'kp-batch\[ray\]'"), executor_of(settings):
        pass


def kp_batch(*arguments: object, **how: Any) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "kp_batch", *map(str, arguments)]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **how
    )


def test_a_node_that_is_lost_costs_nothing_but_time(
    tmp_path: Path, archive: Path, alone: Path, nodes: "Nodes"
) -> None:
    """A run on a cluster of two nodes, one of which goes in the middle."""
    lost = nodes.add_node(num_cpus=1)
    nodes.wait_for_nodes()
    with kp_batch(
        *("run", archive, "--warehouse", tmp_path / "wh", "--embedder", "hashing"),
        *("--ray", "auto", "--no-prefect"),
        env={**os.environ, "RAY_ADDRESS": nodes.address},
    ) as running:
        for line in running.stderr or ():
            if "identifying" in line:
                nodes.remove_node(lost, allow_graceful=False)
                break
        _, errors = running.communicate(timeout=200)
    assert running.returncode == 0, errors
    assert_same(tmp_path / "wh", alone)


def test_a_lost_head_fails_the_run_with_one_line_and_a_rerun_goes_on(
    tmp_path: Path, archive: Path
) -> None:
    command = ("run", archive, "--warehouse", tmp_path / "wh", "--embedder", "hashing")
    soon = {**os.environ, "RAY_gcs_rpc_server_reconnect_timeout_s": "2"}  # a minute otherwise
    with kp_batch(*command, "--ray", 1, "--no-prefect", env=soon) as running:
        for line in running.stderr or ():
            if "identifying" in line:
                break
        for pid in of_ray(running.pid):
            with suppress(OSError):
                if b"gcs_server" in Path(f"/proc/{pid}/cmdline").read_bytes():
                    os.kill(pid, signal.SIGKILL)
        output, errors = running.communicate(timeout=280)
    assert (running.returncode, output) == (1, "")
    assert "Traceback" not in errors
    assert "GCS may have been killed" in errors.splitlines()[-1]
    again = rescore_archive(config(tmp_path, archive, warehouse=tmp_path / "wh"))
    assert again.counts.rescored == 4_000


def test_workers_read_from_a_bucket_what_goes_into_a_bucket(
    cluster: RayExecutor, bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    archive, url = tmp_path / "archive", f"{bucket}/warehouse"
    write_sample(archive, traces=400, days=10, seed=5)
    fill(f"{bucket}/archive", archive)
    alone = config(tmp_path, archive, warehouse=tmp_path / "alone")
    rescore_archive(alone)
    there: dict[str, Any] = {"archive": (f"{bucket}/archive",), "warehouse": url}
    shared = RescoreConfig(**there, embedder="hashing")
    assert rescore_archive(shared, cluster).counts.rescored == 400
    copy = Path(folder_of(url))
    paths = {"run_id", "source_file", "mtime_ns", "version"}
    assert_same(copy, alone.warehouse, but=paths)


def test_a_killed_run_leaves_no_worker_running(tmp_path: Path, archive: Path) -> None:
    with kp_batch(
        *("run", archive, "--warehouse", tmp_path / "wh", "--ray", 2),
        *("--embedder", "hashing", "--no-prefect"),
    ) as running:
        assert any("identifying" in line for line in running.stderr or ())
        processes = of_ray(running.pid)
        assert processes
        running.kill()
    until(lambda: not any(map(is_running, processes)), 60)


def of_ray(pid: int) -> list[int]:
    """The processes of Ray that a command has started."""
    processes: list[int] = []
    for below in children(pid):
        with suppress(OSError):
            command = Path(f"/proc/{below}/cmdline").read_bytes()
            if b"kp-ray-" in command or command.startswith(b"ray::"):
                processes.append(below)
    return processes
