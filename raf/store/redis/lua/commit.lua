-- A step: the head and one record.
local id, nonce, epoch, commit_id, commit, first_event, event_count = unpack(ARGV, 3, 9)
local consumed, ends_journal, created_at, clear, body, events = unpack(ARGV, 10, 15)
local summary, queue, fingerprint, since, wish, run_id = unpack(ARGV, 16, 21)

local head = owned(id, nonce, epoch)
if not head then return {'lost'} end
if head.commit_id == commit_id then return {'ok'} end
local old = number(head, 'commit')
local seen, done, asked = number(head, 'events'), number(head, 'consumed'), number(head, 'requests')
if tonumber(commit) ~= old + 1 or tonumber(first_event) ~= seen + 1
  or tonumber(consumed) < done or tonumber(consumed) > asked then
  return {'order', head.commit, head.events, head.consumed, head.requests}
end
if redis.call('HEXISTS', key('commit', id), commit) == 1 then
  error('RAFDAMAGED the head is older than commit ' .. commit)
end

local position = string.format('%d', number(head, 'position') + 1)
local last_event = string.format('%d', seen + tonumber(event_count))
redis.call('HSET', key('commit', id), commit, position .. ' ' .. clear)
redis.call('HSET', key('body', id), commit, body)
if tonumber(event_count) > 0 then
  redis.call('HSET', key('events', id), commit, events)
  redis.call('ZADD', key('numbers', id), last_event, commit)
end
redis.call('ZADD', key('order', id), position, commit)
if run_id ~= '' then redis.call('HSET', key('runs', id), run_id, commit) end
if ends_journal == '1' then
  redis.call('UNLINK', key('journal', id))
  redis.call('HSET', key('head', id), 'journal_from', position)
end
redis.call('HSET', key('head', id), 'position', position, 'commit', commit,
  'commit_position', position, 'commit_id', commit_id, 'events', last_event,
  'consumed', consumed, 'updated_at', created_at, 'summary', summary,
  'queue', queue, 'fingerprint', fingerprint, 'since', since, 'wants', wish)
if not head.owner or head.queue ~= queue then
  unplace(id, head)
  head.queue, head.fingerprint, head.since, head.wants = queue, fingerprint, since, wish
  head.consumed = consumed
  place(id, head)
end
return {'ok'}
