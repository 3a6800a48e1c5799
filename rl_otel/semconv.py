"""Every name rl_otel writes: spans, attributes, and the words `record()` takes.

Nothing outside this module spells a name of ours. Own attributes start with `rl.`; `gen_ai.*` names come from the
OpenTelemetry GenAI conventions and are used where one exists, never extended.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

SCOPE: Final = "rl_otel"

# --- Spans: low-cardinality names; ids are attributes. ---------------------------------------------------------------
STEP: Final = "step"
ROLLOUT: Final = "rollout"
TRAJECTORY: Final = "trajectory"
GENERATE: Final = "generate"
ENV_STEP: Final = "env.step"
ENV_RESET: Final = "env.reset"
REWARD: Final = "reward"
WAIT: Final = "wait"
LOGPROBS: Final = "logprobs"
REF_LOGPROBS: Final = "ref_logprobs"
VALUES: Final = "values"
ADVANTAGE: Final = "advantage"
DATA: Final = "data"
TRAIN: Final = "train"
OPTIMIZER: Final = "optimizer"
WEIGHT_SYNC: Final = "weight_sync"
OFFLOAD: Final = "offload"
ONLOAD: Final = "onload"
CHECKPOINT: Final = "checkpoint"
EVAL: Final = "eval"

#: What may be a phase: a row of the step table. `reward` and `wait` inside a trajectory are parts of it instead.
PHASES: Final = (
    ROLLOUT, REWARD, LOGPROBS, REF_LOGPROBS, VALUES, ADVANTAGE, DATA, TRAIN, OPTIMIZER, WEIGHT_SYNC, OFFLOAD, ONLOAD,
    CHECKPOINT, EVAL, WAIT,
)  # fmt: skip

#: Where the opener is not called as its spans are.
OPENERS: Final = {ENV_STEP: "env_step", ENV_RESET: "env_reset"}
NAMES: Final = {opener: name for name, opener in OPENERS.items()}

#: What a trajectory's time divides into, in order of precedence where children overlap; the rest is `other`.
PARTS: Final = ("generate", "env", "reward", "wait")
OTHER: Final = "other"
IDLE: Final = "idle"  # between two steps

#: Names that stand for something else in every figure, so that no phase of one's own may have them.
NO_PHASES: Final = frozenset({STEP, ROLLOUT, TRAJECTORY, GENERATE, ENV_STEP, ENV_RESET, EVAL, OTHER, IDLE})

#: The part each direct child of a trajectory counts as.
PART_OF: Final = {GENERATE: "generate", ENV_STEP: "env", ENV_RESET: "env", REWARD: "reward", WAIT: "wait"}

#: Back ends colour by service: model time and environment time get one each, `<service>-generate` and `<service>-env`.
SERVICE_SUFFIX: Final = {GENERATE: "-generate", ENV_STEP: "-env", ENV_RESET: "-env"}

# --- Resource ---------------------------------------------------------------------------------------------------------
SERVICE_NAME: Final = "service.name"
SERVICE_INSTANCE_ID: Final = "service.instance.id"
HOST_NAME: Final = "host.name"
PROCESS_PID: Final = "process.pid"
SDK_NAME: Final = "telemetry.sdk.name"
SDK_LANGUAGE: Final = "telemetry.sdk.language"
SDK_VERSION: Final = "telemetry.sdk.version"
RUN_ID: Final = "rl.run.id"
RUN_RESTART: Final = "rl.run.restart"
ROLE: Final = "rl.role"
RANK: Final = "rl.rank"
WORLD_SIZE: Final = "rl.world_size"

# --- On any span ------------------------------------------------------------------------------------------------------
STEP_INDEX: Final = "rl.step"
PHASE: Final = "rl.phase"
MODE: Final = "rl.mode"
MODE_EVAL: Final = "eval"
CUSTOM: Final = "rl.custom."
ATTRIBUTES_DROPPED: Final = "rl.attributes.dropped"  # how many were above the most that a span takes
LATE: Final = "rl.late"
ABORTED: Final = "rl.aborted"
TIME_REPAIRED: Final = "rl.time.repaired"
ERROR_TYPE: Final = "error.type"
EXCEPTION: Final = "exception"
EXCEPTION_TYPE: Final = "exception.type"
EXCEPTION_MESSAGE: Final = "exception.message"

# --- step -------------------------------------------------------------------------------------------------------------
LOSS: Final = "rl.loss"
REWARD_MEAN: Final = "rl.reward.mean"
REWARD_MIN: Final = "rl.reward.min"
REWARD_MAX: Final = "rl.reward.max"
SAMPLES: Final = "rl.samples"
EPOCH: Final = "rl.epoch"
OPTIMIZER_STEPS: Final = "rl.optimizer.steps"
STEP_LEFT: Final = "rl.step.left"
OVERHEAD: Final = "rl.telemetry.overhead"

# --- rollout (and eval): its trajectories in figures ------------------------------------------------------------------
ROLLOUT_INDEX: Final = "rl.rollout.index"
ROLLOUT_TRAJECTORIES: Final = "rl.rollout.trajectories"
ROLLOUT_INPUT_TOKENS: Final = "rl.rollout.input_tokens"
ROLLOUT_OUTPUT_TOKENS: Final = "rl.rollout.output_tokens"
ROLLOUT_TOKEN_RATE: Final = "rl.rollout.output_tokens.rate"
ROLLOUT_ENV_RATIO: Final = "rl.rollout.env_time.ratio"
ROLLOUT_TAIL: Final = "rl.rollout.tail.duration"
ROLLOUT_DURATION: Final = "rl.rollout.trajectory.duration"  # + .mean .p50 .p90 .max
ROLLOUT_PART: Final = "rl.rollout.{part}.duration"  # + .mean .p50 .p90 .max
ROLLOUT_CONTINUED: Final = "rl.rollout.continued"  # trajectories that another segment takes up
ROLLOUT_OUTCOME: Final = "rl.rollout.outcome.{outcome}"
ROLLOUT_SHOWN: Final = "rl.rollout.shown.{how}"  # trajectories: full, totals (without detail), none
ROLLOUT_SPANS_SHOWN: Final = "rl.rollout.spans.shown"
ROLLOUT_SPANS_KEPT: Final = "rl.rollout.spans.kept"  # in the journal alone
TRAJECTORIES_DROPPED: Final = "rl.trajectories.dropped.{reason}"

# --- trajectory -------------------------------------------------------------------------------------------------------
TRAJECTORY_ID: Final = "rl.trajectory.id"
GROUP_ID: Final = "rl.group.id"
GROUP_TRAJECTORIES: Final = "rl.group.trajectories"  # on a link that stands for so many
SAMPLE_INDEX: Final = "rl.sample.index"
ATTEMPT: Final = "rl.attempt"
SEGMENT: Final = "rl.segment"
POLICY_VERSION: Final = "rl.policy.version"
POLICY_VERSION_FIRST: Final = "rl.policy.version.first"
POLICY_VERSION_LAST: Final = "rl.policy.version.last"
AGENT_NAME: Final = "rl.agent.name"
TRAJECTORY_TURNS: Final = "rl.trajectory.turns"
TRAJECTORY_REWARD: Final = "rl.trajectory.reward"
TRAJECTORY_OUTCOME: Final = "rl.trajectory.outcome"
TRAJECTORY_REASON: Final = "rl.trajectory.reason"
TRAJECTORY_CONTINUES: Final = "rl.trajectory.continues"  # true where another segment takes it up
TRAJECTORY_INPUT_TOKENS: Final = "rl.trajectory.input_tokens"
TRAJECTORY_OUTPUT_TOKENS: Final = "rl.trajectory.output_tokens"
TRAJECTORY_PART: Final = "rl.trajectory.{part}.duration"
TRAJECTORY_DURATION: Final = "rl.trajectory.duration"  # on a link, s

COMPLETED: Final = "completed"
TRUNCATED: Final = "truncated"
ABORTED_OUTCOME: Final = "aborted"
TIMEOUT: Final = "timeout"
ERROR: Final = "error"
OUTCOMES: Final = (COMPLETED, TRUNCATED, ABORTED_OUTCOME, TIMEOUT, ERROR)

# --- generate ---------------------------------------------------------------------------------------------------------
TURN: Final = "rl.turn"
PURPOSE: Final = "rl.generate.purpose"
PURPOSE_POLICY: Final = "policy"
PURPOSES: Final = (PURPOSE_POLICY, "judge", "user")
SEQUENCES: Final = "rl.generate.sequences"
QUEUE_DURATION: Final = "rl.generate.queue.duration"
OPERATION_NAME: Final = "gen_ai.operation.name"
PROVIDER_NAME: Final = "gen_ai.provider.name"
REQUEST_MODEL: Final = "gen_ai.request.model"
INPUT_TOKENS: Final = "gen_ai.usage.input_tokens"
OUTPUT_TOKENS: Final = "gen_ai.usage.output_tokens"
CACHED_TOKENS: Final = "gen_ai.usage.cache_read.input_tokens"
FINISH_REASONS: Final = "gen_ai.response.finish_reasons"
TIME_TO_FIRST_CHUNK: Final = "gen_ai.response.time_to_first_chunk"

# --- what inference servers say of a request, in s (vLLM, SGLang) -----------------------------------------------------
LATENCY: Final = "gen_ai.latency."
LATENCY_QUEUE: Final = "gen_ai.latency.time_in_queue"
LATENCY_PREFILL: Final = "gen_ai.latency.time_in_model_prefill"
LATENCY_DECODE: Final = "gen_ai.latency.time_in_model_decode"
LATENCY_FIRST_TOKEN: Final = "gen_ai.latency.time_to_first_token"

# --- env.step, env.reset ----------------------------------------------------------------------------------------------
ENVIRONMENT_NAME: Final = "rl.environment.name"
ENV_REWARD: Final = "rl.env.reward"
ENV_TERMINATED: Final = "rl.env.terminated"
ENV_TRUNCATED: Final = "rl.env.truncated"
TOOL_NAME: Final = "gen_ai.tool.name"

# --- other phases -----------------------------------------------------------------------------------------------------
MODEL_ROLE: Final = "rl.model.role"
WAIT_REASON: Final = "rl.wait.reason"
BUFFER_NAME: Final = "rl.buffer.name"
BUFFER_SIZE: Final = "rl.buffer.size"  # when a wait began
BUFFER_CAPACITY: Final = "rl.buffer.capacity"
WAIT_COLLECTIVE: Final = "collective"  # the reason of who waits for the other ranks
TRAIN_TOKENS: Final = "rl.train.tokens"
MINIBATCH_INDEX: Final = "rl.minibatch.index"
BATCH_EPOCH: Final = "rl.batch.epoch"
STALENESS: Final = "rl.staleness"  # on a link, in policy versions
STALENESS_MIN: Final = "rl.staleness.min"
STALENESS_MEAN: Final = "rl.staleness.mean"
STALENESS_MAX: Final = "rl.staleness.max"
STALENESS_COUNT: Final = "rl.staleness.count"  # trajectories of which it is known
SYNC_BYTES: Final = "rl.weight_sync.bytes"
SYNC_RATE: Final = "rl.weight_sync.bytes.rate"  # By/s of wall time
SYNC_PART: Final = "rl.weight_sync.part"
SYNC_PART_DURATION: Final = "rl.weight_sync.{part}.duration"  # the wall time that its spans cover together
SYNC_PART_COUNT: Final = "rl.weight_sync.{part}.count"
SYNC_PAUSED: Final = "rl.weight_sync.paused.duration"  # from the pause to the end of the resume
SYNC_PART_SPAN: Final = "weight_sync.{part}"
PAUSE: Final = "pause"
TRANSFER: Final = "transfer"
RESUME: Final = "resume"
SYNC_PARTS: Final = (PAUSE, "gather", TRANSFER, "load", RESUME)

# --- GPU, on any phase: of several devices the maximum, memory in bytes -----------------------------------------------
GPU_PEAK: Final = "rl.gpu.memory.allocated.peak"
GPU_RESERVED_PEAK: Final = "rl.gpu.memory.reserved.peak"
GPU_ALLOCATED: Final = "rl.gpu.memory.allocated"  # when the phase ended
GPU_PEAK_RATIO: Final = "rl.gpu.memory.peak.ratio"  # of allocated to what the device has
GPU_LOWER_BOUND: Final = "rl.gpu.memory.peak.lower_bound"  # true where the peaks may have been higher
GPU_DEVICE_USED: Final = "rl.gpu.memory.device.used.peak"  # sampled, by whoever uses the device
GPU_DEVICE_LIMIT: Final = "rl.gpu.memory.device.limit"
GPU_UTILIZATION: Final = "rl.gpu.utilization"
GPU_DURATION: Final = "rl.gpu.duration"

UNKNOWN: Final = "unknown"  # the phase where nobody knows it

# --- Text, only with `configure(text=True)` ---------------------------------------------------------------------------
TEXT: Final = "rl.text.{word}"
TEXT_WORDS: Final = frozenset({"prompt", "completion", "observation", "action"})


@dataclass(frozen=True, slots=True)
class Word:
    """What a word of `record()` becomes."""

    attribute: str
    type: type  # float, int, bool or str; a list of it where `many`
    many: bool = False


#: Words that only some spans know. A word not listed becomes `rl.custom.<word>`.
WORDS: Final[dict[str, dict[str, Word]]] = {
    STEP: {
        "loss": Word(LOSS, float),
        "reward": Word(REWARD_MEAN, float),
        "samples": Word(SAMPLES, int),
        "epoch": Word(EPOCH, float),
        "optimizer_steps": Word(OPTIMIZER_STEPS, int),
        "kl": Word("rl.kl", float),
        "entropy": Word("rl.entropy", float),
        "grad_norm": Word("rl.grad_norm", float),
        "lr": Word("rl.lr", float),
        "dropped": Word(TRAJECTORIES_DROPPED, int),  # reason -> count, or ids
    },
    ROLLOUT: {
        "rewards": Word(REWARD_MEAN, float, many=True),
        "trajectories": Word(ROLLOUT_TRAJECTORIES, int),
        "dropped": Word(TRAJECTORIES_DROPPED, int),  # reason -> count, or ids
    },
    TRAJECTORY: {
        "reward": Word(TRAJECTORY_REWARD, float),
        "outcome": Word(TRAJECTORY_OUTCOME, str),
        "reason": Word(TRAJECTORY_REASON, str),
        "continues": Word(TRAJECTORY_CONTINUES, bool),
        "policy_version": Word(POLICY_VERSION, int),
    },
    GENERATE: {
        "input_tokens": Word(INPUT_TOKENS, int, many=True),
        "output_tokens": Word(OUTPUT_TOKENS, int, many=True),
        "cached_tokens": Word(CACHED_TOKENS, int, many=True),
        "sequences": Word(SEQUENCES, int),
        "finish_reason": Word(FINISH_REASONS, str, many=True),
        "finish_reasons": Word(FINISH_REASONS, str, many=True),
        "queue_time": Word(QUEUE_DURATION, float),
        "time_to_first_token": Word(TIME_TO_FIRST_CHUNK, float),
        "policy_version": Word(POLICY_VERSION, int),
    },
    ENV_STEP: {
        "reward": Word(ENV_REWARD, float, many=True),
        "terminated": Word(ENV_TERMINATED, bool, many=True),
        "truncated": Word(ENV_TRUNCATED, bool, many=True),
        "tool": Word(TOOL_NAME, str),
    },
    TRAIN: {
        "tokens": Word(TRAIN_TOKENS, int),
        "minibatch": Word(MINIBATCH_INDEX, int),
        "epoch": Word(BATCH_EPOCH, int),
        "policy_version": Word(POLICY_VERSION, int),
    },
    WEIGHT_SYNC: {
        "bytes": Word(SYNC_BYTES, int),
        "policy_version": Word(POLICY_VERSION, int),
    },
}
WORDS[EVAL] = WORDS[ROLLOUT]
WORDS[ENV_RESET] = WORDS[ENV_STEP]
