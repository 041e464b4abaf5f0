-- When a conversation was created and updated, and its messages from the given index on.
local name, start = ARGV[3], ARGV[4]
if state(name) ~= 'live' then return false end
local times = redis.call('HMGET', record(name), 'created', 'updated')
return {times[1], times[2], redis.call('LRANGE', history(name), start, -1)}
