-- Take a session that is free, or whose owner is dead: the caller names the epoch it found dead.
local id, owner, duration, expires_boot, at, token = unpack(ARGV, 3, 8)
local create, nonce, dead_epoch = unpack(ARGV, 9, 11)

local head = head_of(id)
if head then
  local mine = taken(id, head, token)
  if mine then return {'ok', mine} end
  if head.owner and deadline(head) > NOW and head.epoch ~= dead_epoch then
    return {'busy', head.owner, head.epoch, string.format('%.6f', deadline(head) - NOW)}
  end
  return {'ok', take(id, head, owner, duration, expires_boot, at, token, '0')}
end
no_remains(id)
if create ~= '1' then return {'missing'} end
head = {
  nonce = nonce, epoch = redis.call('HGET', PREFIX .. ':graves', id) or '0', position = '0',
  commit = '-1', commit_position = '0', journal_from = '0', events = '0', first_event = '1',
  consumed = '0', requests = '0', created_at = at, updated_at = at, wants = 'never',
  queue = 'default', fingerprint = '', since = '0',
}
for field, value in pairs(head) do redis.call('HSET', key('head', id), field, value) end
redis.call('HDEL', PREFIX .. ':graves', id)
redis.call('ZADD', PREFIX .. ':sessions', 0, id)
return {'ok', take(id, head, owner, duration, expires_boot, at, token, '1')}
