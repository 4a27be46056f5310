-- Jobs that were let in together did not come: ARGV are model, tier, account, window, jobs and tokens.
local model, tier, account, window, jobs, tokens = unpack(ARGV)
join(model, tier, account, window, -tonumber(jobs), -tonumber(tokens))
