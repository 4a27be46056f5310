-- What the dispatcher measured: ARGV[1] lists lines, ARGV[2] the room of each worker by model.
for _, measured in ipairs(cjson.decode(ARGV[1])) do
    local key, waiting = line_key(measured.model, measured.tier), waiting_key(measured.model, measured.tier)
    redis.call(
        'HSET', key, 'state', measured.state, 'jobs', measured.jobs, 'tokens', measured.tokens,
        'jobs_per_second', measured.jobs_per_second, 'tokens_per_second', measured.tokens_per_second,
        'weights', measured.weights
    )
    redis.call('EXPIRE', key, LINE_TTL_SECONDS)
    redis.call('DEL', waiting)
    for account, counted in pairs(measured.accounts) do
        redis.call('HSET', waiting, 'jobs:' .. account, counted[1], 'tokens:' .. account, counted[2])
        for window, tokens in pairs(counted[3]) do
            redis.call('HSET', waiting, 'tokens:' .. account .. ':' .. window, tokens)
        end
    end
    redis.call('EXPIRE', waiting, LINE_TTL_SECONDS)
end
for _, measured in ipairs(cjson.decode(ARGV[1])) do
    read_marked(measured.model, measured.tier, measured.lines)
end
local room_seconds = tonumber(ARGV[3])
for model, workers in pairs(cjson.decode(ARGV[2])) do
    local key = room_key(model)
    redis.call('DEL', key)
    for worker, room in pairs(workers) do
        redis.call('ZADD', key, room, worker)
    end
    redis.call('EXPIRE', key, room_seconds)
end
