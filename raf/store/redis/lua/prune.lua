-- Empty bodies at positions, and events below a number ('' for none).
local id, nonce, epoch, before = unpack(ARGV, 3, 6)
local head = owned(id, nonce, epoch)
if not head then return {'lost'} end
local first = number(head, 'first_event')

for i = 7, #ARGV do
  local commit = redis.call('ZRANGEBYSCORE', key('order', id), ARGV[i], ARGV[i])[1]
  if commit then redis.call('HDEL', key('body', id), commit) end
end
if before == '' then return {'ok'} end

-- Along the commits the number of the last event never falls.
for _, commit in ipairs(redis.call('ZRANGE', key('order', id), 0, -1)) do
  local clear = redis.call('HGET', key('commit', id), commit) or ''
  local from, count = string.match(clear, '^%d+ %d+ %S+ %S+ %S+ %d (%d+) (%d+) ')
  local last_event = from and tonumber(from) + tonumber(count) - 1
  if not last_event or last_event >= tonumber(before) then break end
  first = math.max(first, last_event + 1)
  redis.call('HDEL', key('events', id), commit)
  redis.call('ZREM', key('numbers', id), commit)
  local ends_no_run = string.match(clear, '^%d+ %d+ %S+ %S+ %S+ %d %d+ %d+ $')
  if ends_no_run and redis.call('HEXISTS', key('body', id), commit) == 0 then
    redis.call('HDEL', key('commit', id), commit)
    redis.call('ZREM', key('order', id), commit)
  end
end
redis.call('HSET', key('head', id), 'first_event', string.format('%d', first))
return {'ok'}
