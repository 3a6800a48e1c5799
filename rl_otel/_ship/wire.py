"""Delivers spans over OTLP: encodes them into requests of a bounded size and sends each."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from rl_otel._otlp import Request, encoding_of
from rl_otel._record import Attributes
from rl_otel._safety import say
from rl_otel._send import Fault, Outcome, Sender, State, Target, diagnose, sender_for
from rl_otel._ship.courier import Verdict
from rl_otel._ship.route import Span

#: Requests of one delivery that are divided for what a span of them may say: enough to find two among a thousand.
_REFUSALS: Final = 20
_SIZE: Final = 1 << 20  # bytes of a request; receivers take 4 MiB by default


class Wire:
    """The outlet to an OTLP endpoint."""

    def __init__(self, target: Target, timeout: float) -> None:
        self._target = target
        self._timeout = timeout
        self._encoding = encoding_of(target.protocol)
        self._sender: Sender | None = None  # made by the thread that sends, after any fork
        self._away = False

    def deliver(self, spans: list[Span], resource: Attributes, *, one_service: bool) -> Verdict:
        """Send `spans` in as many requests as they need; what comes after one that failed is left for later."""
        sent = dropped = refusals = 0
        requests = list(self._requests(spans, resource, one_service=one_service))
        dropped += len(spans) - sum(len(request.spans) for request in requests)
        while requests:
            request = requests.pop(0)
            outcome = self._send(request)
            if outcome.ok:
                self._is_back()
                sent += len(request.spans) - outcome.rejected
                dropped += outcome.rejected
                if outcome.rejected:
                    self._tell(outcome)
            elif len(request.spans) > 1 and _smaller_may_pass(outcome, refusals):
                refusals += 1
                requests[:0] = request.split()
            elif outcome.state is State.RETRY or outcome.fault.of_address:
                self._away = True
                self._tell(outcome)
                rest = [span for each in (request, *requests) for span in each.spans]
                return Verdict(sent, dropped, rest, outcome.after)
            else:
                self._tell(outcome)
                dropped += len(request.spans)
        return Verdict(sent, dropped)

    def rest(self) -> None:
        """Close the connection for now."""
        self.close()

    def close(self) -> None:
        """Close the connection."""
        if self._sender is not None:
            self._sender.close()

    def _requests(self, spans: list[Span], resource: Attributes, *, one_service: bool) -> Iterator[Request]:
        def empty() -> Request:
            return Request(self._encoding, resource, one_service=one_service)

        request = empty()
        for span in spans:
            try:
                request.add(span)
            except Exception as error:
                say("encode", "rl_otel: a %s span cannot be encoded and is dropped: %s", span.name, error)
            if request.size > _SIZE:
                yield request
                request = empty()
        if request.spans:
            yield request

    def _send(self, request: Request) -> Outcome:
        if self._sender is None:
            self._sender = sender_for(self._target)
        return self._sender.send(request.body(), len(request.spans), self._timeout)

    def _tell(self, outcome: Outcome) -> None:
        say("send", "%s", diagnose(self._target, outcome))

    def _is_back(self) -> None:
        if self._away:
            self._away = False
            say("back", "rl_otel: %s answers again", self._target.url)


def _smaller_may_pass(outcome: Outcome, refusals: int) -> bool:
    """Whether half of a request may be taken: a span that nobody takes must not take its neighbours along."""
    return outcome.state is State.TOO_LARGE or (outcome.fault is Fault.SPANS and refusals < _REFUSALS)
