-- Reservations and buckets as Postgres knows them: ARGV[1] lists reservations, ARGV[2] bucket, limit and what is
-- taken of it, ARGV[3] is how long reservations last. What came in since the loss is there already and stays.
local seconds = tonumber(ARGV[3])
for _, kept in ipairs(cjson.decode(ARGV[1])) do
    if redis.call('HEXISTS', reserved_by(kept.account), kept.job) == 0 then
        reserve(kept.account, kept.job, kept.tier, kept.key, kept.tokens, seconds)
    end
end
for _, taken in ipairs(cjson.decode(ARGV[2])) do
    local bucket, limit = taken[1], taken[2]
    set_level(bucket, limit, math.min(level_of(bucket, limit), limit - taken[3]))
end
