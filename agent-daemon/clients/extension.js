// A client for editors in Node, such as VS Code, with the JSON-RPC library that they have:
//   const agent = await start('agent-daemon', ['--stdio'], (text) => output.append(text));
//   await agent.prompt('what does this project do?');
'use strict';

const { spawn } = require('node:child_process');
const rpc = require('vscode-jsonrpc/node');

/** Starts a daemon of the editor's own; `show` gets text as it comes. */
async function start(program, args, show) {
  const child = spawn(program, args, { stdio: ['pipe', 'pipe', 'inherit'] });
  const connection = rpc.createMessageConnection(
    new rpc.StreamMessageReader(child.stdout), new rpc.StreamMessageWriter(child.stdin));

  const shown = {
    text_delta: (event) => event.delta,
    tool_start: (event) => `\n[${event.toolName} ${JSON.stringify(event.args)}]\n`,
    run_end: (event) => `\n[${event.reason}]\n`,
  };
  // Events of types that are not known here are left alone: there will be more one day.
  connection.onNotification('event', ({ result }) => {
    const text = shown[result.type]?.(result);
    if (text) show(text);
  });
  connection.listen();

  await connection.sendRequest('initialize', {
    protocolVersion: 1, clientInfo: { name: 'extension.js' }, processId: process.pid,
  });
  await connection.sendRequest('subscribe', {});

  return {
    // A message for a run that is going on steers it; nobody has to know whether one is.
    prompt: (text) => connection.sendRequest('prompt', { input: text, onBusy: 'steer' }),
    followUp: (text) => connection.sendRequest('followUp', { input: text, whenIdle: 'prompt' }),
    abort: () => connection.sendRequest('abort', {}),
    idle: () => connection.sendRequest('waitForIdle', {}),
    async stop() {
      await connection.sendRequest('shutdown', {});
      await connection.sendNotification('exit');
      await new Promise((resolve) => child.exitCode === null ? child.once('exit', resolve) : resolve());
    },
  };
}

module.exports = { start };
