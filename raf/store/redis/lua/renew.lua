-- Extend leases, each given by id, nonce, epoch, duration and its end on the owner's clock.
local answers = {}
for i = 3, #ARGV, 5 do
  local id, nonce, epoch, duration, expires_boot = unpack(ARGV, i, i + 4)
  local head = owned(id, nonce, epoch)
  if head and head.owner then
    head['until'] = string.format('%.6f', NOW + tonumber(duration))
    redis.call('HSET', key('head', id), 'until', head['until'], 'duration', duration,
      'expires_boot', expires_boot)
    place(id, head)
    answers[#answers + 1] = '1'
  else
    answers[#answers + 1] = '0'
  end
end
return {'ok', answers}
