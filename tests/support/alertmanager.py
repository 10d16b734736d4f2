"""A real Alertmanager on the loopback, and a receiver for what it says."""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Self
from urllib.error import URLError
from urllib.request import Request, urlopen

from support.http_server import HttpAnswer, HttpServer

#: Debian's name, and that of the project's own archive.
PROGRAM = shutil.which("prometheus-alertmanager") or shutil.which("alertmanager")
_START_S = 30.0
#: Each change of an alert is said at once, and repeated to nobody.
_CONFIG = """
route: {{receiver: test, group_by: [fingerprint], group_wait: 0s, group_interval: 1s, repeat_interval: 1h}}
receivers: [{{name: test, webhook_configs: [{{url: '{url}', send_resolved: true}}]}}]
"""


class Alertmanager:
    """Alertmanager with its data in *folder*, and a configuration of one receiver, or with *config*."""

    def __init__(self, folder: Path, config: str | None = None) -> None:
        self._folder = folder
        self._config = config
        self._stack = ExitStack()
        self._receiver = HttpServer(lambda _: HttpAnswer())
        self._process: subprocess.Popen[bytes] | None = None
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self._address = f"127.0.0.1:{probe.getsockname()[1]}"
        self.url = f"http://{self._address}"

    def __enter__(self) -> Self:
        self._stack.enter_context(self._receiver)
        (self._folder / "alertmanager.yml").write_text(self._config or _CONFIG.format(url=self._receiver.url))
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        self._stack.close()

    def start(self) -> None:
        """Start it, with the silences of the last time and without its alerts."""
        assert PROGRAM is not None
        options = (
            f"--config.file={self._folder / 'alertmanager.yml'}",
            f"--storage.path={self._folder / 'alertmanager'}",
            f"--web.listen-address={self._address}",
            "--cluster.listen-address=",
        )
        with (self._folder / "alertmanager.log").open("ab") as log:
            self._process = subprocess.Popen([PROGRAM, *options], stdout=log, stderr=log)
        end = time.monotonic() + _START_S
        while True:
            with suppress(URLError, OSError):
                self.get("/-/ready")
                return
            assert self._process.poll() is None, (self._folder / "alertmanager.log").read_text()
            assert time.monotonic() < end
            time.sleep(0.05)

    def stop(self) -> None:
        """Kill it."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def get(self, path: str) -> str:
        """Return what it answers."""
        with urlopen(self.url + path, timeout=_START_S) as answer:
            text: str = answer.read().decode()
        return text

    def alerts(self) -> Mapping[str, str]:
        """Return the state of each alert that has not ended, by its cause: ``active`` or ``suppressed``."""
        return {each["labels"]["cause"]: each["status"]["state"] for each in json.loads(self.get("/api/v2/alerts"))}

    def silence(self, **labels: str) -> None:
        """Silence what has these labels for an hour."""
        now = time.time()
        matchers = [{"name": name, "value": value, "isRegex": False} for name, value in labels.items()]
        times = {"startsAt": _time(now - 1), "endsAt": _time(now + 3600)}
        body = {"matchers": matchers, **times, "createdBy": "a test", "comment": "known"}
        request = Request(
            f"{self.url}/api/v2/silences", json.dumps(body).encode(), {"Content-Type": "application/json"}
        )
        with urlopen(request, timeout=_START_S):
            pass

    def received_count(self) -> int:
        """Return how many alerts it has taken."""
        counts = re.findall(
            r'^alertmanager_alerts_received_total{.*version="v2"} (\S+)$', self.get("/metrics"), re.MULTILINE
        )
        return int(sum(map(float, counts)))

    @property
    def requests(self) -> Sequence[object]:
        """What the receiver was sent."""
        return self._receiver.requests

    def said(self) -> list[tuple[str, str]]:
        """Return what the receiver heard, oldest first: cause and status, ``firing`` or ``resolved``."""
        groups: list[Mapping[str, Any]] = [json.loads(each.body) for each in self._receiver.requests]
        return [(each["labels"]["cause"], each["status"]) for group in groups for each in group["alerts"]]


def _time(when: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(when))
