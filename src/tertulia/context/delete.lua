-- Forget one conversation, if it is there.
local name = ARGV[3]
local found = state(name)
if found then forget(name, found == 'live' and 'deleted' or 'expired') end
return outcome()
