-- One more in the inbox, or the one that is there.
local id, request_id, item = unpack(ARGV, 3, 5)
local head = head_of(id)
if not head then return {'missing'} end
local known = redis.call('HGET', key('asked', id), request_id)
if known then return {'ok', redis.call('LINDEX', key('inbox', id), known - 1)} end
item = string.format('%d', number(head, 'requests') + 1) .. ' ' .. item
head.requests = string.match(item, '^%d+')
redis.call('RPUSH', key('inbox', id), item)
redis.call('HSET', key('asked', id), request_id, head.requests)
redis.call('HSET', key('head', id), 'requests', head.requests)
if not head.owner then
  unplace(id, head)
  place(id, head)
end
return {'ok', item}
