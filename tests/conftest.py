"""The suite: its lanes, what each may start and take, the order, the caches, what is missing."""

import ast
import os
import re
import signal
import subprocess
import sys
import tarfile
import time
import venv
from collections.abc import Generator, Iterable, Iterator
from pathlib import Path
from random import Random
from shutil import disk_usage
from typing import cast
from uuid import uuid4

import pytest
from hypothesis import settings

import kp_batch.pipeline.rescore  # noqa: F401 (what each run imports is no time of a test)
from kp_batch.report import build as reporting
from kp_batch.steps import step as steps
from tests.support import ROOT
from tests.support.docs.modules import parsed_modules
from tests.support.processes.browser import CHROMIUM
from tests.support.processes.buckets import make_bucket, s3_server
from tests.support.processes.commands import restored_log
from tests.support.processes.prefect_server import PrefectServer, server_of_suite
from tests.support.processes.unprivileged import Invoke, invoking

# Files that take a minute and more, which no worker shall begin when the others have ended.
LONG = (
    "docs",
    "deployment",
    "ray",
    "flow",
    "cli",
    "incremental_equals_full",
    "several_at_once",
    "killing",
    "forget",
    "sweep",
    "backups",
)
NOT_QUICK = ("process", "prefect", "model", "slow")
QUICK_S = 0.5  # of processor time; others on the machine change it, so nothing fails by it
TAKEN = "processor_s"  # the property of a test that has it
# A file of which no test is quick: what it imports, torch and Prefect say, takes its time as well.
NO_QUICK_FILE = re.compile(rf"^pytestmark = pytest\.mark\.({'|'.join(NOT_QUICK)})$", re.MULTILINE)

# Threads of torch that spin while they wait take three times as long where others use the cores.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
# A user's own flow starts a server, for which Prefect waits 20 s: too short on a busy machine.
os.environ.setdefault("PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS", "120")

# Folders of tests are in memory where there is room: disks cost a tenth of the time. Tests write
# programs there, which a container may forbid to run.
MEMORY = Path("/dev/shm")
IN_MEMORY = MEMORY.is_dir() and not os.statvfs(MEMORY).f_flag & os.ST_NOEXEC
if IN_MEMORY and disk_usage(MEMORY).free > 8 << 30:
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY))

# Machines are shared, so no test is timed; and who changes nothing finds nothing new that fails.
settings.register_profile("suite", deadline=None, derandomize=True)
settings.register_profile("torture", deadline=None)
settings.load_profile("suite")


def pytest_addoption(parser: pytest.Parser) -> None:
    quick = f"only tests that are not marked {', '.join(NOT_QUICK)}; names those over {QUICK_S} s"
    parser.addoption("--quick", action="store_true", help=quick)
    parser.addoption("--telling", action="store_true", help="only these, and those marked telling")
    parser.addoption("--torture", action="store_true", help="those marked torture as well")
    parser.addoption("--shuffle", type=int, metavar="SEED", help="files in an order by chance")


def pytest_configure(config: pytest.Config) -> None:
    """Let no quick test start a process; the controller of several workers starts these."""
    is_controller = config.option.numprocesses and not hasattr(config, "workerinput")
    if config.option.quick and not is_controller:
        sys.addaudithook(_refuse)


def _refuse(event: str, arguments: tuple[object, ...]) -> None:
    starts = event in {"subprocess.Popen", "os.fork", "os.posix_spawn", "socket.bind"}
    if starts and "PYTEST_CURRENT_TEST" in os.environ and arguments[:1] != ("uname",):  # `platform`
        raise RuntimeError("this test starts a process or a server: mark it `process`")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out whole files; None: as pytest has it."""
    is_test = config.option.quick and collection_path.suffix == ".py"
    return True if is_test and NO_QUICK_FILE.search(collection_path.read_text("utf-8")) else None


def _is_asked_for(item: pytest.Item) -> bool:
    option = item.config.option
    if item.get_closest_marker("torture") and not option.torture:
        return False
    if not (option.quick or option.telling) or not any(map(item.get_closest_marker, NOT_QUICK)):
        return True
    return option.telling and item.get_closest_marker("telling") is not None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Take those of the lane; begin with the long files, and leave all others in their order."""
    items[:] = filter(_is_asked_for, items)
    order = {f"test_{name}": number for number, name in enumerate(LONG)}
    items.sort(key=lambda item: order.get(item.path.stem, len(LONG)))
    if config.option.shuffle is not None:
        files = sorted({item.path for item in items})
        Random(config.option.shuffle).shuffle(files)
        place = {path: number for number, path in enumerate(files)}
        items.sort(key=lambda item: place[item.path])


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None]:
    """Note what a test takes, for the summary; what its fixtures take is not counted."""
    began = time.process_time()
    yield
    item.user_properties.append((TAKEN, time.process_time() - began))


@pytest.fixture(scope="session", autouse=True)
def compiled_once() -> Iterator[None]:
    """Python keeps what it compiles: the suite starts some five hundred processes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
        yield


@pytest.fixture(scope="session", autouse=True)
def user_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A cache folder of the suite's own; downloaded models stay where the user has them."""
    own = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HF_HOME", os.environ.get("HF_HOME") or f"{own}/huggingface")
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="session", autouse=True)
def ending_signals() -> None:
    """Signals end the commands of tests, also where nohup or a script's `&` began the suite."""
    handlers = {signal.SIGHUP: lambda *_: None, signal.SIGINT: signal.default_int_handler}
    for number, handler in handlers.items():
        if signal.getsignal(number) == signal.SIG_IGN:
            signal.signal(number, handler)  # which no command inherits


@pytest.fixture(autouse=True)
def log_of_this_test() -> Iterator[None]:
    """What a flow or a command sets up in the log ends with the test."""
    with restored_log():
        yield


@pytest.fixture
def no_page(monkeypatch: pytest.MonkeyPatch) -> None:
    """The page is there and empty: to draw one takes as long as a run."""
    monkeypatch.setattr(reporting, "report", lambda *_: "not drawn\n")


@pytest.fixture
def waited(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The seconds that steps slept before they were tried again, which take no time."""
    seconds: list[float] = []
    monkeypatch.setattr(steps, "pause", seconds.append)
    return seconds


@pytest.fixture(scope="module")
def s3() -> Iterator[str]:
    """The address of an S3 server, which this process and its children use."""
    with s3_server() as address:
        yield address


@pytest.fixture
def prefect(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> PrefectServer:
    """The suite's server of Prefect, which the processes of this test use."""
    server = server_of_suite(tmp_path_factory.getbasetemp())
    for name, value in server.variables.items():
        monkeypatch.setenv(name, value)
    return server


@pytest.fixture
def bucket(s3: str) -> str:
    """The URL of a new bucket."""
    return make_bucket(s3, f"kp-{uuid4().hex}")


@pytest.fixture(scope="module")
def anybody() -> Iterator[Invoke]:
    """Commands, not supervised, as somebody who may not do everything."""
    with invoking() as invoke:
        yield invoke


@pytest.fixture(scope="session")
def modules() -> dict[Path, ast.Module]:
    """What the package's own modules say."""
    return parsed_modules()


@pytest.fixture(scope="session")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The source distribution, unpacked."""
    folder = tmp_path_factory.mktemp("sdist")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", str(folder)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    [made] = folder.glob("*.tar.gz")
    with tarfile.open(made) as tar:
        tar.extractall(folder, filter="data")
    return folder / made.name.removesuffix(".tar.gz")


@pytest.fixture(scope="session")
def installed(sdist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The command out of a wheel, in an environment that does not see this checkout."""
    folder = tmp_path_factory.mktemp("installed")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(build, cwd=sdist, check=True, capture_output=True)
    [wheel] = folder.glob("*.whl")
    venv.create(folder / "venv", with_pip=False)
    [site] = (folder / "venv").glob("lib/python*/site-packages")
    libraries = next(path for path in sys.path if path.endswith("site-packages"))
    (site / "dependencies.pth").write_text(libraries)  # the files in it, not its own .pth files
    pip = [sys.executable, "-m", "pip", "--python", str(folder / "venv" / "bin" / "python")]
    install = [*pip, "install", "--quiet", "--no-deps", "--no-index", str(wheel)]
    subprocess.run(install, check=True, capture_output=True)
    return folder / "venv" / "bin" / "kp-batch"


NO_CHROMIUM = (
    "NO CHROMIUM FOUND: no page is looked at in a browser; on Debian: sudo apt-get install chromium"
)


def missing_programs(config: pytest.Config) -> list[str]:
    """What to say of a browser that is not there, unless no test of the lane needs it."""
    return [NO_CHROMIUM] if CHROMIUM is None and not config.option.quick else []


def pytest_report_header(config: pytest.Config) -> list[str]:
    """Say it at the start, when they can still be brought."""
    return missing_programs(config)


def slow_quick_tests(passed: Iterable[pytest.TestReport]) -> list[str]:
    """What to say of quick tests that took too long."""
    took = ((each.nodeid, cast("float", dict(each.user_properties)[TAKEN])) for each in passed)
    return [
        f"{name} took {seconds:.1f} s of processor time, and a quick test may take {QUICK_S}: "
        "make it cheaper, or mark it `slow`"
        for name, seconds in took
        if seconds > QUICK_S
    ]


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Say it again at the end, where it is read; and in the quick lane, what is not quick."""
    for line in missing_programs(config):
        terminalreporter.write_line(line, red=True, bold=True)
    if config.option.quick:
        for line in slow_quick_tests(terminalreporter.stats.get("passed", [])):
            terminalreporter.write_line(line, yellow=True)
