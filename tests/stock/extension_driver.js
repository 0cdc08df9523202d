// What an extension does with `agent-daemon/clients/extension.js`: node extension_driver.js CLIENT DAEMON ARGS…
'use strict';

const fs = require('node:fs');

const [client, program, ...args] = process.argv.slice(2);
const { start } = require(client);

/** The command that makes it runs, so that there is something to abort. */
async function exists(file) {
  while (!fs.existsSync(file)) await new Promise((later) => setTimeout(later, 5));
}

async function story() {
  let text = '';
  const agent = await start(program, args, (more) => { text += more; });

  await agent.prompt('run echo hello 你好 🦀');
  await agent.idle();
  await agent.prompt('run touch begun; sleep 1000');
  await exists('begun');
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
