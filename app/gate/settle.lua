-- ARGV: the account, job and used tokens of each settlement. What is not reserved (any more) stays as it is.
for i = 1, #ARGV, 3 do
    settle(ARGV[i], ARGV[i + 1], tonumber(ARGV[i + 2]))
end
