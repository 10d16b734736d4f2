"""
What the watcher keeps and tells: cases and notices.
"""

from __future__ import annotations

from collections.abc import Mapping

from attrs import field, frozen
from attrs.validators import ge

from workerdiag.model.vocabulary import CaseState, NoticeReason, Verdict


@frozen(kw_only=True)
class CaseProgress:
    """
    What the next step of a case depends on, beside what people are told.

    It counts from when the case was opened, or opened again.
    """

    #: When the cluster was last seen alive, by the watcher's clock.
    seen_at: float | None = None
    #: For how many seconds it was seen alive since the last death of this key.
    quiet_s: float = 0.0
    #: When the case was resolved or ended, by the watcher's clock.
    closed_at: float | None = None
    #: Deaths and hosts of the first incident.
    first_death_count: int = 0
    first_host_count: int = 0
    #: Deaths are counted by windows of equal length: the begin of the last one, its count, the highest count.
    window_at: float = 0.0
    window_count: int = 0
    peak_count: int = 0
    #: The level of escalation that people know of.
    told_level: int = 0
    #: The sure causes that people were told, in that order.
    told_causes: tuple[str, ...] = ()
    #: Who said that somebody is at work on it; empty: nobody.
    confirmed_by: str = ""


@frozen(kw_only=True)
class WatchedCase:
    """
    All incidents of one key on one cluster, and what was said about them.
    """

    #: The same for the same key on the same cluster, whoever watches.
    id: str
    key: str
    cluster: str
    state: CaseState
    #: Of the likeliest cause, as last judged; the key stays when it changes.
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
    #: Ids of deaths that came with these and whose cause is not known; they are not counted.
    unexplained_ids: frozenset[str] = frozenset()
    hosts: frozenset[str] = frozenset()
    #: Address or name of the worker that died first.
    first_victim: str = ""
    #: Key of the task that Dask blames, or that ran alone on the first victim, as last judged.
    task: str = ""
    #: Number of the last notice, from 1; 0: none yet.
    sequence: int = field(default=0, validator=ge(0))
    last_notice_at: float | None = None
    #: Path or URL of the death bundle, where one was saved.
    bundle: str = ""
    progress: CaseProgress = CaseProgress()
    #: `Diagnosis.to_json` of the last incident.
    diagnosis_json: str = field(default="", repr=False)

    @property
    def is_open(self) -> bool:
        """
        Whether more may be said of it without another incident.
        """
        return self.state not in ("resolved", "ended")


@frozen(kw_only=True)
class Notice:
    """
    One thing that the watcher says about a case, complete in itself and free of secrets.
    """

    #: Case, its opening and number in it, the same in each delivery of this notice to any sink.
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
    #: Deaths that came with these and whose cause is not known.
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
        """
        The notice for Slack's ``chat.postMessage(blocks=...)``; its text is shown as it is.
        """
        from workerdiag.watch.sinks.slack_blocks import slack_blocks

        return slack_blocks(self)
