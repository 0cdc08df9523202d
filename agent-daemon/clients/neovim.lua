-- A client for Neovim 0.7 or newer, with its own JSON-RPC library:
--   local agent = dofile('neovim.lua').start({ 'agent-daemon', '--stdio' })
--   agent.prompt('what does this project do?')
-- The answer appears in the buffer `agent.buffer` as it comes.
local M = {}

-- Appends text at the end of a buffer, whose last line may be unfinished.
local function append(buffer, text)
  local last = vim.api.nvim_buf_get_lines(buffer, -2, -1, false)[1]
  local lines = vim.split(last .. text, '\n', { plain = true })
  vim.api.nvim_buf_set_lines(buffer, -2, -1, false, lines)
end

function M.start(command)
  local agent = { buffer = vim.api.nvim_create_buf(true, true), running = false }
  local client

  local show = {
    subscribed = function() end,
    run_start = function(event)
      agent.running = true
      for _, message in ipairs(event.messages) do
        append(agent.buffer, '> ' .. (message.content[1].text or '') .. '\n')
      end
    end,
    text_delta = function(event)
      append(agent.buffer, event.delta)
    end,
    tool_start = function(event)
      append(agent.buffer, '\n[' .. event.toolName .. ' ' .. vim.fn.json_encode(event.args) .. ']\n')
    end,
    run_end = function(event)
      agent.running = false
      append(agent.buffer, '\n[' .. event.reason .. ']\n')
    end,
  }

  local dispatchers = {
    notification = function(method, params)
      local handler = method == 'event' and show[params.result.type]
      if handler then
        -- Buffers must not be changed inside a callback of the library.
        vim.schedule(function() handler(params.result) end)
      end
    end,
    on_exit = function() agent.running, agent.ended = false, true end,
  }
  -- The arguments were a list of their own before Neovim 0.10.
  if vim.fn.has('nvim-0.10') == 1 then
    client = vim.lsp.rpc.start(command, dispatchers)
  else
    client = vim.lsp.rpc.start(command[1], vim.list_slice(command, 2), dispatchers)
  end

  local function call(method, params)
    client.request(method, params, function(problem)
      if problem then
        vim.schedule(function() vim.notify(problem.message, vim.log.levels.ERROR) end)
      end
    end)
  end
  agent.prompt = function(text) call('prompt', { input = text, onBusy = 'steer' }) end
  agent.follow_up = function(text) call('followUp', { input = text, whenIdle = 'prompt' }) end
  agent.abort = function() call('abort', vim.empty_dict()) end
  -- Quitting the editor ends the daemon, too: its input ends then.
  agent.stop = function()
    client.request('shutdown', vim.empty_dict(), function()
      client.notify('exit', vim.empty_dict())
    end)
  end

  call('initialize', {
    protocolVersion = 1, clientInfo = { name = 'neovim' }, processId = vim.fn.getpid(),
  })
  call('subscribe', vim.empty_dict())
  return agent
end

return M
