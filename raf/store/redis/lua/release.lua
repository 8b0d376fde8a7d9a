-- Give a session back.
local id, nonce, epoch = unpack(ARGV, 3, 5)
local head = owned(id, nonce, epoch)
if not head or not head.owner then return {'ok'} end
redis.call('HDEL', key('head', id), 'owner', 'duration', 'expires_boot', 'until', 'claim')
unplace(id, head)
head.owner = nil
place(id, head)
return {'ok'}
