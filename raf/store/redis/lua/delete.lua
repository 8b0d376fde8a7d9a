-- Everything of a session but its epoch.
local id, nonce, epoch = unpack(ARGV, 3, 5)
local head = head_of(id)
if not head and redis.call('HGET', PREFIX .. ':graves', id) == epoch then return {'ok'} end
if not owned(id, nonce, epoch) then return {'lost'} end
redis.call('HSET', PREFIX .. ':graves', id, epoch)
redis.call('ZREM', PREFIX .. ':sessions', id)
unplace(id, head)
for _, kind in ipairs({'head', 'commit', 'body', 'events', 'order', 'numbers', 'runs', 'journal',
  'inbox', 'asked'}) do
  redis.call('UNLINK', key(kind, id))
end
return {'ok'}
