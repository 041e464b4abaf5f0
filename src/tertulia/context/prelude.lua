-- What every script begins with. The keys of a conversation are made from its name; the hash tag keeps them
-- in one slot. Times are whole microseconds and travel as text, since Lua would round them when it writes them.
local deadlines, births, total = KEYS[1], KEYS[2], KEYS[3]
local prefix, now = ARGV[1], ARGV[2]
local gone = {}

local function record(name) return prefix .. 'conversation:' .. name end
local function history(name) return prefix .. 'messages:' .. name end

-- 'live', 'expired', or nil for a name that is not there
local function state(name)
  local deadline = redis.call('ZSCORE', deadlines, name)
  if not deadline then return nil end
  return tonumber(deadline) > tonumber(now) and 'live' or 'expired'
end

-- The one way a conversation leaves; whoever called the script logs it.
local function forget(name, reason)
  redis.call('DECRBY', total, redis.call('HGET', record(name), 'size') or 0)
  redis.call('DEL', record(name), history(name))
  redis.call('ZREM', deadlines, name)
  redis.call('ZREM', births, name)
  gone[#gone + 1] = {name, reason}
end

local function sweep(limit)
  for _, name in ipairs(redis.call('ZRANGEBYSCORE', deadlines, '-inf', now, 'LIMIT', 0, limit)) do
    forget(name, 'expired')
  end
end

local function outcome()
  return {redis.call('ZCARD', births), tonumber(redis.call('GET', total) or 0), gone}
end
