-- What differs between the functions of `string` that take patterns and Lua's own, which are in `theirs`; or nil.
local ours = string

local function shown(ok, ...)
  if not ok then return "error" end
  local words = {}
  for at = 1, select("#", ...) do words[at] = theirs.format("%s:%q", math.type((select(at, ...))) or "", (select(at, ...))) end
  return table.concat(words, " ")
end

local function all(from, subject, pattern, init)
  local words = {}
  for a, b, c in from.gmatch(subject, pattern, init) do words[#words + 1] = shown(true, a, b, c) end
  return table.concat(words, ";")
end

local function joined(...) return shown(true, ...) end

return function(subject, pattern, init)
  local tries = {
    find = function(from) return from.find(subject, pattern, init) end,
    plain = function(from) return from.find(subject, pattern, init, true) end,
    match = function(from) return from.match(subject, pattern, init) end,
    gmatch = function(from) return all(from, subject, pattern, init) end,
    gsub = function(from) return from.gsub(subject, pattern, joined) end,
    some = function(from) return from.gsub(subject, pattern, joined, init) end,
    -- Of a capture that is never closed C looks at those alone that are wanted: here it is always an error.
    table = function(from)
      from.match(subject, pattern)
      return from.gsub(subject, pattern, { a = "A", b = 2, [1] = "one" })
    end,
    text = function(from)
      from.match(subject, pattern)
      return from.gsub(subject, pattern, "<%0%%%1>")
    end,
  }
  for name, try in pairs(tries) do
    local mine, lua = shown(pcall(try, ours)), shown(pcall(try, theirs))
    if mine ~= lua then return theirs.format("%s(%q, %q, %d): %s, Lua: %s", name, subject, pattern, init, mine, lua) end
  end
end
