-- Token buckets and the reservations in them; put before the scripts that use them.
--
-- A bucket is a hash of level, at and limit. It refills by its limit every minute, and is full where there is no
-- key: one that nobody touched for a minute is full anyway, hence it may expire. A reservation is a field of its
-- account's hash ("TOKENS TIER KEY"; KEY is empty where the key has no bucket) and, by the moment it expires, a
-- member of a sorted set.

local BUCKET_TTL_SECONDS = 180

local clock = redis.call('TIME')
local now = tonumber(clock[1]) + tonumber(clock[2]) / 1000000

local function requests_bucket(owner)
    return 'lh:requests:' .. owner
end

local function tokens_bucket(owner, tier)
    return 'lh:tokens:' .. owner .. (tier and ':' .. tier or '')
end

local function reserved_by(account)
    return 'lh:reserved:' .. account, 'lh:reserved-until:' .. account
end

local function level_of(bucket, limit)
    local stored = redis.call('HMGET', bucket, 'level', 'at')
    if not stored[1] then
        return limit
    end
    local age = math.max(0, now - tonumber(stored[2]))
    return math.max(0, math.min(limit, tonumber(stored[1]) + age * limit / 60))
end

local function set_level(bucket, limit, level)
    level = math.max(0, math.min(limit, level))
    redis.call(
        'HSET', bucket, 'level', string.format('%.6f', level), 'at', string.format('%.6f', now), 'limit', limit
    )
    redis.call('EXPIRE', bucket, BUCKET_TTL_SECONDS)
end

local function put_back(bucket, tokens)
    local limit = tonumber(redis.call('HGET', bucket, 'limit') or 0)
    if limit > 0 then
        set_level(bucket, limit, level_of(bucket, limit) + tokens)
    end
end

local function reserve(account, job_id, tier, key_id, tokens, seconds)
    local held, untils = reserved_by(account)
    redis.call('HSET', held, job_id, string.format('%d %s %s', tokens, tier, key_id))
    redis.call('ZADD', untils, now + seconds, job_id)
    -- Whoever reserves nothing for this long has full buckets: nothing is lost with the rest.
    local ttl = math.ceil(seconds) + BUCKET_TTL_SECONDS
    redis.call('EXPIRE', held, ttl)
    redis.call('EXPIRE', untils, ttl)
end

local function settle(account, job_id, used)
    local held, untils = reserved_by(account)
    local reserved = redis.call('HGET', held, job_id)
    if not reserved then
        return
    end
    redis.call('HDEL', held, job_id)
    redis.call('ZREM', untils, job_id)
    local tokens, tier, key_id = string.match(reserved, '^(%d+) (%S+) (%S*)$')
    put_back(tokens_bucket(account, tier), tonumber(tokens) - used)
    if key_id ~= '' then
        put_back(tokens_bucket(key_id), tonumber(tokens) - used)
    end
end

local function sweep(account, count)
    local _, untils = reserved_by(account)
    for _, job_id in ipairs(redis.call('ZRANGEBYSCORE', untils, '-inf', now, 'LIMIT', 0, count)) do
        settle(account, job_id, 0)
    end
end
