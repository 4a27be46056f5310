-- May this job, or may these jobs together, join the line? Nothing but the line's marks changes unless they may.
-- ARGV[1] is the entry, as JSON, `tokens` being those of all; so is the answer: `why` says what is in the way, else
-- `worker` has a place for it.

local entry = cjson.decode(ARGV[1])
local limits = entry.limits

sweep(entry.account, entry.sweep)

local buckets = {}
local function has_bucket(what, owner, name, limit, cost)
    if limit > 0 then
        local level = level_of(name, limit)
        table.insert(buckets, {what = what, owner = owner, name = name, limit = limit, cost = cost, level = level})
    end
end
has_bucket('requests', 'account', requests_bucket(entry.account), limits.requests_per_minute, 1)
has_bucket('requests', 'key', requests_bucket(entry.key), limits.key_requests_per_minute, 1)
has_bucket('tokens', 'account', tokens_bucket(entry.account, entry.tier), limits.tokens_per_minute, entry.tokens)
has_bucket('tokens', 'key', tokens_bucket(entry.key), limits.key_tokens_per_minute, entry.tokens)

-- Of an account's and its key's bucket, the client is told of the one with less in it.
local function rates()
    local found = {}
    for _, bucket in ipairs(buckets) do
        local other = found[bucket.what]
        if not other or bucket.level < other.level then
            found[bucket.what] = {
                limit = bucket.limit, level = bucket.level, remaining = math.floor(bucket.level),
                reset = (bucket.limit - bucket.level) * 60 / bucket.limit,
            }
        end
    end
    return found
end

local function refuse(why, details)
    details.why = why
    details.rates = rates()
    return cjson.encode(details)
end

local line, above = read_marked(entry.model, entry.tier, entry.lines)

if line.state == 'draining' then
    return refuse('draining', {})
end
if line.shedding then
    local seconds = seconds_until(line, line.limits.low_mark)
    if above and above.fullness > above.limits.low_mark * above.limits.low_mark then
        seconds = math.max(seconds or 0, seconds_until(above, above.limits.low_mark * above.limits.low_mark) or 0)
        return refuse('yielding', {retry = seconds > 0 and seconds or nil})
    end
    return refuse('full', {jobs = line.jobs, tokens = line.tokens, retry = seconds})
end

local waiting = redis.call(
    'HMGET', waiting_key(entry.model, entry.tier), 'jobs:' .. entry.account, 'tokens:' .. entry.account
)
local own_jobs, own_tokens = tonumber(waiting[1] or 0), tonumber(waiting[2] or 0)

-- Accounts take turns by weight: ahead are the account's own jobs, and as much of each other's as its turns bring.
local weights = math.max(limits.weight, line.weights + (own_jobs > 0 and 0 or limits.weight))
local turns = weights / limits.weight
local ahead = math.min(line.tokens, (own_tokens + entry.tokens) * turns - entry.tokens)
local wait = line.tokens_per_second and ahead / line.tokens_per_second

local function refuse_account(what, limit, own, cost, rate)
    local seconds = rate and (own + cost - limit) * turns / rate
    return refuse('account_full', {what = what, limit = limit, own = own, cost = cost, retry = seconds})
end
if limits.max_waiting_jobs > 0 and own_jobs + entry.jobs > limits.max_waiting_jobs then
    return refuse_account('jobs', limits.max_waiting_jobs, own_jobs, entry.jobs, line.jobs_per_second)
end
if limits.max_waiting_tokens > 0 and own_tokens + entry.tokens > limits.max_waiting_tokens then
    return refuse_account('tokens', limits.max_waiting_tokens, own_tokens, entry.tokens, line.tokens_per_second)
end
-- Of its own account's jobs, those with a longer window stand behind it.
if entry.window_seconds > 0 and line.tokens_per_second and not limits.accepts_late_windows then
    local own_before = 0
    for _, window in ipairs(entry.windows_before) do
        local field = 'tokens:' .. entry.account .. ':' .. window
        own_before = own_before + tonumber(redis.call('HGET', waiting_key(entry.model, entry.tier), field) or 0)
    end
    -- Of several the last one counts, with the others before it.
    local last = entry.tokens / entry.jobs
    local all = line.tokens + entry.tokens - last
    local before = math.min(all, (own_before + entry.tokens) * turns - last)
    if before / line.tokens_per_second > entry.window_seconds then
        return refuse('window', {wait = before / line.tokens_per_second})
    end
end

for _, bucket in ipairs(buckets) do
    if bucket.level < bucket.cost then
        return refuse('rate', {
            what = bucket.what, owner = bucket.owner, limit = bucket.limit, cost = bucket.cost,
            remaining = math.floor(bucket.level), retry = (bucket.cost - bucket.level) * 60 / bucket.limit,
        })
    end
end

local has_tokens, key_has_tokens = false, false
for _, bucket in ipairs(buckets) do
    bucket.level = bucket.level - bucket.cost
    set_level(bucket.name, bucket.limit, bucket.level)
    has_tokens = has_tokens or bucket.what == 'tokens'
    key_has_tokens = key_has_tokens or (bucket.what == 'tokens' and bucket.owner == 'key')
end
if has_tokens then
    local key_id = key_has_tokens and entry.key or ''
    reserve(entry.account, entry.job, entry.tier, key_id, entry.tokens, entry.reservation_seconds)
end

local worker = nil
if entry.wants_place and line.state == 'open' then
    local room = room_key(entry.model)
    local most = redis.call('ZREVRANGE', room, 0, 0, 'WITHSCORES')
    if most[1] and tonumber(most[2]) >= 1 then
        worker = most[1]
        redis.call('ZINCRBY', room, -1, worker)
    end
end
if not worker then
    join(entry.model, entry.tier, entry.account, entry.window, entry.jobs, entry.tokens)
    if own_jobs == 0 then
        redis.call('HINCRBYFLOAT', line.key, 'weights', limits.weight)
    end
end
return cjson.encode({
    worker = worker, wait = worker and 0 or wait, jobs = own_jobs, tokens = own_tokens, rates = rates(),
})
