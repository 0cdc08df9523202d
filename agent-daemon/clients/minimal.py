"""A complete client: prompts the agent of `agent-daemon --stdio` and prints its answer as it comes.

usage: minimal.py PROMPT [COMMAND ...]     (COMMAND: agent-daemon --stdio)
"""
import json, subprocess, sys

prompt, command = sys.argv[1], sys.argv[2:] or ["agent-daemon", "--stdio"]
daemon = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, encoding="utf-8")
calls = 0


def send(method, **params):
    global calls
    calls += 1
    message = {"jsonrpc": "2.0", "id": calls, "method": method, "params": params}
    daemon.stdin.write(json.dumps(message) + "\n")
    daemon.stdin.flush()


# Calls need not wait for one another: they take effect, and are answered, in this order.
send("initialize", protocolVersion=1, clientInfo={"name": "minimal.py"})
send("subscribe", exclude=["tool_update", "tool_call_delta"])
send("prompt", input=prompt)
for line in daemon.stdout:
    message = json.loads(line)
    if "error" in message:
        sys.exit(f"{message['error']['code']}: {message['error']['message']}")
    if message.get("method") != "event":
        continue
    event = message["params"]["result"]
    if event["type"] == "text_delta":
        print(event["delta"], end="", flush=True)
    elif event["type"] == "tool_start":
        print(f"\n[{event['toolName']} {json.dumps(event['args'])}]")
    elif event["type"] == "run_end":
        print(f"\n[{event['reason']}]")
        break
daemon.stdin.close()  # Its end ends the daemon, too.
sys.exit(daemon.wait())
