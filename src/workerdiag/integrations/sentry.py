"""Sentry: an error that came from Dask says why the workers died.

    sentry_sdk.init(integrations=[WorkerdiagIntegration()])

Tags to search and alert by, a context with the answer and, where the cause is sure, one issue for each cause
instead of one for each stack.
"""

from __future__ import annotations

import tempfile
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from workerdiag.api.diagnosis import Diagnosis
from workerdiag.integrations.diagnose import TIMEOUT_S, diagnose_in_passing, facts, is_answer, is_sure

try:
    import sentry_sdk
    from sentry_sdk.attachments import Attachment
    from sentry_sdk.integrations import Integration
    from sentry_sdk.scope import add_global_event_processor
except ImportError as problem:
    raise ImportError(
        "the integration for Sentry needs its SDK 2: pip install 'workerdiag[sentry]'", name="sentry_sdk"
    ) from problem

if TYPE_CHECKING:
    from sentry_sdk.types import Event, Hint

#: Facts with few different values, by which one searches.
_TAGS: Final = ("outcome", "cause", "family", "blame", "action")
#: Pieces of advice, and next steps, in the context.
_MAX_ITEMS: Final = 3
_DEFAULT_FINGERPRINT: Final = ["{{ default }}"]


class WorkerdiagIntegration(Integration):
    """Adds the diagnosis to each error event whose exception came from Dask; other events pass untouched.

    Args:
        attach_bundle: Attach a death bundle, secrets redacted, with the evidence (at most 8 MiB).
        scheduler: Address of a scheduler that outlives the program; None: what `annotate`, `auto` or
            `explaining` found, the client at hand, or Dask's setting ``scheduler-address``.
        timeout_s: Seconds that an event is held up for, at most.
    """

    identifier = "workerdiag"

    def __init__(
        self, *, attach_bundle: bool = False, scheduler: str | None = None, timeout_s: float = TIMEOUT_S
    ) -> None:
        self.attach_bundle = attach_bundle
        self.scheduler = scheduler
        self.timeout_s = timeout_s

    @staticmethod
    def setup_once() -> None:
        """Register the processor of events; Sentry calls it once."""
        add_global_event_processor(_process)


def _process(event: Event, hint: Hint | None) -> Event:
    integration = sentry_sdk.get_client().get_integration(WorkerdiagIntegration)
    exc_info = (hint or {}).get("exc_info")
    exc = exc_info[1] if isinstance(exc_info, tuple) else exc_info
    if integration is None or event.get("type") is not None or not isinstance(exc, BaseException):
        return event
    diagnosis = diagnose_in_passing(exc, integration.scheduler, timeout_s=integration.timeout_s)
    if diagnosis is None or not is_answer(diagnosis):
        return event
    known = facts(diagnosis)
    tags = {f"workerdiag.{name}": str(known[name]) for name in _TAGS if name in known}
    event["tags"] = tags | dict(event.get("tags") or {})
    event["contexts"] = {"workerdiag": _context(diagnosis)} | (event.get("contexts") or {})
    if is_sure(diagnosis) and event.get("fingerprint", _DEFAULT_FINGERPRINT) == _DEFAULT_FINGERPRINT:
        event["fingerprint"] = ["workerdiag", diagnosis.fingerprint]
    if integration.attach_bundle and hint is not None:
        with suppress(Exception):
            hint["attachments"] = [*(hint.get("attachments") or ()), _bundle(diagnosis)]
    return event


def _context(diagnosis: Diagnosis) -> dict[str, object]:
    top, policy = diagnosis.top, diagnosis.decision.policy
    return {
        **facts(diagnosis),
        "title": top.title if top else "",
        "do_now": [each.do for each in (top.mitigations if top else ())][:_MAX_ITEMS],
        "retry": policy.reason,
        "next_steps": [each.inspect for each in diagnosis.next_steps][:_MAX_ITEMS],
    }


def _bundle(diagnosis: Diagnosis) -> Attachment:
    with tempfile.TemporaryDirectory() as folder:
        data = diagnosis.save(Path(folder, "death.zip")).read_bytes()
    return Attachment(bytes=data, filename="workerdiag-death.zip", content_type="application/zip")
