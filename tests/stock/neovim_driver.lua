-- What a user does with `agent-daemon/clients/neovim.lua`, whose path is in CLIENT:
--   CLIENT=neovim.lua DAEMON='["agent-daemon","--stdio"]' nvim --headless --clean -c 'luafile neovim_driver.lua'
local function text_of(agent)
  return table.concat(vim.api.nvim_buf_get_lines(agent.buffer, 0, -1, false), '\n')
end

local function shows(agent, words)
  local function found()
    return text_of(agent):find(words, 1, true) ~= nil
  end
  assert(vim.wait(60000, found, 5), 'waited in vain for ' .. words .. ':\n' .. text_of(agent))
end

local function story()
  local agent = dofile(os.getenv('CLIENT')).start(vim.fn.json_decode(os.getenv('DAEMON')))
  agent.prompt('run echo hello 你好 🦀')
  shows(agent, '[stop]')
  agent.prompt('run touch begun; sleep 1000')
  -- The command runs, so that there is something to abort.
  assert(vim.wait(60000, function() return vim.fn.filereadable('begun') == 1 end, 5), 'it never began')
  agent.abort()
  shows(agent, '[aborted]')
  agent.follow_up('run echo again')
  shows(agent, '> run echo again')
  assert(vim.wait(60000, function() return not agent.running end, 5), 'the run goes on')
  io.stdout:write(text_of(agent))
  agent.stop()
  assert(vim.wait(60000, function() return agent.ended end, 5), 'the daemon goes on')
end

local told, problem = xpcall(story, debug.traceback)
if not told then
  io.stderr:write(problem .. '\n')
  vim.cmd('cquit 1')
end
vim.cmd('qall!')
