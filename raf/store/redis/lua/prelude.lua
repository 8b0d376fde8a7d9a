-- What every script begins with.  ARGV[1] is the prefix of all keys, ARGV[2] the store's identity.
--
-- Rules of these scripts:
-- * One script is one moment: the server runs nothing else meanwhile.
-- * A script checks first and writes then, for the server takes nothing back of one that fails.
-- * Each may be sent again after its reply was lost: what it did is known by an id or by the fence.
-- * Only the server's clock says whether a lease has run out.
-- * Every reply is a list whose first word says what came of it.
local PREFIX = ARGV[1]
if redis.call('HGET', PREFIX .. ':store', 'id') ~= ARGV[2] then return {'swapped'} end

local time = redis.call('TIME')
local NOW = tonumber(time[1]) + tonumber(time[2]) / 1000000

-- The id stands last, so that no two names of any ids and kinds fall together.
local function key(kind, id) return PREFIX .. ':' .. kind .. ':' .. id end

local function head_of(id)
  local flat = redis.call('HGETALL', key('head', id))
  if #flat == 0 then return nil end
  local head = {}
  for i = 1, #flat, 2 do head[flat[i]] = flat[i + 1] end
  return head
end

local function number(head, field)
  local value = tonumber(head[field])
  if not value then error('RAFDAMAGED ' .. field .. ' of the head') end
  return value
end

-- A session without a head has nothing at all.
local function no_remains(id)
  if redis.call('EXISTS', key('order', id), key('journal', id), key('inbox', id)) > 0 then
    error('RAFDAMAGED its head is gone')
  end
end

-- The head, if this lease may write; nil for a lost one.
local function owned(id, nonce, epoch)
  local head = head_of(id)
  if head and head.nonce == nonce and head.epoch == epoch then return head end
  return nil
end

local function deadline(head) return tonumber(head['until'] or '') or 0 end

-- Where a worker looks for sessions.  Each session stands in at most one of:
--   held:QUEUE          with the end of its lease
--   ready:LANE          wants to run now; with the time since when
--   timed:LANE          wants to run at that time
local function lane(head)
  local queue = head.queue or ''
  return #queue .. ':' .. queue .. ':' .. (head.fingerprint or '')
end

-- The list that a session stands in while nobody holds it, or nil.
local function wants(head)
  local asked = (tonumber(head.requests) or 0) > (tonumber(head.consumed) or 0)
  if head.wants == 'ready' or (asked and (head.wants == 'timed' or head.wants == 'asked')) then
    return 'ready'
  end
  return head.wants == 'timed' and 'timed' or nil
end

local function unplace(id, head)
  redis.call('ZREM', key('held', head.queue or ''), id)
  redis.call('ZREM', key('ready', lane(head)), id)
  redis.call('ZREM', key('timed', lane(head)), id)
end

local function place(id, head)
  if head.owner then
    redis.call('ZADD', key('held', head.queue or ''), string.format('%.6f', deadline(head)), id)
    return
  end
  local list = wants(head)
  if list then
    redis.call('ZADD', key(list, lane(head)), tonumber(head.since or '') or 0, id)
  end
end

-- Give the session to an owner; what is checked before is the caller's.
local function take(id, head, owner, duration, expires_boot, at, token, created)
  local took_over = head.owner and '1' or '0'
  local epoch = string.format('%d', number(head, 'epoch') + 1)
  local position = string.format('%d', number(head, 'position') + 1)
  local ends = string.format('%.6f', NOW + tonumber(duration))
  local claim = token .. ' ' .. took_over .. ' ' .. created
  redis.call('HSET', key('head', id), 'epoch', epoch, 'position', position, 'owner', owner,
    'duration', duration, 'expires_boot', expires_boot, 'until', ends, 'claim', claim)
  redis.call('RPUSH', key('journal', id),
    table.concat({position, epoch, 'claim', at, took_over, token, ''}, ' '))
  unplace(id, head)
  head.owner, head['until'] = owner, ends
  place(id, head)
  return {id, head.nonce, epoch, position, took_over, created}
end

-- What an earlier sending of this very claim took, or nil.
local function taken(id, head, token)
  local claim = head.claim or ''
  if not head.owner or string.sub(claim, 1, #token + 1) ~= token .. ' ' then return nil end
  local took_over, created = string.match(claim, ' (%d) (%d)$')
  return {id, head.nonce, head.epoch, head.position, took_over, created}
end
