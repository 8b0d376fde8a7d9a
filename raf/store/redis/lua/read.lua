-- What is selected of a session, all of this moment.
local id, chain, at, journal, requests, after, limit = unpack(ARGV, 3, 9)
local infos, kept, run, run_id, log, inbox = unpack(ARGV, 10, 15)

local flat = redis.call('HGETALL', key('head', id))
if #flat == 0 then
  no_remains(id)
  return {'missing'}
end
local head = head_of(id)

local function record(commit)
  return {
    redis.call('HGET', key('commit', id), commit) or '',
    redis.call('HGET', key('events', id), commit),
    redis.call('HGET', key('body', id), commit),
  }
end

local function info(commit)
  return {
    redis.call('HGET', key('commit', id), commit) or '',
    redis.call('HSTRLEN', key('events', id), commit),
    redis.call('HSTRLEN', key('body', id), commit),
  }
end

local function each(commits, make)
  local found = {}
  for _, commit in ipairs(commits) do found[#found + 1] = make(commit) end
  return found
end

-- From the asked commit down to the nearest full one; nothing if a body is gone on the way.
local function links()
  local commit, found = at == '' and number(head, 'commit') or tonumber(at), {}
  while commit >= 0 do
    local one = record(string.format('%d', commit))
    if not one[3] then return {} end
    found[#found + 1] = one
    if string.match(one[1], '^%d+ %d+ %S+ %S+ %S+ (%d)') == '1' then return found end
    commit = commit - 1
  end
  return {}
end

local function with_events()
  local above = math.max(tonumber(after), number(head, 'first_event') - 1)
  return redis.call('ZRANGEBYSCORE', key('numbers', id), '(' .. string.format('%d', above), '+inf',
    'LIMIT', 0, limit)
end

local function with_body()
  local found = redis.call('HKEYS', key('body', id))
  table.sort(found, function(a, b) return tonumber(a) < tonumber(b) end)
  return found
end

local function all() return redis.call('ZRANGE', key('order', id), 0, -1) end
local function list(kind, from) return redis.call('LRANGE', key(kind, id), from, -1) end

local newest = redis.call('ZREVRANGE', key('order', id), 0, 0)
local finished = run == '1' and redis.call('HGET', key('runs', id), run_id)
return {
  'ok', flat, each(newest, info),
  chain == '1' and links() or {},
  (journal == '1' or log == '1') and list('journal', 0) or {},
  requests == '1' and list('inbox', number(head, 'consumed')) or {},
  after ~= '' and each(with_events(), record) or {},
  infos == '1' and each(all(), info) or {},
  kept == '1' and each(with_body(), info) or {},
  finished and {record(finished)} or {},
  log == '1' and each(all(), record) or {},
  inbox == '1' and list('inbox', 0) or {},
}
