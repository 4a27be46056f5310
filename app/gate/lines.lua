-- The lines as the gate knows them; put before the scripts that use it.
--
-- A line is a hash: what the dispatcher measured last, with what joined since. How full it is counts from 0 to
-- 1, its high mark, by whichever of jobs, tokens and predicted wait is nearest to its limit. It sheds from the
-- high mark on until it has fallen to the low one; a batch line sheds also from the moment its model's
-- interactive line is past the low mark, until that has fallen to the low mark of its low mark.

local LINE_TTL_SECONDS = 86400

local function line_key(model, tier)
    return 'lh:line:' .. model .. ':' .. tier
end

local function waiting_key(model, tier)
    return 'lh:waiting:' .. model .. ':' .. tier
end

local function room_key(model)
    return 'lh:room:' .. model
end

-- The rate is not known (nil) before it was measured, nor while nothing is started.
local function read_line(model, tier, limits)
    local key = line_key(model, tier)
    local stored = redis.call(
        'HMGET', key, 'state', 'jobs', 'tokens', 'jobs_per_second', 'tokens_per_second', 'weights', 'shedding'
    )
    local line = {
        key = key,
        limits = limits,
        state = stored[1] or 'open',
        jobs = math.max(0, tonumber(stored[2] or 0)),
        tokens = math.max(0, tonumber(stored[3] or 0)),
        weights = tonumber(stored[6] or 0),
        shedding = stored[7] == '1',
    }
    local jobs_per_second, tokens_per_second = tonumber(stored[4] or 0), tonumber(stored[5] or 0)
    if line.state ~= 'paused' then
        line.jobs_per_second = jobs_per_second > 0 and jobs_per_second or nil
        line.tokens_per_second = tokens_per_second > 0 and tokens_per_second or nil
    end
    line.wait = line.tokens_per_second and line.tokens / line.tokens_per_second
    line.fullness = math.max(
        line.jobs / limits.max_jobs, line.tokens / limits.max_tokens, (line.wait or 0) / limits.max_wait_seconds
    )
    return line
end

-- Seconds until the line is at a share of its limits, at its present rates; nil if they are not known.
local function seconds_until(line, share)
    local limits, seconds = line.limits, nil
    if line.tokens_per_second then
        seconds = math.max(
            0, (line.tokens - share * limits.max_tokens) / line.tokens_per_second,
            line.wait - share * limits.max_wait_seconds
        )
    end
    if line.jobs_per_second then
        seconds = math.max(seconds or 0, (line.jobs - share * limits.max_jobs) / line.jobs_per_second)
    end
    return seconds
end

-- Brings `shedding` up to date; `above` is the interactive line over a batch line.
local function mark(line, above)
    local is_high = line.fullness >= 1
    local is_low = line.fullness <= line.limits.low_mark
    if above then
        local low_mark = above.limits.low_mark
        is_high = is_high or above.shedding or above.fullness > low_mark
        is_low = is_low and not above.shedding and above.fullness <= low_mark * low_mark
    end
    if line.shedding and is_low or not line.shedding and is_high then
        line.shedding = not line.shedding
        redis.call('HSET', line.key, 'shedding', line.shedding and '1' or '0')
        redis.call('HINCRBY', line.key, 'transitions', 1)
        redis.call('EXPIRE', line.key, LINE_TTL_SECONDS)
    end
end

-- One line by itself, or a batch line with the interactive one above it.
local read_marked
function read_marked(model, tier, limits)
    if tier == 'interactive' then
        local line = read_line(model, tier, limits.interactive)
        mark(line)
        return line
    end
    local above = read_marked(model, 'interactive', limits)
    local line = read_line(model, tier, limits[tier])
    mark(line, above)
    return line, above
end

-- What waits changes by so much, but not below nothing: the dispatcher may have counted anew in between.
local function add(key, field, amount)
    local value = tonumber(redis.call('HGET', key, field) or 0) + amount
    redis.call('HSET', key, field, string.format('%d', math.max(0, value)))
end

local function join(model, tier, account, window, jobs, tokens)
    local line, waiting = line_key(model, tier), waiting_key(model, tier)
    add(line, 'jobs', jobs)
    add(line, 'tokens', tokens)
    add(waiting, 'jobs:' .. account, jobs)
    add(waiting, 'tokens:' .. account, tokens)
    add(waiting, 'tokens:' .. account .. ':' .. window, tokens)
    redis.call('EXPIRE', line, LINE_TTL_SECONDS)
    redis.call('EXPIRE', waiting, LINE_TTL_SECONDS)
end
