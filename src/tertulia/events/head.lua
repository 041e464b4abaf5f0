-- Where a log ends. A log that is not there yet begins here, so that whoever listens misses nothing of it.
-- KEYS: the log's head (hash), its entries (stream). ARGV: a generation if one is needed, seconds to live.
if redis.call('HSETNX', KEYS[1], 'gen', ARGV[1]) == 1 then
    redis.call('DEL', KEYS[2])
    redis.call('EXPIRE', KEYS[1], ARGV[2])
end
return redis.call('HMGET', KEYS[1], 'gen', 'off')
