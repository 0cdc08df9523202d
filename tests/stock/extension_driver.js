// What an extension does with `agent-daemon/clients/extension.js`: node extension_driver.js CLIENT DAEMON ARGS…
'use strict';

const [client, program, ...args] = process.argv.slice(2);
const { start } = require(client);

async function story() {
  let text = '';
  let awaited = { words: '', arrived: () => {} };
  const agent = await start(program, args, (more) => {
    text += more;
    if (text.includes(awaited.words)) awaited.arrived();
  });
  const shows = (words) => new Promise((arrived) => {
    awaited = { words, arrived };
    if (text.includes(words)) arrived();
  });

  await agent.prompt('run echo hello 你好 🦀');
  await agent.idle();
  await agent.prompt('run sleep 1000');
  await shows('sleep 1000"}]');
  await agent.followUp('never reached');
  await agent.abort();
  await agent.idle();
  await agent.followUp('run echo again');
  await agent.idle();
  await agent.stop();
  process.stdout.write(text);
}

story().catch((error) => {
  console.error(error);
  process.exitCode = 1;
});
