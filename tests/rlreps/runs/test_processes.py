"""Several processes on one store: two real ones over the loopback interface, and their deaths."""

import os
import re
import shutil
import signal
import socket
import time

import pytest

from rlreps.cli import main
from rlreps.errors import InputError
from rlreps.runs.locks import LOCK, exclusive
from rlreps.runs.processes import ALONE, Processes, ProcessesConfig, join
from rlreps.successor.store.estimates import open_estimates

ARENA = ["successor", "generate", "--quiet", "--bins", "9", "--block-rows", "5"]
QUICK = [*ARENA, "--rollouts", "20", "--horizon", "50"]
NUM_BLOCKS = 17  # 81 rows in blocks of 5
# A few dozen start cells are simulated at a time. Here each of two processes that have one core
# does so six times, a good part of a second each: there is a middle to stop it in.
LONG = ["successor", "generate", "--quiet", "--bins", "20", "--block-rows", "20"]
LONG += ["--rollouts", "60", "--horizon", "1000"]
LONG_NUM_BLOCKS = 20
OTHER_FAILED = (
    "^rlreps: error: expected all processes to work on .*psi, got an error in process 0; see there"
)
ONE_CORE = "import os; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})"


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def finish(process, timeout=100):
    out, err = process.communicate(timeout=timeout)
    lines = [line for line in err.splitlines() if "[Gloo]" not in line]
    return process.returncode, out, lines


@pytest.fixture
def start_pair(start_rlreps):
    """Starts a command twice, as processes 0 and 1 of one run."""

    def start(arguments, out, **options):
        place = ["--coordinator", f"127.0.0.1:{free_port()}", "--num-processes", 2, "--timeout", 60]
        return [
            start_rlreps(*arguments, "--out", out, *place, "--process-id", index, **options)
            for index in range(2)
        ]

    return start


def alone(arguments, out):
    main([*arguments, "--out", str(out)])
    return out


@pytest.fixture(scope="module")
def quick(block_bytes, tmp_path_factory):
    """A store by one process."""
    path = alone(QUICK, tmp_path_factory.mktemp("alone") / "quick")
    assert len(block_bytes(path)) == 2 * NUM_BLOCKS
    return path


@pytest.fixture(scope="module")
def long_content(block_bytes, tmp_path_factory):
    """What the long command writes."""
    content = block_bytes(alone(LONG, tmp_path_factory.mktemp("alone") / "long"))
    assert len(content) == 2 * LONG_NUM_BLOCKS
    return content


def blocks_of(path, index, count):
    """Indices of the blocks that one of several processes has written."""
    written = [int(file.parent.name) for file in path.glob("c/*/0")]
    return [block for block in written if block % count == index]


def wait_for_a_block(path, running, index=0):
    """Until one of the processes has written a block, while all of them work."""
    deadline = time.monotonic() + 100
    while not blocks_of(path, index, len(running)):
        assert all(process.poll() is None for process in running), [
            process.communicate() for process in running
        ]
        assert time.monotonic() < deadline
        time.sleep(0.005)


@pytest.mark.integration
def test_two_processes_write_the_bytes_of_one_and_share_the_work(
    start_pair, block_bytes, quick, tmp_path
):
    ends = [finish(process) for process in start_pair(QUICK, tmp_path / "psi")]
    assert [(code, said) for code, _, said in ends] == [(0, []), (0, [])]
    rows = [int(re.search(r'"computed_rows": (\d+)', out)[1]) for _, out, _ in ends]
    assert rows == [41, 40]  # blocks 0, 2, … with the last row, and blocks 1, 3, …
    assert block_bytes(tmp_path / "psi") == block_bytes(quick)
    assert not [file for file in (tmp_path / "psi").iterdir() if "lock" in file.name]


@pytest.mark.integration
def test_two_processes_fill_the_gaps_that_one_left(start_pair, block_bytes, quick, tmp_path):
    path = shutil.copytree(quick, tmp_path / "psi")
    store = open_estimates(path)
    for index in (0, 3, 16):
        store.remove_block(index)
    ends = [finish(process) for process in start_pair(QUICK, path)]
    assert [code for code, _, _ in ends] == [0, 0]
    assert block_bytes(path) == block_bytes(quick)


@pytest.mark.integration
@pytest.mark.parametrize("what", ["settings", "damage", "other files"])
def test_a_store_that_is_refused_ends_both_with_one_line(
    start_pair, quick, tmp_path, files_below, what
):
    path, arguments = tmp_path / "psi", QUICK
    if what == "other files":
        path.mkdir()
        (path / "thesis.tex").write_text("precious")
        message = r"expected a new or empty folder .*thesis\.tex"
    else:
        shutil.copytree(quick, path)
        if what == "settings":
            arguments, message = [*QUICK, "--seed", "1"], "expected seed=0 as stored, got seed=1"
        else:
            (path / "c" / "2" / "0").write_bytes(b"")
            message = r"expected sound blocks to resume from, got block 2 \("
    before = files_below(path)
    (first, _, said), (second, _, other_said) = map(finish, start_pair(arguments, path))
    assert (first, second) == (2, 2)
    assert len(said) == len(other_said) == 1
    assert re.search(message, said[0])
    assert re.search(OTHER_FAILED, other_said[0])
    assert files_below(path) == before


@pytest.mark.integration
@pytest.mark.parametrize("victim", [0, 1])
def test_the_death_of_a_process_stops_the_other_and_the_run_goes_on_when_started_again(
    start_pair, freeze, block_bytes, long_content, tmp_path, victim
):
    path = tmp_path / "psi"
    running = start_pair(LONG, path, first=ONE_CORE)
    wait_for_a_block(path, running, victim)
    freeze(*running)
    assert len(blocks_of(path, victim, 2)) < LONG_NUM_BLOCKS // 2
    running[victim].send_signal(signal.SIGKILL)
    assert finish(running[victim])[0] == -signal.SIGKILL
    running[1 - victim].send_signal(signal.SIGCONT)
    code, out, said = finish(running[1 - victim])
    assert (code, out, len(said)) == (1, "", 1)
    assert re.search(
        rf"^rlreps: error: expected 2 processes to work on .*psi, got none any more as process "
        rf"{victim}, which still owes blocks; the same command, started everywhere, goes on",
        said[0],
    )
    before = block_bytes(path)
    assert 2 <= len(before) < 2 * LONG_NUM_BLOCKS
    assert all(not report.damaged_blocks for report in open_estimates(path).verify(None))
    assert all(long_content[name] == data for name, data in before.items())
    ends = [finish(process) for process in start_pair(LONG, path)]
    assert [(code, said) for code, _, said in ends] == [(0, []), (0, [])]
    assert block_bytes(path) == long_content
    assert not [file for file in path.iterdir() if "lock" in file.name]


@pytest.mark.integration
def test_a_second_run_on_a_store_in_use_is_refused_and_the_first_goes_on(
    start_pair, start_rlreps, freeze, block_bytes, long_content, tmp_path
):
    path = tmp_path / "psi"
    first = start_rlreps(*LONG, "--out", path, first=ONE_CORE)
    wait_for_a_block(path, [first])
    freeze(first)
    before = block_bytes(path)
    assert len(before) < 2 * LONG_NUM_BLOCKS
    intruders = [start_rlreps(*LONG, "--out", path), *start_pair(LONG, path)]
    ends = [finish(process) for process in intruders]
    assert [code for code, _, _ in ends] == [2, 2, 2]
    in_use = rf"expected .*psi to be free, got it in use by process {first.pid} on "
    for _, out, said in ends[:2]:
        assert (out, len(said)) == ("", 1)
        assert re.search(in_use, said[0])
    assert re.search(OTHER_FAILED, ends[2][2][0])
    assert block_bytes(path) == before
    first.send_signal(signal.SIGCONT)
    assert finish(first)[0] == 0
    assert block_bytes(path) == long_content


@pytest.mark.integration
@pytest.mark.parametrize("index", [0, 1])
def test_others_that_never_come_are_an_error_after_the_timeout(start_rlreps, tmp_path, index):
    place = ["--coordinator", f"127.0.0.1:{free_port()}", "--num-processes", 2, "--timeout", 3]
    process = start_rlreps(*QUICK, "--out", tmp_path / "psi", *place, "--process-id", index)
    code, out, said = finish(process)  # JAX's own timeout would be longer than this waits.
    assert (code, out) == (2, ""), said
    # What follows in process 0 are the farewells of JAX's service.
    assert len(said) == 1 or index == 0
    assert re.search(
        r"^rlreps: error: expected 2 processes to meet at 127\.0\.0\.1:\d+, got", said[0]
    )
    assert not (tmp_path / "psi").exists()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"coordinator": "a:1"}, "coordinator, num_processes and process_id together"),
        ({"num_processes": 2}, "coordinator, num_processes and process_id together"),
        ({"process_id": 0}, "coordinator, num_processes and process_id together"),
        ({"num_processes": 1, "process_id": 0}, "together, or none of them"),
        (
            {"coordinator": "a:1", "num_processes": 0, "process_id": 0},
            "expected num_processes >= 1, got 0",
        ),
        (
            {"coordinator": "a:1", "num_processes": 2, "process_id": 2},
            r"expected process_id in \[0, 2\), got 2",
        ),
        (
            {"coordinator": "a:1", "num_processes": 2, "process_id": -1},
            r"expected process_id in \[0, 2\), got -1",
        ),
        ({"timeout": 0}, "expected timeout >= 1, got 0"),
    ],
)
def test_a_place_that_cannot_be_is_refused(given, message):
    with pytest.raises(InputError, match=message):
        ProcessesConfig(**given)


def test_without_a_place_a_process_is_alone():
    assert join(ProcessesConfig()) == ALONE
    assert join(ProcessesConfig(num_processes=1)) == ALONE


@pytest.mark.parametrize("count", [1, 2, 3, 20])
def test_every_item_belongs_to_the_one_process_that_shares_it(count):
    items = [0, 3, 4, 7, 8, 11]
    shares = [Processes(index, count).share(items) for index in range(count)]
    assert sorted(item for share in shares for item in share) == items
    for index, share in enumerate(shares):
        assert all(ALONE.owner(item) == 0 for item in items)
        assert all(Processes(index, count).owner(item) == index for item in share)


def test_processes_that_hold_no_lock_are_dead(tmp_path):
    processes = Processes(1, 4)
    assert processes.dead(tmp_path) == [0, 2, 3]
    (tmp_path / ".process-3.lock").write_text(f"process {os.getpid()} on here\n")
    with exclusive(tmp_path, ".process-0.lock"), exclusive(tmp_path, ".process-1.lock"):
        assert processes.dead(tmp_path) == [2, 3]
    assert ALONE.dead(tmp_path) == []


def test_a_process_alone_checks_then_holds_the_folder_while_it_prepares_and_works(tmp_path):
    done = []
    folder = tmp_path / "psi"

    def check():
        done.append(("check", folder.exists()))

    def prepare():
        done.append(("prepare", (folder / LOCK).exists()))
        return "prepared"

    with ALONE.together(folder, check, prepare) as prepared:
        done.append((prepared, (folder / LOCK).exists()))
    assert done == [("check", False), ("prepare", True), ("prepared", True)]
    assert not (folder / LOCK).exists()
