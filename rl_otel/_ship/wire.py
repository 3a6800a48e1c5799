"""Delivers spans over OTLP: encodes them into requests of a bounded size and sends each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from rl_otel._otlp import Piece, Request, Writer, encoding_of
from rl_otel._record import Attributes
from rl_otel._safety import say, say_once
from rl_otel._send import Fault, Outcome, State, Target, diagnose
from rl_otel._ship.courier import Verdict
from rl_otel._ship.line import Line
from rl_otel._ship.ready import Due, Ready

#: Requests of one delivery that are divided for what a span of them may say: enough to find two among a thousand.
_REFUSALS: Final = 20
_SIZE: Final = 1 << 20  # bytes of a request; receivers take 4 MiB by default


class Wire:
    """The outlet to an OTLP endpoint."""

    def __init__(self, target: Target, timeout: float) -> None:
        self._line = Line(target, "back")
        self._timeout = timeout
        self._encoding = encoding_of(target.protocol)
        self._writer: Writer | None = None  # of the process whose spans were sent last

    def writer(self, resource: Attributes, *, one_service: bool) -> Writer:
        """Return what writes spans as they are sent."""
        if self._writer is None or self._writer.resource != resource or self._writer.one_service != one_service:
            self._writer = Writer(self._encoding, resource, one_service=one_service)
        return self._writer

    def deliver(self, spans: Sequence[Due], resource: Attributes, *, one_service: bool) -> Verdict:
        """Send `spans` in as many requests as they need; what comes after one that failed is left for later."""
        pieces = self._written(spans, resource, one_service=one_service)
        sent, dropped, refusals = 0, len(spans) - len(pieces), 0
        requests = list(self._requests(pieces))
        while requests:
            request = requests.pop(0)
            outcome = self._line.send(request.body(), len(request.pieces), self._timeout)
            if outcome.ok:
                sent += len(request.pieces) - outcome.rejected
                dropped += outcome.rejected
                self._tell(outcome)
            elif len(request.pieces) > 1 and _smaller_may_pass(outcome, refusals):
                refusals += 1
                requests[:0] = request.split()
            elif outcome.state is State.RETRY or outcome.fault.of_address:
                self._tell(outcome)
                rest = {piece.id for each in (request, *requests) for piece in each.pieces}
                return Verdict(sent, dropped, rest, outcome.after)
            else:
                self._tell(outcome)
                dropped += len(request.pieces)
        return Verdict(sent, dropped)

    def rest(self) -> None:
        """Close the connection for now."""
        self.close()

    def close(self) -> None:
        """Close the connection."""
        self._line.close()

    def _written(self, spans: Sequence[Due], resource: Attributes, *, one_service: bool) -> list[Piece]:
        pieces = [each for each in spans if isinstance(each, Piece)]
        if len(pieces) == len(spans):
            return pieces
        write = self.writer(resource, one_service=one_service)
        for span, segment in (each for each in spans if isinstance(each, Ready)):
            try:
                pieces.append(write(span, segment))
            except Exception as error:
                say("encode", "rl_otel: a %s span cannot be encoded and is dropped: %s", span.name, error)
        return pieces

    def _requests(self, pieces: list[Piece]) -> Iterator[Request]:
        begin = size = 0
        for end, piece in enumerate(pieces, 1):
            size += len(piece.data)
            if size > _SIZE or end == len(pieces):
                yield Request(self._encoding, pieces[begin:end])
                begin, size = end, 0

    def _tell(self, outcome: Outcome) -> None:
        if outcome.ok and outcome.fault is Fault.NO_RECEIVER:
            say_once("send doubtful", "rl_otel: %s. What it took counts as sent", diagnose(self._line.target, outcome))
        elif not outcome.ok or outcome.rejected:
            say("send", "rl_otel: %s", diagnose(self._line.target, outcome))


def _smaller_may_pass(outcome: Outcome, refusals: int) -> bool:
    """Whether half of a request may be taken: a span that nobody takes must not take its neighbours along."""
    return outcome.state is State.TOO_LARGE or (outcome.fault is Fault.SPANS and refusals < _REFUSALS)
