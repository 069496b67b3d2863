"""`shardyard logs`: a job's log lines in order, those that match, or those around one line."""

import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from itertools import islice
from typing import Annotated, Final

import typer

from ....service.schemas.log import LogLine, LogSearchResult
from ...client import Client
from ...client.requests import Level
from ...errors import InvalidParameter
from ..exit_codes import ExitCode
from ..job_names import job_id
from ..options import JobName, Json, Rank, Url
from ..terminal.event_lines import log_line
from ..terminal.screen import Screen
from ..terminal.time_argument import HOW, parse_time

_FOLLOW_S: Final = 0.5
#: A search stops after this many pages, each of at most 20,000 lines, and prints how to continue.
_PAGES: Final = 50
_PAGE: Final = 500
_FOUND, _AROUND = 1000, 20

Emit = Callable[[LogLine], None]

_Limit = Annotated[
    int | None,
    typer.Option(
        "--limit", min=1, max=10_000, help=f"Maximum number of lines of a search ({_FOUND}) or --around ({_AROUND})."
    ),
]


@dataclass(frozen=True)
class _LogFilter:
    """Which lines a search returns."""

    text: str = ""
    level: Level | None = None
    since: float | None = None
    until: float | None = None
    rank: int | None = None
    regex: bool = False

    def typed(self) -> str:
        """The options of the command that continues the search."""
        given = {"search": self.text or None, "level": self.level, "since": self.since, "until": self.until}
        given |= {"rank": self.rank}
        options = [f"--{name} {shlex.quote(str(value))}" for name, value in given.items() if value is not None]
        return " ".join([*options, *(["--regex"] if self.regex else [])])


def logs(  # noqa: PLR0913, PLR0917 - an option each
    job: JobName,
    follow: Annotated[bool, typer.Option("-f", "--follow", help="Print new lines until the job ends.")] = False,
    rank: Rank = None,
    tail: Annotated[int | None, typer.Option("--tail", min=0, max=10_000, help="Start with the last N lines.")] = None,
    search: Annotated[
        str, typer.Option("--search", metavar="TEXT", help="Print only lines with this text, ignoring case.")
    ] = "",
    regex: Annotated[
        bool, typer.Option("--regex", help="TEXT is a regular expression in RE2's syntax, anywhere in a line.")
    ] = False,
    level: Annotated[
        Level | None, typer.Option("--level", help="Print only lines that contain an error, or a warning or an error.")
    ] = None,
    since: Annotated[
        float | None, typer.Option("--since", metavar="TIME", parser=parse_time, help=f"Print only lines since {HOW}.")
    ] = None,
    until: Annotated[
        float | None,
        typer.Option("--until", metavar="TIME", parser=parse_time, help="Print only lines until this time."),
    ] = None,
    around: Annotated[
        int | None, typer.Option("--around", metavar="PLACE", min=1, help="Print the lines around a search result.")
    ] = None,
    after: Annotated[
        int, typer.Option("--after", metavar="PLACE", min=0, help="Print only lines after this position.")
    ] = 0,
    limit: _Limit = None,
    timestamps: Annotated[
        bool, typer.Option("-t", "--timestamps", help="Print when each line was written, in UTC, before it.")
    ] = False,
    url: Url = None,
    json: Json = False,
) -> None:
    """Print a job's log lines: all in order, those that match, or those around one line."""
    screen, wanted = Screen(), _LogFilter(search, level, since, until, rank, regex and bool(search))
    searches = wanted != _LogFilter(rank=rank)
    _refuse_both({"--follow": follow, "--tail": tail is not None, "--around": around is not None, "a search": searches})
    places = {"--around": around, "--tail": tail, "--after": after or None}
    _refuse_without_effect(limit, searches and not follow, regex and not search, places)
    numbered = searches or around is not None
    emit = screen.json if json else partial(_text, screen, rank=rank, numbered=numbered, timestamps=timestamps)
    with Client(url) as client:
        try:
            found = job_id(client, job, around or after)
            if searches and follow:
                _follow(screen, client, found, emit, wanted, after)
            elif searches:
                _search(screen, client, found, emit, wanted, after, limit or _FOUND)
            elif around is not None:
                page = client.logs(found, rank=rank, around=around, limit=limit or _AROUND)
                _say_removed(screen, page.removed, since=around - 1)
                _each(emit, page.lines)
            else:
                _print(screen, client, found, emit, follow=follow, rank=rank, tail=tail, after=after)
        except KeyboardInterrupt:
            raise typer.Exit(ExitCode.INTERRUPTED) from None


def _refuse_both(given: dict[str, bool]) -> None:
    """Refuse options that exclude each other; --follow goes with --tail, and with a search."""
    chosen = [name for name, asked in given.items() if asked]
    if len(chosen) > 1 and chosen not in (["--follow", "--tail"], ["--follow", "a search"]):
        message = f"{' and '.join(chosen)} exclude each other."
        raise InvalidParameter(message, remedy="Leave one out; see how with: shardyard logs --help")


def _refuse_without_effect(limit: int | None, searches: bool, alone: bool, places: dict[str, int | None]) -> None:
    """Refuse options of which the lines that are asked for take no notice. `alone`: --regex without --search."""
    _refuse_both({name: place is not None for name, place in places.items()})
    if alone:
        remedy = "Give the expression with --search; see how with: shardyard logs --help"
        raise InvalidParameter("--regex goes with --search.", field="--regex", remedy=remedy)
    if limit is not None and not searches and places["--around"] is None:
        remedy = "Print the last lines with --tail; see how with: shardyard logs --help"
        raise InvalidParameter("--limit goes with a search without --follow, or --around.", remedy=remedy)


def _text(screen: Screen, line: LogLine, *, rank: int | None, numbered: bool, timestamps: bool) -> None:
    """Print a line, with its place in the log and its time before it where they are wanted."""
    place = f"{line.position}: " if numbered else ""
    when = f"{_utc(line.ts)} " if timestamps else ""
    screen.line(place + when + log_line(line.rank, line.text, rank))


def _utc(ts: float | None) -> str:
    """A time as RFC 3339 writes it, to the millisecond."""
    if ts is None:
        return "-"
    return datetime.fromtimestamp(ts, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _each(emit: Emit, lines: list[LogLine]) -> int:
    """Print lines; returns the position of the last one, or 0."""
    for line in lines:
        emit(line)
    return lines[-1].position if lines else 0


def _say_removed(screen: Screen, removed: int, *, since: int) -> None:
    """Say that lines after position `since` are not in the log any more, if so."""
    if removed > since:
        lines = "line of this log was" if removed == 1 else f"{removed:,} lines of this log were"
        screen.say(f"The first {lines} removed by retention.")


def _pages(
    client: Client, job: str, wanted: _LogFilter, *, after: int, limit: int, follow: bool = False
) -> Iterator[LogSearchResult]:
    search = partial(client.search_pages, job, wanted.text, rank=wanted.rank, level=wanted.level, regex=wanted.regex)
    within = partial(search, since=wanted.since, until=wanted.until)
    return within(after=after, limit=limit, follow=follow, pause_s=_FOLLOW_S)


def _follow(screen: Screen, client: Client, job: str, emit: Emit, wanted: _LogFilter, after: int) -> None:
    """Print the lines that match, and those that come, until the job ends."""
    for number, page in enumerate(_pages(client, job, wanted, after=after, limit=_PAGE, follow=True)):
        if number == 0:
            _say_removed(screen, page.removed, since=after)
        _each(emit, page.lines)


def _search(screen: Screen, client: Client, job: str, emit: Emit, wanted: _LogFilter, after: int, limit: int) -> None:
    """Search up to the limit, the end of the log, or a bound; then print how to continue."""
    found, last, ended = 0, 0, False
    pages = _pages(client, job, wanted, after=after, limit=min(limit, _PAGE))
    for number, page in enumerate(islice(pages, _PAGES)):
        if number == 0:
            _say_removed(screen, page.removed, since=after)
        lines = page.lines[: limit - found]
        last = _each(emit, lines) or last
        found += len(lines)
        after = last if found == limit else page.scanned_to
        ended = page.done and found < limit
        if ended or found == limit:
            break
    if last:
        screen.hint(f"See what stands around one with: shardyard logs {job} --around {last}")
    else:
        screen.say("No line was found." if ended else f"No line was found up to place {after:,}.")
    if not ended:
        screen.hint(f"More with: shardyard logs {job} {wanted.typed()} --after {after}")


def _print(
    screen: Screen,
    client: Client,
    job: str,
    emit: Emit,
    *,
    follow: bool,
    rank: int | None,
    tail: int | None,
    after: int,
) -> None:
    """Print all lines once, in order. The next page starts after the last line's position: no gap, no duplicate."""
    last = client.logs(job, rank=rank, tail=max(tail or 0, 1))  # also with tail 0, to know the last position
    if tail is None or len(last.lines) < tail:
        _say_removed(screen, last.removed, since=after)
    if tail is not None:
        after = max(after, last.lines[-1].position if last.lines else 0)
        _each(emit, last.lines[-tail:] if tail else [])
        if not follow:
            return
    for page in client.log_pages(job, rank=rank, after=after, follow=follow, pause_s=_FOLLOW_S):
        _each(emit, page.lines)
