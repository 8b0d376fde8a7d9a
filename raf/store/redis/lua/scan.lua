-- Heads of sessions above an id; ids of equal score stand in the order of their bytes, which for
-- UTF-8 is the order of code points.
local after, limit = ARGV[3], ARGV[4]
local ids = redis.call('ZRANGEBYLEX', PREFIX .. ':sessions', after == '' and '-' or '(' .. after,
  '+', 'LIMIT', 0, limit)
local found = {}
for _, id in ipairs(ids) do found[#found + 1] = {id, redis.call('HGETALL', key('head', id))} end
return {'ok', found}
