"""A server in a process of its own, and what can be seen of it from outside."""

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Self

import httpx

FILES = 1024
"""Files that the server may open unless it asks for more, as on most systems."""

_FIGURES = ("num_requests_running", "num_requests_waiting", "kv_cache_usage_perc")


class Server:
    """``draftwood serve embedded``, greedy and in float32, on a free port, until the block ends.

    Args:
        flags: further ones.
    """

    def __init__(self, *flags: str) -> None:
        self._log = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed by __exit__
        command = [sys.executable, "-m", "draftwood", "serve", "embedded", "--port", "0"]
        limited = ["bash", "-c", f'ulimit -Sn {FILES}; exec "$@"', "server"]
        self.process = subprocess.Popen(
            [*limited, *command, "--dtype", "float32", "--threads", "1", *flags],
            stderr=self._log,
            stdout=subprocess.DEVNULL,
        )
        self.url = self._started()

    def _started(self) -> str:
        end = time.monotonic() + 180
        while time.monotonic() < end and self.process.poll() is None:
            found = re.search(r"at (http://\S+)/v1", self.log)
            if found:
                return found[1]
            time.sleep(0.1)
        self.process.kill()
        raise RuntimeError(f"the server did not start: {self.log}")

    @property
    def log(self) -> str:
        """What the server has written."""
        self._log.seek(0)
        return self._log.read()

    @property
    def address(self) -> tuple[str, int]:
        """Host and port."""
        url = httpx.URL(self.url)
        return url.host, url.port or 80

    def memory(self, name: str = "VmRSS") -> float:
        """Resident memory in MB; ``VmHWM``: its highest since :meth:`reset`."""
        status = Path(f"/proc/{self.process.pid}/status").read_text(encoding="ascii")
        found = re.search(rf"{name}:\s*(\d+) kB", status)
        assert found is not None
        return round(int(found[1]) / 1024, 1)

    def reset(self) -> None:
        """Let the highest memory begin anew."""
        Path(f"/proc/{self.process.pid}/clear_refs").write_text("5", encoding="ascii")

    def files(self) -> int:
        """Files that are open, connections included."""
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    def figures(self) -> dict[str, float]:
        """Requests that run and wait, and the share of the cache in use, by /metrics."""
        page = httpx.get(f"{self.url}/metrics", timeout=60).text
        return {
            name: float(match[1])
            for name in _FIGURES
            if (match := re.search(rf"draftwood:{name}{{[^}}]*}} (\S+)", page))
        }

    def idle(self, seconds: float = 60) -> bool:
        """Wait until no request runs or waits; False if that takes too long."""
        end = time.monotonic() + seconds
        while any(list(self.figures().values())[:2]):
            if time.monotonic() > end:
                return False
            time.sleep(0.1)
        return True

    def stop(self, within: float = 60) -> float | None:
        """Seconds from SIGTERM to the end of the process; None: it had to be killed."""
        began = time.monotonic()
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(within)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            return None
        return round(time.monotonic() - began, 2)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self._log.close()
