-- Append events to a session's log and tell the listeners, as one operation.
-- KEYS: the log's head (hash), its entries (stream), optionally a marker that makes the append happen once.
-- ARGV: the life of this Redis, epoch (0: not fenced), a new generation if one is needed, how many entries to keep, how
--       many bytes of them, seconds to live, the channel, then the events.
-- Yields {generation, offset of the last event, 1}, {.., 0} when it was appended before, or nil for an older epoch.
-- What has a marker is decided already, and is appended under any epoch; a lower one is refused after it all the same.
local head, entries, marker = KEYS[1], KEYS[2], KEYS[3]
local life, epoch, keep, bytes, ttl, channel = ARGV[1], tonumber(ARGV[2]), ARGV[4], tonumber(ARGV[5]), ARGV[6], ARGV[7]
local known = redis.call('HMGET', head, 'gen', 'off', 'epoch', 'life', 'size', 'turned')
local generation, offset, newest = known[1], tonumber(known[2] or 0), tonumber(known[3] or 0)
local size, turned = tonumber(known[5] or 0), tonumber(known[6] or 0)

if not marker and epoch > 0 and epoch < newest then
    return nil
end
if marker and not redis.call('SET', marker, 1, 'NX', 'EX', ttl) then
    return {generation or ARGV[3], offset, 0}
end
-- A Redis that came back may have come back to an older state of itself, and would give offsets out again.
if not generation or known[4] ~= life then
    generation, offset, size, turned = ARGV[3], 0, 0, 0
    redis.call('DEL', entries)
end
local first = offset + 1
for i = 8, #ARGV do
    offset = offset + 1
    size = size + #ARGV[i]
    redis.call('XADD', entries, 'MAXLEN', '~', keep, offset .. '-0', 'e', ARGV[i])
end
if size > bytes / 2 then  -- drop what was there when half of the room was last filled
    redis.call('XTRIM', entries, 'MINID', (turned + 1) .. '-0')
    size, turned = 0, offset
end
redis.call('HSET', head, 'gen', generation, 'off', offset, 'epoch', math.max(epoch, newest), 'life', life,
           'size', size, 'turned', turned)
redis.call('EXPIRE', head, ttl)
redis.call('EXPIRE', entries, ttl)
redis.call('PUBLISH', channel, generation .. ' ' .. first .. '\n' .. table.concat(ARGV, '\n', 8))
return {generation, offset, 1}
