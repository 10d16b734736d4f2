"""The releases that a rule claims to be worded for, held against those that word it so."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from attrs import frozen
from packaging.version import Version


@frozen(kw_only=True)
class Claim:
    """First release with the wording, and first without it; None: no such bound is claimed."""

    introduced: Version | None = None
    removed: Version | None = None

    def __str__(self) -> str:
        return f"{self.introduced or 'any'} .. {f'before {self.removed}' if self.removed else 'newest'}"

    def covers(self, release: Version) -> bool:
        """Whether *release* is claimed."""
        return (self.introduced is None or self.introduced <= release) and (
            self.removed is None or release < self.removed
        )

    def within(self, other: Claim) -> Claim:
        """What both of them claim."""
        first = [each for each in (self.introduced, other.introduced) if each]
        ends = [each for each in (self.removed, other.removed) if each]
        return Claim(introduced=max(first, default=None), removed=min(ends, default=None))


def claim(introduced: str, removed: str) -> Claim:
    """The claim of a rule's two keys, of which each may be empty.

    Raises:
        packaging.version.InvalidVersion: One of them is no release.
    """
    return Claim(
        introduced=Version(introduced) if introduced else None, removed=Version(removed) if removed else None
    )


def problems(
    claimed: Claim,
    said_in: Collection[Version],
    looked_at: Sequence[Version],
    *,
    surely_in: Collection[Version] | None = None,
    wholly: bool = True,
) -> Iterator[str]:
    """What is wrong with *claimed*, each in a few words.

    Args:
        claimed: The claim of the rule.
        said_in: Releases that can say it.
        looked_at: All releases that were read, oldest first.
        surely_in: Those of *said_in* that cannot but say it so; default: all of them.
        wholly: Whether all that the pattern matches is distributed's own wording. If not, the
            rest of it may be said in any release, and a claim cannot be too wide.
    """
    surely = said_in if surely_in is None else surely_in
    outside = [each for each in looked_at if each in surely and not claimed.covers(each)]
    if outside:
        yield f"said outside of the claimed range, in {spans(outside, looked_at)}"
    inside = [each for each in looked_at if claimed.covers(each)]
    said_inside = [each for each in inside if each in said_in]
    if not inside:
        return
    if not said_inside:
        yield "said in no release of the claimed range that was looked at"
    elif wholly:
        if said_inside[0] != inside[0]:
            yield f"not said before {said_inside[0]}: the claimed range begins too early"
        if said_inside[-1] == inside[-1]:
            return
        if inside[-1] == looked_at[-1] and said_inside[-1] == inside[-2]:
            yield f"{looked_at[-1]}, the newest release, words something differently"
        else:
            yield f"not said after {said_inside[-1]}: the claimed range ends too late"


def spans(releases: Collection[Version], looked_at: Sequence[Version]) -> str:
    """*releases* as ranges within those that were *looked_at*: ``2022.5.1-2023.8.0, 2024.3.0-``.

    A range that reaches the newest one is left open.
    """
    ranges: list[str] = []
    first: Version | None = None
    for index, release in enumerate(looked_at):
        if release not in releases:
            continue
        first = first or release
        is_newest = index + 1 == len(looked_at)
        if is_newest or looked_at[index + 1] not in releases:
            ranges.append(f"{first}-" if is_newest else str(first) if first == release else f"{first}-{release}")
            first = None
    return ", ".join(ranges)
