"""Servers and clients of WebSocket and gRPC, on both sides of a gateway.

    peers.py serve             starts both servers and prints their ports
    peers.py websocket URL     a WebSocket client; ends with an error if anything differs
    peers.py grpc ADDRESS      a gRPC client
    peers.py grpc-denied ADDRESS    calls until one is denied
"""

import asyncio
import queue
import sys
from concurrent import futures

import grpc
import websockets
from websockets.asyncio.client import connect
from websockets.asyncio.server import serve

LARGE = 4 << 20


async def echo(socket):
    if socket.request.path == "/close":
        await socket.close(4001, "as asked")
    async for message in socket:
        await socket.send(message)


def answers(requests, context):
    """Answers each request of a stream before the next one comes."""
    for request in requests:
        yield request.upper()
    context.set_trailing_metadata((("x-trailer", "end"),))


def fail(request, context):
    context.abort(grpc.StatusCode.NOT_FOUND, "no such thing")


def unary(request, context):
    context.send_initial_metadata((("x-first", "1"),))
    context.set_trailing_metadata((("x-trailer", "end"), ("x-bin", b"\0\xff")))
    return request


async def serve_both():
    server = grpc.server(futures.ThreadPoolExecutor(max_workers=8))
    handlers = {
        "Unary": grpc.unary_unary_rpc_method_handler(unary),
        "Fail": grpc.unary_unary_rpc_method_handler(fail),
        "Count": grpc.unary_stream_rpc_method_handler(
            lambda request, context: (b"%d" % index for index in range(int(request)))
        ),
        "Sum": grpc.stream_unary_rpc_method_handler(
            lambda requests, context: b"%d" % sum(map(int, requests))
        ),
        "Talk": grpc.stream_stream_rpc_method_handler(answers),
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("test.Echo", handlers),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    async with serve(echo, "127.0.0.1", 0, max_size=2 * LARGE) as sockets:
        websocket = sockets.sockets[0].getsockname()[1]
        print(f"ports {websocket} {port}", flush=True)
        await asyncio.get_running_loop().create_future()


async def websocket_client(url):
    async with connect(url, max_size=2 * LARGE) as socket:
        for message in ["", "text \u00e9", b"", b"\0\xff" * 100, "x" * LARGE, bytes(LARGE)]:
            await socket.send(message)
            assert await socket.recv() == message
        # In fragments, with a ping between them.
        await socket.send(fragment for fragment in ["a", "b" * 70_000, "c"])
        assert await socket.recv() == "a" + "b" * 70_000 + "c"
        await (await socket.ping(b"payload"))
        # Many at once, in order.
        for index in range(1_000):
            await socket.send(str(index))
        assert [int(await socket.recv()) for _ in range(1_000)] == list(range(1_000))
        await socket.close(4000, "done")
        assert (socket.close_code, socket.close_reason) == (4000, "done")
    async with connect(url + "/close") as socket:
        try:
            await socket.recv()
            raise AssertionError("it is not closed")
        except websockets.ConnectionClosed as closed:
            assert (closed.rcvd.code, closed.rcvd.reason) == (4001, "as asked"), closed


def grpc_client(address):
    with grpc.insecure_channel(address) as channel:
        unary, call = channel.unary_unary("/test.Echo/Unary").with_call(b"x" * 100_000, timeout=30)
        assert unary == b"x" * 100_000
        assert ("x-first", "1") in call.initial_metadata(), call.initial_metadata()
        trailers = call.trailing_metadata()
        assert ("x-trailer", "end") in trailers and ("x-bin", b"\0\xff") in trailers, trailers
        count = list(channel.unary_stream("/test.Echo/Count")(b"500", timeout=30))
        assert count == [b"%d" % index for index in range(500)]
        total = channel.stream_unary("/test.Echo/Sum")(iter([b"1", b"2", b"39"]), timeout=30)
        assert total == b"42"
        # Each answer comes before the next request is made.
        requests = queue.SimpleQueue()
        talk = channel.stream_stream("/test.Echo/Talk")(iter(requests.get, None), timeout=30)
        for index in range(5):
            requests.put(b"m%d" % index)
            assert next(talk) == b"M%d" % index
        requests.put(None)
        assert list(talk) == []
        assert ("x-trailer", "end") in talk.trailing_metadata()
        try:
            channel.unary_unary("/test.Echo/Fail")(b"", timeout=30)
            raise AssertionError("it does not fail")
        except grpc.RpcError as error:
            assert (error.code(), error.details()) == (grpc.StatusCode.NOT_FOUND, "no such thing")


def grpc_denied(address):
    statuses = []
    with grpc.insecure_channel(address) as channel:
        for _ in range(4):
            try:
                channel.unary_unary("/test.Echo/Unary")(b"x", timeout=30)
                statuses.append("OK")
            except grpc.RpcError as error:
                statuses.append(error.code().name)
    print(" ".join(statuses))


mode, *arguments = sys.argv[1:]
if mode == "serve":
    asyncio.run(serve_both())
elif mode == "websocket":
    asyncio.run(websocket_client(*arguments))
elif mode == "grpc":
    grpc_client(*arguments)
else:
    grpc_denied(*arguments)
