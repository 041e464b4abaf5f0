-- Append events to a session's log and tell the listeners, as one operation.
-- KEYS: the log's head (hash), its entries (stream), optionally a marker that makes the append happen once.
-- ARGV: epoch (0: not fenced), a new generation if one is needed, how many entries to keep, seconds to live,
--       the channel, then the events.
-- Yields {generation, offset of the last event, 1}, {.., 0} when it was appended before, or nil for an older epoch.
local head, entries, marker = KEYS[1], KEYS[2], KEYS[3]
local epoch, keep, ttl, channel = tonumber(ARGV[1]), ARGV[3], ARGV[4], ARGV[5]
local known = redis.call('HMGET', head, 'gen', 'off', 'epoch')
local generation, offset = known[1], tonumber(known[2] or 0)

if epoch > 0 and known[3] and epoch < tonumber(known[3]) then
    return nil
end
if marker and not redis.call('SET', marker, 1, 'NX', 'EX', ttl) then
    return {generation or ARGV[2], offset, 0}
end
if not generation then
    generation = ARGV[2]
    redis.call('DEL', entries)
    redis.call('HSET', head, 'gen', generation)
end
local first = offset + 1
for i = 6, #ARGV do
    offset = offset + 1
    redis.call('XADD', entries, 'MAXLEN', '~', keep, offset .. '-0', 'e', ARGV[i])
end
if epoch > 0 then
    redis.call('HSET', head, 'off', offset, 'epoch', ARGV[1])
else
    redis.call('HSET', head, 'off', offset)
end
redis.call('EXPIRE', head, ttl)
redis.call('EXPIRE', entries, ttl)
redis.call('PUBLISH', channel, generation .. ' ' .. first .. '\n' .. table.concat(ARGV, '\n', 6))
return {generation, offset, 1}
