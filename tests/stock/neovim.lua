-- The story, told by Neovim's own LSP client, vim.lsp.rpc:
--   DAEMON='["agent-daemon","--stdio"]' nvim --headless --clean -c 'luafile neovim.lua'
local command = vim.fn.json_decode(os.getenv('DAEMON'))
local frames, exit_status = {}, nil

local function say(text)
  io.stdout:write(text .. '\n')
end

local function wait_for(what, condition)
  assert(vim.wait(60000, condition, 5), 'waited in vain for ' .. what)
end

local dispatchers = {
  notification = function(method, params)
    if method == 'event' then
      table.insert(frames, params.result)
    end
  end,
  server_request = function(method)
    error('the daemon asked for ' .. method)
  end,
  on_error = function(code, message)
    error('vim.lsp.rpc reports ' .. tostring(code) .. ': ' .. vim.inspect(message))
  end,
  on_exit = function(code, signal)
    exit_status = signal ~= 0 and 'signal ' .. signal or code
  end,
}

-- The arguments were a list of their own before Neovim 0.10.
local client
if vim.fn.has('nvim-0.10') == 1 then
  client = vim.lsp.rpc.start(command, dispatchers)
else
  client = vim.lsp.rpc.start(command[1], vim.list_slice(command, 2), dispatchers)
end

local function ask(method, params)
  local answered, problem, result = false, nil, nil
  client.request(method, params, function(err, answer)
    answered, problem, result = true, err, answer
  end)
  wait_for('the answer of ' .. method, function()
    return answered
  end)
  return problem, result
end

local function call(method, params)
  local problem, result = ask(method, params)
  assert(problem == nil, method .. ': ' .. vim.inspect(problem))
  return result
end

local function refused(method, params)
  local problem, result = ask(method, params)
  if problem == nil then
    return 'answered ' .. vim.inspect(result)
  end
  local words = { problem.code, problem.data.kind, problem.data.field or problem.data.runId }
  return table.concat(words, ' ')
end

local function story()
  local empty = vim.empty_dict()
  local server = call('initialize', {
    protocolVersion = 1,
    clientInfo = { name = 'neovim' },
    processId = vim.fn.getpid(),
    capabilities = empty,
  })
  client.notify('initialized', empty)
  say('initialize: ' .. server.serverInfo.name .. ' ' .. server.protocolVersion)

  call('subscribe', empty)
  local prompt = call('prompt', { input = 'run echo hello 你好 🦀' })
  say('prompt: ' .. prompt.disposition .. ' ' .. prompt.runId)
  say('prompt: ' .. refused('prompt', { input = 'again' }))
  say('nonsense: ' .. refused('nonsense', empty))
  say('steer: ' .. refused('steer', { input = 'x', expectedRunID = 1 }))

  local idle = call('waitForIdle', empty)
  say('waitForIdle: ' .. idle.status .. ' ' .. idle.lastRun.reason)
  local state = call('getState', empty).state
  local roles = vim.tbl_map(function(message)
    return message.role
  end, state.messages)
  say('getState: ' .. state.status .. ' ' .. table.concat(roles, ' '))
  say('result: ' .. vim.trim(state.messages[3].content[1].text))

  local types, before, gaps = {}, nil, 0
  for _, frame in ipairs(frames) do
    if frame.type == 'subscribed' then
      before = frame.headSeq
    elseif frame.seq then
      if frame.seq ~= before + 1 and frame.prevSeq ~= before then
        gaps = gaps + 1
      end
      before = frame.seq
      local repeated = frame.type:find('_delta$') and frame.type == types[#types]
      if frame.type ~= 'tool_update' and not repeated then
        table.insert(types, frame.type)
      end
    end
  end
  say('events: ' .. table.concat(types, ' '))
  say('gaps: ' .. gaps)

  local result = call('shutdown', empty)
  say('shutdown: ' .. ((result == nil or result == vim.NIL) and 'null' or vim.inspect(result)))
  client.notify('exit', empty)
  wait_for('the end of the daemon', function()
    return exit_status ~= nil
  end)
  say('exit: ' .. exit_status)
end

local told, problem = xpcall(story, debug.traceback)
if not told then
  io.stderr:write(problem .. '\n')
  vim.cmd('cquit 1')
end
vim.cmd('qall!')
