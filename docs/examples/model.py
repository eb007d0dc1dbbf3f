"""A stand-in for a language model, with the streaming API of OpenAI: 250 tokens for every prompt.

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
        fails = "fail" in request["messages"][0]["content"]
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for _ in range(3 if fails else 250):
            self.event({"choices": [{"delta": {"content": "word "}}]})
        if fails:
            self.close_connection = True
            return
        usage = {"prompt_tokens": 12, "completion_tokens": 250, "total_tokens": 262}
        self.event({"choices": [], "usage": usage})
        self.wfile.write(b"0\r\n\r\n")

    def event(self, chunk):
        line = f"data: {json.dumps(chunk)}\n\n".encode()
        self.wfile.write(b"%x\r\n%s\r\n" % (len(line), line))

    def log_message(self, *args):
        pass


server = ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1]) if len(sys.argv) > 1 else 8000), Model)
print(f"model at http://127.0.0.1:{server.server_port}", flush=True)
server.serve_forever()
