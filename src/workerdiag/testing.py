"""Check that a source of your own keeps the promises of sources, in its tests.

::

    from workerdiag.testing import HOSTILE_BEHAVIOURS, check_source, example_scene, hostile_server

    def test_rack_power_is_a_good_source():
        check_source(lambda: RackPower(example_scene()))

    def test_rack_power_survives_a_bad_server():
        for behaviour in HOSTILE_BEHAVIOURS:
            with hostile_server(behaviour) as url:
                check_source(lambda: RackPower(example_scene(), url=url), must_gap=True)
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from workerdiag.deadline import Deadline, HelperThread
from workerdiag.model.evidence import Event, Evidence, EvidenceSource, Gap, LogChunk, MemoryReading, ProcessExit
from workerdiag.model.identity import NO_IDENTITY, Identity
from workerdiag.model.scene import Location, Scene, Terms, Victim

#: How a `hostile_server` may behave.
HOSTILE_BEHAVIOURS: tuple[str, ...] = ("hangs", "refuses", "forbids", "garbage", "floods", "fails")

#: What a source may hand over in all (`workerdiag.sources.discovery`).
MAX_BYTES = 8 * 2**20
_FLOOD_BYTES = 100 * 2**20


def example_scene(*, worker: str = "tcp://10.0.0.4:40331", client: object = None, **environment: str) -> Scene:
    """A scene with one worker that died just now, and with its nanny still there to ask.

    Args:
        worker: The worker's address.
        client: A ``distributed.Client``, for sources that ask through Dask.
        **environment: Variables of the nanny's environment (``SLURM_JOB_ID="17"``).
    """
    now = time.time()
    host = worker.rpartition("://")[2].rpartition(":")[0]
    victim = Identity(worker=worker, pid=4711, nanny=f"tcp://{host}:40330", name="w-0", host=host)
    nanny = Identity(nanny=victim.nanny, host=host)
    return Scene(
        victims=(Victim(identity=victim, when=now - 5.0),),
        locations=(Location(role="nanny", identity=nanny, hostname="node7", environment=environment),),
        since=now - 900.0,
        until=now,
        client=client,
    )


def check_source(
    make: Callable[[], EvidenceSource],
    *,
    budget_s: float = 2.0,
    must_gap: bool = False,
    state: Callable[[], object] = lambda: None,
) -> None:
    """Ask a source twice, once with next to no time, and look at what it does and gives.

    One that is late is asked again, up to three times in all: the machine may have been busy.

    Args:
        make: Gives the source, a new one each time.
        budget_s: Seconds that it is given.
        must_gap: Whether what it asks is out of order, so that it has to yield a `Gap`.
        state: What the place that is asked holds (rows of a table, names of files, requests
            other than GET ...), which has to be equal before and after.

    Raises:
        AssertionError: It breaks promises of a source; the message names all of them.
    """
    problems = [*_metadata_problems(make())]
    before = {**_global_state(), "place that is asked": state()}
    pieces = _collect_pieces(make, budget_s, problems)
    _collect_pieces(make, 0.05, problems)
    problems += [problem for piece in pieces for problem in _piece_problems(piece)]
    if must_gap and not any(isinstance(piece, Gap) for piece in pieces):
        problems.append("yields no Gap although it could not look: not looking is not seeing nothing")
    size = sum(len(piece.data) for piece in pieces if isinstance(piece, LogChunk))
    if size > MAX_BYTES:
        problems.append(f"hands over {size} bytes of text; at most {MAX_BYTES} are read")
    after = {**_global_state(), "place that is asked": state()}
    problems += [f"changes the {name}" for name in before if before[name] != after[name]]
    assert not problems, "not a good source:\n" + "\n".join(f"- {each}" for each in dict.fromkeys(problems))


def _metadata_problems(source: EvidenceSource) -> Iterator[str]:
    if not isinstance(getattr(source, "name", None), str) or not source.name:
        yield "has no name: gaps and reports need one"
    if hasattr(source, "terms") and not isinstance(source.terms, Terms):
        yield f"its terms are {type(source.terms).__name__}, not workerdiag.plugins.Terms"


def _collect_pieces(make: Callable[[], EvidenceSource], budget_s: float, problems: list[str]) -> list[Evidence]:
    for _ in range(3):  # a busy machine is late now and then; a source that gives up too late always is
        pieces: list[Evidence] = []
        thread = HelperThread("workerdiag-check", lambda: make().collect(budget_s=budget_s))
        try:
            pieces.extend(thread.take(Deadline.after(budget_s * 1.1 + 0.25)))
        except TimeoutError:
            continue
        except RuntimeError as problem:
            problems.append(f"raises {problem}; yield a Gap instead")
        return pieces
    problems.append(f"is not back within its budget of {budget_s:g} s")
    return pieces


def _piece_problems(piece: object) -> Iterator[str]:
    if not isinstance(piece, Evidence):
        yield f"yields a {type(piece).__name__}, which is no evidence (workerdiag.plugins)"
    elif isinstance(piece, Gap):
        if not piece.detail or not piece.remedy:
            yield f"a Gap ({piece.reason}) does not say what was tried (detail) and what would help (remedy)"
    elif isinstance(piece, LogChunk | Event | ProcessExit | MemoryReading) and piece.identity == NO_IDENTITY:
        yield f"a {type(piece).__name__} does not say whose it is"
    if isinstance(piece, LogChunk) and (not piece.origin or not isinstance(piece.data, bytes)):
        yield "a LogChunk has no origin under which a person would find it, or no bytes"


def _global_state() -> dict[str, object]:
    """What a source has no business to change."""
    return {
        "environment": dict(os.environ),
        "working directory": Path.cwd(),
        "signal handlers": [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)],
    }


@contextmanager
def hostile_server(behaviour: str) -> Iterator[str]:
    """A server on this machine that treats every request badly, for a source to survive.

    Args:
        behaviour: ``hangs`` (never answers), ``refuses`` (nobody listens), ``forbids`` (403),
            ``garbage`` (200 with what is no JSON), ``floods`` (100 MB) or ``fails`` (500).

    Returns:
        Its URL, as the context.

    Raises:
        ValueError: There is no such behaviour.
    """
    if behaviour not in HOSTILE_BEHAVIOURS:
        raise ValueError(f"behaviour must be one of {', '.join(HOSTILE_BEHAVIOURS)}, got {behaviour!r}")
    done = threading.Event()
    handler = type("Handler", (_Hostile,), {"behaviour": behaviour, "done": done})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    url = f"http://127.0.0.1:{server.server_address[1]}"
    if behaviour == "refuses":
        server.server_close()
        yield url
        return
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
    try:
        yield url
    finally:
        done.set()
        server.shutdown()
        server.server_close()


class _Hostile(BaseHTTPRequestHandler):
    behaviour: str
    done: threading.Event

    def _respond(self) -> None:
        if self.behaviour == "hangs":
            self.done.wait()
            return
        self.send_response({"forbids": 403, "fails": 500}.get(self.behaviour, 200))
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        try:
            if self.behaviour == "floods":
                self._flood()
            else:
                self.wfile.write(b'{"not \xff json')
        except OSError:
            self.close_connection = True  # who asked has had enough

    def _flood(self) -> None:
        block = b'{"a": "' + b"x" * 65_536 + b'"}\n'
        for _ in range(_FLOOD_BYTES // len(block)):
            if self.done.is_set():
                return
            self.wfile.write(block)

    def __getattr__(self, name: str) -> Callable[[], None]:
        if name.startswith("do_"):  # whatever the method of the request
            return self._respond
        raise AttributeError(name)

    def log_message(self, *_: object) -> None:
        """Nothing: the test's own output is read."""
