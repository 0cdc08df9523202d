"""The story, told by pygls: pygls_client.py DAEMON ARGUMENT..."""

import asyncio
import json
import os
import sys

from pygls.client import JsonRPCClient
from pygls.exceptions import JsonRpcException


def field(thing, name):
    """The library makes objects of what it has no type for."""
    return thing.get(name) if isinstance(thing, dict) else getattr(thing, name, None)


async def refused(call):
    try:
        return f"answered {await call}"
    except JsonRpcException as error:
        detail = field(error.data, "field") or field(error.data, "runId")
        return " ".join(str(word) for word in (error.code, field(error.data, "kind"), detail) if word)


def timeline(events):
    types = [kind for kind in (field(event, "type") for event in events) if kind != "tool_update"]
    pairs = zip(types, [None, *types])
    return " ".join(kind for kind, before in pairs if not (kind.endswith("_delta") and kind == before))


async def main():
    client = JsonRPCClient()
    frames = []

    @client.feature("event")
    def _(params):
        frames.append(field(params, "result"))

    await client.start_io(sys.argv[1], *sys.argv[2:])
    call = client.protocol.send_request_async

    server = await call("initialize", {
        "protocolVersion": 1, "clientInfo": {"name": "pygls"}, "processId": os.getpid(), "capabilities": {}})
    client.protocol.notify("initialized", {})
    print(f"initialize: {field(field(server, 'serverInfo'), 'name')} {field(server, 'protocolVersion')}")

    await call("subscribe", {})
    prompt = await call("prompt", {"input": "run echo hello 你好 🦀"})
    print(f"prompt: {field(prompt, 'disposition')} {field(prompt, 'runId')}")
    print(f"prompt: {await refused(call('prompt', {'input': 'again'}))}")
    print(f"nonsense: {await refused(call('nonsense', {}))}")
    print(f"steer: {await refused(call('steer', {'input': 'x', 'expectedRunID': 1}))}")

    idle = await call("waitForIdle", {})
    print(f"waitForIdle: {field(idle, 'status')} {field(field(idle, 'lastRun'), 'reason')}")
    state = field(await call("getState", {}), "state")
    messages = field(state, "messages")
    print(f"getState: {field(state, 'status')} {' '.join(field(message, 'role') for message in messages)}")
    print(f"result: {field(field(messages[2], 'content')[0], 'text').strip()}")

    subscribed = next(frame for frame in frames if field(frame, "type") == "subscribed")
    events = [frame for frame in frames if field(frame, "seq") is not None]
    print(f"events: {timeline(events)}")
    before, gaps = field(subscribed, "headSeq"), 0
    for event in events:
        gaps += field(event, "seq") != before + 1 and field(event, "prevSeq") != before
        before = field(event, "seq")
    print(f"gaps: {gaps}")

    print(f"shutdown: {json.dumps(await call('shutdown', {}))}")
    client.protocol.notify("exit", None)
    print(f"exit: {await client._server.wait()}")
    await client.stop()


asyncio.run(asyncio.wait_for(main(), 120))
