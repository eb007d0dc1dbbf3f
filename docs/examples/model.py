"""A stand-in for a language model, with the API of OpenAI: 250 tokens for every prompt.

`python3 docs/examples/model.py [PORT]` listens on 127.0.0.1, port 8000 by default. The response to a
prompt with the word "fail" breaks off after 3 tokens.
"""

import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Model(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.head = {"id": "chatcmpl-1", "created": 0, "model": request.get("model", "model")}
        tokens = min(250, request.get("max_tokens") or 250)
        usage = {"prompt_tokens": 12, "completion_tokens": tokens, "total_tokens": 12 + tokens}
        if request.get("stream"):
            options = request.get("stream_options") or {}
            fails = "fail" in request["messages"][0]["content"]
            return self.stream(tokens, fails, usage if options.get("include_usage") else None)
        message = {"role": "assistant", "content": "word " * tokens}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        body = self.head | {"object": "chat.completion", "choices": [choice], "usage": usage}
        body = json.dumps(body).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def stream(self, tokens, fails, usage):
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for token in range(3 if fails else tokens):
            reason = "stop" if token == tokens - 1 else None
            delta = {"content": "word "}
            self.event({"choices": [{"index": 0, "delta": delta, "finish_reason": reason}]})
        if fails:
            self.close_connection = True
            return
        if usage:
            self.event({"choices": [], "usage": usage})
        self.piece(b"data: [DONE]\n\n")
        self.wfile.write(b"0\r\n\r\n")

    def event(self, chunk):
        chunk = self.head | {"object": "chat.completion.chunk"} | chunk
        self.piece(f"data: {json.dumps(chunk)}\n\n".encode())

    def piece(self, data):
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))

    def log_message(self, *args):
        pass


server = ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1]) if len(sys.argv) > 1 else 8000), Model)
print(f"model at http://127.0.0.1:{server.server_port}", flush=True)
server.serve_forever()
