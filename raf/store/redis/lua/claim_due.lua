-- Take at most `limit` sessions that want to run and that nobody holds, longest due first.
-- Behind the fixed arguments: owners found dead, fingerprints, ids to skip, and queues with their
-- limits ('' for none), each list after its length.
local owner, duration, expires_boot, at, token, limit = unpack(ARGV, 3, 8)
limit = tonumber(limit)
local place_of = 9
local function list(width)
  local from, count = place_of + 1, tonumber(ARGV[place_of]) * width
  place_of = from + count
  local found = {}
  for i = from, from + count - 1 do found[#found + 1] = ARGV[i] end
  return found
end
local function set(words)
  local found = {}
  for _, word in ipairs(words) do found[word] = true end
  return found
end
local dead, fingerprints, skipped, queues = set(list(1)), list(1), list(1), list(2)
local runs, skip = set(fingerprints), set(skipped)

local again, owners, found = {}, {}, {}
local function offer(id, since, queue)
  if not skip[id] then found[#found + 1] = {id = id, since = tonumber(since) or 0, queue = queue} end
end

local room = {}
for i = 1, #queues, 2 do
  local queue = queues[i]
  room[queue] = tonumber(queues[i + 1]) or math.huge
  local held = redis.call('ZRANGE', key('held', queue), 0, -1, 'WITHSCORES')
  for j = 1, #held, 2 do
    local id = held[j]
    local head = redis.call('HMGET', key('head', id), 'owner', 'claim')
    local who = head[1] or ''
    if string.sub(head[2] or '', 1, #token + 1) == token .. ' ' then
      again[#again + 1] = taken(id, head_of(id), token)
      room[queue] = room[queue] - 1
    elseif tonumber(held[j + 1]) > NOW and not dead[who] then
      room[queue] = room[queue] - 1
      owners[who] = true
    else
      local whole = head_of(id)
      local list = whole and wants(whole)
      local since = list and (tonumber(whole.since or '') or 0)
      if list and runs[whole.fingerprint] and (list == 'ready' or since <= NOW) then
        offer(id, since, queue)
      end
    end
  end
  for _, fingerprint in ipairs(fingerprints) do
    local where, last = #queue .. ':' .. queue .. ':' .. fingerprint, limit + #skipped
    for _, list in ipairs({'ready', 'timed'}) do
      local top = list == 'ready' and '+inf' or string.format('%.6f', NOW)
      local waiting = redis.call('ZRANGEBYSCORE', key(list, where), '-inf', top,
        'WITHSCORES', 'LIMIT', 0, last)
      for j = 1, #waiting, 2 do offer(waiting[j], waiting[j + 1], queue) end
    end
  end
end
local names = {}
for who in pairs(owners) do names[#names + 1] = who end
if #again > 0 then return {'ok', again, names} end

-- By bytes: the server's `<` on strings goes by its locale.
local function before(a, b)
  for i = 1, math.min(#a, #b) do
    local left, right = string.byte(a, i), string.byte(b, i)
    if left ~= right then return left < right end
  end
  return #a < #b
end
table.sort(found, function(a, b)
  if a.since ~= b.since then return a.since < b.since end
  return before(a.id, b.id)
end)
local claimed = {}
for _, one in ipairs(found) do
  local head = #claimed < limit and room[one.queue] > 0 and head_of(one.id)
  if head and tonumber(head.epoch) and tonumber(head.position) then
    claimed[#claimed + 1] = take(one.id, head, owner, duration, expires_boot, at, token, '0')
    room[one.queue] = room[one.queue] - 1
  end
end
return {'ok', claimed, names}
