// The story, told by vscode-jsonrpc:
//   vscode.js stdio DAEMON ARGUMENT...
//   vscode.js unix PATH
'use strict';

const { spawn } = require('node:child_process');
const net = require('node:net');
const rpc = require('vscode-jsonrpc/node');

const say = (line) => process.stdout.write(line + '\n');

function connect([transport, ...rest]) {
  if (transport === 'unix') {
    const socket = net.connect(rest[0]);
    const ended = new Promise((resolve) => socket.once('close', () => resolve('closed')));
    return {
      connection: rpc.createMessageConnection(
        new rpc.SocketMessageReader(socket), new rpc.SocketMessageWriter(socket)),
      ended,
      shutdown: { scope: 'daemon' },
    };
  }
  const child = spawn(rest[0], rest.slice(1), { stdio: ['pipe', 'pipe', 'inherit'] });
  const ended = new Promise((resolve) => child.once('exit', (code, signal) => resolve(signal ?? code)));
  return {
    connection: rpc.createMessageConnection(
      new rpc.StreamMessageReader(child.stdout), new rpc.StreamMessageWriter(child.stdin)),
    ended,
    shutdown: {},
  };
}

async function refused(call) {
  try {
    return `answered ${JSON.stringify(await call)}`;
  } catch (error) {
    return [error.code, error.data.kind, error.data.field ?? error.data.runId].filter(Boolean).join(' ');
  }
}

function timeline(events) {
  const types = events.map((event) => event.type).filter((type) => type !== 'tool_update');
  return types.filter((type, i) => !(type.endsWith('_delta') && type === types[i - 1])).join(' ');
}

// Where the daemon joined deltas, `prevSeq` says where the gap began.
const follows = (event, before) => event.seq === before + 1 || event.prevSeq === before;

async function main() {
  const { connection, ended, shutdown } = connect(process.argv.slice(2));
  const events = [];
  let subscribed;
  connection.onNotification('event', ({ result }) => {
    if (result.type === 'subscribed') subscribed = result;
    if (result.seq !== undefined) events.push(result);
  });
  connection.listen();

  const server = await connection.sendRequest('initialize', {
    protocolVersion: 1, clientInfo: { name: 'vscode-jsonrpc' }, processId: process.pid, capabilities: {},
  });
  await connection.sendNotification('initialized', {});
  say(`initialize: ${server.serverInfo.name} ${server.protocolVersion}`);

  await connection.sendRequest('subscribe', {});
  const prompt = await connection.sendRequest('prompt', { input: 'run echo hello 你好 🦀' });
  say(`prompt: ${prompt.disposition} ${prompt.runId}`);
  say(`prompt: ${await refused(connection.sendRequest('prompt', { input: 'again' }))}`);
  say(`nonsense: ${await refused(connection.sendRequest('nonsense', {}))}`);
  say(`steer: ${await refused(connection.sendRequest('steer', { input: 'x', expectedRunID: 1 }))}`);

  // The library's own cancellation: `$/cancelRequest` with the request's id.
  const cancellation = new rpc.CancellationTokenSource();
  const wait = refused(connection.sendRequest('waitForIdle', {}, cancellation.token));
  cancellation.cancel();
  if (await wait !== '-32800 requestCancelled') throw new Error(`a cancelled wait: ${await wait}`);

  const idle = await connection.sendRequest('waitForIdle', {});
  say(`waitForIdle: ${idle.status} ${idle.lastRun.reason}`);
  const { state } = await connection.sendRequest('getState', {});
  say(`getState: ${state.status} ${state.messages.map((message) => message.role).join(' ')}`);
  say(`result: ${state.messages[2].content[0].text.trim()}`);
  say(`events: ${timeline(events)}`);
  const numbers = [subscribed.headSeq, ...events.map((event) => event.seq)];
  say(`gaps: ${events.filter((event, i) => !follows(event, numbers[i])).length}`);

  say(`shutdown: ${JSON.stringify(await connection.sendRequest('shutdown', shutdown))}`);
  await connection.sendNotification('exit');
  say(`exit: ${await ended}`);
  connection.dispose();
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
