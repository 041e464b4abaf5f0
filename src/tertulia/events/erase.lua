-- Erase a log. What is left refuses, for a while, the words of whoever does not know yet that they lost their lease.
-- KEYS: the log's head (hash), its entries (stream). ARGV: the life of this Redis, a new generation, seconds to refuse.
redis.call('DEL', KEYS[1], KEYS[2])
redis.call('HSET', KEYS[1], 'gen', ARGV[2], 'off', 0, 'epoch', 2 ^ 53, 'life', ARGV[1])
redis.call('EXPIRE', KEYS[1], ARGV[3])
return 1
