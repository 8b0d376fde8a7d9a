-- Write a session that another store kept.  Behind the fixed arguments: head fields and values,
-- commits (number, last event, run, clear, has events, events, has body, body), journal records, and
-- requests (id, item), each list after its length.
local id, epoch, token = unpack(ARGV, 3, 5)
local place_of = 6
local function list(width)
  local from, count = place_of + 1, tonumber(ARGV[place_of])
  place_of = from + count * width
  local index = -1
  return function()
    index = index + 1
    if index < count then return unpack(ARGV, from + index * width, from + index * width + width - 1) end
  end
end

local known = head_of(id)
if known then return {known.adopted == token and 'ok' or 'exists'} end
no_remains(id)
local grave = tonumber(redis.call('HGET', PREFIX .. ':graves', id) or '') or -1
epoch = string.format('%d', math.max(tonumber(epoch), grave + 1))

redis.call('HSET', key('head', id), 'epoch', epoch, 'adopted', token)
for field, value in list(2) do redis.call('HSET', key('head', id), field, value) end
for commit, last_event, run_id, clear, has_events, events, has_body, body in list(8) do
  redis.call('HSET', key('commit', id), commit, clear)
  redis.call('ZADD', key('order', id), string.match(clear, '^%d+'), commit)
  if run_id ~= '' then redis.call('HSET', key('runs', id), run_id, commit) end
  if has_events == '1' then
    redis.call('HSET', key('events', id), commit, events)
    redis.call('ZADD', key('numbers', id), last_event, commit)
  end
  if has_body == '1' then redis.call('HSET', key('body', id), commit, body) end
end
for record in list(1) do redis.call('RPUSH', key('journal', id), record) end
for request_id, item in list(2) do
  local seq = redis.call('RPUSH', key('inbox', id), item)
  redis.call('HSET', key('asked', id), request_id, seq)
end
redis.call('HDEL', PREFIX .. ':graves', id)
redis.call('ZADD', PREFIX .. ':sessions', 0, id)
place(id, head_of(id))
return {'ok'}
