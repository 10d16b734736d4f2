"""A server of the Model Context Protocol: an assistant asks why workers died, and reads the knowledge base.

It only reads, only below the folders and from the schedulers that its user allows, and it hides secrets. Text
of logs is marked as untrusted.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any, Final

from attrs import frozen

from workerdiag._version import __version__
from workerdiag.api.diagnosis import Diagnosis
from workerdiag.api.explain import explain as explain_death
from workerdiag.bundle.reader import Bundle, read_bundle
from workerdiag.errors import BundleError
from workerdiag.integrations.agent_views import (
    NOTICE,
    bundle_log_view,
    bundle_view,
    clean,
    diagnosis_view,
    found_cause_view,
    next_steps_view,
)
from workerdiag.integrations.allowed_files import MAX_FILES, AllowedFiles, NotAllowedError
from workerdiag.integrations.diagnose import open_client
from workerdiag.model.rules import Rulebook
from workerdiag.rendering.cause import render_cause
from workerdiag.rulebook.search import search_causes
from workerdiag.sources.logs.input_kinds import MAX_BUNDLE_BYTES

try:
    from mcp.server import MCPServer
    from mcp.server.mcpserver.exceptions import ToolError
    from mcp.types import ToolAnnotations
except ImportError as problem:
    raise ImportError(
        "the server needs the Python SDK 2 of the Model Context Protocol: pip install 'workerdiag[mcp]'",
        name="mcp",
    ) from problem

_INSTRUCTIONS: Final = (
    "Says why workers of a Dask cluster died, and what to do. Call `explain` with log files, a death bundle "
    f"or an allowed scheduler. {NOTICE}"
)
_READ_ONLY: Final = ToolAnnotations(read_only_hint=True, open_world_hint=False)
#: Time limits of one question, in seconds: default and maximum.
_TIMEOUT_S, _MAX_TIMEOUT_S = 15.0, 60.0
#: Share of that for connecting to a scheduler, at most.
_CONNECT_SHARE: Final = 0.4
_MAX_FOUND, _MAX_LINES = 20, 200
#: Columns of a cause's page.
_WIDTH: Final = 100


@frozen
class DeathTools:
    """The tools of an assistant: each method is a tool, described by its docstring."""

    book: Rulebook
    files: AllowedFiles
    #: Addresses of schedulers that may be queried.
    schedulers: tuple[str, ...] = ()

    def explain(
        self, paths: list[str] | None = None, scheduler: str | None = None, timeout_s: float = _TIMEOUT_S
    ) -> dict[str, Any]:
        """Say why Dask workers died, or why work stands still, and what to do.

        Give log files, folders of logs, death bundles (zip) or black boxes as paths, or the address of a
        scheduler that still runs, or both. Returns ranked causes with probabilities, advice with numbers,
        deaths, whether to retry, what to inspect next, and the evidence as untrusted text.
        """
        return diagnosis_view(self._diagnosis(paths, scheduler, timeout_s))

    def next_steps(
        self, paths: list[str] | None = None, scheduler: str | None = None, timeout_s: float = _TIMEOUT_S
    ) -> dict[str, Any]:
        """Say what to inspect to become surer of the cause of a death, and what could not be inspected.

        Takes the same arguments as explain. Each step has a command, the permission it needs, until when it
        is possible, and the causes that it tells apart.
        """
        diagnosis = self._diagnosis(paths, scheduler, timeout_s)
        top = diagnosis.top
        return {
            "outcome": diagnosis.outcome,
            "likeliest_cause": top.id if top else None,
            "probability": round(top.probability, 3) if top else None,
            **next_steps_view(diagnosis),
        }

    def search_knowledge(self, query: str, limit: int = 10) -> dict[str, Any]:
        """Find causes of death in the knowledge base by words or by a line of a log.

        Returns ids for cause_page.
        """
        found = search_causes(self.book, query, most=max(1, min(limit, _MAX_FOUND)))
        return {"knowledge": self.book.release, "causes": [found_cause_view(each) for each in found]}

    def cause_page(self, cause_id: str) -> str:
        """Show all that is known of one cause: why it happens, its signs, what to do, what looks similar."""
        cause = self.book.cause(cause_id)
        if cause is None:
            near = ", ".join(each.id for each in search_causes(self.book, cause_id.replace(".", " "), most=3))
            hint = f"did you mean {near}?" if near else "search_knowledge finds them"
            raise ToolError(f"there is no cause {cause_id!r}; {hint}")
        return render_cause(cause, width=_WIDTH)

    def bundle_contents(self, path: str) -> dict[str, Any]:
        """List what a death bundle holds.

        The answer when it was saved, versions, configuration, kinds of evidence, and logs by number.
        """
        return bundle_view(self._bundle(path))

    def bundle_log(self, path: str, number: int, first_line: int = 1, lines: int = 100) -> dict[str, Any]:
        """Read lines of one log in a death bundle, by its number in bundle_contents; at most 200 lines at once."""
        view = bundle_log_view(self._bundle(path), number, first_line, max(1, min(lines, _MAX_LINES)))
        if view is None:
            raise ToolError(f"there is no log {number} in it; bundle_contents lists them")
        return view

    def _diagnosis(self, paths: Sequence[str] | None, scheduler: str | None, timeout_s: float) -> Diagnosis:
        if not paths and scheduler is None:
            raise ToolError("give paths of logs or a bundle, or the address of a scheduler")
        timeout_s = max(1.0, min(timeout_s, _MAX_TIMEOUT_S))
        with ExitStack() as stack:
            files = [each for path in paths or () for each in self._files(path)]
            logs = [stack.enter_context(each.open("rb")) for each in files[:MAX_FILES]]
            client = None
            if scheduler is not None:
                if scheduler not in self.schedulers:
                    allowed = (
                        ", ".join(self.schedulers) or "none: start with `workerdiag mcp --scheduler ADDRESS`"
                    )
                    raise ToolError(f"this scheduler may not be queried; allowed: {allowed}")
                client = stack.enter_context(open_client(scheduler, timeout_s * _CONNECT_SHARE))
                if client is None:
                    raise ToolError(f"cannot connect to {scheduler}; is it running?")
            diagnosis: Diagnosis = explain_death(
                None, client, logs=logs, rulebook=self.book, timeout=timeout_s
            )
        return diagnosis

    def _files(self, path: str) -> Sequence[Any]:
        try:
            return self.files.files(path)
        except (NotAllowedError, OSError) as problem:
            raise ToolError(str(clean(str(problem)))) from None

    def _bundle(self, path: str) -> Bundle:
        file = self._files(path)[0]
        try:
            with file.open("rb") as opened:
                bundle = read_bundle(file.name, opened.read(MAX_BUNDLE_BYTES))
        except (BundleError, OSError) as problem:
            raise ToolError(str(clean(str(problem)))) from None
        if bundle is None:
            raise ToolError(f"{file.name} is no death bundle; explain reads logs")
        return bundle


def make_server(tools: DeathTools) -> MCPServer[Any]:
    """Return the server with its tools; ``run("stdio")`` serves until its input ends."""
    server: MCPServer[Any] = MCPServer(
        "workerdiag",
        title="Why did my Dask worker die?",
        version=__version__,
        instructions=_INSTRUCTIONS,
        log_level="WARNING",
    )
    for each in (
        tools.explain,
        tools.next_steps,
        tools.search_knowledge,
        tools.cause_page,
        tools.bundle_contents,
        tools.bundle_log,
    ):
        server.add_tool(each, annotations=_READ_ONLY)
    return server
