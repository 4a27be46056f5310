-- A job that was let in did not come: ARGV are account, job, model, tier, window, tokens and the worker whose
-- place it has, or nothing.
local account, job, model, tier, window, tokens, worker = unpack(ARGV)
settle(account, job, 0)
if worker == '' then
    join(model, tier, account, window, -1, -tonumber(tokens))
else
    redis.call('ZADD', room_key(model), 'XX', 'INCR', 1, worker)
end
