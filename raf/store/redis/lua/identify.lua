-- Return the store's mark; make it where there is none, if an identity is given.  Without prelude.
local mark = ARGV[1] .. ':store'
if ARGV[2] ~= '' and redis.call('EXISTS', mark) == 0 then
  redis.call('HSET', mark, 'format', '1', 'id', ARGV[2])
end
local time = redis.call('TIME')
return {redis.call('HGET', mark, 'format') or '', redis.call('HGET', mark, 'id') or '',
  time[1] .. '.' .. string.format('%06d', time[2])}
