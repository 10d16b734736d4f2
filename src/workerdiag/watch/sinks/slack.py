"""Slack: one message for each case, edited over its life, with its thread; or a message for each notice.

Text is in ``rich_text`` blocks, in which Slack looks for no mark-up, mentions or addresses.
"""

from __future__ import annotations

import html
import json
from collections.abc import Mapping

from workerdiag.values import define, field, frozen
from workerdiag.watch.case import WatchedCase
from workerdiag.watch.notices import is_web_address
from workerdiag.watch.sinks.base import (
    TIMEOUT_S,
    Delivery,
    DeliveryError,
    name_field,
    post,
    sink_name,
    text_given,
    url_given,
    without_secrets,
)

API = "https://slack.com/api/"
_URL_REMEDY = "create a new incoming webhook in the settings of the Slack app"
_TOKEN_REMEDY = "set SLACK_TOKEN to a bot token, xoxb-..., that may chat:write"  # noqa: S105  no token
#: The message to edit cannot be edited any more, but another can be posted
#: (https://docs.slack.dev/reference/methods/chat.update#errors).
_UNEDITABLE = frozenset({"message_not_found", "cant_update_message", "edit_window_closed"})
#: Errors that another attempt meets again, until somebody changes something
#: (https://docs.slack.dev/reference/methods/chat.postMessage#errors).
_FINAL = frozenset(
    """
    access_denied account_inactive as_user_not_supported cannot_reply_to_message channel_not_found
    duplicate_channel_not_found ekm_access_denied enterprise_is_restricted invalid_arguments invalid_auth
    invalid_blocks invalid_blocks_format is_archived messages_tab_disabled missing_scope
    msg_blocks_too_long msg_too_long no_permission no_text not_allowed_token_type not_authed not_in_channel
    org_login_required posting_to_channel_denied restricted_action restricted_action_non_threadable_channel
    restricted_action_read_only_channel restricted_action_thread_locked team_access_not_granted
    token_expired token_revoked two_factor_setup_required
    """.split()
)
_REMEDIES = {
    "channel_not_found": "check the channel's name, and /invite the bot to it",
    "not_in_channel": "/invite the bot to the channel",
    "is_archived": "choose a channel that is not archived",
    "missing_scope": "give the bot the scope chat:write, and chat:write.public for channels it is not in",
}


@define
class _SlackError(DeliveryError):
    code: str = ""


@frozen
class SlackSink:
    """A bot's messages by Slack's Web API.

    The first notice of a case is posted; each further one edits that message and is a short reply in its
    thread. Each message carries the delivery's id in its metadata, so that a repeat can be recognised.
    """

    #: ``#dask`` or an id, ``C012AB3CD``.
    channel: str = field(validator=text_given("slack", "the channel", "give #name or an id"))
    token: str = field(repr=False, validator=text_given("slack", "the token", _TOKEN_REMEDY, is_secret=True))
    name: str = name_field("slack", lambda sink: f"slack:{sink.channel}")
    timeout_s: float = TIMEOUT_S
    #: For GovSlack, ``https://slack-gov.com/api/``.
    api: str = field(default=API, validator=url_given("slack", "leave `api` out"))

    def deliver(self, delivery: Delivery) -> Mapping[str, str]:
        """Post or edit the case's message; note its channel and time stamp."""
        channel, stamp = delivery.receipt.get("channel"), delivery.receipt.get("ts")
        if not (channel and stamp):
            return self._post(delivery)
        try:
            self._call("chat.update", {**_message(delivery), "channel": channel, "ts": stamp})
        except _SlackError as refusal:
            if refusal.code not in _UNEDITABLE:
                raise
            return self._post(delivery)
        self._call("chat.postMessage", {**_reply(delivery), "channel": channel, "thread_ts": stamp})
        return {"channel": channel, "ts": stamp}

    def _post(self, delivery: Delivery) -> Mapping[str, str]:
        answer = self._call("chat.postMessage", {**_message(delivery), "channel": self.channel})
        return {"channel": str(answer.get("channel", "")), "ts": str(answer.get("ts", ""))}

    def _call(self, method: str, arguments: Mapping[str, object]) -> Mapping[str, object]:
        url, body = f"{self.api.rstrip('/')}/{method}", json.dumps(arguments, separators=(",", ":")).encode()
        headers = {**_JSON, "Authorization": f"Bearer {self.token}"}
        said = post(self, url, body, headers, remedy=_TOKEN_REMEDY, secrets=[self.token])
        try:
            answer = json.loads(said)
        except ValueError:
            answer = None
        if not isinstance(answer, dict):
            raise DeliveryError(f"{self.name}: the answer to {method} is not Slack's; check `api` and proxies")
        if not answer.get("ok"):
            code = str(answer.get("error", ""))
            is_final = code in _FINAL
            remedy = f"; {_REMEDIES.get(code, _TOKEN_REMEDY)}" if is_final else ""
            what = f"Slack answered {method} with {code[:100] or 'an unnamed error'}"
            problem = f"{self.name}: {without_secrets(what, self.token)}{remedy}"
            raise _SlackError(problem, is_final=is_final, code=code)
        return answer


@frozen
class SlackUrlSink:
    """An incoming webhook of Slack: a message for each notice, which is never edited."""

    url: str = field(
        repr=False, validator=url_given("slack", "give the webhook's address, https://hooks.slack.com/services/...")
    )
    name: str = name_field("slack", lambda sink: sink_name("slack", sink.url.rpartition("/")[0]))
    timeout_s: float = TIMEOUT_S

    def deliver(self, delivery: Delivery) -> Mapping[str, str]:
        """Post it; nothing is noted for the next time."""
        notice = delivery.notice
        message = {"text": slack_text(notice), "blocks": slack_blocks(notice), **_PLAIN}
        body = json.dumps(message, separators=(",", ":")).encode()
        post(self, self.url, body, _JSON, remedy=_URL_REMEDY, secrets=[self.url])
        return {}


_JSON = {"Content-Type": "application/json; charset=utf-8"}
#: Nothing in the text becomes a preview.
_PLAIN = {"unfurl_links": False, "unfurl_media": False}


def _message(delivery: Delivery) -> Mapping[str, object]:
    notice = delivery.notice
    payload = {"delivery_id": delivery.id, "case_id": notice.id, "reason": notice.reason}
    return {
        "text": slack_text(notice),
        "blocks": slack_blocks(notice),
        "parse": "none",
        **_PLAIN,
        "metadata": {"event_type": "workerdiag_notice", "event_payload": payload},
    }


def _reply(delivery: Delivery) -> Mapping[str, object]:
    # Some are also shown in the channel, not in the thread alone: people have long looked away.
    is_for_all = delivery.notice.reason in {"recurring", "escalating"}
    return {**_message(delivery), "blocks": slack_reply_blocks(delivery.notice), "reply_broadcast": is_for_all}


#: A block, or an element of one, as JSON.
Block = dict[str, object]


def slack_blocks(notice: WatchedCase) -> list[Block]:
    """The whole notice, for ``chat.postMessage(blocks=...)``."""
    elements = [_piece(notice.title, bold=True)]
    for line in notice.text.splitlines()[1:]:
        label, colon, value = line.partition(": ")
        if not colon:
            elements.append(_piece(f"\n{line}"))
        else:
            is_link = value in notice.links.values() and is_web_address(value)
            link: Block = {"type": "link", "url": value, "text": value}
            elements += [_piece(f"\n{label}: ", bold=True), link if is_link else _piece(value)]
    return [_block(elements)]


def slack_reply_blocks(notice: WatchedCase) -> list[Block]:
    """What changed, for the thread of the case's message."""
    return [_block([_piece(notice.title)])]


def slack_text(notice: WatchedCase) -> str:
    """One line for clients without blocks, escaped as docs.slack.dev/messaging/formatting-message-text asks."""
    return html.escape(notice.title, quote=False)


def _block(elements: list[Block]) -> Block:
    return {"type": "rich_text", "elements": [{"type": "rich_text_section", "elements": elements}]}


def _piece(text: str, **style: bool) -> Block:
    return {"type": "text", "text": text, **({"style": style} if style else {})}


#: Variable of the environment with the bot's token.
SLACK_TOKEN = "SLACK_TOKEN"  # noqa: S105  its name


def from_option(value: str, environment: Mapping[str, str]) -> SlackSink | SlackUrlSink:
    """Return the sink for a channel, by a bot's token, or for the URL of an incoming webhook."""
    return SlackUrlSink(value) if "://" in value else SlackSink(value, environment.get(SLACK_TOKEN, ""))
