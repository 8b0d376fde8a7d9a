-- Journal records.  Only a sending after the first looks whether an earlier one arrived.
local id, nonce, epoch, at, token, again = unpack(ARGV, 3, 8)
local head = owned(id, nonce, epoch)
if not head then return {'lost'} end
if again == '1' then
  for _, record in ipairs(redis.call('LRANGE', key('journal', id), 0, -1)) do
    if string.match(record, '^%d+ %d+ journal %S+ 0 (%S+) ') == token then return {'ok'} end
  end
end
local position = number(head, 'position')
for i = 9, #ARGV do
  position = position + 1
  local clear = {string.format('%d', position), epoch, 'journal', at, '0', token, ARGV[i]}
  redis.call('RPUSH', key('journal', id), table.concat(clear, ' '))
end
redis.call('HSET', key('head', id), 'position', string.format('%d', position))
return {'ok'}
