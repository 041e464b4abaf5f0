-- Where a log ends. A log that is not there yet begins here, so that whoever listens misses nothing of it.
-- KEYS: the log's head (hash), its entries (stream). ARGV: the life of this Redis, a generation if one is needed,
-- seconds to live.
local known = redis.call('HMGET', KEYS[1], 'gen', 'off', 'life')
if known[1] and known[3] == ARGV[1] then
    return {known[1], known[2]}
end
redis.call('DEL', KEYS[2])
redis.call('HSET', KEYS[1], 'gen', ARGV[2], 'off', 0, 'life', ARGV[1], 'size', 0, 'turned', 0)
redis.call('EXPIRE', KEYS[1], ARGV[3])
return {ARGV[2], '0'}
