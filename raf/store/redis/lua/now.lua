-- The server's time.
return {'ok', time[1] .. '.' .. string.format('%06d', time[2])}
