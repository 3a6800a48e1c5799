"""`rl-otel ship`: what a run's journals still have for the back end, and what its budget kept back."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

import rl_otel
from rl_otel import _cli, semconv
from rl_otel._cli import ship as command
from tests.receiver import Answer, Receiver, dead_port
from tests.shipping import arrived, copied, ended, names, play, record, ship


@pytest.fixture
def run() -> Path:
    """Two steps of forty trajectories, of which nothing was sent, and little may be."""
    return record("runs", trace_budget=300)


def without_rollouts(receiver: Receiver) -> dict[bytes, bytes]:
    """Return what arrived but for rollouts, which tell what was shown."""
    rollouts = {span.proto.span_id for span in receiver.spans if span.name == "rollout"}
    return {span: encoded for span, encoded in arrived(receiver).items() if span not in rollouts}


# --- Nothing to do, or nowhere to go ----------------------------------------------------------------------------------


def test_without_an_endpoint_it_says_what_to_set(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The line names the option and the variable."""
    assert ship(run, None) == 2
    message = "rl-otel ship: nowhere to send to: give --endpoint URL or set OTEL_EXPORTER_OTLP_ENDPOINT\n"
    assert capsys.readouterr().err == message


def test_what_is_not_there_is_said(run: Path, receiver: Receiver, capsys: pytest.CaptureFixture[str]) -> None:
    """A step, a trajectory or a run that nobody knows is wrong usage, and nothing is sent for the last two."""
    assert ship(Path("nowhere"), receiver) == 2
    assert ship(run, receiver, "--step", "7") == 2
    assert receiver.spans == []
    assert ship(run, receiver, "--trajectory", "99/9") == 2
    assert "rl-otel ship: no step 7 in runs/run\n" in (err := capsys.readouterr().err)
    assert err.endswith("rl-otel ship: no trajectory 99/9 has ended in runs/run\n")


@pytest.mark.parametrize("options", [("--slowest", "0"), ("--own-trace",), ("--all", "--slowest", "1")])
def test_options_that_mean_nothing_are_refused(run: Path, receiver: Receiver, options: tuple[str, ...]) -> None:
    """The exit code is that of wrong usage."""
    try:
        code = ship(run, receiver, *options)
    except SystemExit as left:
        code = int(str(left.code))
    assert code == 2
    assert receiver.spans == []


def test_where_nobody_answers_all_is_pending(
    run: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It gives up after some tries, and the exit code tells."""
    monkeypatch.setattr(command, "_TRIES", 1)
    assert _cli.main(["ship", str(run), "--endpoint", f"http://127.0.0.1:{dead_port()}"]) == 1
    out = capsys.readouterr().out.splitlines()
    assert out[0].startswith("0 spans sent to http://127.0.0.1:")
    assert out[-1].endswith(" pending")


def test_what_the_back_end_refuses_is_not_sent_again(
    run: Path, receiver: Receiver, capsys: pytest.CaptureFixture[str]
) -> None:
    """Spans that were refused for good count as dropped, once."""
    receiver.script(then=Answer(400, text="no"))
    assert ship(run, receiver, "--step", "0") == 1
    assert " dropped: refused for good" in capsys.readouterr().out
    receiver.script()
    assert ship(run, receiver, "--step", "0") == 0
    assert receiver.spans == []


# --- With the cuts of the run -----------------------------------------------------------------------------------------


def test_a_run_without_endpoint_is_shipped_with_its_cuts(run: Path, receiver: Receiver) -> None:
    """As much of each step goes as its budget lets through, the phases and totals of all."""
    assert ship(run, receiver) == 0
    spans = arrived(receiver)
    assert 400 < len(spans) <= 600
    assert (names(receiver)["step"], names(receiver)["rollout"], names(receiver)["trajectory"]) == (2, 2, 80)


def figures(capsys: pytest.CaptureFixture[str]) -> tuple[int, int, int]:
    """Return what the command said: sent, sent before, kept back."""
    said = capsys.readouterr().out.replace(",", "")
    found = (
        re.search(pattern, said) for pattern in (r"(\d+) spans sent", r"(\d+) were sent before", r"(\d+) kept back")
    )
    sent, before, kept = (int(each.group(1)) if each else 0 for each in found)
    return sent, before, kept


@pytest.mark.parametrize(
    ("options", "spans"),
    [
        (("--step", "1"), 1642),
        (("--step", "1", "--trajectory", "3/0"), 1642),
        (("--trajectory", "3/0"), 2 * 1642),
        ((), 2 * 1642),
    ],
)
def test_the_figures_are_of_one_scope(
    run: Path, receiver: Receiver, capsys: pytest.CaptureFixture[str], options: tuple[str, ...], spans: int
) -> None:
    """Sent now, sent before and kept back are all spans of the run or of the step; said again, all is sent before."""
    assert ship(run, receiver, *options, "--force") == 0
    sent, before, kept = figures(capsys)
    assert (sent, before, sent + kept) == (len(receiver.spans), 0, spans)
    assert ship(run, receiver, *options, "--force") == 0
    assert figures(capsys) == (0, sent, kept)


def test_what_was_asked_for_before_was_sent_before(
    run: Path, receiver: Receiver, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whatever was shipped on demand counts as sent, for the whole run as for its step."""
    assert ship(run, receiver, "--step", "0", "--slowest", "5", "--force") == 0
    sent, _, kept = figures(capsys)
    assert ship(run, receiver, "--step", "0") == 0
    assert figures(capsys) == (0, sent, kept)
    assert ship(run, receiver) == 0
    more, before, _ = figures(capsys)
    assert (before, before + more) == (sent, len(receiver.spans))


def test_a_step_alone(run: Path, receiver: Receiver) -> None:
    """`--step` leaves the other steps for later."""
    assert ship(run, receiver, "--step", "1") == 0
    assert {span.attributes[semconv.STEP_INDEX] for span in receiver.spans} == {1}
    first = len(arrived(receiver))
    assert ship(run, receiver) == 0
    assert first < len(arrived(receiver)) <= 600


# --- What the budget kept back ----------------------------------------------------------------------------------------


@pytest.mark.once
@pytest.mark.parametrize(
    ("options", "trajectories"),
    [
        (("--trajectory", "3/0"), 2),
        (("--trajectory", "3/0", "--step", "1"), 1),
        (("--slowest", "9"), 18),
        (("--all",), 80),
    ],
)
def test_detail_follows_as_it_would_have_been(
    run: Path, receiver: Receiver, options: tuple[str, ...], trajectories: int
) -> None:
    """Under the same ids and byte for byte as a run with a large budget sends it, and each span once."""
    assert ship(run, receiver) == 0
    assert ship(run, receiver, *options, "--force") == 0
    with Receiver() as other:
        assert ship(copied(run, "large", trace_budget=100_000), other) == 0
        whole, sent = without_rollouts(other), without_rollouts(receiver)
        assert sent == {span: whole[span] for span in sent}
    complete = {s.proto.span_id: 0 for s in receiver.spans if s.name == "trajectory"}
    for span in receiver.spans:
        if span.proto.parent_span_id in complete:
            complete[span.proto.parent_span_id] += 1
    assert sum(count == 40 for count in complete.values()) >= trajectories
    assert ship(run, receiver, *options, "--force") == 0
    assert len(arrived(receiver)) == len(sent) + 2


@pytest.mark.once
def test_all_is_all(run: Path, receiver: Receiver, capsys: pytest.CaptureFixture[str]) -> None:
    """With `--all --force` every span that ended is there, and nothing is kept back any more."""
    assert ship(run, receiver, "--all", "--force") == 0
    assert set(arrived(receiver)) == ended(run)
    assert "kept back" not in capsys.readouterr().out


def test_a_rollout_that_was_kept_says_what_is_shown_of_it(receiver: Receiver) -> None:
    """A budget of one span keeps the rollout too; asked for, it comes as that budget would have had it sent."""
    assert ship(record("runs", 2, 1, trace_budget=1), receiver, "--all", "--force") == 0
    shown = [{how: span.attributes[f"rl.rollout.shown.{how}"] for how in ("full", "totals", "none")}
             for span in receiver.spans if span.name == "rollout"]  # fmt: skip
    assert shown == [{"full": 0, "totals": 0, "none": 2}] * 2


def test_a_trace_that_would_be_too_large_is_refused(
    run: Path, receiver: Receiver, capsys: pytest.CaptureFixture[str]
) -> None:
    """The line has the figures and both ways out, and nothing more is sent."""
    assert ship(run, receiver) == 0
    before = len(arrived(receiver))
    capsys.readouterr()
    assert ship(run, receiver, "--all", "--step", "1") == 1
    (line,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("step 1 ")]
    assert re.search(r" more spans would make 4\d\d\.\d kB, and its budget allows 135\.0 kB: not sent\.", line)
    assert "--own-trace" in line
    assert "--force" in line
    assert len(arrived(receiver)) == before


def test_a_small_budget_is_said_in_a_unit_that_fits(receiver: Receiver, capsys: pytest.CaptureFixture[str]) -> None:
    """The limit is the room that a few spans have, not what back ends open."""
    assert ship(record("runs", 4, 10, trace_budget=10), receiver, "--all") == 1
    assert "kB, and its budget allows 16.4 kB: not sent" in capsys.readouterr().out


def test_own_trace(run: Path, receiver: Receiver, capsys: pytest.CaptureFixture[str]) -> None:
    """A trajectory and all inside it become a trace of their own, once, whose root links to the original."""
    assert ship(run, receiver, "--step", "1") == 0
    before = len(receiver.spans)
    assert ship(run, receiver, "--step", "1", "--trajectory", "3/0", "--own-trace") == 0
    spans = receiver.spans[before:]
    (trace,) = {span.proto.trace_id for span in spans}
    (root,) = [span for span in spans if not span.proto.parent_span_id]
    original = {span.proto.span_id: span.proto.trace_id for span in receiver.spans[:before]}
    assert (len(spans), root.name) == (41, "trajectory")
    assert original[root.proto.span_id] != trace
    link = root.proto.links[-1]
    assert (link.span_id, link.trace_id) == (root.proto.span_id, original[root.proto.span_id])
    assert {span.proto.parent_span_id for span in spans} == {b"", root.proto.span_id}
    assert ship(run, receiver, "--step", "1", "--trajectory", "3/0", "--own-trace") == 0
    assert len(receiver.spans) == before + 41
    told = [line for line in capsys.readouterr().out.splitlines() if "sent before" in line]
    assert [line.rpartition("; ")[2] for line in told] == [
        "0 were sent before",
        f"{before} were sent before",
        f"{before + 41} were sent before",
    ]


def test_detail_of_a_living_process(receiver: Receiver, capsys: pytest.CaptureFixture[str]) -> None:
    """What its budget kept can be had while it runs, and nothing that it will send itself."""
    rl_otel.configure(service_name="grpo", endpoint=receiver.http, run_dir="runs", run_id="run", trace_budget=300)
    with rl_otel.step(0), rl_otel.rollout():
        for group in range(20):
            play(group, 20)
    assert rl_otel.flush().pending == 0
    chosen = next(name for name, spans in detail(receiver).items() if spans == 0)
    with rl_otel.step(1), rl_otel.rollout():
        play(20, 5)
        rl_otel.flush()
        assert ship(Path("runs/run"), receiver, "--trajectory", chosen, "--force") == 1
    rl_otel.shutdown()
    assert "process" in capsys.readouterr().out
    spans = arrived(receiver)
    assert len(spans) <= 300 + 40 + 13
    assert detail(receiver)[chosen] == 40


def detail(receiver: Receiver) -> dict[str, int]:
    """Return by trajectory how many spans inside it arrived."""
    names = {s.proto.span_id: s.attributes[semconv.TRAJECTORY_ID] for s in receiver.spans if s.name == "trajectory"}
    inside = Counter(names.get(span.proto.parent_span_id) for span in receiver.spans)
    return {name: inside[name] for name in names.values()}
