"""The grpc side of the tests' receiver, and the answers of both sides."""

from __future__ import annotations

import time
from concurrent import futures
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceResponse
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

from tests.otlp import METRICS, TRACES, retry_info

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.receiver import Answer

_SERVICES = {
    TRACES: "opentelemetry.proto.collector.trace.v1.TraceService",
    METRICS: "opentelemetry.proto.collector.metrics.v1.MetricsService",
}


def serve(
    take: Callable[[str, str, dict[str, str], bytes], Answer], port: int, pair: tuple[str, str] | None
) -> tuple[grpc.Server, int]:
    """Serve both signals on a port (0 for any), with TLS where there are files of a key and its certificate."""

    def export(signal: str, body: bytes, context: grpc.ServicerContext) -> bytes:
        metadata = {str(key): str(value) for key, value in context.invocation_metadata()}
        answer = take("grpc", f"/{_SERVICES[signal]}/Export", metadata, body)
        time.sleep(answer.delay)
        if not answer.accepts:
            if answer.retry_after is not None:
                context.set_trailing_metadata((("grpc-status-details-bin", retry_info(float(answer.retry_after))),))
            context.abort(grpc.StatusCode[answer.code], answer.text)
        return bytes(response(answer, signal).SerializeToString())

    server = grpc.server(futures.ThreadPoolExecutor(8))
    for signal, service in _SERVICES.items():
        handler = grpc.unary_unary_rpc_method_handler(partial(export, signal))
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, {"Export": handler}),))
    if pair is not None:
        credentials = grpc.ssl_server_credentials([tuple(Path(file).read_bytes() for file in pair)])
        port = server.add_secure_port(f"127.0.0.1:{port}", credentials)
    else:
        port = server.add_insecure_port(f"127.0.0.1:{port}")
    server.start()
    return server, port


def response(answer: Answer, signal: str) -> Any:
    """Return what a receiver says that has accepted a request, perhaps without some of it."""
    if signal == TRACES:
        said: Any = ExportTraceServiceResponse()
        said.partial_success.rejected_spans = answer.rejected
    else:
        said = ExportMetricsServiceResponse()
        said.partial_success.rejected_data_points = answer.rejected
    if not answer.rejected:
        said.ClearField("partial_success")
    else:
        said.partial_success.error_message = answer.text
    return said
