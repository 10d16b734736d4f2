"""The values of the watcher: cases and notices."""

from __future__ import annotations

from collections.abc import Mapping

from attrs import field, frozen
from attrs.validators import ge

from workerdiag.model.vocabulary import CaseState, NoticeReason, Verdict


@frozen(kw_only=True)
class CaseProgress:
    """The internal state of a case, which notices do not show.

    It begins when the case is opened, or opened again.
    """

    #: When the cluster was last seen alive, by the watcher's clock.
    seen_at: float | None = None
    #: Seconds for which it was seen alive since the last death of this key.
    quiet_s: float = 0.0
    #: When the case was resolved or ended, by the watcher's clock.
    closed_at: float | None = None
    #: Deaths and hosts of the first incident.
    first_death_count: int = 0
    first_host_count: int = 0
    #: Deaths are counted in windows of equal length: start and count of the last one, and the highest count.
    window_at: float = 0.0
    window_count: int = 0
    peak_count: int = 0
    #: The escalation level of the last notice.
    told_level: int = 0
    #: The certain causes in notices, in order.
    told_causes: tuple[str, ...] = ()
    #: Who confirmed that somebody works on it; empty: nobody.
    confirmed_by: str = ""


@frozen(kw_only=True)
class WatchedCase:
    """All incidents of one key on one cluster, and the notices about them."""

    #: The same for the same key and cluster, for all watchers.
    id: str
    key: str
    cluster: str
    state: CaseState
    #: The likeliest cause of the last judgement. The key stays when it changes.
    cause: str | None = None
    title: str
    probability: float = 0.0
    blame: Verdict = "unknown"
    #: What to do, one sentence each, most helpful first.
    advice: tuple[str, ...] = ()
    #: Seconds since the epoch.
    opened_at: float
    last_death_at: float
    #: Since the case was opened, or opened again.
    death_count: int = field(default=0, validator=ge(0))
    #: Ids of deaths without a known cause that came with these; they are not counted.
    unexplained_ids: frozenset[str] = frozenset()
    hosts: frozenset[str] = frozenset()
    #: Address or name of the worker that died first.
    first_victim: str = ""
    #: Key of the task that Dask blames, or the only one on the first victim, by the last judgement.
    task: str = ""
    #: Number of the last notice, from 1; 0: none yet.
    sequence: int = field(default=0, validator=ge(0))
    last_notice_at: float | None = None
    #: Path or URL of the death bundle, if one was saved.
    bundle: str = ""
    progress: CaseProgress = CaseProgress()
    #: `Diagnosis.to_json` of the last incident.
    diagnosis_json: str = field(default="", repr=False)

    @property
    def is_open(self) -> bool:
        """Whether it may have further notices without another incident."""
        return self.state not in ("resolved", "ended")


@frozen(kw_only=True)
class Notice:
    """One notice of the watcher about a case, self-contained and free of secrets."""

    #: Case, opening time and number, the same in every delivery to any sink.
    id: str
    reason: NoticeReason
    case_id: str
    key: str
    cluster: str
    state: CaseState
    #: One line of at most 120 characters: ``3 workers of prod died: memory limit (93%)``.
    title: str
    #: Several lines for a terminal or a chat: what, how sure, how many, where, what to do.
    text: str
    cause: str | None = None
    probability: float = 0.0
    blame: Verdict = "unknown"
    advice: tuple[str, ...] = ()
    death_count: int = 0
    #: Number of deaths without a known cause that came with these.
    unexplained_count: int = 0
    hosts: tuple[str, ...] = ()
    first_victim: str = ""
    #: Seconds since the epoch.
    at: float
    opened_at: float
    last_death_at: float
    #: By name: ``cause`` the address of the cause's page, or the command that shows it; ``bundle`` where the
    #: evidence is.
    links: Mapping[str, str] = field(factory=dict, hash=False)
    #: `Diagnosis.to_json`; empty where there is none (blind, digest).
    diagnosis_json: str = field(default="", repr=False)

    @property
    def slack_blocks(self) -> list[dict[str, object]]:
        """The notice for Slack's ``chat.postMessage(blocks=...)``; its text is shown as it is."""
        from workerdiag.watch.sinks.slack_blocks import slack_blocks

        return slack_blocks(self)
