"""The story, told by python-lsp-jsonrpc: lsp_jsonrpc.py DAEMON ARGUMENT..."""

import json
import os
import subprocess
import sys
import threading

from pylsp_jsonrpc.endpoint import Endpoint
from pylsp_jsonrpc.exceptions import JsonRpcException
from pylsp_jsonrpc.streams import JsonRpcStreamReader, JsonRpcStreamWriter

PATIENCE = 60
frames = []
daemon = subprocess.Popen(sys.argv[1:], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
endpoint = Endpoint({"event": lambda params: frames.append(params["result"])},
                    JsonRpcStreamWriter(daemon.stdin).write)
reader = JsonRpcStreamReader(daemon.stdout)
threading.Thread(target=reader.listen, args=(endpoint.consume,), daemon=True).start()


def call(method, params):
    return endpoint.request(method, params).result(timeout=PATIENCE)


def refused(method, params):
    try:
        return f"answered {call(method, params)}"
    except JsonRpcException as error:
        detail = error.data.get("field") or error.data.get("runId")
        return " ".join(str(word) for word in (error.code, error.data["kind"], detail) if word)


def timeline(events):
    types = [event["type"] for event in events if event["type"] != "tool_update"]
    pairs = zip(types, [None, *types])
    return " ".join(kind for kind, before in pairs if not (kind.endswith("_delta") and kind == before))


server = call("initialize", {
    "protocolVersion": 1, "clientInfo": {"name": "python-lsp-jsonrpc"}, "processId": os.getpid()})
endpoint.notify("initialized", {})
print(f"initialize: {server['serverInfo']['name']} {server['protocolVersion']}")

call("subscribe", {})
prompt = call("prompt", {"input": "run echo hello 你好 🦀"})
print(f"prompt: {prompt['disposition']} {prompt['runId']}")
print(f"prompt: {refused('prompt', {'input': 'again'})}")
print(f"nonsense: {refused('nonsense', {})}")
print(f"steer: {refused('steer', {'input': 'x', 'expectedRunID': 1})}")

idle = call("waitForIdle", {})
print(f"waitForIdle: {idle['status']} {idle['lastRun']['reason']}")
state = call("getState", {})["state"]
print(f"getState: {state['status']} {' '.join(message['role'] for message in state['messages'])}")
print(f"result: {state['messages'][2]['content'][0]['text'].strip()}")

subscribed = next(frame for frame in frames if frame["type"] == "subscribed")
events = [frame for frame in frames if "seq" in frame]
print(f"events: {timeline(events)}")
before, gaps = subscribed["headSeq"], 0
for event in events:
    gaps += event["seq"] != before + 1 and event.get("prevSeq") != before
    before = event["seq"]
print(f"gaps: {gaps}")

print(f"shutdown: {json.dumps(call('shutdown', {}))}")
endpoint.notify("exit")
print(f"exit: {daemon.wait(timeout=PATIENCE)}")
endpoint.shutdown()
