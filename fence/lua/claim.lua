-- Raises the stored token of a resource to the caller's, unless a later holder has raised it further.
-- The script that writes the data is appended to this one, so that the check and the write are one step. It finds its own
-- KEYS and ARGV: this part takes away the last of each.
-- KEYS: the caller's, then the name of the token, in the slot of the data. ARGV: the caller's, then the token.
-- Returns nothing and goes on, or fails with "FENCED" and the larger token.
local fence_name, fence_token = table.remove(KEYS), table.remove(ARGV)
local fence_seen = redis.call('GET', fence_name)
if fence_seen and tonumber(fence_seen) > tonumber(fence_token) then return redis.error_reply('FENCED ' .. fence_seen) end
redis.call('SET', fence_name, fence_token)
