"""Every metric that rl_otel writes, as data, and the attributes that only metrics have.

Ids of steps, trajectories, groups and prompts label no metric: exemplars carry them.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from rl_otel import semconv

MODE_TRAIN: Final = "train"
TOKEN_TYPE: Final = "gen_ai.token.type"
TOKENS_IN: Final = "input"
TOKENS_OUT: Final = "output"
DROPPED_REASON: Final = "rl.trajectories.dropped.reason"
TRAJECTORIES_STATE: Final = "rl.trajectories.state"
HW_ID: Final = "hw.id"
HW_TYPE: Final = "hw.type"
HW_GPU: Final = "gpu"
TELEMETRY_STATE: Final = "rl.telemetry.state"
OVERFLOW: Final = "otel.metric.overflow"  # true on the series of all that is more than a metric holds apart

HISTOGRAM: Final = "histogram"
COUNTER: Final = "counter"
GAUGE: Final = "gauge"
UP_DOWN: Final = "up-down counter"

#: Bounds in s, from a quick call to the longest phase.
TIMES: Final = (
    0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1200.0,
    1800.0, 3600.0, 7200.0,
)  # fmt: skip
COUNTS: Final = (1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0, 24.0, 32.0, 48.0, 64.0, 128.0)

VERSIONS: Final = (0.0, 1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 16.0, 32.0)


class Metric(NamedTuple):
    """One metric as data; `docs/metrics.md` is compared with the whole table."""

    name: str
    kind: str
    unit: str
    attributes: tuple[str, ...]
    doc: str
    bounds: tuple[float, ...] = ()


_PLAYED: Final = (semconv.ENVIRONMENT_NAME, semconv.MODE)

LOOP: Final = Metric("rl.loop.duration", HISTOGRAM, "s", (semconv.ROLE,), "Duration of a whole step.", TIMES)
PHASE: Final = Metric(
    "rl.phase.duration",
    HISTOGRAM,
    "s",
    (semconv.PHASE, semconv.ROLE, semconv.MODE),
    "Duration of a phase, each time it is entered.",
    TIMES,
)
PHASE_ACTIVE: Final = Metric(
    "rl.phase.active", GAUGE, "{phase}", (semconv.PHASE, semconv.ROLE),
    "1 for the phase that is active now, 0 for all others; `other` between phases, `idle` between steps.",
)  # fmt: skip
PHASE_AGE: Final = Metric(
    "rl.phase.open.duration",
    GAUGE,
    "s",
    (semconv.PHASE, semconv.ROLE),
    "For how long a phase has been open, 0 where it is not.",
)
ACTIVE: Final = Metric(
    "rl.trajectories.active", GAUGE, "{trajectory}", (TRAJECTORIES_STATE,),
    "Trajectories in flight, by what they are doing: generate, env, reward, wait or other.",
)  # fmt: skip
TRAJECTORY_AGE: Final = Metric(
    "rl.trajectory.open.duration", GAUGE, "s", (), "Age of the oldest trajectory in flight, 0 where there is none."
)
TRAJECTORY: Final = Metric(
    "rl.trajectory.duration", HISTOGRAM, "s", (semconv.TRAJECTORY_OUTCOME, *_PLAYED), "Duration of a trajectory.", TIMES
)
TRAJECTORY_GENERATE: Final = Metric(
    "rl.trajectory.generate.duration", HISTOGRAM, "s", (semconv.TRAJECTORY_OUTCOME, *_PLAYED),
    "Time of a trajectory in which the model was generating.", TIMES,
)  # fmt: skip
TRAJECTORY_ENV: Final = Metric(
    "rl.trajectory.env.duration", HISTOGRAM, "s", (semconv.TRAJECTORY_OUTCOME, *_PLAYED),
    "Time of a trajectory in which the environment was at work and the model was not.", TIMES,
)  # fmt: skip
GENERATE: Final = Metric("rl.generate.duration", HISTOGRAM, "s", _PLAYED, "Duration of a model call.", TIMES)
ENV_STEP: Final = Metric(
    "rl.env.step.duration", HISTOGRAM, "s", _PLAYED, "Duration of an environment step or tool call.", TIMES
)
ENV_RATIO: Final = Metric(
    "rl.rollout.env_time.ratio", GAUGE, "1", _PLAYED, "Environment time over model and environment time, last rollout."
)
WAIT: Final = Metric(
    "rl.wait.duration",
    HISTOGRAM,
    "s",
    (semconv.WAIT_REASON, semconv.ROLE),
    "Duration of a wait, in a step or a trajectory.",
    TIMES,
)
SYNC_PART: Final = Metric(
    "rl.weight_sync.part.duration",
    HISTOGRAM,
    "s",
    (semconv.SYNC_PART,),
    "Duration of each part of a weight sync.",
    TIMES,
)
TURNS: Final = Metric("rl.trajectory.turns", HISTOGRAM, "{turn}", _PLAYED, "Turns of a trajectory.", COUNTS)
SAMPLES: Final = Metric("rl.samples", COUNTER, "{sample}", (), "Training sequences, as recorded on steps.")
TOKENS: Final = Metric(
    "rl.tokens",
    COUNTER,
    "{token}",
    (TOKEN_TYPE, semconv.PURPOSE, semconv.MODE),
    "Tokens of model calls, input and output.",
)
TRAJECTORIES: Final = Metric(
    "rl.trajectories", COUNTER, "{trajectory}", (semconv.TRAJECTORY_OUTCOME, *_PLAYED), "Trajectories that ended."
)
DROPPED: Final = Metric(
    "rl.trajectories.dropped", COUNTER, "{trajectory}", (DROPPED_REASON, *_PLAYED),
    "Trajectories that no training used, as recorded on rollouts and steps.",
)  # fmt: skip
BUFFER_SIZE: Final = Metric(
    semconv.BUFFER_SIZE, GAUGE, "{trajectory}", (semconv.BUFFER_NAME,), "How much is in a buffer now."
)
BUFFER_CAPACITY: Final = Metric(
    semconv.BUFFER_CAPACITY, GAUGE, "{trajectory}", (semconv.BUFFER_NAME,), "How much a buffer takes."
)
STALENESS: Final = Metric(
    semconv.STALENESS,
    HISTOGRAM,
    "{version}",
    (),
    "By how many policy versions a trajectory that is trained on is behind.",
    VERSIONS,
)
GPU_PEAK: Final = Metric(
    "rl.gpu.memory.peak", GAUGE, "By", (semconv.PHASE, HW_ID), "Most memory that torch had allocated in a phase."
)
GPU_TIME: Final = Metric(
    "rl.gpu.time",
    COUNTER,
    "s",
    (HW_ID, semconv.PHASE, semconv.ROLE),
    "Time for which a GPU was sampled, by the phase it was in.",
)
GPU_BUSY: Final = Metric(
    "rl.gpu.busy.time",
    COUNTER,
    "s",
    (HW_ID, semconv.PHASE, semconv.ROLE),
    "The same, each sample weighted with its utilization.",
)
GPU_UTILIZATION: Final = Metric("hw.gpu.utilization", GAUGE, "1", (HW_ID,), "Share of time a GPU is busy.")
GPU_USED: Final = Metric("hw.gpu.memory.usage", UP_DOWN, "By", (HW_ID,), "Memory in use on a GPU, by anybody.")
GPU_LIMIT: Final = Metric("hw.gpu.memory.limit", UP_DOWN, "By", (HW_ID,), "Memory of a GPU.")
POWER: Final = Metric("hw.power", GAUGE, "W", (HW_ID, HW_TYPE), "Power that a GPU draws.")
REWARD: Final = Metric("rl.reward.mean", GAUGE, "", (), "Mean reward of the last step.")
LOSS: Final = Metric("rl.loss", GAUGE, "", (), "Loss of the last step.")
SPANS: Final = Metric(
    "rl.telemetry.spans", COUNTER, "{span}", (TELEMETRY_STATE,),
    "Spans of this process: ended, sent, kept (in the journal alone) and dropped.",
)  # fmt: skip
OVERHEAD: Final = Metric(
    "rl.telemetry.overhead",
    COUNTER,
    "s",
    (),
    "CPU time that rl_otel has taken in this process, in the host's calls and in threads.",
)

#: Every metric, in the order of the documentation.
METRICS: Final = (
    LOOP, PHASE, PHASE_ACTIVE, PHASE_AGE, ACTIVE, TRAJECTORY_AGE,
    TRAJECTORY, TRAJECTORY_GENERATE, TRAJECTORY_ENV, GENERATE, ENV_STEP,
    ENV_RATIO, WAIT, SYNC_PART, TURNS, SAMPLES, TOKENS, TRAJECTORIES,
    DROPPED, BUFFER_SIZE, BUFFER_CAPACITY, STALENESS, GPU_PEAK, GPU_TIME, GPU_BUSY,
    GPU_UTILIZATION, GPU_USED, GPU_LIMIT, POWER, REWARD, LOSS, SPANS,
    OVERHEAD,
)  # fmt: skip
