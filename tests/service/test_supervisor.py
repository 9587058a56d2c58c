"""The worker beside the server lives as long as the server, and no longer."""

import itertools
import logging
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from unbayes.service.leash import VARIABLE
from unbayes.service.supervisor import Supervisor

PATIENCE = 30.0
pytestmark = pytest.mark.skipif(not Path("/proc").exists(), reason="looks at processes in /proc")
LASTING = [sys.executable, "-c", "import time; time.sleep(600)"]
STUBBORN = """
import signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
open(sys.argv[1], "w").close()
time.sleep(600)
"""
LEASHED = """
import sys, time
from unbayes.service.leash import end_with_parent
end_with_parent()
print("ready", flush=True)
time.sleep(600)
"""
PARENT = """
import sys, time
from unbayes.service.supervisor import Supervisor
supervisor = Supervisor([sys.executable, "-c", sys.argv[1]])
supervisor.start()
print(supervisor.pid, flush=True)
time.sleep(600)
"""


def wait_until(is_so):
    end = time.monotonic() + PATIENCE
    while not (found := is_so()):
        assert time.monotonic() < end
        time.sleep(0.01)
    return found


def is_there(process):
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    # Z: ended, and nobody has asked for its code; where the tests run, nobody may adopt orphans.
    return state != "Z"


def test_a_killed_process_is_replaced(caplog):
    with caplog.at_level(logging.INFO), Supervisor(LASTING, pause=0.01) as supervisor:
        first = supervisor.pid
        os.kill(first, signal.SIGKILL)
        second = wait_until(lambda: supervisor.pid not in (None, first) and supervisor.pid)
        assert is_there(second)
        assert supervisor.restarts == 1
    assert not is_there(second)
    assert supervisor.pid is None
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]
    assert "code -9" in caplog.text


def test_one_that_keeps_dying_is_started_less_and_less_often(tmp_path):
    note = tmp_path / "starts"
    program = "import sys, time; open(sys.argv[1], 'a').write(f'{time.monotonic()}\\n'); sys.exit(3)"
    with Supervisor([sys.executable, "-c", program, str(note)], pause=0.1, longest_pause=10) as supervisor:
        wait_until(lambda: supervisor.restarts >= 4)
    times = [float(line) for line in note.read_text().splitlines()]
    gaps = [later - earlier for earlier, later in itertools.pairwise(times)]
    assert all(gap >= pause for gap, pause in zip(gaps, (0.1, 0.2, 0.4), strict=False)), gaps


def test_it_is_not_started_again_once_it_is_stopped():
    supervisor = Supervisor([sys.executable, "-c", ""], pause=0.01)
    supervisor.start()
    wait_until(lambda: supervisor.restarts >= 1)
    supervisor.stop()
    before = supervisor.restarts
    time.sleep(0.3)
    assert (supervisor.restarts, supervisor.pid) == (before, None)
    supervisor.stop()


def test_one_that_does_not_end_is_killed(tmp_path):
    mark = tmp_path / "mark"
    supervisor = Supervisor([sys.executable, "-c", STUBBORN, str(mark)], grace=0.2)
    supervisor.start()
    process = supervisor.pid
    wait_until(mark.exists)
    supervisor.stop()
    assert not is_there(process)


def test_a_program_that_is_not_there_is_told_at_once():
    with pytest.raises(FileNotFoundError):
        Supervisor(["no-such-program"]).start()


def test_it_does_not_outlive_a_killed_parent():
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, LEASHED], stdout=subprocess.PIPE, text=True, bufsize=1
    )
    # The parent and the child write to the same pipe, in any order.
    lines = [parent.stdout.readline().strip() for _ in range(2)]
    child = next(int(line) for line in lines if line.isdigit())
    assert is_there(child)
    parent.kill()
    parent.wait()
    wait_until(lambda: not is_there(child))
    parent.stdout.close()


def test_without_a_supervisor_nothing_watches():
    environment = {name: value for name, value in os.environ.items() if name != VARIABLE}
    program = "from unbayes.service.leash import end_with_parent as f; f(); import time; time.sleep(1)"
    done = subprocess.run(
        [sys.executable, "-c", program], stdin=subprocess.DEVNULL, env=environment, check=False
    )
    assert done.returncode == 0
