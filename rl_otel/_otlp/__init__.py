"""Spans as OTLP: `ExportTraceServiceRequest` written by hand, as protobuf and as JSON.

Recording is what this library exists for, and the generated protobuf classes cost more than everything else on a
span's way. Nothing here imports opentelemetry or protobuf, so files can be exported without either.
"""

from rl_otel._otlp.clean import Span, Unencodable
from rl_otel._otlp.request import (
    Batch,
    Encoded,
    Encoding,
    Piece,
    Request,
    Writer,
    encode,
    encode_json,
    encode_protobuf,
    encoding_of,
    groups,
)

__all__ = [
    "Batch",
    "Encoded",
    "Encoding",
    "Piece",
    "Request",
    "Span",
    "Unencodable",
    "Writer",
    "encode",
    "encode_json",
    "encode_protobuf",
    "encoding_of",
    "groups",
]
