-- Append messages to a conversation, made when it is absent. The mode is `append`; `create`, which leaves an existing
-- one be; or the place in the log at which it must end, else it is forgotten.
local name, ttl = ARGV[3], tonumber(ARGV[4])
local messages_cap, conversations_cap = tonumber(ARGV[5]), tonumber(ARGV[6])
local mode, newest, first = ARGV[7], tonumber(ARGV[8]), 9

local found = state(name)
if found == 'live' and mode == 'create' then return outcome() end
if found == 'expired' then forget(name, 'expired') end
if mode ~= 'append' and mode ~= 'create' then
  local reach = found == 'live' and tonumber(redis.call('HGET', record(name), 'reach') or 0) or 0
  if reach ~= tonumber(mode) then
    if found == 'live' then forget(name, 'deleted') end
    return outcome()
  end
end

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
if newest > tonumber(redis.call('HGET', record(name), 'reach') or 0) then
  redis.call('HSET', record(name), 'reach', newest)
end
redis.call('ZADD', deadlines, string.format('%.0f', tonumber(now) + ttl), name)
return outcome()
