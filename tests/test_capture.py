"""Threads of ours beside a host that captures CUDA graphs."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

from tests import needs, process

if TYPE_CHECKING:
    from pathlib import Path

#: As much of the driver as is asked: it remembers what each thread was told, and how often.
DRIVER = """
static __thread int mode, asked;
int cuThreadExchangeStreamCaptureMode(int *wanted) {
    int before = mode;
    mode = *wanted;
    *wanted = before;
    asked++;
    return 0;
}
int standin_mode(void) { return mode; }
int standin_times(void) { return asked; }
"""


@needs.gcc
def test_a_thread_of_ours_minds_its_own_captures_alone(tmp_path: Path) -> None:
    """Each thread that asks a device says so to the driver once; the host's threads are left as they are."""
    (tmp_path / "driver.c").write_text(DRIVER)
    library = tmp_path / "libcuda.so.1"
    command = ["gcc", "-shared", "-fPIC", f"-Wl,-soname,{library.name}", "-o", library, tmp_path / "driver.c"]
    subprocess.run(command, check=True)
    script = """
        import ctypes, sys, threading
        from rl_otel._capture import stand_aside

        driver = ctypes.CDLL(sys.argv[1], mode=ctypes.RTLD_GLOBAL)

        def ours():
            stand_aside()
            stand_aside()
            print(driver.standin_mode(), driver.standin_times())

        for _ in range(2):
            thread = threading.Thread(target=ours)
            thread.start()
            thread.join()
        print(driver.standin_mode(), driver.standin_times())
    """
    assert process.run(script, str(library)).stdout.splitlines() == ["1 1", "1 1", "0 0"]


def test_no_driver_is_brought_into_a_process() -> None:
    """Where the host has loaded none there is nothing to say."""
    script = """
        from rl_otel._capture import stand_aside
        stand_aside()
        print("libcuda" in open("/proc/self/maps").read())
    """
    assert process.run(script).stdout == "False\n"
