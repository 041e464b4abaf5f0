-- Append messages to a conversation, made when it is absent; with `create`, leave an existing one be.
local name, ttl = ARGV[3], tonumber(ARGV[4])
local messages_cap, conversations_cap = tonumber(ARGV[5]), tonumber(ARGV[6])
local mode, first = ARGV[7], 8

local found = state(name)
if found == 'live' and mode == 'create' then return outcome() end
if found == 'expired' then forget(name, 'expired') end

if found ~= 'live' then
  if redis.call('ZCARD', births) >= conversations_cap then sweep(100) end
  local excess = redis.call('ZCARD', births) + 1 - conversations_cap
  if excess > 0 then
    for _, oldest in ipairs(redis.call('ZRANGE', births, 0, excess - 1)) do forget(oldest, 'evicted') end
  end
  redis.call('ZADD', births, now, name)
  redis.call('HSET', record(name), 'created', now)
end

local growth = 0
for i = first, #ARGV do
  redis.call('RPUSH', history(name), ARGV[i])
  growth = growth + #ARGV[i]
end
local surplus = redis.call('LLEN', history(name)) - messages_cap
if surplus > 0 then
  for _, message in ipairs(redis.call('LRANGE', history(name), 0, surplus - 1)) do growth = growth - #message end
  redis.call('LTRIM', history(name), surplus, -1)
end
redis.call('HINCRBY', record(name), 'size', growth)
redis.call('INCRBY', total, growth)
redis.call('HSET', record(name), 'updated', now)
redis.call('ZADD', deadlines, string.format('%.0f', tonumber(now) + ttl), name)
return outcome()
